//! What a metric family is called and means, and its samples as Prometheus' crate wants them.

use damper_core::Span;
use damper_core::histogram::{self, BUCKETS, Histogram};
use prometheus::core::Desc;
use prometheus::proto::{self, Bucket, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{HistogramOpts, Opts};

/// The most label sets of a family; a bucket of a histogram counts as one.
pub(super) const MOST_SETS: usize = 1000;
/// The label value of all those that found no place of their own.
pub(super) const OTHER: &str = "_other";

/// What people read about a family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(super) name: &'static str,
    pub(super) kind: MetricType,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the manual"))]
    pub(super) unit: &'static str,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
}

impl About {
    pub(super) const fn new(
        kind: MetricType,
        name: &'static str,
        unit: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind, unit, labels, help }
    }

    pub(super) fn desc(&self) -> prometheus::Result<Desc> {
        let labels = self.labels.iter().map(|label| (*label).to_owned()).collect();
        Desc::new(self.name.to_owned(), self.help.to_owned(), labels, Default::default())
    }

    pub(super) fn opts(&self) -> Opts {
        Opts::new(self.name, self.help)
    }

    pub(super) fn histogram(&self, buckets: Vec<f64>) -> HistogramOpts {
        HistogramOpts::new(self.name, self.help).buckets(buckets)
    }

    /// Whether its samples can be summed over time and over dependencies.
    pub(super) fn is_cumulative(&self) -> bool {
        self.kind != MetricType::GAUGE
    }

    /// The family with these samples.
    pub(super) fn family(&self, metrics: Vec<Metric>) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.to_owned());
        family.set_field_type(self.kind);
        family.set_metric(metrics);
        family
    }

    /// One sample; `values` belong to the labels.
    pub(super) fn metric<'a>(&self, values: impl IntoIterator<Item = &'a str>, value: &Value) -> Metric {
        let pairs = self.labels.iter().zip(values).map(|(name, value)| pair(name, value));
        let mut metric = Metric::from_label(pairs.collect());
        match value {
            Value::Number(number) if self.kind == MetricType::COUNTER => {
                let mut counter = Counter::default();
                counter.set_value(*number);
                metric.set_counter(counter);
            }
            Value::Number(number) => {
                let mut gauge = Gauge::default();
                gauge.set_value(*number);
                metric.set_gauge(gauge);
            }
            Value::Durations { counts, sum_s } => metric.set_histogram(durations(counts, *sum_s)),
        }
        metric
    }

    /// At most so many bytes of the page, for one label set in which the values of peers take `peer_bytes`.
    pub(super) fn bytes(&self, peer_bytes: usize) -> usize {
        let labels = self.labels.iter().map(|label| label.len() + 24);
        self.name.len() + peer_bytes + labels.sum::<usize>() + 32
    }
}

/// A sample's value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(f64),
    Durations { counts: Histogram, sum_s: f64 },
}

impl Value {
    /// Both together.
    pub(super) fn add(&mut self, other: &Self) {
        match (self, other) {
            (Self::Number(mine), Self::Number(theirs)) => *mine += theirs,
            (Self::Durations { counts, sum_s }, Self::Durations { counts: more, sum_s: sum }) => {
                for (mine, theirs) in counts.iter_mut().zip(more) {
                    *mine = mine.saturating_add(*theirs);
                }
                *sum_s += sum;
            }
            (Self::Number(_), Self::Durations { .. }) | (Self::Durations { .. }, Self::Number(_)) => {}
        }
    }
}

/// The values of a family's own labels. All are words of closed lists.
pub(super) type Words = [&'static str; 3];

/// The samples of one subject.
#[derive(Debug, Default)]
pub(super) struct Samples(pub(super) Vec<(Words, Value)>);

impl Samples {
    /// One sample; `values` belong to the family's own labels.
    pub(super) fn add(&mut self, values: &[&'static str], value: f64) {
        self.push(values, Value::Number(value));
    }

    /// A count.
    pub(super) fn count(&mut self, values: &[&'static str], count: u64) {
        self.add(values, as_f64(count));
    }

    /// 1 or 0.
    pub(super) fn flag(&mut self, values: &[&'static str], flag: bool) {
        self.count(values, u64::from(flag));
    }

    /// Durations by the core's buckets. Clients report counts alone, so without a `sum` it is estimated: every
    /// duration counts as the middle of its bucket.
    pub(super) fn durations(&mut self, counts: &Histogram, sum: Option<Span>) {
        let middle = |bucket: usize| 0.75 * as_f64(histogram::bound_ms(bucket).unwrap_or(1 << bucket));
        let estimate = || {
            counts.iter().enumerate().map(|(bucket, count)| as_f64(*count) * middle(bucket)).sum::<f64>()
                / 1000.0
        };
        self.push(&[], Value::Durations { counts: *counts, sum_s: sum.map_or_else(estimate, seconds) });
    }

    fn push(&mut self, values: &[&'static str], value: Value) {
        let mut words = Words::default();
        for (word, value) in words.iter_mut().zip(values) {
            *word = value;
        }
        self.0.push((words, value));
    }
}

fn durations(counts: &Histogram, sum_s: f64) -> proto::Histogram {
    let mut count = 0_u64;
    let mut buckets = Vec::with_capacity(BUCKETS);
    for (bucket, counted) in counts.iter().enumerate() {
        count = count.saturating_add(*counted);
        if let Some(ms) = histogram::bound_ms(bucket) {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(as_f64(ms) / 1000.0);
            bucket.set_cumulative_count(count);
            buckets.push(bucket);
        }
    }
    let mut histogram = proto::Histogram::default();
    histogram.set_bucket(buckets);
    histogram.set_sample_count(count);
    histogram.set_sample_sum(sum_s);
    histogram
}

fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

/// A name's bytes on the page, as a label value.
pub(super) fn escaped_bytes(name: &str) -> usize {
    name.bytes().map(|byte| if matches!(byte, b'"' | b'\\' | b'\n') { 2 } else { 1 }).sum()
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus counts in floating point")]
pub(super) const fn as_f64(count: u64) -> f64 {
    count as f64
}

pub(super) const fn seconds(span: Span) -> f64 {
    as_f64(span.as_nanos()) / 1e9
}
