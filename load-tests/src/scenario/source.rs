//! Where scenarios come from.

use std::fmt::Write as _;
use std::path::Path;

use super::{Scenario, check};

/// A scenario that is part of the binary: name and text.
pub type Embedded = (&'static str, &'static str);

macro_rules! embedded {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),+]
    };
}

/// The scenarios that storms were made for.
pub const STORMS: [Embedded; 3] = embedded!["chapter-r2", "incident-0312", "server-killed"];

/// The scenarios that drills were made for.
pub const DRILLS: [Embedded; 21] = embedded![
    "c1-outage",
    "c2-tenth-fails",
    "c3-roomy",
    "c3-tight",
    "c4-spike-1",
    "c4-spike-2",
    "c4-spike-3",
    "c4-spike-4",
    "c7-server-killed",
    "c7-partial-outage",
    "c7-ramp",
    "c8-fairness",
    "c8-lending",
    "c9-half-open",
    "c10-nested",
    "c10-foreign-layer",
    "r9-wrong-answers",
    "r9-poison",
    "brown-out",
    "slow-failures",
    "lossy-link",
];

/// All of them.
pub fn embedded() -> impl Iterator<Item = Embedded> {
    STORMS.into_iter().chain(DRILLS)
}

/// Why there is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Neither the name of an embedded scenario nor a file.
    #[error("no scenario `{wanted}`: it is not one of {known}, and as a file it cannot be read: {source}")]
    Unreadable {
        /// What was asked for.
        wanted: String,
        /// The names of the embedded ones.
        known: String,
        /// What the file system said.
        source: std::io::Error,
    },
    /// Not TOML, or not the TOML of a scenario.
    #[error("scenario {place}: {source}")]
    Syntax {
        /// File or name.
        place: String,
        /// Line, column and fault.
        source: Box<toml::de::Error>,
    },
    /// Values that make no sense.
    #[error("scenario {place}:{faults}")]
    Values {
        /// File or name.
        place: String,
        /// One line for each, naming its key.
        faults: String,
    },
}

/// Loads an embedded scenario by its name, or a file.
///
/// # Errors
/// Says what is wrong and where.
pub fn load(wanted: &str) -> Result<Scenario, ScenarioError> {
    if let Some((name, text)) = embedded().find(|(name, _)| *name == wanted) {
        return parse(name, text);
    }
    let text = std::fs::read_to_string(Path::new(wanted)).map_err(|source| ScenarioError::Unreadable {
        wanted: wanted.to_owned(),
        known: embedded().map(|(name, _)| name).collect::<Vec<_>>().join(", "),
        source,
    })?;
    parse(wanted, &text)
}

/// Reads a scenario from text; `place` is where the text came from.
///
/// # Errors
/// Says what is wrong and where.
pub fn parse(place: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let scenario: Scenario = toml::from_str(text)
        .map_err(|source| ScenarioError::Syntax { place: place.to_owned(), source: Box::new(source) })?;
    let faults = check::faults(&scenario);
    if faults.is_empty() {
        return Ok(scenario);
    }
    let faults = faults.iter().fold(String::new(), |mut lines, fault| {
        let _ = write!(lines, "\n  {fault}");
        lines
    });
    Err(ScenarioError::Values { place: place.to_owned(), faults })
}
