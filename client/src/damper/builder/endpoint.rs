//! The server's address: what can be one, and how it is shown.

use reqwest::Url;

use super::BuildError;

/// Reads an endpoint.
pub(super) fn url(endpoint: &str) -> Result<Url, BuildError> {
    let shown = || shown(endpoint);
    match Url::parse(endpoint) {
        Ok(url) if url.scheme() == "https" => Err(BuildError::Tls { endpoint: shown() }),
        Ok(url) if url.scheme() != "http" || !url.has_host() => {
            Err(BuildError::Endpoint { endpoint: shown() })
        }
        Ok(url) if url.query().is_some() => {
            Err(BuildError::EndpointPart { endpoint: shown(), part: "a query, from the ? on" })
        }
        Ok(url) if url.fragment().is_some() => {
            Err(BuildError::EndpointPart { endpoint: shown(), part: "a fragment, from the # on" })
        }
        Ok(url) => Ok(url),
        Err(_) => Err(BuildError::Endpoint { endpoint: shown() }),
    }
}

/// An endpoint, URL or not, without what may be secret in it: user info, query and fragment.
pub(super) fn shown(endpoint: &str) -> String {
    let (user_info, rest) = endpoint.rsplit_once('@').unwrap_or(("", endpoint));
    let scheme = user_info.split_once("://").map(|(scheme, _)| format!("{scheme}://"));
    let hidden = if rest.len() == endpoint.len() { "" } else { "***@" };
    let end = rest.find(['?', '#']);
    let (kept, cut) = end.and_then(|end| rest.split_at_checked(end)).unwrap_or((rest, ""));
    let mark = cut.chars().next().map(|mark| format!("{mark}…"));
    format!("{}{hidden}{kept}{}", scheme.unwrap_or_default(), mark.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use crate::{BuildError, Damper};

    fn refused(endpoint: &str) -> BuildError {
        Damper::builder(endpoint).build().unwrap_err()
    }

    #[test]
    fn no_secret_of_an_endpoint_is_shown() {
        let cases = [
            ("https://user:secret@host", "https://***@host"),
            ("https://secret@host:1/x", "https://***@host:1/x"),
            ("https://user:sec@ret@host", "https://***@host"),
            ("user:secret@host", "***@host"),
            ("http:user:secret@", "***@"),
            ("http://user:se/secret@host", "http://***@host"),
            ("http://user:s?secret@host", "http://***@host"),
            ("ftp://user:secret@host", "ftp://***@host"),
            ("http://user:secret@host?x=secret", "http://***@host?…"),
            ("http://user:secret@host/#secret", "http://***@host/#…"),
            ("https://host?key=secret", "https://host?…"),
        ];
        for (endpoint, shown) in cases {
            let error = refused(endpoint);
            assert!(error.to_string().contains(&format!("{shown:?}")), "{endpoint}: {error}");
            let builder = format!("{:?}", Damper::builder(endpoint));
            assert!(!format!("{error} {error:?} {builder}").contains("secret"), "{error:?} {builder}");
        }
        let damper = Damper::builder("http://user:secret@127.0.0.1:1").build().unwrap();
        assert!(!format!("{damper:?} {:?}", damper.health()).contains("secret"));
    }

    #[test]
    fn what_would_be_dropped_is_refused() {
        for (endpoint, part) in [
            ("http://host?x=1", "a query, from the ? on"),
            ("http://host/damper?", "a query, from the ? on"),
            ("http://host/#f", "a fragment, from the # on"),
        ] {
            let error = refused(endpoint).to_string();
            assert!(error.contains(part) && error.ends_with("leave it out"), "{error}");
        }
        assert!(Damper::builder("http://127.0.0.1:1/damper/").build().is_ok(), "a path is kept");
    }
}
