//! Counts over the last while, in slices.

use std::collections::VecDeque;
use std::time::Duration;

/// A sum over a sliding window of so many slices.
#[derive(Debug)]
pub(super) struct Window {
    slice: Duration,
    slices: VecDeque<(u128, f64)>,
    most: u128,
    sum: f64,
}

impl Window {
    pub(super) fn new(length: Duration, slices: u32) -> Self {
        Self { slice: length / slices, slices: VecDeque::new(), most: slices.into(), sum: 0.0 }
    }

    pub(super) fn add(&mut self, now: Duration, amount: f64) {
        let index = self.expire(now);
        match self.slices.back_mut() {
            Some((last, sum)) if *last == index => *sum += amount,
            _ => self.slices.push_back((index, amount)),
        }
        self.sum += amount;
    }

    pub(super) fn sum(&mut self, now: Duration) -> f64 {
        self.expire(now);
        self.sum
    }

    fn expire(&mut self, now: Duration) -> u128 {
        let index = now.as_nanos() / self.slice.as_nanos().max(1);
        while let Some((oldest, amount)) = self.slices.front().copied()
            && oldest + self.most <= index
        {
            self.slices.pop_front();
            self.sum -= amount;
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut window = Window::new(Duration::from_secs(10), 10);
        let at = Duration::from_millis;
        window.add(at(500), 3.0);
        window.add(at(900), 1.0);
        window.add(at(9_500), 5.0);
        assert_eq!(window.sum(at(9_999)), 9.0);
        assert_eq!(window.sum(at(10_000)), 5.0);
        assert_eq!(window.sum(at(1_000_000_000)), 0.0);
    }
}
