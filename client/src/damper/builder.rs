//! Setting a client up.

mod credential;
mod endpoint;

use std::{env::VarError, fmt, sync::Arc, time::Duration};

use damper_protocol::{ClientIdentity, DEFAULT_ADDRESS, FailMode, name_fault};

use self::credential::Credential;
use super::{Damper, Handle};
use crate::{
    Hooks, Observer,
    backoff::fresh_rng,
    core::{Core, Setup, Switch},
    observer::Audience,
    retry_after::digits,
    transport::{Nowhere, Transport, http::Http},
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
    max_attempts: Option<u32>,
    seed: Option<u64>,
    credential: Option<Credential>,
    observer: Audience,
    hooks: Option<Arc<dyn Hooks>>,
    env: Env,
}

/// Looks an environment variable up.
type Env = Box<dyn Fn(&str) -> Option<String>>;

/// A client cannot be set up like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The endpoint asks for TLS.
    #[error(
        "the endpoint {endpoint:?} asks for TLS, which this client does not support yet: give it an http:// URL, \
         of a proxy on this machine that does TLS if the way to the server needs it"
    )]
    Tls {
        /// As it was given, without user info and query.
        endpoint: String,
    },
    /// The endpoint is not an `http://` URL.
    #[error("the endpoint {endpoint:?} is not an http:// URL such as http://127.0.0.1:7117")]
    Endpoint {
        /// As it was given, without user info and query.
        endpoint: String,
    },
    /// The endpoint has a part that no request would carry.
    #[error("the endpoint {endpoint:?} has {part}, which no request to the server would carry: leave it out")]
    EndpointPart {
        /// As it was given, without user info and query.
        endpoint: String,
        /// Which part.
        part: &'static str,
    },
    /// A name is not 1 to 128 bytes of printable text.
    #[error("the {what} {fault}")]
    Name {
        /// Which name.
        what: &'static str,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The file that `DAMPER_CREDENTIAL_FILE` names cannot be read.
    #[error(
        "the credential file {path:?} cannot be read ({error}): mend DAMPER_CREDENTIAL_FILE or the file's \
         permissions, or unset the variable if the server asks for no credential"
    )]
    CredentialFile {
        /// As it was given.
        path: String,
        /// The operating system's word.
        error: String,
    },
    /// The credential, or its file, is empty.
    #[error("{origin} is empty: put one there, or set none if the server asks for none")]
    CredentialEmpty {
        /// Which credential.
        origin: String,
    },
    /// No header can carry the credential.
    #[error("{origin} holds characters that no header can carry: it has to be one line of printable text")]
    CredentialText {
        /// Which credential.
        origin: String,
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
            max_attempts: None,
            seed: None,
            credential: None,
            observer: Audience::default(),
            hooks: None,
            env: Box::new(variable),
        }
    }

    pub(super) fn from_env(env: Env) -> Self {
        let endpoint = given(&env, "DAMPER_ENDPOINT").unwrap_or_else(|| format!("http://{DEFAULT_ADDRESS}"));
        let credential = env("DAMPER_CREDENTIAL_FILE").map(Credential::File);
        Self { tenant: given(&env, "DAMPER_TENANT"), credential, env, ..Self::new(endpoint) }
    }

    /// Who spends: a service, team or customer account. Default: the server decides.
    pub fn tenant(self, tenant: impl Into<String>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// The bearer credential that the server knows this client by. Never logged. Default: none.
    pub fn credential(self, credential: impl Into<String>) -> Self {
        Self { credential: Some(Credential::Text(credential.into())), ..self }
    }

    /// Most attempts of any operation, the first included, whatever profiles and policies allow; 0 counts as 1.
    /// Default: no such limit.
    pub fn max_attempts(self, attempts: u32) -> Self {
        Self { max_attempts: Some(attempts.max(1)), ..self }
    }

    /// Makes every jitter of this client the same in every run. For tests alone: a fleet that shares a seed comes
    /// back as one.
    #[cfg(feature = "test-util")]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
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
        Self { observer: Audience(Some(Arc::new(observer))), ..self }
    }

    /// Who has a say in all operations. Default: nobody.
    pub fn hooks(self, hooks: impl Hooks) -> Self {
        Self { hooks: Some(Arc::new(hooks)), ..self }
    }

    /// Builds the client. Connects to nothing, never waits, and does not fail because a server is down.
    ///
    /// Two switches of the environment are honoured, with the word `true` in any case: `DAMPER_DISABLED` makes
    /// the client [inert](Damper::inert), `DAMPER_NO_RETRY` leaves counting and reporting on and retries off.
    /// `DAMPER_MODE` is `enforce`; `observe`, in which everything is asked and counted and no refusal obeyed, the
    /// server's or the client's own; or `bypass`, which is inert. `DAMPER_MAX_ATTEMPTS`, a number up to 4294967295,
    /// bounds the attempts of every operation as [`max_attempts`](Self::max_attempts) does. The strictest of all wins.
    /// Any other value, such as `1` or `yes` for a switch, is ignored with a warning, and so is one that is not UTF-8.
    /// An inert client looks at nothing else: a switch gets a service started whatever is wrong with its set-up.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if the endpoint, a name or the credential cannot be one.
    pub fn build(self) -> Result<Damper, BuildError> {
        let switch = switch(&self.env);
        if switch == Switch::Inert {
            return Ok(self.build_over(Arc::new(Nowhere), switch));
        }
        let endpoint = endpoint::url(&self.endpoint)?;
        check("tenant", self.tenant.as_deref())?;
        check("client id", self.client_id.as_deref())?;
        check("name", self.name.as_deref())?;
        let authorization = self.credential.as_ref().map(Credential::bearer).transpose()?;
        let http = Http::new(&endpoint, self.tenant.as_deref(), authorization)
            .map_err(|error| BuildError::Http(error.without_url().to_string()))?;
        let allowed = max_attempts(&self.env);
        let max_attempts = self.max_attempts.into_iter().chain(allowed).min();
        Ok(Self { max_attempts, ..self }.build_over(Arc::new(http), switch))
    }

    /// A client that needs nothing.
    pub(super) fn inert() -> Damper {
        Self::new(String::new()).build_over(Arc::new(Nowhere), Switch::Inert)
    }

    pub(crate) fn build_over(self, transport: Arc<dyn Transport>, switch: Switch) -> Damper {
        let incarnation = format!("{:016x}", fresh_rng().u64(..));
        let identity = ClientIdentity {
            id: self.client_id.unwrap_or_else(|| format!("client-{incarnation}")),
            incarnation,
            name: self.name,
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        };
        let setup = Setup {
            observer: self.observer,
            hooks: self.hooks,
            identity,
            tenant: self.tenant,
            fail_mode: self.fail_mode,
            switch,
            answer_within: self.answer_within,
            max_attempts: self.max_attempts,
            seed: self.seed,
        };
        let core = Core::new(transport, setup);
        let (stop, _) = tokio::sync::watch::channel(());
        Damper { handle: Arc::new(Handle { core: Arc::new(core), stop }) }
    }
}

