//! How attempts end, and what is made of it.

use std::{error::Error, time::Duration};

use damper_protocol::{Dispatch, FailureClass, FailureReason, FailureSource};

use super::{Phase, Run};
use crate::{Advice, CallError, Failure, FailureEvent, Past, classify, clock::Moment, hook::isolated};

/// The latest failures that an error carries.
const MOST_HISTORY: usize = 16;

/// How an attempt ended that did not succeed.
pub(in crate::operation) enum Ended<E> {
    Failed(E),
    /// It brought a value that is none.
    Judged(Failure),
    CutOff,
}

impl Run {
    pub(in crate::operation) fn succeeded(&mut self) {
        let (now, took) = self.attempt_ended(Some(true));
        self.phase = Phase::Over;
        self.state().latency.record(took);
        if self.repeats || self.first_failed_at.is_some() {
            self.state().counts.recovered.up();
        }
        if let Some(first_failed_at) = self.first_failed_at {
            self.state().counts.recovery.record(now.saturating_sub(first_failed_at));
        }
        self.state().counts.success.up();
        self.core().observer.succeeded(&self.state().name, self.attempts);
    }

    /// Counts and classifies a failed attempt, and finds the way to another one.
    pub(in crate::operation) async fn after<E: Error + 'static>(
        mut self,
        ended: Ended<E>,
    ) -> Result<Self, CallError<E>> {
        let error = match &ended {
            Ended::Failed(error) => Some(error as &(dyn Error + 'static)),
            Ended::Judged(_) | Ended::CutOff => None,
        };
        let failure = self.failure(&ended, error);
        let failure = self.attempt_failed(failure, error);
        let error = match ended {
            Ended::Failed(error) => Some(error),
            Ended::Judged(_) | Ended::CutOff => None,
        };
        match self.next(&failure).await {
            Ok(()) => Ok(self),
            Err(stop) => Err(self.stopped(stop, Some(failure), error)),
        }
    }

    fn failure<E>(&mut self, ended: &Ended<E>, error: Option<&(dyn Error + 'static)>) -> Failure {
        let mut failure = match (ended, error) {
            (Ended::Judged(failure), _) => failure.clone(),
            (_, Some(error)) => classify::failure(error, &self.rules.classifiers),
            _ if self.limit.is_own() => Failure::own_deadline(),
            _ => Failure::timed_out(),
        };
        self.cut_off = matches!(ended, Ended::CutOff) && self.limit.is_own();
        failure.dispatch = self.life.take_dispatch().unwrap_or(failure.dispatch);
        failure.do_not_retry |= std::mem::take(&mut self.spent);
        failure
    }

    fn attempt_failed(&mut self, failure: Failure, error: Option<&(dyn Error + 'static)>) -> Failure {
        let (now, took) = self.attempt_ended(health(&failure));
        self.first_failed_at.get_or_insert(now);
        self.phase = Phase::Between;
        self.fruitless = if self.life.take_progress() { 1 } else { self.fruitless.saturating_add(1) };
        self.ambiguous |= failure.dispatch == Dispatch::Ambiguous && self.life.idempotency.has_effect();
        self.state().counts.failed(&failure);
        if self.attempts == 1 && !self.repeats {
            self.state().counts.affected.up();
        }
        let pause = failure.retry_after.unwrap_or_default();
        self.pause_is_news = !pause.is_zero() && self.state().learn(|view| view.hold(pause, now));
        self.remember(&failure, took);
        self.advised(failure, error, now)
    }

    /// What the caller's hook makes of it.
    fn advised(&mut self, failure: Failure, error: Option<&(dyn Error + 'static)>, now: Moment) -> Failure {
        let Some(hook) = &self.rules.on_failure else { return failure };
        let event = FailureEvent {
            dependency: &self.state().name,
            operation: &self.rules.name,
            attempt: self.attempts,
            failure: &failure,
            error,
            remaining: self.limit.left(now),
        };
        let advice = isolated(|| hook(&event));
        let retried = matches!(failure.class, FailureClass::Transient | FailureClass::RateLimited);
        self.dropped = advice == Advice::Drop;
        match advice {
            Advice::Retry if !retried => Failure { class: FailureClass::Transient, ..failure },
            _ => failure,
        }
    }

    fn remember(&mut self, failure: &Failure, took: Duration) {
        if self.history.len() >= MOST_HISTORY {
            self.history.remove(0);
        }
        self.history.push(Past { attempt: self.attempts, failure: failure.clone(), took });
    }

    /// `healthy` is what the attempt says about the dependency, if it says anything. Returns when it ended and
    /// how long it took.
    fn attempt_ended(&mut self, healthy: Option<bool>) -> (Moment, Duration) {
        let now = self.core().clock.now();
        let took = self.took(now);
        let counts = &self.state().counts;
        counts.latency.record(took);
        if !std::mem::take(&mut self.overdue) && self.state().slow_call().is_some_and(|slow| took > slow) {
            self.state().counts.slow.up();
        }
        if let (Some(token), Some(healthy)) = (self.probe.take(), healthy) {
            self.state().probed(token, healthy);
            self.core().report_soon();
        }
        (now, took)
    }

    /// An attempt that panicked is a failure of the caller's own code.
    pub(super) fn panicked(&self) {
        let failure = Failure::new(FailureClass::Fatal)
            .with_source(FailureSource::Application)
            .with_reason(FailureReason::HandlerError);
        self.state().counts.failed(&failure);
        if self.attempts == 1 && !self.repeats {
            self.state().counts.affected.up();
        }
    }
}

/// What a failed attempt says about the dependency: nothing, if it was turned down with good reason.
fn health(failure: &Failure) -> Option<bool> {
    let broken =
        matches!(failure.class, FailureClass::Transient | FailureClass::RateLimited | FailureClass::Fatal);
    (broken && !failure.caller_rejected).then_some(false)
}
