//! From leaves to a configuration, or to every mistake in them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use damper_core::{Policy, PolicyDraft, PolicyFault};
use damper_engine::{Settings, Unknown};
use damper_protocol::name_fault;

use super::faults::{ConfigError, ConfigFault};
use super::keys::{ABSENT, Key, POLICY, SERVER, ServerDraft, Wrong, number, whole};
use super::sources::{Leaf, Value};
use super::{Config, DEFAULT_LISTEN};

/// How alike a word must be to be the one that was meant.
const ALIKE: f64 = 0.75;

const SECTIONS: [&str; 3] = ["server", "defaults", "dependencies"];

/// What was written, and what is wrong with it.
#[derive(Default)]
struct Reader {
    server: ServerDraft,
    defaults: PolicyDraft,
    dependencies: BTreeMap<String, PolicyDraft>,
    /// Where each key was written last.
    origins: HashMap<String, String>,
    faults: Vec<ConfigFault>,
}

/// Reads leaves, the later ones over the earlier.
pub(super) fn read(leaves: &[Leaf], faults: Vec<ConfigFault>) -> Result<Config, ConfigError> {
    let mut reader = Reader { faults, ..Reader::default() };
    for leaf in leaves {
        reader.origins.insert(leaf.path.join("."), leaf.origin.clone());
        if let Err(wrong) = reader.take(leaf) {
            reader.fault(leaf.path.join("."), wrong);
        }
    }
    reader.finish()
}

impl Reader {
    fn fault(&mut self, place: String, message: String) {
        let origin = self.origins.get(&place).cloned().unwrap_or_else(|| "configuration".to_owned());
        self.faults.push(ConfigFault { origin, place, message });
    }

    fn take(&mut self, leaf: &Leaf) -> Result<(), Wrong> {
        let path: Vec<&str> = leaf.path.iter().map(String::as_str).collect();
        match path.as_slice() {
            [section @ ("server" | "defaults" | "dependencies")] => section_alone(section, &leaf.value),
            ["server", rest @ ..] => set("server", SERVER, &mut self.server, rest, &leaf.value),
            ["defaults", rest @ ..] => policy(&mut self.defaults, rest, &leaf.value),
            ["dependencies", name, rest @ ..] => {
                if let Some(why) = name_fault(name) {
                    return Err(format!("cannot be the name of a dependency: it {why}"));
                }
                policy(self.dependencies.entry((*name).to_owned()).or_default(), rest, &leaf.value)
            }
            path => Err(unknown("", path, SECTIONS.into_iter())),
        }
    }

    fn finish(mut self) -> Result<Config, ConfigError> {
        let defaults = self.policy("defaults", &self.defaults.clone(), &[]);
        let inherited = Policy::new(&self.defaults).err().unwrap_or_default();
        let drafts = std::mem::take(&mut self.dependencies);
        let policies: BTreeMap<String, Arc<Policy>> = drafts
            .into_iter()
            .map(|(name, draft)| {
                let draft = draft.or(&self.defaults);
                let policy = self.policy(&format!("dependencies.{name}"), &draft, &inherited);
                (name, policy)
            })
            .collect();
        let listen = self.server.listen.unwrap_or(DEFAULT_LISTEN);
        let insecure = self.server.insecure.unwrap_or(false);
        if !listen.ip().is_loopback() && !insecure {
            let message = format!(
                "is {listen}, where anyone could spend the budget: this version has no credentials yet. Listen on \
                 loopback, or say --insecure (server.insecure = true) if the network keeps strangers out"
            );
            self.fault("server.listen".to_owned(), message);
        }
        if !self.faults.is_empty() {
            return Err(ConfigError::Faults(self.faults));
        }
        let settings = Settings {
            defaults,
            dependencies: policies,
            unknown: self.server.unknown_dependencies.unwrap_or(Unknown::Create),
            most_dependencies: self.server.max_dependencies.unwrap_or(1000) as usize,
        };
        Ok(Config { listen, insecure, settings })
    }

    /// The policy that a draft makes, or its mistakes, apart from those that it inherited and were named there.
    fn policy(&mut self, section: &str, draft: &PolicyDraft, inherited: &[PolicyFault]) -> Arc<Policy> {
        let faults = match Policy::new(draft) {
            Ok(policy) => return policy.into(),
            Err(faults) => faults,
        };
        for fault in faults {
            let place = format!("{section}.{}", fault.place);
            if self.origins.contains_key(&place) || !inherited.contains(&fault) {
                self.fault(place, fault.message);
            }
        }
        Arc::default()
    }
}

fn section_alone(section: &str, value: &Value) -> Result<(), Wrong> {
    match value {
        Value::Section => Ok(()),
        other => Err(format!("is {other}; it is a section: write [{section}] and its keys below")),
    }
}

/// Sets a key of a dependency.
fn policy(draft: &mut PolicyDraft, path: &[&str], value: &Value) -> Result<(), Wrong> {
    match path {
        ["tenants", name, rest @ ..] => {
            if let Some(why) = name_fault(name) {
                return Err(format!("cannot be the name of a tenant: it {why}"));
            }
            let tenant = draft.tenants.entry((*name).to_owned()).or_default();
            match (rest, value) {
                ([], Value::Section) => Ok(()),
                (["amplification_cap"], value) => {
                    tenant.amplification_cap = Some(number(value)?);
                    Ok(())
                }
                (["weight"], value) => {
                    tenant.weight = Some(whole(value)?);
                    Ok(())
                }
                (rest, _) => Err(unknown("tenant", rest, ["weight", "amplification_cap"].into_iter())),
            }
        }
        path => set("policy", POLICY, draft, path, value),
    }
}

/// Sets a key of a section that has a table of keys.
fn set<T>(section: &str, keys: &[Key<T>], target: &mut T, path: &[&str], value: &Value) -> Result<(), Wrong> {
    let dotted = path.join(".");
    if let Some(key) = keys.iter().find(|key| key.path == dotted) {
        return (key.set)(target, value);
    }
    let is_section = dotted.is_empty()
        || dotted == "tenants" && section == "policy"
        || keys.iter().any(|key| key.path.strip_prefix(&dotted).is_some_and(|rest| rest.starts_with('.')));
    match value {
        Value::Section if is_section => Ok(()),
        other if is_section => Err(format!("is {other}; it is a section: give its keys")),
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
        return "is not available in this version; leave it out".to_owned();
    }
    let nearest = known
        .map(|key| (strsim::normalized_damerau_levenshtein(key, &dotted).max(end_alike(key, &dotted)), key))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    match nearest {
        Some((_, key)) => format!("is not a key; did you mean {key}?"),
        None => "is not a key; `damper --help` lists the keys".to_owned(),
    }
}

/// How alike the last parts are: the right key in the wrong section is found too.
fn end_alike(key: &str, given: &str) -> f64 {
    let end = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    strsim::normalized_damerau_levenshtein(&end(key), &end(given)) * 0.99
}