fn check(what: &'static str, name: Option<&str>) -> Result<(), BuildError> {
    match name.and_then(name_fault) {
        Some(fault) => Err(BuildError::Name { what, fault }),
        None => Ok(()),
    }
}

/// A variable that is set and empty, as templates of deployments leave it, counts as one that is not set.
fn given(env: &dyn Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    let value = env(name)?;
    if value.is_empty() {
        tracing::warn!(target: "damper", name, "ignored: it is set and empty; the default holds");
        return None;
    }
    Some(value)
}

/// Looks a variable up in the environment of the process.
pub(super) fn variable(name: &str) -> Option<String> {
    readable(name, std::env::var(name))
}

fn readable(name: &str, value: Result<String, VarError>) -> Option<String> {
    match value {
        Ok(value) => Some(value),
        Err(VarError::NotPresent) => None,
        Err(VarError::NotUnicode(_)) => {
            tracing::warn!(target: "damper", name, "ignored: its value is not UTF-8");
            None
        }
    }
}

fn switch(env: &dyn Fn(&str) -> Option<String>) -> Switch {
    let mode = mode(env);
    match (is_on(env, "DAMPER_DISABLED"), is_on(env, "DAMPER_NO_RETRY")) {
        _ if mode == Switch::Inert => Switch::Inert,
        (true, _) => Switch::Inert,
        (_, true) => Switch::NoRetry,
        _ => mode,
    }
}

fn mode(env: &dyn Fn(&str) -> Option<String>) -> Switch {
    let value = env("DAMPER_MODE").unwrap_or_default();
    match value.to_ascii_lowercase().as_str() {
        "observe" => Switch::Observe,
        "bypass" => Switch::Inert,
        "" | "enforce" => Switch::On,
        _ => {
            tracing::warn!(target: "damper", value, "DAMPER_MODE is ignored: enforce, observe or bypass");
            Switch::On
        }
    }
}

