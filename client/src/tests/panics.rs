//! Panics in what the caller brought along.

use damper_protocol::{AskRequest, Mode, SyncRequest, SyncResponse};
use futures_util::future::BoxFuture;

use super::*;
use crate::{
    fake::Stream,
    transport::{Bytestream, Pending},
};

/// One that panics whatever it is told, and counts how often.
#[derive(Clone, Default)]
struct Clumsy(Arc<AtomicU32>);

impl Clumsy {
    fn panics(&self) -> ! {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("clumsy")
    }
}

impl Observer for Clumsy {
    fn attempt_started(&self, _: &str, _: u32) {
        self.panics()
    }
    fn granted(&self, _: &str, _: Reason, _: Duration) {
        self.panics()
    }
    fn stopped(&self, _: &str, _: StopReason) {
        self.panics()
    }
    fn breaker_changed(&self, _: &str, _: BreakerState) {
        self.panics()
    }
    fn mode_changed(&self, _: Mode) {
        self.panics()
    }
    fn succeeded(&self, _: &str, _: u32) {
        self.panics()
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_observer_harms_neither_operations_nor_tasks() {
    let fake = Fake::new(|_| Step::at_once(Ok(granted())));
    let event = "event: breaker\ndata: {\"dependency\":\"d\",\"breaker\":{\"state\":\"half_open\",\"version\":3}}\n\n";
    let chunks = vec![(ms(1500), event.as_bytes().to_vec())];
    *fake.streams.lock() = vec![Stream { chunks, ..Stream::default() }].into();
    let clumsy = Clumsy::default();
    let transport = Arc::clone(&fake) as Arc<dyn Transport>;
    let damper = Damper::builder("").observer(clumsy.clone()).build_over(transport, Switch::On);
    let dependency = damper.dependency("d");
    assert_eq!(call(safe(&dependency), vec![transient()]).await.unwrap(), 2);
    assert_eq!(clumsy.0.load(Ordering::Relaxed), 4, "two starts, a grant, a success");
    for (mode, version) in [(Mode::Learning, 4), (Mode::Normal, 5), (Mode::Degraded, 6)] {
        *fake.mode.lock() = mode;
        let state = if version % 2 == 0 { BreakerState::HalfOpen } else { BreakerState::Closed };
        *fake.told.lock() = Some(told(|told| told.breaker = BreakerView { state, version, open_for_ms: 0 }));
        tokio::time::sleep(ms(2000)).await;
        let _ = call(safe(&dependency), vec![]).await;
    }
    assert!(clumsy.0.load(Ordering::Relaxed) >= 4 + 3 + 3, "modes and breakers too");
    let totals = dependency.totals();
    assert_eq!((totals.failures.fatal, totals.abandoned, totals.success), (0, 0, 4));
    assert_eq!(
        (fake.watches.lock().len(), damper.health().watching),
        (1, true),
        "the one stream it began with"
    );
    let syncs = fake.syncs.lock().len();
    tokio::time::sleep(ms(5000)).await;
    assert_eq!(fake.syncs.lock().len(), syncs + 5, "and one task that syncs");
}

/// A transport that panics once, in a sync or in the watch.
struct Fragile {
    fake: Arc<Fake>,
    sync: AtomicU32,
    watch: AtomicU32,
}

fn breaks(times: &AtomicU32) -> bool {
    times.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

impl Transport for Fragile {
    fn ask(&self, ask: &AskRequest) -> BoxFuture<'static, Result<Pending, Fault>> {
        self.fake.ask(ask)
    }
    fn give_back(&self, token: String) -> BoxFuture<'static, ()> {
        self.fake.give_back(token)
    }
    fn sync(&self, sync: &SyncRequest) -> BoxFuture<'static, Result<SyncResponse, Fault>> {
        assert!(!breaks(&self.sync), "a sync breaks");
        self.fake.sync(sync)
    }
    fn watch(&self, last_id: Option<&str>) -> BoxFuture<'static, Result<Bytestream, Fault>> {
        let stream = self.fake.watch(last_id);
        match breaks(&self.watch) {
            true => Box::pin(async {
                let broken = futures_util::stream::poll_fn(|_| panic!("the watch breaks"));
                Ok(Box::pin(broken) as Bytestream)
            }),
            false => stream,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_starts_again_alone() {
    for (sync, watch) in [(1, 0), (0, 1), (2, 2)] {
        let fake = Fake::new(|_| Step::at_once(Ok(granted())));
        let (sync, watch) = (AtomicU32::new(sync), AtomicU32::new(watch));
        let broken_watches = watch.load(Ordering::Relaxed) as usize;
        let transport = Arc::new(Fragile { fake: Arc::clone(&fake), sync, watch });
        let damper = Damper::builder("").build_over(transport, Switch::On);
        for _ in 0..4 {
            call(safe(&damper.dependency("d")), vec![]).await.unwrap();
            tokio::time::sleep(ms(10)).await;
        }
        assert_eq!(fake.watches.lock().len(), 1 + broken_watches);
        assert!(damper.health().watching && damper.health().since_sync.is_some());
        let syncs = fake.syncs.lock().len();
        tokio::time::sleep(ms(5000)).await;
        assert_eq!(fake.syncs.lock().len(), syncs + 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_watch() {
    let damper = client(&Fake::new(|_| Step::hung()));
    synced(&damper).await;
    assert!(damper.health().watching);
    damper.shutdown(ms(100)).await;
    tokio::time::sleep(ms(1)).await;
    assert!(!damper.health().watching);
}
