//! From an outcome to a [`Failure`]: custom classifiers first, then a `Failure` in the chain of sources, then what
//! the transports say.

pub(crate) mod grpc;
mod pause;
mod rules;
mod status;
mod transport;

pub use rules::StatusRules;

use std::{any::Any, error::Error, io, sync::Arc};

use crate::{Failure, hook::isolated, opaque::opened};

/// Longest chain of sources that is followed; an error may be its own source.
const MAX_DEPTH: usize = 16;

/// How an attempt ended, as its code returned it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// With this value.
    Value(&'a dyn Any),
    /// With this error.
    Error(&'a (dyn Error + 'static)),
}

impl<'a> Outcome<'a> {
    /// The value, if it is one of this type.
    #[must_use]
    pub fn value<T: 'static>(&self) -> Option<&'a T> {
        match self {
            Self::Value(value) => value.downcast_ref(),
            Self::Error(_) => None,
        }
    }

    /// The error, if it is one.
    #[must_use]
    pub const fn error(&self) -> Option<&'a (dyn Error + 'static)> {
        match self {
            Self::Value(_) => None,
            Self::Error(error) => Some(*error),
        }
    }
}

/// A classifier's opinion on an outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is a success. An error that is one ends the operation, with [`StopReason::NotAFailure`], and is counted
    /// as a success.
    ///
    /// [`StopReason::NotAFailure`]: crate::StopReason::NotAFailure
    Success,
    /// This is what went wrong. A value that stands for a failure is dropped.
    Failure(Failure),
    /// No opinion: the next classifier, and in the end the built-in rules decide.
    #[default]
    Pass,
}

/// Says what the outcome of an attempt means, ahead of the built-in rules: values are successes, and errors what
/// their chains of sources say.
///
/// It is called once for each attempt and has to be quick; one that panics has no opinion. It can veto a retry and
/// upgrade a class; it cannot override the deadline, the budget or the kill switch. Closures are classifiers:
///
/// ```
/// use damper_client::{Failure, FailureClass, Outcome, Verdict};
///
/// let classifier = |outcome: &Outcome<'_>| match outcome.value::<Vec<u32>>() {
///     Some(hits) if hits.is_empty() => Verdict::Failure(Failure::new(FailureClass::Semantic)),
///     _ => Verdict::Pass,
/// };
/// # fn takes(_: impl damper_client::Classifier) {}
/// # takes(classifier);
/// ```
pub trait Classifier: Send + Sync + 'static {
    /// Classifies one outcome.
    fn classify(&self, outcome: &Outcome<'_>) -> Verdict;
}

impl<F> Classifier for F
where
    F: Fn(&Outcome<'_>) -> Verdict + Send + Sync + 'static,
{
    fn classify(&self, outcome: &Outcome<'_>) -> Verdict {
        self(outcome)
    }
}

/// The first opinion of a chain.
pub(crate) fn opinion<'a>(
    outcome: &Outcome<'_>,
    chain: impl IntoIterator<Item = &'a Arc<dyn Classifier>>,
) -> Verdict {
    let opinions = chain.into_iter().map(|classifier| isolated(|| opened(|| classifier.classify(outcome))));
    opinions.into_iter().find(|verdict| *verdict != Verdict::Pass).unwrap_or_default()
}

/// The failure that an error stands for by the built-in rules. Unknown errors are never retried.
pub(crate) fn failure(error: &(dyn Error + 'static)) -> Failure {
    find(error, |error| error.downcast_ref::<Failure>().cloned())
        .or_else(|| find(error, transport::failure))
        .unwrap_or_else(Failure::unclassified)
}

/// The first answer along the chain of sources, the outermost error first.
fn find<T>(error: &(dyn Error + 'static), judge: impl Fn(&(dyn Error + 'static)) -> Option<T>) -> Option<T> {
    let mut next = Some(error);
    for _ in 0..MAX_DEPTH {
        let error = next?;
        if let Some(answer) = judge(error).or_else(|| inside_io(error).and_then(&judge)) {
            return Some(answer);
        }
        next = opened(|| error.source());
    }
    None
}

