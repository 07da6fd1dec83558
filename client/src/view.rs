//! What this process knows about one dependency from the server: breaker, hold, suppression, policy, shares.

use std::time::Duration;

use damper_protocol::{BreakerState, BreakerView, Emergency, OnOpen, PolicyView, SyncedDependency};

use crate::{StopReason, clock::Moment};

/// A view older than three of the server's heartbeats is no longer knowledge.
const STALE_AFTER: Duration = Duration::from_secs(30);

/// The longest that one message can keep retries back. A longer pause has to be said again.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A hold that is longer by less is not worth a message.
const NEWS: Duration = Duration::from_secs(1);

/// How long a breaker counts as open that was not said to be open for any time.
const OPEN_UNTIL_TOLD: Duration = Duration::from_secs(1);

/// What the breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Pass,
    /// Only as a probe: the server decides.
    Probe,
    Refuse,
}

/// The knowledge.
#[derive(Debug, Default)]
pub(crate) struct View {
    breaker: Option<Breaker>,
    hold_until: Moment,
    suppressed_until: Moment,
    emergency: Option<Emergency>,
    policy: Option<PolicyView>,
    /// The client only observes.
    observes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Breaker {
    state: BreakerState,
    version: u64,
    open_until: Moment,
}

impl View {
    pub(crate) fn new(observes: bool) -> Self {
        Self { observes, ..Self::default() }
    }

    /// Takes over a sync's answer. The server has seen this client's breaker version in the request, so that its
    /// word stands even if a new life of the server counts from a lower version: `new_epoch`.
    pub(crate) fn synced(&mut self, told: &SyncedDependency, new_epoch: bool, now: Moment) {
        if new_epoch {
            self.breaker = None;
        }
        self.breaker(told.breaker, now);
        self.hold(Duration::from_millis(told.hold_ms), now);
        self.suppress(Duration::from_millis(told.suppress_ms), now);
        self.emergency = Some(told.emergency);
        self.policy = Some(told.policy);
    }

    /// Takes over a policy.
    pub(crate) fn policy(&mut self, policy: PolicyView) {
        self.policy = Some(policy);
    }

    /// Takes over a breaker, unless it is older than what is known.
    pub(crate) fn breaker(&mut self, told: BreakerView, now: Moment) {
        if self.breaker.is_some_and(|known| told.version < known.version) {
            return;
        }
        let open_for = Duration::from_millis(told.open_for_ms).min(LONGEST_PAUSE);
        let open_until = now.saturating_add(open_for);
        self.breaker = Some(Breaker { state: told.state, version: told.version, open_until });
    }

    /// Takes over a breaker from the answer to an ask, which does not say how long it stays open.
    pub(crate) fn breaker_of_answer(
        &mut self,
        told: damper_protocol::BreakerVersion,
        retry_after: Option<Duration>,
        now: Moment,
    ) {
        if self.breaker.is_some_and(|known| told.version <= known.version) {
            return;
        }
        let open_for = retry_after.unwrap_or(OPEN_UNTIL_TOLD).min(LONGEST_PAUSE);
        let open_until = now.saturating_add(open_for);
        self.breaker = Some(Breaker { state: told.state, version: told.version, open_until });
    }

    /// No retry for so long. A longer hold replaces a shorter one, never the reverse. True if it is news: longer
    /// by more than a second, or the first.
    pub(crate) fn hold(&mut self, pause: Duration, now: Moment) -> bool {
        let before = self.hold_until;
        self.hold_until = before.max(now.saturating_add(pause.min(LONGEST_PAUSE)));
        let known_until = if before > now { before.saturating_add(NEWS) } else { now };
        self.hold_until > known_until
    }

    /// No ask for so long.
    pub(crate) fn suppress(&mut self, pause: Duration, now: Moment) {
        self.suppressed_until = self.suppressed_until.max(now.saturating_add(pause.min(LONGEST_PAUSE)));
    }

