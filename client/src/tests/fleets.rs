//! Many clients of one server: what they add up to when it goes, and when it comes back.

use std::collections::BTreeMap;

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use parking_lot::RwLock;

use super::*;
use crate::transport::{Bytestream, Pending};
use damper_protocol::{AskRequest, SyncRequest, SyncResponse};

/// A server that many clients share, and that can go away.
struct Shared {
    /// Its life; `None` while it is away.
    life: RwLock<Option<tokio::sync::watch::Sender<()>>>,
    arrivals: Mutex<Vec<Instant>>,
    largest: Mutex<usize>,
    syncs: Mutex<Vec<SyncRequest>>,
    refused: Mutex<Option<String>>,
    /// Most results of probes in one report.
    most_probes: Mutex<usize>,
    /// Syncs that it found too large.
    too_large: Mutex<u64>,
}

impl Shared {
    fn start() -> Arc<Self> {
        let server = Self {
            life: RwLock::new(None),
            arrivals: Mutex::default(),
            largest: Mutex::new(usize::MAX),
            syncs: Mutex::default(),
            refused: Mutex::default(),
            most_probes: Mutex::new(usize::MAX),
            too_large: Mutex::default(),
        };
        server.rise();
        Arc::new(server)
    }

    fn rise(&self) {
        *self.life.write() = Some(tokio::sync::watch::channel(()).0);
    }

    /// All its streams break off.
    fn fall(&self) {
        *self.life.write() = None;
    }

    fn answer(&self, sync: &SyncRequest) -> Result<SyncResponse, Fault> {
        let _alive = self.life.read().as_ref().ok_or(Fault::Unreachable)?;
        let names: Vec<&String> = sync.dependencies.keys().collect();
        let refused = self.refused.lock().as_ref().is_some_and(|name| names.contains(&name));
        let probes = sync.dependencies.values().flat_map(|told| &told.probes).map(Vec::len).max();
        let refused = refused || probes.unwrap_or_default() > *self.most_probes.lock();
        if names.len() > *self.largest.lock() || refused {
            *self.too_large.lock() += 1;
            return Err(Fault::Rejected(413));
        }
        self.syncs.lock().push(sync.clone());
        let told = told(|told| {
            told.policy.max_attempts = 3;
            told.emergency = damper_protocol::Emergency { per_s: 1.0, ratio: 0.1, ..Default::default() };
        });
        Ok(SyncResponse {
            epoch: "e".to_owned(),
            config_version: 1,
            mode: damper_protocol::Mode::Normal,
            next_sync_ms: 1000,
            dependencies: names.into_iter().map(|name| (name.clone(), told.clone())).collect(),
        })
    }
}

impl Transport for Shared {
    fn ask(&self, _: &AskRequest) -> BoxFuture<'static, Result<Pending, Fault>> {
        let alive = self.life.read().is_some();
        let answer =
            if alive { Ok(std::future::ready(Ok(granted())).boxed()) } else { Err(Fault::Unreachable) };
        std::future::ready(answer).boxed()
    }

    fn give_back(&self, _: String) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }

    fn sync(&self, sync: &SyncRequest) -> BoxFuture<'static, Result<SyncResponse, Fault>> {
        std::future::ready(self.answer(sync)).boxed()
    }

    fn watch(&self, _: Option<&str>) -> BoxFuture<'static, Result<Bytestream, Fault>> {
        let Some(mut life) = self.life.read().as_ref().map(|life| life.subscribe()) else {
            return std::future::ready(Err(Fault::Unreachable)).boxed();
        };
        self.arrivals.lock().push(Instant::now());
        let ticks = stream::repeat(()).then(|()| async {
            tokio::time::sleep(ms(10_000)).await;
            Ok(hyper::body::Bytes::from_static(b": tick\n\n"))
        });
        let end = async move { while life.changed().await.is_ok() {} };
        std::future::ready(Ok(ticks.take_until(end).boxed())).boxed()
    }
}

/// Clients that have all synced, one after the other.
async fn fleet(server: &Arc<Shared>, clients: u64) -> Vec<Damper> {
    let mut fleet = Vec::new();
    for seed in 0..clients {
        let builder = Damper::builder("").seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let damper = builder.build_over(Arc::clone(server) as Arc<dyn Transport>, Switch::On);
        call(safe(&damper.dependency("d")), vec![]).await.unwrap();
        tokio::time::sleep(ms(1)).await;
        fleet.push(damper);
    }
    fleet
}

