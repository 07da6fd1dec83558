//! Mistakes of a configuration.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// Where it was written: `damper.toml:12`, a variable or a flag.
    pub origin: String,
    /// The key, part by part; empty if the text is not TOML.
    pub place: Vec<String>,
    /// What is wrong, and the remedy.
    pub message: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, place, message } = self;
        match place.join(".").as_str() {
            "" => write!(f, "{origin}: {message}"),
            place => write!(f, "{origin}: {place} {message}"),
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}; check the path and its permissions", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It has mistakes.
    #[error("{}", listed(.0))]
    Faults(Vec<ConfigFault>),
}

impl ConfigError {
    /// Every mistake; none if the file cannot be read.
    #[must_use]
    pub fn faults(&self) -> &[ConfigFault] {
        match self {
            Self::Unreadable { .. } => &[],
            Self::Faults(faults) => faults,
        }
    }
}

fn listed(faults: &[ConfigFault]) -> String {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
