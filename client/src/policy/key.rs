//! `Idempotency-Key`: a key as the header that carries it.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use crate::{Failure, context};

pub(crate) const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The key of an operation cannot be sent as a quoted string. The request has not been sent either: without its key a
/// repeat would do harm.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the idempotency key {key:?} cannot be sent: it has to be printable ASCII, and not empty")]
pub struct KeyError {
    key: Arc<str>,
    source: Failure,
}

/// The key as a string of structured fields (RFC 9651).
pub(crate) fn quoted(key: &Arc<str>) -> Result<HeaderValue, KeyError> {
    let refused = || KeyError { key: Arc::clone(key), source: Failure::unsent("idempotency_key") };
    context::string_item(key).filter(|_| !key.is_empty()).ok_or_else(refused)
}

/// The key that a header carries; one that is not quoted stands for itself.
pub(super) fn read(value: &HeaderValue) -> Option<String> {
    let text = std::str::from_utf8(value.as_bytes()).ok()?;
    let key = unquoted(text).unwrap_or_else(|| text.to_owned());
    (!key.is_empty()).then_some(key)
}

fn unquoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let (mut key, mut signs) = (String::with_capacity(inner.len()), inner.chars());
    while let Some(sign) = signs.next() {
        key.push(match sign {
            '\\' => signs.next().filter(|sign| "\"\\".contains(*sign))?,
            '"' => return None,
            sign => sign,
        });
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_is_quoted() {
        let cases = [
            ("order-42", "\"order-42\""),
            ("a b;c=d,", "\"a b;c=d,\""),
            (r#"a"b\c"#, r#""a\"b\\c""#),
            ("\"", r#""\"""#),
        ];
        for (key, header) in cases {
            assert_eq!(quoted(&Arc::from(key)).unwrap(), header, "{key}");
        }
    }

    #[test]
    fn what_no_string_can_hold_is_an_error_that_says_so() {
        for key in ["", "a\nb", "a\tb", "\0", "\u{7f}", "caf\u{e9}"] {
            let error = quoted(&Arc::from(key)).unwrap_err();
            assert!(error.to_string().starts_with(&format!("the idempotency key {key:?} cannot be sent")));
        }
    }

    #[test]
    fn a_header_that_is_not_quoted_is_a_key_too() {
        let cases = [
            ("k", Some("k")),
            ("\"k\"", Some("k")),
            (r#""a\"b""#, Some("a\"b")),
            (r#""a"b""#, Some(r#""a"b""#)),
            (r#""a\b""#, Some(r#""a\b""#)),
            ("\"k", Some("\"k")),
            ("\"", Some("\"")),
            ("\"\"", None),
            ("", None),
        ];
        for (header, key) in cases {
            assert_eq!(read(&HeaderValue::from_static(header)).as_deref(), key, "{header}");
        }
    }

    proptest! {
        #[test]
        fn a_key_comes_through_as_it_went_out(key in "[ -~]{1,40}") {
            prop_assert_eq!(read(&quoted(&Arc::from(&*key)).unwrap()), Some(key));
        }
    }
}
