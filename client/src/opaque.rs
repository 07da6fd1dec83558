//! Errors that are none by their type.

use std::{error::Error, fmt, ops::Deref};

/// An error whose type does not implement [`Error`] itself, so that an attempt cannot return it as it is:
/// `anyhow::Error` and `Box<dyn Error + Send + Sync>` are such. What is inside is its source, and understood as ever.
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
        Some(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::{Failure, FailureClass, classify};

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
