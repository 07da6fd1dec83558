//! What values there are, and how each is taken.

use std::net::SocketAddr;

use axum::http::Uri;
use damper_engine::Unknown;
use reqwest::Url;

use super::value::{Value, Wrong};
use crate::logs::LogFormat;

/// A kind of value that becomes a `T`.
pub(super) struct Type<T> {
    name: &'static str,
    words: fn() -> Vec<&'static str>,
    take: fn(&Value) -> Result<T, Wrong>,
}

impl<T> Type<T> {
    const fn new(name: &'static str, take: fn(&Value) -> Result<T, Wrong>) -> Self {
        Self { name, words: Vec::new, take }
    }

    /// One of the words of a list.
    pub(super) const fn of_words(
        words: fn() -> Vec<&'static str>,
        take: fn(&Value) -> Result<T, Wrong>,
    ) -> Self {
        Self { name: "", words, take }
    }

    pub(super) fn take(&self, value: &Value) -> Result<T, Wrong> {
        (self.take)(value)
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        let words: Vec<String> = (self.words)().iter().map(|word| format!("{word:?}")).collect();
        if words.is_empty() { self.name.to_owned() } else { words.join(" or ") }
    }
}

/// The type of a closed list of words that has `ALL` and `as_str`.
macro_rules! words {
    ($list:ident) => {
        Type::of_words(
            || $list::ALL.iter().map(|word| word.as_str()).collect(),
            |value| $crate::config::types::word(value, $list::ALL, $list::as_str),
        )
    };
}
pub(super) use words;

pub(super) const NUMBER: Type<f64> = Type::new("number", number);
pub(super) const LONG: Type<u64> = Type::new("whole number", long);
pub(super) const WHOLE: Type<u32> = Type::new("whole number", whole);
pub(super) const FLAG: Type<bool> = Type::new("flag", flag);
pub(super) const ADDRESS: Type<SocketAddr> = Type::new("IP address and port", address);
pub(super) const RATE: Type<f64> = Type::new("number", rate);
pub(super) const SHARE: Type<f64> = Type::new("number", share);
pub(super) const TENANTS: Type<usize> = Type::new("whole number", tenants);
pub(super) const ENDPOINT: Type<String> = Type::new("URL", endpoint);
pub(super) const LOG_FORMAT: Type<LogFormat> = Type::of_words(
    || LogFormat::ALL.iter().map(|word| word.as_str()).collect(),
    |value| word(value, &LogFormat::ALL, LogFormat::as_str),
);
pub(super) const UNKNOWN: Type<Unknown> = Type::of_words(
    || UNKNOWNS.iter().map(|word| spelt(*word)).collect(),
    |value| word(value, UNKNOWNS, spelt),
);
pub(super) const ENGINE: Type<()> = Type::of_words(|| vec![MEMORY], engine);

const UNKNOWNS: &[Unknown] = &[Unknown::Create, Unknown::Refuse];
const MEMORY: &str = "memory";

const fn spelt(unknown: Unknown) -> &'static str {
    match unknown {
        Unknown::Create => "default",
        Unknown::Refuse => "refuse",
    }
}

fn number(value: &Value) -> Result<f64, Wrong> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "what is too large to be exact is out of every range")]
        Value::Whole(number) => Ok(*number as f64),
        Value::Number(number) => Ok(*number),
        other => Err(Wrong::kind(other, "a number")),
    }
}

/// Requests per second.
fn rate(value: &Value) -> Result<f64, Wrong> {
    let rate = number(value)?;
    if (0.001..=1e6).contains(&rate) { Ok(rate) } else { Err(Wrong::range(value, "0.001 to 1000000")) }
}

fn share(value: &Value) -> Result<f64, Wrong> {
    let share = number(value)?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(Wrong::range(value, "0 to 1")) }
}

/// Tenants of one dependency that have metrics of their own: never more than a metric has label sets.
fn tenants(value: &Value) -> Result<usize, Wrong> {
    let count = usize::try_from(long(value)?).ok().filter(|count| (1..=1000).contains(count));
    count.ok_or_else(|| Wrong::range(value, "1 to 1000"))
}

/// Without TLS, which this version's exporter does not speak. An empty one is none, whatever else is set. What may hold
/// a secret is not repeated.
fn endpoint(value: &Value) -> Result<String, Wrong> {
    const GIVE: &str = "an http URL, such as \"http://127.0.0.1:4318\"";
    let Value::Text(text) = value else { return Err(Wrong::kind(value, GIVE)) };
    if text.is_empty() {
        return Ok(String::new());
    }
    let wrong = |message: String| Err(Wrong { code: "unknown_value", message });
    if text.contains('@') {
        return wrong(format!(
            "has an @ in it, as a user name or a password has, which would be logged; give {GIVE}, and what the \
             collector wants to see in OTEL_EXPORTER_OTLP_HEADERS"
        ));
    }
    if text.contains(['?', '#']) {
        return wrong(format!(
            "has a query or a fragment, behind which no path of traces can be; give {GIVE}"
        ));
    }
    match Url::parse(text) {
        Err(error) => wrong(format!("is {value}, which is no URL: {error}; give {GIVE}")),
        Ok(url) if url.scheme() == "https" => {
            wrong(format!("is {value}, but this version sends traces without TLS; give {GIVE}"))
        }
        // It is used as it is written, not as a lenient reader takes it.
        Ok(url) if url.scheme() != "http" || url.port() == Some(0) || text.parse::<Uri>().is_err() => {
            Err(Wrong::word(value, GIVE))
        }
        Ok(_) => Ok(text.clone()),
    }
}

fn long(value: &Value) -> Result<u64, Wrong> {
    let Value::Whole(number) = value else { return Err(Wrong::kind(value, "a whole number")) };
    let range = || Wrong::range(value, format!("a whole number from 0 to {}", u64::MAX));
    u64::try_from(*number).map_err(|_| range())
}

fn whole(value: &Value) -> Result<u32, Wrong> {
    let range = || Wrong::range(value, format!("a whole number from 0 to {}", u32::MAX));
    u32::try_from(long(value)?).map_err(|_| range())
}

fn flag(value: &Value) -> Result<bool, Wrong> {
    match value {
        Value::Flag(flag) => Ok(*flag),
        other => Err(Wrong::kind(other, "true or false")),
    }
}

pub(super) fn word<T: Copy>(value: &Value, words: &[T], spelt: fn(T) -> &'static str) -> Result<T, Wrong> {
    let given = |word: &&T| matches!(value, Value::Text(text) if text == spelt(**word));
    words.iter().find(given).copied().ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|word| spelt(*word)).collect();
        Wrong::word(value, format!("one of: {}", words.join(", ")))
    })
}

fn engine(value: &Value) -> Result<(), Wrong> {
    match value {
        Value::Text(text) if text == "redis" => Err(Wrong {
            code: "unavailable",
            message: format!("is \"redis\", which is not available in this version; give {MEMORY:?}"),
        }),
        other => word(other, &[()], |()| MEMORY),
    }
}

fn address(value: &Value) -> Result<SocketAddr, Wrong> {
    let text = if let Value::Text(text) = value { text.parse().ok() } else { None };
    text.ok_or_else(|| Wrong::word(value, "an IP address and a port, such as \"127.0.0.1:7117\""))
}
