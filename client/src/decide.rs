//! After a failed attempt: stop, and why, or wait at least so long and ask.

use std::time::Duration;

use damper_protocol::{Dispatch, FailureClass};
use fastrand::Rng;

use crate::{Failure, Profile, StopReason, clock::Moment, deadline::Limit, retry_after, view::Gate};

/// The longest pause that an operation without a deadline sits out for a dependency.
const LONGEST_UNBOUNDED_PAUSE: Duration = Duration::from_secs(60);

/// A stream that has connected so often without bringing anything is broken, not unlucky.
const MOST_FRUITLESS: u32 = 10;

/// Everything that the decision rests on.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) now: Moment,
    pub(crate) limit: Limit,
    /// How long another attempt will probably take.
    pub(crate) expected: Duration,
    pub(crate) profile: Profile,
    /// The number of the attempt that failed.
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    /// The retries are this operation's own.
    pub(crate) owns: bool,
    /// The caller's hook forbids them.
    pub(crate) dropped: bool,
    pub(crate) failure: &'a Failure,
    /// How many failures so far were misdirections, this one included.
    pub(crate) misdirections: u32,
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
    if facts.dropped {
        return Err(StopReason::DroppedByHook);
    }
    if !is_retryable(facts.failure) || facts.misdirections > 1 {
        return Err(StopReason::NotRetryable);
    }
    if facts.profile.is_endless() && facts.attempt >= MOST_FRUITLESS {
        return Err(StopReason::NoProgress);
    }
    if facts.attempt >= facts.max_attempts {
        return Err(StopReason::AttemptsExhausted);
    }
    if !facts.repeatable && !facts.failure.had_no_effect() {
        return Err(StopReason::AmbiguousNotRepeatable);
    }
    // What never left its sender is no load on anyone further down.
    if !facts.owns && (facts.attempt > 1 || facts.failure.dispatch != Dispatch::NotSent) {
        return Err(StopReason::NotRetryOwner);
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

fn is_retryable(failure: &Failure) -> bool {
    let class = matches!(failure.class, FailureClass::Transient | FailureClass::RateLimited);
    class && !failure.do_not_retry
}

/// A request that went to the wrong place, or too early: it is sent again once, on a new connection or in time.
pub(crate) fn is_misdirected(failure: &Failure) -> bool {
    matches!(failure.code.as_deref(), Some("421" | "425"))
}

/// The own backoff, or the pause that the dependency or the fleet asks for if that is longer. A wait that does not
/// fit is never shortened.
fn wait(facts: &Facts<'_>, rng: &mut Rng) -> Result<Duration, StopReason> {
    let backoff = facts.profile.backoff(facts.failure.class).delay(facts.attempt, rng);
    if !facts.limit.fits(facts.now, backoff.saturating_add(facts.expected)) {
        return Err(StopReason::DeadlineTooShort);
    }
    let asked = facts.failure.retry_after.unwrap_or_default().max(facts.held_for);
    let pause = if asked.is_zero() { asked } else { retry_after::jittered(asked, rng) };
    let unbounded = facts.limit.left(facts.now).is_none();
    if !facts.limit.fits(facts.now, pause.saturating_add(facts.expected))
        || (unbounded && asked > LONGEST_UNBOUNDED_PAUSE)
    {
        return Err(StopReason::RetryAfterBeyondDeadline);
    }
    Ok(backoff.max(pause))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Deadline, clock::Clock};

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn limit(deadline: Option<Duration>) -> Limit {
        let deadline = deadline.map_or(Deadline::unbounded(), Deadline::after);
        deadline.limit(Clock::start(), Duration::ZERO, None)
    }

    fn transient() -> Failure {
        Failure::new(FailureClass::Transient)
    }

    fn facts(failure: &Failure) -> Facts<'_> {
        Facts {
            now: Duration::ZERO,
            limit: limit(Some(ms(10_000))),
            expected: Duration::ZERO,
            profile: Profile::standard(),
            attempt: 1,
            max_attempts: 4,
            owns: true,
            dropped: false,
            failure,
            misdirections: 0,
            repeatable: true,
            held_for: Duration::ZERO,
            suppressed: false,
            gate: Gate::Pass,
            gate_reason: StopReason::BreakerOpen,
            switched_off: None,
        }
    }

    fn decide(facts: &Facts<'_>) -> Result<Duration, StopReason> {
        after_failure(facts, &mut fastrand::Rng::with_seed(1))
    }

    #[test]
    fn only_transient_and_rate_limited_failures_are_retried() {
        for class in FailureClass::ALL {
            let retried = matches!(class, FailureClass::Transient | FailureClass::RateLimited);
            assert_eq!(decide(&facts(&Failure::new(*class))).is_ok(), retried, "{class}");
        }
        assert_eq!(decide(&facts(&transient().never_retried())), Err(StopReason::NotRetryable));
    }

    #[test]
    fn each_rule_has_its_reason() {
        let failure = transient();
        let base = || facts(&failure);
        let cases = [
            (Facts { switched_off: Some(StopReason::RetriesOff), ..base() }, StopReason::RetriesOff),
            (Facts { attempt: 4, ..base() }, StopReason::AttemptsExhausted),
            (Facts { max_attempts: 0, ..base() }, StopReason::AttemptsExhausted),
            (Facts { repeatable: false, ..base() }, StopReason::AmbiguousNotRepeatable),
            (Facts { limit: limit(Some(Duration::ZERO)), ..base() }, StopReason::DeadlineTooShort),
            (Facts { expected: ms(10_000), ..base() }, StopReason::DeadlineTooShort),
            (Facts { held_for: ms(10_000), ..base() }, StopReason::RetryAfterBeyondDeadline),
            (Facts { gate: Gate::Refuse, ..base() }, StopReason::BreakerOpen),
            (Facts { suppressed: true, ..base() }, StopReason::Suppressed),
            (Facts { owns: false, ..base() }, StopReason::NotRetryOwner),
            (Facts { dropped: true, ..base() }, StopReason::DroppedByHook),
            (Facts { profile: Profile::stream(), attempt: 10, ..base() }, StopReason::NoProgress),
        ];
        for (facts, reason) in cases {
            assert_eq!(decide(&facts), Err(reason), "{facts:?}");
        }
        assert!(decide(&base()).is_ok());
        assert!(decide(&Facts { gate: Gate::Probe, ..base() }).is_ok());
    }

    #[test]
    fn who_does_not_own_the_retries_repeats_once_what_never_left() {
        let unsent = transient().with_dispatch(Dispatch::NotSent);
        assert!(decide(&Facts { owns: false, ..facts(&unsent) }).is_ok());
        let again = Facts { owns: false, attempt: 2, ..facts(&unsent) };
        assert_eq!(decide(&again), Err(StopReason::NotRetryOwner));
    }

    #[test]
    fn a_pause_that_does_not_fit_stops_at_once() {
        let pause = |pause_ms, deadline_ms: Option<u64>| {
            let failure = transient().with_retry_after(ms(pause_ms));
            decide(&Facts { limit: limit(deadline_ms.map(ms)), ..facts(&failure) })
        };
        assert!(pause(1000, Some(5000)).is_ok());
        assert_eq!(pause(1000, Some(1000)), Err(StopReason::RetryAfterBeyondDeadline));
        assert_eq!(pause(86_400_000, Some(2000)), Err(StopReason::RetryAfterBeyondDeadline), "b04");
        assert!(pause(60_000, None).is_ok());
        assert_eq!(pause(61_000, None), Err(StopReason::RetryAfterBeyondDeadline));
    }

    #[test]
    fn b05_a_pause_of_zero_leaves_the_backoff() {
        let failure = transient().with_retry_after(Duration::ZERO);
        assert_eq!(decide(&facts(&failure)), decide(&facts(&transient())));
    }

    #[test]
    fn a_misdirected_request_is_sent_again_once() {
        let misdirected = transient().with_dispatch(Dispatch::NotProcessed).with_code("421");
        assert!(decide(&Facts { repeatable: false, ..facts(&misdirected) }).is_ok());
        let again = Facts { misdirections: 2, ..facts(&misdirected) };
        assert_eq!(decide(&again), Err(StopReason::NotRetryable));
    }

    proptest! {
        #[test]
        fn no_wait_passes_the_deadline_and_no_pause_is_cut_short(
            left_ms in 0..20_000_u64, pause_ms in proptest::option::of(0..20_000_u64), held_ms in 0..5000_u64,
            attempt in 1..100_u32, limited: bool, seed: u64,
        ) {
            let class = if limited { FailureClass::RateLimited } else { FailureClass::Transient };
            let mut failure = Failure::new(class);
            failure.retry_after = pause_ms.map(ms);
            let facts = Facts {
                limit: limit(Some(ms(left_ms))),
                attempt,
                max_attempts: u32::MAX,
                held_for: ms(held_ms),
                ..facts(&failure)
            };
            if let Ok(wait) = after_failure(&facts, &mut fastrand::Rng::with_seed(seed)) {
                prop_assert!(wait < ms(left_ms));
                prop_assert!(wait >= ms(pause_ms.unwrap_or_default()) && wait >= ms(held_ms));
            }
        }

        #[test]
        fn what_may_have_had_an_effect_is_never_repeated_unless_declared(
            dispatch in proptest::sample::select(Dispatch::ALL), class in proptest::sample::select(FailureClass::ALL),
        ) {
            let failure = Failure::new(class).with_dispatch(dispatch);
            let decision = decide(&Facts { repeatable: false, ..facts(&failure) });
            if decision.is_ok() {
                prop_assert!(matches!(dispatch, Dispatch::NotSent | Dispatch::NotProcessed));
            }
        }
    }
}
