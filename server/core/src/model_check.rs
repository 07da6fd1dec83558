//! A small model check of budget and breaker: the real pools, breakers and leases of two servers, three clients,
//! messages that arrive late or never, and two crashes, in every order (stateright). Built and run by
//! `scripts/model-check` alone.
//!
//! Checked in every state that can be reached: the pool never issues more than its burst and refill; tokens are
//! conserved; versions only rise within one server's life; no more probes are out than permits; and the breaker
//! is never wedged, since the leases of probes expire.

use std::hash::Hash;

use stateright::{Checker, Model, Property};

use crate::breaker::Breaker;
use crate::feed::Terms;
use crate::jitter::Jitter;
use crate::leases::{Lease, Leases};
use crate::policy::BreakerPolicy;
use crate::pool::PacedPool;
use crate::tenants::TenantKey;
use crate::{
    BoundBy, BreakerState, Class, Kind, MicroTokens, MicrosPerSecond, Moment, Policy, PolicyDraft, Report,
    Span, TokenId, Totals,
};

const SERVERS: usize = 2;
const CLIENTS: usize = 3;
const CRASHES: u8 = 2;
const IN_FLIGHT: usize = 3;
/// A tick is half a second; a token's and a probe's life are two.
const TICK: Span = Span::from_millis(500);
const LAST_TICK: u64 = 6;
const TTL: Span = Span::from_millis(1000);
const RATE: MicrosPerSecond = MicrosPerSecond::from_per_s(1);
const BURST: MicroTokens = MicroTokens::from_tokens(2);
const PROBES: u32 = 1;
const TERMS: Terms = Terms { rate: RATE, burst: BURST, at_once: false, bound_by: BoundBy::PerS };

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Server {
    pool: PacedPool,
    breaker: Breaker,
    leases: Leases,
    born: Moment,
    issued: u64,
    returned: u64,
    last_version: u64,
    rose: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u64,
    servers: Vec<Server>,
    /// The token that each client holds: of which server, and that server's life.
    held: Vec<Option<(usize, Moment, TokenId, bool)>>,
    messages: Vec<Message>,
    crashes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    /// A client's report: what it adds, under which version.
    Report { server: usize, success: bool, version: u64, probe: Option<TokenId> },
    /// A token comes back.
    Return { server: usize, token: TokenId },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Ask {
        client: usize,
        server: usize,
    },
    Finish {
        client: usize,
        success: bool,
    },
    GiveBack {
        client: usize,
    },
    /// A message arrives, and may arrive again.
    Deliver {
        place: usize,
        again: bool,
    },
    Lose {
        place: usize,
    },
    CrashServer {
        server: usize,
    },
    CrashClient {
        client: usize,
    },
}

struct Fleet {
    policy: BreakerPolicy,
}

impl Fleet {
    fn new() -> Self {
        let mut draft = PolicyDraft::default();
        draft.breaker.min_volume = Some(1);
        draft.breaker.open_for_ms = Some(500);
        draft.breaker.open_for_max_ms = Some(500);
        draft.breaker.probes = Some(PROBES);
        draft.breaker.probe_ttl_ms = Some(1000);
        draft.breaker.close_after = Some(1);
        draft.breaker.window_ms = Some(1000);
        Self { policy: Policy::new(&draft).expect("valid").breaker }
    }

    fn server(&self, born: Moment) -> Server {
        Server {
            pool: PacedPool::new(born, TERMS, RATE.in_one_second()),
            breaker: Breaker::new(born, self.policy, Jitter::new(0)),
            leases: Leases::default(),
            born,
            issued: 0,
            returned: 0,
            last_version: 1,
            rose: true,
        }
    }
}

impl State {
    fn moment(&self) -> Moment {
        Moment::from_nanos(self.now * TICK.as_nanos())
    }

    /// Everything that time brings, and the version that clients would see next.
    fn settle(&mut self) {
        let now = self.moment();
        for server in &mut self.servers {
            server.leases.advance(now);
            server.breaker.advance(now);
            let version = server.breaker.version().version;
            server.rose &= version >= server.last_version;
            server.last_version = version;
        }
    }

    fn ask(&mut self, client: usize, at: usize) {
        let now = self.moment();
        let server = &mut self.servers[at];
        let state = server.breaker.state();
        let half_open = state == BreakerState::HalfOpen;
        if state == BreakerState::Open || (half_open && !server.breaker.has_probe()) {
            return;
        }
        if server.pool.take(now, MicroTokens::ONE) {
            let tenant = TenantKey::NOBODY;
            let lease = Lease {
                tenant,
                kind: Kind::Retry,
                cost: MicroTokens::ONE,
                expires: now.after(TTL),
                answer_key: None,
            };
            let token = server.leases.grant(lease);
            if half_open {
                server.breaker.lease_probe(now, tenant, token);
            }
            server.issued += 1;
            self.held[client] = Some((at, server.born, token, half_open));
        }
    }

