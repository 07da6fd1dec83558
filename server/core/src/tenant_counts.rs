//! What one tenant came to, in few bytes: a server keeps a hundred thousand of them.

use crate::{Class, Totals, Verdict};

/// Counts of one tenant, since it got its place or, of all together, since the dependency was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantCounts {
    /// Asks by their outcome, in the order of [`Verdict::ALL`]; in shadow mode, what it would have been.
    pub decided: [u64; Verdict::ALL.len()],
    /// Operations started.
    pub logical: u64,
    /// Attempts started.
    pub physical: u64,
    /// Operations whose first attempt failed.
    pub affected: u64,
    /// Operations that succeeded after at least one failure.
    pub recovered: u64,
    /// Failed attempts by class, in the order of [`Class::ALL`].
    pub failures: [u64; Class::ALL.len()],
}

impl TenantCounts {
    /// Both together.
    pub fn add(&mut self, other: &Self) {
        self.merge(other, u64::saturating_add);
    }

    /// What `self` has above `before`, count by count; never negative.
    #[must_use]
    pub fn above(&self, before: &Self) -> Self {
        let mut difference = *self;
        difference.merge(before, u64::saturating_sub);
        difference
    }

    /// Whether no count is lower than in `before`.
    #[must_use]
    pub fn continues(&self, before: &Self) -> bool {
        before.above(self) == Self::default()
    }

    /// Asks and attempts: who is busy.
    #[must_use]
    pub fn activity(&self) -> u64 {
        self.decided.iter().fold(self.physical, |sum, count| sum.saturating_add(*count))
    }

    pub(crate) fn count_decision(&mut self, verdict: Verdict) {
        if let Some(count) = self.decided.get_mut(verdict.index()) {
            *count += 1;
        }
    }

    pub(crate) fn count_report(&mut self, reported: &Totals) {
        let Totals { logical, physical, affected, recovered, failures, .. } = *reported;
        self.add(&Self { decided: [0; _], logical, physical, affected, recovered, failures });
    }

    fn merge(&mut self, other: &Self, with: impl Fn(u64, u64) -> u64) {
        let Self { decided, logical, physical, affected, recovered, failures } = self;
        let scalars = [
            (logical, other.logical),
            (physical, other.physical),
            (affected, other.affected),
            (recovered, other.recovered),
        ];
        let lists = decided.iter_mut().zip(other.decided).chain(failures.iter_mut().zip(other.failures));
        for (mine, theirs) in lists.chain(scalars) {
            *mine = with(*mine, theirs);
        }
    }
}

/// One tenant among those of a [`TenantUsage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow {
    /// Its name.
    pub name: Box<str>,
    /// What it came to. It starts again at nothing if the tenant lost its place by being idle.
    pub counts: TenantCounts,
    /// Its asks that wait.
    pub waiting: u64,
}

/// What the tenants of one dependency came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantUsage {
    /// Everyone who ever spent here, together.
    pub total: TenantCounts,
    /// All asks that wait.
    pub waiting: u64,
    /// Tenants that have a place now.
    pub count: u64,
    /// Those that were asked for.
    pub rows: Vec<TenantRow>,
}
