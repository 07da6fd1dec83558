//! `GET /v1/plan`: what retries cost, from given numbers or from a dependency's own window.

use std::str::FromStr;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use damper_core::plan::{Given, Plan, pool};
use damper_core::{BoundBy, Moment, Ppm, Snapshot, Span, WindowSnapshot};
use damper_protocol::plan::{PlanNow, PlanQuery, PlanResponse};
use damper_protocol::problem::{InvalidField, Problem};

use super::{Parameters, json};
use crate::app::App;
use crate::problem::{Fault, invalid};
use crate::sheet;
use crate::wire;

const CSV: HeaderValue = HeaderValue::from_static("text/csv; charset=utf-8; header=present");

/// The parameters: the fields of [`PlanQuery`].
pub(crate) const PARAMETERS: &[&str] = &[
    "arrival_per_s",
    "failure_rate",
    "max_attempts",
    "capacity_per_s",
    "retry_per_s",
    "retry_ratio",
    "format",
    "dependency",
];

/// Attempts without which the ten-second window says little, and the minute is looked at.
const ENOUGH_ATTEMPTS: u64 = 20;

/// Capacity arithmetic under independent failures.
#[utoipa::path(get, path = "/v1/plan", tag = "plan", params(PlanQuery), responses(
    (status = 200, description = "What the numbers come to", content(
        (PlanResponse = "application/json"), (String = "text/csv"),
    )),
    (status = 404, description = "The dependency is not known", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "Every parameter that cannot be, or is not known", body = Problem, content_type = "application/problem+json"),
))]
pub(crate) async fn plan(
    State(app): State<App>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, Fault> {
    let dependency = parameters.last("dependency").filter(|name| !name.is_empty());
    let snapshot = match dependency {
        Some(name) => Some(app.engine().snapshot(name).ok_or(Fault::UnknownDependency)?),
        None => None,
    };
    let seen = snapshot.as_ref().map(Seen::of);
    let Asked { given, bound_by } =
        asked(&parameters, snapshot.as_ref(), seen.as_ref()).map_err(Fault::Invalid)?;
    let plan = Plan::new(given).map_err(|faults| {
        let faults = faults.into_iter();
        Fault::Invalid(
            faults.map(|fault| invalid(format!("?{}", fault.field), "out_of_range", fault.message)).collect(),
        )
    })?;
    // What shrinks and grows with the traffic leaves no number of its own to other traffic.
    let follows_traffic = matches!(bound_by, Some(BoundBy::Ratio | BoundBy::Headroom));
    let by_pool = plan.safe_arrival_by_pool_per_s.filter(|_| !follows_traffic);
    let plan = PlanResponse {
        safe_arrival_by_pool_per_s: by_pool,
        pool_bound_by: bound_by.map(|term| term.as_str().to_owned()),
        now: snapshot.zip(seen).map(|(snapshot, seen)| now(&snapshot, &seen)),
        ..wire::plans::plan(&plan)
    };
    if wants_csv(&headers, &parameters)? {
        return Ok(([(header::CONTENT_TYPE, CSV)], sheet::csv(&plan)).into_response());
    }
    Ok(json(&plan))
}

/// The query decides, and without it the header: of the two types the one that it names first.
fn wants_csv(headers: &HeaderMap, parameters: &Parameters) -> Result<bool, Fault> {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    match parameters.last("format").filter(|format| !format.is_empty()) {
        Some("csv") => Ok(true),
        Some("json") => Ok(false),
        Some(_) => Err(Fault::field("?format", "unknown_value", "is not one of: json, csv")),
        None => {
            let types = accept.flat_map(|value| value.split(',')).filter_map(|one| one.split(';').next());
            let known =
                types.map(str::trim).find(|one| ["text/csv", "application/json", "*/*"].contains(one));
            Ok(known == Some("text/csv"))
        }
    }
}

/// What a plan is asked of.
struct Asked {
    given: Given,
    /// The term that sets the pool, where the policy does.
    bound_by: Option<BoundBy>,
}

/// The numbers of the query, and what it leaves out from the dependency: traffic from its window, the rest from its
/// policy.
fn asked(
    parameters: &Parameters,
    snapshot: Option<&Snapshot>,
    seen: Option<&Seen>,
) -> Result<Asked, Vec<InvalidField>> {
    let mut reader = Reader { parameters, faults: parameters.unknown(PARAMETERS) };
    let policy = snapshot.map(|snapshot| &snapshot.policy);
    let arrival_per_s = reader.number("arrival_per_s").or(seen.and_then(|seen| seen.arrival_per_s));
    let failure_rate = reader.number("failure_rate").or(seen.and_then(|seen| seen.failure_rate));
    let max_attempts = reader.number("max_attempts").or(policy.map(|policy| policy.max_attempts()));
    let capacity = policy.and_then(|policy| policy.capacity()).map(|rate| rate.as_per_s());
    let ratio = policy.and_then(|policy| policy.retry_ratio()).map(Ppm::as_f64);
    let mut given = Given {
        arrival_per_s: reader.required("arrival_per_s", arrival_per_s),
        failure_rate: reader.required("failure_rate", failure_rate),
        max_attempts: reader.required("max_attempts", max_attempts),
        capacity_per_s: reader.number("capacity_per_s").or(capacity),
        retry_per_s: reader.number("retry_per_s"),
        retry_ratio: reader.number("retry_ratio").or(ratio),
    };
    let planned = policy.filter(|_| given.retry_per_s.is_none()).map(|policy| pool(policy, &given));
    given.retry_per_s = given.retry_per_s.or(planned.map(|(rate, _)| rate));
    let bound_by = planned.map(|(_, bound_by)| bound_by);
    reader.finish(given).map(|given| Asked { given, bound_by })
}

fn now(snapshot: &Snapshot, seen: &Seen) -> PlanNow {
    PlanNow {
        over_s: seen.over_s,
        arrival_per_s: seen.arrival_per_s,
        failure_rate: seen.failure_rate,
        retry_per_s: snapshot.pool.rate.as_per_s(),
        retry_bound_by: snapshot.pool.bound_by.as_str().to_owned(),
        throttle: snapshot.pool.throttle.as_f64(),
    }
}

/// Reads parameters and notes what is wrong with them.
struct Reader<'a> {
    parameters: &'a Parameters,
    faults: Vec<InvalidField>,
}

