//! What the adapters for HTTP clients have in common.

mod hosts;

use std::{error::Error, fmt, sync::Arc};

use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::{Attempt, Dependency, Failure, Idempotency, KeyError, Operation, Profile, StatusRules};

pub(crate) use hosts::Hosts;

/// Largest body that is kept for a second attempt, in bytes.
pub(crate) const MOST_REPLAYED: usize = 64 * 1024;

/// What users of an adapter can set, whichever it is: methods of a type that wraps its [`Settings`].
macro_rules! settable {
    () => {
        /// Sets deadline, profile, hooks and the rest for every operation. One that it makes
        /// [keyed](crate::Idempotency::Keyed) carries its key as `Idempotency-Key`, unless the request has one
        /// already.
        #[must_use]
        pub fn shape(
            self,
            shape: impl Fn($crate::Operation) -> $crate::Operation + Send + Sync + 'static,
        ) -> Self {
            Self(self.0.shape(move |operation, _| shape(operation)))
        }

        /// What the dependency's statuses and headers mean. Default: what
        /// [`Failure::from_http`](crate::Failure::from_http) says. Rules that are given to `shape` as a
        /// [classifier](crate::Operation::classifier) come too late: by then an error response is a failure.
        #[must_use]
        pub fn statuses(self, statuses: $crate::StatusRules) -> Self {
            Self(self.0.statuses(statuses))
        }

        /// Sends the headers of [`Attempt::inject`](crate::Attempt::inject), to whatever host a request goes. Default:
        /// off, because some public services reject headers that they do not know.
        #[must_use]
        pub fn propagate(self) -> Self {
            Self(self.0.propagate($crate::adapter::Hosts::All))
        }

        /// The same, to these hosts alone: `stock.internal` is one, `.internal` are all below it. Ports do not count,
        /// and neither do upper and lower case. For clients whose requests do not all stay inside.
        #[must_use]
        pub fn propagate_to<I>(self, hosts: I) -> Self
        where
            I: IntoIterator,
            I::Item: AsRef<str>,
        {
            Self(self.0.propagate($crate::adapter::Hosts::listed(hosts)))
        }

        /// Asks an Envoy in between to make no retries of its own: sends `x-envoy-max-retries: 0`, to the hosts of
        /// [`propagate_to`](Self::propagate_to) alone if there are any. Default: off. Envoy obeys it only from callers
        /// that it takes for internal ones, and some versions have ignored it beside a retry policy of their route:
        /// if [`Totals::foreign`](crate::Totals) goes on rising, set `num_retries` of the route to 0.
        #[must_use]
        pub fn silence_mesh(self) -> Self {
            Self(self.0.silence_mesh())
        }
    };
}

pub(crate) use settable;

type Shape<H> = Arc<dyn Fn(Operation, &H) -> Operation + Send + Sync>;

/// What the service that uses an adapter says about its operations. `H` is what it sees of a request.
pub(crate) struct Settings<H> {
    dependency: Dependency,
    shape: Shape<H>,
    hosts: Hosts,
    silences_mesh: bool,
    statuses: StatusRules,
}

impl<H> Settings<H> {
    pub(crate) fn new(dependency: Dependency) -> Self {
        let shape = Arc::new(|operation, _: &H| operation);
        let (hosts, statuses) = (Hosts::None, StatusRules::new());
        Self { dependency, shape, hosts, silences_mesh: false, statuses }
    }

    pub(crate) fn shape(self, shape: impl Fn(Operation, &H) -> Operation + Send + Sync + 'static) -> Self {
        Self { shape: Arc::new(shape), ..self }
    }

    pub(crate) fn propagate(self, hosts: Hosts) -> Self {
        Self { hosts, ..self }
    }

    pub(crate) fn silence_mesh(self) -> Self {
        Self { silences_mesh: true, ..self }
    }

    pub(crate) fn statuses(self, statuses: StatusRules) -> Self {
        Self { statuses, ..self }
    }

    /// The failure that the answer to an attempt stands for.
    pub(crate) fn failure(
        &self,
        attempt: &Attempt,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<Failure> {
        attempt.note_response(headers);
        self.statuses.of_keyed(attempt.idempotency_key().is_some()).failure(status, headers)
    }

    /// Sets what an attempt carries to this host.
    pub(crate) fn prepare(
        &self,
        attempt: &Attempt,
        host: Option<&str>,
        headers: &mut HeaderMap,
    ) -> Result<(), KeyError> {
        attempt.inject_key(headers)?;
        let allowed = self.hosts.allow(host, headers);
        if allowed {
            attempt.inject(headers);
        }
        // A client that is switched off leaves retries to whoever makes them.
        if self.silences_mesh && attempt.is_on() && (allowed || self.hosts.is_none()) {
            headers.insert("x-envoy-max-retries", HeaderValue::from_static("0"));
        }
        Ok(())
    }

    /// The operation of one request.
    pub(crate) fn operation(
        &self,
        request: &H,
        method: &Method,
        headers: &HeaderMap,
        replayable: bool,
    ) -> Operation {
        let operation = self.dependency.operation(method.to_string());
        let operation = operation.idempotency(Idempotency::of_request(method, headers));
        let operation = (self.shape)(operation, request);
        if replayable {
            return operation;
        }
        self.dependency.note_not_replayable();
        operation.profile(Profile::never())
    }
}

impl<H> Clone for Settings<H> {
    fn clone(&self) -> Self {
        Self {
            dependency: self.dependency.clone(),
            shape: Arc::clone(&self.shape),
            hosts: self.hosts.clone(),
            silences_mesh: self.silences_mesh,
            statuses: self.statuses,
        }
    }
}

impl<H> fmt::Debug for Settings<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("dependency", &self.dependency).finish_non_exhaustive()
    }
}

/// A failed attempt: a response that stands for a failure, or an error of the transport.
pub(crate) enum Failed<R, E> {
    Response(Box<R>, Failure),
    Error(E),
}

/// An error that can lend itself as what it is.
pub(crate) trait Lend {
    fn lend(&self) -> &(dyn Error + 'static);
}

impl<R, E: Lend> fmt::Debug for Failed<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<R, E: Lend> fmt::Display for Failed<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response(_, failure) => failure.fmt(f),
            Self::Error(error) => fmt::Display::fmt(error.lend(), f),
        }
    }
}

impl<R, E: Lend> Error for Failed<R, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Response(_, failure) => Some(failure),
            Self::Error(error) => Some(error.lend()),
        }
    }
}
