//! Stopping early: Ctrl-C and SIGTERM end the measurement, not the report.

use tokio::sync::watch;

/// Hears whether to stop. Clones hear the same.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Asks to stop.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// A pair of the two.
#[must_use]
pub fn pair() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    /// Asks to stop; asking again changes nothing.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Asks to stop at each Ctrl-C and SIGTERM, for as long as it is polled.
    ///
    /// # Errors
    /// The signals cannot be listened to.
    pub async fn stop_on_signals(self) -> std::io::Result<()> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            loop {
                tokio::select! {
                    _ = interrupt.recv() => self.stop(),
                    _ = terminate.recv() => self.stop(),
                }
            }
        }
        #[cfg(not(unix))]
        loop {
            tokio::signal::ctrl_c().await?;
            self.stop();
        }
    }
}

impl Stop {
    /// Whether to stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the request; forever if nobody can make it any more.
    pub async fn requested(&mut self) {
        if self.0.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
