//! Samples of one metric family, as Prometheus' crate wants them.

use damper_core::histogram::{self, Histogram};
use prometheus::core::Desc;
use prometheus::proto::{self, Bucket, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

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
        let mut metric = self.metric(values);
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

    /// Durations in seconds by the core's buckets. Clients report counts alone, so the sum is an estimate:
    /// every duration counts as the middle of its bucket.
    pub(super) fn durations(&mut self, values: &[&str], counts: &Histogram) {
        let mut buckets = Vec::new();
        let (mut count, mut sum_ms) = (0_u64, 0.0);
        for (bucket, counted) in counts.iter().enumerate() {
            count = count.saturating_add(*counted);
            let upper_ms = histogram::bound_ms(bucket);
            sum_ms += as_f64(*counted) * 0.75 * as_f64(upper_ms.unwrap_or(1 << bucket));
            if let Some(ms) = upper_ms {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(as_f64(ms) / 1000.0);
                bucket.set_cumulative_count(count);
                buckets.push(bucket);
            }
        }
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(count);
        histogram.set_sample_sum(sum_ms / 1000.0);
        let mut metric = self.metric(values);
        metric.set_histogram(histogram);
        self.metrics.push(metric);
    }

    /// A count without further labels.
    pub(super) fn count(&mut self, values: &[&str], count: u64) {
        self.add(values, as_f64(count));
    }

    fn metric(&self, values: &[&str]) -> Metric {
        let named = self.labels.iter().zip(values).map(|(name, value)| pair(name, value));
        Metric::from_label([pair(DEPENDENCY, self.dependency)].into_iter().chain(named).collect())
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus counts in floating point")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}
