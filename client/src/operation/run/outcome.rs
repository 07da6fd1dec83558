//! How attempts end, and what is made of it.

use std::{error::Error, time::Duration};

use damper_protocol::{Dispatch, FailureClass, FailureReason, FailureSource, RecoveryMode};
use tokio::time::timeout_at;

use super::{Phase, Run};
use crate::{
    Advice, CallError, Effect, Failure, FailureEvent, Outcome, Past, StopReason, Verdict, classify,
    clock::Moment, decide::is_misdirected, hook::isolated,
};

/// The latest failures that an error carries.
const MOST_HISTORY: usize = 16;

/// How an attempt ended that did not succeed.
pub(in crate::operation) enum Ended<E> {
    Failed(E),
    /// It brought a value that is none.
    Judged(Failure),
    CutOff,
}

impl<E: Error + 'static> Ended<E> {
    fn error(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Judged(_) | Self::CutOff => None,
        }
    }
}

impl<E> Ended<E> {
    fn into_error(self) -> Option<E> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Judged(_) | Self::CutOff => None,
        }
    }
}

impl Run {
    pub(in crate::operation) fn succeeded(&mut self) {
        let (now, took) = self.attempt_ended(Some(true));
        if let Some(spans) = &mut self.spans {
            spans.ended(None);
        }
        self.phase = Phase::Over;
        match self.attempt.life.is_endless() {
            true => self.state().counts.untimed_success.up(),
            false => self.state().latency.record(took),
        }
        self.count_success(now);
    }

    fn count_success(&self, now: Moment) {
        let first_failed_at = self.trouble.as_ref().and_then(|trouble| trouble.first_failed_at);
        if self.repeats || first_failed_at.is_some() {
            self.state().counts.recovered.up();
        }
        if let Some(first_failed_at) = first_failed_at {
            self.state().counts.recovery.record(now.saturating_sub(first_failed_at));
        }
        self.core().observer.tell(|observer| observer.succeeded(&self.state().name, self.attempt.number));
    }

