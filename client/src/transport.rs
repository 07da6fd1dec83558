//! The seam to the server: what is asked of a transport, and how it can fail.

// Part of the interface in `testing` alone.
#![cfg_attr(not(feature = "test-util"), allow(unreachable_pub))]

pub(crate) mod http;

use std::{fmt, time::Duration};

use damper_protocol::{AskRequest, AskResponse, SyncRequest, SyncResponse};
use futures_util::{future::BoxFuture, stream::BoxStream};
use hyper::body::Bytes;

/// Why the server did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody listens.
    Unreachable,
    /// No answer, or none that makes sense: a cut connection, garbage, a 5xx.
    NoAnswer,
    /// The server limits this client; ask again after so long.
    Busy(Duration),
    /// The server is not ready or going away; another may answer after so long.
    Unavailable(Duration),
    /// The server does not accept the request, with this status: a mistake in the set-up.
    Rejected(u16),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("unreachable"),
            Self::NoAnswer => f.write_str("no usable answer"),
            Self::Busy(_) => f.write_str("it limits this client"),
            Self::Unavailable(_) => f.write_str("it is not ready, or going away"),
            // What a server of something else answers.
            Self::Rejected(status @ (200..=399 | 404 | 405)) => {
                write!(f, "{status} is no answer of a damper server: is it one?")
            }
            Self::Rejected(status) => write!(f, "it rejects this client's requests with {status}"),
        }
    }
}

impl std::error::Error for Fault {}

/// An ask that the server has admitted; the decision is still to come.
pub type Pending = BoxFuture<'static, Result<AskResponse, Fault>>;

/// A watch stream in bytes.
pub type Bytestream = BoxStream<'static, Result<Bytes, Fault>>;

/// Carries requests to the server. No time limits of its own: whoever calls has them, and dropping a future
/// cancels its request.
pub trait Transport: Send + Sync + 'static {
    /// Sends an ask; resolves when the server has admitted it.
    fn ask(&self, ask: &AskRequest) -> BoxFuture<'static, Result<Pending, Fault>>;

    /// Gives an unused token back. Best effort: the token expires by itself.
    fn give_back(&self, token: String) -> BoxFuture<'static, ()>;

    /// Exchanges totals for states and policies.
    fn sync(&self, sync: &SyncRequest) -> BoxFuture<'static, Result<SyncResponse, Fault>>;

    /// Opens the watch stream after the event with this id.
    fn watch(&self, last_id: Option<&str>) -> BoxFuture<'static, Result<Bytestream, Fault>>;
}

/// The transport of a client that has no server. Never used by one that does not ask.
#[derive(Debug)]
pub(crate) struct Nowhere;

impl Transport for Nowhere {
    fn ask(&self, _: &AskRequest) -> BoxFuture<'static, Result<Pending, Fault>> {
        Box::pin(std::future::ready(Err(Fault::Unreachable)))
    }

    fn give_back(&self, _: String) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn sync(&self, _: &SyncRequest) -> BoxFuture<'static, Result<SyncResponse, Fault>> {
        Box::pin(std::future::ready(Err(Fault::Unreachable)))
    }

    fn watch(&self, _: Option<&str>) -> BoxFuture<'static, Result<Bytestream, Fault>> {
        Box::pin(std::future::ready(Err(Fault::Unreachable)))
    }
}
