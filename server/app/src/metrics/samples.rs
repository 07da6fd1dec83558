//! Samples of one metric family, as Prometheus' crate wants them.

use prometheus::core::Desc;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// What a family is.
pub(super) struct Family<S: ?Sized> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricType,
    /// The labels beside `dependency`.
    pub(super) labels: &'static [&'static str],
    /// Takes the samples of one subject.
    pub(super) sample: fn(&S, &mut Samples<'_>),
}

/// The name of the label that every family here has.
const DEPENDENCY: &str = "dependency";

impl<S> Family<S> {
    pub(super) fn desc(&self) -> prometheus::Result<Desc> {
        let labels = [DEPENDENCY].iter().chain(self.labels).map(|label| (*label).to_owned()).collect();
        Desc::new(self.name.to_owned(), self.help.to_owned(), labels, Default::default())
    }

    /// The family with the samples of every subject.
    pub(super) fn collect<'a>(&self, subjects: impl Iterator<Item = (&'a str, &'a S)>) -> MetricFamily
    where
        S: 'a,
    {
        let mut metrics = Vec::new();
        for (dependency, subject) in subjects {
            let mut samples =
                Samples { dependency, labels: self.labels, kind: self.kind, metrics: &mut metrics };
            (self.sample)(subject, &mut samples);
        }
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.to_owned());
        family.set_field_type(self.kind);
        family.set_metric(metrics);
        family
    }
}

/// The samples of one subject.
pub(super) struct Samples<'a> {
    dependency: &'a str,
    labels: &'static [&'static str],
    kind: MetricType,
    metrics: &'a mut Vec<Metric>,
}

impl Samples<'_> {
    /// One sample; `values` belong to the family's labels.
    pub(super) fn add(&mut self, values: &[&str], value: f64) {
        let named = self.labels.iter().zip(values).map(|(name, value)| pair(name, value));
        let mut metric =
            Metric::from_label([pair(DEPENDENCY, self.dependency)].into_iter().chain(named).collect());
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.metrics.push(metric);
    }

    /// A count without further labels.
    #[expect(clippy::cast_precision_loss, reason = "Prometheus counts in floating point")]
    pub(super) fn count(&mut self, values: &[&str], count: u64) {
        self.add(values, count as f64);
    }
}

fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}
