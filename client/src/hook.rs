//! A say in what happens after a failed attempt.

use std::{
    error::Error,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use crate::{Failure, Outcome, Verdict};

/// A failed attempt, before anything is decided about it.
#[non_exhaustive]
pub struct FailureEvent<'a> {
    /// The dependency's name.
    pub dependency: &'a str,
    /// The operation's name.
    pub operation: &'a str,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// What went wrong, as far as it was understood.
    pub failure: &'a Failure,
    /// The caller's own error; `None` if the attempt was cut off, or its result judged a failure.
    pub error: Option<&'a (dyn Error + 'static)>,
    /// Time left for the operation; `None` without a deadline.
    pub remaining: Option<Duration>,
}

impl fmt::Debug for FailureEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureEvent")
            .field("dependency", &self.dependency)
            .field("operation", &self.operation)
            .field("attempt", &self.attempt)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// What a hook wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// No retry: final.
    Drop,
    /// A retry although the class says no. It overrides neither a veto of the dependency, nor an effect that is
    /// not known, nor the deadline, the owner, the kill switch or the budget.
    Retry,
    /// What the rules say.
    #[default]
    Defer,
}

/// A say in all operations of a client, given to [`Builder::hooks`](crate::Builder::hooks). What an operation was
/// told itself goes first. A hook that panics has said nothing.
///
/// ```
/// use damper_client::{Advice, Damper, FailureEvent, Hooks};
///
/// struct Maintenance;
///
/// impl Hooks for Maintenance {
///     fn on_failure(&self, event: &FailureEvent<'_>) -> Advice {
///         if event.dependency == "archive" { Advice::Drop } else { Advice::Defer }
///     }
/// }
///
/// let damper = Damper::builder("http://127.0.0.1:7117").hooks(Maintenance).build();
/// # assert!(damper.is_ok());
/// ```
pub trait Hooks: Send + Sync + 'static {
    /// What an outcome means on which no classifier of its operation has an opinion.
    fn classify(&self, outcome: &Outcome<'_>) -> Verdict {
        let _ = outcome;
        Verdict::Pass
    }

    /// What is wanted after a failed attempt. [`Advice::Drop`] is final; anything else counts only if the
    /// operation's own hook defers.
    fn on_failure(&self, event: &FailureEvent<'_>) -> Advice {
        let _ = event;
        Advice::Defer
    }
}

/// A hook as it is kept.
pub(crate) type OnFailure = Arc<dyn Fn(&FailureEvent<'_>) -> Advice + Send + Sync>;

/// Runs a piece of the caller's code that must not take the operation down: a panic in it is nothing said.
pub(crate) fn isolated<T: Default>(code: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_default()
}
