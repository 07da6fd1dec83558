//! `GET /v1/plan`: what retries cost, from given numbers or from a dependency's own window.

use serde::{Deserialize, Serialize};

/// The question: the query string of `GET /v1/plan`. With `dependency`, its window fills in `arrival_per_s` and
/// `failure_rate` where they are left out, its policy the rest; without, `arrival_per_s`, `failure_rate` and `max_attempts` are required.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default)]
pub struct PlanQuery {
    /// Logical operations per second.
    pub arrival_per_s: Option<f64>,
    /// Share of attempts that fail, independently of each other, in [0, 1].
    pub failure_rate: Option<f64>,
    /// Attempts of one operation, the first included, 1 to 100.
    pub max_attempts: Option<u32>,
    /// Attempts per second that the dependency sustains.
    pub capacity_per_s: Option<f64>,
    /// Retry tokens per second that a shared pool would issue. From a dependency: what the terms of its policy come to
    /// under the traffic of the plan, nothing throttled.
    pub retry_per_s: Option<f64>,
    /// Retry tokens per first attempt that succeeds.
    pub retry_ratio: Option<f64>,
    /// `json`, or `csv` for the table alone; otherwise the Accept header decides.
    pub format: Option<String>,
    /// Take what is left out from this dependency.
    pub dependency: Option<String>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanResponse {
    /// The numbers that the answer rests on.
    pub given: PlanGiven,
    /// E\[A\] = 1 + p + ... + p^(m-1): expected attempts per operation.
    pub amplification: f64,
    /// Attempts per second, all operations retried to the end.
    pub physical_per_s: f64,
    /// Operations per second that succeed if capacity were unlimited.
    pub logical_success_per_s: f64,
    /// Attempts per second by attempt number, the first attempt first.
    pub by_attempt_per_s: Vec<f64>,
    /// The term of the policy that sets `given.retry_per_s`: `per_s`, `ratio`, `headroom` or `floor`. Absent where that
    /// number was given or there is none.
    pub pool_bound_by: Option<String>,
    /// Most attempts per second while retries keep to the pool; absent without one.
    pub physical_with_pool_per_s: Option<f64>,
    /// Whether the attempts fit the capacity, with every retry that clients would like; absent without a capacity.
    pub fits: Option<bool>,
    /// Whether they do while retries keep to the pool; absent without a capacity or a pool.
    pub fits_with_pool: Option<bool>,
    /// Attempts per second above the capacity; absent without one.
    pub excess_per_s: Option<f64>,
    /// Capacity less attempts per second, negative where they do not fit; absent without a capacity.
    pub headroom_per_s: Option<f64>,
    /// Largest arrival rate whose attempts fit the capacity; absent without one.
    pub safe_arrival_per_s: Option<f64>,
    /// The same whatever fails, while retries keep to the ratio: capacity / (1 + ratio). Absent without a ratio.
    pub safe_arrival_by_ratio_per_s: Option<f64>,
    /// The same whatever fails, while retries keep to the pool: capacity - pool. Absent without a pool, or where it
    /// follows the traffic (`pool_bound_by` is `ratio` or `headroom`).
    pub safe_arrival_by_pool_per_s: Option<f64>,
    /// The same if everything fails and nothing limits retries: capacity / attempts.
    pub safe_arrival_by_attempts_per_s: Option<f64>,
    /// Retries per second that clients would like.
    pub retry_demand_per_s: f64,
    /// Of these, retries per second above the pool. Potential demand, not a prediction of how many are shed:
    /// a refused early retry takes its later ones with it. Absent without a pool.
    pub excess_retry_demand_per_s: Option<f64>,
    /// The same for 1 to `max_attempts` attempts.
    pub table: Vec<PlanRow>,
    /// What the server sees of the dependency at this moment; absent without one.
    pub now: Option<PlanNow>,
}

/// A dependency at the moment of the question, beside the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanNow {
    /// The seconds over which operations and failures were counted.
    pub over_s: u64,
    /// Operations per second; absent if there were none.
    pub arrival_per_s: Option<f64>,
    /// Share of attempts that failed; absent if none has ended.
    pub failure_rate: Option<f64>,
    /// Tokens per second that the pool brings now: throttled, or its floor while nothing happens.
    pub retry_per_s: f64,
    /// The term that sets this rate now.
    pub retry_bound_by: String,
    /// What the throttle leaves of it, from 0 to 1.
    pub throttle: f64,
}

/// The numbers that a plan rests on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[expect(missing_docs, reason = "the fields are those of PlanQuery")]
pub struct PlanGiven {
    pub arrival_per_s: f64,
    pub failure_rate: f64,
    pub max_attempts: u32,
    pub capacity_per_s: Option<f64>,
    pub retry_per_s: Option<f64>,
    pub retry_ratio: Option<f64>,
}

/// One number of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[expect(missing_docs, reason = "the fields are those of PlanResponse")]
pub struct PlanRow {
    pub max_attempts: u32,
    pub amplification: f64,
    pub physical_per_s: f64,
    pub logical_success_per_s: f64,
    pub physical_with_pool_per_s: Option<f64>,
    pub fits: Option<bool>,
    pub fits_with_pool: Option<bool>,
    pub headroom_per_s: Option<f64>,
    pub safe_arrival_per_s: Option<f64>,
    pub safe_arrival_by_attempts_per_s: Option<f64>,
}
