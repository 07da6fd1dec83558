//! Where settings come from. Each source becomes a list of leaves, and later leaves win: the file, then the
//! environment, then flags.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::{fmt, fs};

use toml::de::{DeTable, DeValue};

use super::faults::{ConfigError, ConfigFault};
use super::{Config, reader};

/// What every variable of the environment starts with.
const PREFIX: &str = "DAMPER_";
/// Between the parts of a key in a variable.
const JOINT: &str = "__";
/// The sections that variables can set. Others, such as `DAMPER_ENDPOINT`, belong to clients.
const SECTIONS: [&str; 3] = ["server", "defaults", "dependencies"];

/// A value, as far as settings need to tell values apart.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Whole(i128),
    Number(f64),
    Flag(bool),
    /// A section without keys.
    Section,
    /// Something that no key takes.
    Other(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Section => f.write_str("a section"),
            Self::Other(kind) => f.write_str(kind),
        }
    }
}

/// One value and where it was written.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) path: Vec<String>,
    pub(super) value: Value,
    pub(super) origin: String,
}

/// Settings on their way into a [`Config`].
#[derive(Debug, Default)]
pub struct Sources {
    leaves: Vec<Leaf>,
    faults: Vec<ConfigFault>,
}

impl Sources {
    /// Adds the file, if there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn with_file(self, path: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path else { return Ok(self) };
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        Ok(self.with_toml(&path.display().to_string(), &text))
    }

    /// Adds TOML; `name` says where it is from.
    #[must_use]
    pub fn with_toml(mut self, name: &str, text: &str) -> Self {
        let (table, errors) = DeTable::parse_recoverable(text);
        let origin = |span: Range<usize>| format!("{name}:{}", line(text, span.start));
        if errors.is_empty() {
            flatten(&origin, &mut Vec::new(), table.get_ref(), &mut self.leaves);
        }
        self.faults.extend(errors.into_iter().map(|error| ConfigFault {
            origin: error.span().map_or_else(|| name.to_owned(), origin),
            place: String::new(),
            message: format!("is not TOML: {}", error.message()),
        }));
        self
    }

    /// Adds the variables that set keys, such as `DAMPER_SERVER__LISTEN`; others are ignored.
    #[must_use]
    pub fn with_environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let set: BTreeMap<String, String> =
            variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
        for (name, text) in set {
            if let Some(path) = self.path_of(&name) {
                self.leaves.push(Leaf { path, value: from_text(&text), origin: name });
            }
        }
        self
    }

    /// Adds a flag of the command line that sets the key `path`.
    #[must_use]
    pub fn with_flag(mut self, flag: &str, path: &[&str], text: &str) -> Self {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        self.leaves.push(Leaf { path, value: from_text(text), origin: flag.to_owned() });
        self
    }

    /// The configuration that the sources come to.
    ///
    /// # Errors
    /// Every mistake of every source.
    pub fn read(self) -> Result<Config, ConfigError> {
        reader::read(&self.leaves, self.faults)
    }

    /// The key that a variable sets. Variables are in capitals, so a part is spelt as in a leaf before, if that
    /// differs in nothing else.
    fn path_of(&self, variable: &str) -> Option<Vec<String>> {
        let parts: Vec<&str> = variable.strip_prefix(PREFIX)?.split(JOINT).collect();
        let is_key = parts.len() > 1
            && SECTIONS
                .iter()
                .any(|section| parts.first().is_some_and(|first| first.eq_ignore_ascii_case(section)));
        let spelt = |(depth, part): (usize, &&str)| {
            let before = self.leaves.iter().filter_map(|leaf| leaf.path.get(depth));
            let known = before.into_iter().find(|known| known.eq_ignore_ascii_case(part));
            known.cloned().unwrap_or_else(|| part.to_ascii_lowercase())
        };
        is_key.then(|| parts.iter().enumerate().map(spelt).collect())
    }
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
                leaves.push(Leaf { path: path.clone(), value: from_toml(found), origin });
            }
        }
        path.pop();
    }
}

fn from_toml(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Other("a number beyond all bounds"), Value::Whole),
        DeValue::Float(number) => number.as_str().parse().map_or(Value::Other("no number"), Value::Number),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(_) => Value::Other("a list"),
        DeValue::Table(_) => Value::Section,
    }
}

/// A variable's or a flag's text: a number or a flag if it reads like one.
fn from_text(text: &str) -> Value {
    let whole = || text.parse().ok().map(Value::Whole);
    let flag = || text.parse().ok().map(Value::Flag);
    let number = || text.parse().ok().map(Value::Number);
    whole().or_else(flag).or_else(number).unwrap_or_else(|| Value::Text(text.to_owned()))
}
