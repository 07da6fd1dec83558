use super::*;

struct Bench {
    throttle: Throttle,
    second: u64,
}

impl Bench {
    fn new() -> Self {
        Self { throttle: Throttle::new(Moment::ORIGIN), second: 0 }
    }

    /// One second in which this is reported; the level after it.
    fn second(&mut self, totals: Totals) -> f64 {
        self.throttle.count(self.now(), &totals);
        self.second += 1;
        self.throttle.tick(self.now(), 1);
        self.throttle.level().as_f64()
    }

    fn now(&self) -> Moment {
        Moment::ORIGIN.after(Span::from_secs(self.second))
    }
}

/// A hundred operations, of which `failed` fail with `class`, all at their first attempt.
fn attempts(failed: u64, class: Class) -> Totals {
    let mut totals = Totals { logical: 100, physical: 100, success: 100 - failed, ..Totals::default() };
    totals.failures[class.index()] = failed;
    totals
}

fn retries(retries: u64, recovered: u64) -> Totals {
    Totals { logical: 1000, physical: 1000 + retries, recovered, success: 1000, ..Totals::default() }
}

fn latency(bucket: usize) -> Totals {
    let mut totals = attempts(0, Class::Transient);
    totals.latency[bucket] = 100;
    totals
}

#[test]
fn overload_above_a_fifth_halves_it_and_a_healthy_second_adds_a_tenth() {
    let mut bench = Bench::new();
    assert_eq!(bench.second(attempts(20, Class::RateLimited)), 1.0, "a fifth is not above a fifth");
    assert_eq!(bench.second(attempts(100, Class::RateLimited)), 0.5);
    assert_eq!(bench.throttle.cause(), Some(Cause::Overload));
    // The overload stays in sight for five seconds.
    let levels: Vec<f64> = (0..5).map(|_| bench.second(Totals::default())).collect();
    assert_eq!(levels, [0.25, 0.125, 0.0625, 0.1625, 0.2625]);
    let levels: Vec<f64> = (0..8).map(|_| bench.second(Totals::default())).collect();
    assert_eq!(levels[7], 1.0, "{levels:?}");
}

#[test]
fn independent_errors_with_capacity_to_spare_are_no_overload() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        assert_eq!(bench.second(attempts(30, Class::Transient)), 1.0);
    }
}

#[test]
fn timeouts_and_missing_slots_are_overload_whatever_their_class() {
    for edit in
        [(|totals| totals.reason_timeout = 30) as fn(&mut Totals), |totals| totals.reason_no_resources = 30]
    {
        let mut totals = attempts(30, Class::Transient);
        edit(&mut totals);
        assert_eq!(Bench::new().second(totals), 0.5);
    }
}

#[test]
fn retries_that_do_not_succeed_are_turned_down() {
    assert_eq!(Bench::new().second(retries(100, 20)), 1.0, "a fifth succeeds");
    let mut bench = Bench::new();
    assert_eq!(bench.second(retries(100, 19)), 0.5);
    assert_eq!(bench.throttle.cause(), Some(Cause::Yield));
    assert_eq!(Bench::new().second(retries(19, 0)), 1.0, "too few to tell");
}

#[test]
fn a_first_attempt_that_waited_for_its_turn_is_no_retry() {
    let mut bench = Bench::new();
    bench.second(Totals { logical: 100, ..Totals::default() });
    assert_eq!(bench.second(Totals { physical: 100, success: 100, ..Totals::default() }), 1.0);
}

#[test]
fn latency_twice_its_baseline_is_a_signal_that_wears_off() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        assert_eq!(bench.second(latency(4)), 1.0);
    }
    for _ in 0..5 {
        bench.second(latency(7));
    }
    assert_eq!(bench.throttle.cause(), Some(Cause::Latency));
    let wore_off = (0..300).find(|_| {
        bench.second(latency(7));
        bench.throttle.cause().is_none()
    });
    assert!(wore_off.is_some_and(|seconds| seconds > 60), "{wore_off:?}");
}

#[test]
fn it_never_reaches_zero_and_a_long_silence_opens_it() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        bench.second(attempts(100, Class::RateLimited));
    }
    assert!(bench.throttle.is_trickle());
    assert!(bench.throttle.level() > Ppm::ZERO);
    bench.second += 1000;
    bench.throttle.tick(bench.now(), 1000);
    assert!(bench.throttle.is_open());
}

#[test]
fn retries_that_are_asked_for_again_turn_it_down_within_tenths_of_a_second() {
    let tries = |granted: u64, failed: u64| {
        let mut throttle = Throttle::new(Moment::ORIGIN);
        (0..granted).for_each(|_| throttle.tried(Moment::from_millis(10)));
        (0..failed).for_each(|_| throttle.failed_again(Moment::from_millis(40)));
        [50, 75, 100, 150, 200, 600, 700].map(|ms| {
            throttle.pulse(Moment::from_millis(ms));
            throttle.level().get()
        })
    };
    let halved = [500_000, 500_000, 250_000, 125_000, 62_500, 62_500, 62_500];
    assert_eq!(tries(100, 89), halved, "half a second later it is forgotten");
    assert_eq!(
        tries(100, 88),
        [1_000_000; 7],
        "chance explains twelve of a hundred where twenty are expected"
    );
    assert_eq!(tries(1000, 826), halved, "and 174 of a thousand it does not");
    assert_eq!(tries(19, 19), [1_000_000; 7], "too few to tell");
    assert_eq!(tries(20, 500), halved, "whatever is claimed on top");
}

#[test]
fn three_retries_in_ten_that_succeed_are_not_turned_down_by_chance() {
    let mut throttle = Throttle::new(Moment::ORIGIN);
    let mut random = crate::jitter::Jitter::new(1);
    let mut drawn = || random.around(Span::from_nanos(1_000_000)).as_nanos() - 500_000;
    for ms in 0..600_000 {
        let now = Moment::from_millis(ms);
        if ms % 5 == 0 {
            throttle.tried(now);
            if drawn() < 700_000 {
                throttle.failed_again(now);
            }
        }
        throttle.pulse(now);
    }
    assert!(throttle.is_open(), "ten minutes of 200 retries per second: {:?}", throttle.level());
}
