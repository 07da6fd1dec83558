//! The way to the next attempt: local rules, the server's decision, or the emergency budget.

use std::{borrow::Cow, sync::Arc, time::Duration};

use damper_protocol::{
    AskKind, AskRequest, AskResponse, Decision, FailMode, FailureClass, FailureReport, Priority,
};
use tokio::runtime::Handle;

use super::{Run, Stop, in_runtime};
use crate::{
    Failure, StopReason,
    clock::Moment,
    core::{Answer, Switch, Waiting},
    deadline::LEAST_ATTEMPT,
    decide::{Facts, after_failure},
    operation::token::Token,
    retry_after,
    view::{Gate, View},
    wire::{ms_down, ms_up},
};

/// How long the news of a pause may take, however little time the operation itself has left.
const TIME_TO_TELL_MS: u64 = 1000;

/// The part of the time left that is kept for the way back of a decision, at most: one in so many.
const WAY_BACK_AT_MOST: u64 = 10;

impl Run {
    /// Decides on another attempt. A stream waits out what would end another operation.
    pub(super) async fn next_in_time(&mut self, failure: &Failure) -> Result<(), Stop> {
        let _waiting = Waiting::of(self.attempt.life.state());
        let mut refusals = 0;
        let mut failure = Cow::Borrowed(failure);
        while let Err(stop) = self.next(&failure).await {
            refusals = self.sat_out(stop, refusals, Some(&failure)).await?;
            // It was part of the wait.
            failure.to_mut().retry_after = None;
        }
        Ok(())
    }

    /// Counts a refusal and waits until it may be over, if that is worth it.
    pub(super) async fn sat_out(
        &mut self,
        stop: Stop,
        refusals: u32,
        failure: Option<&Failure>,
    ) -> Result<u32, Stop> {
        if !self.attempt.life.is_endless() || !stop.passes() || self.switched_off().is_some() {
            return Err(stop);
        }
        if let Some(trouble) = &mut self.trouble {
            // Granted, and then stopped by something else: others can use it.
            trouble.token = Token::default();
        }
        let refusals = refusals.saturating_add(1);
        let profile = self.attempt.life.profile.unwrap_or_default();
        let backoff = profile.backoff(FailureClass::Transient).delay(refusals, &mut self.core().rng());
        let told = self.again_in(stop, failure).unwrap_or_default();
        let wait = backoff.max(retry_after::jittered(told, &mut self.core().rng()));
        let now = self.tick();
        if !self.limit.fits(now, wait) {
            return Err(stop);
        }
        let rested = self.rest_until(now.saturating_add(wait)).await;
        self.tick();
        // A first attempt is no retry: what refused it counts.
        rested.map(|()| refusals).map_err(|off| if self.attempt.number > 0 { off } else { stop })
    }

    /// The time that another attempt is worth starting with.
    pub(super) fn least_attempt(&self) -> Duration {
        self.state().latency.get().max(LEAST_ATTEMPT)
    }

    /// Asks for an attempt beside another: at once or not at all.
    pub(super) async fn hedge(&mut self) -> Result<(), Stop> {
        self.may_start()?;
        if !self.attempt.life.is_repeatable() {
            return Err(StopReason::AmbiguousNotRepeatable.into());
        }
        if !self.attempt.life.owns {
            return Err(StopReason::NotRetryOwner.into());
        }
        if self.attempt.number >= self.attempt.life.max_attempts() {
            return Err(StopReason::AttemptsExhausted.into());
        }
        self.still_welcome()?;
        self.look_again()?;
        if !self.state().view(|view| view.held_for(self.now)).is_zero() {
            return Err(StopReason::RetryAfterBeyondDeadline.into());
        }
        let ask = AskRequest { kind: AskKind::Hedge, max_wait_ms: Some(0), ..self.ask_now(None, self.now) };
        let answer = self.core().ask(ask).await;
        self.hedge_granted(answer).or_else(|stop| self.overruled(stop))?;
        self.look_again()
    }

    /// What is left of the budget while no server answers is for retries: a hedge can be done without.
    fn hedge_granted(&mut self, answer: Answer) -> Result<(), Stop> {
        match answer {
            _ if self.state().view(View::is_shadow) => self.granted(answer),
            Answer::Late | Answer::Away | Answer::CircuitOpen => Err(StopReason::EmergencyExhausted.into()),
            answer => self.granted(answer),
        }
    }

