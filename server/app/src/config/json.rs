//! A policy as JSON: the same keys as in TOML, with the same nesting.

use std::sync::Arc;

use damper_core::{Policy, PolicyDraft};
use damper_protocol::problem::InvalidField;
use serde_json::{Map, Value as Json};

use super::Config;
use super::reader::{parts, policy};
use super::value::{Value, Wrong};
use crate::problem::invalid;
use crate::shape::{MOST_FAULTS, pointer};

/// What was written, and what is wrong with it.
#[derive(Default)]
struct Reading<'a> {
    path: Vec<&'a str>,
    draft: PolicyDraft,
    faults: Vec<InvalidField>,
}

impl Config {
    /// The policy that `json` makes of the defaults of this configuration.
    ///
    /// # Errors
    /// Every mistake, with its JSON pointer.
    pub(crate) fn policy(&self, json: &Json) -> Result<Arc<Policy>, Vec<InvalidField>> {
        let mut reading = Reading::default();
        match json {
            Json::Object(object) => reading.object(object),
            other => reading.fault(Wrong::kind(&other.into(), "an object of keys; {} takes every default")),
        }
        let Reading { draft, mut faults, .. } = reading;
        match Policy::new(&draft.or(&self.defaults)) {
            Ok(policy) if faults.is_empty() => return Ok(policy.into()),
            Ok(_) => {}
            Err(more) => faults.extend(
                more.into_iter()
                    .map(|fault| invalid(pointer(parts(&fault.place)), "out_of_range", fault.message)),
            ),
        }
        faults.truncate(MOST_FAULTS);
        Err(faults)
    }
}

impl<'a> Reading<'a> {
    fn object(&mut self, object: &'a Map<String, Json>) {
        for (key, value) in object {
            self.path.push(key);
            match value {
                Json::Object(object) if !object.is_empty() => self.object(object),
                value => {
                    if let Err(wrong) = policy(&mut self.draft, &self.path, &Value::from(value)) {
                        self.fault(wrong);
                    }
                }
            }
            self.path.pop();
        }
    }

    fn fault(&mut self, wrong: Wrong) {
        self.faults.push(invalid(pointer(self.path.iter().copied()), wrong.code, wrong.message));
    }
}
