//! An operation under way, apart from the caller's types: what starts, what ends, and what is counted for it.

mod admission;

use std::{error::Error, pin::pin, sync::Arc, time::Duration};

use damper_protocol::{Dispatch, FailureClass};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use super::{Operation, permit::Permit};
use crate::{
    CallError, Dependency, Failure, StopReason,
    attempt::Attempt,
    classify,
    clock::Moment,
    core::{Core, DependencyState},
    deadline::Limit,
};

/// Why an operation stops, and who said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    reason: StopReason,
    by_server: bool,
}

impl From<StopReason> for Stop {
    fn from(reason: StopReason) -> Self {
        Self { reason, by_server: false }
    }
}

/// What a dropped operation leaves to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Between,
    InAttempt,
    Over,
}

pub(super) struct Run {
    operation: Operation,
    id: u64,
    /// When the next attempt starts, as near as the clock was read.
    now: Moment,
    limit: Limit,
    attempts: u32,
    phase: Phase,
    permit: Permit,
    probe: Option<String>,
    ambiguous: bool,
    /// The last attempt brought a pause that other operations do not know yet.
    pause_is_news: bool,
    /// The last attempt ended with the operation's deadline.
    cut_off: bool,
    in_runtime: bool,
    /// The attempt has been counted as slow.
    overdue: bool,
    first_failed_at: Option<Moment>,
    /// The failure before the current one.
    pub(super) previous: Option<Failure>,
}

impl Run {
    pub(super) fn start(operation: Operation, runtime: Option<&Handle>) -> Self {
        let Dependency { handle, state } = &operation.dependency;
        let core = &handle.core;
        if let Some(runtime) = runtime {
            core.start(runtime, &handle.stop);
        }
        state.counts.logical.up();
        let now = core.clock.now();
        Self {
            limit: operation.deadline.limit(core.clock, now),
            id: core.next_id(),
            now,
            operation,
            attempts: 0,
            phase: Phase::Between,
            permit: Permit::default(),
            probe: None,
            ambiguous: false,
            pause_is_news: false,
            cut_off: false,
            in_runtime: runtime.is_some(),
            overdue: false,
            first_failed_at: None,
            previous: None,
        }
    }

    fn core(&self) -> &Arc<Core> {
        &self.operation.dependency.handle.core
    }

    fn state(&self) -> &DependencyState {
        &self.operation.dependency.state
    }

    /// Reads the clock.
    fn tick(&mut self) -> Moment {
        self.now = self.core().clock.now();
        self.now
    }

    /// Work past its deadline is not started.
    pub(super) fn may_start(&self) -> Result<(), Stop> {
        match self.limit.leaves_an_attempt(self.now) {
            true => Ok(()),
            false => Err(StopReason::DeadlineTooShort.into()),
        }
    }

    /// Counts an attempt as started. Also says when it has to end.
    pub(super) fn attempt_started(&mut self) -> (Attempt, Instant) {
        self.attempts = self.attempts.saturating_add(1);
        self.phase = Phase::InAttempt;
        self.probe = self.permit.start();
        self.state().counts.physical.up();
        self.core().observer.attempt_started(&self.state().name, self.attempts);
        let end = self.core().clock.instant(self.limit.end_of_attempt(self.now));
        (Attempt::new(self.attempts, end, self.operation.idempotency.clone()), end)
    }

    /// Lets an attempt run until it ends or has to: nothing then. One that is slow is counted when it becomes so,
    /// which may be long before it ends.
    pub(super) async fn within<F: Future>(&mut self, end: Instant, attempt: F) -> Option<F::Output> {
        let mut attempt = pin!(attempt);
        let slow_at = self.state().slow_call().map(|slow| self.now.saturating_add(slow));
        if let Some(slow_at) = slow_at.map(|at| self.core().clock.instant(at)).filter(|at| *at < end) {
            if let Ok(output) = timeout_at(slow_at, attempt.as_mut()).await {
                return Some(output);
            }
            self.overdue = true;
            self.state().counts.slow.up();
        }
        timeout_at(end, attempt).await.ok()
    }