    /// Decides on another attempt; returns when it may start.
    pub(super) async fn next(&mut self, failure: &Failure) -> Result<(), Stop> {
        let failed_at = self.core().clock.now();
        if self.cut_off {
            return Err(StopReason::DeadlineExceeded.into());
        }
        let decided = self.decide(failure, failed_at);
        let wait = decided.inspect_err(|_| self.report_pause(failure, failed_at))?;
        let not_before = failed_at.saturating_add(wait);
        let policy = self.state().policy();
        if ms_up(wait) >= policy.max_delay_ms {
            self.report_pause(failure, failed_at);
            self.rest_until(not_before).await?;
            self.look_again()?;
            self.still_welcome()?;
        }
        let ask = self.ask_for_retry(failure, failed_at, not_before, policy.max_delay_ms);
        let answer = self.unless_switched_off(self.core().ask(ask)).await?;
        self.granted(answer).or_else(|stop| self.overruled(stop))?;
        if self.core().clock.now() < not_before {
            self.rest_until(not_before).await?;
        }
        self.look_again()
    }

    async fn rest_until(&self, moment: Moment) -> Result<(), Stop> {
        self.unless_switched_off(self.core().clock.sleep_until(moment)).await
    }

    /// Waits for something on the way to a retry, as long as there can be one.
    async fn unless_switched_off<F: Future>(&self, wait: F) -> Result<F::Output, Stop> {
        tokio::select! {
            biased;
            output = wait => Ok(output),
            () = self.core().until(|core| !core.retries() || core.is_shut_down()) => {
                Err(self.switched_off().unwrap_or(StopReason::RetriesOff).into())
            }
        }
    }

    fn granted(&mut self, answer: Answer) -> Result<(), Stop> {
        match answer {
            Answer::Decided(answer) => self.take(answer),
            Answer::Busy(pause) => {
                let now = self.core().clock.now();
                self.state().learn(|view| view.suppress(pause, now));
                Err(StopReason::Suppressed.into())
            }
            Answer::TooLate => Err(StopReason::DeadlineTooShort.into()),
            Answer::Rejected => Err(StopReason::AskRejected.into()),
            Answer::Late => self.go_on_alone(StopReason::FailClosed, false),
            Answer::Away => self.go_on_alone(StopReason::FailClosed, true),
            Answer::CircuitOpen => self.go_on_alone(StopReason::CircuitOpen, true),
        }
    }

    /// A client that only observes goes on whatever it was told. Only the deadline is its own.
    fn overruled(&self, stop: Stop) -> Result<(), Stop> {
        let observes = self.core().switch == Switch::Observe && stop.reason != StopReason::DeadlineTooShort;
        if !observes {
            return Err(stop);
        }
        self.core().observer.tell(|observer| observer.overruled(&self.state().name, stop.reason));
        Ok(())
    }

    fn decide(&self, failure: &Failure, now: Moment) -> Result<Duration, Stop> {
        let max_attempts = self.attempt.life.max_attempts();
        let endless = self.attempt.life.is_endless();
        let trouble = self.trouble.as_ref();
        let (fruitless, misdirections) =
            trouble.map_or((0, 0), |trouble| (trouble.fruitless, trouble.misdirections));
        let facts = self.state().view(|view| Facts {
            now,
            limit: self.limit,
            expected: self.state().latency.get(),
            profile: self.attempt.life.profile.unwrap_or_default(),
            attempt: if endless { fruitless } else { self.attempt.number },
            max_attempts,
            owns: self.attempt.life.owns,
            dropped: self.dropped,
            failure,
            misdirections,
            repeatable: self.attempt.life.is_repeatable(),
            held_for: view.held_for(now),
            // A retry that was granted and has failed is asked about all the same: there are no more of these than
            // grants, and they are how the server learns at once that retries are in vain.
            suppressed: view.is_suppressed(now) && self.attempt.number == 1,
            gate: view.gate(now, self.core().heard()),
            gate_reason: view.refusal(),
            switched_off: self.switched_off(),
        });
        after_failure(&facts, &mut self.core().rng()).map_err(Stop::from)
    }

    fn switched_off(&self) -> Option<StopReason> {
        let off = !in_runtime() || !self.core().retries() || self.state().is_private();
        if off {
            return Some(StopReason::RetriesOff);
        }
        self.core().is_shut_down().then_some(StopReason::ShutDown)
    }

    /// The world may have changed during a wait.
    fn look_again(&mut self) -> Result<(), Stop> {
        let now = self.tick();
        if let Some(reason) = self.switched_off() {
            return Err(reason.into());
        }
        self.may_start()?;
        match self.gate(now) {
            Gate::Refuse => Err(self.state().view(View::refusal).into()),
            Gate::Pass | Gate::Probe => Ok(()),
        }
    }

    /// The server may have asked for silence while the operation slept.
    fn still_welcome(&self) -> Result<(), Stop> {
        let now = self.core().clock.now();
        if let Some(reason) = self.switched_off() {
            return Err(reason.into());
        }
        match self.state().view(|view| view.is_suppressed(now)) {
            true => Err(StopReason::Suppressed.into()),
            false => Ok(()),
        }
    }

    pub(super) fn gate(&self, now: Moment) -> Gate {
        self.state().view(|view| view.gate(now, self.core().heard()))
    }

