//! An attempt that the caller makes by itself.

use std::{error::Error, fmt};

use super::run::{Ended, Run};
use crate::{Attempt, CallError};

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
