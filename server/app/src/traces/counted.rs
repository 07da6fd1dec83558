//! Every span that ends is counted once: as exported, failed or dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};
use prometheus::IntCounterVec;

/// Most spans that wait to be exported; more are dropped.
const MOST_PENDING: usize = 2048;
/// Most spans of one export.
const BATCH: usize = 512;
/// How long spans wait for others.
const EXPORTS_EVERY: Duration = Duration::from_secs(1);

/// What becomes of spans.
pub(crate) const OUTCOMES: [&str; 3] = ["exported", "failed", "dropped"];

/// Spans by what became of them.
#[derive(Clone, Debug)]
pub(crate) struct Spans {
    pending: Arc<AtomicUsize>,
    counts: IntCounterVec,
}

impl Spans {
    /// Counts in `counts`, by [`OUTCOMES`].
    pub(crate) fn new(counts: IntCounterVec) -> Self {
        Self { pending: Arc::default(), counts }
    }

    fn count(&self, outcome: &str, spans: usize) {
        self.counts.with_label_values(&[outcome]).inc_by(spans as u64);
    }

    /// Whether one more may wait.
    fn admits(&self) -> bool {
        self.pending
            .fetch_update(Relaxed, Relaxed, |pending| (pending < MOST_PENDING).then_some(pending + 1))
            .is_ok()
    }
}

/// The SDK's processor, with a bound of its own in front that counts what it turns away.
#[derive(Debug)]
pub(super) struct Bounded {
    inner: BatchSpanProcessor,
    spans: Spans,
}

impl Bounded {
    pub(super) fn new(exporter: impl SpanExporter + 'static, spans: Spans) -> Self {
        let config = BatchConfigBuilder::default()
            // Never full before the bound in front of it.
            .with_max_queue_size(MOST_PENDING + BATCH)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(EXPORTS_EVERY)
            .build();
        Self { inner: BatchSpanProcessor::new(exporter, config), spans }
    }
}

impl SpanProcessor for Bounded {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        if self.spans.admits() {
            self.inner.on_end(span);
        } else {
            self.spans.count("dropped", 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// An exporter whose results are counted, and logged when they change.
#[derive(Debug)]
pub(super) struct Counted<E> {
    inner: E,
    spans: Spans,
    fails: AtomicBool,
}

impl<E> Counted<E> {
    pub(super) fn new(inner: E, spans: Spans) -> Self {
        Self { inner, spans, fails: AtomicBool::new(false) }
    }

    fn note(&self, result: &OTelSdkResult) {
        match (result, self.fails.swap(result.is_err(), Relaxed)) {
            (Err(error), false) => tracing::warn!(%error, "traces cannot be sent, and are lost"),
            (Ok(()), true) => tracing::info!("traces are sent again"),
            (Err(_), true) | (Ok(()), false) => {}
        }
    }
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.spans.pending.fetch_sub(spans, Relaxed);
        let result = self.inner.export(batch).await;
        self.spans.count(if result.is_ok() { "exported" } else { "failed" }, spans);
        self.note(&result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    use opentelemetry::trace::{Tracer, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use prometheus::Opts;

    use super::*;

    /// Exports nothing until whoever holds the other end lets go.
    #[derive(Debug)]
    struct Stuck(Mutex<Receiver<()>>);

    impl SpanExporter for Stuck {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            let _ = self.0.lock().unwrap().recv();
            Ok(())
        }
    }

    #[test]
    fn while_nothing_is_exported_spans_wait_up_to_a_bound_and_each_is_counted_once() {
        const ENDED: usize = MOST_PENDING + BATCH + 100;
        let counts = IntCounterVec::new(Opts::new("spans", "of the test"), &["outcome"]).unwrap();
        let spans = Spans::new(counts.clone());
        let counted = |outcome: &str| counts.with_label_values(&[outcome]).get();
        let (hold, stuck) = channel();
        let exporter = Counted::new(Stuck(Mutex::new(stuck)), spans.clone());
        let provider =
            SdkTracerProvider::builder().with_span_processor(Bounded::new(exporter, spans)).build();
        let tracer = provider.tracer("test");
        (0..ENDED).for_each(|_| drop(tracer.start("span")));
        let dropped = counted("dropped");
        assert!((100..=(BATCH + 100) as u64).contains(&dropped), "{dropped}");
        assert_eq!(counted("exported"), 0);
        drop(hold);
        provider.shutdown().unwrap();
        assert_eq!((counted("exported") + dropped, counted("failed")), (ENDED as u64, 0));
    }
}
