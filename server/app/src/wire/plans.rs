//! Plans.

use damper_core::plan::{Given, Plan};
use damper_protocol::plan::{PlanGiven, PlanResponse, PlanRow};

/// A plan as people read it, from numbers alone.
pub(crate) fn plan(plan: &Plan) -> PlanResponse {
    let table = plan.table();
    let Plan {
        given,
        amplification,
        physical_per_s,
        logical_success_per_s,
        ref by_attempt_per_s,
        physical_with_pool_per_s,
        fits,
        fits_with_pool,
        excess_per_s,
        headroom_per_s,
        safe_arrival_per_s,
        safe_arrival_by_ratio_per_s,
        safe_arrival_by_pool_per_s,
        safe_arrival_by_attempts_per_s,
        retry_demand_per_s,
        excess_retry_demand_per_s,
    } = *plan;
    PlanResponse {
        given: self::given(given),
        amplification,
        physical_per_s,
        logical_success_per_s,
        by_attempt_per_s: by_attempt_per_s.clone(),
        pool_bound_by: None,
        physical_with_pool_per_s,
        fits,
        fits_with_pool,
        excess_per_s,
        headroom_per_s,
        safe_arrival_per_s,
        safe_arrival_by_ratio_per_s,
        safe_arrival_by_pool_per_s,
        safe_arrival_by_attempts_per_s,
        retry_demand_per_s,
        excess_retry_demand_per_s,
        table: table.iter().map(row).collect(),
        now: None,
    }
}

const fn given(given: Given) -> PlanGiven {
    let Given { arrival_per_s, failure_rate, max_attempts, capacity_per_s, retry_per_s, retry_ratio } = given;
    PlanGiven { arrival_per_s, failure_rate, max_attempts, capacity_per_s, retry_per_s, retry_ratio }
}

const fn row(plan: &Plan) -> PlanRow {
    PlanRow {
        max_attempts: plan.given.max_attempts,
        amplification: plan.amplification,
        physical_per_s: plan.physical_per_s,
        logical_success_per_s: plan.logical_success_per_s,
        physical_with_pool_per_s: plan.physical_with_pool_per_s,
        fits: plan.fits,
        fits_with_pool: plan.fits_with_pool,
        headroom_per_s: plan.headroom_per_s,
        safe_arrival_per_s: plan.safe_arrival_per_s,
        safe_arrival_by_attempts_per_s: plan.safe_arrival_by_attempts_per_s,
    }
}
