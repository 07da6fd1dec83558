//! One logical operation: what the caller says about it, and the call.

mod permit;
mod run;

use std::{borrow::Cow, error::Error, fmt, future::Future, sync::Arc};

use tokio::runtime::Handle;

use crate::{CallError, Classifier, Deadline, Dependency, Idempotency, Profile, attempt::Attempt};
use run::Run;

/// One logical operation, about to be called. Built by [`Dependency::operation`].
#[must_use = "an operation does nothing until it is called"]
pub struct Operation {
    dependency: Dependency,
    name: Cow<'static, str>,
    idempotency: Idempotency,
    deadline: Deadline,
    profile: Option<Profile>,
    classifier: Option<Arc<dyn Classifier>>,
}

impl Operation {
    pub(crate) fn new(dependency: Dependency, name: Cow<'static, str>) -> Self {
        Self {
            dependency,
            name,
            idempotency: Idempotency::default(),
            deadline: Deadline::default(),
            profile: None,
            classifier: None,
        }
    }

    /// Whether a repeat does harm. Default: [`Idempotency::Unsafe`].
    pub fn idempotency(self, idempotency: Idempotency) -> Self {
        Self { idempotency, ..self }
    }

    /// When it has to be over. Default: 10 s after the call.
    pub fn deadline(self, deadline: impl Into<Deadline>) -> Self {
        Self { deadline: deadline.into(), ..self }
    }

    /// How patient its retries are. Default: [`Profile::standard`] with as many attempts as the dependency's
    /// policy allows; a profile given here may make fewer, never more.
    pub fn profile(self, profile: Profile) -> Self {
        Self { profile: Some(profile), ..self }
    }

    /// Who says what its errors mean, ahead of the built-in rules. Default: nobody.
    pub fn classifier(self, classifier: impl Classifier) -> Self {
        Self { classifier: Some(Arc::new(classifier)), ..self }
    }

    /// Makes attempts until one succeeds or a rule ends the operation.
    ///
    /// The closure makes one attempt each time it is called. Its first call comes at once; before every other
    /// call the server is asked. The future may be dropped at any time: a token that it holds is returned.
    ///
    /// Outside a tokio runtime there is one attempt, without a deadline. The runtime needs its timer.
    ///
    /// # Errors
    ///
    /// [`CallError`] says why the operation ended, and its source is the error of the last attempt.
    pub async fn call<F, Fut, T, E>(self, mut attempt: F) -> Result<T, CallError<E>>
    where
        F: FnMut(Attempt) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Error + 'static,
    {
        let runtime = Handle::try_current().ok();
        let mut run = Run::start(self, runtime.as_ref());
        if let Err(stop) = run.may_start() {
            return Err(run.stopped(stop, None, None));
        }
        if run.is_held_up()
            && let Err(stop) = run.admit_first().await
        {
            return Err(run.stopped(stop, None, None));
        }
        loop {
            let (current, end) = run.attempt_started();
            let future = attempt(current);
            let outcome = match &runtime {
                Some(_) => run.within(end, future).await.ok_or(None),
                None => Ok(future.await),
            };
            let error = match outcome.and_then(|result| result.map_err(Some)) {
                Ok(value) => {
                    run.succeeded();
                    return Ok(value);
                }
                Err(error) => error,
            };
            let failure = run.attempt_failed(error.as_ref().map(|error| error as &(dyn Error + 'static)));
            if let Err(stop) = run.next(&failure).await {
                return Err(run.stopped(stop, Some(failure), error));
            }
            run.previous = Some(failure);
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("name", &self.name)
            .field("idempotency", &self.idempotency)
            .field("deadline", &self.deadline)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}
