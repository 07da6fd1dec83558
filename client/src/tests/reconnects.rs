//! Watch streams that break, again and again.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use damper_protocol::{AskRequest, Mode, SyncRequest, SyncResponse};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use hyper::body::Bytes;
use tokio::runtime::{Builder, Runtime};
use tracing::Level;

use super::*;
use crate::{
    fake::Stream,
    tests::{
        logs::Logs,
        watch::{breaker, watching},
    },
    transport::{Bytestream, Pending},
    view::View,
};

/// An event counts once it is whole. What breaks before is neither taken nor resumed after.
#[tokio::test(start_paused = true)]
async fn a_stream_may_break_at_every_byte() {
    for end in ["\n", "\r\n"] {
        let greeting = ": hello\n\nretry: junk\n\n".replace('\n', end);
        let [seven, eight] = [7, 8].map(|version| breaker(version).replace('\n', end));
        let whole = format!("\u{feff}{greeting}{seven}{eight}");
        let whole_after = [whole.len() - eight.len(), whole.len()];
        for at in 0..whole.len() {
            for breaks in [true, false] {
                let chunks = vec![(Duration::ZERO, whole.as_bytes()[..at].to_vec())];
                let cut = Stream { chunks, breaks, ends: !breaks, ..Stream::default() };
                let chunks = vec![(Duration::ZERO, [seven.clone(), eight.clone()].concat().into_bytes())];
                let again = Stream { chunks, ..Stream::default() };
                let (fake, damper, state) = watching(vec![cut, again]).await;
                let before = state.view(View::last_breaker).0;
                while fake.watches.lock().len() < 2 {
                    tokio::time::sleep(ms(100)).await;
                }
                let resumed = fake.watches.lock()[1].1.clone();
                // A carriage return ends the line; whether a line feed follows makes no difference.
                let seen = at + usize::from(end == "\r\n");
                let expected = match whole_after.map(|length| seen >= length) {
                    [false, _] => (0, None),
                    [true, false] => (7, Some("7".to_owned())),
                    [true, true] => (8, Some("8".to_owned())),
                };
                assert_eq!((before, resumed), expected, "{end:?} cut at {at} of {whole_after:?}");
                assert_eq!(state.view(View::last_breaker), (8, Some(BreakerState::Open)));
                assert!(damper.health().watching);
            }
        }
    }
}

/// Whatever it is turned away with, it goes on trying, says so once, and says once that it is over.
#[tokio::test(start_paused = true)]
async fn being_turned_away_is_a_state_and_two_lines_of_the_log() {
    for status in [200, 204, 302, 401, 403, 404] {
        let (logs, _guard) = Logs::of_this_thread();
        let said = |level| logs.count(level, "path", "Watch");
        let refusal = Stream { refused: Some(Fault::Rejected(status)), ..Stream::default() };
        let fake = Fake::new(|_| Step::hung());
        *fake.streams.lock() = vec![refusal; 20].into();
        let damper = client(&fake);
        call(safe(&damper.dependency("d")), vec![]).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(damper.health().server, crate::Reachability::Rejected(status));
        assert!(fake.watches.lock().len() > 2 && !damper.health().watching);
        assert_eq!(said(Level::WARN), 1, "{status}");
        assert_eq!(said(Level::INFO), 0, "{status}");
        fake.streams.lock().clear();
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(damper.health().server, crate::Reachability::Up);
        assert_eq!(said(Level::INFO), 1, "{status}");
        assert_eq!(said(Level::WARN), 1, "{status}");
    }
}

/// Breaks every connection after one event, the version of which rises by one each time, and remembers only sums.
#[derive(Default)]
struct Breaking {
    opened: AtomicU64,
    /// Connections that were not asked for after the last event.
    misled: AtomicU64,
    holds: AtomicU32,
}

impl Transport for Breaking {
    fn ask(&self, _: &AskRequest) -> BoxFuture<'static, Result<Pending, Fault>> {
        std::future::ready(Err(Fault::Unreachable)).boxed()
    }

    fn give_back(&self, _: String) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }

    fn sync(&self, _: &SyncRequest) -> BoxFuture<'static, Result<SyncResponse, Fault>> {
        let (epoch, mode, dependencies) = ("e1".to_owned(), Mode::default(), BTreeMap::default());
        let answer = SyncResponse { epoch, config_version: 1, mode, next_sync_ms: 60_000, dependencies };
        std::future::ready(Ok(answer)).boxed()
    }

    fn watch(&self, last_id: Option<&str>) -> BoxFuture<'static, Result<Bytestream, Fault>> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let last = (number > 1).then(|| (number - 1).to_string());
        self.misled.fetch_add(u64::from(last_id != last.as_deref()), Ordering::Relaxed);
        let event = stream::iter([Ok(Bytes::from(breaker(number)))]);
        let stream = match self.holds.load(Ordering::Relaxed) {
            0 => event.chain(stream::iter([Err(Fault::NoAnswer)])).boxed(),
            _ => event.chain(stream::pending()).boxed(),
        };
        std::future::ready(Ok(stream)).boxed()
    }
}

impl Breaking {
    /// Lets time pass until so many connections were opened.
    fn run_until(&self, runtime: &Runtime, opened: u64) {
        runtime.block_on(async {
            while self.opened.load(Ordering::Relaxed) < opened {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
        });
    }
}

#[test]
fn ten_thousand_reconnects_leave_nothing_behind() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let server = Arc::new(Breaking::default());
    let damper = Damper::builder("").build_over(Arc::clone(&server) as Arc<dyn Transport>, Switch::On);
    let dependency = damper.dependency("d");
    runtime.block_on(call(safe(&dependency), vec![])).unwrap();
    // Tables and buffers find their size, and the numbers of events theirs.
    server.run_until(&runtime, 1000);
    let tasks = runtime.metrics().num_alive_tasks();
    let grown = allocation_counter::measure(|| server.run_until(&runtime, 11_000));
    assert!(grown.count_total > 10_000, "the reconnects were measured");
    // A longer number here and there; one byte for each reconnect would be ten thousand.
    assert!(grown.bytes_current.abs() < 1000, "{grown:?}");
    assert_eq!(runtime.metrics().num_alive_tasks(), tasks);

    assert_eq!(server.misled.load(Ordering::Relaxed), 0, "each was resumed after the last event");
    runtime.block_on(waits_are_as_long_as_before(&server));
    let version = |damper: &Damper| damper.dependency("d").pair.state.view(View::last_breaker).0;
    assert_eq!(version(&damper), server.opened.load(Ordering::Relaxed));
    server.holds.store(1, Ordering::Relaxed);
    runtime.block_on(async {
        let start = Instant::now();
        while !damper.health().watching {
            tokio::time::sleep(ms(100)).await;
            assert!(
                start.elapsed() <= Duration::from_secs(31),
                "and it is watched as soon as it lets itself"
            );
        }
    });
    assert_eq!(version(&damper), server.opened.load(Ordering::Relaxed));
}

/// Streams that do not live keep the waits uniform up to thirty seconds.
async fn waits_are_as_long_as_before(server: &Breaking) {
    let (opened, start) = (server.opened.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_secs(36_000)).await;
    let waits = server.opened.load(Ordering::Relaxed) - opened;
    assert!((2200..=2600).contains(&waits), "{waits} in {:?}", start.elapsed());
}
