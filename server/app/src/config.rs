//! The configuration: TOML, environment and flags, read into one validated [`Config`].
//!
//! Every mistake is reported at once, each with its place and remedy. What is not written has a default, so that
//! no configuration at all is a good one for a first look.

mod faults;
mod json;
mod keys;
#[cfg(test)]
mod manual;
mod reader;
mod sources;
mod summary;
mod types;
mod value;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use damper_core::PolicyDraft;
use damper_engine::Settings;

use crate::logs::LogFormat;

pub use faults::{ConfigError, ConfigFault};
pub(crate) use keys::reference;
pub(crate) use reader::nearest;
pub use sources::Sources;

/// Where a server listens unless told otherwise.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7117);

/// A configuration that is valid.
///
/// ```
/// let config = damper_server::Config::from_toml(
///     "[dependencies.payments]
///      capacity_per_s = 130
///      retry.per_s = 10",
/// )?;
/// assert_eq!(config.listen().to_string(), damper_protocol::DEFAULT_ADDRESS);
/// # Ok::<_, damper_server::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    listen: SocketAddr,
    any_port: bool,
    insecure: bool,
    caller_per_s: Option<f64>,
    telemetry: Telemetry,
    settings: Settings,
    /// What a policy is made of that is given by hand.
    defaults: PolicyDraft,
    sources: Sources,
}

/// What is told of the server, and where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Telemetry {
    /// Most tenants of each dependency with metrics of their own; [`None`] shows none.
    pub(crate) tenants: Option<usize>,
    pub(crate) log_format: LogFormat,
    /// Where traces go.
    pub(crate) otlp_endpoint: Option<String>,
    /// Share of the traces that begin here and are kept.
    pub(crate) trace_ratio: f64,
}

impl Telemetry {
    /// Whether anything differs that is only read at the start.
    pub(crate) fn needs_a_restart_beside(&self, running: &Self) -> bool {
        Self { tenants: None, ..self.clone() } != Self { tenants: None, ..running.clone() }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { tenants: None, log_format: LogFormat::Text, otlp_endpoint: None, trace_ratio: 1.0 }
    }
}

impl Default for Config {
    /// Loopback, the memory engine, and dependencies that are made from the default policy.
    fn default() -> Self {
        Self {
            listen: DEFAULT_LISTEN,
            any_port: false,
            insecure: false,
            caller_per_s: None,
            telemetry: Telemetry::default(),
            settings: Settings::default(),
            defaults: PolicyDraft::default(),
            sources: Sources::default(),
        }
    }
}

impl Config {
    /// Reads a configuration from TOML alone.
    ///
    /// # Errors
    /// Every mistake.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Sources::default().with_toml("configuration", text).read()
    }

    /// Reads a configuration from the file, if there is one, and from variables of the environment.
    ///
    /// # Errors
    /// The file cannot be read, or every mistake.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        Sources::default().with_file(file).with_environment(environment).read()
    }

    /// The same on a port of the system's choice on the loopback interface: for tests.
    #[must_use]
    pub fn on_any_port(mut self) -> Self {
        self.any_port = true;
        self
    }

    /// Reads the same sources again, for the server that runs with this configuration.
    ///
    /// # Errors
    /// The file cannot be read, or every mistake; a change that a server cannot follow while it runs is one.
    pub fn reread(&self) -> Result<Self, ConfigError> {
        self.sources.read_beside(Some(self))
    }

    /// Where the server listens.
    #[must_use]
    pub const fn listen(&self) -> SocketAddr {
        if self.any_port { SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0) } else { self.listen }
    }

    /// Whether it was told to listen where anyone may ask it.
    #[must_use]
    pub const fn insecure(&self) -> bool {
        self.insecure
    }

    /// Most requests per second of one peer's address.
    #[must_use]
    pub const fn caller_per_s(&self) -> Option<f64> {
        self.caller_per_s
    }

    pub(crate) const fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// What its engine decides by.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings.clone()
    }
}

#[cfg(test)]
mod tests;
