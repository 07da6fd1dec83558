//! A scripted server on a port of its own.

use std::{
    convert::Infallible,
    future::pending,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
    task::JoinHandle,
};

/// How the server answers one ask.
pub struct Reply {
    status: StatusCode,
    header: Option<(&'static str, &'static str)>,
    body: String,
    body_after: Duration,
    cut_off: bool,
    drips: bool,
    silent: bool,
}

impl Reply {
    pub fn text(body: &str) -> Self {
        let (body, body_after) = (body.to_owned(), Duration::ZERO);
        Self {
            status: StatusCode::OK,
            header: None,
            body,
            body_after,
            cut_off: false,
            drips: false,
            silent: false,
        }
    }

    pub fn json(body: Value) -> Self {
        Self::text(&body.to_string())
    }

    pub fn status(status: StatusCode) -> Self {
        Self { status, ..Self::text("{}") }
    }

    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// No answer at all, for ever.
    pub fn silence() -> Self {
        Self { silent: true, ..Self::text("") }
    }

    pub fn header(self, name: &'static str, value: &'static str) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    /// The head at once, the body later.
    pub fn body_after(self, body_after: Duration) -> Self {
        Self { body_after, ..self }
    }

    /// The connection breaks in the middle of the body.
    pub fn cut_off(self) -> Self {
        Self { cut_off: true, ..self }
    }

    /// One byte of the body a second.
    pub fn dripping(self) -> Self {
        Self { drips: true, ..self }
    }

    fn drops(&self) -> impl Stream<Item = Result<Bytes, std::io::Error>> + use<> {
        let bytes = self.body.clone().into_bytes();
        stream::iter(bytes).then(|byte| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(Bytes::from(vec![byte]))
        })
    }

    fn chunks(&self) -> impl Stream<Item = Result<Bytes, std::io::Error>> + use<> {
        let (head, rest) = self.body.split_at(self.body.len() / 2);
        let (head, rest) = (Bytes::from(head.to_owned()), Bytes::from(rest.to_owned()));
        let (after, cut_off) = (self.body_after, self.cut_off);
        stream::once(async move {
            tokio::time::sleep(after).await;
            Ok(head)
        })
        .chain(stream::once(async move {
            match cut_off {
                true => Err(std::io::ErrorKind::ConnectionReset.into()),
                false => Ok(rest),
            }
        }))
    }
}

type Script = Box<dyn Fn(&Value, usize) -> Reply + Send + Sync>;

