//! Integer amounts that carry their unit in the type.
//!
//! No float reaches a stored amount: rates and shares are parsed once, at the edge, and everything after is
//! exact. All arithmetic saturates, so no input can wrap or panic.

/// Nanoseconds in a millisecond.
pub(crate) const NANOS_PER_MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub(crate) const NANOS_PER_S: u64 = 1_000_000_000;
/// Micro-tokens in a token.
pub(crate) const MICROS_PER_TOKEN: u64 = 1_000_000;
/// Parts per million in a whole.
pub(crate) const PPM: u64 = 1_000_000;

/// A moment on the caller's monotonic clock: nanoseconds since an origin that the caller chose.
///
/// Range 584 years. A moment that lies before one already seen is treated as that one: time never runs back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The origin.
    pub const ORIGIN: Self = Self(0);
    /// Later than every moment that can come.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment `ms` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(NANOS_PER_MS))
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This moment and `span` later.
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The time since `earlier`; zero if that lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The time from `now` until this moment; zero if it has passed.
    #[must_use]
    pub const fn from_now(self, now: Self) -> Span {
        self.since(now)
    }
}

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// One second.
    pub const SECOND: Self = Self(NANOS_PER_S);

    /// `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// `ms` milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(NANOS_PER_MS))
    }

    /// `s` seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(NANOS_PER_S))
    }

    /// In nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// In whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / NANOS_PER_MS
    }

    /// In whole milliseconds, rounded up: a wait of so long is never too short.
    #[must_use]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(NANOS_PER_MS)
    }

    /// The difference, or zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `numerator / denominator` of this span, rounded down; a denominator of zero counts as one.
    #[must_use]
    pub fn scaled(self, numerator: u64, denominator: u64) -> Self {
        let scaled = u128::from(self.0) * u128::from(numerator) / u128::from(denominator.max(1));
        Self(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

/// An amount of tokens in millionths of a token. One token starts one attempt of cost 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroTokens(u64);

impl MicroTokens {
    /// No tokens.
    pub const ZERO: Self = Self(0);
    /// One token.
    pub const ONE: Self = Self(MICROS_PER_TOKEN);

    /// `tokens` whole tokens.
    #[must_use]
    pub const fn from_tokens(tokens: u64) -> Self {
        Self(tokens.saturating_mul(MICROS_PER_TOKEN))
    }

    /// `micros` millionths of a token.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// In millionths of a token.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The sum, at most the largest amount.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// For people and metrics only.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    pub const fn as_tokens(self) -> f64 {
        self.0 as f64 / MICROS_PER_TOKEN as f64
    }
}

/// A rate in millionths of an event per second: tokens of a pool, attempts of a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicrosPerSecond(u64);

impl MicrosPerSecond {
    /// Nothing ever.
    pub const ZERO: Self = Self(0);
    /// The largest rate that a policy may name: a thousand million per second.
    pub const MAX: Self = Self(1_000_000_000 * MICROS_PER_TOKEN);

    /// `per_s` whole events per second.
    #[must_use]
    pub const fn from_per_s(per_s: u64) -> Self {
        Self(per_s.saturating_mul(MICROS_PER_TOKEN))
    }

    /// `micros` millionths of an event per second.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// In millionths of an event per second.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// What a second of this rate amounts to.
    #[must_use]
    pub const fn in_one_second(self) -> MicroTokens {
        MicroTokens(self.0)
    }

    /// The difference, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The sum, at most the largest rate.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// This rate times a share, rounded down to a millionth.
    #[must_use]
    pub fn times(self, share: Ppm) -> Self {
        Self(scale(self.0, u64::from(share.0), PPM))
    }

    /// For people and metrics only.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    pub const fn as_per_s(self) -> f64 {
        self.0 as f64 / MICROS_PER_TOKEN as f64
    }
}

/// A share or a ratio in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppm(u32);

impl Ppm {
    /// None of it.
    pub const ZERO: Self = Self(0);
    /// All of it.
    pub const ONE: Self = Self(1_000_000);

    /// `ppm` parts per million.
    #[must_use]
    pub const fn new(ppm: u32) -> Self {
        Self(ppm)
    }

    /// What this ratio has above one.
    #[must_use]
    pub(crate) const fn beyond_one(self) -> Self {
        Self(self.0.saturating_sub(Self::ONE.0))
    }

    /// In parts per million.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether `part` is at least this share of `whole`, without rounding. Never of nothing.
    #[must_use]
    pub fn reached_by(self, part: u64, whole: u64) -> bool {
        whole > 0 && u128::from(part) * u128::from(PPM) >= u128::from(whole) * u128::from(self.0)
    }

    /// Whether `part` is more than this share of `whole`, without rounding. Never of nothing.
    #[must_use]
    pub fn exceeded_by(self, part: u64, whole: u64) -> bool {
        u128::from(part) * u128::from(PPM) > u128::from(whole) * u128::from(self.0)
    }

    /// For people and metrics only.
    #[must_use]
    pub const fn as_f64(self) -> f64 {
        self.0 as f64 / PPM as f64
    }
}

/// `value * numerator / denominator` without overflow, rounded down.
pub(crate) fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_nothing_is_never_reached() {
        assert!(!Ppm::ZERO.reached_by(0, 0));
        assert!(Ppm::new(800_000).reached_by(16, 20));
        assert!(!Ppm::new(800_001).reached_by(16, 20));
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Moment::NEVER.after(Span::SECOND), Moment::NEVER);
        assert_eq!(Moment::ORIGIN.since(Moment::NEVER), Span::ZERO);
        assert_eq!(Span::from_millis(u64::MAX).as_nanos(), u64::MAX);
        assert_eq!(Span::from_nanos(u64::MAX).scaled(u64::MAX, 0).as_nanos(), u64::MAX);
    }
}
