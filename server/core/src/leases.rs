//! The tokens that were granted and have not expired.

use std::collections::VecDeque;

use crate::answers::AnswerKey;
use crate::tenants::TenantKey;
use crate::{Kind, MicroTokens, Moment, TokenId};

/// Granted tokens, oldest first. Numbers are given out in sequence, so a token is found by its distance from
/// the oldest one. Bounded by what the pool can issue within a token's time to live.
#[derive(Clone, Debug, Default)]
#[cfg_attr(damper_model, derive(PartialEq, Eq, Hash))]
pub(crate) struct Leases {
    /// [`None`] once returned.
    live: VecDeque<Option<Lease>>,
    first: u64,
    expired_retries: u64,
}

/// A granted token.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(damper_model, derive(Hash))]
pub(crate) struct Lease {
    pub(crate) tenant: TenantKey,
    pub(crate) kind: Kind,
    /// What the pool was paid; zero for a token that it did not pay for.
    pub(crate) cost: MicroTokens,
    pub(crate) expires: Moment,
    /// The request that it answered.
    pub(crate) answer_key: Option<AnswerKey>,
}

impl Leases {
    /// Books a token.
    pub(crate) fn grant(&mut self, lease: Lease) -> TokenId {
        let number = self.first + self.live.len() as u64;
        self.live.push_back(Some(lease));
        TokenId::from_number(number)
    }

    /// Ends a token that is alive and was not returned before.
    pub(crate) fn give_back(&mut self, now: Moment, token: TokenId) -> Option<Lease> {
        let place = usize::try_from(token.number().checked_sub(self.first)?).ok()?;
        self.live.get_mut(place)?.take_if(|lease| now < lease.expires)
    }

    /// Notes which request a token answers.
    pub(crate) fn answers(&mut self, token: TokenId, key: AnswerKey) {
        let place = token.number().checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        if let Some(Some(lease)) = place.and_then(|place| self.live.get_mut(place)) {
            lease.answer_key = Some(key);
        }
    }

    /// Forgets what has expired.
    pub(crate) fn advance(&mut self, now: Moment) {
        while let Some(oldest) = self.live.front()
            && oldest.as_ref().is_none_or(|lease| now >= lease.expires)
        {
            let retry = oldest.as_ref().is_some_and(|lease| lease.kind == Kind::Retry);
            self.expired_retries += u64::from(retry);
            self.live.pop_front();
            self.first += 1;
        }
    }

    /// Tokens for retries that lived out their time: their attempts have started, or never will.
    pub(crate) const fn expired_retries(&self) -> u64 {
        self.expired_retries
    }

    /// Tokens that are out.
    pub(crate) fn outstanding(&self) -> u64 {
        self.live.iter().flatten().count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::Tenants;

    fn lease(expires: Moment) -> Lease {
        let tenant = Tenants::default().key(Moment::ORIGIN, "t", |_| false);
        Lease { tenant, kind: Kind::Retry, cost: MicroTokens::ONE, expires, answer_key: None }
    }

    #[test]
    fn a_token_comes_back_once_and_in_time() {
        let mut leases = Leases::default();
        let (early, late) = (Moment::from_millis(100), Moment::from_millis(200));
        let first = leases.grant(lease(early));
        let second = leases.grant(lease(late));
        assert_ne!(first, second);
        assert_eq!(leases.give_back(Moment::ORIGIN, first), Some(lease(early)));
        assert_eq!(leases.give_back(Moment::ORIGIN, first), None, "twice");
        assert_eq!(leases.give_back(late, second), None, "too late");
        assert_eq!(leases.outstanding(), 1);
        leases.advance(late);
        assert_eq!((leases.outstanding(), leases.expired_retries()), (0, 1));
        assert_eq!(leases.give_back(Moment::ORIGIN, second), None, "forgotten");
        assert_ne!(leases.grant(lease(late)), second, "a number is never used again");
    }

    #[test]
    fn numbers_that_nobody_was_given_are_unknown() {
        let mut leases = Leases::default();
        for number in [0, 1, u64::MAX] {
            assert_eq!(leases.give_back(Moment::ORIGIN, TokenId::from_number(number)), None);
        }
    }
}
