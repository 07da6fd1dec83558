//! A line for each second while it runs. Lines go to standard error, so that standard output holds the result alone.

use crate::measure::Second;
use crate::scenario::{Scenario, Way};
use crate::storm::Progress;
use crate::units::ratio;

/// Prints what goes on.
#[derive(Clone, Copy, Debug)]
pub struct Live;

impl Progress for Live {
    fn starts(&self, way: Way, scenario: &Scenario) {
        eprintln!("\n{}", heading(way, scenario));
    }

    fn second(&self, way: Way, index: usize, second: &Second) {
        eprintln!("{}", line(way, index, second));
    }

    fn note(&self, text: &str) {
        eprintln!("  {text}");
    }
}

fn heading(way: Way, scenario: &Scenario) -> String {
    let what = way.about();
    let dependency = &scenario.dependency;
    let limit = dependency
        .account
        .as_ref()
        .map_or(String::new(), |account| format!(", account limit {}/s", account.per_s));
    format!(
        "{}: {what}; {} operations/s for {} s, capacity {}/s{limit}",
        way.as_str(),
        scenario.traffic.arrival_per_s,
        scenario.duration_s,
        dependency.capacity_per_s,
    )
}

fn line(way: Way, index: usize, second: &Second) -> String {
    let errors = ratio(second.errors(), second.ended());
    format!(
        "{:<6} {:>4} s | {:>4} operations | {:>4} attempts, {:>3} of them retries | 200 {:>4}  503 {:>3}  429 {:>3}  \
         timeout {:>3} | errors {:>5}",
        way.as_str(),
        index + 1,
        second.offered,
        second.physical(),
        second.executed(),
        second.ok,
        second.unavailable,
        second.rate_limited,
        second.timeouts + second.broken,
        super::text::percent(errors, 0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_the_second_that_is_over() {
        let second = Second {
            offered: 120,
            by_attempt: [120, 14, 1, 0, 0, 0, 0, 0],
            ok: 118,
            unavailable: 16,
            rate_limited: 1,
            ..Second::default()
        };
        assert_eq!(
            line(Way::Local, 11, &second),
            "local    12 s |  120 operations |  135 attempts,  15 of them retries | 200  118  503  16  429   1  \
             timeout   0 | errors  13 %"
        );
        assert!(line(Way::None, 0, &Second::default()).ends_with("errors     -"));
    }
}