impl Reader<'_> {
    fn number<T: FromStr>(&mut self, name: &'static str) -> Option<T> {
        let text = self.parameters.last(name).filter(|text| !text.is_empty())?;
        let number = text.parse().ok();
        if number.is_none() {
            self.faults.push(invalid(format!("?{name}"), "wrong_type", "is not a number of its kind"));
        }
        number
    }

    fn required<T: Default>(&mut self, name: &'static str, number: Option<T>) -> T {
        let pointer = format!("?{name}");
        if number.is_none() && !self.faults.iter().any(|fault| fault.pointer == pointer) {
            let detail = "is required, unless a dependency with reported attempts fills it in";
            self.faults.push(invalid(pointer, "missing", detail));
        }
        number.unwrap_or_default()
    }

    /// The numbers, unless something is wrong with any; then also what is out of range among the others.
    fn finish(mut self, given: Given) -> Result<Given, Vec<InvalidField>> {
        if self.faults.is_empty() {
            return Ok(given);
        }
        for fault in given.faults() {
            let pointer = format!("?{}", fault.field);
            if !self.faults.iter().any(|known| known.pointer == pointer) {
                self.faults.push(invalid(pointer, "out_of_range", fault.message));
            }
        }
        Err(self.faults)
    }
}

/// What the windows of a dependency say.
struct Seen {
    /// The length of the window.
    over_s: u64,
    arrival_per_s: Option<f64>,
    failure_rate: Option<f64>,
}

impl Seen {
    /// From the shortest window with enough in it, the minute at most.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn of(snapshot: &Snapshot) -> Self {
        let [ten_seconds, minute, _] = &snapshot.windows;
        let enough = ten_seconds.totals.physical >= ENOUGH_ATTEMPTS;
        let (window, over_s) = if enough { (ten_seconds, 10) } else { (minute, 60) };
        let lived = snapshot.now.since(Moment::ORIGIN);
        let seconds = Span::from_secs(over_s).min(lived).max(Span::SECOND).as_millis() as f64 / 1000.0;
        let WindowSnapshot { totals, .. } = window;
        let (failed, logical) = (totals.failed_attempts() as f64, totals.logical as f64);
        let ended = failed + totals.success as f64;
        Self {
            over_s,
            arrival_per_s: (totals.logical > 0).then(|| logical / seconds),
            failure_rate: (ended > 0.0).then(|| failed / ended),
        }
    }
}
