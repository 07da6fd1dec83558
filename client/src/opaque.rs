//! Errors that are none by their type.

use std::{cell::Cell, error::Error, fmt, ops::Deref};

/// An error whose type does not implement [`Error`] itself, so that an attempt cannot return it as it is:
/// `anyhow::Error` and `Box<dyn Error + Send + Sync>` are such. It is transparent: its text and its sources are those of
/// what is inside, so that a printed chain has every message once. What is inside is understood as ever: for a
/// [`Classifier`](crate::Classifier), while it is asked, it is the first source.
///
/// ```
/// use damper_client::{Damper, Opaque};
///
/// type AnyError = Box<dyn std::error::Error + Send + Sync>;
///
/// async fn look_up() -> Result<u32, AnyError> {
///     Ok("7".parse()?)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let stock = Damper::inert().dependency("stock");
/// let found = stock.operation("look_up").call(|_| async { look_up().await.map_err(Opaque) }).await;
/// assert_eq!(found.ok(), Some(7));
/// # }
/// ```
///
/// A `Box<dyn Error>` that is not `Send` and `Sync` cannot be put into it; use the wider type.
#[derive(Debug)]
pub struct Opaque<E>(pub E);

impl<E: fmt::Display> fmt::Display for Opaque<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E> Error for Opaque<E>
where
    E: Deref<Target = dyn Error + Send + Sync> + fmt::Debug + fmt::Display,
{
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if OPENED.get() { Some(&*self.0) } else { self.0.source() }
    }
}

thread_local! {
    /// The code that runs on this thread looks for what is inside.
    ///
    /// The type in `Opaque` is anybody's, so that no error can be asked whether it is one, and what it says of its
    /// sources is the only way in.
    static OPENED: Cell<bool> = const { Cell::new(false) };
}

/// Runs code for which what is inside is a source.
pub(crate) fn opened<T>(code: impl FnOnce() -> T) -> T {
    let _close = Close(OPENED.replace(true));
    code()
}

/// Goes back to what was before, after a panic too.
struct Close(bool);

impl Drop for Close {
    fn drop(&mut self) {
        OPENED.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::{Classifier, Failure, FailureClass, Outcome, Verdict, classify};

    fn boxed(error: impl Error + Send + Sync + 'static) -> Opaque<Box<dyn Error + Send + Sync>> {
        Opaque(Box::new(error))
    }

    #[test]
    fn what_is_inside_is_understood() {
        let limited = Failure::new(FailureClass::RateLimited).with_code("429");
        assert_eq!(classify::failure(&boxed(limited.clone())), limited);
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(boxed(fmt::Error).to_string(), fmt::Error.to_string());
        assert_eq!(classify::failure(&boxed(refused)).code.as_deref(), Some("connection_refused"));
        assert_eq!(classify::failure(&boxed(fmt::Error)), Failure::unclassified());
    }

    #[derive(Debug)]
    struct Sending(fmt::Error);

    impl fmt::Display for Sending {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("sending")
        }
    }

    impl Error for Sending {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    fn messages(error: &(dyn Error + 'static)) -> Vec<String> {
        let mut said = vec![error.to_string()];
        let mut next = error.source();
        while let Some(error) = next {
            said.push(error.to_string());
            next = error.source();
        }
        said
    }

    #[test]
    fn a_printed_chain_has_every_message_once() {
        let expected = ["sending".to_owned(), fmt::Error.to_string()];
        assert_eq!(messages(&boxed(Sending(fmt::Error))), expected);
        assert_eq!(messages(&boxed(boxed(Sending(fmt::Error)))), expected);
    }

    #[test]
    fn a_classifier_finds_what_is_inside() {
        use std::sync::Arc;
        let of_sending = |outcome: &Outcome<'_>| match outcome.error().and_then(Error::source) {
            Some(inside) if inside.is::<Sending>() => Verdict::Success,
            _ => panic!("a bug in a classifier"),
        };
        let chain: [Arc<dyn Classifier>; 1] = [Arc::new(of_sending)];
        let (found, lost) = (boxed(Sending(fmt::Error)), boxed(fmt::Error));
        assert_eq!(classify::opinion(&Outcome::Error(&found), &chain), Verdict::Success);
        assert_eq!(classify::opinion(&Outcome::Error(&lost), &chain), Verdict::Pass);
        assert_eq!(messages(&found).len(), 2, "whatever was found, and after a panic too");
    }

    /// With a context around it, as its users put one.
    #[cfg(feature = "reqwest-middleware")]
    #[test]
    fn so_is_what_is_inside_anyhow() {
        use reqwest_middleware::Error as Middleware;
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let Middleware::Middleware(error) = Middleware::middleware(refused) else { panic!("it is anyhow's") };
        assert_eq!(classify::failure(&Opaque(error)).code.as_deref(), Some("connection_refused"));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let Middleware::Middleware(error) = Middleware::middleware(refused) else { panic!("it is anyhow's") };
        let error = Opaque(error.context("charging order 42"));
        assert_eq!(error.to_string(), "charging order 42");
        assert_eq!(classify::failure(&error).code.as_deref(), Some("connection_refused"));
    }
}
