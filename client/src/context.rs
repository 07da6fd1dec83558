//! One retry owner: who retries is said in headers, so that nested layers do not multiply each other.
//!
//! Three layers of three attempts are twenty-seven calls of the lowest one. Only one layer must retry, and the
//! outermost is the only one that a request can tell all others about. Its context travels with each attempt;
//! who receives it makes one attempt and passes it on.

mod baggage;
mod dictionary;
mod foreign;
mod inbound;
mod timeouts;

pub(crate) use dictionary::string_item;
pub(crate) use foreign::of_response as foreign_attempts_of_response;
pub use inbound::Inbound;
pub(crate) use timeouts::grpc_timeout;

use std::{fmt::Write, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The context of the layer that owns the retries.
pub(crate) const CONTEXT: HeaderName = HeaderName::from_static("damper-context");

/// The time that is left, in milliseconds.
pub(crate) const TIMEOUT: HeaderName = HeaderName::from_static("damper-timeout-ms");

/// `no`: a layer further down has retried already.
const RETRY: HeaderName = HeaderName::from_static("damper-retry");

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Longest `Damper-Context` that is read, and longest name in it that is believed, in bytes.
const MAX_BYTES: usize = 1024;

/// Who owns the retries of a request, and how far down it has come.
///
/// On the wire: `Damper-Context: op="...", n=2, max=3, depth=1, owner="checkout"`, a structured-field dictionary
/// (RFC 9651); and `damper=<op>.<depth>.<owner>` in W3C baggage, which survives hops that know nothing of damper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    pub(crate) operation: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    pub(crate) depth: u32,
    pub(crate) owner: Arc<str>,
}

impl Context {
    /// The operation whose attempt this is.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// The number of the owner's attempt, from 1; 1 too if only baggage has come through.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How many attempts the owner may make.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// How many calls lie between the owner and here: 1 for the one that the owner calls.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// The owner's service, tenant or client id, for people.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// As it is passed on with a call.
    pub(crate) fn one_deeper(&self) -> Self {
        Self { depth: self.depth.saturating_add(1), ..self.clone() }
    }

    /// Reads the header, all its lines; [`None`] if it makes no sense.
    fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let members = dictionary::parse(text)?;
        let number = |key| members.iter().rev().find(|(name, _)| *name == key)?.1.as_u32();
        let string = |key| members.iter().rev().find(|(name, _)| *name == key)?.1.as_str();
        let operation = string("op").filter(|operation| !operation.is_empty())?;
        let attempt = number("n").filter(|attempt| *attempt > 0)?;
        Some(Self {
            operation: Arc::from(operation),
            attempt,
            max_attempts: number("max").unwrap_or(attempt).max(attempt),
            depth: number("depth").unwrap_or(1).max(1),
            owner: Arc::from(string("owner").unwrap_or_default()),
        })
    }

    /// Writes header and baggage. False if the baggage has no room for another member.
    pub(crate) fn inject(&self, headers: &mut HeaderMap) -> bool {
        let mut text = String::new();
        let _ = write!(text, "op={}", dictionary::quoted(&self.operation));
        let _ = write!(text, ", n={}, max={}, depth={}", self.attempt, self.max_attempts, self.depth);
        let _ = write!(text, ", owner={}", dictionary::quoted(&self.owner));
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(CONTEXT, value);
        }
        baggage::inject(self, headers)
    }
}

/// Writes how much time is left: never 0, which would mean that there is none.
pub(crate) fn inject_timeout(left: Duration, headers: &mut HeaderMap) {
    headers.insert(TIMEOUT, HeaderValue::from(crate::wire::ms_down(left).max(1)));
}

/// Marks the answer to a failed request as one that must not be retried: this layer, or one below it, has spent
/// the retries already. Sets `Damper-Retry: no` and `x-should-retry: false`, which other clients understand.
///
/// ```
/// let mut headers = http::HeaderMap::new();
/// damper_client::refuse_retries(&mut headers);
/// let failure = damper_client::Failure::from_http(http::StatusCode::BAD_GATEWAY, &headers);
/// assert!(failure.is_some_and(|failure| failure.do_not_retry));
/// ```
pub fn refuse_retries(headers: &mut HeaderMap) {
    headers.insert(RETRY, HeaderValue::from_static("no"));
    headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
}

/// What the answer to a failed request says about retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directive {
    /// `Some(false)` forbids them, `Some(true)` calls the failure transient.
    pub(crate) retry: Option<bool>,
    /// Headers that say nothing: junk, and those that contradict each other.
    pub(crate) unread: u32,
}

/// Nothing is said by junk and by contradictions.
pub(crate) fn retry_directive(headers: &HeaderMap) -> Directive {
    let (mut yes_said, mut no_said, mut junk) = (0_u32, 0_u32, 0_u32);
    let words = [(RETRY, "yes", "no"), (SHOULD_RETRY, "true", "false")];
    let stripe = (HeaderName::from_static("stripe-should-retry"), "true", "false");
    for (name, yes, no) in words.into_iter().chain([stripe]) {
        for value in headers.get_all(name) {
            let value = value.as_bytes().trim_ascii();
            let count = match () {
                () if value.eq_ignore_ascii_case(yes.as_bytes()) => &mut yes_said,
                () if value.eq_ignore_ascii_case(no.as_bytes()) => &mut no_said,
                () => &mut junk,
            };
            *count = count.saturating_add(1);
        }
    }
    match (yes_said, no_said) {
        (0, 0) => Directive { retry: None, unread: junk },
        (0, _) => Directive { retry: Some(false), unread: junk },
        (_, 0) => Directive { retry: Some(true), unread: junk },
        _ => Directive { retry: None, unread: junk.saturating_add(yes_said).saturating_add(no_said) },
    }
}

/// All lines of a header as one list, if they are text.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<Result<String, http::header::ToStrError>> {
    let mut lines = headers.get_all(name).iter().map(HeaderValue::to_str).peekable();
    lines.peek()?;
    Some(lines.collect::<Result<Vec<&str>, _>>().map(|lines| lines.join(",")))
}

#[cfg(test)]
mod tests;
