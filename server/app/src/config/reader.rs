//! From leaves to a configuration, or to every mistake in them.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use damper_core::{Policy, PolicyDraft, PolicyFault};
use damper_engine::{Settings, Unknown};

use super::faults::{ConfigError, ConfigFault};
use super::keys::{ABSENT, Key, POLICY, SERVER, ServerDraft, TELEMETRY, TENANT, TelemetryDraft};
use super::sources::{Leaf, Sources};
use super::value::{Value, Wrong};
use super::{Config, DEFAULT_LISTEN, Telemetry};

/// How alike a word must be to be the one that was meant.
const ALIKE: f64 = 0.75;

/// The sections of a configuration.
pub(super) const SECTIONS: [&str; 4] = ["server", "telemetry", "defaults", "dependencies"];

/// What was written, and what is wrong with it.
#[derive(Default)]
struct Reader<'a> {
    server: ServerDraft,
    telemetry: TelemetryDraft,
    defaults: PolicyDraft,
    dependencies: BTreeMap<String, PolicyDraft>,
    /// Where each key was written last.
    origins: HashMap<Vec<String>, &'a str>,
    faults: Vec<ConfigFault>,
}

/// Reads leaves, the later ones over the earlier, for a new server or for one that runs.
pub(super) fn read(
    leaves: &[Leaf],
    faults: Vec<ConfigFault>,
    running: Option<&Config>,
) -> Result<Config, ConfigError> {
    let mut reader = Reader { faults, ..Reader::default() };
    for leaf in leaves {
        reader.origins.insert(leaf.path.clone(), &leaf.origin);
        if let Err(wrong) = reader.take(leaf) {
            reader.fault(leaf.path.clone(), wrong.message);
        }
    }
    reader.finish(running)
}

impl Reader<'_> {
    fn fault(&mut self, place: Vec<String>, message: String) {
        let origin = self.origins.get(&place).map_or("configuration", |origin| origin).to_owned();
        self.faults.push(ConfigFault { origin, place, message });
    }

    fn take(&mut self, leaf: &Leaf) -> Result<(), Wrong> {
        let path: Vec<&str> = leaf.path.iter().map(String::as_str).collect();
        match path.as_slice() {
            [section] if SECTIONS.contains(section) => section_alone(section, &leaf.value),
            ["server", rest @ ..] => set("server", SERVER, &mut self.server, rest, &leaf.value),
            ["telemetry", rest @ ..] => set("telemetry", TELEMETRY, &mut self.telemetry, rest, &leaf.value),
            ["defaults", rest @ ..] => policy(&mut self.defaults, rest, &leaf.value),
            ["dependencies", name, rest @ ..] => {
                if let Some(wrong) = Wrong::name("dependency", name) {
                    return Err(wrong);
                }
                policy(self.dependencies.entry((*name).to_owned()).or_default(), rest, &leaf.value)
            }
            path => Err(unknown("", path, SECTIONS.into_iter())),
        }
    }

    fn finish(mut self, running: Option<&Config>) -> Result<Config, ConfigError> {
        let defaults = self.policy(&["defaults"], &self.defaults.clone(), &[]);
        let inherited = Policy::new(&self.defaults).err().unwrap_or_default();
        let drafts = std::mem::take(&mut self.dependencies);
        let policies: BTreeMap<String, Arc<Policy>> = drafts
            .into_iter()
            .map(|(name, draft)| {
                let draft = draft.or(&self.defaults);
                let policy = self.policy(&["dependencies", &name], &draft, &inherited);
                (name, policy)
            })
            .collect();
        let listen = self.server.listen.unwrap_or(DEFAULT_LISTEN);
        let insecure = self.server.insecure.unwrap_or(false);
        self.check_address(listen, insecure, running);
        if !self.faults.is_empty() {
            return Err(ConfigError::Faults(self.faults));
        }
        let settings = Settings {
            defaults,
            dependencies: policies,
            unknown: self.server.unknown_dependencies.unwrap_or(Unknown::Create),
            most_dependencies: self.server.max_dependencies.unwrap_or(1000) as usize,
        };
        let (caller_per_s, defaults) = (self.server.caller_per_s, self.defaults);
        let telemetry = telemetry(self.telemetry);
        let (any_port, sources) = (running.is_some_and(|running| running.any_port), Sources::default());
        Ok(Config { listen, any_port, insecure, caller_per_s, telemetry, settings, defaults, sources })
    }

    fn check_address(&mut self, listen: SocketAddr, insecure: bool, running: Option<&Config>) {
        let place = || vec!["server".to_owned(), "listen".to_owned()];
        if let Some(Config { listen: bound, .. }) = running
            && *bound != listen
        {
            let message = format!(
                "is {listen}, but the server listens on {bound}, which cannot change while it runs; restart it, or \
                 give {bound}"
            );
            self.fault(place(), message);
        }
        if !listen.ip().is_loopback() && !insecure {
            let message = format!(
                "is {listen}, where anyone could spend the budget: this version has no credentials yet. Listen on \
                 loopback, or say --insecure (server.insecure = true) if the network keeps strangers out"
            );
            self.fault(place(), message);
        }
    }

    /// The policy that a draft makes, or its mistakes, apart from those that it inherited and were named there.
    fn policy(&mut self, section: &[&str], draft: &PolicyDraft, inherited: &[PolicyFault]) -> Arc<Policy> {
        let faults = match Policy::new(draft) {
            Ok(policy) => return policy.into(),
            Err(faults) => faults,
        };
        for fault in faults {
            let place: Vec<String> =
                section.iter().copied().chain(parts(&fault.place)).map(str::to_owned).collect();
            if self.origins.contains_key(&place) || !inherited.contains(&fault) {
                self.fault(place, fault.message);
            }
        }
        Arc::default()
    }
}

