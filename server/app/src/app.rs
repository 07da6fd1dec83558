//! The endpoints, and what all of them share.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};
use damper_engine::{EngineError, MemoryEngine};
use tokio::sync::Semaphore;

use crate::api;
use crate::callers::Callers;
use crate::chronicle::Complaints;
use crate::config::Config;
use crate::guard;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::phase::Life;
use crate::problem::Fault;
use crate::traces::Traces;

/// Most watch streams: fewer than connections, so that watchers cannot keep asks out.
pub(crate) const MOST_STREAMS: u32 = 8192;

/// What the endpoints share. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    engine: MemoryEngine,
    epoch: String,
    metrics: Metrics,
    complaints: Complaints,
    live: Live,
    callers: Callers,
    life: Life,
    traces: Option<Traces>,
    streams: Arc<Semaphore>,
}

impl App {
    pub(crate) fn new(config: Config, life: Life) -> Self {
        let engine = MemoryEngine::new(config.settings());
        let metrics = Metrics::new(engine.clone(), config.telemetry().tenants);
        let traces = Traces::start(config.telemetry(), metrics.spans());
        let (callers, live) = (Callers::new(config.caller_per_s()), Live::new(config));
        let streams = Arc::new(Semaphore::new(MOST_STREAMS as usize));
        Self(Arc::new(Shared {
            engine,
            epoch: new_epoch(),
            metrics,
            complaints: Complaints::default(),
            live,
            callers,
            life,
            traces,
            streams,
        }))
    }

    pub(crate) fn engine(&self) -> &MemoryEngine {
        &self.0.engine
    }

    /// The name of this life of the server's counters.
    pub(crate) fn epoch(&self) -> &str {
        &self.0.epoch
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Counts a report on a dependency that is not kept, and says so from time to time.
    pub(crate) fn refused(&self, dependency: &str, error: EngineError) {
        self.0.metrics.refused(error);
        self.0.complaints.refused(dependency, error);
    }

    pub(crate) fn live(&self) -> &Live {
        &self.0.live
    }

    pub(crate) fn callers(&self) -> &Callers {
        &self.0.callers
    }

    pub(crate) fn life(&self) -> &Life {
        &self.0.life
    }

    pub(crate) fn traces(&self) -> Option<&Traces> {
        self.0.traces.as_ref()
    }

    /// One permit for each watch stream.
    pub(crate) fn streams(&self) -> &Arc<Semaphore> {
        &self.0.streams
    }
}

/// Different in every life: the standard library seeds its hashers at random.
fn new_epoch() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// Declares the endpoints once: for the router, and as the closed list of the metrics' `route` label.
macro_rules! routes {
    ($($path:literal => $method:expr,)+) => {
        /// Every endpoint.
        pub(crate) const ROUTES: &[&str] = &[$($path,)+];

        fn routes() -> Router<App> {
            Router::new()$(.route($path, $method))+
        }
    };
}

routes! {
    "/v1/tokens" => post(api::tokens::ask),
    "/v1/tokens/batch" => post(api::tokens::batch),
    "/v1/tokens/return" => post(api::tokens::give_back),
    "/v1/sync" => post(api::sync::sync),
    "/v1/watch" => get(api::watch::watch),
    "/v1/dependencies" => get(api::dependencies::list),
    "/v1/dependencies/{name}" => get(api::dependencies::one),
    "/v1/plan" => get(api::plan::plan),
    "/v1/admin/dependencies/{name}" => put(api::admin::put).delete(api::admin::delete),
    "/v1/admin/dependencies/{name}/breaker" => post(api::admin::breaker),
    "/v1/admin/reload" => post(api::admin::reload),
    "/metrics" => get(api::process::metrics),
    "/livez" => get(api::process::livez),
    "/readyz" => get(api::process::readyz),
    "/openapi.json" => get(api::process::openapi),
    "/" => get(api::process::home),
}

/// The router that answers for `app`.
pub(crate) fn router(app: App) -> Router {
    routes()
        .fallback(|| async { Fault::UnknownRoute })
        .method_not_allowed_fallback(|| async { Fault::WrongMethod })
        .layer(from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Request, Response};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    use super::*;
    use crate::phase::{Phase, life};

    async fn get_from(router: Router, path: &str) -> Response<Body> {
        let request = Request::get(path).body(Body::empty()).unwrap();
        TowerToHyperService::new(router).call(request).await.unwrap()
    }

    fn app() -> App {
        App::new(Config::default(), life().1)
    }

    #[tokio::test]
    async fn a_handler_that_panics_costs_one_500_and_the_rest_lives_on() {
        let app = app();
        let boom = get(async || match std::hint::black_box(true) {
            true => panic!("of the test"),
            false => "unharmed",
        });
        let router = Router::new().route("/boom", boom).route("/livez", get(api::process::livez));
        let router = router.layer(from_fn_with_state(app.clone(), guard::guard));
        assert_eq!(get_from(router.clone(), "/boom").await.status(), 500);
        assert_eq!(get_from(router, "/livez").await.status(), 200);
        assert!(app.metrics().text().unwrap().contains("code=\"500\",route=\"unmatched\"} 1"));
    }

    #[tokio::test]
    async fn streams_are_bounded() {
        let app = app();
        let all = app.streams().clone().try_acquire_many_owned(MOST_STREAMS).unwrap();
        let refused = get_from(router(app.clone()), "/v1/watch").await;
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (503, &"1".parse().unwrap())
        );
        drop(all);
        assert_eq!(get_from(router(app), "/v1/watch").await.status(), 200);
    }

    #[tokio::test]
    async fn operators_call_from_loopback_alone() {
        let router = router(app());
        let admin = ROUTES.iter().filter(|route| route.starts_with(api::admin::PREFIX));
        let paths: Vec<String> = admin.map(|route| route.replace("{name}", "payments")).collect();
        assert_eq!(paths.len(), 3);
        let call = async |path: &str, method: &str, peer: Option<&str>| {
            let mut request = Request::builder().method(method).uri(path);
            if let Some(peer) = peer {
                request = request.extension(guard::Peer(peer.parse().unwrap()));
            }
            // Whatever a proxy or a liar says.
            let request = request.header("x-forwarded-for", "127.0.0.1").body(Body::empty()).unwrap();
            TowerToHyperService::new(router.clone()).call(request).await.unwrap().status().as_u16()
        };
        for path in &paths {
            for method in ["POST", "PUT", "DELETE", "GET"] {
                for peer in
                    [None, Some("10.0.0.1"), Some("::ffff:10.0.0.1"), Some("2001:db8::1"), Some("0.0.0.0")]
                {
                    assert_eq!(call(path, method, peer).await, 403, "{method} {path} from {peer:?}");
                }
                for peer in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
                    assert_ne!(call(path, method, Some(peer)).await, 403, "{method} {path} from {peer}");
                }
            }
        }
        assert_eq!(call("/v1/dependencies", "GET", Some("10.0.0.1")).await, 200);
    }

    #[tokio::test]
    async fn a_server_that_goes_away_is_not_ready_and_opens_no_stream() {
        let (mover, life) = life();
        let router = router(App::new(Config::default(), life));
        assert_eq!(get_from(router.clone(), "/readyz").await.status(), 200);
        mover.enter(Phase::Draining);
        for path in ["/readyz", "/v1/watch"] {
            let refused = get_from(router.clone(), path).await;
            assert_eq!(
                (refused.status().as_u16(), &refused.headers()["retry-after"]),
                (503, &"1".parse().unwrap())
            );
        }
        assert_eq!(get_from(router, "/livez").await.status(), 200);
    }
}
