//! Where settings come from. Each source becomes a list of leaves, and later leaves win: the file, then the
//! environment, then flags.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::faults::{ConfigError, ConfigFault};
use super::reader::SECTIONS;
use super::value::Value;
use super::{Config, reader};

/// What every variable of the environment starts with. Only those of a section are read here: others, such as
/// `DAMPER_ENDPOINT`, belong to clients.
pub(super) const PREFIX: &str = "DAMPER_";
/// Between the parts of a key in a variable.
pub(super) const JOINT: &str = "__";
/// OpenTelemetry's own variables for the endpoint, the one for traces alone first. They count where no key says
/// anything.
const OTEL: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// The key that says the same.
const ENDPOINT: [&str; 2] = ["telemetry", "otlp_endpoint"];

/// One value and where it was written.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) path: Vec<String>,
    pub(super) value: Value,
    pub(super) origin: String,
}

/// Where a [`Config`] comes from. Kept with it, so that the same can be read again.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<Source>);

#[derive(Clone, Debug)]
enum Source {
    File(PathBuf),
    Toml { name: String, text: String },
    Environment(BTreeMap<String, String>),
    Flag { flag: String, path: Vec<String>, text: String },
}

impl Sources {
    /// Adds the file, if there is one.
    #[must_use]
    pub fn with_file(self, path: Option<&Path>) -> Self {
        match path {
            Some(path) => self.with(Source::File(path.to_owned())),
            None => self,
        }
    }

    /// Adds TOML; `name` says where it is from.
    #[must_use]
    pub fn with_toml(self, name: &str, text: &str) -> Self {
        self.with(Source::Toml { name: name.to_owned(), text: text.to_owned() })
    }

    /// Adds the variables that set keys, such as `DAMPER_SERVER__LISTEN`, and OpenTelemetry's own for the
    /// endpoint of traces; others are ignored.
    #[must_use]
    pub fn with_environment(self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let ours = variables
            .into_iter()
            .filter(|(name, _)| name.starts_with(PREFIX) || OTEL.contains(&name.as_str()));
        self.with(Source::Environment(ours.collect()))
    }

    /// Adds a flag of the command line that sets the key `path`.
    #[must_use]
    pub fn with_flag(self, flag: &str, path: &[&str], text: &str) -> Self {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        self.with(Source::Flag { flag: flag.to_owned(), path, text: text.to_owned() })
    }

    fn with(mut self, source: Source) -> Self {
        self.0.push(source);
        self
    }

    /// The configuration that the sources come to.
    ///
    /// # Errors
    /// The file cannot be read, or every mistake of every source.
    pub fn read(&self) -> Result<Config, ConfigError> {
        self.read_beside(None)
    }

    /// The same, for a server that runs with the configuration `running`.
    pub(super) fn read_beside(&self, running: Option<&Config>) -> Result<Config, ConfigError> {
        let mut written = Written::default();
        for source in &self.0 {
            written.add(source)?;
        }
        if let Some(leaf) = self.otel_endpoint()
            && !written.leaves.iter().any(|leaf| leaf.path == ENDPOINT)
        {
            written.leaves.push(leaf);
        }
        let mut config = reader::read(&written.leaves, written.faults, running)?;
        config.sources = self.clone();
        Ok(config)
    }
}

impl Sources {
    /// What OpenTelemetry's own variables say, as a leaf of ours.
    fn otel_endpoint(&self) -> Option<Leaf> {
        let environments = self.0.iter().filter_map(|source| match source {
            Source::Environment(variables) => Some(variables),
            Source::File(_) | Source::Toml { .. } | Source::Flag { .. } => None,
        });
        let found = OTEL.iter().find_map(|name| {
            let text = environments.clone().find_map(|variables| variables.get(*name))?;
            Some((name, text)).filter(|(_, text)| !text.is_empty())
        });
        let path = ENDPOINT.map(str::to_owned).into();
        found.map(|(name, text)| Leaf { path, value: text.as_str().into(), origin: (*name).to_owned() })
    }
}

/// What the sources say.
#[derive(Default)]
struct Written {
    leaves: Vec<Leaf>,
    faults: Vec<ConfigFault>,
}

impl Written {
    fn add(&mut self, source: &Source) -> Result<(), ConfigError> {
        match source {
            Source::File(path) => {
                let text = fs::read_to_string(path)
                    .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
                self.add_toml(&path.display().to_string(), &text);
            }
            Source::Toml { name, text } => self.add_toml(name, text),
            Source::Environment(variables) => {
                for (name, text) in variables {
                    if let Some(path) = self.path_of(name) {
                        self.leaves.push(Leaf { path, value: text.as_str().into(), origin: name.clone() });
                    } else if let Some(fault) = single_joint(name) {
                        self.faults.push(fault);
                    }
                }
            }
            Source::Flag { flag, path, text } => {
                let (path, value) = (path.clone(), text.as_str().into());
                self.leaves.push(Leaf { path, value, origin: flag.clone() });
            }
        }
        Ok(())
    }

    fn add_toml(&mut self, name: &str, text: &str) {
        let (table, errors) = DeTable::parse_recoverable(text);
        let origin = |span: Range<usize>| format!("{name}:{}", line(text, span.start));
        if errors.is_empty() {
            flatten(&origin, &mut Vec::new(), table.get_ref(), &mut self.leaves);
        }
        self.faults.extend(errors.into_iter().map(|error| ConfigFault {
            origin: error.span().map_or_else(|| name.to_owned(), origin),
            place: Vec::new(),
            message: format!("is not TOML: {}", error.message()),
        }));
    }

    /// The key that a variable sets. Variables are in capitals, so a part is spelt as in a leaf before, if that
    /// differs in nothing else.
    fn path_of(&self, variable: &str) -> Option<Vec<String>> {
        let parts: Vec<&str> = variable.strip_prefix(PREFIX)?.split(JOINT).collect();
        let is_key = parts.len() > 1;
        let spelt = |(depth, part): (usize, &&str)| {
            let before = self.leaves.iter().filter_map(|leaf| leaf.path.get(depth));
            let known = before.into_iter().find(|known| known.eq_ignore_ascii_case(part));
            known.cloned().unwrap_or_else(|| part.to_ascii_lowercase())
        };
        is_key.then(|| parts.iter().enumerate().map(spelt).collect())
    }
}

/// A variable that names a section, but not as one.
fn single_joint(variable: &str) -> Option<ConfigFault> {
    let rest = variable.strip_prefix(PREFIX)?.to_ascii_lowercase();
    let section = SECTIONS
        .iter()
        .find(|section| rest.strip_prefix(**section).is_some_and(|key| key.starts_with('_')))?;
    let message = format!(
        "is not a key: parts are joined by two underscores, as in {PREFIX}{}{JOINT}...",
        section.to_ascii_uppercase()
    );
    Some(ConfigFault { origin: variable.to_owned(), place: Vec::new(), message })
}

fn line(text: &str, at: usize) -> usize {
    text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
}

fn flatten(
    origin: &impl Fn(Range<usize>) -> String,
    path: &mut Vec<String>,
    table: &DeTable<'_>,
    leaves: &mut Vec<Leaf>,
) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(table) if !table.is_empty() => flatten(origin, path, table, leaves),
            found => {
                let origin = origin(key.span());
                leaves.push(Leaf { path: path.clone(), value: found.into(), origin });
            }
        }
        path.pop();
    }
}
