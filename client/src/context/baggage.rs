//! W3C baggage: the one member that is ours, among members that are not.

use std::{fmt::Write, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Context, joined};

const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

const KEY: &str = "damper";

/// What every implementation has to carry; whole members beyond it may be dropped.
const MAX_MEMBERS: usize = 64;
const MAX_BYTES: usize = 8192;

/// The first member that is ours; [`Err`] if it makes no sense.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<Context>, ()> {
    let Some(Ok(text)) = joined(headers, &BAGGAGE) else { return Ok(None) };
    let ours = text.split(',').find_map(value_of_ours);
    ours.map(|value| context(value).ok_or(())).transpose()
}

fn value_of_ours(member: &str) -> Option<&str> {
    let (key, value) = member.split(';').next()?.split_once('=')?;
    (key.trim() == KEY).then(|| value.trim())
}

fn context(value: &str) -> Option<Context> {
    let mut parts = value.splitn(3, '.');
    let operation = decoded(parts.next()?)?;
    let depth = parts.next()?.parse::<u32>().ok()?;
    let owner = decoded(parts.next()?)?;
    let operation = Some(operation).filter(|operation| !operation.is_empty())?;
    Some(Context {
        operation: Arc::from(operation),
        attempt: 1,
        max_attempts: 1,
        depth: depth.max(1),
        owner: Arc::from(owner),
    })
}

/// Puts ours in front of the other members, in place of an older one. False if there is no room.
pub(super) fn inject(context: &Context, headers: &mut HeaderMap) -> bool {
    let others = match joined(headers, &BAGGAGE) {
        Some(Ok(others)) => others,
        Some(Err(_)) => return false,
        None => String::new(),
    };
    let (operation, owner) = (encoded(&context.operation), encoded(&context.owner));
    let mut text = format!("{KEY}={operation}.{}.{owner}", context.depth);
    let mut members = 1_usize;
    let foreign = |member: &&str| !member.trim().is_empty() && value_of_ours(member).is_none();
    for member in others.split(',').filter(foreign) {
        text.extend([",", member.trim()]);
        members = members.saturating_add(1);
    }
    let fits = members <= MAX_MEMBERS && text.len() <= MAX_BYTES;
    match HeaderValue::try_from(text) {
        Ok(value) if fits => {
            headers.insert(BAGGAGE, value);
            true
        }
        _ => false,
    }
}

/// Percent-encodes all but letters, digits, `-` and `_`: the dot separates our parts.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'_' => encoded.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => encoded.push(char::from(byte)),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)?.checked_mul(16)?.checked_add(hex(rest.next()?)?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|text| text.len() <= super::MAX_BYTES)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
