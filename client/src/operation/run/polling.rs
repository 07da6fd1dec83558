//! Running an attempt: in its place, until it ends or has to.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::atomic::Ordering,
    task::Poll,
};

use futures_util::FutureExt;
use tokio::time::sleep_until;

use super::{Run, in_runtime};
use crate::scope;

impl Run {
    /// Runs a piece of code inside the attempt, and in its span if anybody wants to see it.
    pub(in crate::operation) fn inside<T>(&self, code: impl FnOnce() -> T) -> T {
        let _span = self.spans.as_ref().map(|spans| spans.of_attempt().enter());
        self.running.store(true, Ordering::Relaxed);
        let output = scope::enter(&self.attempt, code);
        self.running.store(false, Ordering::Relaxed);
        output
    }

    /// Runs an attempt until it ends or has to: nothing then. Only one that has to wait needs a timer.
    pub(in crate::operation) async fn within<F: Future>(
        &self,
        mut attempt: Pin<&mut F>,
    ) -> Option<F::Output> {
        let mut attempt = poll_fn(|context| self.inside(|| attempt.as_mut().poll(context)));
        match poll_fn(|context| Poll::Ready(attempt.poll_unpin(context))).await {
            Poll::Ready(output) => Some(output),
            Poll::Pending if in_runtime() => self.until(&mut attempt).await,
            Poll::Pending => Some(attempt.await),
        }
    }

    /// One that is slow is counted when it becomes so, which may be long before it ends.
    async fn until<F: Future + Unpin>(&self, mut attempt: F) -> Option<F::Output> {
        let slow_at = self.slow_call().map(|slow| self.now.saturating_add(slow));
        let mut slow_at = slow_at.filter(|at| self.attempt.end.is_none_or(|end| *at < end));
        let Some(first) = slow_at.or(self.attempt.end) else { return Some(attempt.await) };
        let mut timer = pin!(sleep_until(self.core().clock.instant(first)));
        loop {
            tokio::select! {
                biased;
                output = &mut attempt => return Some(output),
                () = timer.as_mut() => {}
            }
            slow_at.take()?;
            self.overdue.store(true, Ordering::Relaxed);
            self.state().counts.slow.up();
            let Some(end) = self.attempt.end else { return Some(attempt.await) };
            timer.as_mut().reset(self.core().clock.instant(end));
        }
    }
}
