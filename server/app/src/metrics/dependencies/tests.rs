use std::sync::Arc;

use damper_core::{DecisionCount, Dependency, Kind, Moment, Policy, PolicyDraft, Reason, Span};

use super::*;

/// Whether a decision about an ask of this kind can have this reason.
fn can_be(kind: Kind, reason: Reason) -> bool {
    kind == Kind::Retry
        || !matches!(
            reason,
            Reason::AfterDelay
                | Reason::NotRetryable
                | Reason::AmbiguousNotRepeatable
                | Reason::RetryAfterBeyondDeadline
                | Reason::AmplificationCap
                | Reason::QueueFull
                | Reason::Preempted
                | Reason::Expired
        )
}

#[test]
fn no_family_has_more_label_sets_than_it_is_given_room_for() {
    let draft = PolicyDraft { capacity_per_s: Some(1.0), ..PolicyDraft::default() };
    let policy = Arc::new(Policy::new(&draft).unwrap());
    let mut full = Dependency::new(Moment::ORIGIN, policy, 0).snapshot(Moment::ORIGIN);
    let kinds = Kind::ALL.iter().flat_map(|kind| Reason::ALL.iter().map(|reason| (*kind, *reason)));
    let possible = kinds.filter(|(kind, reason)| can_be(*kind, *reason));
    full.decided = possible.map(|(kind, reason)| DecisionCount { kind, reason, count: 1 }).collect();
    full.sync_lag = Some(Span::SECOND);
    for window in &mut full.windows {
        (window.amplification, window.expected_amplification) = (Some(1.0), Some(1.0));
    }
    for family in families() {
        let count = family.samples(&full).0.len();
        let room = if family.about.kind == MetricType::HISTOGRAM { 1 } else { family.sets };
        assert_eq!(count, room, "{}", family.about.name);
    }
}
