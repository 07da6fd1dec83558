use proptest::prelude::*;

use super::*;

const fn ms(ms: u64) -> Moment {
    Duration::from_millis(ms)
}

fn lease(per_s: f64, burst: f64) -> FirstAttempts {
    FirstAttempts { per_s, burst, ttl_ms: 5000, safe_per_s: per_s / 10.0, safe_for_ms: None }
}

fn passed(gate: &FirstGate, from_ms: u64, to_ms: u64) -> usize {
    (from_ms..to_ms).filter(|at| gate.try_pass(ms(*at))).count()
}

#[test]
fn without_a_lease_nothing_is_limited() {
    let gate = FirstGate::default();
    assert_eq!(passed(&gate, 0, 1000), 1000);
    assert!(gate.per_s(ms(0)) < 1e-9);
}

#[test]
fn a_leased_rate_is_kept_exactly_and_starts_with_its_burst() {
    for per_s in [1.0, 7.0, 100.0, 333.0] {
        let gate = FirstGate::default();
        gate.lease(
            FirstAttempts { ttl_ms: 60_000, ..lease(per_s, 1.0) },
            ms(60_000),
            &mut fastrand::Rng::with_seed(1),
        );
        let got = passed(&gate, 60_000, 70_000);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let expected = (per_s * 10.0) as usize + 1;
        assert!(got.abs_diff(expected) <= 1, "{per_s}/s gave {got}");
    }
}

#[test]
fn no_more_than_the_burst_is_saved_up() {
    let gate = FirstGate::default();
    gate.lease(
        FirstAttempts { ttl_ms: u64::MAX, ..lease(10.0, 3.0) },
        ms(0),
        &mut fastrand::Rng::with_seed(1),
    );
    let later = ms(100_000);
    assert_eq!((0..100).filter(|_| gate.try_pass(later)).count(), 3);
}

#[test]
fn a_change_of_rate_neither_frees_nor_takes_what_was_saved() {
    for (before, after) in [(1.0, 1000.0), (1000.0, 1.0)] {
        let gate = FirstGate::default();
        gate.lease(lease(before, 3.0), ms(0), &mut fastrand::Rng::with_seed(1));
        assert_eq!((0..9).filter(|_| gate.try_pass(ms(4000))).count(), 3);
        gate.lease(lease(after, 3.0), ms(4000), &mut fastrand::Rng::with_seed(1));
        assert!(!gate.try_pass(ms(4000)), "{before} to {after}");
        gate.lease(lease(before, 3.0), ms(4000), &mut fastrand::Rng::with_seed(1));
        gate.lease(lease(after, 2.0), ms(4999), &mut fastrand::Rng::with_seed(1));
        let saved = (0..9).filter(|_| gate.try_pass(ms(4999))).count();
        assert_eq!(
            saved,
            if before > 1.0 { 2 } else { 1 },
            "{before} to {after}: the rest of one is carried on"
        );
    }
}

#[test]
fn a_lease_that_ends_without_a_server_leaves_the_safe_rate() {
    let gate = FirstGate::default();
    gate.lease(lease(100.0, 1.0), ms(0), &mut fastrand::Rng::with_seed(1));
    assert!((passed(&gate, 1, 5000)).abs_diff(500) <= 1);
    assert!((gate.per_s(ms(4999)) - 100.0).abs() < 1e-6);
    assert!(passed(&gate, 5000, 15_000).abs_diff(100) <= 1);
    assert!((gate.per_s(ms(5000)) - 10.0).abs() < 1e-6);
    gate.lift();
    assert_eq!(passed(&gate, 15_000, 15_100), 100);
}

#[test]
fn b19_a_rate_that_is_none_lets_nothing_through() {
    for per_s in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY, f64::MIN_POSITIVE] {
        let gate = FirstGate::default();
        gate.lease(lease(per_s, f64::NAN), ms(0), &mut fastrand::Rng::with_seed(1));
        assert_eq!(passed(&gate, 0, 4999), 0, "{per_s}");
    }
}

