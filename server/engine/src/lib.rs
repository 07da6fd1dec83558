//! Engines of damper: the pure core behind a lock, a clock and a timer.
//!
//! An engine keeps one [`Dependency`](damper_core::Dependency) per name, serialises access to it, answers asks
//! that waited when their time has come, and tells watchers what changed. [`MemoryEngine`] keeps everything in
//! this process: one `parking_lot` lock per dependency, held for one transition and never across an await.

mod memory;
mod token;

pub use memory::{Asking, Change, Configured, Decided, MemoryEngine, Ticket, Watched};

use std::collections::BTreeMap;
use std::sync::Arc;

use damper_core::{AskFault, Policy};

/// What an engine decides by.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The policy of dependencies that are not configured.
    pub defaults: Arc<Policy>,
    /// The configured dependencies.
    pub dependencies: BTreeMap<String, Arc<Policy>>,
    /// What becomes of an unknown dependency.
    pub unknown: Unknown,
    /// Most dependencies; an unknown one beyond it is refused. The configured ones always find a place.
    pub most_dependencies: usize,
}

impl Default for Settings {
    /// No configured dependency; up to 1000 unknown ones are made from the default policy.
    fn default() -> Self {
        Self {
            defaults: Arc::default(),
            dependencies: BTreeMap::new(),
            unknown: Unknown::Create,
            most_dependencies: 1000,
        }
    }
}

/// What becomes of an unknown dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It is made from the defaults.
    Create,
    /// It is refused.
    Refuse,
}

/// Why an engine could not decide. A refusal is not an error but a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The dependency is not configured, and unknown ones are refused.
    #[error("the dependency is not configured, and unknown dependencies are refused")]
    UnknownDependency,
    /// There are as many dependencies as the settings allow.
    #[error("there are as many dependencies as the server keeps")]
    TooManyDependencies,
    /// The ask can never be decided.
    #[error("the ask cannot be decided: {0:?}")]
    Ask(AskFault),
    /// The engine is going away.
    #[error("the engine is going away")]
    Stopped,
}
