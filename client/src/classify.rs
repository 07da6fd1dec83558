//! From a caller's error to a [`Failure`]: a custom classifier first, then a `Failure` in the chain, then what
//! the transports say.

pub(crate) mod grpc;
pub(crate) mod status;
mod transport;

use std::{error::Error, io, sync::Arc};

use crate::{Failure, hook::isolated};

/// Longest chain of sources that is followed; an error may be its own source.
const MAX_DEPTH: usize = 16;

/// A classifier's opinion on an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// This is what it means.
    Failure(Failure),
    /// No opinion: the next classifier, and in the end the built-in rules decide.
    #[default]
    Pass,
}

/// Says what a caller's error means, ahead of the built-in rules.
///
/// It is called once for each failed attempt and has to be quick; one that panics has no opinion. It can veto a retry and upgrade a class; it
/// cannot override the deadline, the budget or the kill switch. Closures are classifiers:
///
/// ```
/// use damper_client::{Failure, FailureClass, Verdict};
///
/// let classifier = |error: &(dyn std::error::Error + 'static)| match error.to_string().as_str() {
///     "basket is empty" => Verdict::Failure(Failure::new(FailureClass::Semantic)),
///     _ => Verdict::Pass,
/// };
/// # fn takes(_: impl damper_client::Classifier) {}
/// # takes(classifier);
/// ```
pub trait Classifier: Send + Sync + 'static {
    /// Classifies one error.
    fn classify(&self, error: &(dyn Error + 'static)) -> Verdict;
}

impl<F> Classifier for F
where
    F: Fn(&(dyn Error + 'static)) -> Verdict + Send + Sync + 'static,
{
    fn classify(&self, error: &(dyn Error + 'static)) -> Verdict {
        self(error)
    }
}

/// The failure that an error stands for. Unknown errors are never retried.
pub(crate) fn failure(error: &(dyn Error + 'static), custom: &[Arc<dyn Classifier>]) -> Failure {
    for custom in custom {
        if let Verdict::Failure(failure) = isolated(|| custom.classify(error)) {
            return failure;
        }
    }
    find(error, |error| error.downcast_ref::<Failure>().cloned())
        .or_else(|| find(error, transport::failure))
        .unwrap_or_else(Failure::unclassified)
}

/// The first answer along the chain of sources, the outermost error first.
fn find<T>(error: &(dyn Error + 'static), judge: fn(&(dyn Error + 'static)) -> Option<T>) -> Option<T> {
    let mut next = Some(error);
    for _ in 0..MAX_DEPTH {
        let error = next?;
        if let Some(answer) = judge(error).or_else(|| inside_io(error).and_then(judge)) {
            return Some(answer);
        }
        next = error.source();
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
            assert_eq!(failure(&wrapped(inner.clone(), depth), &[]), inner);
        }
        let direct = Failure::new(FailureClass::Semantic);
        assert_eq!(failure(&direct, &[]), direct);
    }

    #[test]
    fn a_failure_inside_an_io_error_is_found() {
        let inner = Failure::new(FailureClass::Permission);
        let error = wrapped(io::Error::new(io::ErrorKind::ConnectionReset, inner.clone()), 2);
        assert_eq!(failure(&error, &[]), inner);
    }

    #[test]
    fn a_failure_is_believed_over_a_transport_error_around_it() {
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, Failure::new(FailureClass::Fatal));
        assert_eq!(failure(&wrapped(refused, 1), &[]).class, FailureClass::Fatal);
    }

    #[test]
    fn an_unknown_error_is_never_retried_and_accuses_nobody() {
        let failure = failure(&wrapped(fmt::Error, 3), &[]);
        assert_eq!((failure.class, failure.dispatch), (FailureClass::Invalid, Dispatch::Ambiguous));
        assert_eq!(failure.code.as_deref(), Some("unclassified"));
    }

    #[test]
    fn a_custom_classifier_goes_first_and_may_pass() {
        let opinion = Failure::new(FailureClass::Semantic);
        let inner = Failure::new(FailureClass::Transient);
        let opinionated = {
            let opinion = opinion.clone();
            move |error: &(dyn Error + 'static)| match error.is::<Failure>() {
                true => Verdict::Failure(opinion.clone()),
                false => Verdict::Pass,
            }
        };
        let broken = |_: &(dyn Error + 'static)| -> Verdict { panic!("a bug in a classifier") };
        let last = |_: &(dyn Error + 'static)| Verdict::Failure(Failure::new(FailureClass::Fatal));
        let custom: [Arc<dyn Classifier>; 2] = [Arc::new(broken), Arc::new(opinionated)];
        let chain = [custom.as_slice(), &[Arc::new(last)]].concat();
        assert_eq!(failure(&inner, &chain), opinion, "the first opinion counts");
        assert_eq!(failure(&wrapped(inner.clone(), 1), &chain).class, FailureClass::Fatal);
        assert_eq!(failure(&inner, &custom), opinion);
        assert_eq!(failure(&wrapped(inner.clone(), 1), &custom), inner);
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
        assert_eq!(failure(&Own, &[]), Failure::unclassified());
    }
}