#[tokio::test(start_paused = true)]
async fn those_that_come_too_early_wait_in_line_or_are_refused_at_once() {
    let (gate, clock) = (FirstGate::default(), Clock::start());
    gate.lease(
        FirstAttempts { ttl_ms: 60_000, ..lease(10.0, 1.0) },
        clock.now(),
        &mut fastrand::Rng::with_seed(1),
    );
    let wait = async |latest_ms: u64| {
        let passed = gate.pass(clock, Some(ms(latest_ms))).await;
        (passed, clock.now().as_millis() / 100)
    };
    let all = futures_util::future::join_all([wait(5000), wait(5000), wait(150), wait(5000), wait(50)]).await;
    assert_eq!(all, [(true, 1), (true, 2), (false, 0), (true, 3), (false, 0)]);
    assert_eq!(gate.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_line_moves_on_when_the_lease_changes_or_its_head_goes_away() {
    let (gate, clock) = (FirstGate::default(), Clock::start());
    gate.lease(
        FirstAttempts { ttl_ms: 60_000, ..lease(0.05, 1.0) },
        clock.now(),
        &mut fastrand::Rng::with_seed(1),
    );
    let first = tokio::time::timeout(ms(500), gate.pass(clock, None));
    let second = gate.pass(clock, Some(ms(200_000)));
    let change = async {
        tokio::time::sleep(ms(1000)).await;
        gate.lift();
    };
    let (first, second, ()) = tokio::join!(first, second, change);
    assert!(first.is_err() && second);
    assert_eq!(clock.now().as_millis(), 1000);
}

#[tokio::test(start_paused = true)]
async fn who_waits_when_the_lease_ends_goes_on_at_the_safe_rate() {
    let (gate, clock) = (FirstGate::default(), Clock::start());
    let told = FirstAttempts { per_s: 0.1, burst: 1.0, ttl_ms: 2000, safe_per_s: 1.0, safe_for_ms: None };
    gate.lease(told, clock.now(), &mut fastrand::Rng::with_seed(1));
    assert!(gate.pass(clock, None).await);
    assert_eq!(clock.now().as_millis(), 2000);
}

#[tokio::test(start_paused = true)]
async fn at_a_rate_of_zero_the_next_lease_is_waited_for_within_the_deadline() {
    let (gate, clock) = (FirstGate::default(), Clock::start());
    let closed = FirstAttempts { ttl_ms: 60_000, ..lease(0.0, 1.0) };
    gate.lease(closed, clock.now(), &mut fastrand::Rng::with_seed(1));
    let wait = async |latest_ms: u64| {
        let passed = gate.pass(clock, Some(ms(latest_ms))).await;
        (passed, clock.now().as_millis())
    };
    let reopened = async {
        tokio::time::sleep(ms(1000)).await;
        assert_eq!(gate.waiting(), 3, "one has given up");
        gate.lease(
            FirstAttempts { ttl_ms: 60_000, ..lease(10.0, 1.0) },
            clock.now(),
            &mut fastrand::Rng::with_seed(1),
        );
    };
    let (a, b, c, d, ()) = tokio::join!(wait(5000), wait(500), wait(5000), wait(1150), reopened);
    assert_eq!((a, b), ((true, 1100), (false, 500)));
    assert_eq!((c, d), ((true, 1200), (false, 1150)));
    gate.lease(
        FirstAttempts { per_s: 0.0, ttl_ms: 2000, safe_per_s: 1.0, ..closed },
        clock.now(),
        &mut fastrand::Rng::with_seed(1),
    );
    let (passed, at) = wait(10_000).await;
    assert!(passed && (3150..=4200).contains(&at), "the safe rate after the lease's end: {at}");
}

proptest! {
    #[test]
    fn no_sequence_of_leases_exceeds_their_rates(
        steps in prop::collection::vec((0.0..2000.0_f64, 1.0..20.0_f64, 1..2000_u64), 1..20),
    ) {
        let gate = FirstGate::default();
        let (mut now, mut got, mut allowed, mut burst) = (0, 0_usize, 1.0, 0.0_f64);
        for (per_s, most, lasts_ms) in steps {
            gate.lease(lease(per_s, most), ms(now), &mut fastrand::Rng::with_seed(1));
            got += passed(&gate, now, now + lasts_ms);
            now += lasts_ms;
            burst = burst.max(most);
            #[expect(clippy::cast_precision_loss)]
            { allowed += per_s * lasts_ms as f64 / 1000.0; }
        }
        #[expect(clippy::cast_precision_loss)]
        let got = got as f64;
        prop_assert!(got <= allowed + 20.0, "{got} of {allowed}");
    }
}

#[test]
fn a_fleet_that_was_stopped_does_not_start_as_one() {
    let mut rng = fastrand::Rng::with_seed(1);
    let started = (0..1000)
        .filter(|_| {
            let gate = FirstGate::default();
            // A tenth of an attempt per second and nothing to save up, told once a second; nobody may start.
            for second in 10..40 {
                gate.lease(lease(0.1, 0.0), ms(second * 1000), &mut rng);
            }
            gate.try_pass(ms(40_000))
        })
        .count();
    assert!((70..=130).contains(&started), "a tenth per second of a thousand: {started}");
}

/// Nobody stands behind a rate that was leased while a dependency recovered, once its server has been silent.
#[tokio::test(start_paused = true)]
async fn a_safe_rate_without_a_capacity_ends() {
    let (gate, clock) = (FirstGate::default(), Clock::start());
    let ramp =
        FirstAttempts { per_s: 0.1, burst: 0.0, ttl_ms: 3000, safe_per_s: 2.0, safe_for_ms: Some(30_000) };
    gate.lease(ramp, clock.now(), &mut fastrand::Rng::with_seed(1));
    let mut passed = [0; 40];
    for second in &mut passed {
        for _ in 0..20 {
            *second += u32::from(gate.try_pass(clock.now()));
            tokio::time::sleep(ms(50)).await;
        }
    }
    assert!(passed[..3].iter().sum::<u32>() <= 1, "{passed:?}");
    assert!(passed[4..32].iter().all(|passed| (1..=3).contains(passed)), "{passed:?}");
    assert!(passed[34..].iter().all(|passed| *passed == 20), "{passed:?}");
}