fn max_attempts(env: &dyn Fn(&str) -> Option<String>) -> Option<u32> {
    let value = env("DAMPER_MAX_ATTEMPTS").filter(|value| !value.is_empty())?;
    let attempts = digits(&value).and_then(|attempts| u32::try_from(attempts).ok());
    if attempts.is_none() {
        let most = u32::MAX;
        tracing::warn!(target: "damper", value, "DAMPER_MAX_ATTEMPTS is ignored: a number from 1 to {most}");
    }
    attempts.map(|attempts| attempts.max(1))
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
            .field("endpoint", &endpoint::shown(&self.endpoint))
            .field("tenant", &self.tenant)
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::tests::logs::Logs;

    fn env(disabled: &'static str, no_retry: &'static str) -> Switch {
        let value = |on: &str| Some(on.to_owned()).filter(|on| !on.is_empty());
        switch(&move |name| match name {
            "DAMPER_DISABLED" => value(disabled),
            "DAMPER_NO_RETRY" => value(no_retry),
            _ => None,
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
    fn the_mode_is_one_of_three_words_and_the_strictest_switch_wins() {
        let with = |mode: &'static str, no_retry: &'static str| {
            switch(&move |name| match name {
                "DAMPER_MODE" => Some(mode.to_owned()),
                "DAMPER_NO_RETRY" => Some(no_retry.to_owned()),
                _ => None,
            })
        };
        for mode in ["", "enforce", "junk", "off"] {
            assert_eq!(with(mode, ""), Switch::On, "{mode}");
        }
        assert_eq!((with("Observe", ""), with("BYPASS", "")), (Switch::Observe, Switch::Inert));
        assert_eq!((with("observe", "true"), with("bypass", "true")), (Switch::NoRetry, Switch::Inert));
    }

    #[test]
    fn the_attempts_of_the_environment_are_a_number_from_one() {
        let most = |value: &'static str| max_attempts(&move |_| Some(value.to_owned()));
        assert_eq!((most("1"), most("3")), (Some(1), Some(3)));
        assert_eq!((most("0"), most("4294967295")), (Some(1), Some(u32::MAX)), "as the builder takes them");
        let (logs, _guard) = crate::tests::logs::Logs::of_this_thread();
        assert_eq!(most("1000000000000"), None);
        let said = "DAMPER_MAX_ATTEMPTS is ignored: a number from 1 to 4294967295".to_owned();
        assert_eq!(logs.take(), [(tracing::Level::WARN, said)]);
        for junk in ["", "-1", "+1", "many", "1.5", " 2", "99999999999"] {
            assert_eq!(most(junk), None, "{junk}");
        }
    }

    #[test]
    fn a_credential_that_cannot_be_used_is_a_mistake() {
        let dead = || Builder::new("http://127.0.0.1:1".to_owned());
        assert!(dead().credential("abc.def").build().is_ok());
        let message = |builder: Builder| builder.build().unwrap_err().to_string();
        assert!(message(dead().credential("")).starts_with("the credential is empty: put one there"));
        assert!(message(dead().credential("a\nb")).starts_with("the credential holds characters"));
        let in_file = |path: &str| {
            let path = path.to_owned();
            let env = move |name: &str| (name == "DAMPER_CREDENTIAL_FILE").then(|| path.clone());
            Builder::from_env(Box::new(env))
        };
        let missing = message(in_file("/no/such/file"));
        assert!(missing.contains("\"/no/such/file\" cannot be read (No such file"), "{missing}");
        assert!(
            message(in_file("/dev/null")).starts_with("the credential in the file \"/dev/null\" is empty")
        );
    }

    #[test]
    fn an_inert_client_starts_whatever_is_wrong() {
        for (name, value) in [("DAMPER_DISABLED", "true"), ("DAMPER_MODE", "bypass")] {
            let env = move |asked: &str| match asked {
                "DAMPER_CREDENTIAL_FILE" => Some("/no/such/file".to_owned()),
                "DAMPER_ENDPOINT" => Some("nonsense".to_owned()),
                "DAMPER_TENANT" => Some("a\nb".to_owned()),
                asked => (asked == name).then(|| value.to_owned()),
            };
            let damper = Builder::from_env(Box::new(env)).build().unwrap();
            assert!(damper.health().retries_off, "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_not_utf_8_is_ignored_with_a_warning() {
        use std::os::unix::ffi::OsStringExt;

        let (logs, _guard) = Logs::of_this_thread();
        assert_eq!(readable("DAMPER_TENANT", Ok("t".to_owned())), Some("t".to_owned()));
        assert_eq!(readable("DAMPER_TENANT", Err(VarError::NotPresent)), None);
        assert!(logs.take().is_empty());
        let odd = std::ffi::OsString::from_vec(vec![b't', 0xff]);
        assert_eq!(readable("DAMPER_TENANT", Err(VarError::NotUnicode(odd))), None);
        let expected = (Level::WARN, "ignored: its value is not UTF-8".to_owned());
        assert_eq!(logs.take(), [expected]);
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
    fn a_variable_that_is_set_and_empty_is_none_and_the_log_says_so() {
        let (logs, _guard) = Logs::of_this_thread();
        let builder = Builder::from_env(Box::new(|_| Some(String::new())));
        assert_eq!((builder.endpoint.as_str(), &builder.tenant), ("http://127.0.0.1:7117", &None));
        let error = builder.build().unwrap_err();
        assert!(
            matches!(error, BuildError::CredentialFile { .. }),
            "none at all would be a surprise: {error}"
        );
        for name in ["DAMPER_ENDPOINT", "DAMPER_TENANT"] {
            assert_eq!(logs.count(Level::WARN, "name", name), 1, "{name}");
        }
        assert!(logs.take().iter().all(|(_, message)| message.contains("set and empty")));
    }

    #[test]
    fn mistakes_are_found_when_it_is_built_and_a_dead_server_is_none() {
        let error = Builder::new("https://damper".to_owned()).build().unwrap_err();
        assert_eq!(error, BuildError::Tls { endpoint: "https://damper".to_owned() });
        for endpoint in ["", "damper", "127.0.0.1:7117", "ftp://damper", "http://"] {
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
