//! Places on a page that is bounded. Whoever comes first has one for as long as it lives, so that no counter ever
//! moves between a row of its own and the row of the others.

use std::collections::BTreeSet;

/// Gives away places, the lowest first, for as many bytes of the page as there are.
#[derive(Debug)]
pub(super) struct Places {
    free: BTreeSet<usize>,
    next: usize,
    bytes_left: usize,
}

/// A place, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    number: usize,
    bytes: usize,
}

impl Place {
    /// No place: every family counts it among the others.
    pub(super) const NONE: Self = Self { number: usize::MAX, bytes: 0 };

    /// Whether it is among the first `most`.
    pub(super) const fn is_within(self, most: usize) -> bool {
        self.number < most
    }
}

impl Places {
    pub(super) const fn new(bytes: usize) -> Self {
        Self { free: BTreeSet::new(), next: 0, bytes_left: bytes }
    }

    /// A place for something that takes `bytes` of the page, if so many are left.
    pub(super) fn take(&mut self, bytes: usize) -> Place {
        let Some(left) = self.bytes_left.checked_sub(bytes) else { return Place::NONE };
        self.bytes_left = left;
        let number = self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        Place { number, bytes }
    }

    /// Takes a place back.
    pub(super) fn give_back(&mut self, place: Place) {
        if place != Place::NONE {
            self.bytes_left += place.bytes;
            self.free.insert(place.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_come_have_the_first_places_and_what_is_given_back_is_given_away_again() {
        let mut places = Places::new(100);
        let [first, second, third] = [40, 40, 40].map(|bytes| places.take(bytes));
        assert!(first.is_within(1) && second.is_within(2) && !second.is_within(1));
        assert_eq!(third, Place::NONE);
        places.give_back(third);
        places.give_back(first);
        assert_eq!(places.take(60), Place { number: 0, bytes: 60 });
        assert_eq!(places.take(1), Place::NONE);
    }
}
