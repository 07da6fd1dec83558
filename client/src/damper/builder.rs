//! Setting a client up.

use std::{fmt, sync::Arc, time::Duration};

use damper_protocol::{ClientIdentity, DEFAULT_ADDRESS, FailMode, name_fault};
use reqwest::Url;

use super::{Damper, Handle};
use crate::{
    Observer,
    backoff::fresh_rng,
    core::{Core, Switch},
    observer::Nobody,
    transport::{Transport, http::Http},
};

/// Sets a client up. Built by [`Damper::builder`].
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    endpoint: String,
    tenant: Option<String>,
    client_id: Option<String>,
    name: Option<String>,
    fail_mode: FailMode,
    answer_within: Duration,
    observer: Arc<dyn Observer>,
    env: Env,
}

/// Looks an environment variable up.
type Env = Box<dyn Fn(&str) -> Option<String>>;

/// A client cannot be set up like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The endpoint is not an `http://` URL.
    #[error("the endpoint {endpoint:?} is not an http:// URL such as http://127.0.0.1:7117")]
    Endpoint {
        /// As it was given.
        endpoint: String,
    },
    /// A name is not 1 to 128 bytes of printable text.
    #[error("the {what} {fault}")]
    Name {
        /// Which name.
        what: &'static str,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The HTTP client could not be set up.
    #[error("the HTTP client cannot be set up: {0}")]
    Http(String),
}

impl Builder {
    pub(super) fn new(endpoint: String) -> Self {
        Self {
            endpoint,
            tenant: None,
            client_id: None,
            name: None,
            fail_mode: FailMode::Open,
            answer_within: Duration::from_millis(20),
            observer: Arc::new(Nobody),
            env: Box::new(|name| std::env::var(name).ok()),
        }
    }

    pub(super) fn from_env(env: Env) -> Self {
        let endpoint = env("DAMPER_ENDPOINT").unwrap_or_else(|| format!("http://{DEFAULT_ADDRESS}"));
        Self { tenant: env("DAMPER_TENANT"), env, ..Self::new(endpoint) }
    }

