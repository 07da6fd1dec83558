use proptest::prelude::*;

use super::*;

const YEAR_NANOS: u64 = 366 * 24 * 3_600 * NANOS_PER_S;

fn tokens(count: u64) -> MicroTokens {
    MicroTokens::from_tokens(count)
}

fn per_s(rate: u64) -> MicrosPerSecond {
    MicrosPerSecond::from_per_s(rate)
}

#[test]
fn idleness_of_any_length_fills_the_burst_and_no_more() {
    for idle in [Span::from_secs(12 * 3600), Span::from_secs(400 * 86_400), Span::from_nanos(u64::MAX)] {
        let mut pool = Pool::new(Moment::ORIGIN, MicrosPerSecond::MAX, tokens(10), MicroTokens::ZERO);
        assert_eq!(pool.balance(Moment::ORIGIN.after(idle)), tokens(10), "{idle:?}");
    }
}

#[test]
fn a_rate_of_zero_never_lets_anything_through() {
    let mut pool = Pool::new(Moment::ORIGIN, MicrosPerSecond::ZERO, tokens(1), MicroTokens::ZERO);
    assert!(!pool.take(Moment::NEVER, MicroTokens::from_micros(1)));
    assert_eq!(pool.covers_at(Moment::NEVER, tokens(1)), Moment::NEVER);
}

#[test]
fn what_comes_back_is_clamped_to_the_present_burst() {
    let mut pool = Pool::new(Moment::ORIGIN, MicrosPerSecond::ZERO, tokens(10), tokens(10));
    assert!(pool.take(Moment::ORIGIN, tokens(5)));
    pool.reshape(Moment::ORIGIN, MicrosPerSecond::ZERO, tokens(3));
    assert_eq!(pool.balance(Moment::ORIGIN), tokens(3));
    pool.give_back(Moment::ORIGIN, tokens(5));
    assert_eq!(pool.balance(Moment::ORIGIN), tokens(3));
    pool.reshape(Moment::ORIGIN, MicrosPerSecond::ZERO, tokens(100));
    assert_eq!(pool.balance(Moment::ORIGIN), tokens(3), "a larger burst refills nothing");
}

#[test]
fn a_clock_that_runs_back_earns_nothing_twice() {
    let second = Moment::from_millis(1000);
    let mut pool = Pool::new(Moment::ORIGIN, per_s(1), tokens(10), MicroTokens::ZERO);
    for moment in [second, Moment::ORIGIN, second, Moment::ORIGIN, second] {
        assert_eq!(pool.balance(moment), tokens(1));
    }
}

#[test]
fn a_fast_pool_and_a_slow_one_are_both_exact_over_a_minute() {
    for (rate, cost) in [(6_000, 1), (1_000_000, 100)] {
        let mut pool = Pool::new(Moment::ORIGIN, per_s(rate), tokens(rate), MicroTokens::ZERO);
        let mut granted = 0;
        for ms in 0..=60_000 {
            while pool.take(Moment::from_millis(ms), tokens(cost)) {
                granted += cost;
            }
        }
        assert_eq!(granted, rate * 60);
    }
    // One a day: 1 / 86 400 per second is 11.574 micro-tokens, so the stored rate is 0.5 % low, never high.
    let daily = MicrosPerSecond::from_micros(11);
    let mut pool = Pool::new(Moment::ORIGIN, daily, tokens(1), MicroTokens::ZERO);
    let ready = pool.covers_at(Moment::ORIGIN, tokens(1));
    assert!(!pool.take(Moment::from_nanos(ready.as_nanos() - 1), tokens(1)));
    assert!(pool.take(ready, tokens(1)));
}

#[derive(Clone, Debug)]
enum Step {
    Take(MicroTokens),
    GiveBack(MicroTokens),
    Reshape(MicrosPerSecond, MicroTokens),
}

fn rates() -> impl Strategy<Value = MicrosPerSecond> {
    prop_oneof![0..50_000_000_u64, Just(0), 0..=MicrosPerSecond::MAX.as_micros()]
        .prop_map(MicrosPerSecond::from_micros)
}

fn amounts() -> impl Strategy<Value = MicroTokens> {
    prop_oneof![0..20_000_000_u64, any::<u64>()].prop_map(MicroTokens::from_micros)
}

