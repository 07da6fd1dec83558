//! The budget promise, at the size of a storm.

use proptest::prelude::*;

use super::bench::{Bench, ms, retry, retry_now};
use crate::{Ask, Reason, Span, Verdict};

#[test]
fn ten_thousand_asks_at_once_get_the_burst_and_ten_a_second() {
    let mut bench = Bench::fixed(10.0);
    for _ in 0..10_000 {
        bench.ask(&Ask { max_wait: Some(Span::from_secs(5)), ..retry() });
    }
    assert_eq!(bench.issued(), 2, "a tenth of what a full pool can spend within a second");
    bench.pass(ms(1000));
    assert_eq!(bench.issued(), 20, "the burst and a second's refill");
    bench.pass(Span::from_secs(20));
    assert_eq!(bench.issued(), 22, "the queue held two seconds' worth; the rest was refused at once");
}

#[test]
fn the_burst_is_paced_and_not_released_at_once() {
    let mut bench = Bench::fixed(100.0);
    let each_slice: Vec<u64> = (0..20).map(|_| bench.grants_within(ms(100), &retry_now())).collect();
    // Twice the rate while the burst lasts, and what one slice may spend at once on top of the first.
    assert!(each_slice[0] <= 40, "{each_slice:?}");
    assert!(each_slice[1..].iter().all(|granted| *granted <= 20), "{each_slice:?}");
    assert_eq!(each_slice.iter().sum::<u64>(), 100 + 199, "the burst and two seconds, less a millisecond");
}

#[test]
fn a_burst_that_was_asked_for_may_go_at_once() {
    let mut bench = Bench::new(|draft| {
        draft.retry.per_s = Some(10.0);
        draft.retry.burst = Some(10.0);
    });
    let granted = (0..256).filter(|_| bench.decide(&retry_now()).verdict == Verdict::Granted).count();
    assert_eq!(granted, 10);
}

#[test]
fn a_storm_without_end_is_served_at_the_rate_and_never_above_it() {
    let mut bench = Bench::dry(10.0);
    let before = bench.issued();
    let mut each_second = Vec::new();
    for _ in 0..30 {
        let start = bench.issued();
        for _ in 0..100 {
            for _ in 0..5 {
                bench.ask(&retry());
            }
            bench.pass(ms(10));
        }
        each_second.push(bench.issued() - start);
    }
    assert!(each_second.iter().all(|issued| *issued <= 10), "{each_second:?}");
    assert!(bench.issued() - before >= 299, "no token is lost while demand is higher: {each_second:?}");
}

#[test]
fn an_ask_is_never_granted_at_or_after_its_last_moment() {
    let mut bench = Bench::dry(10.0);
    let id = bench.wait(&Ask { deadline: ms(101), ..retry() });
    // The wake-up comes late: the token is there, but the moment is past.
    bench.now = bench.now.after(ms(101));
    bench.dependency.poll(bench.now);
    bench.pass(Span::ZERO);
    assert_eq!(bench.released(id), Some(Reason::Expired));
}

#[test]
fn a_quiet_day_banks_no_storm() {
    let mut bench = Bench::cold(|draft| draft.retry.ratio = Some(0.1));
    for _ in 0..86_400 / 60 {
        bench.report_first_attempts(60_000, 60_000);
        bench.pass(Span::from_secs(60));
    }
    let mut granted = 0;
    for _ in 0..6000 {
        granted += u64::from(bench.decide(&retry_now()).verdict == Verdict::Granted);
        bench.pass(ms(10));
    }
    assert!(granted <= 1 + 60, "a minute of outage: the floor and a burst, not a day's credit: {granted}");
}

#[test]
fn a_pool_that_lives_on_successes_dries_up_with_them() {
    let mut bench = Bench::cold(|draft| draft.retry.ratio = Some(0.1));
    for _ in 0..10 {
        bench.report_first_attempts(1000, 1000);
        bench.pass(Span::SECOND);
    }
    let before = bench.issued();
    for _ in 0..10 {
        bench.report_first_attempts(1000, 0);
        for _ in 0..1000 {
            bench.decide(&retry_now());
        }
        bench.pass(Span::SECOND);
    }
    let amplification = 1.0 + (bench.issued() - before) as f64 / 10_000.0;
    assert!(amplification <= 1.05, "{amplification}");
}

proptest! {
    /// From 0.0001 to 10 retries per success, to 0.1 % and the one token that is not whole yet.
    #[test]
    fn the_ratio_is_exact(ratio_ppm in 100..=10_000_000_u32, per_s in 1..2000_u64) {
        let mut bench = Bench::cold(|draft| {
            draft.retry.ratio = Some(f64::from(ratio_ppm) / 1e6);
            draft.retry.floor_per_s = Some(0.0);
            draft.retry.burst = Some(100_000.0);
        });
        const SECONDS: u64 = 20;
        for second in 0..=SECONDS {
            if second < SECONDS {
                bench.report_first_attempts(per_s, per_s);
            }
            bench.pass(Span::SECOND);
        }
        let earned = per_s as f64 * SECONDS as f64 * f64::from(ratio_ppm) / 1e6;
        let granted = bench.dependency.snapshot(bench.now).pool.tokens.as_tokens();
        // The burst caps what can be saved up; below it everything that was earned is there.
        let expected = earned.min(100_000.0);
        prop_assert!(granted <= expected + 1e-6, "{} > {}", granted, expected);
        prop_assert!(granted > expected * 0.999 - 1e-6, "{} < {}", granted, expected);
    }
}
