//! A socket that does not wait for ever for a peer that takes nothing.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a peer may take nothing of what it is sent.
const TAKES_WITHIN: Duration = Duration::from_secs(30);

/// A stream whose writes fail once the peer has taken nothing for [`TAKES_WITHIN`].
///
/// Silence is not impatience: only while something is left to be taken does the time run.
pub(super) struct Patient<S> {
    stream: S,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) const fn new(stream: S) -> Self {
        Self { stream, stalled: None }
    }
}

impl<S: Unpin> Patient<S> {
    /// Passes on what a write came to; the first one that stalls starts the time.
    fn judge<T>(&mut self, context: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(TAKES_WITHIN)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.judge(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, ended)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (ours, mut theirs) = duplex(8);
        let mut ours = Patient::new(ours);
        ours.write_all(b"12345678").await.unwrap();
        let started = Instant::now();
        let slow = async {
            for _ in 0..4 {
                sleep(TAKES_WITHIN - Duration::from_secs(1)).await;
                theirs.read_u8().await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(b"1234"), slow);
        written.unwrap();
        assert!(started.elapsed() > TAKES_WITHIN * 3);
        assert_eq!(ours.write_all(b"5").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
