//! Where scenarios come from.

use std::fmt::Write as _;
use std::path::Path;

use super::{Scenario, check};

/// The scenarios that are part of the binary: name and text.
pub const EMBEDDED: [(&str, &str); 3] = [
    ("chapter-r2", include_str!("../../scenarios/chapter-r2.toml")),
    ("incident-0312", include_str!("../../scenarios/incident-0312.toml")),
    ("server-killed", include_str!("../../scenarios/server-killed.toml")),
];

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
    if let Some((name, text)) = EMBEDDED.iter().find(|(name, _)| *name == wanted) {
        return parse(name, text);
    }
    let text = std::fs::read_to_string(Path::new(wanted)).map_err(|source| ScenarioError::Unreadable {
        wanted: wanted.to_owned(),
        known: EMBEDDED.map(|(name, _)| name).join(", "),
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
