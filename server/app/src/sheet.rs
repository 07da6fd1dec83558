//! Plans as text: a table for people, and one for spreadsheets.

use std::fmt::Write;

use damper_protocol::plan::{PlanGiven, PlanResponse, PlanRow};

const HEADER: &str = "arrival_per_s,failure_rate,capacity_per_s,retry_per_s,retry_ratio,max_attempts,amplification,\
    physical_per_s,logical_success_per_s,fits,headroom_per_s,safe_arrival_per_s,safe_arrival_by_ratio_per_s,\
    safe_arrival_by_pool_per_s,safe_arrival_by_attempts_per_s";

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
    let mut text = given(&plan.given);
    let _ = writeln!(
        text,
        "\n{:>8}  {:>9}  {:>12}  {:>12}  {:>4}  {:>12}  {:>12}",
        "attempts", "E[A]", "physical/s", "successes/s", "fits", "headroom/s", "safe/s"
    );
    plan.table.iter().for_each(|row| text += &line(row));
    text += &demand(plan);
    text + &safe(plan)
}

fn given(given: &PlanGiven) -> String {
    let PlanGiven { arrival_per_s, failure_rate, max_attempts, capacity_per_s, retry_per_s, retry_ratio } =
        given;
    let (arrival, percent) = (short(*arrival_per_s), short(failure_rate * 100.0));
    let mut text = format!(
        "{arrival} operations/s, {percent} % of attempts fail independently, at most {max_attempts} attempts"
    );
    let optional =
        [("capacity", capacity_per_s, "/s"), ("pool", retry_per_s, "/s"), ("ratio", retry_ratio, "")];
    for (name, value, unit) in optional {
        if let Some(value) = value {
            let _ = write!(text, ", {name} {}{unit}", short(*value));
        }
    }
    text + "\n"
}

fn line(row: &PlanRow) -> String {
    let PlanRow { max_attempts, amplification, physical_per_s, logical_success_per_s, fits, .. } = row;
    let fits = fits.map_or("-", |fits| if fits { "yes" } else { "no" });
    let (headroom, safe) = (decimal(row.headroom_per_s), decimal(row.safe_arrival_per_s));
    format!(
        "{max_attempts:>8}  {amplification:>9.6}  {physical_per_s:>12.3}  {logical_success_per_s:>12.3}  {fits:>4}  \
         {headroom:>12}  {safe:>12}\n"
    )
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
