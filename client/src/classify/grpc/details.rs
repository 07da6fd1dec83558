//! The pause in a rich gRPC status: `google.rpc.Status`, its details, `google.rpc.RetryInfo`, its `Duration`.
//!
//! The messages are read by hand, field by field: four nested messages are no reason for a protobuf compiler in
//! every service. All lengths are checked against what is there.

use std::time::Duration;

use http::HeaderValue;

/// Longest header that is read.
const MOST: usize = 16 * 1024;

const RETRY_INFO: &[u8] = b"google.rpc.RetryInfo";

/// The longest delay of all `RetryInfo`s in the header, if it can be read and is not negative.
pub(super) fn retry_delay(header: &HeaderValue) -> Option<Duration> {
    let status = decoded(header.as_bytes())?;
    let delays = fields(&status).filter_map(|field| match field {
        (3, Value::Bytes(detail)) => delay_of_detail(detail),
        _ => None,
    });
    delays.max()
}

fn delay_of_detail(detail: &[u8]) -> Option<Duration> {
    let kind = bytes(detail, 1)?.rsplit(|byte| *byte == b'/').next()?;
    if kind != RETRY_INFO {
        return None;
    }
    let delay = bytes(bytes(detail, 2)?, 1)?;
    let (seconds, nanos) = (number(delay, 1), number(delay, 2));
    Some(Duration::new(seconds?, u32::try_from(nanos?).ok().filter(|nanos| *nanos < 1_000_000_000)?))
}

/// The last field of this number that has bytes.
fn bytes(message: &[u8], wanted: u64) -> Option<&[u8]> {
    let found = fields(message).filter_map(|(number, value)| match value {
        Value::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    });
    found.last()
}

/// The last field of this number; 0 if there is none, `None` if it is negative.
fn number(message: &[u8], wanted: u64) -> Option<u64> {
    let found = fields(message).filter_map(|(number, value)| match value {
        Value::Number(value) if number == wanted => Some(value),
        _ => None,
    });
    Some(found.last().unwrap_or(0)).filter(|number| i64::try_from(*number).is_ok())
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a kind that no wanted field has.
    Other,
}

/// The fields up to the first that cannot be read.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    std::iter::from_fn(move || {
        let key = varint(&mut message)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut message)?),
            1 => take(&mut message, 8).map(|_| Value::Other)?,
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                Value::Bytes(take(&mut message, length)?)
            }
            5 => take(&mut message, 4).map(|_| Value::Other)?,
            _ => return None,
        };
        Some((key >> 3, value))
    })
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some(head)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for place in 0..10 {
        let byte = *take(message, 1)?.first()?;
        number |= u64::from(byte & 0x7f).checked_shl(place * 7).unwrap_or(0);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Base64, with its padding or without.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    if text.len() > MOST {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    for group in text.chunks(4) {
        let mut bits = 0_u32;
        for byte in group {
            bits = (bits << 6) | sextet(*byte)?;
        }
        let count = group.len() * 6 / 8;
        let all = (bits << (6 * (4 - group.len()))).to_be_bytes();
        bytes.extend(all.iter().skip(1).take(count));
    }
    Some(bytes)
}

fn sextet(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}
