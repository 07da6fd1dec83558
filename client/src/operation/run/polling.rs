//! Running an attempt: in its scope, until it ends or has to.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

use futures_util::FutureExt;
use tokio::time::sleep_until;
use tracing::Span;

use super::{Run, in_runtime};
use crate::{Scope, scope};

/// What an attempt runs in: its scope, and its span if anybody wants to see it.
pub(in crate::operation) struct Inside {
    scope: Option<Scope>,
    span: Option<Span>,
}

impl Inside {
    pub(in crate::operation) fn enter<T>(&mut self, code: impl FnOnce() -> T) -> T {
        let _span = self.span.as_ref().map(Span::enter);
        scope::enter(&mut self.scope, code)
    }
}

impl Run {
    /// What the attempt runs in.
    pub(in crate::operation) fn inside(&self) -> Inside {
        let span = self.spans.as_ref().map(|spans| spans.of_attempt());
        Inside { scope: Some(Scope::attempt(self.attempt())), span }
    }

    /// Runs an attempt until it ends or has to: nothing then. Only one that has to wait needs a timer.
    pub(in crate::operation) async fn within<F: Future>(
        &mut self,
        inside: &mut Inside,
        mut attempt: Pin<&mut F>,
    ) -> Option<F::Output> {
        let mut attempt = poll_fn(|context| inside.enter(|| attempt.as_mut().poll(context)));
        match poll_fn(|context| Poll::Ready(attempt.poll_unpin(context))).await {
            Poll::Ready(output) => Some(output),
            Poll::Pending if in_runtime() => self.until(&mut attempt).await,
            Poll::Pending => Some(attempt.await),
        }
    }

    /// One that is slow is counted when it becomes so, which may be long before it ends.
    async fn until<F: Future + Unpin>(&mut self, mut attempt: F) -> Option<F::Output> {
        let slow_at = self.slow_call().map(|slow| self.now.saturating_add(slow));
        let mut slow_at = slow_at.filter(|at| self.end.is_none_or(|end| *at < end));
        let Some(first) = slow_at.or(self.end) else { return Some(attempt.await) };
        let mut timer = pin!(sleep_until(self.core().clock.instant(first)));
        loop {
            tokio::select! {
                biased;
                output = &mut attempt => return Some(output),
                () = timer.as_mut() => {}
            }
            slow_at.take()?;
            self.overdue = true;
            self.state().counts.slow.up();
            let Some(end) = self.end else { return Some(attempt.await) };
            timer.as_mut().reset(self.core().clock.instant(end));
        }
    }
}
