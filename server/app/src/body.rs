//! Bodies, bounded in size, depth and time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;
use tokio::time::timeout;

use crate::problem::Fault;
use crate::shape::{Message, faults};

/// How long a body may take, however steadily it drips.
const ARRIVES_WITHIN: Duration = Duration::from_secs(10);
/// Deepest nesting of objects and lists.
const DEEPEST: usize = 16;

/// A message that was read whole and is sound.
pub(crate) struct Sound<M>(pub(crate) M);

impl<M: Message, S: Sync> FromRequest<S> for Sound<M> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &S) -> Result<Self, Fault> {
        parse(&json_of(request, M::MOST_BYTES).await?).map(Self)
    }
}

/// Any JSON that was read whole.
pub(crate) struct AnyJson(pub(crate) Value);

impl AnyJson {
    const MOST_BYTES: usize = 64 * 1024;
}

impl<S: Sync> FromRequest<S> for AnyJson {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &S) -> Result<Self, Fault> {
        let body = json_of(request, Self::MOST_BYTES).await?;
        check_depth(&body)?;
        value(&body).map(Self)
    }
}

/// A body that says it is JSON.
async fn json_of(request: Request, most: usize) -> Result<Bytes, Fault> {
    let (head, body) = request.into_parts();
    if !is_json(&head.headers) {
        return Err(Fault::NotJson);
    }
    if declared_length(&head.headers).is_some_and(|length| length > most) {
        return Err(Fault::TooLarge(most));
    }
    read(body, most).await
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let essence = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    let (top, sub) = essence.split_once('/').unwrap_or_default();
    let suffixed = |sub: &str| sub.rsplit_once('+').map(|(_, suffix)| suffix.to_ascii_lowercase());
    top.eq_ignore_ascii_case("application")
        && (sub.eq_ignore_ascii_case("json") || suffixed(sub).is_some_and(|suffix| suffix == "json"))
}

fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn read(body: Body, most: usize) -> Result<Bytes, Fault> {
    let whole = timeout(ARRIVES_WITHIN, Limited::new(body, most).collect()).await;
    match whole.map_err(|_| Fault::TooSlow)? {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Fault::TooLarge(most)),
        Err(_) => Err(Fault::Malformed("the body broke off; send all of it".to_owned())),
    }
}

/// Reads a message. A sound one is read once; only one that is not is looked at field by field.
fn parse<M: Message>(body: &[u8]) -> Result<M, Fault> {
    check_depth(body)?;
    if count(body, |byte| byte == b'[') > M::ARRAYS || body.trim_ascii_start().first() != Some(&b'{') {
        diagnose::<M>(body)?;
    }
    match serde_json::from_slice::<M>(body) {
        Ok(message) if message.is_sound() => Ok(message),
        Ok(_) => Err(fault_of::<M>(body, "a field is out of its range")),
        Err(error) => Err(fault_of::<M>(body, &error.to_string())),
    }
}

fn fault_of<M: Message>(body: &[u8], otherwise: &str) -> Fault {
    diagnose::<M>(body).err().unwrap_or_else(|| Fault::Malformed(otherwise.to_owned()))
}

fn diagnose<M: Message>(body: &[u8]) -> Result<(), Fault> {
    let faults = faults(M::SHAPE, &value(body)?);
    if faults.is_empty() { Ok(()) } else { Err(Fault::Invalid(faults)) }
}

fn value(body: &[u8]) -> Result<Value, Fault> {
    serde_json::from_slice(body).map_err(|error| Fault::Malformed(error.to_string()))
}

fn check_depth(body: &[u8]) -> Result<(), Fault> {
    // Counting is quicker than following, and nearly always enough.
    if count(body, |byte| matches!(byte, b'[' | b'{')) > DEEPEST && depth(body) > DEEPEST {
        return Err(Fault::Malformed(format!("it nests too deep; send at most {DEEPEST} levels")));
    }
    Ok(())
}

fn count(body: &[u8], is: impl Fn(u8) -> bool) -> usize {
    body.iter().filter(|byte| is(**byte)).count()
}

/// The deepest nesting of objects and lists.
fn depth(body: &[u8]) -> usize {
    let (mut deepest, mut depth, mut in_text, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in body {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_text = !in_text,
            (false, b'{' | b'[') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests;
