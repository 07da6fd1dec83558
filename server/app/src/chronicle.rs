//! Writes what matters of a fleet's life into the log.

use damper_core::BreakerState;
use damper_engine::Change;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// Logs breakers that change, for as long as the engine lives.
pub(crate) async fn keep(mut changes: Receiver<Change>) {
    loop {
        match changes.recv().await {
            Ok(Change::Breaker { dependency, breaker, .. }) => {
                let (state, version) = (breaker.state.as_str(), breaker.version);
                match breaker.state {
                    BreakerState::Open => {
                        let open_for_ms = breaker.open_for.as_millis();
                        tracing::warn!(%dependency, state, version, open_for_ms, "a breaker opened");
                    }
                    _ => tracing::info!(%dependency, state, version, "a breaker changed its state"),
                }
            }
            Ok(Change::Dependency { .. }) => {}
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "changes came too fast to be logged"),
            Err(RecvError::Closed) => return,
        }
    }
}
