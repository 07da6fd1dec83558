//! The names of dependencies: a bounded table of them.

use std::sync::{Arc, atomic::Ordering};

use super::{Core, DependencyState, MAX_DEPENDENCIES, Switch};

/// Most names that cannot be one and are logged.
const MAX_COMPLAINTS: usize = 100;

/// Most characters of such a name that are logged.
const SHOWN: usize = 128;

impl Core {
    /// The dependency of this name, or one of its own without retries where the table is full.
    pub(crate) fn dependency(&self, name: &str) -> Arc<DependencyState> {
        if let Some(known) = self.known_dependency(name) {
            return known;
        }
        let mut dependencies = self.dependencies.write();
        if let Some(known) = dependencies.get(name) {
            return Arc::clone(known);
        }
        if dependencies.len() >= MAX_DEPENDENCIES {
            drop(dependencies);
            return self.too_many(name);
        }
        let name: Arc<str> = Arc::from(name);
        let fresh = Arc::new(DependencyState::new(
            Arc::clone(&name),
            self.observer.clone(),
            self.switch == Switch::Observe,
            self.clock.now(),
        ));
        dependencies.insert(name, Arc::clone(&fresh));
        fresh
    }

    fn too_many(&self, name: &str) -> Arc<DependencyState> {
        if !self.full.swap(true, Ordering::Relaxed) {
            tracing::error!(
                target: "damper",
                name,
                most = MAX_DEPENDENCIES,
                "too many dependencies: this and all further ones get one attempt for each operation and are not \
                 reported; name them after downstreams, not after data"
            );
        }
        Arc::new(DependencyState::private(name, self.clock.now()))
    }

    /// A dependency of its own for a name that cannot be one. Said once for each name, for so many.
    pub(crate) fn misnamed(&self, name: &str, fault: &str) -> Arc<DependencyState> {
        let shown: String = name.chars().take(SHOWN).flat_map(char::escape_debug).collect();
        let mut said = self.misnamed.lock();
        if said.len() < MAX_COMPLAINTS && !said.contains(&shown) {
            tracing::error!(target: "damper", name = shown, "the dependency's name {fault}");
            said.insert(shown);
            if said.len() == MAX_COMPLAINTS {
                tracing::error!(target: "damper", "further names that cannot be one are not logged");
            }
        }
        Arc::new(DependencyState::private(name, self.clock.now()))
    }

    pub(super) fn known_dependency(&self, name: &str) -> Option<Arc<DependencyState>> {
        self.dependencies.read().get(name).map(Arc::clone)
    }
}
