//! The server of a trial, which may die and come back.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use damper_client::testing::Fault;
use damper_protocol::BreakerState;
use damper_server::local::Local;
use damper_server::{Config, ConfigError, Sources};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::trial::DrillError;
use crate::measure::Recorder;
use crate::scenario::Scenario;
use crate::server::config_of;

/// The configuration of the damper server: a file, or else the scenario's `[damper]`.
///
/// # Errors
/// It cannot be read, or is none.
pub fn policy_of(scenario: &Scenario, file: Option<&Path>) -> Result<Config, DrillError> {
    match file {
        Some(path) => {
            let config = of_file(path).map_err(|error| DrillError::Config(error.to_string()))?;
            must_know(&config, &scenario.dependency.name, path)?;
            Ok(config)
        }
        None => config_of(scenario).map_err(|error| DrillError::Config(error.to_string())),
    }
}

/// A server of a drill listens nowhere and sends no traces, so that a file which needs `--insecure` to be served can
/// be drilled without.
fn of_file(path: &Path) -> Result<Config, ConfigError> {
    const DRILL: &str = "drill";
    let file = Sources::default().with_file(Some(path));
    let nowhere = file.with_flag(DRILL, &["server", "listen"], "127.0.0.1:0");
    nowhere.with_flag(DRILL, &["telemetry", "otlp_endpoint"], "").read()
}

/// A name that is misspelt would be drilled with the defaults. A file without any dependency means them.
fn must_know(config: &Config, name: &str, path: &Path) -> Result<(), DrillError> {
    let known = config.settings().dependencies;
    if known.is_empty() || known.contains_key(name) {
        return Ok(());
    }
    let names = known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let why = format!("the scenario's dependency `{name}` is not in {}, which has {names}", path.display());
    Err(DrillError::Config(why))
}

/// One life of a server.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) local: Local,
    over: Notify,
    watching: JoinHandle<()>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// The place at which a server is expected.
#[derive(Debug)]
pub(super) struct Server {
    config: Config,
    dependency: String,
    recorder: Arc<Recorder>,
    life: Mutex<Option<Arc<Life>>>,
    transitions: Arc<Mutex<Vec<(Duration, BreakerState)>>>,
}

impl Server {
    pub(super) fn start(config: Config, dependency: &str, recorder: &Arc<Recorder>) -> Arc<Self> {
        let server = Self {
            config,
            dependency: dependency.to_owned(),
            recorder: Arc::clone(recorder),
            life: Mutex::new(None),
            transitions: Arc::default(),
        };
        server.start_again();
        Arc::new(server)
    }

    pub(super) fn start_again(&self) {
        let local = Local::start(self.config.clone());
        let mut changes = Box::pin(local.breaker_transitions(&self.dependency));
        let (recorder, transitions) = (Arc::clone(&self.recorder), Arc::clone(&self.transitions));
        let watching = tokio::spawn(async move {
            while let Some(change) = changes.next().await {
                transitions.lock().push((recorder.now(), change.state));
            }
        });
        *self.life.lock() = Some(Arc::new(Life { local, over: Notify::new(), watching }));
    }

    /// It dies without a word: what it was doing is lost.
    pub(super) fn kill(&self) {
        if let Some(life) = self.life.lock().take() {
            life.over.notify_waiters();
        }
    }

    /// Whoever is there now.
    pub(super) fn life(&self) -> Result<Arc<Life>, Fault> {
        self.life.lock().clone().ok_or(Fault::Unreachable)
    }

    /// When the breaker of the dependency changed, and to what.
    pub(super) fn transitions(&self) -> Vec<(Duration, BreakerState)> {
        self.transitions.lock().clone()
    }
}

impl Life {
    /// Waits for something that this life does; it comes to nothing if the life ends before.
    pub(super) async fn does<T>(&self, work: impl Future<Output = T>) -> Result<T, Fault> {
        tokio::select! {
            biased;
            () = self.over.notified() => Err(Fault::NoAnswer),
            done = work => Ok(done),
        }
    }
}
