//! The way `damper`: each client asks for its retries.

use std::sync::Arc;
use std::time::Duration;

use damper_client::{
    BuildError, Damper as Client, Deadline, Dependency, Failure, FailureClass, FailureReason, Idempotency,
    Observer, Reason, StopReason,
};

use super::{Operation, Wire};
use crate::measure::{Outcome, Recorder, Refusal};

/// How long a client may take to deliver its totals at the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// A client of a damper server.
#[derive(Debug)]
pub struct Damper {
    wire: Wire,
    client: Client,
    dependency: Dependency,
}

impl Damper {
    /// A client of the server at `server`, named `id`, that calls the dependency of that name.
    ///
    /// # Errors
    /// The address of the server is none.
    pub fn new(
        wire: Wire,
        recorder: &Arc<Recorder>,
        server: &str,
        id: &str,
        dependency: &str,
    ) -> Result<Self, BuildError> {
        let watcher = Watcher(Arc::clone(recorder));
        let client = Client::builder(server)
            .tenant("load")
            .client_id(id)
            .name("damper-load")
            .observer(watcher)
            .build()?;
        let dependency = client.dependency(dependency);
        Ok(Self { wire, client, dependency })
    }

    /// The way to the dependency.
    #[must_use]
    pub const fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Carries out an operation; returns whether it succeeded.
    pub async fn carry_out(&self, operation: &Operation) -> bool {
        let call = self
            .dependency
            .operation("load")
            .idempotency(Idempotency::Idempotent)
            .deadline(Deadline::after(operation.time_left()))
            .call(|attempt| async move {
                let outcome = self.wire.attempt(operation, attempt.number()).await;
                failure(outcome).map_or(Ok(()), Err)
            });
        call.await.is_ok()
    }

    /// Delivers the client's last totals and ends its tasks.
    pub async fn say_goodbye(&self) {
        self.client.shutdown(FAREWELL).await;
    }
}

/// What an outcome means to damper.
fn failure(outcome: Outcome) -> Option<Failure> {
    match outcome {
        Outcome::Success => None,
        Outcome::Unavailable => Some(Failure::new(FailureClass::Transient).with_code("503")),
        Outcome::Timeout => Some(Failure::new(FailureClass::Transient).with_reason(FailureReason::Timeout)),
        Outcome::Broken => Some(Failure::new(FailureClass::Transient).with_code("broken")),
        Outcome::RateLimited(retry_after) => {
            let failure = Failure::new(FailureClass::RateLimited).with_code("429");
            Some(retry_after.into_iter().fold(failure, Failure::with_retry_after))
        }
    }
}

/// Records what became of the retries that were wanted.
#[derive(Debug)]
struct Watcher(Arc<Recorder>);

impl Observer for Watcher {
    fn granted(&self, _: &str, reason: Reason, _: Duration) {
        if reason == Reason::AfterDelay {
            self.0.refused(Refusal::Delayed, reason.as_str());
        }
    }

    fn stopped(&self, _: &str, reason: StopReason) {
        let refusal = match reason {
            // The operation ended by itself: no further retry was wanted.
            StopReason::AttemptsExhausted
            | StopReason::NotRetryable
            | StopReason::AmbiguousNotRepeatable
            | StopReason::DeadlineExceeded => return,
            StopReason::Expired | StopReason::DeadlineTooShort => Refusal::Expired,
            _ => Refusal::Shed,
        };
        self.0.refused(refusal, reason.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damper_hears_what_the_dependency_said() {
        assert_eq!(failure(Outcome::Success), None);
        let limited = failure(Outcome::RateLimited(Some(Duration::from_secs(2)))).unwrap();
        assert_eq!(
            (limited.class, limited.retry_after),
            (FailureClass::RateLimited, Some(Duration::from_secs(2)))
        );
        let late = failure(Outcome::Timeout).unwrap();
        assert_eq!((late.class, late.reason), (FailureClass::Transient, Some(FailureReason::Timeout)));
    }
}
