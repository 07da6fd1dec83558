//! What Prometheus is told. Everything about dependencies is read from the engine when it is asked for, so the
//! counters are those that decisions were counted with; only HTTP is counted here.

mod about;
mod dependencies;
mod family;
#[cfg(test)]
mod manual;
mod page;
mod places;
mod process;
mod tenants;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use damper_engine::{EngineError, MemoryEngine};
use damper_protocol::Mode;
use prometheus::core::Collector;
use prometheus::{
    Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
    exponential_buckets,
};

use crate::app::ROUTES;
use crate::mode;
use crate::traces::{OUTCOMES, Spans};
use family::About;
use page::Page;
use process::Process;

/// The route of requests that match none: what peers make up must not become a label.
const NO_ROUTE: &str = "unmatched";
/// Why a server keeps no state of a dependency that a client reports on.
const REFUSALS: [&str; 2] = ["unknown", "full"];

/// The server's metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    engine: MemoryEngine,
    page: Page,
    requests: IntCounterVec,
    /// The usual answer of each route, found without a look-up.
    usual: Vec<(&'static str, IntCounter, Histogram)>,
    durations: HistogramVec,
    streams: IntGauge,
    refusals: IntCounterVec,
    mode: IntGaugeVec,
    config_version: IntGauge,
    config_loaded: Gauge,
    reloads: IntCounterVec,
    caller_refusals: IntCounter,
    spans: Spans,
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

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Invalid => "invalid",
        }
    }
}

impl Metrics {
    /// Metrics that read from `engine` and show so many tenants of each dependency, or none.
    pub(crate) fn new(engine: MemoryEngine, tenants: Option<usize>) -> Self {
        Self::try_new(engine, tenants)
            .unwrap_or_else(|error| unreachable!("a metric of this module: {error}"))
    }

    fn try_new(engine: MemoryEngine, tenants: Option<usize>) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let durations = about::DURATIONS.histogram(exponential_buckets(50e-6, 2.0, 13)?);
        let durations = registered(&registry, HistogramVec::new(durations, about::DURATIONS.labels)?)?;
        let requests = counters(&registry, &about::REQUESTS, [])?;
        let usual = ROUTES.iter().map(|route| {
            (*route, requests.with_label_values(&[*route, "200"]), durations.with_label_values(&[*route]))
        });
        let page = registered(&registry, Page::new(engine.clone(), tenants)?)?;
        registry.register(Box::new(Process::new()?))?;
        registered(&registry, build_info()?)?;
        gauge(&registry, &about::START)?.set(now_s());
        let config_version = IntGauge::with_opts(about::CONFIG_VERSION.opts())?;
        config_version.set(1);
        let metrics = Self {
            usual: usual.collect(),
            streams: registered(&registry, IntGauge::with_opts(about::STREAMS.opts())?)?,
            refusals: counters(&registry, &about::REFUSALS, REFUSALS)?,
            mode: registered(&registry, IntGaugeVec::new(about::MODE.opts(), about::MODE.labels)?)?,
            config_version: registered(&registry, config_version)?,
            config_loaded: gauge(&registry, &about::CONFIG_LOADED)?,
            reloads: counters(&registry, &about::RELOADS, Reload::ALL.map(Reload::as_str))?,
            caller_refusals: registered(&registry, IntCounter::with_opts(about::CALLER_REFUSALS.opts())?)?,
            spans: Spans::new(counters(&registry, &about::SPANS, OUTCOMES)?),
            registry,
            engine,
            page,
            requests,
            durations,
        };
        metrics.config_loaded.set(now_s());
        Ok(metrics)
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

    /// Shows so many tenants of each dependency from now on, or none.
    pub(crate) fn show_tenants(&self, most: Option<usize>) {
        self.page.show_tenants(most);
    }

    /// Where spans are counted.
    pub(crate) fn spans(&self) -> Spans {
        self.spans.clone()
    }

    /// Counts a reload of the configuration.
    pub(crate) fn reloaded(&self, outcome: Reload) {
        if !matches!(outcome, Reload::Invalid) {
            self.config_loaded.set(now_s());
        }
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
        let present = mode::of(&self.engine);
        for mode in Mode::ALL {
            self.mode.with_label_values(&[mode.as_str()]).set(i64::from(*mode == present));
        }
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

/// Counters that are there, with one of these values, before they count.
fn counters<const N: usize>(
    registry: &Registry,
    about: &About,
    values: [&str; N],
) -> prometheus::Result<IntCounterVec> {
    let counters = IntCounterVec::new(about.opts(), about.labels)?;
    for value in values {
        counters.with_label_values(&[value]);
    }
    registered(registry, counters)
}

fn gauge(registry: &Registry, about: &About) -> prometheus::Result<Gauge> {
    registered(registry, Gauge::with_opts(about.opts())?)
}

fn build_info() -> prometheus::Result<IntGauge> {
    let opts = about::BUILD.opts().const_label("version", env!("CARGO_PKG_VERSION"));
    let info = IntGauge::with_opts(opts)?;
    info.set(1);
    Ok(info)
}

/// Seconds since 1970.
fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
