//! Traces over OTLP: one span for each request of the API, a child of the caller's own. Without an endpoint there is
//! nothing here that a request could meet.

mod counted;

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use damper_protocol::AskResponse;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

use crate::config::Telemetry;
use counted::{Bounded, Counted};
pub(crate) use counted::{OUTCOMES, Spans};

/// What has traces: what supervisors and Prometheus look at is not worth one.
const TRACED: &str = "/v1/";
/// The path of traces below an endpoint, by OTLP's specification.
const PATH: &str = "/v1/traces";
/// How long one export may take.
const EXPORTS_WITHIN: Duration = Duration::from_secs(5);
/// How long the last spans may take when the server goes away.
const FLUSHES_WITHIN: Duration = Duration::from_secs(2);

/// Where spans go.
#[derive(Debug)]
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

/// The span of a request, if it has one. Ends when its last clone is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(Option<Context>);

impl Traces {
    /// Traces to the endpoint, if there is one.
    pub(crate) fn start(telemetry: &Telemetry, spans: Spans) -> Option<Self> {
        let endpoint = telemetry.otlp_endpoint.as_ref()?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpJson)
            .with_endpoint(url(endpoint))
            .with_timeout(EXPORTS_WITHIN)
            // A server against retry storms makes none: what a collector does not take is counted and gone.
            .with_retry_policy(RetryPolicy::disabled())
            .build()
            .inspect_err(|error| tracing::error!(%error, endpoint, "there are no traces"))
            .ok()?;
        let exporter = Counted::new(exporter, spans.clone());
        let provider = SdkTracerProvider::builder()
            .with_span_processor(Bounded::new(exporter, spans))
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(telemetry.trace_ratio))))
            .with_resource(resource())
            .build();
        tracing::info!(endpoint, ratio = telemetry.trace_ratio, "traces are sent");
        Some(Self { tracer: provider.tracer("damper"), provider, propagator: TraceContextPropagator::new() })
    }

    /// Begins the span of a request and leaves it where its endpoint finds it.
    pub(crate) fn begin(&self, route: Option<&str>, request: &mut Request) -> Trace {
        let Some(route) = route.filter(|route| route.starts_with(TRACED)) else { return Trace::default() };
        let caller =
            self.propagator.extract_with_context(&Context::new(), &HeaderExtractor(request.headers()));
        let method = request.method().as_str().to_owned();
        let span = self.tracer.span_builder(format!("{method} {route}")).with_kind(SpanKind::Server);
        let span = span.with_attributes([
            KeyValue::new("http.request.method", method),
            KeyValue::new("http.route", route.to_owned()),
        ]);
        let context = caller.with_span(span.start_with_context(&self.tracer, &caller));
        let trace = Trace(Some(context));
        request.extensions_mut().insert(trace.clone());
        trace
    }

    /// Sends what has ended, for a while, and nothing after it. Blocks.
    pub(crate) fn finish(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(FLUSHES_WITHIN) {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

impl Trace {
    /// Says what the request is about.
    pub(crate) fn about(&self, dependency: &str, tenant: &str) {
        self.set("damper.dependency", dependency);
        self.tenant(tenant);
    }

    /// Says whose request it is.
    pub(crate) fn tenant(&self, tenant: &str) {
        self.set("damper.tenant", tenant);
    }

    /// Says how many asks or reports it brings.
    pub(crate) fn count(&self, key: &'static str, count: usize) {
        if let Some(context) = &self.0 {
            context.span().set_attribute(KeyValue::new(key, i64::try_from(count).unwrap_or(i64::MAX)));
        }
    }

    /// Says what became of its ask.
    pub(crate) fn decided(&self, answer: &AskResponse) {
        self.set("damper.decision", answer.decision.as_str());
        self.set("damper.reason", answer.reason.as_str());
        self.count("damper.waited_ms", usize::try_from(answer.waited_ms).unwrap_or(usize::MAX));
    }

    /// Says how it was answered.
    pub(crate) fn answered(&self, status: u16) {
        if let Some(context) = &self.0 {
            context.span().set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
            if status >= 500 {
                context.span().set_status(Status::error(""));
            }
        }
    }

    fn set(&self, key: &'static str, value: &str) {
        if let Some(context) = &self.0 {
            context.span().set_attribute(KeyValue::new(key, value.to_owned()));
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Trace {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.remove().unwrap_or_default())
    }
}

/// Where the traces of an endpoint go: to its own path if it names one for them.
fn url(endpoint: &str) -> String {
    let base = endpoint.trim_end_matches('/');
    if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") }
}

fn resource() -> Resource {
    let name = std::env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "damper".to_owned());
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    Resource::builder().with_service_name(name).with_attribute(version).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_base_or_the_place_of_traces_itself() {
        for (endpoint, expected) in [
            ("http://a:4318", "http://a:4318/v1/traces"),
            ("http://a:4318/", "http://a:4318/v1/traces"),
            ("http://a/otel", "http://a/otel/v1/traces"),
            ("http://a/v1/traces", "http://a/v1/traces"),
        ] {
            assert_eq!(url(endpoint), expected);
        }
    }
}
