//! An operation under way, apart from the caller's types: what starts, what ends, and what is counted for it.

mod admission;
mod outcome;

pub(super) use outcome::Ended;

use std::{
    borrow::Cow,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{runtime::Handle, time::sleep_until};
use tracing::Span;

use super::{Life, Operation, Opinions, spans::Spans, token::Token};
use crate::{
    Admission, Attempt, CallError, Deadline, Failure, Past, Scope, StopReason,
    clock::Moment,
    core::{Core, DependencyState},
    deadline::Limit,
    decide::is_misdirected,
    scope,
};

/// Why an operation stops, and who said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    reason: StopReason,
    by_server: bool,
    /// When the server may say otherwise, if it said so.
    again_in: Option<Duration>,
}

impl Stop {
    /// Whether it will be over by itself.
    fn passes(self) -> bool {
        use StopReason as Reason;
        let away = matches!(self.reason, Reason::FailClosed | Reason::CircuitOpen);
        let breaker = matches!(self.reason, Reason::BreakerOpen | Reason::BreakerHalfOpen);
        self.reason.is_refusal() || breaker || away
    }
}

impl From<StopReason> for Stop {
    fn from(reason: StopReason) -> Self {
        Self { reason, by_server: false, again_in: None }
    }
}

/// What a dropped operation leaves to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not counted yet.
    New,
    Between,
    InAttempt,
    Over,
}

pub(super) struct Run {
    life: Arc<Life>,
    name: Cow<'static, str>,
    opinions: Option<Box<Opinions>>,
    /// When the next attempt starts, as near as the clock was read.
    now: Moment,
    limit: Limit,
    attempt_timeout: Option<Duration>,
    attempts: u32,
    phase: Phase,
    ambiguous: bool,
    /// The last attempt brought a pause that other operations do not know yet.
    pause_is_news: bool,
    /// The last attempt ended with the operation's deadline.
    cut_off: bool,
    /// When the attempt has to end.
    end: Option<Moment>,
    /// It goes on with what another layer has failed at before.
    repeats: bool,
    /// The attempt has been counted as slow.
    overdue: bool,
    /// The caller's hook forbids another attempt.
    dropped: bool,
    trouble: Option<Box<Trouble>>,
    spans: Option<Box<Spans>>,
}

/// What an operation has once an attempt has failed, or needed a token. On the heap, because most have none.
#[derive(Default)]
struct Trouble {
    token: Token,
    probe: Option<String>,
    /// Attempts in a row without progress.
    fruitless: u32,
    /// Failures so far that were [misdirections](is_misdirected).
    misdirections: u32,
    first_failed_at: Option<Moment>,
    history: Vec<Past>,
}

impl Run {
    /// One whose first attempt, if this is not it, has been counted by another.
    pub(super) fn start_as(operation: Operation, admission: &Admission) -> Self {
        let mut run = Self::begun(operation, *admission == Admission::First);
        match admission {
            Admission::First => {}
            Admission::Retry { after, attempts } => {
                run.attempts = (*attempts).max(1);
                run.ambiguous = run.leaves_doubt(after);
                let trouble = run.trouble.get_or_insert_default();
                trouble.fruitless = run.attempts;
                // What came before is not known: the benefit of the doubt is for a first attempt.
                trouble.misdirections = if is_misdirected(after) { run.attempts } else { 0 };
                trouble.first_failed_at = Some(run.now);
            }
            Admission::Hedge => run.attempts = 1,
        }
        run
    }

    pub(super) fn start(operation: Operation) -> Self {
        Self::begun(operation, true)
    }

