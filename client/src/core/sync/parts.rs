//! How the reports about all dependencies are cut into requests that the server takes.

use std::{collections::BTreeSet, sync::Arc};

use super::{DependencyState, TOO_LARGE};
use crate::transport::Fault;

/// After so many syncs that were taken whole, a request may hold an eighth more. What was too large need not be so for
/// ever: a proxy's limit is raised, long names are gone. Finding out costs one refused request a minute at most.
const GROWS_AFTER: u32 = 60;

/// How reports are cut. Whoever holds it may sync: one at a time.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Most dependencies in one request: as many as there are, until the server finds that too large.
    most_in_part: usize,
    /// Those whose reports were too large alone: they go alone, so that the others need not.
    apart: BTreeSet<Arc<str>>,
    /// Syncs taken whole since that last changed.
    taken: u32,
}

impl Default for Parts {
    fn default() -> Self {
        Self { most_in_part: usize::MAX, apart: BTreeSet::new(), taken: 0 }
    }
}

impl Parts {
    /// Puts those last that go alone; returns how many others there are.
    pub(super) fn sort(&self, dependencies: &mut [Arc<DependencyState>]) -> usize {
        dependencies.sort_by_key(|dependency| self.apart.contains(&dependency.name));
        dependencies.partition_point(|dependency| !self.apart.contains(&dependency.name))
    }

    /// How many of those `left` the next request is about, if the last of them go alone.
    pub(super) fn next(&self, left: usize, alone: usize) -> usize {
        let together = left.saturating_sub(alone).min(self.most_in_part);
        together.max(1).min(left)
    }

    /// A request about these was too large. True if a smaller one may do.
    pub(super) fn shrink(&mut self, refused: &[Arc<DependencyState>]) -> bool {
        match refused {
            [] => false,
            [alone] => {
                self.set_apart(alone);
                false
            }
            several => {
                (self.most_in_part, self.taken) = (several.len() / 2, 0);
                true
            }
        }
    }

    /// The others may have been refused for its sake alone. Of what its report holds, only results of probes can be
    /// left out: the server does without.
    fn set_apart(&mut self, alone: &DependencyState) {
        let probes = alone.forget_probes();
        if self.apart.insert(Arc::clone(&alone.name)) {
            (self.most_in_part, self.taken) = (usize::MAX, 0);
            tracing::warn!(
                target: "damper",
                dependency = &*alone.name,
                dropped_probes = probes,
                "the server finds the report about this dependency too large; it is sent apart from now on"
            );
        }
    }

    /// A sync is over, in which so many went `together`.
    pub(super) fn taken(&mut self, together: usize, fault: Option<Fault>) {
        let others_taken = fault.is_none_or(|fault| fault == TOO_LARGE);
        if !others_taken || (self.most_in_part >= together && self.apart.is_empty()) {
            return;
        }
        self.taken += 1;
        if self.taken >= GROWS_AFTER {
            self.taken = 0;
            self.most_in_part = self.most_in_part.saturating_add((self.most_in_part / 8).max(1));
            if fault.is_none() {
                self.apart.clear();
            }
        }
    }
}
