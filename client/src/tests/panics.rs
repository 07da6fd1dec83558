//! Panics in what the caller brought along.

use std::collections::BTreeMap;

use damper_protocol::{AskRequest, Mode, SyncRequest, SyncResponse};
use futures_util::future::BoxFuture;

use super::*;
use crate::{
    fake::Stream,
    transport::{Bytestream, Pending},
};

/// One that panics whatever it is told, and counts how often by method.
#[derive(Clone, Default)]
struct Clumsy(Arc<Mutex<BTreeMap<&'static str, u32>>>);

impl Clumsy {
    fn panics(&self, method: &'static str) -> ! {
        *self.0.lock().entry(method).or_default() += 1;
        panic!("clumsy")
    }

    fn counts<const N: usize>(&self, methods: [&'static str; N]) -> [u32; N] {
        methods.map(|method| self.0.lock().get(method).copied().unwrap_or_default())
    }
}

impl Observer for Clumsy {
    fn attempt_started(&self, _: &str, _: u32) {
        self.panics("attempt_started")
    }
    fn granted(&self, _: &str, _: Reason, _: Duration) {
        self.panics("granted")
    }
    fn stopped(&self, _: &str, _: StopReason) {
        self.panics("stopped")
    }
    fn breaker_changed(&self, _: &str, _: BreakerState) {
        self.panics("breaker_changed")
    }
    fn mode_changed(&self, _: Mode) {
        self.panics("mode_changed")
    }
    fn succeeded(&self, _: &str, _: u32) {
        self.panics("succeeded")
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
    let of_operations = ["attempt_started", "granted", "succeeded", "stopped"];
    assert_eq!(clumsy.counts(of_operations), [2, 1, 1, 0]);
    for (mode, version) in [(Mode::Learning, 4), (Mode::Normal, 5), (Mode::Degraded, 6)] {
        *fake.mode.lock() = mode;
        let state = if version % 2 == 0 { BreakerState::HalfOpen } else { BreakerState::Closed };
        *fake.told.lock() = Some(told(|told| told.breaker = BreakerView { state, version, open_for_ms: 0 }));
        tokio::time::sleep(ms(2000)).await;
        let _ = call(safe(&dependency), vec![]).await;
    }
    assert_eq!(clumsy.counts(of_operations), [5, 3, 4, 0], "two of them were probes");
    assert_eq!(clumsy.counts(["mode_changed", "breaker_changed"]), [3, 3]);
    call(safe(&dependency), vec![Failure::new(FailureClass::Semantic)]).await.unwrap_err();
    assert_eq!(clumsy.counts(of_operations), [6, 4, 4, 1]);
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
