//! What is logged.

use std::fmt::Debug;

use tracing::{Event, Level, Subscriber, field::Field, subscriber::DefaultGuard};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt};

use super::*;

/// Notes the damper's events: level and message.
#[derive(Clone, Default)]
pub(crate) struct Logs(Arc<Mutex<Vec<(Level, String)>>>);

impl Logs {
    /// Of this thread, while the guard lives.
    pub(crate) fn of_this_thread() -> (Self, DefaultGuard) {
        let logs = Self::default();
        let subscriber = tracing_subscriber::registry().with(logs.clone());
        (logs, tracing::subscriber::set_default(subscriber))
    }

    /// The messages from informative to grave, and forgets them. Not the hint that a first operation without a deadline
    /// gives.
    pub(crate) fn take(&self) -> Vec<(Level, String)> {
        let mut taken = std::mem::take(&mut *self.0.lock());
        taken.retain(|(_, message)| !message.starts_with("operations that are given no deadline"));
        taken
    }
}

struct Message(String);

impl tracing::field::Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl<S: Subscriber> Layer<S> for Logs {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() == "damper" && *metadata.level() <= Level::INFO {
            let mut message = Message(String::new());
            event.record(&mut message);
            self.0.lock().push((*metadata.level(), message.0));
        }
    }
}
