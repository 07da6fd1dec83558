//! The watch stream: what is sent, how it is cut into pieces, and how it ends.

use damper_protocol::BreakerState;

use super::*;
use crate::{core::DependencyState, fake::Stream, view::View};

pub(super) fn breaker(version: u64) -> String {
    let breaker = format!(r#"{{"state":"open","version":{version},"open_for_ms":60000}}"#);
    format!("id: {version}\nevent: breaker\ndata: {{\"dependency\":\"d\",\"breaker\":{breaker}}}\n\n")
}

fn chunks(chunks: &[&str]) -> Stream {
    let chunks = chunks.iter().map(|chunk| (Duration::ZERO, chunk.as_bytes().to_vec())).collect();
    Stream { chunks, ..Stream::default() }
}

fn ending(stream: Stream) -> Stream {
    Stream { ends: true, ..stream }
}

/// A client that watches these streams, and the state of its dependency.
pub(super) async fn watching(streams: Vec<Stream>) -> (Arc<Fake>, Damper, Arc<DependencyState>) {
    let fake = Fake::new(|_| Step::hung());
    *fake.told.lock() = None;
    *fake.streams.lock() = streams.into();
    let damper = client(&fake);
    let dependency = damper.dependency("d");
    call(safe(&dependency), vec![]).await.unwrap();
    tokio::time::sleep(ms(1)).await;
    (fake, damper, Arc::clone(&dependency.pair.state))
}

fn version(state: &DependencyState) -> u64 {
    state.view(View::last_breaker).0
}

async fn assert_understood(chunks: Vec<(Duration, Vec<u8>)>, how: &str) {
    let (_, _damper, state) = watching(vec![Stream { chunks, ..Stream::default() }]).await;
    assert_eq!(state.view(View::last_breaker), (7, Some(BreakerState::Open)), "{how}");
    assert!(state.is_guarded(), "{how}");
}

#[tokio::test(start_paused = true)]
async fn an_event_may_be_cut_anywhere() {
    for end in ["\n", "\r\n", "\r"] {
        let whole = format!("\u{feff}: hello\n\nretry: junk\nunknown: x\n{}", breaker(7)).replace('\n', end);
        for at in 0..=whole.len() {
            let (head, tail) = whole.as_bytes().split_at(at);
            let chunks = vec![(Duration::ZERO, head.to_vec()), (ms(0), tail.to_vec())];
            assert_understood(chunks, &format!("{end:?} cut at {at}")).await;
        }
        let bytes = whole.bytes().map(|byte| (Duration::ZERO, vec![byte])).collect();
        assert_understood(bytes, &format!("{end:?} byte by byte")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn line_ends_of_every_kind_and_events_in_one_chunk() {
    for end in ["\n", "\r\n", "\r"] {
        let text = [breaker(3), breaker(4), ": tick\n\n".to_owned()].concat().replace('\n', end);
        let (_, _damper, state) = watching(vec![chunks(&[&text])]).await;
        assert_eq!(version(&state), 4, "{end:?}");
    }
}

/// What comes twice, or too late, changes nothing.
#[tokio::test(start_paused = true)]
async fn duplicates_and_events_out_of_order() {
    let closed = |version| breaker(version).replace("open\"", "closed\"");
    for order in [[5, 7, 6, 5, 7], [7, 7, 5, 6, 4], [7, 6, 5, 4, 3], [3, 5, 6, 7, 6]] {
        let news = order.map(|version| if version == 7 { breaker(7) } else { closed(version) });
        let (_, _damper, state) = watching(vec![chunks(&[&news.concat()])]).await;
        assert_eq!(state.view(View::last_breaker), (7, Some(BreakerState::Open)), "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nonsense_is_skipped() {
    let nonsense = [
        "event: breaker\ndata: {\n\n",
        "event: breaker\ndata: {\"dependency\":\"d\",\"breaker\":{\"version\":-1}}\n\n",
        "event: eclipse\ndata: {}\n\n",
        "event: snapshot\ndata: []\n\n",
        "event: dependency\n\n",
        "data: {}\n\n",
        "event: breaker\ndata: {\"dependency\":\"d\",\"tenant\":\"other\",\"breaker\":{\"version\":98}}\n\n",
        "event: breaker\ndata: {\"dependency\":\"of somebody else\",\"breaker\":{\"version\":99}}\n\n",
    ];
    let text = nonsense.concat() + &breaker(5);
    let (_, damper, state) = watching(vec![chunks(&[&text])]).await;
    assert_eq!(version(&state), 5);
    assert!(damper.health().watching);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_brings_breaker_policy_and_the_own_tenant_s_hold() {
    let text = r#"event: snapshot
data: {"epoch":"e1","dependencies":{"d":{"dependency":"d","breaker":{"state":"closed","version":2},
data: "holds_ms":{"default":4000,"other":9000},"policy":{"max_attempts":7}}}}

"#;
    let (_, damper, state) = watching(vec![chunks(&[text])]).await;
    assert_eq!((version(&state), state.policy().max_attempts), (2, 7));
    let now = damper.dependency("d").pair.handle.core.clock.now();
    assert!((ms(3900)..=ms(4000)).contains(&state.view(|view| view.held_for(now))));
}

#[tokio::test(start_paused = true)]
async fn a_broken_stream_is_resumed_after_its_last_event() {
    let streams = vec![ending(chunks(&[&breaker(3), &breaker(4)])), ending(chunks(&[])), Stream::default()];
    let (fake, damper, state) = watching(streams).await;
    tokio::time::sleep(ms(10_000)).await;
    let ids: Vec<_> = fake.watches.lock().iter().map(|(_, id)| id.clone()).collect();
    assert_eq!(ids, [None, Some("4".to_owned()), Some("4".to_owned())]);
    assert_eq!(version(&state), 4);
    assert!(damper.health().watching);
}

#[tokio::test(start_paused = true)]
async fn comments_keep_a_stream_alive_and_silence_ends_it() {
    let ticks = (0..10).map(|_| (ms(10_000), b": tick\n\n".to_vec())).collect();
    let (fake, _damper, _) = watching(vec![Stream { chunks: ticks, ..Stream::default() }]).await;
    tokio::time::sleep(ms(124_900)).await;
    assert_eq!(fake.watches.lock().len(), 1, "the last tick came 24.9 s ago");
    tokio::time::sleep(ms(2200)).await;
    assert_eq!(fake.watches.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn reconnects_back_off_to_thirty_seconds_and_never_end() {
    for refused in [
        Fault::Unreachable,
        Fault::Rejected(401),
        Fault::Rejected(204),
        Fault::NoAnswer,
        Fault::Busy(ms(1000)),
        Fault::Unavailable(ms(1000)),
    ] {
        let refusal = Stream { refused: Some(refused), ..Stream::default() };
        let (fake, damper, _) = watching(vec![refusal; 2000]).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let connections = fake.watches.lock().len();
        // An hour of waits that are uniform up to 30 s, after a few shorter ones.
        assert!((180..=320).contains(&connections), "{refused:?}: {connections}");
        assert!(!damper.health().watching);
        fake.streams.lock().clear();
        let start = Instant::now();
        while !damper.health().watching {
            tokio::time::sleep(ms(100)).await;
            assert!(start.elapsed() <= Duration::from_secs(31), "{refused:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_goodbye_spreads_the_reconnect_over_its_span() {
    let bye = chunks(&["event: bye\ndata: {\"reconnect_within_ms\":20000}\n\n"]);
    let mut waits = Vec::new();
    for _ in 0..40 {
        let (fake, _damper, _) = watching(vec![ending(bye.clone())]).await;
        tokio::time::sleep(ms(20_001)).await;
        let watches = fake.watches.lock().clone();
        assert_eq!(watches.len(), 2);
        waits.push(watches[1].0 - watches[0].0);
    }
    assert!(waits.iter().any(|wait| *wait > ms(5000)) && waits.iter().any(|wait| *wait < ms(15_000)));
}

#[tokio::test(start_paused = true)]
async fn an_endless_event_ends_the_stream() {
    let endless = (0..9).map(|_| (Duration::ZERO, vec![b'x'; 1024 * 1024])).collect();
    let (fake, _damper, _) = watching(vec![Stream { chunks: endless, ..Stream::default() }]).await;
    tokio::time::sleep(ms(2100)).await;
    assert_eq!(fake.watches.lock().len(), 2);
}

/// The limit is one of events, not of streams.
#[tokio::test(start_paused = true)]
async fn any_number_of_events_passes_whatever_ends_their_lines() {
    for end in ["\n", "\r\n", "\r"] {
        let large = format!(": {}\n\n", "x".repeat(1024 * 1024)).replace('\n', end).into_bytes();
        // The byte that ends an event comes on its own.
        let halves = |event: Vec<u8>| [event[..event.len() - 1].to_vec(), event[event.len() - 1..].to_vec()];
        let mut chunks: Vec<_> = (0..9).flat_map(|_| halves(large.clone())).collect();
        chunks.push(breaker(7).replace('\n', end).into_bytes());
        let chunks = chunks.into_iter().map(|chunk| (Duration::ZERO, chunk)).collect();
        let (fake, _damper, state) = watching(vec![Stream { chunks, ..Stream::default() }]).await;
        assert_eq!((version(&state), fake.watches.lock().len()), (7, 1), "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_back_is_watched_within_seconds() {
    let refusal = Stream { refused: Some(Fault::Unreachable), ..Stream::default() };
    let (fake, damper, _) = watching(vec![refusal; 2000]).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    fake.streams.lock().clear();
    *fake.told.lock() = Some(SyncedDependency::default());
    tokio::time::sleep(ms(3100)).await;
    assert!(damper.health().watching);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_of_a_silent_server_is_forgotten_after_thirty_seconds() {
    let (fake, damper, _) = watching(vec![ending(chunks(&[&breaker(3)]))]).await;
    let refusal = Stream { refused: Some(Fault::Unreachable), ..Stream::default() };
    *fake.streams.lock() = vec![refusal; 2000].into();
    let dependency = damper.dependency("d");
    tokio::time::sleep(ms(29_000)).await;
    assert_eq!(call(safe(&dependency), vec![]).await.unwrap_err().reason, StopReason::BreakerOpen);
    tokio::time::sleep(ms(2000)).await;
    call(safe(&dependency), vec![]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_id_that_cannot_be_one_does_not_replace_the_last() {
    for odd in ["", "a\0b", "\0"] {
        let event = breaker(7) + &breaker(8).replace("id: 8", &format!("id: {odd}"));
        let (fake, _damper, state) = watching(vec![ending(chunks(&[&event]))]).await;
        tokio::time::sleep(Duration::from_secs(40)).await;
        let resumed = fake.watches.lock().get(1).and_then(|(_, id)| id.clone());
        assert_eq!((version(&state), resumed.as_deref()), (8, Some("7")), "{odd:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_server_asks_for_is_kept() {
    for refused in [Fault::Busy(ms(5000)), Fault::Unavailable(ms(5000))] {
        let refusal = Stream { refused: Some(refused), ..Stream::default() };
        let (fake, _damper, _) = watching(vec![refusal; 3]).await;
        tokio::time::sleep(ms(20_000)).await;
        let at: Vec<_> = fake.watches.lock().iter().map(|(at, _)| *at).collect();
        let waits: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(waits.len(), 3, "{refused:?}");
        assert!(waits.iter().all(|wait| (ms(5000)..=ms(5502)).contains(wait)), "{refused:?}: {waits:?}");
    }
}
