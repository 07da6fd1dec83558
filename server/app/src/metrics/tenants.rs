//! The rows of tenants: at most so many of each dependency, first come, and the others of it in one row.
//!
//! A row adds up what its tenant does from when it has the row. So a row never falls: not when the tenant loses
//! its place in the server by being idle, and not the row of the others when a tenant gets one of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use damper_core::{Class, TenantCounts, TenantRow, TenantUsage, Verdict};
use damper_engine::MemoryEngine;
use prometheus::proto::{Metric, MetricFamily};

use super::about::{TENANT_DECISIONS, TENANT_FAILURES, TENANT_TOTALS, TENANT_WAITING, TENANTS};
use super::family::{About, MOST_SETS, OTHER, Value, as_f64, escaped_bytes};
use super::places::{Place, Places};

/// Rows that fit a family in which each has so many label sets; one is left for those without any place.
const fn rows_of(sets: usize) -> usize {
    MOST_SETS / sets - 1
}

/// Every tenant's row that is or was on the page.
#[derive(Debug)]
pub(super) struct Book {
    /// Most rows of one dependency; [`None`] if tenants are not shown.
    most: Option<usize>,
    places: Places,
    dependencies: HashMap<Arc<str>, Entry>,
    /// What has no row, not even one of its dependency's others.
    elsewhere: TenantCounts,
    overflowed: u64,
}

/// The rows of one dependency.
#[derive(Debug)]
struct Entry {
    last_total: TenantCounts,
    others: Row,
    rows: BTreeMap<Box<str>, Row>,
    /// Most tenants that ever were without a row.
    hidden: u64,
}

#[derive(Debug)]
struct Row {
    place: Place,
    /// What the server's own count was when it was last looked at.
    last: TenantCounts,
    sum: TenantCounts,
    waiting: u64,
}

impl Book {
    pub(super) fn new(most: Option<usize>, bytes: usize) -> Self {
        let dependencies = HashMap::new();
        Self {
            most,
            places: Places::new(bytes),
            dependencies,
            elsewhere: TenantCounts::default(),
            overflowed: 0,
        }
    }

    pub(super) fn show(&mut self, most: Option<usize>) {
        self.most = most;
    }

    /// How many tenants found no row.
    pub(super) const fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// The dependency is gone, and its rows with it.
    pub(super) fn let_go(&mut self, dependency: &str) {
        if let Some(entry) = self.dependencies.remove(dependency) {
            let rows = entry.rows.into_values().chain([entry.others]);
            rows.for_each(|row| self.places.give_back(row.place));
        }
    }

    /// Takes in what the tenants of a dependency did since it was last read.
    pub(super) fn read(&mut self, engine: &MemoryEngine, dependency: &Arc<str>) {
        let Some(most) = self.most else { return };
        let (known, room) = match self.dependencies.get(dependency) {
            Some(entry) => (entry.rows.keys().cloned().collect(), most.saturating_sub(entry.rows.len())),
            None => (BTreeSet::new(), most),
        };
        if let Some(usage) = engine.tenant_usage(dependency, &known, room) {
            self.take_in(dependency, &usage);
        }
    }

    fn take_in(&mut self, dependency: &Arc<str>, usage: &TenantUsage) {
        let places = &mut self.places;
        let entry = self
            .dependencies
            .entry(Arc::clone(dependency))
            .or_insert_with(|| Entry::new(places.take(row_bytes(dependency, OTHER))));
        let mut rest = usage.total.above(&entry.last_total);
        entry.last_total = usage.total;
        entry.others.waiting = usage.waiting;
        entry.rows.values_mut().for_each(|row| row.waiting = 0);
        for tenant in &usage.rows {
            if let Some(row) = entry.row(places, dependency, tenant) {
                rest = rest.above(&row.take_in(tenant));
                if row.place.is_within(rows_of(1)) {
                    entry.others.waiting = entry.others.waiting.saturating_sub(tenant.waiting);
                }
            }
        }
        let hidden = usage.count.saturating_sub(entry.rows.len() as u64);
        self.overflowed += hidden.saturating_sub(entry.hidden);
        entry.hidden = entry.hidden.max(hidden);
        let own = within(&rest, entry.others.place);
        entry.others.sum.add(&own);
        self.elsewhere.add(&rest.above(&own));
    }