    /// Who spends: a service, team or customer account. Default: the server decides.
    pub fn tenant(self, tenant: impl Into<String>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// This place in the fleet, such as a pod's name: unique among the clients that live at the same time.
    /// Default: random.
    pub fn client_id(self, id: impl Into<String>) -> Self {
        Self { client_id: Some(id.into()), ..self }
    }

    /// The service's name, for people. Default: none.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// What to do about retries on a dependency whose policy no server has told yet. Default: open, which
    /// retries within a small local budget.
    pub fn fail_mode(self, fail_mode: FailMode) -> Self {
        Self { fail_mode, ..self }
    }

    /// How long the server may take for what it can answer at once; a queued ask gets the end of its window on
    /// top. After that the outage rules decide. Default: 20 ms.
    pub fn answer_within(self, limit: Duration) -> Self {
        Self { answer_within: limit, ..self }
    }

    /// Who is told what happens. Default: nobody.
    pub fn observer(self, observer: impl Observer) -> Self {
        Self { observer: Arc::new(observer), ..self }
    }

    /// Builds the client. Connects to nothing, never waits, and does not fail because a server is down.
    ///
    /// Two switches of the environment are honoured, with the word `true` in any case: `DAMPER_DISABLED` makes
    /// the client [inert](Damper::inert), `DAMPER_NO_RETRY` leaves counting and reporting on and retries off.
    /// Any other value is ignored with a warning.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if the endpoint or a name cannot be one.
    pub fn build(self) -> Result<Damper, BuildError> {
        let endpoint = self.url()?;
        check("tenant", self.tenant.as_deref())?;
        check("client id", self.client_id.as_deref())?;
        check("name", self.name.as_deref())?;
        let http = Http::new(&endpoint, self.tenant.as_deref())
            .map_err(|error| BuildError::Http(error.to_string()))?;
        let switch = switch(&self.env);
        Ok(self.build_over(Arc::new(http), switch))
    }

    /// A client that needs nothing.
    pub(super) fn inert() -> Damper {
        Self::new(String::new()).build_over(Arc::new(crate::transport::Nowhere), Switch::Inert)
    }

    pub(crate) fn build_over(self, transport: Arc<dyn Transport>, switch: Switch) -> Damper {
        let incarnation = format!("{:016x}", fresh_rng().u64(..));
        let identity = ClientIdentity {
            id: self.client_id.unwrap_or_else(|| format!("client-{incarnation}")),
            incarnation,
            name: self.name,
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        };
        let core = Core::new(
            transport,
            self.observer,
            identity,
            self.tenant,
            self.fail_mode,
            switch,
            self.answer_within,
        );
        let (stop, _) = tokio::sync::watch::channel(());
        Damper { handle: Arc::new(Handle { core: Arc::new(core), stop }) }
    }

    fn url(&self) -> Result<Url, BuildError> {
        let url = Url::parse(&self.endpoint).ok().filter(|url| url.scheme() == "http" && url.has_host());
        url.ok_or_else(|| BuildError::Endpoint { endpoint: self.endpoint.clone() })
    }
}

fn check(what: &'static str, name: Option<&str>) -> Result<(), BuildError> {
    match name.and_then(name_fault) {
        Some(fault) => Err(BuildError::Name { what, fault }),
        None => Ok(()),
    }
}

fn switch(env: &dyn Fn(&str) -> Option<String>) -> Switch {
    match (is_on(env, "DAMPER_DISABLED"), is_on(env, "DAMPER_NO_RETRY")) {
        (true, _) => Switch::Inert,
        (_, true) => Switch::NoRetry,
        _ => Switch::On,
    }
}

fn is_on(env: &dyn Fn(&str) -> Option<String>, name: &str) -> bool {
    let Some(value) = env(name) else { return false };
    let on = value.eq_ignore_ascii_case("true");
    if !on && !value.is_empty() && !value.eq_ignore_ascii_case("false") {
        tracing::warn!(target: "damper", name, value, "ignored: only the word true switches it");
    }
    on
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("endpoint", &self.endpoint)
            .field("tenant", &self.tenant)
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(disabled: &'static str, no_retry: &'static str) -> Switch {
        let value = |on: &str| Some(on.to_owned()).filter(|on| !on.is_empty());
        switch(&move |name| match name {
            "DAMPER_DISABLED" => value(disabled),
            _ => value(no_retry),
        })
    }

    #[test]
    fn only_the_word_true_is_a_switch() {
        for on in ["true", "TRUE", "True"] {
            assert_eq!(env(on, ""), Switch::Inert);
            assert_eq!(env("", on), Switch::NoRetry);
            assert_eq!(env(on, on), Switch::Inert);
        }
        for off in ["", "1", "yes", "false", "on", " true"] {
            assert_eq!(env(off, off), Switch::On, "{off:?}");
        }
    }

    #[test]
    fn the_environment_sets_endpoint_and_tenant() {
        let builder = Builder::from_env(Box::new(|_| None));
        assert_eq!((builder.endpoint.as_str(), builder.tenant), ("http://127.0.0.1:7117", None));
        let builder = Builder::from_env(Box::new(|name| match name {
            "DAMPER_ENDPOINT" => Some("http://damper:80".to_owned()),
            "DAMPER_TENANT" => Some("checkout".to_owned()),
            _ => None,
        }));
        assert_eq!(
            (builder.endpoint.as_str(), builder.tenant.as_deref()),
            ("http://damper:80", Some("checkout"))
        );
    }

    #[test]
    fn mistakes_are_found_when_it_is_built_and_a_dead_server_is_none() {
        for endpoint in ["", "damper", "127.0.0.1:7117", "https://damper", "ftp://damper", "http://"] {
            let error = Builder::new(endpoint.to_owned()).build().unwrap_err();
            assert_eq!(error, BuildError::Endpoint { endpoint: endpoint.to_owned() });
        }
        let dead = || Builder::new("http://127.0.0.1:1".to_owned());
        for broken in [dead().tenant(""), dead().client_id("a\nb"), dead().name(" x")] {
            assert!(matches!(broken.build(), Err(BuildError::Name { .. })));
        }
        assert!(dead().tenant("t").build().is_ok());
    }
}
