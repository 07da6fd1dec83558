//! A provider's rate limit for an account: a sliding window over the requests of the last while.

use std::collections::VecDeque;
use std::time::Duration;

use crate::scenario::Account;

/// The limit and the requests that count at the moment.
#[derive(Debug)]
pub struct AccountLimit {
    most: usize,
    window: Duration,
    counts_refused: bool,
    counted: VecDeque<Duration>,
}

impl AccountLimit {
    /// An account that nobody has used yet.
    #[must_use]
    pub fn new(account: &Account) -> Self {
        let window = Duration::from_millis(account.window_ms);
        let most = crate::units::whole(account.per_s * window.as_secs_f64()).max(1);
        Self {
            most: usize::try_from(most).unwrap_or(usize::MAX),
            window,
            counts_refused: account.counts_refused,
            counted: VecDeque::new(),
        }
    }

    /// Takes a request at `now`.
    ///
    /// # Errors
    /// The request is over the limit; holds the Retry-After in seconds.
    pub fn take(&mut self, now: Duration) -> Result<(), u64> {
        while self.counted.front().is_some_and(|at| *at + self.window <= now) {
            self.counted.pop_front();
        }
        let over = self.counted.len() >= self.most;
        if !over || self.counts_refused {
            self.counted.push_back(now);
        }
        if over { Err(self.retry_after_s(now)) } else { Ok(()) }
    }

    /// When the window has room again if nobody sends until then, in whole seconds rounded up.
    fn retry_after_s(&self, now: Duration) -> u64 {
        let in_the_way = self.counted.len().saturating_sub(self.most);
        let free_at = self.counted.get(in_the_way).map_or(now, |at| *at + self.window);
        free_at.saturating_sub(now).as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(counts_refused: bool) -> AccountLimit {
        AccountLimit::new(&Account { per_s: 10.0, window_ms: 1000, counts_refused })
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_limit_holds_in_every_window_and_frees_as_it_slides() {
        let mut limit = limit(false);
        for ms in 0..10 {
            assert_eq!(limit.take(at(ms)), Ok(()));
        }
        assert_eq!(limit.take(at(500)), Err(1));
        assert_eq!(limit.take(at(999)), Err(1));
        assert_eq!(limit.take(at(1000)), Ok(()), "the first one has left the window");
        assert_eq!(limit.take(at(1000)), Err(1), "and only that one");
    }

    #[test]
    fn a_sender_above_the_limit_is_served_at_it_if_refusals_do_not_count_and_not_at_all_if_they_do() {
        let served = |counts_refused| {
            let mut limit = limit(counts_refused);
            (0..200).filter(|n| limit.take(at(n * 50)).is_ok()).count()
        };
        assert_eq!(served(false), 100, "10 of 20 per second over 10 s");
        assert_eq!(served(true), 10, "the first ten");
    }

    #[test]
    fn silence_heals_the_account() {
        let mut limit = limit(true);
        for _ in 0..100 {
            let _ = limit.take(at(0));
        }
        assert_eq!(limit.take(at(999)), Err(1));
        assert_eq!(limit.take(at(2000)), Ok(()));
    }

    #[test]
    fn retry_after_is_the_time_until_the_window_has_room() {
        let mut limit = AccountLimit::new(&Account { per_s: 1.0, window_ms: 5000, counts_refused: false });
        for ms in [0, 100, 200, 300, 400] {
            assert_eq!(limit.take(at(ms)), Ok(()));
        }
        assert_eq!(limit.take(at(500)), Err(5), "4.5 s, rounded up");
        assert_eq!(limit.take(at(4500)), Err(1));
    }
}