    /// What the breaker lets through, if the server was heard at `heard`.
    pub(crate) fn gate(&self, now: Moment, heard: Option<Moment>) -> Gate {
        match self.breaker {
            Some(breaker) if is_fresh(now, heard) && !self.is_shadow() => match breaker.state {
                BreakerState::Closed => Gate::Pass,
                BreakerState::HalfOpen => Gate::Probe,
                BreakerState::Open if now < breaker.open_until => Gate::Refuse,
                BreakerState::Open => Gate::Probe,
            },
            _ => Gate::Pass,
        }
    }

    /// True if first attempts may meet a closed gate.
    pub(crate) fn guards_first_attempts(&self) -> bool {
        self.was_broken() && !self.is_shadow() && self.policy.unwrap_or_default().on_open == OnOpen::All
    }

    /// How long no retry may start yet.
    pub(crate) fn held_for(&self, now: Moment) -> Duration {
        if self.is_shadow() { Duration::ZERO } else { self.hold_until.saturating_sub(now) }
    }

    /// When what stops retries now may be over, where that is known.
    pub(crate) fn again_in(&self, reason: StopReason, now: Moment) -> Option<Duration> {
        let until = match reason {
            StopReason::BreakerOpen => self.breaker.map(|breaker| breaker.open_until),
            StopReason::Suppressed => Some(self.suppressed_until),
            StopReason::RetryAfterBeyondDeadline => Some(self.hold_until),
            _ => None,
        };
        until.map(|until| until.saturating_sub(now)).filter(|left| !left.is_zero())
    }

    pub(crate) fn is_suppressed(&self, now: Moment) -> bool {
        now < self.suppressed_until && !self.is_shadow()
    }

    /// In shadow mode the server counts what it would refuse, and nobody refuses anything. A client that only
    /// observes is in it by itself.
    pub(crate) fn is_shadow(&self) -> bool {
        self.observes || self.policy.is_some_and(|policy| policy.shadow)
    }

    /// Why nothing passes, in the breaker's own words.
    pub(crate) fn refusal(&self) -> StopReason {
        match self.breaker.map(|breaker| breaker.state) {
            Some(BreakerState::HalfOpen) => StopReason::BreakerHalfOpen,
            _ => StopReason::BreakerOpen,
        }
    }

    /// The latest version seen and its state, for the server to build on after a restart.
    pub(crate) fn last_breaker(&self) -> (u64, Option<BreakerState>) {
        self.breaker.map_or((0, None), |breaker| (breaker.version, Some(breaker.state)))
    }

    /// True if the breaker was not closed when the server was last heard.
    fn was_broken(&self) -> bool {
        self.breaker.is_some_and(|breaker| breaker.state != BreakerState::Closed)
    }

    /// True if the dependency was in trouble when the server was last heard: broken, or retries were throttled.
    pub(crate) fn was_in_trouble(&self) -> bool {
        self.was_broken() || self.emergency.is_some_and(|emergency| emergency.throttled)
    }

    pub(crate) fn emergency(&self) -> Option<Emergency> {
        self.emergency
    }

    pub(crate) fn known_policy(&self) -> Option<PolicyView> {
        self.policy
    }
}

fn is_fresh(now: Moment, heard: Option<Moment>) -> bool {
    heard.is_some_and(|heard| now.saturating_sub(heard) <= STALE_AFTER)
}

#[cfg(test)]
mod tests {
    use damper_protocol::BreakerVersion;
    use proptest::prelude::*;

    use super::*;