struct Shared {
    asks: Mutex<Script>,
    seen: Mutex<Vec<(String, Value)>>,
    told: Mutex<Value>,
    epoch: Mutex<String>,
    events: Mutex<(Vec<String>, Vec<mpsc::UnboundedSender<String>>)>,
    no_stream: Mutex<Option<(u16, &'static str)>>,
    watches: AtomicUsize,
}

/// The server.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Self {
        let shared = Arc::new(Shared {
            asks: Mutex::new(Box::new(|_, _| Reply::status(StatusCode::SERVICE_UNAVAILABLE))),
            seen: Mutex::default(),
            told: Mutex::new(json!({})),
            epoch: Mutex::new("e1".to_owned()),
            events: Mutex::default(),
            no_stream: Mutex::default(),
            watches: AtomicUsize::new(0),
        });
        let app = Router::new()
            .route("/v1/tokens", post(ask))
            .route("/v1/tokens/return", post(give_back))
            .route("/v1/sync", post(sync))
            .route("/v1/watch", get(watch))
            .route("/status/{code}", get(async |Path(code): Path<u16>| StatusCode::from_u16(code).unwrap()))
            .route("/text", get(async || "hello"))
            .route("/truncated", get(async || Body::from_stream(Reply::text("12345").cut_off().chunks())))
            .with_state(Arc::clone(&shared));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, shared, task }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// An address at which nobody listens.
    pub async fn into_dead_endpoint(self) -> String {
        let endpoint = self.endpoint();
        self.task.abort();
        let address = self.address;
        eventually(async || tokio::net::TcpStream::connect(address).await.is_err()).await;
        endpoint
    }

    /// How asks are answered; the second argument counts them from 0.
    pub fn asks(&self, script: impl Fn(&Value, usize) -> Reply + Send + Sync + 'static) {
        *self.shared.asks.lock() = Box::new(script);
    }

    /// What every dependency is told by syncs.
    pub fn tells(&self, told: Value) {
        *self.shared.told.lock() = told;
    }

    pub fn epoch(&self, epoch: &str) {
        *self.shared.epoch.lock() = epoch.to_owned();
    }

    /// What is answered instead of a stream of events: a status and a content type.
    pub fn no_stream(&self, answer: Option<(u16, &'static str)>) {
        *self.shared.no_stream.lock() = answer;
    }

    /// How often the stream was asked for.
    pub fn watches(&self) -> usize {
        self.shared.watches.load(Relaxed)
    }

    /// Sends an event to all watchers, those to come included.
    pub fn event(&self, name: &str, data: Value) {
        let event = format!("event: {name}\ndata: {data}\n\n");
        let mut events = self.shared.events.lock();
        events.0.push(event.clone());
        events.1.retain(|watcher| watcher.send(event.clone()).is_ok());
    }

    /// The bodies of all requests to this path so far.
    pub fn seen(&self, path: &str) -> Vec<Value> {
        let seen = self.shared.seen.lock();
        seen.iter().filter(|(at, _)| at == path).map(|(_, body)| body.clone()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// Notes a request; says how many came to the same path before.
    fn note(&self, path: &str, body: &Bytes) -> (Value, usize) {
        let body: Value = serde_json::from_slice(body).unwrap();
        let mut seen = self.seen.lock();
        let before = seen.iter().filter(|(at, _)| at == path).count();
        seen.push((path.to_owned(), body.clone()));
        (body, before)
    }
}

async fn ask(State(shared): State<Arc<Shared>>, uri: Uri, body: Bytes) -> Response {
    let (body, before) = shared.note(uri.path(), &body);
    let reply = (shared.asks.lock())(&body, before);
    if reply.silent {
        pending::<()>().await;
    }
    let body = if reply.drips { Body::from_stream(reply.drops()) } else { Body::from_stream(reply.chunks()) };
    let mut response = (reply.status, body).into_response();
    if let Some((name, value)) = reply.header {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

async fn give_back(State(shared): State<Arc<Shared>>, uri: Uri, body: Bytes) -> String {
    shared.note(uri.path(), &body);
    json!({"returned":true}).to_string()
}

async fn sync(State(shared): State<Arc<Shared>>, uri: Uri, body: Bytes) -> String {
    let (body, _) = shared.note(uri.path(), &body);
    let told = shared.told.lock().clone();
    let names = body["dependencies"].as_object().unwrap().keys();
    let dependencies: serde_json::Map<_, _> = names.map(|name| (name.clone(), told.clone())).collect();
    let epoch = shared.epoch.lock().clone();
    json!({"epoch":epoch,"config_version":1,"next_sync_ms":1000,"dependencies":dependencies}).to_string()
}

async fn watch(State(shared): State<Arc<Shared>>) -> Response {
    shared.watches.fetch_add(1, Relaxed);
    if let Some((status, kind)) = *shared.no_stream.lock() {
        let body = if status == 204 { "" } else { "event: breaker\ndata: {}\n\n<html>it works</html>" };
        return (StatusCode::from_u16(status).unwrap(), [("content-type", kind)], body).into_response();
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut events = shared.events.lock();
    let past = events.0.clone();
    events.1.push(sender);
    let live = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    let all = stream::iter(past).chain(live).map(Ok::<_, Infallible>);
    ([("content-type", "text/event-stream")], Body::from_stream(all)).into_response()
}

/// Waits for something to become true. Only the whole test has a time limit: a busy machine is not a failure.
pub async fn eventually(condition: impl AsyncFn() -> bool) {
    while !condition().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The address of a server that reads one request, writes this and closes, again and again.
pub async fn raw(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(answer).await;
        }
    });
    format!("http://{address}/")
}
