//! Work that goes before an operation's call, and is a part of it.

use tokio::time::Instant;

use super::Operation;
use crate::{Deadline, Scope};

impl Operation {
    /// The same as if it were called now, and when it has to be over then.
    pub(crate) fn begun_now(self) -> (Self, Option<Instant>) {
        let clock = self.dependency.pair.handle.core.clock;
        let now = clock.now();
        let outer = Scope::current();
        let limit = self.deadline.limit(clock, now, outer.as_ref().and_then(Scope::end));
        match limit.left(now).map(|left| clock.instant(now.saturating_add(left))) {
            Some(end) => (self.deadline(Deadline::at(end.into())), Some(end)),
            None => (self, None),
        }
    }
}
