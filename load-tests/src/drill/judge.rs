//! Whether what a scenario expects holds in every trial.

use serde::Serialize;

use super::trial::Trial;
use crate::measure::Reading;
use crate::scenario::{Bound, Measure, Scenario, Way};
use crate::verdict::Limits;

/// One expectation, judged over all trials of its way.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The way.
    pub way: Way,
    /// What is measured.
    pub measure: Measure,
    /// The lowest figure of any trial.
    pub lowest: Option<f64>,
    /// The highest.
    pub highest: Option<f64>,
    /// The lower bound, without the tolerance for samples.
    pub at_least: Option<f64>,
    /// The upper bound, without it.
    pub at_most: Option<f64>,
    /// First second that counts.
    pub from_s: Option<u64>,
    /// Second before which counting stops.
    pub until_s: Option<u64>,
    /// Trials in which it holds.
    pub held: usize,
    /// Trials.
    pub trials: usize,
    /// The seed and the clients of the first trial in which it does not.
    pub missed_with: Option<(u64, u64)>,
}

impl Judgement {
    /// Whether it holds in every trial, and there was one.
    #[must_use]
    pub const fn is_met(&self) -> bool {
        self.trials > 0 && self.held == self.trials
    }
}

/// Judges all expectations about ways that were tried.
#[must_use]
pub fn judge(scenario: &Scenario, trials: &[Trial]) -> Vec<Judgement> {
    let mut judgements = Vec::new();
    for (way, bounds) in &scenario.expect {
        if !trials.iter().any(|trial| trial.way == *way) {
            continue;
        }
        for (measure, bound) in bounds {
            judgements.push(one(scenario, trials, *way, *measure, bound));
        }
    }
    judgements
}

fn one(scenario: &Scenario, trials: &[Trial], way: Way, measure: Measure, bound: &Bound) -> Judgement {
    let index = |second: u64| usize::try_from(second).unwrap_or(usize::MAX);
    let from = bound.from_s.map_or(0, index);
    let until = bound.until_s.map_or(usize::MAX, index);
    let of_way: Vec<&Trial> = trials.iter().filter(|trial| trial.way == way).collect();
    let read = |trial: &Trial, measure| {
        trial.reading(measure, from, until.min(trial.arriving), scenario.drill.over_s)
    };
    let readings: Vec<(&Trial, Option<Reading>)> = match measure {
        Measure::RecoveryBeyondNoneS => {
            let beyond = |trial: &Trial| {
                let twin = trials.iter().find(|twin| {
                    (twin.way, twin.seed, twin.clients) == (Way::None, trial.seed, trial.clients)
                })?;
                let (own, none) = (read(trial, Measure::RecoveryS)?, read(twin, Measure::RecoveryS)?);
                Some(Reading::plain(own.value - none.value))
            };
            of_way.iter().map(|trial| (*trial, beyond(trial))).collect()
        }
        Measure::AmplificationSpread => {
            let spread = |trial: &Trial| {
                let of_seed = of_way.iter().filter(|other| other.seed == trial.seed);
                let values: Vec<f64> =
                    of_seed.filter_map(|other| Some(read(other, Measure::Amplification)?.value)).collect();
                let most = values.iter().copied().max_by(f64::total_cmp)?;
                let least = values.iter().copied().min_by(f64::total_cmp)?;
                Some(Reading::plain(most - least))
            };
            of_way.iter().map(|trial| (*trial, spread(trial))).collect()
        }
        _ => of_way.iter().map(|trial| (*trial, read(trial, measure))).collect(),
    };
    tally(way, measure, bound, &readings)
}

fn tally(way: Way, measure: Measure, bound: &Bound, readings: &[(&Trial, Option<Reading>)]) -> Judgement {
    let holds = |reading: &Option<Reading>| {
        reading.is_some_and(|reading| Limits::of(bound, &reading).hold(reading.value))
    };
    let values = || readings.iter().filter_map(|(_, reading)| Some(reading.as_ref()?.value));
    let missed = readings.iter().find(|(_, reading)| !holds(reading));
    Judgement {
        way,
        measure,
        lowest: values().min_by(f64::total_cmp),
        highest: values().max_by(f64::total_cmp),
        at_least: bound.at_least,
        at_most: bound.at_most,
        from_s: bound.from_s,
        until_s: bound.until_s,
        held: readings.iter().filter(|(_, reading)| holds(reading)).count(),
        trials: readings.len(),
        missed_with: missed.map(|(trial, _)| (trial.seed, trial.clients)),
    }
}
