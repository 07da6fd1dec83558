//! The metrics of dependencies: a table of families, each with the part of a snapshot that it shows.

mod reports;
mod state;

use damper_core::Snapshot;
use damper_core::histogram::BUCKETS;
use prometheus::proto::MetricType;

use super::family::{About, MOST_SETS, Samples};

/// A family with samples for each dependency.
pub(super) struct Family {
    pub(super) about: About,
    /// Most label sets of one dependency.
    sets: usize,
    sample: fn(&Snapshot, &mut Samples),
}

/// Every family that is about dependencies.
pub(super) fn families() -> impl Iterator<Item = &'static Family> {
    state::FAMILIES.iter().chain(reports::FAMILIES)
}

impl Family {
    pub(super) fn samples(&self, seen: &Snapshot) -> Samples {
        let mut samples = Samples::default();
        (self.sample)(seen, &mut samples);
        samples
    }

    /// How many dependencies have samples of their own; one place is left for the others together.
    pub(super) const fn places(&self) -> usize {
        MOST_SETS / self.sets - 1
    }

    /// At most so many bytes of the page, for a dependency whose name takes `name_bytes`.
    pub(super) fn bytes(&self, name_bytes: usize) -> usize {
        let is_histogram = self.about.kind == MetricType::HISTOGRAM;
        (self.sets + if is_histogram { 2 } else { 0 }) * self.about.bytes(name_bytes)
    }

    const fn counter(
        name: &'static str,
        unit: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        sample: fn(&Snapshot, &mut Samples),
    ) -> Self {
        Self { about: About::new(MetricType::COUNTER, name, unit, labels, help), sets: 1, sample }
    }

    const fn gauge(
        name: &'static str,
        unit: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        sample: fn(&Snapshot, &mut Samples),
    ) -> Self {
        Self { about: About::new(MetricType::GAUGE, name, unit, labels, help), sets: 1, sample }
    }

    const fn histogram(name: &'static str, help: &'static str, sample: fn(&Snapshot, &mut Samples)) -> Self {
        let about = About::new(MetricType::HISTOGRAM, name, "seconds", DEPENDENCY, help);
        Self { about, sets: BUCKETS, sample }
    }

    const fn with_sets(self, sets: usize) -> Self {
        Self { sets, ..self }
    }
}

/// The labels of a family that has no others.
const DEPENDENCY: &[&str] = &["dependency"];

#[cfg(test)]
mod tests;
