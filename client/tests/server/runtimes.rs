//! Runtimes that lack something.

use std::{io, sync::Arc, time::Duration};

use damper_client::{Damper, Reachability, StopReason};
use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use crate::{once_failing, support::Server};

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_runtime_without_io_reaches_no_server_and_says_so_once() {
    let with_io = tokio::runtime::Runtime::new().unwrap();
    let server = with_io.block_on(Server::start());
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let without_io = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    without_io.block_on(async {
        let damper = Damper::builder(server.endpoint()).build().unwrap();
        for _ in 0..5 {
            let error = once_failing(&damper.dependency("payments")).await.unwrap_err();
            assert_eq!((error.reason, error.attempts), (StopReason::EmergencyExhausted, 1));
        }
        assert!(damper.flush().await.is_err());
        assert_eq!(damper.health().server, Reachability::Down);
        let report = damper.shutdown(Duration::ZERO).await;
        assert_eq!((report.delivered, report.undelivered), (0, 1));
    });
    assert!(server.seen("/v1/tokens").is_empty());
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    assert_eq!(log.lines().filter(|line| line.contains("enable_all")).count(), 1, "{log}");
}