    /// Takes the server's decision.
    pub(super) fn take(&mut self, answer: AskResponse) -> Result<(), Stop> {
        let now = self.core().clock.now();
        self.core().learn_from(&answer, self.state(), now);
        match answer.decision {
            Decision::Granted => {
                let waited = Duration::from_millis(answer.waited_ms);
                let name = &self.state().name;
                self.core().observer.tell(|observer| observer.granted(name, answer.reason, waited));
                self.state().charge_emergency(now, self.core().heard());
                self.trouble.get_or_insert_default().token = Token::granted(self.core(), answer);
                Ok(())
            }
            Decision::Shed => Err(Stop::refused(answer.reason.into(), answer.retry_after_ms)),
            Decision::Expired => Err(Stop::refused(StopReason::Expired, answer.retry_after_ms)),
        }
    }

    /// No answer: the emergency budget decides, unless the dependency fails closed. Its savings are spent only on
    /// single lost answers: with the whole fleet's server `away` they would add up to a burst.
    fn go_on_alone(&self, closed: StopReason, away: bool) -> Result<(), Stop> {
        // In shadow mode nobody refuses anything, whoever is away.
        let shadow = self.state().view(View::is_shadow);
        let fail_mode =
            self.state().view(View::known_policy).map_or(self.core().fail_mode, |policy| policy.fail_mode);
        if fail_mode == FailMode::Closed && !shadow {
            return Err(closed.into());
        }
        let (now, heard) = (self.core().clock.now(), self.core().heard());
        if !self.state().take_emergency(now, heard, away, &mut self.core().rng()) && !shadow {
            return Err(StopReason::EmergencyExhausted.into());
        }
        self.state().counts.emergency.up();
        self.core().observer.tell(|observer| observer.emergency_granted(&self.state().name));
        Ok(())
    }

    /// Tells the server of a pause at once if this operation is not going to ask until it is over, so that the
    /// rest of the fleet holds too. An ask that does not wait and is in a pause is refused, never charged.
    pub(super) fn report_pause(&mut self, failure: &Failure, failed_at: Moment) {
        let Ok(runtime) = Handle::try_current() else { return };
        let is_news = std::mem::take(&mut self.pause_is_news);
        if !is_news || self.core().switch == Switch::Inert || self.state().is_private() {
            return;
        }
        let report = failure.report(Duration::ZERO);
        let ask = self.ask_now(Some(report), failed_at);
        let ask = AskRequest { max_wait_ms: Some(0), deadline_ms: TIME_TO_TELL_MS, expected_ms: 0, ..ask };
        let core = Arc::clone(self.core());
        runtime.spawn(async move {
            if let Answer::Decided(answer) = core.ask(ask).await {
                drop(Token::granted(&core, answer));
            }
        });
    }

    fn ask_for_retry(
        &self,
        failure: &Failure,
        failed_at: Moment,
        not_before: Moment,
        max_delay_ms: u64,
    ) -> AskRequest {
        let now = self.core().clock.now();
        let ask = self.ask_now(Some(failure.report(now.saturating_sub(failed_at))), now);
        // The decision has to come back, or a token is spent on an attempt that nobody can start any more.
        let way_back_ms = ms_up(self.core().answer_within).min(ask.deadline_ms / WAY_BACK_AT_MOST);
        let needs_ms = ms_up(self.least_attempt()).saturating_add(way_back_ms);
        let last_start_ms = ask.deadline_ms.saturating_sub(needs_ms);
        AskRequest {
            earliest_ms: ms_up(not_before.saturating_sub(now)).min(last_start_ms),
            max_wait_ms: Some(max_delay_ms.min(last_start_ms)),
            ..ask
        }
    }

    pub(super) fn ask_now(&self, failure: Option<FailureReport>, now: Moment) -> AskRequest {
        let left = self.limit.left(now).unwrap_or(Duration::MAX);
        AskRequest {
            request_id: Some(self.core().global_id(self.core().next_id())),
            dependency: self.state().name.to_string(),
            tenant: self.core().tenant.clone(),
            kind: AskKind::Retry,
            operation: self.attempt.life.id(),
            attempt: self.numbered(),
            failure,
            idempotent: self.attempt.life.is_repeatable(),
            recovery_mode: self.attempt.life.recovery_mode(),
            priority: Priority::Normal,
            cost: 1,
            deadline_ms: ms_down(left),
            earliest_ms: 0,
            expected_ms: ms_up(self.state().latency.get()).min(ms_down(left)),
            max_wait_ms: None,
        }
    }

    /// The number of the next attempt as the server is told. A stream has no last attempt, only the rule that it
    /// has to make progress; its later connections pass for the last one.
    fn numbered(&self) -> u32 {
        let next = self.attempt.number.saturating_add(1);
        if self.attempt.life.is_endless() { next.min(self.state().policy().max_attempts) } else { next }
    }
}