    /// What a value stands for that is no success.
    pub(in crate::operation) fn judged<T: 'static>(
        &self,
        value: &T,
        judge: impl FnOnce(&T) -> Verdict,
    ) -> Option<Failure> {
        let verdict = match self.opinion(&Outcome::Value(value)) {
            Verdict::Pass => judge(value),
            verdict => verdict,
        };
        match verdict {
            Verdict::Failure(failure) => Some(failure),
            Verdict::Success | Verdict::Pass => None,
        }
    }

    /// The operation's own classifiers go first, then the client's hooks.
    fn opinion(&self, outcome: &Outcome<'_>) -> Verdict {
        let classifiers = self.opinions.as_ref().map_or(&[][..], |opinions| &opinions.classifiers);
        match (classify::opinion(outcome, classifiers), &self.core().hooks) {
            (Verdict::Pass, Some(hooks)) => isolated(|| hooks.classify(outcome)),
            (verdict, _) => verdict,
        }
    }

    /// The failure that an outcome stands for, in somebody's opinion or by the built-in rules.
    fn meaning(&self, outcome: &Outcome<'_>) -> Option<Failure> {
        match (self.opinion(outcome), outcome.error()) {
            (Verdict::Failure(failure), Some(error)) => Some(failure.heeding(&classify::failure(error))),
            (Verdict::Failure(failure), None) => Some(failure),
            (Verdict::Pass, Some(error)) => Some(classify::failure(error)),
            (Verdict::Success, _) | (Verdict::Pass, None) => None,
        }
    }

    /// Counts and classifies a failed attempt, and finds the way to another one.
    pub(in crate::operation) async fn after<E: Error + 'static>(
        mut self,
        ended: Ended<E>,
    ) -> Result<Self, CallError<E>> {
        match self.failed(&ended) {
            Some(failure) => Box::pin(self.go_on(failure, ended)).await.map(|()| self),
            None => Err(self.not_a_failure(ended)),
        }
    }

    /// Counts and classifies a failed attempt. `None` if a classifier says that it has not failed.
    pub(in crate::operation) fn failed<E: Error + 'static>(&mut self, ended: &Ended<E>) -> Option<Failure> {
        let error = ended.error();
        let failure = self.failure(ended, error)?;
        Some(self.attempt_failed(failure, error))
    }

    /// Finds the way to another attempt.
    pub(in crate::operation) async fn go_on<E>(
        &mut self,
        failure: Failure,
        ended: Ended<E>,
    ) -> Result<(), CallError<E>> {
        let next = self.next_in_time(&failure).await;
        next.map_err(|stop| self.stopped(stop, Some(failure), ended.into_error()))
    }

    /// The error of an attempt that has succeeded all the same.
    pub(in crate::operation) fn not_a_failure<E>(&mut self, ended: Ended<E>) -> CallError<E> {
        self.succeeded();
        self.error(StopReason::NotAFailure, None, ended.into_error())
    }

    fn failure<E>(&mut self, ended: &Ended<E>, error: Option<&(dyn Error + 'static)>) -> Option<Failure> {
        let mut failure = match (ended, error) {
            (Ended::Judged(failure), _) => failure.clone(),
            (_, Some(error)) => self.meaning(&Outcome::Error(error))?,
            _ if self.limit.is_end(self.attempt.end) => Failure::own_deadline(),
            _ => Failure::timed_out(),
        };
        self.cut_off = matches!(ended, Ended::CutOff) && self.limit.is_end(self.attempt.end);
        self.heed_notes(&mut failure);
        Some(failure)
    }

    /// What the attempt, and operations inside of it, have said.
    fn heed_notes(&mut self, failure: &mut Failure) {
        let (life, number) = (&self.attempt.life, self.attempt.number);
        failure.dispatch = life.noted_dispatch(number).unwrap_or(failure.dispatch);
        if life.has_spent(number) {
            self.spent_below = true;
            failure.veto();
        }
    }

    /// Ends an attempt that the caller made by itself, and the operation with it.
    pub(in crate::operation) fn finish(&mut self, outcome: &Outcome<'_>) -> Option<Failure> {
        let Some(mut failure) = self.meaning(outcome) else {
            self.succeeded();
            return None;
        };
        self.heed_notes(&mut failure);
        let mut failure = self.attempt_failed(failure, outcome.error());
        self.report_pause(&failure, self.core().clock.now());
        self.phase = Phase::Over;
        self.count_doubt();
        if self.dropped {
            failure.veto();
        }
        Some(failure)
    }

    /// Whether somebody can be asked what became of the attempt.
    pub(in crate::operation) fn is_queryable(&self, failure: &Failure) -> bool {
        failure.dispatch == Dispatch::Ambiguous
            && self.attempt.life.idempotency.has_effect()
            && self.attempt.life.recovery == Some(RecoveryMode::Queryable)
    }

    /// Waits for the answer, no longer than the operation may last. No answer is no knowledge.
    pub(in crate::operation) async fn queried<T>(&self, query: impl Future<Output = Effect<T>>) -> Effect<T> {
        let now = self.core().clock.now();
        match self.limit.end_of_attempt(now, None, false).filter(|_| super::in_runtime()) {
            Some(end) => {
                Box::pin(timeout_at(self.core().clock.instant(end), query)).await.unwrap_or(Effect::Unknown)
            }
            None => query.await,
        }
    }

    /// The attempt has taken effect although it failed: the operation has succeeded.
    pub(in crate::operation) fn took_effect(&mut self) {
        self.phase = Phase::Over;
        self.state().counts.untimed_success.up();
        self.count_success(self.core().clock.now());
    }

    /// None of the attempts so far has taken effect.
    pub(in crate::operation) fn had_no_effect(&mut self, failure: Failure) -> Failure {
        self.ambiguous = false;
        failure.with_dispatch(Dispatch::NotProcessed)
    }

    fn attempt_failed(&mut self, failure: Failure, error: Option<&(dyn Error + 'static)>) -> Failure {
        let (now, took) = self.attempt_ended(health(&failure));
        if let Some(spans) = &mut self.spans {
            spans.ended(Some(failure.class.as_str()));
        }
        self.phase = Phase::Between;
        let progressed = self.attempt.life.has_progressed(self.attempt.number);
        let trouble = self.trouble.get_or_insert_default();
        trouble.misdirections = trouble.misdirections.saturating_add(u32::from(is_misdirected(&failure)));
        trouble.first_failed_at.get_or_insert(now);
        trouble.fruitless = if progressed { 1 } else { trouble.fruitless.saturating_add(1) };
        self.ambiguous |= self.leaves_doubt(&failure);
        self.state().counts.failure(&failure);
        if failure.unclassified {
            self.state().unclassified.up();
        }
        self.state().unread.add(u64::from(failure.unread));
        if self.attempt.number == 1 && !self.repeats {
            self.state().counts.affected.up();
        }
        let pause = failure.retry_after.unwrap_or_default();
        self.pause_is_news = !pause.is_zero() && self.state().learn(|view| view.hold(pause, now));
        self.remember(&failure, took);
        self.advised(failure, error, now)
    }

    /// Whether nobody knows if the attempt has left something behind.
    pub(super) fn leaves_doubt(&self, failure: &Failure) -> bool {
        failure.dispatch == Dispatch::Ambiguous && self.attempt.life.idempotency.has_effect()
    }

    /// What the caller's hook makes of it.
    fn advised(&mut self, failure: Failure, error: Option<&(dyn Error + 'static)>, now: Moment) -> Failure {
        let event = FailureEvent {
            dependency: &self.state().name,
            operation: &self.name,
            attempt: self.attempt.number,
            failure: &failure,
            error,
            remaining: self.limit.left(now),
        };
        let own = self.opinions.as_ref().and_then(|opinions| opinions.on_failure.as_ref());
        let own = own.map(|hook| isolated(|| hook(&event))).unwrap_or_default();
        let hooks = self.core().hooks.as_ref();
        let advice = match (own, hooks.map(|hooks| isolated(|| hooks.on_failure(&event))).unwrap_or_default())
        {
            (Advice::Drop, _) | (_, Advice::Drop) => Advice::Drop,
            (Advice::Defer, clients) => clients,
            (own, _) => own,
        };
        let retried = matches!(failure.class, FailureClass::Transient | FailureClass::RateLimited);
        self.dropped = advice == Advice::Drop;
        match advice {
            Advice::Retry if !retried => Failure { class: FailureClass::Transient, ..failure },
            _ => failure,
        }
    }

    fn remember(&mut self, failure: &Failure, took: Duration) {
        let history = &mut self.trouble.get_or_insert_default().history;
        if history.len() >= MOST_HISTORY {
            history.remove(0);
        }
        history.push(Past { attempt: self.attempt.number, failure: failure.clone(), took });
    }

    /// `healthy` is what the attempt says about the dependency, if it says anything. Returns when it ended and
    /// how long it took.
    fn attempt_ended(&mut self, healthy: Option<bool>) -> (Moment, Duration) {
        let now = self.core().clock.now();
        let took = self.took(now);
        let counts = &self.state().counts;
        match healthy {
            _ if self.attempt.life.is_endless() => counts.untimed.up(),
            Some(true) => counts.succeeded.record(took),
            _ => counts.failed.record(took),
        }
        if !std::mem::take(self.overdue.get_mut()) && self.slow_call().is_some_and(|slow| took > slow) {
            self.state().counts.slow.up();
        }
        let probe = self.trouble.as_mut().and_then(|trouble| trouble.probe.take());
        if let (Some(token), Some(healthy)) = (probe, healthy) {
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
        self.state().counts.failure(&failure);
        if self.attempt.number == 1 && !self.repeats {
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
