//! A damper server in this process, on a runtime and a thread of its own, so that it can be killed.

use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

use damper_server::Config;
use tokio::sync::oneshot;

use crate::scenario::{Above, Scenario};
use crate::ways::FRONT;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Its address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The scenario's `[damper]` is no policy.
    #[error("the scenario's `damper` table is no policy: {0}")]
    Policy(String),
    /// It ended although nobody asked it to.
    #[error("the damper server ended by itself: {0}")]
    Ended(String),
}

/// A server that runs, or could be started again on the same address.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    config: Config,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    kill: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), String>>,
}

impl Server {
    /// Starts a server on `address` whose only dependency is the scenario's, with the scenario's policy.
    ///
    /// # Errors
    /// The address is taken, or the policy is none.
    pub fn start(address: SocketAddr, scenario: &Scenario) -> Result<Self, ServerError> {
        let config = config_of(scenario)?;
        let listener = listen(address)?;
        let address = listener.local_addr().map_err(|source| ServerError::Listen { address, source })?;
        let mut server = Self { address, config, running: None };
        server.run(listener);
        Ok(server)
    }

    /// Where clients find it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Kills it: its tasks are dropped where they stand, its sockets close, nothing is said to anybody.
    ///
    /// # Errors
    /// It had ended before.
    pub async fn kill(&mut self) -> Result<(), ServerError> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let _ = running.kill.send(());
        let ended = tokio::task::spawn_blocking(|| running.thread.join()).await;
        match ended {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(why))) => Err(ServerError::Ended(why)),
            Ok(Err(_)) | Err(_) => Err(ServerError::Ended("it panicked".to_owned())),
        }
    }

    /// Starts it again on the same address, with nothing in its memory.
    ///
    /// # Errors
    /// The address has been taken in the meantime.
    pub fn start_again(&mut self) -> Result<(), ServerError> {
        let listener = listen(self.address)?;
        self.run(listener);
        Ok(())
    }

    fn run(&mut self, listener: TcpListener) {
        let (kill, killed) = oneshot::channel();
        let config = self.config.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            runtime.block_on(async {
                tokio::select! {
                    ended = serve(listener, &config) => ended,
                    _ = killed => Ok(()),
                }
            })
        });
        self.running = Some(Running { kill, thread });
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, ServerError> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|source| ServerError::Listen { address, source })
}

/// The configuration of a server that knows the scenario's dependency, and the service above it that has damper
/// too.
///
/// # Errors
/// The scenario's `[damper]` is no policy.
pub fn config_of(scenario: &Scenario) -> Result<Config, ServerError> {
    let mut names = vec![scenario.dependency.name.as_str()];
    if scenario.traffic.above == Above::Damper {
        names.push(FRONT);
    }
    let text = toml_of(scenario, &names).map_err(|error| ServerError::Policy(error.to_string()))?;
    Config::from_toml(&text).map_err(|error| ServerError::Policy(error.to_string()))
}

/// What is wrong with the scenario's `[damper]`: the key in it, and the remedy.
pub(crate) fn policy_faults(scenario: &Scenario) -> Vec<(String, String)> {
    let config = toml_of(scenario, &[&scenario.dependency.name]).map(|text| Config::from_toml(&text));
    match config {
        Ok(Ok(_)) => Vec::new(),
        Ok(Err(error)) => {
            let key = |place: &[String]| place.iter().skip(2).cloned().collect::<Vec<_>>().join(".");
            error.faults().iter().map(|fault| (key(&fault.place), fault.message.clone())).collect()
        }
        Err(error) => vec![(String::new(), error.to_string())],
    }
}

/// `[damper]` as the policy of dependencies with these names.
fn toml_of(scenario: &Scenario, names: &[&str]) -> Result<String, toml::ser::Error> {
    let policy = toml::Value::Table(scenario.damper.clone());
    let dependencies = names.iter().map(|name| ((*name).to_owned(), policy.clone()));
    let dependencies = toml::Value::Table(dependencies.collect());
    toml::to_string(&toml::Table::from_iter([("dependencies".to_owned(), dependencies)]))
}

async fn serve(listener: TcpListener, config: &Config) -> Result<(), String> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(|error| error.to_string())?;
    let never = std::future::pending();
    damper_server::run(listener, config, never).await.map_err(|error| error.to_string())
}
