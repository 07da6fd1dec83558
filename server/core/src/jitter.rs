//! A small seeded source of spread. It decides nothing that anyone could gain from guessing.

use crate::Span;

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
#[cfg_attr(damper_model, derive(PartialEq, Eq, Hash))]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Between `span` and 1.1 times `span`.
    pub(crate) fn up_by_a_tenth(&mut self, span: Span) -> Span {
        span.scaled(1_000_000 + self.next() % 100_001, 1_000_000)
    }

    /// Between half of `span` and one and a half times `span`.
    pub(crate) fn around(&mut self, span: Span) -> Span {
        span.scaled(500_000 + self.next() % 1_000_001, 1_000_000)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
