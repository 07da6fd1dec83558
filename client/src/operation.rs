//! One logical operation: what the caller says about it, and the call.

mod life;
mod permit;
mod run;
mod token;

pub(crate) use life::Life;
pub use permit::Permit;

use std::{borrow::Cow, convert::Infallible, error::Error, fmt, future::Future, sync::Arc};

use damper_protocol::RecoveryMode;

use crate::{
    Advice, Attempt, CallError, Classifier, Deadline, Dependency, FailureEvent, Idempotency, Profile,
    Verdict, hook::OnFailure,
};
use run::{Ended, Run};

/// One logical operation, about to be called. Built by [`Dependency::operation`].
#[must_use = "an operation does nothing until it is called"]
pub struct Operation {
    dependency: Dependency,
    idempotency: Idempotency,
    recovery: Option<RecoveryMode>,
    deadline: Deadline,
    profile: Option<Profile>,
    rules: Rules,
}

/// What is looked at once an attempt has failed.
struct Rules {
    name: Cow<'static, str>,
    classifiers: Vec<Arc<dyn Classifier>>,
    on_failure: Option<OnFailure>,
}

impl Operation {
    pub(crate) fn new(dependency: Dependency, name: Cow<'static, str>) -> Self {
        Self {
            dependency,
            idempotency: Idempotency::default(),
            recovery: None,
            deadline: Deadline::default(),
            profile: None,
            rules: Rules { name, classifiers: Vec::new(), on_failure: None },
        }
    }

    /// Whether a repeat does harm. Default: [`Idempotency::Unsafe`].
    pub fn idempotency(self, idempotency: Idempotency) -> Self {
        Self { idempotency, ..self }
    }

    /// What may be done when an attempt was sent and no answer came. [`RecoveryMode::ProviderIdempotent`] allows a
    /// repeat (as [`Idempotency::Keyed`] does), [`RecoveryMode::Opaque`] forbids it whatever the idempotency; the
    /// other modes leave it to the idempotency and tell whoever handles the
    /// [error](CallError::recovery) what to do. Default: none.
    pub fn recovery(self, mode: RecoveryMode) -> Self {
        Self { recovery: Some(mode), ..self }
    }

    /// When it has to be over. Default: 10 s after the call. Inside an attempt of another operation, or a request
    /// whose deadline is known, never later than that one.
    pub fn deadline(self, deadline: impl Into<Deadline>) -> Self {
        Self { deadline: deadline.into(), ..self }
    }

    /// How patient its retries are. Default: [`Profile::standard`] with as many attempts as the dependency's
    /// policy allows; a profile given here may make fewer, never more.
    pub fn profile(self, profile: Profile) -> Self {
        Self { profile: Some(profile), ..self }
    }

    /// Who says what its errors mean, ahead of the built-in rules. May be given several times: the first that has
    /// an opinion is believed. Default: nobody.
    pub fn classifier(mut self, classifier: impl Classifier) -> Self {
        self.rules.classifiers.push(Arc::new(classifier));
        self
    }

    /// Who has a say after each failed attempt. It is called on the caller's task and has to be quick; if it
    /// panics, it has said nothing. Default: nobody.
    pub fn on_failure(mut self, hook: impl Fn(&FailureEvent<'_>) -> Advice + Send + Sync + 'static) -> Self {
        self.rules.on_failure = Some(Arc::new(hook));
        self
    }

    /// Makes attempts until one succeeds or a rule ends the operation.
    ///
    /// The closure makes one attempt each time it is called. Its first call comes at once, or as soon as the
    /// leased rate of first attempts allows; before every other call the server is asked. The future may be
    /// dropped at any time: a token that it holds is returned.
    ///
    /// Called inside an attempt of another operation, or in the [scope](crate::Scope) of a request whose caller
    /// retries, it makes one attempt, and one more if the first was provably never sent.
    ///
    /// Outside a tokio runtime there is one attempt, without a deadline. The runtime needs its timer.
    ///
    /// # Errors
    ///
    /// [`CallError`] says why the operation ended, and its source is the error of the last attempt.
    pub fn call<F, Fut, T, E>(self, attempt: F) -> impl Future<Output = Result<T, CallError<E>>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Error + 'static,
    {
        self.call_judged(attempt, |_| Verdict::Pass)
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
    pub async fn call_judged<F, Fut, T, E, J>(self, mut attempt: F, judge: J) -> Result<T, CallError<E>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Error + 'static,
        J: Fn(&T) -> Verdict,
    {
        let mut run = Run::start(self);
        if let Err(stop) = run.begin().await {
            return Err(run.stopped(stop, None, None));
        }
        loop {
            let current = run.attempt_started();
            let ended = match run.within(async { attempt(current).await }).await {
                Some(Ok(value)) => match judge(&value) {
                    Verdict::Failure(failure) => Ended::Judged(failure),
                    Verdict::Pass => {
                        run.succeeded();
                        return Ok(value);
                    }
                },
                Some(Err(error)) => Ended::Failed(error),
                None => Ended::CutOff,
            };
            run = run.after(ended).await?;
        }
    }

    /// Admits the first attempt and leaves making it to the caller: for code that cannot be put into a closure.
    /// Nothing cuts such an attempt off; [`Attempt::remaining`] says when it should end.
    ///
    /// # Errors
    ///
    /// [`CallError`] if it may not be made.
    pub async fn admit(self) -> Result<Permit, CallError<Infallible>> {
        let mut run = Run::start(self);
        match run.begin().await {
            Ok(()) => Ok(Permit::new(run)),
            Err(stop) => Err(run.stopped(stop, None, None)),
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("name", &self.rules.name)
            .field("idempotency", &self.idempotency)
            .field("deadline", &self.deadline)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}
