//! The configuration in force, and how it changes while the server runs.
//!
//! The file is the truth: a reload makes of a running server what a restart would, and only the balances stay.
//! What operators put by hand is in force until then.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use damper_engine::Configured;
use serde_json::Value;

use crate::app::App;
use crate::config::{Config, ConfigError};
use crate::metrics::Reload;
use crate::problem::Fault;

/// The configuration in force.
#[derive(Debug)]
pub(crate) struct Live {
    /// Locked for as long as it takes to change it, so that changes come one after the other.
    config: Mutex<Config>,
    version: AtomicU64,
}

/// What a reload came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// The version of the configuration in force; it has risen if anything changed.
    pub config_version: u64,
    /// The dependencies that go by another policy now, in the order of their names.
    pub changed: Vec<String>,
}

impl Live {
    pub(crate) const fn new(config: Config) -> Self {
        Self { config: Mutex::new(config), version: AtomicU64::new(1) }
    }

    /// Rises with every change.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    /// Reads the configuration's sources again and adopts them, unless there is anything wrong with them.
    pub(crate) fn reload(&self) -> Result<Reloaded, ConfigError> {
        let mut current = self.live().lock();
        let config = current.reread().inspect_err(|error| {
            self.metrics().reloaded(Reload::Invalid);
            tracing::error!(%error, "the configuration was not reloaded and stays as it is");
        })?;
        let changed: Vec<String> =
            self.engine().adopt(config.settings()).iter().map(ToString::to_string).collect();
        let another_limit = config.caller_per_s() != current.caller_per_s();
        if another_limit {
            self.callers().limit(config.caller_per_s());
        }
        self.metrics().show_tenants(config.telemetry().tenants);
        let is_news = another_limit || !changed.is_empty() || config.settings() != current.settings();
        if is_news {
            self.config_changed();
        }
        *current = config;
        self.metrics().reloaded(if is_news { Reload::Changed } else { Reload::Unchanged });
        let config_version = self.live().version();
        tracing::info!(config_version, ?changed, "the configuration was reloaded");
        Ok(Reloaded { config_version, changed })
    }

    /// Gives a dependency the policy that `json` makes of the defaults, until the next reload.
    pub(crate) fn put_policy(&self, dependency: &str, json: &Value) -> Result<Configured, Fault> {
        let current = self.live().lock();
        let policy = current.policy(json).map_err(Fault::Invalid)?;
        let configured = self.engine().configure(dependency, &policy)?;
        if configured != Configured::Unchanged {
            self.config_changed();
            tracing::info!(dependency, ?configured, "an operator put a policy");
        }
        Ok(configured)
    }

    /// Forgets a dependency that is not configured.
    pub(crate) fn forget(&self, dependency: &str) -> Result<(), Fault> {
        let current = self.live().lock();
        if current.settings().dependencies.contains_key(dependency) {
            return Err(Fault::ConfiguredDependency);
        }
        if !self.engine().forget(dependency) {
            return Err(Fault::UnknownDependency);
        }
        self.config_changed();
        tracing::info!(dependency, "an operator had a dependency forgotten");
        Ok(())
    }

    fn config_changed(&self) {
        self.metrics().configured(self.live().version.fetch_add(1, Relaxed) + 1);
    }
}
