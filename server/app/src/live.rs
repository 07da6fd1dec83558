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
            let outcome = Reload::Invalid.as_str();
            tracing::error!(outcome, %error, "the configuration was not reloaded and stays as it is");
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
        if config.telemetry().needs_a_restart_beside(current.telemetry()) {
            tracing::warn!("of [telemetry], only tenants and max_tenants change before the next start");
        }
        *current = config;
        let outcome = if is_news { Reload::Changed } else { Reload::Unchanged };
        self.metrics().reloaded(outcome);
        let (config_version, outcome) = (self.live().version(), outcome.as_str());
        tracing::info!(outcome, config_version, ?changed, "the configuration was reloaded");
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::logs::collecting::collect;
    use crate::phase::life;

    #[tokio::test]
    async fn every_outcome_of_a_reload_is_an_event_with_its_fields() {
        let path = std::env::temp_dir().join(format!("damper-reload-{}.toml", std::process::id()));
        let write = |text: &str| fs::write(&path, text).unwrap();
        write("");
        let app = App::new(Config::load(Some(Path::new(&path)), []).unwrap(), life().1);
        let (log, _collecting) = collect();
        drop(app.reload());
        write("dependencies.payments.max_attempts = 2");
        drop(app.reload());
        write("dependencies.payments.max_attempts = 2\ntelemetry.trace_ratio = 0.5");
        drop(app.reload());
        write("dependencies.payments.max_attempts = 0");
        drop(app.reload());
        fs::remove_file(&path).unwrap();
        let lines = log.lines();
        let reloaded = "INFO the configuration was reloaded changed";
        assert_eq!(lines[0], format!("{reloaded}=[] config_version=1 outcome=unchanged"));
        assert_eq!(lines[1], format!("{reloaded}=[\"payments\"] config_version=2 outcome=changed"));
        assert!(lines[2].starts_with("WARN of [telemetry], only tenants and max_tenants"), "{lines:#?}");
        assert_eq!(lines[3], format!("{reloaded}=[] config_version=2 outcome=unchanged"));
        let failed = "ERROR the configuration was not reloaded and stays as it is error=";
        assert!(lines[4].starts_with(failed) && lines[4].ends_with("outcome=invalid"), "{lines:#?}");
    }
}