    const fn s(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    fn told(state: BreakerState, version: u64, open_for_ms: u64) -> BreakerView {
        BreakerView { state, version, open_for_ms }
    }

    #[test]
    fn an_open_breaker_refuses_until_its_time_then_asks_for_a_probe() {
        let mut view = View::default();
        assert_eq!(view.gate(s(1), Some(s(1))), Gate::Pass, "nothing known");
        view.breaker(told(BreakerState::Open, 3, 5000), s(1));
        assert_eq!(view.gate(s(5), Some(s(1))), Gate::Refuse);
        assert_eq!(view.gate(s(6), Some(s(1))), Gate::Probe);
        view.breaker(told(BreakerState::HalfOpen, 4, 0), s(7));
        assert_eq!(view.gate(s(7), Some(s(7))), Gate::Probe);
        view.breaker(told(BreakerState::Closed, 5, 0), s(8));
        assert_eq!(view.gate(s(8), Some(s(8))), Gate::Pass);
    }

    #[test]
    fn an_old_view_never_pins_a_breaker_open() {
        let mut view = View::default();
        view.breaker(told(BreakerState::Open, 3, 500_000), s(0));
        assert_eq!(view.gate(s(30), Some(s(0))), Gate::Refuse);
        assert_eq!(view.gate(s(31), Some(s(0))), Gate::Pass);
        assert_eq!(view.gate(s(31), None), Gate::Pass);
    }

    #[test]
    fn b45_versions_only_rise() {
        let mut view = View::default();
        view.breaker(told(BreakerState::Open, 7, 60_000), s(0));
        view.breaker(told(BreakerState::Closed, 6, 0), s(0));
        let older = BreakerVersion { state: BreakerState::Closed, version: 7 };
        view.breaker_of_answer(older, None, s(0));
        assert_eq!(view.last_breaker(), (7, Some(BreakerState::Open)));
    }

    #[test]
    fn a_sync_of_a_new_epoch_may_count_from_a_lower_version() {
        let mut view = View::default();
        view.breaker(told(BreakerState::Open, 7, 60_000), s(0));
        let answer =
            SyncedDependency { breaker: told(BreakerState::Closed, 1, 0), ..SyncedDependency::default() };
        view.synced(&answer, false, s(0));
        assert_eq!(view.last_breaker().0, 7);
        view.synced(&answer, true, s(0));
        assert_eq!(view.last_breaker(), (1, Some(BreakerState::Closed)));
    }

    #[test]
    fn first_attempts_are_guarded_only_where_an_open_breaker_stops_all() {
        let mut view = View::default();
        view.breaker(told(BreakerState::Open, 1, 1000), s(0));
        assert!(view.guards_first_attempts());
        view.policy(PolicyView { on_open: OnOpen::Retries, ..PolicyView::default() });
        assert!(!view.guards_first_attempts());
    }

    #[test]
    fn in_shadow_mode_nothing_is_refused() {
        let mut view = View::default();
        view.breaker(told(BreakerState::Open, 1, 60_000), s(0));
        view.suppress(s(60), s(0));
        view.hold(s(60), s(0));
        view.policy(PolicyView { shadow: true, ..PolicyView::default() });
        assert_eq!(view.held_for(s(1)), Duration::ZERO);
        assert!(!view.guards_first_attempts() && !view.is_suppressed(s(1)));
        assert_eq!(view.gate(s(1), Some(s(1))), Gate::Pass);
    }

    #[test]
    fn a_shorter_hold_never_replaces_a_longer_one() {
        let mut view = View::default();
        assert!(view.hold(s(30), s(0)));
        assert!(!view.hold(s(5), s(1)));
        assert!(!view.hold(Duration::ZERO, s(2)));
        assert_eq!(view.held_for(s(10)), s(20));
        assert!(!view.hold(s(21), s(10)), "a second longer is no news");
        assert!(view.hold(s(40), s(10)));
        assert_eq!(view.held_for(s(10)), s(40));
    }

    proptest! {
        #[test]
        fn no_message_keeps_retries_back_for_longer_than_its_cap(hold: u64, suppress: u64, now in 0..1_000_000_u64) {
            let now = s(now);
            let mut view = View::default();
            view.hold(Duration::from_millis(hold), now);
            view.suppress(Duration::from_millis(suppress), now);
            prop_assert!(view.held_for(now) <= LONGEST_PAUSE);
            prop_assert!(!view.is_suppressed(now + LONGEST_PAUSE));
        }

        #[test]
        fn the_version_never_falls_within_an_epoch(versions: Vec<(u64, bool)>) {
            let mut view = View::default();
            let mut highest = 0;
            for (version, by_answer) in versions {
                if by_answer {
                    view.breaker_of_answer(BreakerVersion { version, ..Default::default() }, None, s(0));
                } else {
                    view.breaker(told(BreakerState::Open, version, 1), s(0));
                }
                highest = highest.max(version);
                prop_assert_eq!(view.last_breaker().0, highest);
            }
        }
    }
}
