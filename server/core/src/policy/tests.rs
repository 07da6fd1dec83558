use super::*;

fn draft(edit: impl FnOnce(&mut PolicyDraft)) -> PolicyDraft {
    let mut draft = PolicyDraft::default();
    edit(&mut draft);
    draft
}

fn places(draft: &PolicyDraft) -> Vec<String> {
    Policy::new(draft).unwrap_err().into_iter().map(|fault| fault.place).collect()
}

#[test]
fn a_term_that_is_not_configured_drops_out() {
    let nothing = Policy::default().retry;
    assert_eq!((nothing.per_s, nothing.ratio), (None, Some(Ppm::new(100_000))));
    let capacity = Policy::new(&draft(|d| d.capacity_per_s = Some(130.0))).unwrap().retry;
    assert_eq!((capacity.per_s, capacity.ratio), (None, Some(Ppm::ONE)));
    let fixed = Policy::new(&draft(|d| d.retry.per_s = Some(10.0))).unwrap().retry;
    assert_eq!((fixed.per_s, fixed.ratio), (Some(MicrosPerSecond::from_per_s(10)), None));
}

#[test]
fn the_default_floor_never_exceeds_a_fixed_pool() {
    let none = Policy::new(&draft(|d| d.retry.per_s = Some(0.0))).unwrap();
    assert_eq!(none.retry.floor, MicrosPerSecond::ZERO);
    let half = Policy::new(&draft(|d| d.retry.per_s = Some(0.5))).unwrap();
    assert_eq!(half.retry.floor, MicrosPerSecond::from_micros(500_000));
}

#[test]
fn every_mistake_is_named_at_once() {
    let bad = draft(|d| {
        d.capacity_per_s = Some(-1.0);
        d.max_attempts = Some(0);
        d.retry.per_s = Some(f64::NAN);
        d.retry.ratio = Some(f64::INFINITY);
        d.retry.burst = Some(0.0);
        d.breaker.failure_share = Some(0.0);
        d.breaker.window_ms = Some(0);
        d.tenants.insert("checkout".into(), TenantDraft { weight: Some(0), amplification_cap: Some(0.5) });
    });
    assert_eq!(
        places(&bad),
        [
            "capacity_per_s",
            "max_attempts",
            "retry.per_s",
            "retry.ratio",
            "retry.burst",
            "breaker.failure_share",
            "breaker.window_ms",
            "tenants.checkout.weight",
            "tenants.checkout.amplification_cap",
        ]
    );
}

#[test]
fn a_value_too_small_to_store_is_a_mistake_rather_than_a_zero() {
    assert_eq!(places(&draft(|d| d.retry.ratio = Some(1e-9))), ["retry.ratio"]);
    assert_eq!(places(&draft(|d| d.retry.per_s = Some(1e-7))), ["retry.per_s"]);
}

#[test]
fn what_a_draft_leaves_open_comes_from_the_defaults() {
    let defaults = draft(|d| {
        d.max_attempts = Some(3);
        d.retry.per_s = Some(5.0);
        d.tenants.insert("a".into(), TenantDraft { weight: Some(2), ..TenantDraft::default() });
    });
    let own = draft(|d| {
        d.retry.per_s = Some(7.0);
        d.tenants.insert("b".into(), TenantDraft { weight: Some(9), ..TenantDraft::default() });
    });
    let policy = Policy::new(&own.or(&defaults)).unwrap();
    assert_eq!(policy.max_attempts, 3);
    assert_eq!(policy.retry.per_s, Some(MicrosPerSecond::from_per_s(7)));
    assert_eq!((policy.weight("a"), policy.weight("b"), policy.weight("c")), (2, 9, 1));
}
