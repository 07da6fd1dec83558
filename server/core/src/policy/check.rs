//! Collects the mistakes of a draft while its values are converted.

use std::fmt::Display;

use super::PolicyFault;
use crate::{MicroTokens, MicrosPerSecond, Ppm, Span};

/// A converter that notes what is wrong and carries on with a harmless value.
#[derive(Default)]
pub(super) struct Check {
    faults: Vec<PolicyFault>,
}

impl Check {
    pub(super) fn finish<T>(self, value: T) -> Result<T, Vec<PolicyFault>> {
        if self.faults.is_empty() { Ok(value) } else { Err(self.faults) }
    }

    pub(super) fn within<T: PartialOrd + Display + Copy>(
        &mut self,
        place: &str,
        value: T,
        least: T,
        most: T,
    ) -> T {
        if value < least || value > most {
            self.fault(place, format!("is {value}; give {least} to {most}"));
            return least;
        }
        value
    }

    pub(super) fn span(&mut self, place: &str, ms: u64, least: u64, most: u64) -> Span {
        Span::from_millis(self.within(place, ms, least, most))
    }

    pub(super) fn rate(&mut self, place: &str, per_s: Option<f64>) -> Option<MicrosPerSecond> {
        per_s.map(|per_s| MicrosPerSecond::from_micros(self.millionths(place, per_s, 0.0, 1e9)))
    }

    pub(super) fn burst(&mut self, place: &str, tokens: f64) -> MicroTokens {
        MicroTokens::from_micros(self.millionths(place, tokens, 1.0, 1e9))
    }

    pub(super) fn share(&mut self, place: &str, share: f64) -> Ppm {
        self.ppm(place, share, 0.0, 1.0)
    }

    pub(super) fn positive_share(&mut self, place: &str, share: f64) -> Ppm {
        self.ppm(place, share, 1e-6, 1.0)
    }

    /// Attempts per operation, as what may come on top of the first.
    pub(super) fn cap(&mut self, place: &str, attempts: Option<f64>) -> Option<Ppm> {
        attempts.map(|attempts| self.ppm(place, attempts, 1.0, 1000.0).beyond_one())
    }

    pub(super) fn ratio(&mut self, place: &str, ratio: f64) -> Ppm {
        self.ppm(place, ratio, 0.0, 1000.0)
    }

    fn ppm(&mut self, place: &str, value: f64, least: f64, most: f64) -> Ppm {
        Ppm::new(u32::try_from(self.millionths(place, value, least, most)).unwrap_or(u32::MAX))
    }

    /// The value in millionths. One that is too small to be told from zero is a mistake, not a zero: a limit
    /// that quietly turns into "never" or "always" is the kind of fault that nobody finds.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounds were checked")]
    fn millionths(&mut self, place: &str, value: f64, least: f64, most: f64) -> u64 {
        if !(value >= least && value <= most) {
            self.fault(place, format!("is {value}; give {least} to {most}"));
            return 0;
        }
        let millionths = (value * 1e6).round() as u64;
        if millionths == 0 && value > 0.0 {
            self.fault(place, format!("is {value}; give 0 or at least 0.000001"));
        }
        millionths
    }

    fn fault(&mut self, place: &str, message: String) {
        self.faults.push(PolicyFault { place: place.to_owned(), message });
    }
}
