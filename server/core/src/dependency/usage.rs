//! What tenants came to, for whoever counts by tenant.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::Dependency;
use crate::tenant_counts::{TenantCounts, TenantRow, TenantUsage};
use crate::tenants::{Tenant, TenantKey};
use crate::{Moment, Reason};

impl Dependency {
    /// What everyone here came to together, each of `known`, and the busiest of the others, as many as there is
    /// `room` for. Costs a visit of every tenant only if there is room.
    pub fn tenant_usage(&mut self, now: Moment, known: &BTreeSet<Box<str>>, room: usize) -> TenantUsage {
        self.advance(now);
        let mut found: Vec<(TenantKey, &Tenant)> =
            known.iter().filter_map(|name| self.tenants.find(name)).collect();
        if room > 0 && self.tenants.len() > found.len() {
            let mut others: Vec<_> =
                self.tenants.iter().filter(|(_, tenant)| !known.contains(&tenant.name)).collect();
            keep_busiest(&mut others, room, |(_, tenant)| tenant.counts.activity());
            found.append(&mut others);
        }
        let waiting = self.queue.waiting_by_tenant();
        let row = |(key, tenant): (TenantKey, &Tenant)| TenantRow {
            name: tenant.name.clone(),
            counts: tenant.counts,
            waiting: waiting.get(&key).copied().unwrap_or(0),
        };
        TenantUsage {
            total: self.tenant_total(),
            waiting: self.queue.len() as u64,
            count: self.tenants.len() as u64,
            rows: found.into_iter().map(row).collect(),
        }
    }

    fn tenant_total(&self) -> TenantCounts {
        let mut total = TenantCounts::default();
        total.count_report(&self.totals);
        let by_reason = self.decided.iter().flat_map(|counts| Reason::ALL.iter().zip(counts));
        for (reason, count) in by_reason {
            if let Some(sum) = total.decided.get_mut(reason.verdict().index()) {
                *sum = sum.saturating_add(*count);
            }
        }
        total
    }
}

/// Drops all but the `most` with the most of it, in no particular order.
pub(super) fn keep_busiest<T>(all: &mut Vec<T>, most: usize, activity: impl Fn(&T) -> u64) {
    if all.len() > most {
        all.select_nth_unstable_by_key(most, |one| Reverse(activity(one)));
        all.truncate(most);
    }
}
