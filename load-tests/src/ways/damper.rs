//! The way `damper`: each client asks for its retries.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use damper_client::{
    Builder, Damper as Client, Deadline, Dependency, Failure, FailureClass, FailureReason, Idempotency,
    Inbound, Observer, Profile, Reason, StopReason,
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
    layer: Layer,
}

/// What stands above the client and retries too.
#[derive(Debug)]
pub enum Layer {
    /// Nothing.
    Nobody,
    /// Another client of damper, which passes its context on.
    Damper(Dependency),
    /// Something that knows nothing of damper.
    Foreign,
}

/// Attempts of the layer above, and of the client below it.
const LAYERED_ATTEMPTS: u32 = 3;

/// The header in which a foreign layer numbers its repeats.
const FOREIGN_HEADER: HeaderName = HeaderName::from_static("x-stainless-retry-count");

impl Damper {
    /// The set-up of a client named `id` that belongs to `tenant`; what it decides is recorded.
    pub fn setup(recorder: &Arc<Recorder>, server: &str, tenant: &str, id: &str) -> Builder {
        let watcher = Watcher(Arc::clone(recorder));
        Client::builder(server).tenant(tenant).client_id(id).name("damper-load").observer(watcher)
    }

    /// A client that calls the dependency of that name.
    #[must_use]
    pub fn new(wire: Wire, client: Client, dependency: &str, layer: Layer) -> Self {
        let dependency = client.dependency(dependency);
        Self { wire, client, dependency, layer }
    }

    /// The way to the dependency.
    #[must_use]
    pub const fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Carries out an operation; returns whether it succeeded.
    pub async fn carry_out(&self, operation: &Operation) -> bool {
        match &self.layer {
            Layer::Nobody => self.call(operation).await,
            Layer::Damper(front) => self.below(front, operation).await,
            Layer::Foreign => self.below_a_stranger(operation).await,
        }
    }

    async fn call(&self, operation: &Operation) -> bool {
        let mut call = self.dependency.operation("load").idempotency(Idempotency::Idempotent);
        if !matches!(self.layer, Layer::Nobody) {
            call = call.profile(Profile::standard().with_attempts(LAYERED_ATTEMPTS));
        }
        let attempts = call.deadline(Deadline::after(operation.time_left())).call(|_| async move {
            let outcome = self.wire.attempt(operation, operation.next_attempt()).await;
            failure(outcome).map_or(Ok(()), Err)
        });
        attempts.await.is_ok()
    }

    async fn below(&self, front: &Dependency, operation: &Operation) -> bool {
        let request = front
            .operation("handle")
            .idempotency(Idempotency::Idempotent)
            .profile(Profile::standard().with_attempts(LAYERED_ATTEMPTS))
            .deadline(Deadline::after(operation.time_left()))
            .call(|attempt| async move {
                let mut headers = HeaderMap::new();
                attempt.inject(&mut headers);
                match Inbound::from_headers(&headers).scope().run(self.call(operation)).await {
                    true => Ok(()),
                    false => Err(Failure::new(FailureClass::Transient).with_code("502")),
                }
            });
        request.await.is_ok()
    }

    async fn below_a_stranger(&self, operation: &Operation) -> bool {
        for repeat in 0..LAYERED_ATTEMPTS {
            let headers = HeaderMap::from_iter([(FOREIGN_HEADER, HeaderValue::from(repeat))]);
            if Inbound::from_headers(&headers).scope().run(self.call(operation)).await {
                return true;
            }
        }
        false
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
        Outcome::Wrong => Some(Failure::new(FailureClass::Semantic).with_code("wrong_answer")),
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