fn telemetry(draft: TelemetryDraft) -> Telemetry {
    let TelemetryDraft { tenants, max_tenants, log_format, otlp_endpoint, trace_ratio } = draft;
    Telemetry {
        tenants: tenants.unwrap_or(false).then(|| max_tenants.unwrap_or(100)),
        log_format: log_format.unwrap_or_default(),
        otlp_endpoint: otlp_endpoint.filter(|endpoint| !endpoint.is_empty()),
        trace_ratio: trace_ratio.unwrap_or(1.0),
    }
}

/// The parts of a place in a policy. Only the name of a tenant can have dots.
pub(super) fn parts(place: &str) -> impl Iterator<Item = &str> {
    let of_tenant = place.split_once('.').filter(|(first, _)| *first == "tenants");
    let of_tenant =
        of_tenant.and_then(|(first, rest)| rest.rsplit_once('.').map(|(name, key)| [first, name, key]));
    let plain = if of_tenant.is_some() { "" } else { place };
    of_tenant.into_iter().flatten().chain(plain.split('.').filter(|part| !part.is_empty()))
}

fn section_alone(section: &str, value: &Value) -> Result<(), Wrong> {
    match value {
        Value::Section => Ok(()),
        other => Err(Wrong::kind(other, format!("its keys: write [{section}] and the keys below"))),
    }
}

/// Sets a key of a dependency.
pub(super) fn policy(draft: &mut PolicyDraft, path: &[&str], value: &Value) -> Result<(), Wrong> {
    match path {
        ["tenants", name, rest @ ..] => {
            if let Some(wrong) = Wrong::name("tenant", name) {
                return Err(wrong);
            }
            let tenant = draft.tenants.entry((*name).to_owned()).or_default();
            set("tenant", TENANT, tenant, rest, value)
        }
        path => set("policy", POLICY, draft, path, value),
    }
}

/// Sets a key of a section that has a table of keys.
fn set<T>(section: &str, keys: &[Key<T>], target: &mut T, path: &[&str], value: &Value) -> Result<(), Wrong> {
    // Part by part: a quoted "retry.per_s" is one part, and no key.
    if let Some(key) = keys.iter().find(|key| key.path.split('.').eq(path.iter().copied())) {
        return (key.set)(target, value);
    }
    let dotted = path.join(".");
    let is_section = dotted.is_empty()
        || dotted == "tenants" && section == "policy"
        || keys.iter().any(|key| key.path.strip_prefix(&dotted).is_some_and(|rest| rest.starts_with('.')));
    match value {
        Value::Section if is_section => Ok(()),
        other if is_section => Err(Wrong::kind(other, "its keys: it is a section")),
        _ => Err(unknown(section, path, keys.iter().map(|key| key.path))),
    }
}

/// What to say of a key that does not exist.
fn unknown(section: &str, path: &[&str], known: impl Iterator<Item = &'static str>) -> Wrong {
    let dotted = path.join(".");
    let is_absent = |(absent_in, key): &&(&str, &str)| {
        *absent_in == section
            && (dotted == *key || dotted.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
    };
    if ABSENT.iter().any(|absent| is_absent(&absent)) {
        let message = "is not available in this version; leave it out".to_owned();
        return Wrong { code: "unavailable", message };
    }
    let message = match nearest(&dotted, known) {
        Some(key) => format!("is not a key; did you mean {key}?"),
        None => "is not a key; `damper --help` lists the keys".to_owned(),
    };
    Wrong { code: "unknown_key", message }
}

/// The one of `known` that was meant, if one of them is like what was given.
pub(crate) fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody means a key with a name of hundreds of letters, and comparing them is work.
    let known = known.filter(|key| given.len() <= 4 * key.len());
    let alike = |key: &str| strsim::normalized_damerau_levenshtein(key, given).max(end_alike(key, given));
    let alike = known.map(|key| (alike(key), key)).filter(|(alike, _)| *alike >= ALIKE);
    alike.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, key)| key)
}

/// How alike the last parts are: the right key in the wrong section is found too.
fn end_alike(key: &str, given: &str) -> f64 {
    let end = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    strsim::normalized_damerau_levenshtein(&end(key), &end(given)) * 0.99
}
