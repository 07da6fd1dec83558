//! Where the credential comes from, and what can be wrong with it.

use http::HeaderValue;

use super::BuildError;

/// The credential as it was given. Its file is read when the client is built, and not at all by an inert one.
pub(super) enum Credential {
    Text(String),
    File(String),
}

impl Credential {
    /// The header that carries it. A credential that cannot be used is a mistake, and must not end in a client
    /// without one.
    pub(super) fn bearer(&self) -> Result<HeaderValue, BuildError> {
        let (text, origin) = match self {
            Self::Text(text) => (text.clone(), "the credential".to_owned()),
            Self::File(path) => (read(path)?, format!("the credential in the file {path:?}")),
        };
        if text.is_empty() {
            return Err(BuildError::CredentialEmpty { origin });
        }
        match HeaderValue::try_from(format!("Bearer {text}")) {
            Ok(mut value) => {
                value.set_sensitive(true);
                Ok(value)
            }
            Err(_) => Err(BuildError::CredentialText { origin }),
        }
    }
}

fn read(path: &str) -> Result<String, BuildError> {
    let text = std::fs::read_to_string(path);
    let unreadable = |error: std::io::Error| BuildError::CredentialFile {
        path: path.to_owned(),
        error: error.to_string(),
    };
    text.map(|text| text.trim().to_owned()).map_err(unreadable)
}