    fn begun(operation: Operation, is_first: bool) -> Self {
        let Operation {
            dependency,
            name,
            idempotency,
            recovery,
            deadline,
            attempt_timeout,
            profile,
            opinions,
        } = operation;
        let core = &dependency.pair.handle.core;
        core.start(&dependency.pair.handle.stop);
        let now = core.clock.now();
        let life = Life::new(dependency, idempotency, recovery, profile);
        let repeats = life.outer().is_some_and(|outer| outer.foreign_attempts() > 0);
        let counts = &life.state().counts;
        // A repeat by a foreign layer is a request of its own, and still what somebody intended once.
        if repeats && is_first {
            counts.foreign.up();
        }
        let spans = Spans::start(&life.state().name, &name);
        let outer_end = life.outer().and_then(Scope::end);
        let deadline = deadline.unwrap_or_else(|| match life.is_endless() {
            true => Deadline::unbounded(),
            false => life.core().default_deadline(outer_end.is_some()),
        });
        Self {
            limit: deadline.limit(life.core().clock, now, outer_end),
            attempt_timeout,
            now,
            life: Arc::new(life),
            name,
            opinions,
            attempts: 0,
            phase: if is_first && !repeats { Phase::New } else { Phase::Between },
            ambiguous: false,
            pause_is_news: false,
            cut_off: false,
            end: None,
            repeats,
            overdue: false,
            dropped: false,
            trouble: None,
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
        let may_start = self.may_start();
        if may_start.is_ok() && !self.is_held_up() {
            return Ok(());
        }
        self.counted();
        may_start?;
        Box::pin(self.admit_first_in_time()).await
    }

    /// Counts the operation if its first attempt does not do it.
    fn counted(&mut self) {
        if self.phase == Phase::New {
            self.state().counts.held_up.up();
            self.phase = Phase::Between;
        }
    }

    /// Whether an attempt of this kind may be made.
    pub(super) async fn begin_as(&mut self, admission: &Admission) -> Result<(), Stop> {
        match admission {
            Admission::First => self.begin().await,
            Admission::Retry { after, .. } => self.next_in_time(after).await,
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
        let counts = &self.state().counts;
        let count = if self.phase == Phase::New { &counts.prompt } else { &counts.further };
        count.up();
        self.phase = Phase::InAttempt;
        if let Some(trouble) = &mut self.trouble {
            trouble.probe = trouble.token.start();
        }
        self.core().observer.tell(|observer| observer.attempt_started(&self.state().name, self.attempts));
        if let Some(spans) = &mut self.spans {
            spans.attempt(&self.life.state().name, &self.name, self.attempts);
        }
        self.end = self.limit.end_of_attempt(self.now, self.attempt_timeout, self.life.is_endless());
        self.attempt()
    }

    fn attempt(&self) -> Attempt {
        Attempt::new(Arc::clone(&self.life), self.attempts, self.end)
    }

    /// What the attempt runs in.
    pub(super) fn inside(&self) -> Inside {
        let span = self.spans.as_ref().map(|spans| spans.of_attempt());
        Inside { scope: Some(Scope::attempt(self.attempt())), span }
    }

    /// Runs an attempt until it ends or has to: nothing then. Only one that has to wait needs a timer.
    pub(super) async fn within<F: Future>(
        &mut self,
        inside: &mut Inside,
        mut attempt: Pin<&mut F>,
    ) -> Option<F::Output> {
        let mut attempt = poll_fn(|context| inside.enter(|| attempt.as_mut().poll(context)));
        match poll_fn(|context| Poll::Ready(attempt.poll_unpin(context))).await {
            Poll::Ready(output) => Some(output),
            Poll::Pending if in_runtime() => self.until(&mut attempt).await,
            Poll::Pending => Some(attempt.await),
        }
    }

    /// One that is slow is counted when it becomes so, which may be long before it ends.
    async fn until<F: Future + Unpin>(&mut self, mut attempt: F) -> Option<F::Output> {
        let slow_at = self.slow_call().map(|slow| self.now.saturating_add(slow));
        let mut slow_at = slow_at.filter(|at| self.end.is_none_or(|end| *at < end));
        let Some(first) = slow_at.or(self.end) else { return Some(attempt.await) };
        let mut timer = pin!(sleep_until(self.core().clock.instant(first)));
        loop {
            tokio::select! {
                biased;
                output = &mut attempt => return Some(output),
                () = timer.as_mut() => {}
            }
            slow_at.take()?;
            self.overdue = true;
            self.state().counts.slow.up();
            let Some(end) = self.end else { return Some(attempt.await) };
            timer.as_mut().reset(self.core().clock.instant(end));
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
        if self.has_retried() {
            self.life.spend_outer();
        }
        self.core().observer.tell(|observer| observer.stopped(&self.state().name, stop.reason));
        if let Some(spans) = &self.spans {
            spans.stopped(stop.reason);
        }
        tracing::debug!(
            target: "damper",
            dependency = &*self.state().name,
            operation = &*self.name,
            attempts = self.attempts,
            reason = stop.reason.as_str(),
            "stopped",
        );
        let failure = failure.or_else(|| (self.attempts == 0).then(|| Failure::refused(stop.reason)));
        let retry_after = stop.again_in.or_else(|| self.again_in(stop.reason, failure.as_ref()));
        CallError { retry_after, ..self.error(stop.reason, failure, last) }
    }

    fn again_in(&self, reason: StopReason, failure: Option<&Failure>) -> Option<Duration> {
        let now = self.core().clock.now();
        let told = self.state().view(|view| view.again_in(reason, now));
        told.max(failure.and_then(|failure| failure.retry_after))
    }

    fn error<E>(&mut self, reason: StopReason, failure: Option<Failure>, last: Option<E>) -> CallError<E> {
        let recovery = self.life.recovery_mode().filter(|_| self.ambiguous);
        let (attempts, ambiguous) = (self.attempts, self.ambiguous);
        let history = self.trouble.take().map(|trouble| trouble.history).unwrap_or_default();
        CallError {
            reason,
            failure: failure.map(Box::new),
            attempts,
            last,
            ambiguous,
            recovery,
            retry_after: None,
            has_retried: self.has_retried(),
            history,
        }
    }

    /// Whether it has spent retries of its own, which nobody further out must multiply.
    fn has_retried(&self) -> bool {
        self.life.owns && self.attempts > 1
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

    /// From when on an attempt is slow. A connection that lasts is not.
    fn slow_call(&self) -> Option<Duration> {
        self.state().slow_call().filter(|_| !self.life.is_endless())
    }

    fn took(&self, now: Moment) -> Duration {
        now.saturating_sub(self.now)
    }
}

/// What an attempt runs in: its scope, and its span if anybody wants to see it.
pub(super) struct Inside {
    scope: Option<Scope>,
    span: Option<Span>,
}

impl Inside {
    pub(super) fn enter<T>(&mut self, code: impl FnOnce() -> T) -> T {
        let _span = self.span.as_ref().map(Span::enter);
        scope::enter(&mut self.scope, code)
    }
}

/// Whether there is a timer to wait with.
fn in_runtime() -> bool {
    Handle::try_current().is_ok()
}

impl Drop for Run {
    fn drop(&mut self) {
        self.counted();
        if self.phase == Phase::InAttempt {
            self.state().counts.untimed.up();
        }
        match self.phase {
            Phase::Over => {}
            Phase::InAttempt if std::thread::panicking() => self.panicked(),
            Phase::New | Phase::Between | Phase::InAttempt => self.state().counts.abandoned.up(),
        }
    }
}
