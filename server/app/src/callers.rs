//! How often one peer may call: a rate for each address, where the operator wants one.
//!
//! A peer is known by the address that it connects from, never by a header, which would be its own to choose.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::{Quota, RateLimiter};
use tokio::time::Instant;

/// Most addresses that are remembered, in two halves.
const MOST: usize = 16_384;

/// The limit of callers, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    /// All that a request costs while there is none.
    limited: AtomicBool,
    limiter: RwLock<Option<Arc<Limiter>>>,
}

type Limiter = RateLimiter<IpAddr, Addresses, Time, NoOpMiddleware<Duration>>;

impl Callers {
    pub(crate) fn new(per_s: Option<f64>) -> Self {
        let callers = Self::default();
        callers.limit(per_s);
        callers
    }

    /// Limits callers to another rate from now on, or not at all.
    pub(crate) fn limit(&self, per_s: Option<f64>) {
        let quota = per_s.and_then(quota);
        let limiter =
            quota.map(|quota| Arc::new(RateLimiter::new(quota, Addresses::default(), Time::default())));
        self.limited.store(limiter.is_some(), Relaxed);
        *self.limiter.write().unwrap_or_else(PoisonError::into_inner) = limiter;
    }

    /// Lets the peer call, or says when it may.
    pub(crate) fn admit(&self, peer: IpAddr) -> Result<(), Duration> {
        if !self.limited.load(Relaxed) {
            return Ok(());
        }
        let limiter = self.limiter.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(limiter) = limiter else { return Ok(()) };
        let refused = limiter.check_key(&key(peer)).err();
        refused.map_or(Ok(()), |until| Err(until.wait_time_from(limiter.clock().now())))
    }
}

/// A second's worth at once, at least one request.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn quota(per_s: f64) -> Option<Quota> {
    let period = Duration::try_from_secs_f64(per_s.recip()).ok()?;
    let burst = NonZeroU32::new(per_s as u32).unwrap_or(NonZeroU32::MIN);
    Quota::with_period(period).map(|quota| quota.allow_burst(burst))
}

/// What a peer is known by. Whoever has one IPv6 address has 2^64 of them.
fn key(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// The runtime's clock, so that a paused one is in force here too.
#[derive(Clone, Copy, Debug)]
struct Time(Instant);

impl Default for Time {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Time {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// What is known of each address. When the young half is full it becomes the old one, whose addresses are
/// forgotten unless they called again: the table is bounded, and costs the same whoever calls.
#[derive(Debug, Default)]
struct Addresses(Mutex<Halves>);

#[derive(Debug, Default)]
struct Halves {
    young: HashMap<IpAddr, Nanos>,
    old: HashMap<IpAddr, Nanos>,
}

impl StateStore for Addresses {
    type Key = IpAddr;

    fn measure_and_replace<T, F, E>(&self, key: &IpAddr, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = halves.young.get(key).or_else(|| halves.old.get(key)).copied();
        let (outcome, state) = match measure(known) {
            Ok((outcome, state)) => (Ok(outcome), Some(state)),
            // Whoever calls too often must not be forgotten for it.
            Err(refused) => (Err(refused), known),
        };
        if let Some(state) = state {
            halves.remember(*key, state);
        }
        outcome
    }
}

impl Halves {
    fn remember(&mut self, key: IpAddr, state: Nanos) {
        if self.young.len() >= MOST / 2 && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, state);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::advance;

    use super::*;

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    fn admitted(callers: &Callers, peer: IpAddr) -> usize {
        (0..100).filter(|_| callers.admit(peer).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_has_a_second_s_worth_and_its_rate() {
        let callers = Callers::new(Some(5.0));
        assert_eq!((admitted(&callers, v4(1)), admitted(&callers, v4(2))), (5, 5));
        assert_eq!(callers.admit(v4(1)), Err(Duration::from_millis(200)));
        advance(Duration::from_millis(150)).await;
        assert_eq!(callers.admit(v4(1)), Err(Duration::from_millis(50)));
        advance(Duration::from_millis(450)).await;
        assert_eq!(admitted(&callers, v4(1)), 3);
        advance(Duration::from_secs(3600)).await;
        assert_eq!(admitted(&callers, v4(1)), 5, "an hour of silence saves up a second's worth");
    }

    #[tokio::test(start_paused = true)]
    async fn less_than_one_per_second_is_a_rate_too() {
        let callers = Callers::new(Some(0.5));
        assert_eq!(admitted(&callers, v4(1)), 1);
        assert_eq!(callers.admit(v4(1)), Err(Duration::from_secs(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn no_rate_is_no_limit() {
        let callers = Callers::new(None);
        assert_eq!(admitted(&callers, v4(1)), 100);
        callers.limit(Some(1.0));
        assert_eq!(admitted(&callers, v4(1)), 1);
        callers.limit(None);
        assert_eq!(admitted(&callers, v4(1)), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded_and_forgets_nobody_who_calls() {
        let callers = Callers::new(Some(1.0));
        assert_eq!(admitted(&callers, v4(0)), 1);
        for number in 1..100_000 {
            assert!(callers.admit(v4(number)).is_ok());
            assert!(callers.admit(v4(0)).is_err(), "{number}");
        }
        let limiter = Arc::into_inner(callers.limiter.into_inner().unwrap().unwrap()).unwrap();
        let halves = limiter.into_state_store().0.into_inner().unwrap();
        assert!(halves.young.len() + halves.old.len() <= MOST);
    }

    #[test]
    fn a_peer_is_known_by_what_it_cannot_choose() {
        let same = |one: &str, other: &str| key(one.parse().unwrap()) == key(other.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:2") && !same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1") && !same("10.0.0.1", "10.0.0.2"));
    }
}
