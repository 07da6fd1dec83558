//! Random histories: whatever peers do and however time passes, the promises hold.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::bench::{Bench, failure, retry};
use crate::{
    Ask, AskId, Asked, Class, Decision, Failure, Kind, MicroTokens, Moment, Priority, Report, Snapshot, Span,
    TokenId, Totals, Verdict,
};

#[derive(Clone, Debug)]
enum Step {
    Ask(Ask),
    Cancel(usize),
    Return(usize),
    Sync { client: u8, totals: Box<Totals>, version: u64 },
    Pass(u64),
    PassLate(u64),
}

fn asks() -> impl Strategy<Value = Ask> {
    let spans =
        (0..3000_u64, 0..400_u64, 0..200_u64, prop::option::of(0..2500_u64), prop::option::of(0..1500_u64));
    let words = (0..4_u8, 0..3_usize, 0..3_usize, 1..3_u32, prop::option::of(0..40_u8));
    (spans, words).prop_map(
        |((deadline, earliest, expected, max_wait, hold), (tenant, kind, priority, cost, id))| {
            let kind = Kind::ALL[kind];
            let retry_after = hold.map(Span::from_millis);
            Ask {
                request_id: id.map(|id| id.to_string().into()),
                tenant: tenant.to_string().into(),
                kind,
                failure: (kind == Kind::Retry).then(|| Failure { retry_after, ..failure(Class::Transient) }),
                priority: Priority::ALL[priority],
                cost,
                deadline: Span::from_millis(deadline),
                earliest: Span::from_millis(earliest),
                expected: Span::from_millis(expected),
                max_wait: max_wait.map(Span::from_millis),
                ..retry()
            }
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let totals = (0..500_u64, 0..500_u64, 0..60_u64).prop_map(|(logical, success, failed)| {
        let mut totals = Totals { logical, physical: logical, success, ..Totals::default() };
        totals.failures[Class::Transient.index()] = failed;
        Box::new(totals)
    });
    let step = prop_oneof![
        12 => asks().prop_map(Step::Ask),
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => any::<usize>().prop_map(Step::Return),
        1 => (0..3_u8, totals, 0..4_u64).prop_map(|(client, totals, version)| Step::Sync { client, totals, version }),
        5 => (0..300_u64).prop_map(Step::Pass),
        1 => (0..3000_u64).prop_map(Step::PassLate),
    ];
    prop::collection::vec(step, 1..150)
}

#[derive(Clone, Copy)]
struct Token {
    price: u64,
    ends: Moment,
    returned: bool,
}

/// What is known of the asks of a history.
#[derive(Default)]
struct Oracle {
    /// The last moment at which each waiting ask may be granted, and what it costs the pool.
    waiting: BTreeMap<AskId, (Moment, u64)>,
    cancelled: BTreeSet<AskId>,
    /// Tokens that were handed out, each once.
    tokens: BTreeMap<TokenId, Token>,
    /// Tokens' worth that the pool must have issued.
    issued: u64,
    /// Tokens' worth given back.
    returned: u64,
    version: u64,
}

impl Oracle {
    /// A decision that was made `at` this moment. `last` is none for a repeat, which may be told an earlier
    /// answer; that one was held against its window when it was given.
    fn granted(&mut self, decision: &Decision, at: Moment, last: Option<Moment>, price: u64) {
        assert_eq!(decision.verdict == Verdict::Granted, decision.grant.is_some());
        let Some(grant) = decision.grant else { return };
        assert!(last.is_none_or(|last| at < last), "granted at {at:?}, but the last moment was {last:?}");
        // The same token again is the same answer again; it was counted with the first.
        if let Entry::Vacant(place) = self.tokens.entry(grant.token) {
            place.insert(Token { price, ends: at.after(grant.ttl), returned: false });
            self.issued += price;
        }
    }

    fn settle(&mut self, bench: &mut Bench) {
        for (id, (at, decision)) in std::mem::take(&mut bench.released) {
            assert!(!self.cancelled.contains(&id), "a cancelled ask was answered");
            let (last, price) = self.waiting.remove(&id).expect("an ask that waited");
            self.granted(&decision, at, Some(last), price);
        }
    }

    /// I1, I4 and I6 of the goals: every token is used or out or returned, versions rise, probes stay within
    /// their permits, and nothing that people see has left the numbers.
    fn check(&mut self, bench: &mut Bench) {
        let now = bench.now;
        let Snapshot { pool, breaker, windows, .. } = bench.dependency.snapshot(now);
        assert!(pool.tokens <= pool.burst);
        assert_eq!(pool.issued, MicroTokens::from_tokens(self.issued));
        assert_eq!(pool.granted, pool.issued, "what was granted is what was debited");
        assert_eq!(pool.returned, MicroTokens::from_tokens(self.returned));
        let out = self.tokens.values().filter(|token| !token.returned && token.ends > now).count();
        assert_eq!(pool.outstanding, out as u64);
        assert!(breaker.version >= self.version && breaker.probes_out <= 3);
        self.version = breaker.version;
        let seen = windows.iter().flat_map(|window| {
            [
                window.amplification,
                window.expected_amplification,
                window.recovery_rate,
                Some(window.physical_per_s),
            ]
        });
        assert!(seen.flatten().all(|number| number.is_finite() && number >= 0.0));
    }
}

fn price(ask: &Ask) -> u64 {
    if ask.kind == Kind::First { 0 } else { u64::from(ask.cost) }
}

fn last_moment(now: Moment, ask: &Ask) -> Moment {
    now.after(ask.deadline.saturating_sub(ask.expected))
}

fn play(bench: &mut Bench, oracle: &mut Oracle, step: Step) {
    match step {
        Step::Ask(ask) => {
            let last = last_moment(bench.now, &ask);
            let repeat = ask.request_id.is_some();
            let Ok(asked) = bench.dependency.ask(bench.now, &ask) else { return };
            bench.pass(Span::ZERO);
            match asked {
                Asked::Decided(decision) => {
                    let left = last.since(bench.now);
                    assert!(
                        decision.retry_after.is_none_or(|wait| repeat || wait < left),
                        "I3: {decision:?}"
                    );
                    oracle.granted(&decision, bench.now, (!repeat).then_some(last), price(&ask));
                }
                Asked::Waiting(id) => drop(oracle.waiting.entry(id).or_insert((last, price(&ask)))),
            }
        }
        Step::Cancel(pick) => {
            let Some(id) = nth(oracle.waiting.keys(), pick) else { return };
            bench.dependency.cancel(bench.now, id);
            bench.pass(Span::ZERO);
            if oracle.waiting.remove(&id).is_some() && !bench.released.contains_key(&id) {
                oracle.cancelled.insert(id);
            }
        }
        Step::Return(pick) => {
            let Some(token) = nth(oracle.tokens.keys(), pick) else { return };
            if bench.dependency.return_token(bench.now, token) {
                let token = oracle.tokens.get_mut(&token).expect("handed out");
                assert!(!std::mem::replace(&mut token.returned, true), "returned twice");
                oracle.returned += token.price;
            }
        }
        Step::Sync { client, totals, version } => {
            let client = client.to_string().into();
            let report = Report {
                client,
                tenant: "0".into(),
                totals: *totals,
                breaker_version: version,
                ..Report::default()
            };
            bench.dependency.sync(bench.now, &report);
        }
        Step::Pass(ms) => bench.pass(Span::from_millis(ms)),
        Step::PassLate(ms) => bench.now = bench.now.after(Span::from_millis(ms)),
    }
    bench.pass(Span::ZERO);
}

fn nth<'a, T: Copy + 'a>(mut items: impl ExactSizeIterator<Item = &'a T>, pick: usize) -> Option<T> {
    let place = pick.checked_rem(items.len())?;
    items.nth(place).copied()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// No grant outside its window, every ask answered exactly once and by its last moment, every token
    /// accounted for, and the pool's books equal to what was handed out.
    #[test]
    fn every_promise_holds(steps in steps(), per_s in prop_oneof![Just(0.0), 0.5..50.0]) {
        let mut bench = Bench::cold(|draft| {
            draft.retry.per_s = Some(per_s);
            draft.breaker.open_for_ms = Some(1000);
        });
        let mut oracle = Oracle::default();
        for step in steps {
            play(&mut bench, &mut oracle, step);
            oracle.settle(&mut bench);
            oracle.check(&mut bench);
            prop_assert_eq!(bench.dependency.queue.len(), oracle.waiting.len());
            prop_assert!(oracle.waiting.values().all(|(last, _)| *last > bench.now), "answered in time");
        }
        bench.pass(Span::from_secs(10));
        oracle.settle(&mut bench);
        prop_assert!(oracle.waiting.is_empty(), "everyone is answered in the end");
        prop_assert_eq!(bench.dependency.next_wakeup(), bench.dependency.breaker.next_change());
    }
}
