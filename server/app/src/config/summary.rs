//! What a configuration would run, for people.

use std::fmt;
use std::sync::Arc;

use damper_core::{Dependency, Moment, Policy};
use damper_engine::Unknown;

use super::{Config, Telemetry};

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        let warning = if self.listen.ip().is_loopback() { "" } else { " (insecure: no credentials)" };
        writeln!(f, "listen on {}{warning}", self.listen)?;
        writeln!(f, "engine: memory")?;
        match settings.unknown {
            Unknown::Create => writeln!(
                f,
                "unknown dependencies: made from the defaults, up to {} in all",
                settings.most_dependencies
            )?,
            Unknown::Refuse => writeln!(f, "unknown dependencies: refused")?,
        }
        match self.caller_per_s {
            Some(rate) => writeln!(f, "requests of one peer: up to {rate}/s")?,
            None => writeln!(f, "requests of one peer: not limited")?,
        }
        let Telemetry { tenants, otlp_endpoint, trace_ratio, .. } = &self.telemetry;
        match tenants {
            Some(most) => writeln!(f, "metrics by tenant: up to {most} of each dependency")?,
            None => writeln!(f, "metrics by tenant: off")?,
        }
        match otlp_endpoint {
            Some(endpoint) => writeln!(f, "traces: to {endpoint}, {trace_ratio} of those that begin here")?,
            None => writeln!(f, "traces: off")?,
        }
        describe(f, "defaults", &settings.defaults)?;
        settings
            .dependencies
            .iter()
            .try_for_each(|(name, policy)| describe(f, &format!("dependency {name}"), policy))
    }
}

/// A policy by what it comes to before anyone has used it.
fn describe(f: &mut fmt::Formatter<'_>, name: &str, policy: &Arc<Policy>) -> fmt::Result {
    let fresh = Dependency::new(Moment::ORIGIN, Arc::clone(policy), 0).snapshot(Moment::ORIGIN);
    let capacity =
        policy.capacity().map_or_else(|| "unknown".to_owned(), |rate| format!("{}/s", rate.as_per_s()));
    writeln!(
        f,
        "{name}: capacity {capacity}, pool starts at {}/s by {} with a burst of {}, at most {} attempts, waits up to \
         {} ms, fails {}, an open breaker stops {}",
        fresh.pool.rate.as_per_s(),
        fresh.pool.bound_by.as_str(),
        fresh.pool.burst.as_tokens(),
        policy.max_attempts(),
        policy.max_delay().as_millis(),
        policy.fail_mode().as_str(),
        policy.on_open().as_str(),
    )
}
