//! One ask: admitted at once or not at all, decided by the end of its window, repeated at most once.

use std::{sync::Arc, time::Duration};

use damper_protocol::{AskRequest, AskResponse};
use tokio::time::timeout;

use super::{Core, Path};
use crate::{clock::Moment, deadline::LEAST_ATTEMPT, link::Leave, transport::Fault, wire::ms_down};

/// What became of an ask.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// The server decided.
    Decided(AskResponse),
    /// The server limits this client; nothing was decided.
    Busy(Duration),
    /// The server does not accept this client's asks.
    Rejected,
    /// No server answered in time, for once.
    Late,
    /// There is no server.
    Away,
    /// The operation's deadline passed first.
    TooLate,
    /// No server was asked: it has been away for a while.
    CircuitOpen,
}

impl Core {
    /// Asks for a token. A repeat carries the same request id, so that it is charged once.
    pub(crate) async fn ask(self: &Arc<Self>, mut ask: AskRequest) -> Answer {
        let asked_at = self.clock.now();
        let leave = self.status.lock().link.admit(asked_at);
        if leave == Leave::Stay {
            return Answer::CircuitOpen;
        }
        let mut outcome = self.ask_once(&ask, leave).await;
        if outcome == Some(Err(Fault::NoAnswer)) && leave == Leave::Ask {
            shorten(&mut ask, self.clock.now().saturating_sub(asked_at));
            if self.leaves_time(&ask) {
                // Silence until the deadline says no more than the first silence did.
                outcome = self.ask_once(&ask, leave).await.or(outcome);
            }
        }
        match &outcome {
            Some(Ok(_)) => self.answered(Path::Ask),
            Some(Err(fault)) => self.faulted(Path::Ask, *fault),
            None => {}
        }
        match outcome {
            Some(Ok(answer)) => Answer::Decided(answer),
            Some(Err(Fault::Busy(pause))) => Answer::Busy(pause),
            Some(Err(Fault::Rejected(_))) => Answer::Rejected,
            Some(Err(Fault::NoAnswer)) if !self.status.lock().away => Answer::Late,
            Some(Err(Fault::Unreachable | Fault::NoAnswer | Fault::Unavailable(_))) => Answer::Away,
            None => Answer::TooLate,
        }
    }

    /// Whether the server can be silent once more, and the attempt still be made without it.
    fn leaves_time(&self, ask: &AskRequest) -> bool {
        let attempt = Duration::from_millis(ask.expected_ms).max(LEAST_ATTEMPT);
        Duration::from_millis(ask.deadline_ms) >= self.answer_within.saturating_add(attempt)
    }

    /// One request. `None` if the operation's deadline passed before the server's time was up. A probe has found out
    /// once it is admitted: others need not wait for its decision, which may take its time in the delay queue.
    async fn ask_once(&self, ask: &AskRequest, leave: Leave) -> Option<Result<AskResponse, Fault>> {
        let deadline = self.clock.now().saturating_add(Duration::from_millis(ask.deadline_ms));
        let window = Duration::from_millis(ask.max_wait_ms.unwrap_or_default());
        let ends_at = self.clock.now().saturating_add(window).saturating_add(self.answer_within);
        match self.within(self.answer_within, deadline, self.transport.ask(ask)).await? {
            Ok(pending) => {
                if leave == Leave::Probe {
                    self.answered(Path::Ask);
                }
                let left = ends_at.saturating_sub(self.clock.now());
                self.within(left, deadline, pending).await
            }
            Err(fault) => Some(Err(fault)),
        }
    }

    /// Waits for the server's part, but never past the deadline.
    async fn within<T>(
        &self,
        patience: Duration,
        deadline: Moment,
        part: impl Future<Output = Result<T, Fault>>,
    ) -> Option<Result<T, Fault>> {
        let left = deadline.saturating_sub(self.clock.now());
        match timeout(patience.min(left), part).await {
            Ok(outcome) => Some(outcome),
            Err(_) if left < patience => None,
            Err(_) => Some(Err(Fault::NoAnswer)),
        }
    }

    /// Notes that a probe has a result, and reports it soon: the whole fleet waits for it.
    pub(crate) fn report_soon(&self) {
        self.sync_soon.notify_one();
    }

    /// Takes note of what an answer says beside the decision.
    pub(crate) fn learn_from(&self, answer: &AskResponse, dependency: &super::DependencyState, now: Moment) {
        let retry_after = answer.retry_after_ms.map(Duration::from_millis);
        dependency.learn(|view| {
            view.breaker_of_answer(answer.breaker, retry_after, now);
            view.suppress(Duration::from_millis(answer.suppress_ms), now);
        });
    }
}

/// The durations of an ask are relative to the moment at which it is sent.
fn shorten(ask: &mut AskRequest, elapsed: Duration) {
    let elapsed_ms = ms_down(elapsed);
    ask.deadline_ms = ask.deadline_ms.saturating_sub(elapsed_ms);
    ask.earliest_ms = ask.earliest_ms.saturating_sub(elapsed_ms);
    if let Some(failure) = &mut ask.failure {
        failure.retry_after_ms = failure.retry_after_ms.map(|pause_ms| pause_ms.saturating_sub(elapsed_ms));
    }
    ask.max_wait_ms = ask.max_wait_ms.map(|wait_ms| wait_ms.saturating_sub(elapsed_ms));
}
