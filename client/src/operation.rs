//! One logical operation: what the caller says about it, and the call.

mod admission;
mod begun;
mod effect;
mod life;
mod permit;
mod run;
mod spans;
mod token;

pub use admission::Admission;
pub use effect::Effect;
pub(crate) use life::Life;
pub use permit::Permit;

use std::{
    borrow::Cow, convert::Infallible, error::Error, fmt, future::Future, pin::pin, sync::Arc, time::Duration,
};

use damper_protocol::RecoveryMode;

use crate::{
    Advice, Attempt, CallError, Classifier, Deadline, Dependency, Failure, FailureEvent, Idempotency,
    Profile, Verdict, hook::OnFailure,
};
use effect::nobody_knows;
use run::{Ended, Run};

/// One logical operation, about to be called. Built by [`Dependency::operation`].
#[must_use = "an operation does nothing until it is called"]
pub struct Operation {
    dependency: Dependency,
    name: Cow<'static, str>,
    idempotency: Idempotency,
    recovery: Option<RecoveryMode>,
    deadline: Option<Deadline>,
    attempt_timeout: Option<Duration>,
    profile: Option<Profile>,
    /// On the heap, because most operations have none.
    opinions: Option<Box<Opinions>>,
}

/// What the caller has to say about outcomes.
#[derive(Default)]
struct Opinions {
    classifiers: Vec<Arc<dyn Classifier>>,
    on_failure: Option<OnFailure>,
}

impl Operation {
    #[inline]
    pub(crate) fn new(dependency: Dependency, name: Cow<'static, str>) -> Self {
        Self {
            dependency,
            name,
            idempotency: Idempotency::default(),
            recovery: None,
            deadline: None,
            attempt_timeout: None,
            profile: None,
            opinions: None,
        }
    }

    /// Whether a repeat does harm. Default: [`Idempotency::Unsafe`].
    #[inline]
    pub fn idempotency(self, idempotency: Idempotency) -> Self {
        Self { idempotency, ..self }
    }

    /// What may be done when an attempt was sent and no answer came. [`RecoveryMode::ProviderIdempotent`] allows a
    /// repeat (as [`Idempotency::Keyed`] does), [`RecoveryMode::Opaque`] forbids it whatever the idempotency; the
    /// other modes leave it to the idempotency and tell whoever handles the
    /// [error](CallError::recovery) what to do. Default: none.
    #[inline]
    pub fn recovery(self, mode: RecoveryMode) -> Self {
        Self { recovery: Some(mode), ..self }
    }

    /// When it has to be over. Default: 10 s after the call, and never for a [stream](Profile::stream). Inside an
    /// attempt of another operation, or a request whose deadline is known, never later than that one.
    #[inline]
    pub fn deadline(self, deadline: impl Into<Deadline>) -> Self {
        Self { deadline: Some(deadline.into()), ..self }
    }

    /// How long each attempt may take. What is cut off after that is a transient failure with an unknown effect, of
    /// which a retry may be made if there is time left. Default: all the time that the operation has.
    #[inline]
    pub fn attempt_timeout(self, timeout: Duration) -> Self {
        Self { attempt_timeout: Some(timeout), ..self }
    }

    /// How patient its retries are. Default: [`Profile::standard`] with as many attempts as the dependency's
    /// policy allows; a profile given here may make fewer, never more.
    #[inline]
    pub fn profile(self, profile: Profile) -> Self {
        Self { profile: Some(profile), ..self }
    }

    /// Who says what its outcomes mean, ahead of the built-in rules. May be given several times: the first that has
    /// an opinion is believed. Default: nobody.
    pub fn classifier(mut self, classifier: impl Classifier) -> Self {
        self.opinions.get_or_insert_default().classifiers.push(Arc::new(classifier));
        self
    }

    /// Who has a say after each failed attempt. It is called on the caller's task and has to be quick; if it
    /// panics, it has said nothing. Default: nobody.
    pub fn on_failure(mut self, hook: impl Fn(&FailureEvent<'_>) -> Advice + Send + Sync + 'static) -> Self {
        self.opinions.get_or_insert_default().on_failure = Some(Arc::new(hook));
        self
    }

    /// Makes attempts until one succeeds or a rule ends the operation.
    ///
    /// The closure makes one attempt each time it is called. Its first call comes at once, or as soon as the
    /// leased rate of first attempts allows; before every other call the server is asked. The future may be
    /// dropped at any time: a token that it holds is returned.
    ///
    /// Whatever the attempt returns as `Ok` is a success, a response with a 503 too: see
    /// [`Failure::check`](crate::Failure::check). An error that does not implement [`Error`], such as anyhow's, goes into
    /// [`Opaque`](crate::Opaque).
    ///
    /// Called inside an attempt of another operation, or in the [scope](crate::Scope) of a request whose caller
    /// retries, it makes one attempt, and one more if the first was provably never sent.
    ///
    /// Outside a tokio runtime there is one attempt, without a deadline. The runtime needs its timer.
    ///
    /// # Errors
    ///
    /// [`CallError`] says why the operation ended, and its source is the error of the last attempt.
    #[inline]
    pub fn call<F, Fut, T, E>(self, attempt: F) -> impl Future<Output = Result<T, CallError<E>>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: 'static,
        E: Error + 'static,
    {
        self.carry_out(attempt, |_| Verdict::Pass, nobody_knows)
    }

    /// The same for answers that have to be read to know whether they are good: `judge` sees every value that an
    /// attempt returns, and a [`Verdict::Failure`] makes the attempt a failed one. Its value is dropped.
    ///
    /// ```
    /// use damper_client::{Damper, Failure, FailureClass, Verdict};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let search = Damper::inert().dependency("search");
    /// let hits = |hits: &Vec<u32>| match hits.len() {
    ///     0 => Verdict::Failure(Failure::new(FailureClass::Semantic).with_code("no_hits")),
    ///     _ => Verdict::Pass,
    /// };
    /// let attempt = |_| async { Ok::<Vec<u32>, Failure>(vec![]) };
    /// assert!(search.operation("find").call_judged(attempt, hits).await.is_err());
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call); an answer that was judged a failure leaves no error behind.
    pub fn call_judged<F, Fut, T, E, J>(
        self,
        attempt: F,
        judge: J,
    ) -> impl Future<Output = Result<T, CallError<E>>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: 'static,
        E: Error + 'static,
        J: Fn(&T) -> Verdict,
    {
        self.carry_out(attempt, judge, nobody_knows)
    }

