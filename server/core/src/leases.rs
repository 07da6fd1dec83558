//! The tokens that were granted and have not expired.

use std::collections::VecDeque;

use crate::{MicroTokens, Moment, TokenId};

/// Granted tokens, oldest first. Numbers are given out in sequence, so a token is found by its distance from
/// the oldest one. Bounded by what the pool can issue within a token's time to live.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases {
    live: VecDeque<Lease>,
    first: u64,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    cost: MicroTokens,
    expires: Moment,
    returned: bool,
}

impl Leases {
    /// Books a token of `cost`; zero for one that the pool did not pay for.
    pub(crate) fn grant(&mut self, cost: MicroTokens, expires: Moment) -> TokenId {
        let number = self.first + self.live.len() as u64;
        self.live.push_back(Lease { cost, expires, returned: false });
        TokenId::from_number(number)
    }

    /// Ends a token that is alive and was not returned before: what it cost.
    pub(crate) fn give_back(&mut self, now: Moment, token: TokenId) -> Option<MicroTokens> {
        let place = usize::try_from(token.number().checked_sub(self.first)?).ok()?;
        let lease = self.live.get_mut(place)?;
        if lease.returned || now >= lease.expires {
            return None;
        }
        lease.returned = true;
        Some(lease.cost)
    }

    /// Forgets what has expired.
    pub(crate) fn advance(&mut self, now: Moment) {
        while self.live.front().is_some_and(|lease| now >= lease.expires) {
            self.live.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: MicroTokens = MicroTokens::ONE;

    #[test]
    fn a_token_comes_back_once_and_in_time() {
        let mut leases = Leases::default();
        let (early, late) = (Moment::from_millis(100), Moment::from_millis(200));
        let first = leases.grant(COST, early);
        let second = leases.grant(COST, late);
        assert_ne!(first, second);
        assert_eq!(leases.give_back(Moment::ORIGIN, first), Some(COST));
        assert_eq!(leases.give_back(Moment::ORIGIN, first), None, "twice");
        assert_eq!(leases.give_back(late, second), None, "too late");
        leases.advance(late);
        assert_eq!(leases.give_back(Moment::ORIGIN, second), None, "forgotten");
        assert_ne!(leases.grant(COST, late), second, "a number is never used again");
    }

    #[test]
    fn numbers_that_nobody_was_given_are_unknown() {
        let mut leases = Leases::default();
        for number in [0, 1, u64::MAX] {
            assert_eq!(leases.give_back(Moment::ORIGIN, TokenId::from_number(number)), None);
        }
    }
}
