//! `damper plan`: what retries cost, from numbers, or from what a server sees of a dependency.

use std::time::Duration;

use clap::{Args, ValueEnum};
use damper_core::plan::{Given, GivenFault, Plan};
use damper_protocol::DEFAULT_ADDRESS;
use damper_protocol::plan::PlanResponse;
use damper_protocol::problem::Problem;
use reqwest::blocking::{Client, Response};
use reqwest::{StatusCode, Url};

use crate::{sheet, wire};

/// The variable that tells clients where the server is.
const ENDPOINT: &str = "DAMPER_ENDPOINT";
/// How long the server may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

pub(super) const EXAMPLES: &str = "\
Examples:
  damper plan --arrival-per-s 120 --failure-rate 0.12 --max-attempts 4 --capacity-per-s 130 --retry-per-s 10
                                        what the numbers come to; no server is needed
  damper plan --dependency payments     the policy of payments, under the traffic that the server on this machine sees
  damper plan --dependency payments --server http://damper:7117 --max-attempts 2
                                        the same elsewhere, and if there were two attempts
  damper plan --dependency payments --format csv > payments.csv

How to read it:
  E[A] is the mean number of attempts of one operation: 1 + p + p^2 + ... for a share p of attempts that fail,
  independently of each other. Attempts per second are operations times E[A]; what the capacity has left is the
  headroom. Safe operations per second are the most whose attempts fit the capacity: at this failure rate; whatever
  fails, as far as the server's retry ratio or pool is what limits retries; and with nothing to limit them. What lies
  between the last two is what a retry budget is worth. In overload p rises with the load: plan with a bad day's p.
  The first \"fits\" is about every retry that clients want; \"with pool\" is the most that a pool lets through, and
  whether that fits. Of a dependency, the traffic is what the server measures, unless it is given; capacity, attempts,
  ratio and pool are what its policy comes to under this traffic. What the pool brings at this moment, throttled or at
  its floor, stands beside it as measured, and no figure of the plan rests on it.

Exit codes:
  0   success
  1   a human must look: the dependency is not known, or nobody has reported attempts of it yet
  2   usage: a number is missing or cannot be
  75  try again later: the server cannot be reached, or is busy";

/// The question.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(super) struct Question {
    /// Operations per second
    #[arg(long, value_name = "NUMBER")]
    arrival_per_s: Option<f64>,
    /// Share of attempts that fail, from 0 to 1
    #[arg(long, value_name = "SHARE")]
    failure_rate: Option<f64>,
    /// Attempts of one operation, the first included
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<u32>,
    /// Attempts per second that the dependency sustains
    #[arg(long, value_name = "NUMBER")]
    capacity_per_s: Option<f64>,
    /// Retry tokens per second of a shared pool
    #[arg(long, value_name = "NUMBER")]
    retry_per_s: Option<f64>,
    /// Retry tokens per first attempt that succeeds
    #[arg(long, value_name = "RATIO")]
    retry_ratio: Option<f64>,
    /// Take what is left out from this dependency, as a server sees it
    #[arg(long, value_name = "NAME")]
    dependency: Option<String>,
    /// Where the server is; else DAMPER_ENDPOINT says it, or it is on this machine
    #[arg(long, value_name = "URL", requires = "dependency")]
    server: Option<String>,
    /// The form of the answer
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Table,
    /// As GET /v1/plan answers
    Json,
    /// For spreadsheets
    Csv,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPlan {
    #[error("{0}\nFor more information, try 'damper plan --help'.")]
    Usage(String),
    #[error(
        "{url} cannot be reached: {reason}; is the server running? --server or DAMPER_ENDPOINT says where it is"
    )]
    Unreachable { url: Url, reason: String },
    #[error("{url} is busy or going away ({status}); try again later")]
    Busy { url: Url, status: StatusCode },
    #[error("{0}")]
    Refused(String),
}

/// The answer as text.
pub(super) fn answer(question: &Question) -> Result<String, NoPlan> {
    let plan = match &question.dependency {
        Some(dependency) => live(question, dependency)?,
        None => from_numbers(question)?,
    };
    Ok(match question.format {
        Format::Table => sheet::table(&plan),
        Format::Csv => sheet::csv(&plan),
        Format::Json => serde_json::to_string_pretty(&plan).unwrap_or_default() + "\n",
    })
}

fn from_numbers(question: &Question) -> Result<PlanResponse, NoPlan> {
    let Question { arrival_per_s, failure_rate, max_attempts, .. } = *question;
    let needed = [
        ("--arrival-per-s", arrival_per_s.is_some()),
        ("--failure-rate", failure_rate.is_some()),
        ("--max-attempts", max_attempts.is_some()),
    ];
    let missing: Vec<&str> = needed.iter().filter(|(_, given)| !given).map(|(flag, _)| *flag).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(NoPlan::Usage(format!(
            "give {missing} too, or --dependency NAME for what a server sees of it"
        )));
    }
    let plan = Plan::new(given(question)).map_err(|faults| NoPlan::Usage(complaint(&faults)))?;
    Ok(wire::plans::plan(&plan))
}

