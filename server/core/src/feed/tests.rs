use proptest::prelude::*;

use super::*;
use crate::PolicyDraft;

fn policy(edit: impl FnOnce(&mut PolicyDraft)) -> Policy {
    let mut draft = PolicyDraft::default();
    edit(&mut draft);
    Policy::new(&draft).unwrap()
}

fn first_attempts(started: u64, succeeded: u64) -> Totals {
    Totals { logical: started, success: succeeded, ..Totals::default() }
}

fn open() -> Throttle {
    Throttle::new(Moment::ORIGIN)
}

/// The terms in the second after one with these first attempts.
fn terms_after(policy: &Policy, started: u64, succeeded: u64) -> Terms {
    let mut feed = Feed::new(Moment::ORIGIN);
    feed.count(&first_attempts(started, succeeded), Span::SECOND);
    feed.roll(Moment::from_millis(1000), true).unwrap();
    feed.terms(policy, &open())
}

#[test]
fn each_term_binds_in_its_turn() {
    let fixed = policy(|d| d.retry.per_s = Some(10.0));
    let fixed_terms = terms_after(&fixed, 100, 100);
    assert_eq!((fixed_terms.rate, fixed_terms.bound_by), (MicrosPerSecond::from_per_s(10), BoundBy::PerS));

    let ratio = policy(|d| d.retry.ratio = Some(0.3));
    let ratio_terms = terms_after(&ratio, 1000, 1000);
    assert_eq!((ratio_terms.rate, ratio_terms.bound_by), (MicrosPerSecond::from_per_s(300), BoundBy::Ratio));

    let room = policy(|d| d.capacity_per_s = Some(130.0));
    let room_terms = terms_after(&room, 120, 120);
    assert_eq!((room_terms.rate, room_terms.bound_by), (MicrosPerSecond::from_per_s(8), BoundBy::Headroom));

    let crowded = terms_after(&room, 500, 500);
    assert_eq!((crowded.rate, crowded.bound_by), (MicrosPerSecond::from_per_s(1), BoundBy::Floor));
}

#[test]
fn failures_retries_and_starts_deposit_nothing() {
    let ratio = policy(|d| {
        d.retry.ratio = Some(1.0);
        d.retry.floor_per_s = Some(0.0);
    });
    let mut feed = Feed::new(Moment::ORIGIN);
    let recovering = Totals {
        logical: 100,
        physical: 400,
        success: 30,
        recovered: 30,
        failures: [370; _],
        ..Totals::default()
    };
    feed.count(&recovering, Span::SECOND);
    feed.roll(Moment::from_millis(1000), true).unwrap();
    let terms = feed.terms(&ratio, &open());
    assert_eq!(terms.rate, MicrosPerSecond::ZERO);
}

#[test]
fn reports_that_arrive_in_bunches_keep_the_burst() {
    let ratio = policy(|d| d.retry.ratio = Some(0.1));
    let mut feed = Feed::new(Moment::ORIGIN);
    for second in 1..=6 {
        if second % 2 == 0 {
            feed.count(&first_attempts(1000, 1000), Span::SECOND);
        }
        feed.roll(Moment::from_millis(second * 1000), true).unwrap();
        let terms = feed.terms(&ratio, &open());
        if second > 2 {
            assert_eq!(terms.burst, MicroTokens::from_tokens(100), "second {second}");
        }
    }
}

#[test]
fn a_long_silence_is_crossed_in_a_few_steps() {
    let ratio = policy(|d| d.retry.ratio = Some(0.1));
    let mut feed = Feed::new(Moment::ORIGIN);
    feed.count(&first_attempts(1000, 1000), Span::SECOND);
    let mut steps = 0;
    while feed.roll(Moment::NEVER, true).is_some() {
        let terms = feed.terms(&ratio, &open());
        steps += 1;
        assert!(steps <= LOOK_BACK + LOOK_AHEAD + 2, "closed form");
        let paid_out = steps == 1;
        assert_eq!(terms.bound_by, if paid_out { BoundBy::Ratio } else { BoundBy::Floor });
    }
    assert!(Moment::NEVER.since(feed.second) < Span::SECOND);
}

#[test]
fn a_report_that_covers_many_seconds_sets_no_burst_free() {
    let ratio = policy(|d| d.retry.ratio = Some(0.1));
    let mut feed = Feed::new(Moment::ORIGIN);
    feed.count(&first_attempts(14_000, 14_000), Span::from_secs(14));
    let rates: Vec<f64> = (1..=9)
        .map(|second| {
            feed.roll(Moment::from_millis(second * 1000), true).unwrap();
            feed.terms(&ratio, &open()).rate.as_per_s()
        })
        .collect();
    assert_eq!(rates[..8], [100.0; 8], "a thousand a second, as they were; older ones are not paid");
    assert_eq!(rates[8], 1.0);
}

#[test]
fn what_is_saved_up_fits_below_the_capacity_with_the_rate() {
    let capacity = policy(|d| d.capacity_per_s = Some(48.0));
    let terms = terms_after(&capacity, 41, 41);
    assert_eq!(terms.rate.as_per_s(), 5.6);
    assert_eq!(terms.burst.as_tokens(), 1.4);
}

proptest! {
    /// The ratio is exact to 0.1 % from 0.0001 to 10, however unevenly reports arrive.
    #[test]
    fn every_success_is_paid_out_once(
        ratio_ppm in 100..=10_000_000_u32, reports in prop::collection::vec((0..2500_u64, 0..20_000_u64, 0..8400_u64), 1..60),
    ) {
        let policy = policy(|d| {
            d.retry.ratio = Some(f64::from(ratio_ppm) / 1e6);
            d.retry.floor_per_s = Some(0.0);
        });
        let mut feed = Feed::new(Moment::ORIGIN);
        let (mut now, mut succeeded) = (0, 0_u128);
        // The integral of the rate, in micro-tokens x milliseconds.
        let (mut paid, mut since, mut rate) = (0_u128, 0_u64, 0_u64);
        let mut pay_until = |feed: &mut Feed, now: u64| {
            while let Some((at, _)) = feed.roll(Moment::from_millis(now), true) {
                let terms = feed.terms(&policy, &open());
                let at = at.as_nanos() / 1_000_000;
                paid += u128::from(rate) * u128::from(at - since);
                (since, rate) = (at, terms.rate.as_micros());
            }
            paid
        };
        for (gap, count, covers) in reports {
            now += gap;
            pay_until(&mut feed, now);
            feed.count(&first_attempts(count, count), Span::from_millis(covers));
            succeeded += u128::from(count);
        }
        let paid = pay_until(&mut feed, now + 20_000);
        prop_assert_eq!(paid, succeeded * u128::from(ratio_ppm) * 1000);
    }
}
