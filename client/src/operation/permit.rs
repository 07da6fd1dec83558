//! An attempt that the caller makes by itself.

use std::{error::Error, fmt, future::Future, ops::ControlFlow, pin::pin};

use super::run::{Ended, Run};
use crate::{Attempt, CallError, Failure, Outcome, Verdict};

/// The right to make one attempt, given by [`Operation::admit`](super::Operation::admit). Say how it ended; a
/// permit that is dropped counts as abandoned.
///
/// ```
/// use damper_client::{Damper, Failure, FailureClass};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let dependency = Damper::inert().dependency("d");
/// let mut permit = dependency.operation("get").admit().await.expect("not refused");
/// let error = loop {
///     match Err::<(), _>(Failure::new(FailureClass::Transient)) {
///         Ok(()) => return permit.succeeded(),
///         Err(failure) => match permit.failed(failure).await {
///             Ok(next) => permit = next,
///             Err(error) => break error,
///         },
///     }
/// };
/// assert_eq!(error.attempts, 1);
/// # }
/// ```
#[must_use = "a permit that is dropped counts as abandoned"]
pub struct Permit {
    run: Run,
    attempt: Attempt,
}

impl Permit {
    pub(super) fn new(mut run: Run) -> Self {
        let attempt = run.attempt_started();
        Self { run, attempt }
    }

    /// The attempt.
    #[must_use]
    pub const fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Runs the attempt as [`Operation::call`](super::Operation::call) does: in its [scope](crate::Scope), and cut
    /// off at its end. Continues with the permit for another attempt, or breaks with the outcome of the operation.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use damper_client::{Damper, Failure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let dependency = Damper::inert().dependency("d");
    /// let mut permit = dependency.operation("get").admit().await.expect("not refused");
    /// let outcome = loop {
    ///     match permit.run(async { Ok::<_, Failure>("done") }).await {
    ///         ControlFlow::Continue(next) => permit = next,
    ///         ControlFlow::Break(outcome) => break outcome,
    ///     }
    /// };
    /// assert_eq!(outcome.ok(), Some("done"));
    /// # }
    /// ```
    pub async fn run<T, E, F>(mut self, attempt: F) -> ControlFlow<Result<T, CallError<E>>, Self>
    where
        F: Future<Output = Result<T, E>>,
        T: 'static,
        E: Error + 'static,
    {
        let ended = match self.run.within(pin!(attempt)).await {
            Some(Ok(value)) => match self.run.judged(&value, |_| Verdict::Pass) {
                Some(failure) => Ended::Judged(failure),
                None => {
                    self.run.succeeded();
                    return ControlFlow::Break(Ok(value));
                }
            },
            Some(Err(error)) => Ended::Failed(error),
            None => Ended::CutOff,
        };
        match self.run.after(ended).await {
            Ok(run) => ControlFlow::Continue(Self::new(run)),
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }

    /// It ended like this, and the operation with it, unless its caller goes on by itself. Returns the failure that
    /// it was, for [`Admission::Retry`](crate::Admission::Retry); `None` if it was a success.
    pub fn finish(mut self, outcome: &Outcome<'_>) -> Option<Failure> {
        self.run.finish(outcome)
    }

    /// It succeeded.
    pub fn succeeded(mut self) {
        self.run.succeeded();
    }

    /// It failed; waits for the permit for another one.
    ///
    /// # Errors
    ///
    /// [`CallError`] if there is none.
    pub async fn failed<E: Error + 'static>(self, error: E) -> Result<Self, CallError<E>> {
        self.run.after(Ended::Failed(error)).await.map(Self::new)
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.attempt).finish()
    }
}
