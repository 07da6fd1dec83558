//! The arithmetic over a stretch of seconds.

use super::Second;
use crate::scenario::{Dependency, Measure};
use crate::units::ratio;

/// Seconds over which the worst share is taken: enough attempts for a share, short enough to show a peak.
const WORST_WINDOW: usize = 5;

/// A stretch of seconds.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    seconds: &'a [Second],
    total: Second,
}

/// A figure, and the size of the sample if it is a share of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The figure.
    pub value: f64,
    /// What the figure is a share of.
    pub sample: Option<u64>,
}

impl Reading {
    const fn plain(value: f64) -> Self {
        Self { value, sample: None }
    }

    fn share(part: u64, whole: u64) -> Option<Self> {
        ratio(part, whole).map(|value| Self { value, sample: Some(whole) })
    }

    /// The standard error of a sample of this size if the true share is `share`; 0 for what is no share.
    #[must_use]
    pub fn standard_error(&self, share: f64) -> f64 {
        self.sample.map_or(0.0, |size| (share * (1.0 - share) / size as f64).sqrt())
    }
}

impl<'a> Span<'a> {
    /// The stretch of these seconds.
    #[must_use]
    pub fn over(seconds: &'a [Second]) -> Self {
        Self { seconds, total: seconds.iter().sum() }
    }

    /// A run: rates and peaks over the seconds in which operations arrived, totals over its last answers too.
    #[must_use]
    pub fn of_run(seconds: &'a [Second], arriving: usize) -> Self {
        Self { seconds: seconds.get(..arriving).unwrap_or(seconds), total: seconds.iter().sum() }
    }

    /// All counts together.
    #[must_use]
    pub const fn total(&self) -> &Second {
        &self.total
    }

    /// The figure of a measure; `None` if nothing happened that it could be taken from.
    #[must_use]
    pub fn reading(&self, measure: Measure) -> Option<Reading> {
        let total = &self.total;
        match measure {
            Measure::OfferedPerS => self.per_s(|second| second.offered),
            Measure::PhysicalPerS => self.per_s(Second::physical),
            Measure::ExecutedPerS => self.per_s(Second::executed),
            Measure::WantedPerS => self.per_s(|second| second.wanted),
            Measure::ExecutedWorstS => {
                self.seconds.iter().map(Second::executed).max().map(|worst| Reading::plain(worst as f64))
            }
            Measure::Amplification => ratio(total.physical(), total.offered).map(Reading::plain),
            Measure::FirstSuccess => Reading::share(total.first_ok, total.first_ok + total.affected),
            Measure::OperationSuccess => Reading::share(total.succeeded, total.succeeded + total.failed),
            Measure::RecoveryRate => Reading::share(total.recovered, total.affected),
            Measure::ErrorShare => Reading::share(total.errors(), total.ended()),
            Measure::ErrorShareWorst => self.worst_share(Second::errors),
            Measure::InflictedShare => Reading::share(total.inflicted(), total.ended()),
            Measure::InflictedShareWorst => self.worst_share(Second::inflicted),
            Measure::UnsentOperations => Some(Reading::plain(total.unsent as f64)),
        }
    }

    fn per_s(&self, count: impl Fn(&Second) -> u64) -> Option<Reading> {
        let sum = self.seconds.iter().map(count).sum();
        ratio(sum, self.seconds.len() as u64).map(Reading::plain)
    }

    fn worst_share(&self, part: impl Fn(&Second) -> u64) -> Option<Reading> {
        let width = WORST_WINDOW.min(self.seconds.len());
        let windows = (width > 0).then(|| self.seconds.windows(width)).into_iter().flatten();
        windows
            .filter_map(|window| {
                let total: Second = window.iter().sum();
                Reading::share(part(&total), total.ended())
            })
            .max_by(|a, b| a.value.total_cmp(&b.value))
    }
}

