//! Plans as text: a table for people, and one for spreadsheets.

use std::fmt::Write;

use damper_protocol::plan::{PlanGiven, PlanNow, PlanResponse, PlanRow};

const HEADER: &str = "arrival_per_s,failure_rate,capacity_per_s,retry_per_s,retry_ratio,max_attempts,amplification,\
    physical_per_s,logical_success_per_s,fits,headroom_per_s,safe_arrival_per_s,safe_arrival_by_ratio_per_s,\
    safe_arrival_by_pool_per_s,safe_arrival_by_attempts_per_s,physical_with_pool_per_s,fits_with_pool";

/// The table as comma-separated values with a header. What is absent is empty.
pub(crate) fn csv(plan: &PlanResponse) -> String {
    let PlanGiven { arrival_per_s, failure_rate, capacity_per_s, retry_per_s, retry_ratio, .. } = plan.given;
    let mut text = format!("{HEADER}\r\n");
    for row in &plan.table {
        let fields = [
            arrival_per_s.to_string(),
            failure_rate.to_string(),
            field(capacity_per_s),
            field(retry_per_s),
            field(retry_ratio),
            row.max_attempts.to_string(),
            row.amplification.to_string(),
            row.physical_per_s.to_string(),
            row.logical_success_per_s.to_string(),
            field(row.fits),
            field(row.headroom_per_s),
            field(row.safe_arrival_per_s),
            field(plan.safe_arrival_by_ratio_per_s),
            field(plan.safe_arrival_by_pool_per_s),
            field(row.safe_arrival_by_attempts_per_s),
            field(row.physical_with_pool_per_s),
            field(row.fits_with_pool),
        ];
        let _ = write!(text, "{}\r\n", fields.join(","));
    }
    text
}

fn field(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// The plan for people.
pub(crate) fn table(plan: &PlanResponse) -> String {
    let mut text = given(&plan.given, plan.pool_bound_by.as_deref());
    text += &plan.now.as_ref().map_or_else(String::new, now);
    let has_pool = plan.given.retry_per_s.is_some();
    let _ = write!(
        text,
        "\n{:>8}  {:>9}  {:>12}  {:>12}  {:>4}  {:>12}  {:>12}",
        "attempts", "E[A]", "physical/s", "successes/s", "fits", "headroom/s", "safe/s"
    );
    text += if has_pool { "   with pool/s  fits\n" } else { "\n" };
    plan.table.iter().for_each(|row| text += &line(row, has_pool));
    text += &demand(plan);
    text + &safe(plan)
}

fn given(given: &PlanGiven, bound_by: Option<&str>) -> String {
    let PlanGiven { arrival_per_s, failure_rate, max_attempts, capacity_per_s, retry_per_s, retry_ratio } =
        given;
    let (arrival, percent) = (short(*arrival_per_s), short(failure_rate * 100.0));
    let mut text = format!(
        "{arrival} operations/s, {percent} % of attempts fail independently, at most {max_attempts} attempts"
    );
    let of_policy = bound_by.map_or_else(String::new, |term| format!(" (by its {term})"));
    let optional = [
        ("capacity", capacity_per_s, "/s"),
        ("pool", retry_per_s, &format!("/s{of_policy}")),
        ("ratio", retry_ratio, ""),
    ];
    for (name, value, unit) in optional {
        if let Some(value) = value {
            let _ = write!(text, ", {name} {}{unit}", short(*value));
        }
    }
    text + "\n"
}

/// What is measured, so that nobody takes it for the plan.
fn now(now: &PlanNow) -> String {
    let PlanNow { over_s, arrival_per_s, failure_rate, retry_per_s, retry_bound_by, throttle } = now;
    let (arrival, failing) = (arrival_per_s.map(short), failure_rate.map(|rate| short(rate * 100.0)));
    let traffic = match (arrival, failing) {
        (Some(arrival), Some(percent)) => format!("{arrival} operations/s, {percent} % of attempts fail"),
        (Some(arrival), None) => format!("{arrival} operations/s, no attempt has ended"),
        (None, _) => "no operations".to_owned(),
    };
    let (pool, throttle) = (short(*retry_per_s), short(throttle * 100.0));
    format!(
        "measured now, over {over_s} s: {traffic}; the pool brings {pool}/s (by its {retry_bound_by}), throttled to \
         {throttle} %\n"
    )
}

fn line(row: &PlanRow, has_pool: bool) -> String {
    let PlanRow { max_attempts, amplification, physical_per_s, logical_success_per_s, .. } = row;
    let (fits, headroom) = (yes_or_no(row.fits), decimal(row.headroom_per_s));
    let safe = decimal(row.safe_arrival_per_s);
    let mut text = format!(
        "{max_attempts:>8}  {amplification:>9.6}  {physical_per_s:>12.3}  {logical_success_per_s:>12.3}  {fits:>4}  \
         {headroom:>12}  {safe:>12}"
    );
    if has_pool {
        let (attempts, fits) = (decimal(row.physical_with_pool_per_s), yes_or_no(row.fits_with_pool));
        let _ = write!(text, "  {attempts:>12}  {fits:>4}");
    }
    text + "\n"
}

fn yes_or_no(fits: Option<bool>) -> &'static str {
    fits.map_or("-", |fits| if fits { "yes" } else { "no" })
}

/// With three decimals at most.
fn short(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

fn decimal(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.3}"))
}

fn demand(plan: &PlanResponse) -> String {
    let mut text = format!("\nRetries wanted: {:.3}/s", plan.retry_demand_per_s);
    if let Some(excess) = plan.excess_retry_demand_per_s {
        let _ = write!(text, ", of which {excess:.3}/s are beyond the pool (demand, not what will be shed)");
    }
    text + "\n"
}

fn safe(plan: &PlanResponse) -> String {
    let lines = [
        (plan.safe_arrival_per_s, "at this failure rate: capacity / E[A]"),
        (plan.safe_arrival_by_ratio_per_s, "whatever fails, with the retry ratio: capacity / (1 + ratio)"),
        (plan.safe_arrival_by_pool_per_s, "whatever fails, with the retry pool: capacity - pool"),
        (plan.safe_arrival_by_attempts_per_s, "if all fails and nothing limits retries: capacity / attempts"),
    ];
    let known = lines.iter().filter_map(|(rate, meaning)| Some(((*rate)?, meaning)));
    let known: String = known.map(|(rate, meaning)| format!("{rate:>12.3}  {meaning}\n")).collect();
    if known.is_empty() {
        return "\nWith --capacity-per-s it also says what fits.\n".to_owned();
    }
    format!("\nSafe operations/s:\n{known}")
}
