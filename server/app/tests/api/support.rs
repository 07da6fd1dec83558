//! A server of a test's own, and the few requests that tests make.

use std::path::{Path, PathBuf};
use std::time::Duration;

use damper_server::{Config, Running};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Longer than anything here takes on any machine.
pub(crate) const HARD: Duration = Duration::from_secs(30);

/// A pool that starts with ten tokens: one second of its floor.
pub(crate) const FULL_OF_TEN: &str =
    "[dependencies.payments]\nretry.per_s = 10\nretry.burst = 10\nretry.floor_per_s = 10";

/// A pool with one token, and another after a second.
pub(crate) const ONE_PER_SECOND: &str = "[defaults]\nretry.per_s = 1";

/// A server on a port of its own.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) http: Client,
}

impl Server {
    pub(crate) async fn start(toml: &str) -> Self {
        Self::start_with(Config::from_toml(toml).unwrap()).await
    }

    /// One whose configuration is a file, that can be written anew.
    pub(crate) async fn start_with_file(file: &Path) -> Self {
        Self::start_with(Config::load(Some(file), []).unwrap()).await
    }

    async fn start_with(config: Config) -> Self {
        let running = damper_server::start(config.on_any_port()).await.unwrap();
        Self { running, http: Client::builder().no_proxy().build().unwrap() }
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(self.http.put(self.url(path)).json(body).send().await.unwrap()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> (u16, Value) {
        answer(self.http.delete(self.url(path)).send().await.unwrap()).await
    }

    /// The version of the configuration, as a client is told.
    pub(crate) async fn config_version(&self) -> u64 {
        let (_, synced) = self.post("/v1/sync", &json!({"client": {"id": "c", "incarnation": "1"}})).await;
        synced["config_version"].as_u64().unwrap()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.running.local_addr())
    }

    pub(crate) fn posting(&self, path: &str, body: &Value) -> RequestBuilder {
        self.http.post(self.url(path)).json(body)
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(self.posting(path, body).send().await.unwrap()).await
    }

    pub(crate) async fn post_text(&self, path: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
        let request = self.http.post(self.url(path)).header("content-type", "application/json").body(body);
        answer(request.send().await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.http.get(self.url(path)).send().await.unwrap()).await
    }

    pub(crate) async fn text(&self, path: &str) -> String {
        self.http.get(self.url(path)).send().await.unwrap().text().await.unwrap()
    }

    /// Asks, and takes 200 for granted.
    pub(crate) async fn ask(&self, ask: &Value) -> Value {
        let (status, answer) = self.post("/v1/tokens", ask).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    pub(crate) async fn state(&self, dependency: &str) -> Value {
        let (status, state) = self.get(&format!("/v1/dependencies/{dependency}")).await;
        assert_eq!(status, 200, "{state}");
        state
    }

    pub(crate) async fn issued(&self, dependency: &str) -> f64 {
        self.state(dependency).await["pool"]["issued"].as_f64().unwrap()
    }

    /// Waits until so many asks wait.
    pub(crate) async fn until_waiting(&self, dependency: &str, count: u64) {
        let reached = async {
            while self.state(dependency).await["queue"]["waiting"] != count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(HARD, reached).await.unwrap();
    }

    /// A connection of one's own.
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.running.local_addr()).await.unwrap()
    }

    /// Sends these bytes and reads until the server closes the connection.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        // The server may answer and close before it has taken everything.
        let _ = stream.write_all(bytes).await;
        read_to_end(&mut stream).await
    }
}

pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    // A reset after an answer is an end too.
    let _ = timeout(HARD, stream.read_to_end(&mut read)).await.unwrap();
    String::from_utf8_lossy(&read).into_owned()
}

async fn answer(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    if status >= 400 {
        assert_eq!(kind.as_deref(), Some("application/problem+json"), "{status} {body}");
        assert_eq!(body["status"], status);
        assert_eq!(body["type"], format!("urn:damper:problem:{}", body["code"].as_str().unwrap()));
    }
    (status, body)
}

/// A file of a test's own.
pub(crate) fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// A retry that may wait two seconds.
pub(crate) fn retry() -> Value {
    json!({
        "dependency": "payments", "operation": "op-1", "attempt": 2, "deadline_ms": 30_000, "idempotent": true,
        "failure": {"class": "transient"}
    })
}

/// The same with other fields.
pub(crate) fn with(mut message: Value, fields: Value) -> Value {
    if let (Value::Object(message), Value::Object(fields)) = (&mut message, fields) {
        message.extend(fields);
    }
    message
}

/// A retry that is decided at once.
pub(crate) fn now() -> Value {
    with(retry(), json!({"max_wait_ms": 0}))
}

/// The pointers of all invalid fields.
pub(crate) fn pointers(problem: &Value) -> Vec<&str> {
    problem["errors"].as_array().unwrap().iter().map(|error| error["pointer"].as_str().unwrap()).collect()
}