    /// Adds the families of tenants, if they are shown.
    pub(super) fn families(&self, collected: &mut Vec<MetricFamily>) {
        if self.most.is_none() {
            return;
        }
        let mut metrics: [Vec<Metric>; TENANTS.len()] = Default::default();
        for (dependency, entry) in &self.dependencies {
            let rows = entry.rows.iter().map(|(name, row)| (&**name, row)).chain([(OTHER, &entry.others)]);
            rows.for_each(|(tenant, row)| add(&mut metrics, [dependency, tenant], row));
        }
        if self.elsewhere != TenantCounts::default() {
            let place = Places::new(0).take(0);
            let row = Row { sum: self.elsewhere, ..Row::new(place, TenantCounts::default()) };
            add(&mut metrics, [OTHER, OTHER], &row);
        }
        collected.extend(TENANTS.iter().zip(metrics).map(|(about, metrics)| about.family(metrics)));
    }
}

impl Entry {
    fn new(place: Place) -> Self {
        let others = Row::new(place, TenantCounts::default());
        Self { last_total: TenantCounts::default(), others, rows: BTreeMap::new(), hidden: 0 }
    }

    /// The row of a tenant, made if there is room.
    fn row(&mut self, places: &mut Places, dependency: &str, tenant: &TenantRow) -> Option<&mut Row> {
        // The server's own place for strangers is one of the others.
        if !self.rows.contains_key(&tenant.name) && &*tenant.name != OTHER {
            let place = places.take(row_bytes(dependency, &tenant.name));
            if place == Place::NONE {
                return None;
            }
            // Of a tenant that may have been among the others, only what comes now is its own.
            let last = if self.hidden == 0 { TenantCounts::default() } else { tenant.counts };
            self.rows.insert(tenant.name.clone(), Row::new(place, last));
        }
        self.rows.get_mut(&tenant.name)
    }
}

impl Row {
    fn new(place: Place, last: TenantCounts) -> Self {
        Self { place, last, sum: TenantCounts::default(), waiting: 0 }
    }

    /// Adds what the tenant did; how much of it this row shows.
    fn take_in(&mut self, tenant: &TenantRow) -> TenantCounts {
        let continues = tenant.counts.continues(&self.last);
        let before = if continues { self.last } else { TenantCounts::default() };
        let own = within(&tenant.counts.above(&before), self.place);
        self.last = tenant.counts;
        self.waiting = tenant.waiting;
        self.sum.add(&own);
        own
    }
}

/// What a row at this place shows: families with more label sets have fewer rows.
fn within(counts: &TenantCounts, place: Place) -> TenantCounts {
    let mut shown = *counts;
    if !place.is_within(rows_of(Class::ALL.len())) {
        shown.failures = [0; _];
    }
    if !place.is_within(rows_of(Verdict::ALL.len())) {
        shown.decided = [0; _];
    }
    if place.is_within(rows_of(1)) { shown } else { TenantCounts::default() }
}

/// At most so many bytes of the page, for all samples of a row.
fn row_bytes(dependency: &str, tenant: &str) -> usize {
    let peer_bytes = escaped_bytes(dependency) + escaped_bytes(tenant);
    let sets = |about: &About| match about.labels {
        [_, _, "decision"] => Verdict::ALL.len(),
        [_, _, "class"] => Class::ALL.len(),
        _ => 1,
    };
    TENANTS.iter().map(|about| sets(about) * about.bytes(peer_bytes)).sum()
}

fn add(metrics: &mut [Vec<Metric>; TENANTS.len()], names: [&str; 2], row: &Row) {
    let [decisions, logical, physical, affected, recovered, failures, waiting] = metrics;
    let TenantCounts { decided, failures: failed, .. } = row.sum;
    let metric = |about: &About, word: &[&'static str], count| {
        about.metric(names.into_iter().chain(word.iter().copied()), &Value::Number(as_f64(count)))
    };
    if row.place.is_within(rows_of(Verdict::ALL.len())) {
        let verdicts = Verdict::ALL.iter().zip(decided);
        decisions
            .extend(verdicts.map(|(verdict, count)| metric(&TENANT_DECISIONS, &[verdict.as_str()], count)));
    }
    if row.place.is_within(rows_of(Class::ALL.len())) {
        let classes = Class::ALL.iter().zip(failed);
        failures.extend(classes.map(|(class, count)| metric(&TENANT_FAILURES, &[class.as_str()], count)));
    }
    if row.place.is_within(rows_of(1)) {
        let TenantCounts { logical: l, physical: p, affected: a, recovered: r, .. } = row.sum;
        let totals = [logical, physical, affected, recovered].into_iter().zip(&TENANT_TOTALS);
        totals
            .zip([l, p, a, r])
            .for_each(|((metrics, about), count)| metrics.push(metric(about, &[], count)));
        waiting.push(metric(&TENANT_WAITING, &[], row.waiting));
    }
}

#[cfg(test)]
mod tests;
