//! Writes what matters of a fleet's life into the log.

use damper_core::{BreakerCause, BreakerState, BreakerView, Span};
use damper_engine::{Change, EngineError, MemoryEngine};
use damper_protocol::Mode;
use parking_lot::Mutex;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Duration, Instant, sleep};

use crate::mode;

/// Logs breakers that change, and the server's mode, for as long as the engine lives.
pub(crate) async fn keep(changes: Receiver<Change>, engine: MemoryEngine) {
    tokio::join!(breakers(changes), modes(engine));
}

async fn breakers(mut changes: Receiver<Change>) {
    loop {
        match changes.recv().await {
            Ok(Change::Breaker { dependency, tenant, from, cause, breaker }) => {
                transition(&dependency, tenant.as_deref(), from, cause, &breaker);
            }
            Ok(Change::Dependency { .. }) => {}
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "changes came too fast to be logged"),
            Err(RecvError::Closed) => return,
        }
    }
}

fn transition(
    dependency: &str,
    tenant: Option<&str>,
    from: BreakerState,
    cause: BreakerCause,
    breaker: &BreakerView,
) {
    let (from, to, version, cause) = (from.as_str(), breaker.state.as_str(), breaker.version, cause.as_str());
    if breaker.state == BreakerState::Open {
        let open_for_ms = breaker.open_for.as_millis();
        tracing::warn!(dependency, tenant, from, to, version, cause, open_for_ms, "a breaker opened");
    } else {
        tracing::info!(dependency, tenant, from, to, version, cause, "a breaker changed");
    }
}

async fn modes(engine: MemoryEngine) {
    let mut before = mode::of(&engine);
    mode_changed(Mode::Normal, before);
    while engine.learns_for() > Span::ZERO {
        sleep(Duration::from_nanos(engine.learns_for().as_nanos())).await;
        let after = mode::of(&engine);
        mode_changed(before, after);
        before = after;
    }
}

fn mode_changed(from: Mode, to: Mode) {
    if from != to {
        tracing::info!(from = from.as_str(), to = to.as_str(), "the server's mode changed");
    }
}

/// How often it is said that there are too many dependencies.
const COMPLAINS_EVERY: Duration = Duration::from_secs(60);

/// What has to be said and would be said with every sync.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    full: Mutex<Option<Instant>>,
}

impl Complaints {
    /// A dependency is not kept: clients have no retries on it. Where unknown ones are refused that is meant.
    pub(crate) fn refused(&self, dependency: &str, error: EngineError) {
        if error != EngineError::TooManyDependencies {
            return;
        }
        let (mut said, now) = (self.full.lock(), Instant::now());
        if said.is_none_or(|said| now.duration_since(said) >= COMPLAINS_EVERY) {
            *said = Some(now);
            tracing::warn!(
                dependency,
                "too many dependencies: retries on this and all further ones are refused; check that names are not \
                 made of data, have some forgotten, or raise max_dependencies"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use damper_core::{Force, Report, Totals};
    use damper_engine::Settings;
    use tokio::time::timeout;

    use super::*;
    use crate::logs::collecting::collect;

    #[tokio::test(start_paused = true)]
    async fn every_transition_and_mode_is_an_event_with_its_fields() {
        let (log, _collecting) = collect();
        let engine = MemoryEngine::new(Settings::default());
        let changes = engine.changes();
        let chronicle = tokio::spawn(keep(changes, engine.clone()));
        sleep(Duration::from_millis(1)).await;
        let totals = Totals { logical: 20, physical: 20, failures: [20, 0, 0, 0, 0, 0], ..Totals::default() };
        let report = Report { client: "c".into(), tenant: "t".into(), totals, ..Report::default() };
        engine.sync("payments", report, None::<std::iter::Empty<(&str, bool)>>).unwrap();
        sleep(Duration::from_secs(40)).await;
        assert!(engine.force_breaker("payments", Some(Force::Closed)));
        assert!(timeout(Duration::from_secs(1), chronicle).await.is_err(), "it goes on");
        let opened = "WARN a breaker opened cause=failure_share dependency=payments from=closed ";
        let lines = log.lines();
        assert_eq!(lines.len(), 5, "{lines:#?}");
        assert_eq!(lines[0], "INFO the server's mode changed from=normal to=learning");
        assert!(lines[1].starts_with(opened) && lines[1].ends_with(" to=open version=2"), "{}", lines[1]);
        assert_eq!(lines[2], "INFO the server's mode changed from=learning to=normal");
        assert_eq!(
            lines[3],
            "INFO a breaker changed cause=open_time_over dependency=payments from=open to=half_open version=3"
        );
        assert_eq!(
            lines[4],
            "INFO a breaker changed cause=operator dependency=payments from=half_open to=closed version=4"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_breaker_of_a_tenant_names_it() {
        let (log, _collecting) = collect();
        let draft = damper_core::PolicyDraft {
            breaker: damper_core::BreakerDraft {
                scope: Some(damper_core::Scope::Tenant),
                consecutive: Some(1),
                ..Default::default()
            },
            ..Default::default()
        };
        let defaults = damper_core::Policy::new(&draft).unwrap().into();
        let engine = MemoryEngine::new(Settings { defaults, ..Settings::default() });
        let chronicle = tokio::spawn(keep(engine.changes(), engine.clone()));
        let totals = Totals { logical: 1, physical: 1, failures: [1, 0, 0, 0, 0, 0], ..Totals::default() };
        let report = Report { client: "c".into(), tenant: "t".into(), totals, ..Report::default() };
        engine.sync("payments", report, None::<std::iter::Empty<(&str, bool)>>).unwrap();
        sleep(Duration::from_millis(1)).await;
        chronicle.abort();
        let line = log.lines().into_iter().find(|line| line.contains("opened")).unwrap();
        assert!(line.contains("cause=consecutive_failures") && line.contains("tenant=t "), "{line}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_table_is_said_once_a_minute() {
        let (log, _guard) = collect();
        let complaints = Complaints::default();
        for _ in 0..180 {
            complaints.refused("order-4711", EngineError::TooManyDependencies);
            complaints.refused("typo", EngineError::UnknownDependency);
            sleep(Duration::from_secs(1)).await;
        }
        let lines = log.lines();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("order-4711") && line.contains("max_dependencies")));
    }
}
