//! Every dependency of an engine, by name and by place.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use damper_core::{Dependency, Moment, Policy};

use super::Entry;
use crate::{EngineError, Settings, Unknown};

/// The dependencies, and the settings that say what becomes of the others.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) settings: Settings,
    named: BTreeMap<Arc<str>, Arc<Entry>>,
    /// Tokens carry the place of their dependency. A place is never given away again: a token of a dependency
    /// that was forgotten must not be taken for another's.
    placed: HashMap<usize, Arc<Entry>>,
    next_place: usize,
    /// Above every version that a breaker of a dependency which was forgotten has had.
    first_version: u64,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            named: BTreeMap::new(),
            placed: HashMap::new(),
            next_place: 0,
            first_version: 1,
        }
    }
}

impl Table {
    pub(super) fn get(&self, name: &str) -> Option<Arc<Entry>> {
        self.named.get(name).cloned()
    }

    pub(super) fn at(&self, place: usize) -> Option<Arc<Entry>> {
        self.placed.get(&place).cloned()
    }

    /// In the order of their names.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.named.values()
    }

    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.named.keys().cloned().collect()
    }

    pub(super) fn is_full(&self) -> bool {
        self.named.len() >= self.settings.most_dependencies
    }

    /// Of the dependencies that came with somebody's ask or report, the one that was used least recently, if
    /// that is before `moment`.
    pub(super) fn idlest(&self, moment: Moment) -> Option<Arc<str>> {
        let used = |entry: &Arc<Entry>| Moment::from_nanos(entry.used.load(Ordering::Relaxed));
        let unasked = |entry: &&Arc<Entry>| {
            !self.settings.dependencies.contains_key(&*entry.name)
                && used(entry) <= moment
                && *entry.guarded.lock().dependency.policy() == self.settings.defaults
        };
        self.named
            .values()
            .filter(unasked)
            .min_by_key(|entry| used(entry))
            .map(|entry| Arc::clone(&entry.name))
    }

    /// The policy of a dependency that is about to be made because somebody named it.
    pub(super) fn policy_of_unknown(&self) -> Result<Arc<Policy>, EngineError> {
        match self.settings.unknown {
            Unknown::Refuse => Err(EngineError::UnknownDependency),
            Unknown::Create => Ok(Arc::clone(&self.settings.defaults)),
        }
    }

    pub(super) const fn next_place(&self) -> usize {
        self.next_place
    }

    /// Adds the entry that `make` makes of its place.
    pub(super) fn add(&mut self, make: impl FnOnce(usize) -> Entry) -> Arc<Entry> {
        let place = self.next_place;
        self.next_place += 1;
        let entry = Arc::new(make(place));
        self.named.insert(Arc::clone(&entry.name), Arc::clone(&entry));
        self.placed.insert(place, Arc::clone(&entry));
        entry
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<Entry>> {
        let entry = self.named.remove(name)?;
        self.placed.remove(&entry.place);
        Some(entry)
    }

    /// A dependency that nobody has used. Its breaker's version is above that of any that had its name before.
    pub(super) fn fresh(&self, now: Moment, policy: &Arc<Policy>, seed: u64) -> Dependency {
        Dependency::new(now, Arc::clone(policy), seed).counting_from(self.first_version)
    }

    /// Notes the versions of a dependency that is forgotten.
    pub(super) fn outdate(&mut self, gone: &Dependency) {
        self.first_version = self.first_version.max(gone.highest_version().saturating_add(1));
    }
}