    pub(super) fn succeeded(&mut self) {
        let (now, took) = self.attempt_ended(Some(true));
        self.phase = Phase::Over;
        self.state().latency.record(took);
        if let Some(first_failed_at) = self.first_failed_at {
            self.state().counts.recovered.up();
            self.state().counts.recovery.record(now.saturating_sub(first_failed_at));
        }
        self.state().counts.success.up();
        self.core().observer.succeeded(&self.state().name, self.attempts);
    }

    /// Counts and classifies a failed attempt; no error means that it was cut off.
    pub(super) fn attempt_failed(&mut self, error: Option<&(dyn Error + 'static)>) -> Failure {
        let failure = match error {
            Some(error) => classify::failure(error, self.operation.classifier.as_deref()),
            None if self.limit.is_own() => Failure::own_deadline(),
            None => Failure::timed_out(),
        };
        self.cut_off = error.is_none() && self.limit.is_own();
        let (now, _) = self.attempt_ended(health(&failure));
        self.first_failed_at.get_or_insert(now);
        self.phase = Phase::Between;
        self.ambiguous |= failure.dispatch == Dispatch::Ambiguous && self.operation.idempotency.has_effect();
        self.state().counts.failed(&failure);
        if self.attempts == 1 {
            self.state().counts.affected.up();
        }
        let pause = failure.retry_after.unwrap_or_default();
        self.pause_is_news = !pause.is_zero() && self.state().learn(|view| view.hold(pause, now));
        failure
    }

    /// `healthy` is what the attempt says about the dependency, if it says anything. Returns when it ended and
    /// how long it took.
    fn attempt_ended(&mut self, healthy: Option<bool>) -> (Moment, Duration) {
        let now = self.core().clock.now();
        let took = now.saturating_sub(self.now);
        let counts = &self.state().counts;
        counts.ended.up();
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

    /// Ends the operation without success.
    pub(super) fn stopped<E>(
        &mut self,
        stop: Stop,
        failure: Option<Failure>,
        last: Option<E>,
    ) -> CallError<E> {
        self.phase = Phase::Over;
        self.count(stop);
        self.core().observer.stopped(&self.state().name, stop.reason);
        tracing::debug!(
            target: "damper",
            dependency = &*self.state().name,
            operation = &*self.operation.name,
            attempts = self.attempts,
            reason = stop.reason.as_str(),
            "stopped",
        );
        let (attempts, ambiguous) = (self.attempts, self.ambiguous);
        CallError { reason: stop.reason, failure, attempts, last, ambiguous }
    }

    fn count(&self, stop: Stop) {
        use StopReason as Reason;
        let counts = &self.state().counts;
        if self.ambiguous {
            counts.ambiguous.up();
        }
        if stop.by_server || self.attempts == 0 {
            return;
        }
        match stop.reason {
            Reason::AttemptsExhausted => counts.exhausted.up(),
            Reason::DeadlineTooShort | Reason::DeadlineExceeded => counts.expired.up(),
            Reason::BreakerOpen
            | Reason::BreakerHalfOpen
            | Reason::RetryAfterBeyondDeadline
            | Reason::Suppressed
            | Reason::EmergencyExhausted
            | Reason::FailClosed
            | Reason::CircuitOpen => counts.shed.up(),
            _ => {}
        }
    }
}

/// What a failed attempt says about the dependency: nothing, if it was turned down with good reason.
fn health(failure: &Failure) -> Option<bool> {
    let broken =
        matches!(failure.class, FailureClass::Transient | FailureClass::RateLimited | FailureClass::Fatal);
    (broken && !failure.caller_rejected).then_some(false)
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.phase == Phase::InAttempt {
            self.state().counts.ended.up();
        }
        if self.phase != Phase::Over {
            self.state().counts.abandoned.up();
        }
    }
}
