//! What messages have to look like, as tables, and what is wrong with one that does not.
//!
//! Only a message that could not be taken is looked at here, so this may be slow; it names every wrong field at
//! once. What a field's word, number or name may be stands in one place for all messages that have the field.

mod messages;

use damper_protocol::problem::InvalidField;
use serde_json::{Map, Value};

pub(crate) use messages::Message;

use crate::problem::{invalid, invalid_name};

/// Most faults of one message that are named: a megabyte of nonsense is not worth twenty of explanation.
pub(crate) const MOST_FAULTS: usize = 1000;
/// Longest part of a pointer that repeats what the peer sent.
const LONGEST_PART: usize = 128;

/// What a JSON object has to look like. Fields that are not listed are ignored.
pub(crate) struct Shape {
    fields: &'static [Field],
    also: fn(&Map<String, Value>) -> Option<Missing>,
}

/// What a rule that binds several fields misses: its pointer, and why it is needed.
type Missing = (&'static str, &'static str);

struct Field {
    name: &'static str,
    presence: Presence,
    rule: Rule,
}

#[derive(Clone, Copy, PartialEq)]
enum Presence {
    Required,
    /// May be left out, but not null.
    Defaulted,
    /// May be left out or null.
    Optional,
}

enum Rule {
    /// 1 to 128 bytes of printable text.
    Name,
    Text,
    Flag,
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    Whole {
        least: u64,
        most: u64,
    },
    /// A number of at least zero.
    Rate,
    Object(&'static Shape),
    List(&'static Shape),
    /// A list of counts.
    Counts,
    /// Objects by name.
    Named(&'static Shape),
}

/// A number of things that have happened.
const COUNT: Rule = Rule::Whole { least: 0, most: u64::MAX };

/// Everything that is wrong with `value`, in the order of the table.
pub(crate) fn faults(shape: &Shape, value: &Value) -> Vec<InvalidField> {
    let mut finder = Finder::default();
    finder.object(shape, value);
    finder.faults
}

/// Walks a message and notes what is wrong.
#[derive(Default)]
struct Finder {
    pointer: String,
    faults: Vec<InvalidField>,
}

impl Finder {
    fn fault(&mut self, code: &str, detail: impl Into<String>) {
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(invalid(self.pointer.clone(), code, detail));
        }
    }

    fn wrong_type(&mut self, value: &Value, give: &str) {
        let is = match value {
            Value::Null => "null",
            Value::Bool(_) => "a flag",
            Value::Number(_) => "a number",
            Value::String(_) => "text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.fault("wrong_type", format!("is {is}; give {give}"));
    }

    /// Looks at a part, with the pointer of that part.
    fn at(&mut self, part: &str, look: impl FnOnce(&mut Self)) {
        let length = self.pointer.len();
        self.pointer.push('/');
        self.pointer.push_str(&escaped(part));
        look(self);
        self.pointer.truncate(length);
    }

    fn object(&mut self, shape: &Shape, value: &Value) {
        let Value::Object(object) = value else { return self.wrong_type(value, "an object") };
        for field in shape.fields {
            self.at(field.name, |finder| finder.field(field, object.get(field.name)));
        }
        if let Some((path, detail)) = (shape.also)(object) {
            let pointer = format!("{}{path}", self.pointer);
            if !self.faults.iter().any(|fault| fault.pointer == pointer) {
                self.faults.push(invalid(pointer, "missing", detail));
            }
        }
    }

    fn field(&mut self, field: &Field, value: Option<&Value>) {
        match (value, field.presence) {
            (None, Presence::Required) => self.fault("missing", "is required"),
            (None, _) | (Some(Value::Null), Presence::Optional) => {}
            (Some(value), _) => self.value(&field.rule, value),
        }
    }

    fn value(&mut self, rule: &Rule, value: &Value) {
        match (rule, value) {
            (Rule::Name, Value::String(name)) => {
                let fault = invalid_name(self.pointer.clone(), name);
                self.faults.extend(fault.filter(|_| self.faults.len() < MOST_FAULTS));
            }
            (Rule::Text, Value::String(_)) | (Rule::Flag, Value::Bool(_)) => {}
            (Rule::Word(words), Value::String(word)) => self.word(&words(), word),
            (Rule::Whole { least, most }, Value::Number(number)) => self.whole(*least, *most, number),
            (Rule::Rate, Value::Number(number)) => self.rate(number),
            (Rule::Object(shape), _) => self.object(shape, value),
            (Rule::List(shape), Value::Array(list)) => {
                for (place, value) in list.iter().enumerate() {
                    self.at(&place.to_string(), |finder| finder.object(shape, value));
                }
            }
            (Rule::Counts, Value::Array(list)) => {
                for (place, value) in list.iter().enumerate() {
                    self.at(&place.to_string(), |finder| finder.value(&COUNT, value));
                }
            }
            (Rule::Named(shape), Value::Object(object)) => self.named(shape, object),
            (rule, value) => self.wrong_type(value, rule.give()),
        }
    }

    fn named(&mut self, shape: &Shape, object: &Map<String, Value>) {
        for (name, value) in object {
            self.at(name, |finder| {
                finder.faults.extend(invalid_name(finder.pointer.clone(), name));
                finder.object(shape, value);
            });
        }
    }

    fn word(&mut self, words: &[&str], word: &str) {
        if !words.contains(&word) {
            self.fault("unknown_value", format!("is not a word of this list: {}", words.join(", ")));
        }
    }

    fn whole(&mut self, least: u64, most: u64, number: &serde_json::Number) {
        match number.as_u64() {
            Some(whole) if (least..=most).contains(&whole) => {}
            None if number.is_f64() && number.as_f64().is_some_and(|number| number.abs() < 1e18) => {
                self.fault(
                    "wrong_type",
                    format!("is {number}; give a whole number, written without a fraction"),
                );
            }
            _ => self.fault("out_of_range", format!("is {number}; give {least} to {most}")),
        }
    }

    fn rate(&mut self, number: &serde_json::Number) {
        if !number.as_f64().is_some_and(|rate| rate >= 0.0 && rate.is_finite()) {
            self.fault("out_of_range", format!("is {number}; give 0 or more"));
        }
    }
}

impl Rule {
    const fn give(&self) -> &'static str {
        match self {
            Self::Name | Self::Text | Self::Word(_) => "text",
            Self::Flag => "true or false",
            Self::Whole { .. } => "a whole number",
            Self::Rate => "a number",
            Self::Object(_) | Self::Named(_) => "an object",
            Self::List(_) | Self::Counts => "a list",
        }
    }
}

/// A JSON Pointer (RFC 6901) of these parts.
pub(crate) fn pointer<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    parts.map(|part| format!("/{}", escaped(part))).collect()
}

/// A part of a JSON Pointer, shortened if the peer made it long.
fn escaped(part: &str) -> String {
    shortened(part).replace('~', "~0").replace('/', "~1")
}

/// What the peer sent, shortened if it is long.
pub(crate) fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST_PART);
    let short = text.get(..end).unwrap_or_default();
    if end < text.len() { format!("{short}...") } else { short.to_owned() }
}

#[cfg(test)]
mod tests;
