//! An operation under way, apart from the caller's types: what starts, what ends, and what is counted for it.

mod admission;
mod outcome;

pub(super) use outcome::Ended;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};
use tracing::{Instrument, Span};

use super::{Life, Operation, Rules, spans::Spans, token::Token};
use crate::{
    Admission, Attempt, CallError, Failure, Past, Scope, StopReason,
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
    life: Arc<Life>,
    rules: Rules,
    /// When the next attempt starts, as near as the clock was read.
    now: Moment,
    limit: Limit,
    attempts: u32,
    phase: Phase,
    token: Token,
    probe: Option<String>,
    ambiguous: bool,
    /// The last attempt brought a pause that other operations do not know yet.
    pause_is_news: bool,
    /// The last attempt ended with the operation's deadline.
    cut_off: bool,
    /// When the attempt has to end.
    end: Option<Instant>,
    /// It goes on with what another layer has failed at before.
    repeats: bool,
    /// The attempt has been counted as slow.
    overdue: bool,
    /// An operation inside the attempt has spent retries of its own.
    spent: bool,
    /// The caller's hook forbids another attempt.
    dropped: bool,
    /// Attempts in a row without progress.
    fruitless: u32,
    first_failed_at: Option<Moment>,
    history: Vec<Past>,
    spans: Option<Box<Spans>>,
}

impl Run {
    /// One whose first attempt, if this is not it, has been counted by another.
    pub(super) fn start_as(operation: Operation, admission: &Admission) -> Self {
        let mut run = Self::begun(operation, *admission == Admission::First);
        match admission {
            Admission::First => {}
            Admission::Retry { attempts, .. } => {
                run.attempts = (*attempts).max(1);
                run.fruitless = run.attempts;
                run.first_failed_at = Some(run.now);
            }
            Admission::Hedge => run.attempts = 1,
        }
        run
    }

    pub(super) fn start(operation: Operation) -> Self {
        Self::begun(operation, true)
    }

    fn begun(operation: Operation, is_first: bool) -> Self {
        let Operation { dependency, idempotency, recovery, deadline, profile, rules } = operation;
        let core = &dependency.pair.handle.core;
        core.start(&dependency.pair.handle.stop);
        let now = core.clock.now();
        let life = Life::new(dependency, idempotency, recovery, profile);
        let repeats = life.outer().is_some_and(|outer| outer.foreign_attempts() > 0);
        let counts = &life.state().counts;
        // A repeat by a foreign layer is a request of its own, and still what somebody intended once.
        match repeats {
            _ if !is_first => {}
            true => counts.foreign.up(),
            false => counts.logical.up(),
        }
        let spans = Spans::start(&life.state().name, &rules.name);
        Self {
            limit: deadline.limit(life.core().clock, now, life.outer().and_then(Scope::end)),
            now,
            life: Arc::new(life),
            rules,
            attempts: 0,
            phase: Phase::Between,
            token: Token::default(),
            probe: None,
            ambiguous: false,
            pause_is_news: false,
            cut_off: false,
            end: None,
            repeats,
            overdue: false,
            spent: false,
            dropped: false,
            fruitless: 0,
            first_failed_at: None,
            history: Vec::new(),
            spans,
        }
    }

    fn core(&self) -> &Arc<Core> {
        self.life.core()
    }

    fn state(&self) -> &DependencyState {
        self.life.state()
    }

    /// Reads the clock.
    fn tick(&mut self) -> Moment {
        self.now = self.core().clock.now();
        self.now
    }

    /// Work past its deadline is not started.
    fn may_start(&self) -> Result<(), Stop> {
        match self.limit.leaves_an_attempt(self.now) {
            true => Ok(()),
            false => Err(StopReason::DeadlineTooShort.into()),
        }
    }

    /// Whether the first attempt may be made.
    pub(super) async fn begin(&mut self) -> Result<(), Stop> {
        self.may_start()?;
        if self.is_held_up() { Box::pin(self.admit_first()).await } else { Ok(()) }
    }