    fn deliver(&mut self, message: Message) {
        let now = self.moment();
        match message {
            Message::Report { server, success, version, probe } => {
                let mut totals = Totals { physical: 1, success: u64::from(success), ..Totals::default() };
                totals.failures[Class::Transient.index()] = u64::from(!success);
                let probes = Some(probe.map(|token| (token, success)).into_iter().collect());
                let report = Report { breaker_version: version, probes, ..Report::default() };
                self.servers[server].breaker.report(now, TenantKey::NOBODY, &report, &totals);
            }
            Message::Return { server, token } => {
                let server = &mut self.servers[server];
                if let Some(lease) = server.leases.give_back(now, token) {
                    server.breaker.return_probe(token);
                    server.pool.give_back(now, lease.cost);
                    server.returned += 1;
                }
            }
        }
    }

    fn send(&mut self, message: Message) {
        if self.messages.len() < IN_FLIGHT {
            self.messages.push(message);
            self.messages.sort_unstable();
        }
    }
}

impl Model for Fleet {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let server = self.server(Moment::ORIGIN);
        let held = vec![None; CLIENTS];
        vec![State { now: 0, servers: vec![server; SERVERS], held, messages: Vec::new(), crashes: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < LAST_TICK {
            actions.push(Action::Tick);
        }
        for (client, held) in state.held.iter().enumerate() {
            match held {
                None => actions.extend((0..SERVERS).map(|server| Action::Ask { client, server })),
                Some(_) => actions.extend([
                    Action::Finish { client, success: true },
                    Action::Finish { client, success: false },
                    Action::GiveBack { client },
                ]),
            }
        }
        for place in 0..state.messages.len() {
            let again = [true, false].map(|again| Action::Deliver { place, again });
            actions.extend(again.into_iter().chain([Action::Lose { place }]));
        }
        if state.crashes < CRASHES {
            actions.extend((0..SERVERS).map(|server| Action::CrashServer { server }));
            let holders = (0..CLIENTS).filter(|client| state.held[*client].is_some());
            actions.extend(holders.map(|client| Action::CrashClient { client }));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Ask { client, server } => state.ask(client, server),
            Action::Finish { client, success } => {
                let (server, born, token, probe) = state.held[client].take()?;
                // A token of a server's earlier life means nothing to the present one.
                let probe = (probe && born == state.servers[server].born).then_some(token);
                let version = state.servers[server].breaker.version().version;
                state.send(Message::Report { server, success, version, probe });
            }
            Action::GiveBack { client } => {
                let (server, born, token, _) = state.held[client].take()?;
                if born == state.servers[server].born {
                    state.send(Message::Return { server, token });
                }
            }
            Action::Deliver { place, again } => {
                let message = if again { state.messages[place] } else { state.messages.remove(place) };
                state.deliver(message);
            }
            Action::Lose { place } => drop(state.messages.remove(place)),
            Action::CrashServer { server } => {
                state.crashes += 1;
                state.servers[server] = self.server(state.moment());
            }
            Action::CrashClient { client } => {
                state.crashes += 1;
                state.held[client] = None;
            }
        }
        state.settle();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "the pool issues no more than its start, its burst and its refill",
                |_, state: &State| {
                    state.servers.iter().all(|server| {
                        let alive = state.moment().since(server.born).as_millis();
                        let net = (server.issued - server.returned) * 1000;
                        // Half a second brings half a token; a life starts with one second of the rate.
                        net <= 1000 + alive && net <= 2000 + alive
                    })
                },
            ),
            Property::always("tokens are conserved", |_, state: &State| {
                let now = state.moment();
                state.servers.iter().all(|server| {
                    let mut pool = server.pool.clone();
                    let issued = pool.bank().issued().as_micros() / 1_000_000;
                    let returned = pool.bank().returned().as_micros() / 1_000_000;
                    let accounted = server.leases.outstanding() + server.leases.expired_retries() + returned;
                    issued == server.issued && accounted == issued && pool.balance(now) <= BURST
                })
            }),
            Property::always("versions only rise within a life", |_, state: &State| {
                state.servers.iter().all(|server| server.rose)
            }),
            Property::always("no more probes are out than permits", |_, state: &State| {
                let now = state.moment();
                state.servers.iter().all(|server| server.breaker.view(now).probes_out <= PROBES)
            }),
            Property::sometimes("a breaker opens", |_, state: &State| {
                state.servers.iter().any(|server| server.breaker.state() == BreakerState::Open)
            }),
            Property::sometimes("a breaker that was open closes", |_, state: &State| {
                let closed = |server: &Server| server.breaker.version().state == BreakerState::Closed;
                state.servers.iter().any(|server| closed(server) && server.last_version >= 4)
            }),
            Property::sometimes("the pool runs dry", |_, state: &State| {
                let now = state.moment();
                state.servers.iter().any(|server| server.pool.clone().balance(now) < MicroTokens::ONE)
            }),
        ]
    }
}

#[test]
#[ignore = "takes minutes; scripts/model-check runs it"]
fn every_interleaving_keeps_the_promises() {
    let checker = Fleet::new()
        .checker()
        .threads(2)
        .target_max_depth(14)
        .target_state_count(6_000_000)
        .spawn_dfs()
        .join();
    println!("{} states, {} of them distinct", checker.state_count(), checker.unique_state_count());
    checker.assert_properties();
    assert!(checker.unique_state_count() >= 1_000_000, "{}", checker.unique_state_count());
}
