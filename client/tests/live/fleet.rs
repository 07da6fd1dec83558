//! A dependency that always fails, a service in front of it, and a server that can be killed.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use damper_client::{
    CallError, Dependency, Failure, Idempotency, Profile,
    axum::ScopeLayer,
    reqwest_middleware::{Retry, client_builder},
};
use reqwest_middleware::ClientWithMiddleware;
use tokio::sync::oneshot;

/// A dependency that fails each time.
pub struct Broken {
    address: SocketAddr,
    calls: Arc<AtomicU64>,
}

impl Broken {
    pub async fn start() -> Self {
        let calls = Arc::<AtomicU64>::default();
        let fail = async |State(calls): State<Arc<AtomicU64>>| {
            calls.fetch_add(1, Ordering::Relaxed);
            StatusCode::SERVICE_UNAVAILABLE
        };
        let address = serve(Router::new().route("/", get(fail)).with_state(Arc::clone(&calls))).await;
        Self { address, calls }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

pub async fn serve(app: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

/// A service that calls a dependency with three attempts, and passes its failure on as a plain 502.
pub async fn service(dependency: Dependency, url: String) -> String {
    let client = reqwest::Client::builder().no_proxy().retry(reqwest::retry::never()).build().unwrap();
    let handle = async move || -> Result<String, StatusCode> {
        let outcome: Result<String, CallError<Failure>> = dependency
            .operation("get")
            .idempotency(Idempotency::Safe)
            .profile(Profile::standard().with_attempts(3))
            .deadline(Duration::from_secs(60))
            .call(|_| async {
                let response = client.get(&url).send().await.unwrap();
                match Failure::from_http(response.status(), response.headers()) {
                    Some(failure) => Err(failure),
                    None => Ok("served".to_owned()),
                }
            })
            .await;
        outcome.map_err(|_| StatusCode::BAD_GATEWAY)
    };
    let address = serve(Router::new().route("/", get(handle)).layer(ScopeLayer::default())).await;
    format!("http://{address}/")
}

/// A client of the service that makes three attempts and says so.
pub fn front(dependency: Dependency) -> ClientWithMiddleware {
    let retry = Retry::new(dependency)
        .shape(|operation| {
            operation.profile(Profile::standard().with_attempts(3)).deadline(Duration::from_secs(60))
        })
        .propagate();
    let client = client_builder().no_proxy().build().unwrap();
    reqwest_middleware::ClientBuilder::new(client).with(retry).build()
}

/// A server on a thread of its own.
pub struct Killable {
    address: SocketAddr,
    config: damper_server::Config,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Killable {
    pub fn start(config: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut server =
            Self { address, config: damper_server::Config::from_toml(config).unwrap(), running: None };
        server.run(listener);
        server
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its tasks are dropped where they stand.
    pub fn kill(&mut self) {
        if let Some((kill, thread)) = self.running.take() {
            let _ = kill.send(());
            thread.join().unwrap();
        }
    }

    pub fn start_again(&mut self) {
        self.run(TcpListener::bind(self.address).unwrap());
    }

    fn run(&mut self, listener: TcpListener) {
        listener.set_nonblocking(true).unwrap();
        let (kill, killed) = oneshot::channel();
        let config = self.config.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    ended = damper_server::run(listener, &config, std::future::pending()) => ended.unwrap(),
                    _ = killed => {}
                }
            });
        });
        self.running = Some((kill, thread));
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for something to become true. Only the whole test has a time limit: a busy machine is not a failure.
pub async fn eventually(condition: impl AsyncFn() -> bool) {
    while !condition().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A service whose only retry is refused because no server answers.
pub async fn refusing(dependency: Dependency) -> String {
    let handle = async move || -> Result<(), CallError<Failure>> {
        let operation = dependency.operation("get").idempotency(Idempotency::Safe);
        operation.call(|_| async { Err(Failure::new(damper_client::FailureClass::Transient)) }).await
    };
    let address = serve(Router::new().route("/", get(handle)).layer(ScopeLayer::default())).await;
    format!("http://{address}/")
}