/// What an `io::Error` wraps is not its source: the chain goes past it.
fn inside_io<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
    Some(inner)
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use damper_protocol::{Dispatch, FailureClass};

    use super::*;

    #[derive(Debug)]
    struct Wrapper(Box<dyn Error + Send + Sync>);

    impl fmt::Display for Wrapper {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("wrapped")
        }
    }

    impl Error for Wrapper {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.0)
        }
    }

    fn wrapped(error: impl Error + Send + Sync + 'static, depth: usize) -> Wrapper {
        (1..depth).fold(Wrapper(Box::new(error)), |inner, _| Wrapper(Box::new(inner)))
    }

    #[test]
    fn a_failure_is_found_one_to_five_sources_deep() {
        for depth in 1..=5 {
            let inner = Failure::new(FailureClass::RateLimited).with_code("x");
            assert_eq!(failure(&wrapped(inner.clone(), depth)), inner);
        }
        let direct = Failure::new(FailureClass::Semantic);
        assert_eq!(failure(&direct), direct);
    }

    #[test]
    fn a_failure_inside_an_io_error_is_found() {
        let inner = Failure::new(FailureClass::Permission);
        let error = wrapped(io::Error::new(io::ErrorKind::ConnectionReset, inner.clone()), 2);
        assert_eq!(failure(&error), inner);
    }

    #[test]
    fn a_failure_is_believed_over_a_transport_error_around_it() {
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, Failure::new(FailureClass::Fatal));
        assert_eq!(failure(&wrapped(refused, 1)).class, FailureClass::Fatal);
    }

    #[test]
    fn an_unknown_error_is_never_retried_and_accuses_nobody() {
        let failure = failure(&wrapped(fmt::Error, 3));
        assert_eq!((failure.class, failure.dispatch), (FailureClass::Invalid, Dispatch::Ambiguous));
        assert_eq!(failure.code.as_deref(), Some("unclassified"));
    }

    #[test]
    fn the_first_opinion_of_a_chain_counts() {
        let says = |class| Verdict::Failure(Failure::new(class));
        let broken = |_: &Outcome<'_>| -> Verdict { panic!("a bug in a classifier") };
        let of_values = move |outcome: &Outcome<'_>| match outcome.value::<u32>() {
            Some(0) => says(FailureClass::Semantic),
            Some(1) => Verdict::Success,
            _ => Verdict::Pass,
        };
        let of_errors = move |outcome: &Outcome<'_>| match outcome.error() {
            Some(error) if error.is::<fmt::Error>() => Verdict::Success,
            _ => Verdict::Pass,
        };
        let last = move |_: &Outcome<'_>| says(FailureClass::Fatal);
        let chain: [Arc<dyn Classifier>; 4] =
            [Arc::new(broken), Arc::new(of_values), Arc::new(of_errors), Arc::new(last)];
        let io = io::Error::from(io::ErrorKind::Other);
        let cases = [
            (Outcome::Value(&0_u32), says(FailureClass::Semantic)),
            (Outcome::Value(&1_u32), Verdict::Success),
            (Outcome::Value(&2_u32), says(FailureClass::Fatal)),
            (Outcome::Value(&0_u64), says(FailureClass::Fatal)),
            (Outcome::Error(&fmt::Error), Verdict::Success),
            (Outcome::Error(&io), says(FailureClass::Fatal)),
        ];
        for (outcome, verdict) in cases {
            assert_eq!(opinion(&outcome, &chain), verdict, "{outcome:?}");
            assert_eq!(opinion(&outcome, &chain[..1]), Verdict::Pass, "a panic is no opinion");
        }
    }

    #[test]
    fn an_endless_chain_ends() {
        #[derive(Debug)]
        struct Own;
        impl fmt::Display for Own {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("own source")
            }
        }
        impl Error for Own {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(self)
            }
        }
        assert_eq!(failure(&Own), Failure::unclassified());
    }
}
