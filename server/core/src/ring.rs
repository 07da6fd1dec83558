//! Counts over a sliding window, in slots of equal length, with closed-form expiry.

use crate::{Moment, Span, Totals};

/// A sum that forgets. Covers the running slot and the whole slots before it: between `slots - 1` and `slots`
/// slot lengths. Advancing costs at most one visit of each slot, however long the gap.
#[derive(Clone, Debug)]
#[cfg_attr(damper_model, derive(PartialEq, Eq, Hash))]
pub(crate) struct Ring<T> {
    slots: Box<[T]>,
    slot: Span,
    newest: u64,
}

/// What a ring can hold.
pub(crate) trait Countable: Copy + Default {
    /// Adds `other` to this count.
    fn add(&mut self, other: &Self);
}

impl Countable for Totals {
    fn add(&mut self, other: &Self) {
        Totals::add(self, other);
    }
}

impl<T: Countable> Ring<T> {
    /// A ring over `window`, in `slots` slots; at least one of at least a nanosecond.
    pub(crate) fn new(now: Moment, window: Span, slots: usize) -> Self {
        let count = slots.max(1);
        let slot = Span::from_nanos((window.as_nanos() / count as u64).max(1));
        let mut ring = Self { slots: vec![T::default(); count].into(), slot, newest: 0 };
        ring.newest = ring.number(now);
        ring
    }

    pub(crate) fn add(&mut self, now: Moment, count: &T) {
        self.advance(now);
        let place = self.place(self.newest);
        if let Some(slot) = self.slots.get_mut(place) {
            slot.add(count);
        }
    }

    pub(crate) fn sum(&mut self, now: Moment) -> T {
        self.advance(now);
        self.slots.iter().fold(T::default(), |mut sum, slot| {
            sum.add(slot);
            sum
        })
    }

    pub(crate) fn clear(&mut self) {
        self.slots.fill(T::default());
    }

    fn advance(&mut self, now: Moment) {
        let number = self.number(now);
        let passed = number.saturating_sub(self.newest).min(self.slots.len() as u64);
        for back in 0..passed {
            let place = self.place(number - back);
            if let Some(slot) = self.slots.get_mut(place) {
                *slot = T::default();
            }
        }
        self.newest = self.newest.max(number);
    }

    fn number(&self, now: Moment) -> u64 {
        now.as_nanos() / self.slot.as_nanos()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder of the slot count, which is a usize")]
    fn place(&self, number: u64) -> usize {
        (number % self.slots.len() as u64) as usize
    }
}

/// The windows that people read: ten seconds, one minute, five minutes.
#[derive(Clone, Debug)]
pub(crate) struct Windows([(&'static str, Span, Ring<Totals>); 3]);

impl Windows {
    pub(crate) fn new(now: Moment) -> Self {
        let window = |name, seconds, slots| {
            let length = Span::from_secs(seconds);
            (name, length, Ring::new(now, length, slots))
        };
        Self([window("10s", 10, 10), window("1m", 60, 12), window("5m", 300, 10)])
    }

    pub(crate) fn add(&mut self, now: Moment, difference: &Totals) {
        for (_, _, ring) in &mut self.0 {
            ring.add(now, difference);
        }
    }

    /// Each window's name, its length, and what is in it.
    pub(crate) fn sums(&mut self, now: Moment) -> [(&'static str, Span, Totals); 3] {
        self.0.each_mut().map(|(name, length, ring)| (*name, *length, ring.sum(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Countable for u64 {
        fn add(&mut self, other: &Self) {
            *self += other;
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment::ORIGIN.after(Span::from_secs(seconds))
    }

    #[test]
    fn a_count_is_in_the_sum_until_its_slot_leaves_the_window() {
        let mut ring = Ring::new(at(100), Span::from_secs(10), 10);
        ring.add(at(100), &1);
        ring.add(at(105), &2);
        assert_eq!(ring.sum(at(109)), 3);
        assert_eq!(ring.sum(at(110)), 2);
        assert_eq!(ring.sum(at(115)), 0);
    }

    #[test]
    fn years_of_idleness_and_time_that_runs_back_are_harmless() {
        let mut ring = Ring::new(at(1), Span::from_secs(10), 10);
        ring.add(at(1), &7);
        assert_eq!(ring.sum(Moment::NEVER), 0);
        ring.add(at(1), &5);
        assert_eq!(ring.sum(Moment::NEVER), 5, "counted in the newest slot");
    }

    #[test]
    fn a_window_shorter_than_its_slots_still_works() {
        let mut ring = Ring::new(Moment::ORIGIN, Span::ZERO, 0);
        ring.add(Moment::ORIGIN, &1);
        assert_eq!(ring.sum(Moment::ORIGIN), 1);
        assert_eq!(ring.sum(Moment::from_nanos(1)), 0);
    }
}
