//! What one attempt may know about itself, and say about itself.

use std::{fmt, sync::Arc, time::Duration};

use damper_protocol::Dispatch;
use http::{
    HeaderMap, HeaderValue,
    header::{self, Entry},
};
use tokio::time::Instant;

use crate::{
    Idempotency, KeyError, Scope,
    clock::Moment,
    context::{self, Context},
    operation::Life,
    policy::key,
    scope::Place,
    wire::ms_down,
};

/// One attempt of an operation, as its closure sees it. Cheap to clone.
#[derive(Clone)]
pub struct Attempt {
    pub(crate) life: Arc<Life>,
    /// 0 before the first.
    pub(crate) number: u32,
    /// When it is cut off.
    pub(crate) end: Option<Moment>,
}

impl Attempt {
    /// Its number, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The time that is left for it; it is cut off after that. A connection of [`Profile::stream`] without a
    /// deadline has [`Duration::MAX`].
    ///
    /// [`Profile::stream`]: crate::Profile::stream
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.left().unwrap_or(Duration::MAX)
    }

    fn left(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_sub(self.life.core().clock.now()))
    }

    /// When it is cut off.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.end.map(|end| self.life.core().clock.instant(end))
    }

    /// What calls from it carry, if somebody owns their retries.
    pub(crate) fn context(&self) -> Option<Context> {
        self.life.context(self.number)
    }

    /// Whether somebody owns the retries of what it calls.
    pub(crate) fn is_claimed(&self) -> bool {
        self.life.claims()
    }

    /// Whether the client is more than inert.
    #[cfg(any(feature = "tower", feature = "reqwest-middleware"))]
    pub(crate) fn is_on(&self) -> bool {
        self.life.is_on()
    }

    /// Attempts that foreign layers have made before the request that it serves.
    pub(crate) fn foreign_attempts(&self) -> u32 {
        self.life.outer().map_or(0, Scope::foreign_attempts)
    }

    /// Notes that something in it has spent retries of its own.
    pub(crate) fn spend(&self) {
        self.life.spend(self.number);
    }

    /// The key by which the dependency recognises a repeat, the same for every attempt; `None` unless the
    /// operation is [`Idempotency::Keyed`].
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&str> {
        match &self.life.idempotency {
            Idempotency::Keyed(key) => Some(key),
            _ => None,
        }
    }

    /// Sets `Idempotency-Key` to the [key](Self::idempotency_key), as a quoted string, unless there is one already. Does
    /// nothing if the operation has no key. Call it in every attempt of a keyed operation whose requests are made by
    /// hand: without the header the dependency takes a repeat for a new request.
    ///
    /// ```
    /// use damper_client::{Damper, Failure, Idempotency};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let payments = Damper::inert().dependency("payments");
    /// let charge = payments.operation("charge").idempotency(Idempotency::keyed("order-42")).call(|attempt| async move {
    ///     let mut headers = http::HeaderMap::new();
    ///     attempt.inject_key(&mut headers)?;
    ///     assert_eq!(headers["idempotency-key"], "\"order-42\"");
    ///     Ok::<_, damper_client::KeyError>(())
    /// });
    /// # assert!(charge.await.is_ok());
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the key is empty or not printable ASCII. It ends the operation.
    pub fn inject_key(&self, headers: &mut HeaderMap) -> Result<(), KeyError> {
        if let Idempotency::Keyed(key) = &self.life.idempotency
            && let Entry::Vacant(place) = headers.entry(key::HEADER)
        {
            place.insert(key::quoted(key)?);
        }
        Ok(())
    }

    /// The same key as a value for the header `Idempotency-Key`: a quoted string, as its draft has it. `None` too for a
    /// key that cannot be sent so, because it is empty or not printable ASCII: [`inject_key`](Self::inject_key) makes an
    /// error of it. Services that want it bare are sent [the key](Self::idempotency_key) itself.
    #[must_use]
    pub fn idempotency_header(&self) -> Option<HeaderValue> {
        match &self.life.idempotency {
            Idempotency::Keyed(key) => key::quoted(key).ok(),
            _ => None,
        }
    }

    /// Its scope, for tasks that it spawns: what it calls itself is inside already.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope::attempt(self.clone())
    }

    /// Tells the dependency who retries and how much time is left: sets `Damper-Context`, `Damper-Timeout-Ms` and
    /// a `baggage` member. On a gRPC request (by its `Content-Type`) also `grpc-timeout`, and from the second
    /// attempt on `grpc-previous-rpc-attempts`. The time is never said to be 0: it is at least 1 ms. A shorter
    /// `grpc-timeout` that is there already stays.
    ///
    /// Call it for dependencies that are yours: some public services reject headers that they do not know. An
    /// [inert](crate::Damper::inert) client sets nothing. The key of an operation is another matter: see
    /// [`inject_key`](Self::inject_key).
    pub fn inject(&self, headers: &mut HeaderMap) {
        if !self.life.is_on() {
            return;
        }
        if let Some(context) = self.context()
            && !context.inject(headers)
        {
            self.life.core().baggage_skipped.up();
        }
        let left = self.left();
        if let Some(left) = left {
            context::inject_timeout(left, headers);
        }
        let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        if kind.starts_with(b"application/grpc") {
            self.inject_grpc(left, headers);
        }
    }

    fn inject_grpc(&self, left: Option<Duration>, headers: &mut HeaderMap) {
        let grpc_timeout = |left| HeaderValue::try_from(format!("{}m", ms_down(left).clamp(1, 99_999_999)));
        let own = context::grpc_timeout(headers);
        let shorter = left.filter(|left| own.is_none_or(|own| *left < own));
        if let Some(Ok(value)) = shorter.map(grpc_timeout) {
            headers.insert("grpc-timeout", value);
        }
        if self.number > 1 {
            headers.insert("grpc-previous-rpc-attempts", HeaderValue::from(self.number.saturating_sub(1)));
        }
    }

    /// Reads from the head of a response, whether it is a success or not, if a proxy in between has made attempts
    /// of its own (`x-envoy-attempt-count`). They are counted as `foreign`, and the operation makes fewer.
    pub fn note_response(&self, headers: &HeaderMap) {
        self.life.saw_foreign(context::foreign_attempts_of_response(headers));
    }

    /// Says whether this attempt can have had an effect, if its code knows better than its error will tell. Of no
    /// effect once the attempt has ended.
    pub fn note_dispatch(&self, dispatch: Dispatch) {
        self.life.note_dispatch(self.number, dispatch);
    }

    /// Says that a connection of [`Profile::stream`](crate::Profile::stream) has brought something: the next wait
    /// is a short one again. Of no effect elsewhere.
    pub fn progressed(&self) {
        self.life.progress(self.number);
    }
}

impl Place for Attempt {
    fn scope(&self) -> Scope {
        Self::scope(self)
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("number", &self.number).field("remaining", &self.remaining()).finish()
    }
}
