//! What lies between a client and the server: messages take their time, and some are lost.

use std::sync::Arc;
use std::time::Duration;

use damper_client::testing::protocol::{AskRequest, SyncRequest, SyncResponse};
use damper_client::testing::{Bytestream, Fault, Pending, Transport};
use damper_server::local::Asked;
use fastrand::Rng;
use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::server::Server;
use crate::scenario::Drill;

/// One client's link to the server.
#[derive(Debug)]
pub(super) struct Link {
    server: Arc<Server>,
    tenant: String,
    latency: Duration,
    loss: f64,
    random: Mutex<Rng>,
}

/// The fate of one exchange.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    latency: Duration,
    request_lost: bool,
    reply_lost: bool,
}

impl Link {
    pub(super) fn new(server: Arc<Server>, tenant: &str, drill: &Drill, seed: u64) -> Self {
        Self {
            server,
            tenant: tenant.to_owned(),
            latency: Duration::from_millis(drill.latency_ms),
            loss: drill.loss,
            random: Mutex::new(Rng::with_seed(seed)),
        }
    }

    fn exchange(&self) -> Exchange {
        let mut random = self.random.lock();
        let mut lost = || random.f64() < self.loss;
        Exchange { latency: self.latency, request_lost: lost(), reply_lost: lost() }
    }
}

impl Exchange {
    async fn there(self) {
        travel(self.latency, self.request_lost).await;
    }

    async fn back(self) {
        travel(self.latency, self.reply_lost).await;
    }
}

/// A message that is lost never arrives: it is for the waiting side to lose patience.
async fn travel(latency: Duration, lost: bool) {
    sleep(latency).await;
    if lost {
        std::future::pending::<()>().await;
    }
}

impl Transport for Link {
    fn ask(&self, ask: &AskRequest) -> BoxFuture<'static, Result<Pending, Fault>> {
        let (server, exchange, ask) = (Arc::clone(&self.server), self.exchange(), ask.clone());
        let admitted = async move {
            exchange.there().await;
            let life = server.life()?;
            match life.local.ask(&ask).map_err(|refused| Fault::Rejected(refused.status))? {
                Asked::Decided(answer) => {
                    exchange.back().await;
                    Ok(std::future::ready(Ok(answer)).boxed())
                }
                Asked::Waiting(decided) => {
                    exchange.back().await;
                    let later = async move {
                        let answer = life.does(decided).await?.map_err(|_| Fault::NoAnswer)?;
                        sleep(exchange.latency).await;
                        Ok(answer)
                    };
                    Ok(later.boxed())
                }
            }
        };
        admitted.boxed()
    }

    fn give_back(&self, token: String) -> BoxFuture<'static, ()> {
        let (server, exchange) = (Arc::clone(&self.server), self.exchange());
        let returned = async move {
            sleep(exchange.latency).await;
            if let (Ok(life), false) = (server.life(), exchange.request_lost) {
                life.local.give_back(&token);
            }
        };
        returned.boxed()
    }

    fn sync(&self, sync: &SyncRequest) -> BoxFuture<'static, Result<SyncResponse, Fault>> {
        let (server, exchange, sync) = (Arc::clone(&self.server), self.exchange(), sync.clone());
        let synced = async move {
            exchange.there().await;
            let answer = server.life()?.local.sync(&sync);
            exchange.back().await;
            Ok(answer)
        };
        synced.boxed()
    }

    /// A stream is a connection: what is sent on it arrives, late or not at all.
    fn watch(&self, _: Option<&str>) -> BoxFuture<'static, Result<Bytestream, Fault>> {
        let (server, exchange, tenant) = (Arc::clone(&self.server), self.exchange(), self.tenant.clone());
        let opened = async move {
            exchange.there().await;
            let life = server.life()?;
            let events =
                life.local.watch(Some(&tenant)).map_err(|refused| Fault::Rejected(refused.status))?;
            exchange.back().await;
            let events = stream::unfold((life, events.boxed()), move |(life, mut events)| async move {
                let event = life.does(events.next()).await.unwrap_or(None)?;
                sleep(exchange.latency).await;
                Some((event.map_err(|_| Fault::NoAnswer), (life, events)))
            });
            Ok(events.boxed())
        };
        opened.boxed()
    }
}