fn gaps() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..2_000_000_000_u64, 0..5 * YEAR_NANOS]
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        8 => amounts().prop_map(Step::Take),
        2 => amounts().prop_map(Step::GiveBack),
        1 => (rates(), amounts()).prop_map(|(rate, burst)| Step::Reshape(rate, burst)),
    ];
    prop::collection::vec((gaps(), step), 1..60)
}

/// What the promise allows, kept in exact femto-tokens apart from the pool.
struct Reference {
    /// Issued less returned, and the integral of the rate, at every step.
    history: Vec<(i128, i128, i128)>,
    net: i128,
    integral: i128,
}

impl Reference {
    fn note(&mut self, burst: MicroTokens) {
        self.history.push((self.net, self.integral, femtos(burst)));
    }

    /// For every interval between two steps: what left the pool is covered by the largest burst in it and the
    /// integral of the rate over it.
    fn assert_promise(&self) {
        for (start, (net_before, integral_before, _)) in self.history.iter().enumerate() {
            let mut burst = 0;
            for (net, integral, present_burst) in &self.history[start..] {
                burst = burst.max(*present_burst);
                assert!(net - net_before <= burst + (integral - integral_before), "from step {start}");
            }
        }
    }
}

fn femtos(amount: MicroTokens) -> i128 {
    i128::from(amount.as_micros()) * i128::from(NANOS_PER_S)
}

proptest! {
    #[test]
    fn no_history_issues_more_than_burst_and_refill(
        (rate, burst, initial) in (rates(), amounts(), amounts()), steps in steps(),
    ) {
        let (mut rate, mut burst) = (rate, burst);
        let mut now = 0_u64;
        let mut pool = Pool::new(Moment::ORIGIN, rate, burst, initial);
        let mut reference = Reference { history: Vec::new(), net: 0, integral: 0 };
        reference.note(burst);
        for (gap, step) in steps {
            let elapsed = gap.min(u64::MAX - now);
            now += elapsed;
            let moment = Moment::from_nanos(now);
            reference.integral += i128::from(rate.as_micros()) * i128::from(elapsed);
            reference.note(burst);
            let before = pool.balance(moment);
            match step {
                Step::Take(cost) => {
                    let granted = pool.take(moment, cost);
                    prop_assert_eq!(granted, cost <= before);
                    reference.net += if granted { femtos(cost) } else { 0 };
                }
                Step::GiveBack(cost) => {
                    pool.give_back(moment, cost);
                    reference.net -= femtos(cost);
                }
                Step::Reshape(new_rate, new_burst) => {
                    (rate, burst) = (new_rate, new_burst);
                    pool.reshape(moment, rate, burst);
                    prop_assert!(pool.balance(moment) <= before);
                }
            }
            prop_assert!(pool.balance(moment) <= burst);
            reference.note(burst);
        }
        reference.assert_promise();
    }

    #[test]
    fn a_pool_that_never_fills_issues_all_that_it_earns(
        rate in 1..1_000_000_000_000_u64, gaps in prop::collection::vec(0..3_000_000_000_u64, 1..100),
    ) {
        let cost = MicroTokens::from_micros(1);
        let burst = MicroTokens::from_micros(u64::MAX);
        let mut pool = Pool::new(Moment::ORIGIN, MicrosPerSecond::from_micros(rate), burst, MicroTokens::ZERO);
        let mut now = 0;
        for gap in gaps {
            now += gap;
            let available = pool.balance(Moment::from_nanos(now));
            prop_assert!(pool.take(Moment::from_nanos(now), available));
            prop_assert!(!pool.take(Moment::from_nanos(now), cost));
        }
        let earned = u128::from(rate) * u128::from(now) / u128::from(NANOS_PER_S);
        prop_assert_eq!(u128::from(pool.issued().as_micros()), earned);
    }

    #[test]
    fn the_promised_moment_is_the_first_that_covers(
        rate in 1..50_000_000_u64, amount in 1..50_000_000_u64, spent in 0..5_000_000_u64,
    ) {
        let amount = MicroTokens::from_micros(amount);
        let mut pool = Pool::new(Moment::ORIGIN, MicrosPerSecond::from_micros(rate), amount, tokens(5));
        pool.take(Moment::ORIGIN, MicroTokens::from_micros(spent));
        let ready = pool.covers_at(Moment::ORIGIN, amount);
        if ready > Moment::ORIGIN {
            let early = Moment::from_nanos(ready.as_nanos() - 1);
            prop_assert!(!pool.clone().take(early, amount));
        }
        prop_assert!(pool.take(ready, amount));
    }
}