/// The numbers of the flags, and harmless ones for those left out.
fn given(question: &Question) -> Given {
    Given {
        arrival_per_s: question.arrival_per_s.unwrap_or(0.0),
        failure_rate: question.failure_rate.unwrap_or(0.0),
        max_attempts: question.max_attempts.unwrap_or(1),
        capacity_per_s: question.capacity_per_s,
        retry_per_s: question.retry_per_s,
        retry_ratio: question.retry_ratio,
    }
}

fn complaint(faults: &[GivenFault]) -> String {
    let line = |fault: &GivenFault| format!("--{} {}", fault.field.replace('_', "-"), fault.message);
    faults.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// What a server makes of its own numbers, and of those that are given.
fn live(question: &Question, dependency: &str) -> Result<PlanResponse, NoPlan> {
    let faults = given(question).faults();
    if !faults.is_empty() {
        return Err(NoPlan::Usage(complaint(&faults)));
    }
    let url = url(question, dependency)?;
    let unreachable = |error: reqwest::Error| NoPlan::Unreachable { url: bare(&url), reason: cause(&error) };
    let client = Client::builder().no_proxy().timeout(ANSWERS_WITHIN).build().map_err(unreachable)?;
    let response = client.get(url.clone()).send().map_err(unreachable)?;
    read(response, &bare(&url))
}

fn read(response: Response, url: &Url) -> Result<PlanResponse, NoPlan> {
    let status = response.status();
    if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
        return Err(NoPlan::Busy { url: url.clone(), status });
    }
    let body = response.bytes();
    let body = body.map_err(|error| NoPlan::Unreachable { url: url.clone(), reason: cause(&error) })?;
    if !status.is_success() {
        let problem = serde_json::from_slice::<Problem>(&body);
        let refusal = problem.map_or_else(|_| format!("answers {status}"), |problem| refusal(&problem));
        return Err(NoPlan::Refused(format!("{url} {refusal}")));
    }
    serde_json::from_slice(&body)
        .map_err(|error| NoPlan::Refused(format!("{url} does not answer as a damper server does: {error}")))
}

/// What a server refuses, in the words of the flags.
fn refusal(problem: &Problem) -> String {
    let fields = problem.errors.iter().map(|error| {
        let flag = error.pointer.trim_start_matches('?').replace('_', "-");
        format!("\n--{flag} {}", error.detail)
    });
    format!("refuses: {}{}", problem.title, fields.collect::<String>())
}

fn url(question: &Question, dependency: &str) -> Result<Url, NoPlan> {
    let server = server(question.server.clone(), std::env::var(ENDPOINT).ok());
    let usage = || {
        NoPlan::Usage(format!("{server:?} is no server; give an http URL, such as http://{DEFAULT_ADDRESS}"))
    };
    let mut url = Url::parse(&server).map_err(|_| usage())?;
    if url.scheme() != "http" || url.host().is_none() {
        return Err(usage());
    }
    url.set_path("/v1/plan");
    url.set_query(None);
    let numbers = [
        ("arrival_per_s", question.arrival_per_s.map(|number| number.to_string())),
        ("failure_rate", question.failure_rate.map(|number| number.to_string())),
        ("max_attempts", question.max_attempts.map(|number| number.to_string())),
        ("capacity_per_s", question.capacity_per_s.map(|number| number.to_string())),
        ("retry_per_s", question.retry_per_s.map(|number| number.to_string())),
        ("retry_ratio", question.retry_ratio.map(|number| number.to_string())),
        ("dependency", Some(dependency.to_owned())),
        ("format", Some("json".to_owned())),
    ];
    let given = numbers.into_iter().filter_map(|(name, number)| number.map(|number| (name, number)));
    url.query_pairs_mut().extend_pairs(given);
    Ok(url)
}

/// Where the server is. A variable that is set and empty says nothing, as for clients.
fn server(flag: Option<String>, variable: Option<String>) -> String {
    let variable = variable.filter(|url| !url.is_empty());
    flag.or(variable).unwrap_or_else(|| format!("http://{DEFAULT_ADDRESS}"))
}

/// A URL as people gave it.
fn bare(url: &Url) -> Url {
    let mut bare = url.clone();
    bare.set_path("");
    bare.set_query(None);
    bare
}

/// The innermost of what went wrong: the rest says the URL again.
fn cause(error: &reqwest::Error) -> String {
    let first: &dyn std::error::Error = error;
    std::iter::successors(Some(first), |error| error.source())
        .last()
        .map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_where_the_flag_or_the_variable_says_or_here() {
        const HERE: &str = "http://127.0.0.1:7117";
        let told = |text: &str| Some(text.to_owned());
        for (flag, variable, expected) in [
            (None, None, HERE),
            (None, told(""), HERE),
            (None, told("http://b"), "http://b"),
            (told("http://a"), told("http://b"), "http://a"),
            (told(""), None, ""),
        ] {
            assert_eq!(server(flag, variable), expected);
        }
    }
}
