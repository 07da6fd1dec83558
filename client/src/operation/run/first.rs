//! The way to the first attempt: at once, in its turn, or as a probe.

use damper_protocol::{AskKind, AskRequest};

use super::{Run, Stop, in_runtime};
use crate::{
    StopReason,
    clock::Moment,
    core::{Answer, Core, Switch},
    view::{Gate, View},
};

impl Run {
    /// Whether the first attempt may meet a closed gate, or has to wait for its turn.
    pub(super) fn is_held_up(&self) -> bool {
        let open = !self.state().is_guarded() && self.state().first.try_pass(self.now);
        !open && in_runtime() && self.core().switch != Switch::Inert && !self.core().is_shut_down()
    }

    /// Passes with a first attempt. A stream waits out what would end another operation.
    pub(super) async fn admit_first_in_time(&mut self) -> Result<(), Stop> {
        let mut refusals = 0;
        while let Err(stop) = self.admit_first().await {
            refusals = self.sat_out(stop, refusals, None).await?;
        }
        Ok(())
    }

    /// Passes the breaker with a first attempt: in its turn, as a probe, or not at all. An outage of the server
    /// never stops one, and neither does what a client knew that has been shut down and learns nothing more.
    async fn admit_first(&mut self) -> Result<(), Stop> {
        if self.first_gate() == Gate::Pass {
            self.take_turn().await?;
        }
        let now = self.tick();
        self.may_start()?;
        if self.core().is_shut_down() {
            return Ok(());
        }
        let refusal = Stop::from(self.state().view(View::refusal));
        match self.first_gate() {
            Gate::Pass => Ok(()),
            Gate::Refuse => Err(refusal),
            Gate::Probe if self.state().view(|view| view.is_suppressed(now)) => Err(refusal),
            Gate::Probe => self.ask_for_first(refusal, now).await,
        }
    }

    /// Waits until the leased rate has room for it. The world may have changed then.
    async fn take_turn(&mut self) -> Result<(), Stop> {
        let needs = self.least_attempt();
        let left = self.limit.left(self.now);
        let latest = left.map(|left| self.now.saturating_add(left.saturating_sub(needs)));
        let first = &self.state().first;
        if first.try_pass(self.now) {
            return Ok(());
        }
        let passed = tokio::select! {
            biased;
            passed = first.pass(self.core().clock, latest) => passed,
            () = self.core().until(Core::is_shut_down) => true,
        };
        if passed { Ok(()) } else { Err(StopReason::FirstAttemptsExhausted.into()) }
    }

    async fn ask_for_first(&mut self, refusal: Stop, now: Moment) -> Result<(), Stop> {
        let ask = AskRequest { kind: AskKind::First, max_wait_ms: Some(0), ..self.ask_now(None, now) };
        match self.core().ask(ask).await {
            Answer::Decided(answer) => self.take(answer)?,
            Answer::Busy(_) => return Err(refusal),
            Answer::TooLate => return Err(StopReason::DeadlineTooShort.into()),
            Answer::Rejected | Answer::Late | Answer::Away | Answer::CircuitOpen => {}
        }
        self.tick();
        self.may_start()
    }

    /// What the breaker lets through of first attempts.
    fn first_gate(&self) -> Gate {
        if self.state().is_guarded() { self.gate(self.core().clock.now()) } else { Gate::Pass }
    }
}
