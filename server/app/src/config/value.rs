//! Values as they are written, whatever they are written in.

use std::fmt::{self, Display};

use damper_protocol::name_fault;
use toml::de::DeValue;

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

/// What is wrong with a value or a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// For machines.
    pub(super) code: &'static str,
    /// For people, with the remedy.
    pub(super) message: String,
}

impl Wrong {
    /// It is of another kind.
    pub(super) fn kind(value: &Value, give: impl Display) -> Self {
        Self { code: "wrong_type", message: format!("is {value}; give {give}") }
    }

    /// It is of the kind, and cannot be.
    pub(super) fn range(value: &Value, give: impl Display) -> Self {
        Self { code: "out_of_range", ..Self::kind(value, give) }
    }

    /// It is not one of the texts that can be.
    pub(super) fn word(value: &Value, give: impl Display) -> Self {
        let code = if matches!(value, Value::Text(_)) { "unknown_value" } else { "wrong_type" };
        Self { code, ..Self::kind(value, give) }
    }

    /// The name of a `what` that cannot be one; [`None`] if it can.
    pub(super) fn name(what: &str, name: &str) -> Option<Self> {
        let message = format!("cannot be the name of a {what}: it {}", name_fault(name)?);
        Some(Self { code: "invalid_name", message })
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Whole(number) => write!(f, "{number}"),
            // With its fraction even if that is zero: it may be what is wrong.
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Section => f.write_str("a section"),
            Self::Other(kind) => f.write_str(kind),
        }
    }
}

impl From<&DeValue<'_>> for Value {
    fn from(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.to_string()),
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
                .map_or(Self::Other("a number beyond all bounds"), Self::Whole),
            DeValue::Float(number) => number.as_str().parse().map_or(Self::Other("no number"), Self::Number),
            DeValue::Boolean(flag) => Self::Flag(*flag),
            DeValue::Datetime(_) => Self::Other("a date"),
            DeValue::Array(_) => Self::Other("a list"),
            DeValue::Table(_) => Self::Section,
        }
    }
}

impl From<&serde_json::Value> for Value {
    fn from(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Other("null"),
            serde_json::Value::Bool(flag) => Self::Flag(*flag),
            serde_json::Value::Number(number) => match (number.as_i128(), number.as_f64()) {
                (Some(whole), _) => Self::Whole(whole),
                (None, Some(number)) => Self::Number(number),
                (None, None) => Self::Other("a number beyond all bounds"),
            },
            serde_json::Value::String(text) => Self::Text(text.clone()),
            serde_json::Value::Array(_) => Self::Other("a list"),
            serde_json::Value::Object(_) => Self::Section,
        }
    }
}

/// A variable's or a flag's text: a number or a flag if it reads like one.
impl From<&str> for Value {
    fn from(text: &str) -> Self {
        let whole = || text.parse().ok().map(Self::Whole);
        let flag = || text.parse().ok().map(Self::Flag);
        let number = || text.parse().ok().map(Self::Number);
        whole().or_else(flag).or_else(number).unwrap_or_else(|| Self::Text(text.to_owned()))
    }
}