    /// Whether an attempt of this kind may be made.
    pub(super) async fn begin_as(&mut self, admission: &Admission) -> Result<(), Stop> {
        match admission {
            Admission::First => self.begin().await,
            Admission::Retry { after, .. } => self.next(after).await,
            Admission::Hedge => {
                let admitted = self.hedge().await;
                // A hedge that is not made ends nothing that would have to be counted.
                self.attempts = u32::from(admitted.is_ok());
                admitted
            }
        }
    }

    /// Counts an attempt as started.
    pub(super) fn attempt_started(&mut self) -> Attempt {
        self.attempts = self.attempts.saturating_add(1);
        self.phase = Phase::InAttempt;
        self.probe = self.token.start();
        self.state().counts.physical.up();
        self.core().observer.attempt_started(&self.state().name, self.attempts);
        if let Some(spans) = &mut self.spans {
            spans.attempt(&self.life.state().name, &self.rules.name, self.attempts);
        }
        let end = self.limit.end_of_attempt(self.now, self.life.is_endless());
        self.end = end.map(|end| self.core().clock.instant(end));
        Attempt::new(Arc::clone(&self.life), self.attempts, self.end)
    }

    /// Runs an attempt in its scope until it ends or has to: nothing then. Only one that has to wait needs a timer.
    pub(super) async fn within<F: Future>(&mut self, attempt: F) -> Option<F::Output> {
        let scope = Scope::attempt(Arc::clone(&self.life), self.attempts, self.end);
        let span = self.spans.as_ref().map_or_else(Span::none, |spans| spans.of_attempt());
        let mut attempt = pin!(scope.enter(attempt.instrument(span)));
        let output = match poll_fn(|context| Poll::Ready(attempt.as_mut().poll(context))).await {
            Poll::Ready(output) => Some(output),
            Poll::Pending if in_runtime() => self.until(attempt.as_mut()).await,
            Poll::Pending => Some(attempt.as_mut().await),
        };
        self.spent = attempt.take_value().is_some_and(|entered| entered.is_spent());
        output
    }

    /// One that is slow is counted when it becomes so, which may be long before it ends.
    async fn until<F: Future>(&mut self, attempt: F) -> Option<F::Output> {
        let (mut attempt, end) = (pin!(attempt), self.end);
        let slow_at = self.state().slow_call().map(|slow| self.now.saturating_add(slow));
        let slow_at = slow_at.map(|at| self.core().clock.instant(at));
        if let Some(slow_at) = slow_at.filter(|at| end.is_none_or(|end| *at < end)) {
            if let Ok(output) = timeout_at(slow_at, attempt.as_mut()).await {
                return Some(output);
            }
            self.overdue = true;
            self.state().counts.slow.up();
        }
        match end {
            Some(end) => timeout_at(end, attempt).await.ok(),
            None => Some(attempt.await),
        }
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
        if self.life.owns && self.life.is_inside() && self.attempts > 1 {
            Scope::spend();
        }
        self.core().observer.stopped(&self.state().name, stop.reason);
        if let Some(spans) = &self.spans {
            spans.stopped(stop.reason);
        }
        tracing::debug!(
            target: "damper",
            dependency = &*self.state().name,
            operation = &*self.rules.name,
            attempts = self.attempts,
            reason = stop.reason.as_str(),
            "stopped",
        );
        self.error(stop.reason, failure, last)
    }

    fn error<E>(&mut self, reason: StopReason, failure: Option<Failure>, last: Option<E>) -> CallError<E> {
        let recovery = self.life.recovery_mode().filter(|_| self.ambiguous);
        let (attempts, ambiguous) = (self.attempts, self.ambiguous);
        let history = std::mem::take(&mut self.history);
        CallError { reason, failure, attempts, last, ambiguous, recovery, history }
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
            Reason::AttemptsExhausted | Reason::NoProgress => counts.exhausted.up(),
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

    fn took(&self, now: Moment) -> Duration {
        now.saturating_sub(self.now)
    }
}

/// Whether there is a timer to wait with.
fn in_runtime() -> bool {
    Handle::try_current().is_ok()
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.phase == Phase::InAttempt {
            self.state().counts.cut_short.up();
        }
        match self.phase {
            Phase::Over => {}
            Phase::InAttempt if std::thread::panicking() => self.panicked(),
            Phase::Between | Phase::InAttempt => self.state().counts.abandoned.up(),
        }
    }
}