#[tokio::test(start_paused = true)]
async fn w3_a_thousand_clients_come_back_one_by_one() {
    // How long the server is away, and for how long it had been there.
    for (away_ms, there_ms) in [(0, 61_000), (300, 5000), (1500, 5000), (5000, 5000)] {
        let server = Shared::start();
        let fleet = fleet(&server, 1000).await;
        tokio::time::sleep(ms(there_ms)).await;
        assert!(fleet.iter().all(|damper| damper.health().watching));
        server.fall();
        tokio::time::sleep(ms(away_ms)).await;
        server.arrivals.lock().clear();
        let back = Instant::now();
        server.rise();
        tokio::time::sleep(ms(1)).await;
        while !fleet.iter().all(|damper| damper.health().watching) {
            tokio::time::sleep(ms(50)).await;
            assert!(back.elapsed() <= ms(10_000), "away for {away_ms} ms: not all are back");
        }
        let mut by_tenth = BTreeMap::<u128, usize>::new();
        let arrivals = server.arrivals.lock().clone();
        for at in &arrivals {
            *by_tenth.entry(at.duration_since(back).as_millis() / 100).or_default() += 1;
        }
        let busiest = by_tenth.values().max().copied().unwrap_or_default();
        assert!(arrivals.len() >= 1000 && busiest <= 100, "away for {away_ms} ms: {by_tenth:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c7_the_emergency_budgets_of_a_fleet_add_up_to_no_storm() {
    const CLIENTS: u64 = 50;
    let server = Shared::start();
    let fleet = fleet(&server, CLIENTS).await;
    let dependencies: Vec<Dependency> = fleet.iter().map(|damper| damper.dependency("d")).collect();
    // Each makes 5 operations a second, of which one in eight fails at first.
    let run = async |seconds: u32| {
        for number in 0..seconds * 5 {
            for (place, dependency) in dependencies.iter().enumerate() {
                let fails = (number as usize + place).is_multiple_of(8);
                let failures = if fails { vec![transient()] } else { vec![] };
                let dependency = dependency.clone();
                tokio::spawn(async move { call(safe(&dependency), failures).await.map_err(drop) });
            }
            tokio::time::sleep(ms(200)).await;
        }
    };
    let count = || {
        let all = dependencies.iter().map(Dependency::totals);
        all.fold((0, 0, 0), |sum, one| (sum.0 + one.logical, sum.1 + one.physical, sum.2 + one.emergency))
    };
    run(30).await;
    tokio::time::sleep(ms(5000)).await;
    let (logical, physical, emergency) = count();
    assert!(physical - logical >= logical / 10, "{physical} of {logical}: the server grants them");
    assert_eq!(emergency, 0);
    server.fall();
    for ten_seconds in 0..6 {
        let before = count();
        run(10).await;
        let after = count();
        let (operations, attempts, alone) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        assert_eq!(operations, CLIENTS * 50);
        // The savings of each process are drained when it loses its server, so that no window has a burst.
        assert!(
            attempts * 100 <= operations * 110 + 100 * CLIENTS / 2,
            "{ten_seconds}: {attempts} of {operations}"
        );
        assert!(
            ten_seconds == 0 || attempts * 100 <= operations * 110,
            "{ten_seconds}: {attempts} of {operations}"
        );
        assert!(alone > 0, "{ten_seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn reports_that_are_too_large_are_split_down_to_one() {
    for largest in [1, 3, 8, 100] {
        let server = Shared::start();
        let damper = client_of(&server);
        let names: Vec<String> = (0..13).map(|number| format!("d{number}")).collect();
        for name in &names {
            call(safe(&damper.dependency(name)), vec![]).await.unwrap();
        }
        *server.largest.lock() = largest;
        server.syncs.lock().clear();
        damper.flush().await.unwrap();
        let syncs = server.syncs.lock().clone();
        assert!(syncs.iter().all(|sync| sync.dependencies.len() <= largest));
        let mut told: Vec<String> =
            syncs.into_iter().flat_map(|sync| sync.dependencies.into_keys()).collect();
        told.sort_unstable();
        let mut expected = names.clone();
        expected.sort_unstable();
        assert_eq!(told, expected, "each once, in parts of {largest}");
        server.syncs.lock().clear();
        damper.flush().await.unwrap();
        assert!(
            server
                .syncs
                .lock()
                .iter()
                .all(|sync| sync.dependencies.values().all(|told| told.acked.is_some()))
        );
        assert!(names.iter().all(|name| damper.dependency(name).pair.state.policy().max_attempts == 3));
    }
}

#[tokio::test(start_paused = true)]
async fn reports_grow_again_when_larger_ones_are_taken() {
    const NAMES: usize = 40;
    let server = Shared::start();
    let damper = client_of(&server);
    for number in 0..NAMES {
        call(safe(&damper.dependency(&format!("d{number}"))), vec![]).await.unwrap();
    }
    let minutes = async |minutes: u64| {
        server.syncs.lock().clear();
        *server.too_large.lock() = 0;
        tokio::time::sleep(ms(minutes * 60_000)).await;
        let sizes = server.syncs.lock().iter().map(|sync| sync.dependencies.len()).max();
        (sizes.unwrap_or_default(), *server.too_large.lock())
    };
    *server.largest.lock() = 11;
    let (largest, refused) = minutes(1).await;
    assert_eq!((largest, refused), (10, 2), "40, then 20, then 10");
    let (largest, refused) = minutes(30).await;
    assert!((9..=11).contains(&largest) && refused <= 30, "{largest}, {refused} refused");
    *server.largest.lock() = usize::MAX;
    assert_eq!(minutes(30).await, (NAMES, 0), "all of them in one request again");
}

#[tokio::test(start_paused = true)]
async fn one_report_that_is_too_large_alone_does_not_stop_the_others() {
    let server = Shared::start();
    let damper = client_of(&server);
    for name in ["a", "b", "c", "huge"] {
        call(safe(&damper.dependency(name)), vec![]).await.unwrap();
    }
    *server.refused.lock() = Some("huge".to_owned());
    damper.flush().await.unwrap_err();
    let told: Vec<String> =
        server.syncs.lock().iter().flat_map(|sync| sync.dependencies.keys().cloned()).collect();
    assert!(["a", "b", "c"].iter().all(|name| told.iter().any(|told| told == name)), "{told:?}");
    assert_eq!(damper.health().server, crate::Reachability::Rejected(413));
    let report = damper.shutdown(ms(1000)).await;
    assert_eq!((report.delivered, report.undelivered), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn one_report_that_is_too_large_alone_does_not_cut_up_the_others() {
    const NAMES: usize = 40;
    let server = Shared::start();
    let damper = client_of(&server);
    for number in 0..NAMES {
        call(safe(&damper.dependency(&format!("d{number}"))), vec![]).await.unwrap();
    }
    let requests = async |seconds: u64| {
        server.syncs.lock().clear();
        *server.too_large.lock() = 0;
        tokio::time::sleep(ms(seconds * 1000)).await;
        (server.syncs.lock().len() as u64, *server.too_large.lock())
    };
    *server.refused.lock() = Some("d7".to_owned());
    requests(10).await;
    assert_eq!(requests(300).await, (300, 300), "the others in one request, and the one that is refused");
    *server.refused.lock() = None;
    requests(70).await;
    assert_eq!(requests(10).await, (10, 0));
    assert_eq!(server.syncs.lock()[0].dependencies.len(), NAMES, "it is one of them again");
}

#[tokio::test(start_paused = true)]
async fn results_of_probes_that_nobody_takes_are_dropped() {
    let server = Shared::start();
    let damper = client_of(&server);
    for name in ["a", "b", "c", "d"] {
        call(safe(&damper.dependency(name)), vec![]).await.unwrap();
    }
    *server.most_probes.lock() = 100;
    (0..101).for_each(|number| damper.dependency("d").pair.state.probed(format!("t{number}"), true));
    damper.flush().await.unwrap_err();
    damper.flush().await.unwrap();
    assert_eq!(damper.dependency("d").pair.handle.core.delivery(), (4, 0));
    damper.dependency("d").pair.state.probed("t".to_owned(), true);
    damper.flush().await.unwrap();
    let probes = |sync: &SyncRequest| Some(sync.dependencies.get("d")?.probes.as_ref()?.len());
    assert_eq!(server.syncs.lock().iter().rev().find_map(probes), Some(1), "later ones are reported");
}

fn client_of(server: &Arc<Shared>) -> Damper {
    Damper::builder("").build_over(Arc::clone(server) as Arc<dyn Transport>, Switch::On)
}
