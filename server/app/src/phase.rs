//! The phases of a server's life, as its parts see them.

use tokio::sync::watch;

/// How far the server's life has gone. Phases follow each other in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Everything is answered.
    Serving,
    /// Not ready any more; streams say goodbye, everything else is still answered.
    Draining,
    /// No new connection, and no new request on an old one.
    Closing,
    /// Whoever still waits is let go without an answer.
    LettingGo,
}

/// Where the server's life stands.
#[derive(Clone, Debug)]
pub(crate) struct Life(watch::Receiver<Phase>);

/// Moves the server's life on.
#[derive(Debug)]
pub(crate) struct Mover(watch::Sender<Phase>);

/// A new life.
pub(crate) fn life() -> (Mover, Life) {
    let (mover, life) = watch::channel(Phase::Serving);
    (Mover(mover), Life(life))
}

impl Mover {
    pub(crate) fn enter(&self, phase: Phase) {
        let _ = self.0.send_replace(phase);
    }
}

impl Life {
    pub(crate) fn has_reached(&self, phase: Phase) -> bool {
        *self.0.borrow() >= phase
    }

    /// Resolves once the phase is reached; never if the server went away before.
    pub(crate) async fn reaches(&self, phase: Phase) {
        let mut life = self.0.clone();
        if life.wait_for(|reached| *reached >= phase).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
