//! Connections that were not made: whatever the reason, nothing was sent. What matters is whether the next try can
//! end differently.

use std::{error::Error, io};

use damper_protocol::{Dispatch, FailureClass as Class};

use crate::{Failure, classify::find};

/// The tunnel through a proxy that wants credentials. Neither the error's type nor the status can be reached.
const PROXY_WANTS_CREDENTIALS: &str = "tunnel error: proxy authorization required";

/// A peer that cannot be trusted or talked to, and a proxy that knows nobody, stay as they are; what else can go wrong
/// may pass. A wording that is not recognised costs a retry, and never does harm.
pub(super) fn failure(error: &(dyn Error + 'static)) -> Failure {
    let (class, code) = find(error, verdict).unwrap_or((Class::Transient, "connect"));
    Failure::new(class).with_dispatch(Dispatch::NotSent).with_code(code)
}

fn verdict(error: &(dyn Error + 'static)) -> Option<(Class, &'static str)> {
    let text = error.to_string();
    if is_invalid_data(error) || speaks_of_refused_tls(&text) {
        return Some((Class::Fatal, "tls"));
    }
    (text == PROXY_WANTS_CREDENTIALS).then_some((Class::Permission, "407"))
}

/// How rustls reports certificates that it does not trust, alerts of the peer, and what is not TLS at all. A peer
/// that hangs up in the handshake is an unexpected end instead.
fn is_invalid_data(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}

/// The other libraries have only their wording: OpenSSL names the part of it that refused, the ones of Apple and
/// Microsoft a certificate.
fn speaks_of_refused_tls(text: &str) -> bool {
    let openssl = text.contains(":SSL routines:") && !text.contains("unexpected eof");
    openssl || text.contains(" certificate ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What libraries say whose types are out of reach. Those of OpenSSL are in the words of its version 3.
    #[test]
    fn wordings() {
        let cases = [
            (
                "error:0A000086:SSL routines:tls_post_process_server_certificate:certificate verify \
                 failed:../ssl/statem/statem_clnt.c:1889: (certificate has expired)",
                Class::Fatal,
            ),
            (
                "error:0A00042E:SSL routines:ssl3_read_bytes:tlsv1 alert protocol version:..:1601:SSL alert number 70",
                Class::Fatal,
            ),
            ("error:0A00010B:SSL routines:ssl3_get_record:wrong version number:..:350:", Class::Fatal),
            ("The certificate was not trusted.", Class::Fatal),
            ("error:0A000126:SSL routines::unexpected eof while reading:..:308:", Class::Transient),
            ("unexpected EOF", Class::Transient),
            ("dns error: no records found for certificate.test.", Class::Transient),
            ("tunnel error: proxy authorization required", Class::Permission),
            ("tunnel error: unsuccessful", Class::Transient),
        ];
        for (text, class) in cases {
            for error in [Box::<dyn Error>::from(text), Box::new(io::Error::other(text))] {
                let failure = failure(&*error);
                assert_eq!((failure.class, failure.dispatch), (class, Dispatch::NotSent), "{text}");
            }
        }
    }

    /// hyper-rustls hides the error of rustls two deep.
    #[test]
    fn invalid_data_inside_another_error() {
        let inner = io::Error::new(io::ErrorKind::InvalidData, "invalid peer certificate: UnknownIssuer");
        assert_eq!(failure(&io::Error::other(inner)).class, Class::Fatal);
        let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof");
        assert_eq!(failure(&io::Error::other(cut)).class, Class::Transient);
    }
}
