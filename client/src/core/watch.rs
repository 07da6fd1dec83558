//! Following the server's event stream for as long as the process lives.

use std::{sync::Arc, time::Duration};

use damper_protocol::{Bye, Snapshot, WatchBreaker, WatchDependency, event};
use fastrand::Rng;
use futures_util::StreamExt;
use sse_stream::{Sse, SseByteStream};
use tokio::{sync::watch::Receiver, time::timeout};

use super::{Core, Path, tasks::Running};
use crate::{
    backoff::{Backoff, uniform},
    clock::Moment,
    retry_after::jittered,
    transport::{Bytestream, Fault},
};

/// Waits between connections.
const RECONNECT: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(30) };

/// A stream this old has proved itself: the next wait is a short one.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

/// The exponent of the first wait after a stream that was open: all clients lose theirs in the same moment, and a
/// wait of up to 1 s would bring a tenth of the fleet back in every tenth of a second.
const AFTER_A_BREAK: u32 = 2;

/// The server sends something every 10 s; a stream that is silent for so long is dead.
const IDLE_LIMIT: Duration = Duration::from_secs(25);

/// How long the server may take to open the stream.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// Reconnects are spread over so long once another path has found the server again.
const BACK_WITHIN: Duration = Duration::from_secs(2);

/// Most bytes of one event.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// Watches until the last handle is gone.
pub(super) async fn run(running: Running, mut stop: Receiver<()>) {
    let core = Arc::clone(&running.core);
    let rng = core.rng();
    let mut watch = Watch { core, last_id: None, failures: 0, rng, spread: None, pause: Duration::ZERO };
    while !watch.core.is_shut_down() {
        tokio::select! {
            biased;
            _ = stop.changed() => return,
            () = watch.once() => {}
        }
        let wait = watch.wait();
        let core = Arc::clone(&watch.core);
        tokio::select! {
            biased;
            _ = stop.changed() => return,
            () = core.server_is_back.notified() => {
                tokio::time::sleep(uniform(BACK_WITHIN, &mut watch.rng)).await;
            }
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// The stream is open, until this goes, however that comes.
struct Watching(Arc<Core>);

impl Watching {
    fn of(core: &Arc<Core>) -> Self {
        core.status.lock().watching = true;
        Self(Arc::clone(core))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.status.lock().watching = false;
    }
}

struct Watch {
    core: Arc<Core>,
    last_id: Option<String>,
    /// Connections in a row that did not prove themselves.
    failures: u32,
    rng: Rng,
    /// The server's wish for the next wait, if it said goodbye.
    spread: Option<Duration>,
    /// The least next wait, if the server asked for one.
    pause: Duration,
}

impl Watch {
    /// One connection, from opening to its end, however it comes.
    async fn once(&mut self) {
        let opened_at = self.core.clock.now();
        let mut least_failures = 0;
        let opening = self.core.transport.watch(self.last_id.as_deref());
        match timeout(OPEN_WITHIN, opening).await.unwrap_or(Err(Fault::NoAnswer)) {
            Ok(stream) => {
                self.core.answered(Path::Watch);
                let watching = Watching::of(&self.core);
                self.follow(stream).await;
                drop(watching);
                least_failures = AFTER_A_BREAK;
            }
            Err(fault @ Fault::Rejected(_)) => self.core.faulted(Path::Watch, fault),
            Err(Fault::Busy(pause) | Fault::Unavailable(pause)) => self.pause = pause,
            // Asks and syncs tell an outage; the stream is allowed to break without being one.
            Err(_) => {}
        }
        let lived = self.core.clock.now().saturating_sub(opened_at);
        let failures = if lived >= HEALTHY_AFTER { 0 } else { self.failures.saturating_add(1) };
        self.failures = failures.max(least_failures);
    }

    fn wait(&mut self) -> Duration {
        let wait = match self.spread.take() {
            Some(spread) => uniform(spread.min(RECONNECT.cap), &mut self.rng),
            None => RECONNECT.delay(self.failures.max(1), &mut self.rng),
        };
        let pause = std::mem::take(&mut self.pause).min(RECONNECT.cap);
        wait.max(jittered(pause, &mut self.rng))
    }

    /// Reads events until the stream ends, breaks or falls silent.
    async fn follow(&mut self, stream: Bytestream) {
        let mut events = SseByteStream::new(bounded(Arc::clone(&self.core), stream));
        while let Some(Ok(event)) = events.next().await {
            self.take(event);
        }
    }

    fn take(&mut self, sse: Sse) {
        let now = self.core.clock.now();
        if let Some(id) = sse.id.filter(|id| !id.is_empty()) {
            self.last_id = Some(id);
        }
        let (Some(name), Some(data)) = (sse.event, sse.data) else { return };
        match name.as_str() {
            event::SNAPSHOT => read(&data, |snapshot: Snapshot| self.core.snapshot(snapshot, now)),
            event::BREAKER => read(&data, |change: WatchBreaker| self.core.breaker_changed(&change, now)),
            event::DEPENDENCY => read(&data, |change: WatchDependency| {
                self.core.dependency_changed(&change.dependency, &change, now);
            }),
            event::BYE => read(&data, |bye: Bye| {
                self.spread = Some(Duration::from_millis(bye.reconnect_within_ms));
            }),
            _ => {}
        }
    }
}

/// An event that cannot be read is skipped: the next snapshot makes up for it.
fn read<T: serde::de::DeserializeOwned>(data: &str, take: impl FnOnce(T)) {
    if let Ok(event) = serde_json::from_str(data) {
        take(event);
    }
}

/// The stream with its silence and the size of its events bounded. Comments count as life, which is why the
/// bounds stand before the parser.
fn bounded(core: Arc<Core>, stream: Bytestream) -> Bytestream {
    let state = (core, stream, OpenEvent::default());
    let next = |(core, mut stream, mut open): (Arc<Core>, Bytestream, OpenEvent)| async move {
        let chunk = timeout(IDLE_LIMIT, stream.next()).await.unwrap_or(Some(Err(Fault::NoAnswer)))?;
        let Ok(bytes) = chunk else { return Some((Err(Fault::NoAnswer), (core, stream, open))) };
        core.hear(core.clock.now());
        open.grow(&bytes);
        let chunk = if open.bytes > MAX_EVENT_BYTES { Err(Fault::NoAnswer) } else { Ok(bytes) };
        Some((chunk, (core, stream, open)))
    };
    futures_util::stream::unfold(state, next).boxed()
}

/// What came after the last empty line, which ends an event: lines end with CR, LF or both.
#[derive(Default)]
struct OpenEvent {
    bytes: usize,
    in_line: bool,
    after_cr: bool,
}

impl OpenEvent {
    fn grow(&mut self, chunk: &[u8]) {
        for byte in chunk {
            let ends_twice = *byte == b'\n' && self.after_cr;
            self.after_cr = *byte == b'\r';
            match byte {
                _ if ends_twice => {}
                b'\r' | b'\n' if self.in_line => self.in_line = false,
                b'\r' | b'\n' => self.bytes = 0,
                _ => {
                    self.in_line = true;
                    self.bytes = self.bytes.saturating_add(1);
                }
            }
        }
    }
}

impl Core {
    fn snapshot(&self, snapshot: Snapshot, now: Moment) {
        for (name, change) in snapshot.dependencies {
            self.dependency_changed(&name, &change, now);
        }
    }

    fn breaker_changed(&self, change: &WatchBreaker, now: Moment) {
        if change.tenant.as_deref().is_some_and(|tenant| tenant != self.tenant_name()) {
            return;
        }
        if let Some(dependency) = self.known_dependency(&change.dependency) {
            dependency.learn(|view| view.breaker(change.breaker, now));
        }
    }

    fn tenant_name(&self) -> &str {
        self.tenant.as_deref().unwrap_or(DEFAULT_TENANT)
    }

    fn dependency_changed(&self, name: &str, change: &WatchDependency, now: Moment) {
        let Some(dependency) = self.known_dependency(name) else { return };
        let hold_ms = change.holds_ms.get(self.tenant_name()).copied().unwrap_or_default();
        dependency.learn(|view| {
            view.breaker(change.breaker, now);
            view.policy(change.policy);
            view.hold(Duration::from_millis(hold_ms), now);
        });
    }
}

/// The tenant of a client that names none.
const DEFAULT_TENANT: &str = "default";
