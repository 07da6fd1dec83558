//! An operation under way: counts, gates, asks. Everything that does not depend on the caller's types.

use std::{error::Error, sync::Arc};

use damper_protocol::{
    AskKind, AskRequest, AskResponse, Decision, Dispatch, FailMode, FailureClass, Priority,
};
use fastrand::Rng;
use tokio::{runtime::Handle, time::Instant};

use super::{Operation, permit::Permit};
use crate::{
    CallError, Failure, StopReason,
    attempt::Attempt,
    classify,
    clock::Moment,
    core::{Answer, Core, DependencyState, Switch},
    deadline::{LEAST_ATTEMPT, Limit},
    decide::{Facts, after_failure},
    view::{Gate, View},
    wire::{ms_down, ms_up},
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
    core: Arc<Core>,
    state: Arc<DependencyState>,
    id: u64,
    limit: Limit,
    attempts: u32,
    phase: Phase,
    permit: Permit,
    probe: Option<String>,
    ambiguous: bool,
    in_runtime: bool,
    /// The failure before the current one.
    pub(super) previous: Option<Failure>,
}

impl Run {
    pub(super) fn start(operation: Operation, runtime: Option<&Handle>) -> Self {
        let core = Arc::clone(&operation.dependency.handle.core);
        let state = Arc::clone(&operation.dependency.state);
        if let Some(runtime) = runtime {
            core.start(runtime, &operation.dependency.handle.stop);
        }
        state.counts.logical.up();
        Self {
            limit: operation.deadline.limit(core.clock, core.clock.now()),
            id: core.next_id(),
            core,
            state,
            operation,
            attempts: 0,
            phase: Phase::Between,
            permit: Permit::default(),
            probe: None,
            ambiguous: false,
            in_runtime: runtime.is_some(),
            previous: None,
        }
    }

    /// Work past its deadline is not started.
    pub(super) fn may_start(&self) -> Result<(), Stop> {
        match self.limit.leaves_an_attempt(self.core.clock.now()) {
            true => Ok(()),
            false => Err(StopReason::DeadlineTooShort.into()),
        }
    }

    /// Whether the first attempt may meet a closed gate.
    pub(super) fn is_guarded(&self) -> bool {
        self.in_runtime && self.state.is_guarded() && self.core.switch != Switch::Inert
    }

    /// Passes the breaker with a first attempt: as it is, as a probe, or not at all. An outage of the server
    /// never stops one.
    pub(super) async fn ask_for_first(&mut self) -> Result<(), Stop> {
        let now = self.core.clock.now();
        let refusal = Stop::from(self.state.view(View::refusal));
        match self.gate(now) {
            Gate::Pass => return Ok(()),
            Gate::Refuse => return Err(refusal),
            Gate::Probe if self.state.view(|view| view.is_suppressed(now)) => return Err(refusal),
            Gate::Probe => {}
        }
        let ask = AskRequest { kind: AskKind::First, max_wait_ms: Some(0), ..self.ask_now(None, now) };
        match self.core.ask(ask).await {
            Answer::Decided(answer) => self.take(answer),
            Answer::Busy(_) => Err(refusal),
            Answer::Rejected | Answer::Away | Answer::CircuitOpen => Ok(()),
        }
    }

    /// Counts an attempt as started. Also says when it has to end.
    pub(super) fn attempt_started(&mut self) -> (Attempt, Instant) {
        self.attempts = self.attempts.saturating_add(1);
        self.phase = Phase::InAttempt;
        self.probe = self.permit.start();
        self.state.counts.physical.up();
        self.core.observer.attempt_started(&self.state.name, self.attempts);
        let end = self.core.clock.instant(self.limit.end_of_attempt(self.core.clock.now()));
        (Attempt::new(self.attempts, end, self.operation.idempotency.clone()), end)
    }

    pub(super) fn succeeded(&mut self) {
        self.attempt_ended(Some(true));
        self.phase = Phase::Over;
        if self.attempts > 1 {
            self.state.counts.recovered.up();
        }
        self.state.counts.success.up();
        self.core.observer.succeeded(&self.state.name, self.attempts);
    }

