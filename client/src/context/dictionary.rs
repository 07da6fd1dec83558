//! Dictionaries of structured fields (RFC 9651): strings and integers are understood, other items skipped.

use http::HeaderValue;

/// One value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    Integer(i64),
    String(String),
    Other,
}

impl Item {
    pub(super) fn as_u32(&self) -> Option<u32> {
        match self {
            Self::Integer(number) => u32::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }
}

/// Parses a whole field; nothing if any part of it is malformed.
pub(super) fn parse(text: &str) -> Option<Vec<(&str, Item)>> {
    let mut rest = text.trim_matches(' ');
    let mut members = Vec::new();
    while !rest.is_empty() {
        let (key, after) = key(rest)?;
        let (item, after) = match after.strip_prefix('=') {
            Some(after) => item(after)?,
            None => (Item::Other, after),
        };
        members.push((key, item));
        let after = parameters(after)?.trim_start_matches([' ', '\t']);
        if after.is_empty() {
            break;
        }
        rest = after.strip_prefix(',')?.trim_start_matches([' ', '\t']);
        if rest.is_empty() {
            return None;
        }
    }
    Some(members)
}

fn key(text: &str) -> Option<(&str, &str)> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
    let end = text.find(|c| !inner(c)).unwrap_or(text.len());
    let starts_well = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '*');
    (starts_well).then(|| text.split_at(end))
}

fn parameters(mut text: &str) -> Option<&str> {
    while let Some(after) = text.strip_prefix(';') {
        let (_, after) = key(after.trim_start_matches(' '))?;
        text = match after.strip_prefix('=') {
            Some(after) => item(after)?.1,
            None => after,
        };
    }
    Some(text)
}

fn item(text: &str) -> Option<(Item, &str)> {
    match text.chars().next()? {
        '"' => string(text),
        '-' | '0'..='9' => number(text),
        '?' => bare(text, |c| c == '?' || c == '0' || c == '1'),
        ':' => bare(text, |c| c == ':' || c == '=' || c == '+' || c == '/' || c.is_ascii_alphanumeric()),
        c if c.is_ascii_alphabetic() || c == '*' => {
            bare(text, |c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c))
        }
        _ => None,
    }
}

fn bare(text: &str, belongs: impl Fn(char) -> bool) -> Option<(Item, &str)> {
    let end = text.find(|c| !belongs(c)).unwrap_or(text.len());
    Some((Item::Other, text.get(end..)?))
}

fn number(text: &str) -> Option<(Item, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-' && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let digits = number.strip_prefix('-').unwrap_or(number);
    if digits.contains('.') {
        return digits.parse::<f64>().ok().map(|_| (Item::Other, rest));
    }
    let well_formed = (1..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    well_formed.then(|| number.parse().ok()).flatten().map(|number| (Item::Integer(number), rest))
}

fn string(text: &str) -> Option<(Item, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Item::String(value), text.get(at.saturating_add(1)..)?)),
            '\\' => value.push(chars.next().map(|(_, c)| c).filter(|c| "\"\\".contains(*c))?),
            ' '..='~' => value.push(c),
            _ => return None,
        }
    }
    None
}

/// The text as a string item that reads as the same text again, if one can hold it.
pub(crate) fn string_item(text: &str) -> Option<HeaderValue> {
    let holds = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    holds.then(|| HeaderValue::try_from(quoted(text)).ok()).flatten()
}

/// A string item. What it cannot hold becomes a question mark: it is only ever compared and shown.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len().saturating_add(2));
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            _ => quoted.push('?'),
        }
    }
    quoted.push('"');
    quoted
}
