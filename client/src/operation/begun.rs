//! When an operation that begins now has to be over.

use crate::{Deadline, Scope, clock::Moment, core::Core, deadline::Limit};

/// By its deadline, or the one that it has if it was given none, and never later than what it is called in.
pub(super) fn limit(
    deadline: Option<Deadline>,
    is_endless: bool,
    core: &Core,
    now: Moment,
    outer: Option<&Scope>,
) -> Limit {
    let outer_end = outer.and_then(Scope::end);
    let deadline = deadline.unwrap_or_else(|| match is_endless {
        true => Deadline::unbounded(),
        false => core.default_deadline(outer_end.is_some()),
    });
    deadline.limit(core.clock, now, outer_end)
}

#[cfg(feature = "tower")]
impl super::Operation {
    /// The same as if it were called now, and when it has to be over then: for work that goes before its call.
    pub(crate) fn begun_now(self) -> (Self, Option<tokio::time::Instant>) {
        let core = &self.dependency.pair.handle.core;
        let (clock, now) = (core.clock, core.clock.now());
        let is_endless = self.profile.is_some_and(|profile| profile.is_endless());
        let limit = limit(self.deadline, is_endless, core, now, Scope::current().as_ref());
        match limit.left(now).map(|left| clock.instant(now.saturating_add(left))) {
            Some(end) => (self.deadline(Deadline::at(end.into())), Some(end)),
            None => (self, None),
        }
    }
}
