//! What is sent on, and kept for a repeat.

use std::{
    convert::Infallible,
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Either};
use hyper::body::Bytes;
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use super::{BoxError, RetryError};
use crate::adapter::MOST_REPLAYED;

/// The body of a request on its way down: kept for a repeat, or passed on as it is.
pub type ReplayBody<B> = Either<Whole, B>;

/// A body that is in memory, with its trailers.
#[derive(Clone, Debug, Default)]
pub struct Whole {
    data: Bytes,
    trailers: Option<HeaderMap>,
}

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = mem::take(&mut self.data);
        let frame = match data.is_empty() {
            false => Some(Frame::data(data)),
            true => self.trailers.take().map(Frame::trailers),
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.data.len()).unwrap_or(u64::MAX))
    }
}

/// A request's body between attempts.
pub(super) enum Kept<B> {
    Whole(Whole),
    Once(Option<B>),
}

/// Whether a body is small enough to be kept.
pub(super) fn is_replayable(body: &impl Body) -> bool {
    let size = body.size_hint().upper().and_then(|size| usize::try_from(size).ok());
    size.is_some_and(|size| size <= MOST_REPLAYED)
}

impl<B> Kept<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    /// Reads a body that is to be kept. `None` if it has not come whole in time.
    pub(super) async fn read(body: B, end: Option<Instant>) -> Result<Option<Self>, RetryError> {
        if !is_replayable(&body) {
            return Ok(Some(Self::Once(Some(body))));
        }
        let whole = match end.filter(|_| Handle::try_current().is_ok()) {
            Some(end) => match timeout_at(end, body.collect()).await {
                Ok(whole) => whole,
                Err(_) => return Ok(None),
            },
            None => body.collect().await,
        };
        let whole = whole.map_err(|error| RetryError::Body(error.into()))?;
        let trailers = whole.trailers().cloned();
        Ok(Some(Self::Whole(Whole { data: whole.to_bytes(), trailers })))
    }

    pub(super) fn take(&mut self) -> Option<ReplayBody<B>> {
        match self {
            Self::Whole(whole) => Some(Either::Left(whole.clone())),
            Self::Once(body) => body.take().map(Either::Right),
        }
    }
}
