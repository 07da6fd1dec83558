//! The client-side rules of the SRE book's chapter on overload: a retry ratio per client, and adaptive throttling.

use std::time::Duration;

use super::window::Window;
use super::{Backoff, Moment, Rule};
use crate::measure::Outcome;

const WINDOW: Duration = Duration::from_secs(120);
const SLICES: u32 = 120;
/// Retries by requests.
const RATIO: f64 = 0.1;
/// The book's K: requests may be twice what is accepted.
const K: f64 = 2.0;

/// Retries stay below a tenth of the client's requests over two minutes. The adaptive one also rejects requests with
/// the probability max(0, (requests - K x accepts) / (requests + 1)) before they are sent.
#[derive(Debug)]
pub struct Sre {
    requests: Window,
    retries: Window,
    accepts: Window,
    adaptive: bool,
    backoff: Backoff,
}

impl Sre {
    /// The ratio alone.
    #[must_use]
    pub fn ratio(backoff: Backoff) -> Self {
        let window = || Window::new(WINDOW, SLICES);
        Self { requests: window(), retries: window(), accepts: window(), adaptive: false, backoff }
    }

    /// The ratio, and adaptive throttling.
    #[must_use]
    pub fn adaptive(backoff: Backoff) -> Self {
        Self { adaptive: true, ..Self::ratio(backoff) }
    }

    fn rejects(&mut self, moment: Moment) -> bool {
        let requests = self.requests.sum(moment.now);
        let excess = requests - K * self.accepts.sum(moment.now);
        self.adaptive && moment.random < excess / (requests + 1.0)
    }
}

impl Rule for Sre {
    fn first(&mut self, moment: Moment) -> bool {
        let rejected = self.rejects(moment);
        // What is rejected counts as a request, which is what makes the rule adapt.
        self.requests.add(moment.now, 1.0);
        !rejected
    }

    fn ended(&mut self, moment: Moment, _: u32, outcome: Outcome) {
        if outcome == Outcome::Success {
            self.accepts.add(moment.now, 1.0);
        }
    }

    fn retry(&mut self, moment: Moment, attempt: u32, outcome: Outcome) -> Option<Duration> {
        let within = self.retries.sum(moment.now) + 1.0 <= RATIO * self.requests.sum(moment.now);
        if !within || self.rejects(moment) {
            return None;
        }
        self.retries.add(moment.now, 1.0);
        if self.adaptive {
            self.requests.add(moment.now, 1.0);
        }
        Some(self.backoff.wait(attempt, outcome, moment.random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64, random: f64) -> Moment {
        Moment { now: Duration::from_secs(s), random }
    }

    #[test]
    fn one_request_in_ten_may_be_retried() {
        let mut rule = Sre::ratio(Backoff::NONE);
        let retries = (0..1000)
            .filter(|_| {
                rule.first(at(0, 0.5));
                rule.retry(at(0, 0.5), 1, Outcome::Unavailable).is_some()
            })
            .count();
        assert_eq!(retries, 100);
        assert_eq!(rule.retry(at(200, 0.5), 1, Outcome::Unavailable), None, "the requests are forgotten");
    }

    #[test]
    fn throttling_sends_about_twice_what_is_accepted() {
        let mut rule = Sre::adaptive(Backoff::NONE);
        let mut random = fastrand::Rng::with_seed(1);
        let (mut sent, mut accepted) = (0.0, 0.0);
        for n in 0..100_000_u64 {
            let moment = at(n / 1000, random.f64());
            if rule.first(moment) {
                sent += 1.0;
                let accepts = n % 10 == 0;
                accepted += f64::from(u8::from(accepts));
                rule.ended(moment, 1, if accepts { Outcome::Success } else { Outcome::Unavailable });
            }
        }
        assert!(accepted > 0.0 && sent < 0.9 * 100_000.0, "{sent} sent, {accepted} accepted");
    }
}
