//! What is logged.

use std::{collections::BTreeMap, fmt::Debug};

use tracing::{Event, Level, Subscriber, field::Field, subscriber::DefaultGuard};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt};

use super::*;

/// By name, as they are shown.
pub(crate) type Fields = BTreeMap<String, String>;

/// Notes fields.
pub(crate) struct Reader<'a>(pub(crate) &'a mut Fields);

impl tracing::field::Visit for Reader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

/// Notes the damper's events, from informative to grave.
#[derive(Clone, Default)]
pub(crate) struct Logs(Arc<Mutex<Vec<(Level, Fields)>>>);

impl Logs {
    /// Of this thread, while the guard lives.
    pub(crate) fn of_this_thread() -> (Self, DefaultGuard) {
        let logs = Self::default();
        let subscriber = tracing_subscriber::registry().with(logs.clone());
        (logs, tracing::subscriber::set_default(subscriber))
    }

    /// The messages, and forgets them. Not the hint that a first operation without a deadline gives.
    pub(crate) fn take(&self) -> Vec<(Level, String)> {
        let taken = std::mem::take(&mut *self.0.lock()).into_iter();
        let messages = taken.filter_map(|(level, mut fields)| Some((level, fields.remove("message")?)));
        messages
            .filter(|(_, message)| !message.starts_with("operations that are given no deadline"))
            .collect()
    }

    /// How many events of this level have a field that holds this text.
    pub(crate) fn count(&self, level: Level, field: &str, text: &str) -> usize {
        let is_one = |(of, fields): &&(Level, Fields)| {
            *of == level && fields.get(field).is_some_and(|value| value.contains(text))
        };
        self.0.lock().iter().filter(is_one).count()
    }
}

impl<S: Subscriber> Layer<S> for Logs {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() == "damper" && *metadata.level() <= Level::INFO {
            let mut fields = Fields::new();
            event.record(&mut Reader(&mut fields));
            self.0.lock().push((*metadata.level(), fields));
        }
    }
}