    /// The same for an operation whose effect can be looked up: [`RecoveryMode::Queryable`]. After an attempt that
    /// may have taken effect, `query` finds out: what is done is the operation's success, what is not done may be
    /// repeated even if a repeat would do harm, and what nobody knows ends as it would have without a query. A
    /// query has the rest of the operation's time, and is no attempt: it is counted nowhere.
    ///
    /// ```
    /// use damper_client::{Damper, Effect, Failure, FailureClass};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let payments = Damper::inert().dependency("payments");
    /// let charge = |_| async { Err(Failure::new(FailureClass::Transient)) };
    /// let look_up = |_: &Failure| async { Effect::Done("receipt of order 42") };
    /// let receipt = payments.operation("charge").call_queried(charge, look_up).await;
    /// assert_eq!(receipt.ok(), Some("receipt of order 42"));
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub fn call_queried<F, Fut, T, E, Q, Answer>(
        self,
        attempt: F,
        query: Q,
    ) -> impl Future<Output = Result<T, CallError<E>>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: 'static,
        E: Error + 'static,
        Q: FnMut(&Failure) -> Answer,
        Answer: Future<Output = Effect<T>>,
    {
        self.recovery(RecoveryMode::Queryable).carry_out(attempt, |_| Verdict::Pass, query)
    }

    async fn carry_out<F, Fut, T, E, J, Q, Answer>(
        self,
        mut attempt: F,
        judge: J,
        mut query: Q,
    ) -> Result<T, CallError<E>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: 'static,
        E: Error + 'static,
        J: Fn(&T) -> Verdict,
        Q: FnMut(&Failure) -> Answer,
        Answer: Future<Output = Effect<T>>,
    {
        let mut run = Run::start(self);
        if let Err(stop) = run.begin().await {
            return Err(run.stopped(stop, None, None));
        }
        loop {
            let current = run.attempt_started();
            let answer = {
                // An attempt that was cut off is over: nothing of it outlives this block.
                let answer = pin!(run.inside(|| attempt(current)));
                run.within(answer).await
            };
            let ended = match answer {
                Some(Ok(value)) => match run.judged(&value, &judge) {
                    Some(failure) => Ended::Judged(failure),
                    None => {
                        run.succeeded();
                        return Ok(value);
                    }
                },
                Some(Err(error)) => Ended::Failed(error),
                None => Ended::CutOff,
            };
            let Some(mut failure) = run.failed(&ended) else { return Err(run.not_a_failure(ended)) };
            if run.is_queryable(&failure) {
                let answer = query(&failure);
                match run.queried(answer).await {
                    Effect::Done(value) => {
                        run.took_effect();
                        return Ok(value);
                    }
                    Effect::NotDone => failure = run.had_no_effect(failure),
                    Effect::Unknown => {}
                }
            }
            // On the heap, or every call would carry the room for it about.
            Box::pin(run.go_on(failure, ended)).await?;
        }
    }

    /// Admits the first attempt and leaves making it to the caller: for code that cannot be put into a closure.
    /// Nothing cuts such an attempt off; [`Attempt::remaining`] says when it should end.
    ///
    /// # Errors
    ///
    /// [`CallError`] if it may not be made.
    pub fn admit(self) -> impl Future<Output = Result<Permit, CallError<Infallible>>> {
        self.admit_as(Admission::First)
    }

    /// Admits one attempt, for code that has a loop of its own: a retry after it has waited out its backoff, or a
    /// hedge at once. Neither is counted as an operation, because its first attempt has been.
    ///
    /// Each call is about an operation of its own: it has to be told the idempotency, key and profile again, and its
    /// deadline counts from now, so give it [`Deadline::at`] the same instant each time. Of an attempt and its hedge,
    /// drop the permit of the one that lost: it counts as abandoned and says nothing about the dependency.
    ///
    /// ```
    /// use damper_client::{Admission, Damper, Failure, FailureClass, Idempotency, Outcome};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let stock = Damper::inert().dependency("stock");
    /// let look_up = || stock.operation("look_up").idempotency(Idempotency::Safe);
    /// let first = look_up().admit().await.expect("not refused");
    /// let failure = first.finish(&Outcome::Error(&Failure::new(FailureClass::Transient)));
    /// let after = failure.expect("it is one");
    /// let refused = look_up().admit_as(Admission::Retry { after, attempts: 1 }).await;
    /// assert!(refused.is_err(), "an inert client never retries");
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`CallError`] if it may not be made.
    pub async fn admit_as(self, admission: Admission) -> Result<Permit, CallError<Infallible>> {
        let mut run = Run::start_as(self, &admission);
        match run.begin_as(&admission).await {
            Ok(()) => Ok(Permit::new(run)),
            Err(stop) => Err(run.stopped(stop, admission.into_failure(), None)),
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("name", &self.name)
            .field("idempotency", &self.idempotency)
            .field("deadline", &self.deadline)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}
