//! An operation under way, apart from the caller's types: what starts, what ends, and what is counted for it.

mod first;
mod outcome;
mod polling;
mod retry;
mod stop;

pub(super) use outcome::Ended;
pub(super) use stop::Stop;

use std::{
    borrow::Cow,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio::runtime::Handle;

use super::{Life, Operation, Opinions, begun::limit, spans::Spans, token::Token};
use crate::{
    Admission, Attempt, CallError, Failure, Past, StopReason,
    clock::Moment,
    core::{Core, DependencyState},
    deadline::Limit,
    decide::is_misdirected,
};

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
    /// The one that runs, or the last one.
    attempt: Attempt,
    name: Cow<'static, str>,
    opinions: Option<Box<Opinions>>,
    /// When the next attempt starts, as near as the clock was read.
    now: Moment,
    limit: Limit,
    attempt_timeout: Option<Duration>,
    phase: Phase,
    ambiguous: bool,
    /// That has been counted.
    doubt_counted: bool,
    /// An operation inside of an attempt has spent retries of its own.
    spent_below: bool,
    /// The last attempt brought a pause that other operations do not know yet.
    pause_is_news: bool,
    /// The last attempt ended with the operation's deadline.
    cut_off: bool,
    /// It goes on with what another layer has failed at before.
    repeats: bool,
    /// The attempt has been counted as slow.
    overdue: AtomicBool,
    /// It is being polled: it panics if it is dropped like this.
    running: AtomicBool,
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
                run.attempt.number = (*attempts).max(1);
                run.ambiguous = run.leaves_doubt(after);
                run.doubt_counted = run.ambiguous;
                let trouble = run.trouble.get_or_insert_default();
                trouble.fruitless = run.attempt.number;
                // What came before is not known: the benefit of the doubt is for a first attempt.
                trouble.misdirections = if is_misdirected(after) { run.attempt.number } else { 0 };
                trouble.first_failed_at = Some(run.now);
            }
            Admission::Hedge => {
                run.attempt.number = 1;
                // One that is not made ends nothing that would have to be counted.
                run.phase = Phase::Over;
            }
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
        Self {
            limit: limit(deadline, life.is_endless(), life.core(), now, life.outer()),
            attempt_timeout,
            now,
            attempt: Attempt { life: Arc::new(life), number: 0, end: None },
            name,
            opinions,
            phase: if is_first && !repeats { Phase::New } else { Phase::Between },
            ambiguous: false,
            doubt_counted: false,
            spent_below: false,
            pause_is_news: false,
            cut_off: false,
            repeats,
            overdue: AtomicBool::new(false),
            running: AtomicBool::new(false),
            dropped: false,
            trouble: None,
            spans,
        }
    }

    fn core(&self) -> &Arc<Core> {
        self.attempt.life.core()
    }

    fn state(&self) -> &DependencyState {
        self.attempt.life.state()
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
                self.attempt.number = u32::from(admitted.is_ok());
                admitted
            }
        }
    }

    /// Counts an attempt as started.
    pub(super) fn attempt_started(&mut self) -> Attempt {
        self.attempt.number = self.attempt.number.saturating_add(1);
        let counts = &self.state().counts;
        let count = if self.phase == Phase::New { &counts.prompt } else { &counts.further };
        count.up();
        self.phase = Phase::InAttempt;
        if let Some(trouble) = &mut self.trouble {
            trouble.probe = trouble.token.start();
        }
        self.core()
            .observer
            .tell(|observer| observer.attempt_started(&self.state().name, self.attempt.number));
        if let Some(spans) = &mut self.spans {
            spans.attempt(&self.attempt.life.state().name, &self.name, self.attempt.number);
        }
        self.attempt.end =
            self.limit.end_of_attempt(self.now, self.attempt_timeout, self.attempt.life.is_endless());
        self.attempt.clone()
    }

    /// Ends the operation without success.
    pub(super) fn stopped<E>(
        &mut self,
        stop: Stop,
        failure: Option<Failure>,
        last: Option<E>,
    ) -> CallError<E> {
        self.phase = Phase::Over;
        self.count_doubt();
        self.count(stop);
        if self.has_spent() {
            self.attempt.life.spend_outer();
        }
        self.core().observer.tell(|observer| observer.stopped(&self.state().name, stop.reason));
        if let Some(spans) = &self.spans {
            spans.stopped(stop.reason);
        }
        tracing::debug!(
            target: "damper",
            dependency = &*self.state().name,
            operation = &*self.name,
            attempts = self.attempt.number,
            reason = stop.reason.as_str(),
            "stopped",
        );
        let failure = failure.or_else(|| (self.attempt.number == 0).then(|| Failure::refused(stop.reason)));
        let retry_after = self.again_in(stop, failure.as_ref());
        let retry_after = retry_after.map(|pause| pause.min(crate::retry_after::LONGEST));
        CallError { retry_after, ..self.error(stop.reason, failure, last) }
    }

    /// When what stops it may be over, by whoever says the longest.
    fn again_in(&self, stop: Stop, failure: Option<&Failure>) -> Option<Duration> {
        let now = self.core().clock.now();
        let told = self.state().view(|view| view.again_in(stop.reason, now));
        stop.again_in.max(told).max(failure.and_then(|failure| failure.retry_after))
    }

    fn error<E>(&mut self, reason: StopReason, failure: Option<Failure>, last: Option<E>) -> CallError<E> {
        let recovery = self.attempt.life.recovery_mode().filter(|_| self.ambiguous);
        let is_vetoed = failure.as_ref().is_some_and(Failure::is_vetoed);
        let (attempts, ambiguous) = (self.attempt.number, self.ambiguous);
        let history = self.trouble.take().map(|trouble| trouble.history).unwrap_or_default();
        CallError {
            reason,
            failure: failure.map(Box::new),
            attempts,
            last,
            ambiguous,
            recovery,
            retry_after: None,
            forbids_retries: self.has_spent() || is_vetoed || reason.is_final(),
            history,
        }
    }

    /// Whether retries were spent, here or further in, which nobody further out must multiply.
    fn has_spent(&self) -> bool {
        self.spent_below || (self.attempt.life.owns && self.attempt.number > 1)
    }

    /// Counts the operation as one with an unknown effect, once.
    fn count_doubt(&mut self) {
        if self.ambiguous && !std::mem::replace(&mut self.doubt_counted, true) {
            self.state().counts.ambiguous.up();
        }
    }

    fn count(&self, stop: Stop) {
        use StopReason as Reason;
        let counts = &self.state().counts;
        if stop.by_server || self.attempt.number == 0 {
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
        self.state().slow_call().filter(|_| !self.attempt.life.is_endless())
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
        self.counted();
        if self.phase == Phase::InAttempt {
            self.state().counts.untimed.up();
        }
        match self.phase {
            Phase::Over => {}
            Phase::InAttempt if *self.running.get_mut() => self.panicked(),
            Phase::New | Phase::Between | Phase::InAttempt => self.state().counts.abandoned.up(),
        }
    }
}
