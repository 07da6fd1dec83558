//! What an incoming request says about retries and time.

use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use super::{CONTEXT, Context, baggage, foreign, joined, timeouts};
use crate::Scope;

/// The way here took some of the time.
const HOP: Duration = Duration::from_millis(5);

/// What a request says about retries and time. Read it only from callers that are trusted to say so: whoever sets
/// these headers decides how often this service retries.
///
/// ```
/// use damper_client::Inbound;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let headers = http::HeaderMap::new();
/// let inbound = Inbound::from_headers(&headers);
/// let answer = inbound.scope().run(async { "all operations in here are nested" }).await;
/// # assert_eq!(answer, "all operations in here are nested");
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbound {
    context: Option<Context>,
    end: Option<Instant>,
    foreign_attempts: u32,
    malformed: u32,
}

impl Inbound {
    /// Reads `Damper-Context`, or else the baggage; the least of `Damper-Timeout-Ms`, `grpc-timeout`,
    /// `x-envoy-expected-rq-timeout-ms`, `Connect-Timeout-Ms` and `x-stainless-timeout`, less 5 ms for the way;
    /// and the attempt headers of other layers. What cannot be read is ignored and [counted](Self::malformed).
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let (left, mut malformed) = timeouts::read(headers);
        let context = context(headers).unwrap_or_else(|()| {
            malformed = malformed.saturating_add(1);
            None
        });
        let ours = context.as_ref().map_or(0, |context| context.attempt.saturating_sub(1));
        Self {
            // What no clock can reach is no limit.
            end: left.and_then(|left| Instant::now().checked_add(left.saturating_sub(HOP))),
            foreign_attempts: foreign::of_request(headers).saturating_sub(ours),
            context,
            malformed,
        }
    }

    /// The same with no more than so much time.
    #[must_use]
    pub fn capped(self, most: Duration) -> Self {
        let cap = Instant::now().checked_add(most);
        Self { end: self.end.into_iter().chain(cap).min(), ..self }
    }

    /// Who owns the retries, if somebody does.
    #[must_use]
    pub const fn context(&self) -> Option<&Context> {
        self.context.as_ref()
    }

    /// The time that is left, if it is limited. Zero: the request is not worth starting.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// How many attempts of this request another layer, one that does not know damper, made before this one.
    #[must_use]
    pub const fn foreign_attempts(&self) -> u32 {
        self.foreign_attempts
    }

    /// Headers that could not be read. The first dependency that is called in its [scope](Self::scope)
    /// [counts](crate::Dependency::unread_headers) them.
    #[must_use]
    pub const fn malformed(&self) -> u32 {
        self.malformed
    }

    /// The scope in which to serve the request.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope::inbound(self.context.clone(), self.end, self.foreign_attempts, self.malformed)
    }
}

fn context(headers: &HeaderMap) -> Result<Option<Context>, ()> {
    match joined(headers, &CONTEXT) {
        Some(text) => text.ok().and_then(|text| Context::parse(&text)).map(Some).ok_or(()),
        None => baggage::read(headers),
    }
}