/// Attempts per operation if nothing but the dependency's own, independent failures happened and every failure was
/// retried up to `max_attempts`: 1 + p + p^2 + ..., averaged over the operations of each second.
#[must_use]
pub fn expected_amplification(seconds: &[Second], dependency: &Dependency, max_attempts: u32) -> Option<f64> {
    let mut operations = 0.0;
    let mut attempts = 0.0;
    for (start_s, second) in (0_u64..).zip(seconds) {
        let share = dependency.phase(std::time::Duration::from_secs(start_s)).failure_share;
        let mut chance = 1.0;
        for _ in 0..max_attempts {
            attempts += chance * second.offered as f64;
            chance *= share;
        }
        operations += second.offered as f64;
    }
    (operations > 0.0).then(|| attempts / operations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Phase;

    fn value(span: &Span<'_>, measure: Measure) -> f64 {
        span.reading(measure).unwrap().value
    }

    #[test]
    fn recovery_is_counted_among_the_affected_operations_alone() {
        let second = Second {
            offered: 10_000,
            first_ok: 9_900,
            affected: 100,
            recovered: 70,
            succeeded: 9_970,
            failed: 30,
            ..Second::default()
        };
        let span = Span::over(std::slice::from_ref(&second));
        assert_eq!(value(&span, Measure::RecoveryRate), 0.70);
        assert_eq!(value(&span, Measure::OperationSuccess), 0.997);
        assert_eq!(value(&span, Measure::FirstSuccess), 0.99);
    }

    #[test]
    fn amplification_is_attempts_at_the_dependency_by_operations() {
        let second = Second { offered: 100, by_attempt: [100, 12, 1, 0, 0, 0, 0, 0], ..Second::default() };
        let span = Span::over(std::slice::from_ref(&second));
        assert_eq!(value(&span, Measure::Amplification), 1.13);
        assert_eq!(value(&span, Measure::ExecutedPerS), 13.0);
    }

    #[test]
    fn nothing_measured_is_not_zero() {
        let span = Span::over(&[]);
        for measure in [Measure::Amplification, Measure::RecoveryRate, Measure::ErrorShareWorst] {
            assert_eq!(span.reading(measure), None, "{measure:?}");
        }
        assert_eq!(span.reading(Measure::PhysicalPerS), None);
    }

    #[test]
    fn rates_leave_out_the_time_of_the_last_answers_and_totals_do_not() {
        let busy = Second { offered: 10, by_attempt: [10, 0, 0, 0, 0, 0, 0, 0], ..Second::default() };
        let late = Second { by_attempt: [0, 5, 0, 0, 0, 0, 0, 0], ..Second::default() };
        let seconds = [busy, busy, late];
        let span = Span::of_run(&seconds, 2);
        assert_eq!(value(&span, Measure::PhysicalPerS), 10.0);
        assert_eq!(value(&span, Measure::Amplification), 1.25);
    }

    #[test]
    fn the_worst_share_is_that_of_the_worst_five_seconds() {
        let good = Second { ok: 90, unavailable: 10, ..Second::default() };
        let bad = Second { ok: 50, unavailable: 10, rate_limited: 40, ..Second::default() };
        let mut seconds = vec![good; 10];
        seconds.extend([bad; 5]);
        let span = Span::over(&seconds);
        let worst = span.reading(Measure::ErrorShareWorst).unwrap();
        assert_eq!(worst, Reading { value: 0.5, sample: Some(500) });
        assert_eq!(value(&span, Measure::InflictedShareWorst), 0.4);
    }

    #[test]
    fn the_expected_amplification_of_the_chapter() {
        let dependency = Dependency {
            name: "d".to_owned(),
            capacity_per_s: 130.0,
            queue_limit: 1,
            latency_ms: 0,
            latency: Default::default(),
            collapse_ms: 0,
            refusal_cost: 0.0,
            account: None,
            phases: vec![Phase { failure_share: 0.12, ..Phase::default() }],
        };
        let seconds = [Second { offered: 120, ..Second::default() }; 3];
        let expected = |attempts| expected_amplification(&seconds, &dependency, attempts).unwrap();
        assert!((expected(1) - 1.0).abs() < 1e-12);
        assert!((expected(2) - 1.12).abs() < 1e-12);
        assert!((expected(4) - 1.136_128).abs() < 1e-12);
        assert_eq!(expected_amplification(&[], &dependency, 4), None);
    }

    #[test]
    fn the_standard_error_of_a_share() {
        let reading = Reading { value: 0.88, sample: Some(7200) };
        assert!((reading.standard_error(0.88) - 0.00383).abs() < 1e-5);
        assert_eq!(Reading { value: 9.0, sample: None }.standard_error(0.5), 0.0);
    }
}