    /// Counts and classifies a failed attempt; no error means that it was cut off.
    pub(super) fn attempt_failed(&mut self, error: Option<&(dyn Error + 'static)>) -> Failure {
        let failure = match error {
            Some(error) => classify::failure(error, self.operation.classifier.as_deref()),
            None if self.limit.is_own() => Failure::own_deadline(),
            None => Failure::timed_out(),
        };
        self.attempt_ended(health(&failure));
        self.phase = Phase::Between;
        self.ambiguous |= failure.dispatch == Dispatch::Ambiguous && self.operation.idempotency.has_effect();
        self.state.counts.failed(&failure);
        if self.attempts == 1 {
            self.state.counts.affected.up();
        }
        if let Some(pause) = failure.retry_after {
            let now = self.core.clock.now();
            self.state.learn(|view| view.hold(pause, now));
        }
        failure
    }

    /// `healthy` is what the attempt says about the dependency, if it says anything.
    fn attempt_ended(&mut self, healthy: Option<bool>) {
        self.state.counts.ended.up();
        if let (Some(token), Some(healthy)) = (self.probe.take(), healthy) {
            self.state.probed(token, healthy);
            self.core.report_soon();
        }
    }

    /// Decides on another attempt; returns when it may start.
    pub(super) async fn next(&mut self, failure: &Failure) -> Result<(), Stop> {
        let failed_at = self.core.clock.now();
        if failure.caller_rejected && !self.limit.leaves_an_attempt(failed_at) {
            return Err(StopReason::DeadlineExceeded.into());
        }
        let wait = self.decide(failure, failed_at)?;
        let not_before = failed_at.saturating_add(wait);
        let policy = self.state.policy();
        if ms_up(wait) > policy.max_delay_ms {
            self.core.clock.sleep_until(not_before).await;
            self.look_again()?;
        }
        let now = self.core.clock.now();
        let ask = self.ask_for_retry(failure, now, not_before, policy.max_delay_ms);
        match self.core.ask(ask).await {
            Answer::Decided(answer) => self.take(answer)?,
            Answer::Busy(pause) => {
                self.state.learn(|view| view.suppress(pause, now));
                return Err(StopReason::Suppressed.into());
            }
            Answer::Rejected => return Err(StopReason::AskRejected.into()),
            Answer::Away => self.go_on_alone(StopReason::FailClosed)?,
            Answer::CircuitOpen => self.go_on_alone(StopReason::CircuitOpen)?,
        }
        if self.core.clock.now() < not_before {
            self.core.clock.sleep_until(not_before).await;
        }
        self.look_again()
    }

    fn decide(&self, failure: &Failure, now: Moment) -> Result<std::time::Duration, Stop> {
        let facts = self.state.view(|view| Facts {
            now,
            limit: self.limit,
            profile: self.operation.profile.unwrap_or_default(),
            attempt: self.attempts,
            max_attempts: self.max_attempts(view),
            failure,
            previous: self.previous.as_ref(),
            repeatable: self.operation.idempotency.allows_repeat(),
            held_for: view.held_for(now),
            suppressed: view.is_suppressed(now),
            gate: view.gate(now, self.core.heard()),
            gate_reason: view.refusal(),
            switched_off: self.switched_off(),
        });
        after_failure(&facts, &mut Rng::new()).map_err(Stop::from)
    }

    /// What the caller set in code, within the server's maximum; else the server's policy, else the default.
    fn max_attempts(&self, view: &View) -> u32 {
        let allowed = view.known_policy().map(|policy| policy.max_attempts);
        let wanted = self.operation.profile.map(|profile| profile.attempts());
        match (wanted, allowed) {
            (Some(wanted), Some(allowed)) => wanted.min(allowed),
            (one, other) => one.or(other).unwrap_or_else(|| crate::Profile::standard().attempts()),
        }
    }

    fn switched_off(&self) -> Option<StopReason> {
        let off = !self.in_runtime || self.core.switch != Switch::On || self.state.is_private();
        if off {
            return Some(StopReason::RetriesOff);
        }
        self.core.is_shut_down().then_some(StopReason::ShutDown)
    }

    /// The world may have changed during a wait.
    fn look_again(&self) -> Result<(), Stop> {
        let now = self.core.clock.now();
        if !self.limit.leaves_an_attempt(now) {
            return Err(StopReason::DeadlineTooShort.into());
        }
        match self.gate(now) {
            Gate::Refuse => Err(self.state.view(View::refusal).into()),
            Gate::Pass | Gate::Probe => Ok(()),
        }
    }

    fn gate(&self, now: Moment) -> Gate {
        self.state.view(|view| view.gate(now, self.core.heard()))
    }

    fn ask_for_retry(
        &self,
        failure: &Failure,
        now: Moment,
        not_before: Moment,
        max_delay_ms: u64,
    ) -> AskRequest {
        let ask = self.ask_now(Some(failure), now);
        let last_start_ms = ask.deadline_ms.saturating_sub(ms_up(LEAST_ATTEMPT));
        AskRequest {
            earliest_ms: ms_up(not_before.saturating_sub(now)).min(last_start_ms),
            max_wait_ms: Some(max_delay_ms.min(last_start_ms)),
            ..ask
        }
    }

    fn ask_now(&self, failure: Option<&Failure>, now: Moment) -> AskRequest {
        let left = self.limit.left(now).unwrap_or(std::time::Duration::MAX);
        AskRequest {
            request_id: Some(self.core.global_id(self.core.next_id())),
            dependency: self.state.name.to_string(),
            tenant: self.core.tenant.clone(),
            kind: AskKind::Retry,
            operation: self.core.global_id(self.id),
            attempt: self.attempts.saturating_add(1),
            failure: failure.map(Failure::report),
            idempotent: self.operation.idempotency.allows_repeat(),
            recovery_mode: self.operation.idempotency.recovery_mode(),
            priority: Priority::Normal,
            cost: 1,
            deadline_ms: ms_down(left),
            earliest_ms: 0,
            expected_ms: 0,
            max_wait_ms: None,
        }
    }

    /// Takes the server's decision.
    fn take(&mut self, answer: AskResponse) -> Result<(), Stop> {
        let now = self.core.clock.now();
        self.core.learn_from(&answer, &self.state, now);
        match answer.decision {
            Decision::Granted => {
                let waited = std::time::Duration::from_millis(answer.waited_ms);
                self.core.observer.granted(&self.state.name, answer.reason, waited);
                self.state.take_emergency(now, self.core.heard());
                self.permit = Permit::granted(&self.core, answer);
                Ok(())
            }
            Decision::Shed => Err(Stop { reason: answer.reason.into(), by_server: true }),
            Decision::Expired => Err(Stop { reason: StopReason::Expired, by_server: true }),
        }
    }

    /// No server: the emergency budget decides, unless the dependency fails closed.
    fn go_on_alone(&self, closed: StopReason) -> Result<(), Stop> {
        let fail_mode =
            self.state.view(View::known_policy).map_or(self.core.fail_mode, |policy| policy.fail_mode);
        if fail_mode == FailMode::Closed {
            return Err(closed.into());
        }
        if !self.state.take_emergency(self.core.clock.now(), self.core.heard()) {
            return Err(StopReason::EmergencyExhausted.into());
        }
        self.state.counts.emergency.up();
        self.core.observer.emergency_granted(&self.state.name);
        Ok(())
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
        self.core.observer.stopped(&self.state.name, stop.reason);
        tracing::debug!(
            target: "damper",
            dependency = &*self.state.name,
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
        let counts = &self.state.counts;
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
            self.state.counts.ended.up();
        }
        if self.phase != Phase::Over {
            self.state.counts.abandoned.up();
        }
    }
}
