//! After a failed attempt: stop, and why, or wait at least so long and ask.

use std::time::Duration;

use damper_protocol::FailureClass;
use fastrand::Rng;

use crate::{Failure, Profile, StopReason, clock::Moment, deadline::Limit, retry_after, view::Gate};

/// The longest pause that an operation without a deadline sits out for a dependency.
const LONGEST_UNBOUNDED_PAUSE: Duration = Duration::from_secs(60);

/// Everything that the decision rests on.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) now: Moment,
    pub(crate) limit: Limit,
    pub(crate) profile: Profile,
    /// The number of the attempt that failed.
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    pub(crate) failure: &'a Failure,
    /// The failure before it, if there was one.
    pub(crate) previous: Option<&'a Failure>,
    /// The operation may be repeated whatever became of the attempt.
    pub(crate) repeatable: bool,
    pub(crate) held_for: Duration,
    pub(crate) suppressed: bool,
    pub(crate) gate: Gate,
    /// Why, if the gate refuses.
    pub(crate) gate_reason: StopReason,
    pub(crate) switched_off: Option<StopReason>,
}

/// How long to wait before the next attempt, or why there is none. The gates come in the server's order, so that
/// a refusal has the same reason on both sides.
pub(crate) fn after_failure(facts: &Facts<'_>, rng: &mut Rng) -> Result<Duration, StopReason> {
    if let Some(reason) = facts.switched_off {
        return Err(reason);
    }
    if !is_retryable(facts.failure, facts.previous) {
        return Err(StopReason::NotRetryable);
    }
    if facts.attempt >= facts.max_attempts {
        return Err(StopReason::AttemptsExhausted);
    }
    if !facts.repeatable && !facts.failure.had_no_effect() {
        return Err(StopReason::AmbiguousNotRepeatable);
    }
    let wait = wait(facts, rng)?;
    if facts.gate == Gate::Refuse {
        return Err(facts.gate_reason);
    }
    if facts.suppressed {
        return Err(StopReason::Suppressed);
    }
    Ok(wait)
}

fn is_retryable(failure: &Failure, previous: Option<&Failure>) -> bool {
    let class = matches!(failure.class, FailureClass::Transient | FailureClass::RateLimited);
    class && !failure.do_not_retry && !is_misdirected_again(failure, previous)
}

/// A request that went to the wrong place, or too early, is sent again once: on a new connection or in time.
fn is_misdirected_again(failure: &Failure, previous: Option<&Failure>) -> bool {
    let misdirected = |failure: &Failure| matches!(failure.code.as_deref(), Some("421" | "425"));
    misdirected(failure) && previous.is_some_and(misdirected)
}

/// The own backoff, or the pause that the dependency or the fleet asks for if that is longer. A wait that does not
/// fit is never shortened.
fn wait(facts: &Facts<'_>, rng: &mut Rng) -> Result<Duration, StopReason> {
    let backoff = facts.profile.backoff(facts.failure.class).delay(facts.attempt, rng);
    if !facts.limit.fits(facts.now, backoff) {
        return Err(StopReason::DeadlineTooShort);
    }
    let asked = facts.failure.retry_after.unwrap_or_default().max(facts.held_for);
    let pause = if asked.is_zero() { asked } else { retry_after::jittered(asked, rng) };
    let unbounded = facts.limit.left(facts.now).is_none();
    if !facts.limit.fits(facts.now, pause) || (unbounded && asked > LONGEST_UNBOUNDED_PAUSE) {
        return Err(StopReason::RetryAfterBeyondDeadline);
    }
    Ok(backoff.max(pause))
}
