//! What Prometheus is told. Everything about dependencies is read from the engine when it is asked for, so the
//! counters are those that decisions were counted with; only HTTP is counted here.

mod dependencies;
mod samples;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use damper_engine::{EngineError, MemoryEngine};
use prometheus::core::Collector;
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder, exponential_buckets,
};

use crate::app::ROUTES;
use dependencies::Dependencies;

/// The route of requests that match none: what peers make up must not become a label.
const NO_ROUTE: &str = "unmatched";
/// Why a server keeps no state of a dependency that a client reports on.
const REFUSALS: [&str; 2] = ["unknown", "full"];

/// The server's metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    /// The usual answer of each route, found without a look-up.
    usual: Vec<(&'static str, IntCounter, Histogram)>,
    durations: HistogramVec,
    streams: IntGauge,
    refusals: IntCounterVec,
    config_version: IntGauge,
    reloads: IntCounterVec,
    caller_refusals: IntCounter,
}

/// What became of a reload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reload {
    /// Something changed.
    Changed,
    /// Nothing did.
    Unchanged,
    /// There are mistakes, and nothing was adopted.
    Invalid,
}

impl Reload {
    const ALL: [Self; 3] = [Self::Changed, Self::Unchanged, Self::Invalid];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Invalid => "invalid",
        }
    }
}

impl Metrics {
    /// Metrics that read from `engine`.
    pub(crate) fn new(engine: MemoryEngine) -> Self {
        Self::try_new(engine).unwrap_or_else(|error| unreachable!("a metric of this file: {error}"))
    }

    fn try_new(engine: MemoryEngine) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let durations = HistogramOpts::new(
            "damper_decision_duration_seconds",
            "Time from a request's head to its answer's head, by route; a wait in the delay queue comes after.",
        );
        let durations = durations.buckets(exponential_buckets(50e-6, 2.0, 13)?);
        let durations = registered(&registry, HistogramVec::new(durations, &["op"])?)?;
        let requests =
            ("damper_http_requests_total", "Requests by route and status code.", &["route", "code"][..]);
        let requests = counters(&registry, requests, [])?;
        let refusals = (
            "damper_dependencies_refused_total",
            "Reports on dependencies that the server does not keep.",
            &["reason"][..],
        );
        let reloads = (
            "damper_config_reloads_total",
            "Reloads of the configuration, by what became of them.",
            &["outcome"][..],
        );
        let config_version = IntGauge::new(
            "damper_config_version",
            "The version of the configuration in force; rises with each change.",
        )?;
        config_version.set(1);
        let caller_refusals = IntCounter::new(
            "damper_caller_refusals_total",
            "Requests that were refused because their peer calls too often.",
        )?;
        let streams = IntGauge::new("damper_watch_streams", "Watch streams that are open.")?;
        registered(&registry, build_info()?)?;
        registered(&registry, start_time()?)?;
        registry.register(Box::new(Dependencies::new(engine)?))?;
        let usual = ROUTES.iter().map(|route| {
            (*route, requests.with_label_values(&[*route, "200"]), durations.with_label_values(&[*route]))
        });
        Ok(Self {
            usual: usual.collect(),
            streams: registered(&registry, streams)?,
            refusals: counters(&registry, refusals, REFUSALS)?,
            config_version: registered(&registry, config_version)?,
            reloads: counters(&registry, reloads, Reload::ALL.map(Reload::as_str))?,
            caller_refusals: registered(&registry, caller_refusals)?,
            registry,
            requests,
            durations,
        })
    }

    /// Counts an answer. `route` is the pattern that matched.
    pub(crate) fn answered(&self, route: Option<&str>, code: u16, took: Duration) {
        let seconds = took.as_secs_f64();
        let usual = self.usual.iter().find(|(usual, ..)| Some(*usual) == route);
        match usual {
            Some((_, requests, durations)) if code == 200 => {
                requests.inc();
                durations.observe(seconds);
            }
            _ => {
                let route = usual.map_or(NO_ROUTE, |(route, ..)| route);
                self.requests.with_label_values(&[route, &code.to_string()]).inc();
                self.durations.with_label_values(&[route]).observe(seconds);
            }
        }
    }

    /// Counts a report on a dependency that the server does not keep.
    pub(crate) fn refused(&self, error: EngineError) {
        let [unknown, full] = REFUSALS;
        let reason = match error {
            EngineError::UnknownDependency => unknown,
            EngineError::TooManyDependencies => full,
            EngineError::Ask(_) | EngineError::Stopped => return,
        };
        self.refusals.with_label_values(&[reason]).inc();
    }

    /// Counts a reload of the configuration.
    pub(crate) fn reloaded(&self, outcome: Reload) {
        self.reloads.with_label_values(&[outcome.as_str()]).inc();
    }

    /// Shows the version of the configuration in force.
    pub(crate) fn configured(&self, version: u64) {
        self.config_version.set(i64::try_from(version).unwrap_or(i64::MAX));
    }

    /// Counts a request of a peer that calls too often.
    pub(crate) fn caller_refused(&self) {
        self.caller_refusals.inc();
    }

    /// Counts a watch stream for as long as what this returns lives.
    pub(crate) fn stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream(self.streams.clone())
    }

    /// Everything, in Prometheus' text format.
    pub(crate) fn text(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// A watch stream that is open.
#[derive(Debug)]
pub(crate) struct OpenStream(IntGauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn registered<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> prometheus::Result<M> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// Counters of this name, help and labels; those with one of these values are there before they count.
fn counters<const N: usize>(
    registry: &Registry,
    (name, help, labels): (&str, &str, &[&str]),
    values: [&str; N],
) -> prometheus::Result<IntCounterVec> {
    let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
    for value in values {
        counters.with_label_values(&[value]);
    }
    registered(registry, counters)
}

fn build_info() -> prometheus::Result<IntGauge> {
    let opts = Opts::new("damper_build_info", "The version that runs; always 1.");
    let info = IntGauge::with_opts(opts.const_label("version", env!("CARGO_PKG_VERSION")))?;
    info.set(1);
    Ok(info)
}

fn start_time() -> prometheus::Result<Gauge> {
    let time = Gauge::new("process_start_time_seconds", "When the process started, in seconds since 1970.")?;
    time.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    Ok(time)
}
