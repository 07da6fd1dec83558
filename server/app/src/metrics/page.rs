//! The rows of dependencies and tenants, read from the engine when the page is asked for, within bounds that hold
//! whatever names peers make up.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use damper_core::Snapshot;
use damper_engine::MemoryEngine;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Metric, MetricFamily};

use super::about;
use super::dependencies::{Family, families};
use super::family::{OTHER, Samples, Value, Words, as_f64, escaped_bytes};
use super::places::{Place, Places};
use super::tenants::Book;

/// Bytes of the page for dependencies, and for tenants where they are shown. The rest of two mebibytes is far
/// more than the metrics of the server take.
const DEPENDENCY_BYTES: usize = 1200 * 1024;
const TENANT_BYTES: usize = 640 * 1024;

/// Reads the engine when it is scraped. All clones are one page.
#[derive(Clone, Debug)]
pub(super) struct Page {
    engine: MemoryEngine,
    descriptions: Vec<Desc>,
    rows: Arc<Mutex<Rows>>,
}

/// What a page has to know of the pages before it.
#[derive(Debug)]
struct Rows {
    known: HashMap<Arc<str>, Row>,
    places: Places,
    /// What dependencies without a row of their own had come to when they were forgotten, by family.
    departed: Vec<Others>,
    overflowed: u64,
    tenants: Book,
}

/// A dependency that was on the page.
#[derive(Debug)]
struct Row {
    /// Tells it from another of the same name after it.
    name: Arc<str>,
    place: Place,
    /// Kept for one that any family counts among the others.
    last: Option<Snapshot>,
}

/// The samples of a family's others, added up.
type Others = BTreeMap<Words, Value>;

impl Page {
    pub(super) fn new(engine: MemoryEngine, tenants: Option<usize>) -> prometheus::Result<Self> {
        Self::within(engine, tenants, DEPENDENCY_BYTES, TENANT_BYTES)
    }

    fn within(
        engine: MemoryEngine,
        tenants: Option<usize>,
        dependency_bytes: usize,
        tenant_bytes: usize,
    ) -> prometheus::Result<Self> {
        let abouts = families().map(|family| &family.about).chain(&about::TENANTS);
        let descriptions =
            abouts.chain([&about::OVERFLOWS]).map(super::family::About::desc).collect::<Result<_, _>>()?;
        let rows = Rows {
            known: HashMap::new(),
            places: Places::new(dependency_bytes),
            departed: families().map(|_| Others::new()).collect(),
            overflowed: 0,
            tenants: Book::new(tenants, tenant_bytes),
        };
        Ok(Self { engine, descriptions, rows: Arc::new(Mutex::new(rows)) })
    }

    /// Shows so many tenants of each dependency from now on, or none.
    pub(super) fn show_tenants(&self, most: Option<usize>) {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).tenants.show(most);
    }
}

impl Collector for Page {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let names = self.engine.names().into_iter();
        let seen = names.filter_map(|name| self.engine.snapshot(&name).map(|snapshot| (name, snapshot)));
        let seen: Vec<(Arc<str>, Snapshot)> = seen.collect();
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.settle(&seen);
        let mut collected: Vec<MetricFamily> =
            families().enumerate().map(|(number, family)| rows.family(number, family, &seen)).collect();
        for (name, _) in &seen {
            rows.tenants.read(&self.engine, name);
        }
        rows.tenants.families(&mut collected);
        collected.push(rows.overflows());
        rows.keep(seen);
        collected
    }
}

impl Rows {
    /// Lets those go that were forgotten, and gives places to those that are new.
    fn settle(&mut self, seen: &[(Arc<str>, Snapshot)]) {
        let present: HashMap<&str, &Arc<str>> = seen.iter().map(|(name, _)| (&**name, name)).collect();
        let is_gone = |row: &Row| present.get(&*row.name).is_none_or(|name| !Arc::ptr_eq(name, &row.name));
        let gone: Vec<Arc<str>> =
            self.known.values().filter(|row| is_gone(row)).map(|row| Arc::clone(&row.name)).collect();
        for name in gone {
            if let Some(row) = self.known.remove(&name) {
                self.let_go(&row);
            }
        }
        for (name, _) in seen {
            if !self.known.contains_key(name) {
                let place = self.place(name);
                self.known.insert(Arc::clone(name), Row { name: Arc::clone(name), place, last: None });
            }
        }
    }

    fn place(&mut self, name: &str) -> Place {
        let name_bytes = escaped_bytes(name);
        let bytes = families().map(|family| family.bytes(name_bytes)).sum();
        // A peer's dependency of this name is one of the others, or two rows would look the same.
        let place = if name == OTHER { Place::NONE } else { self.places.take(bytes) };
        self.overflowed += u64::from(families().any(|family| !place.is_within(family.places())));
        place
    }

    fn let_go(&mut self, row: &Row) {
        self.places.give_back(row.place);
        self.tenants.let_go(&row.name);
        let Some(last) = &row.last else { return };
        for (family, departed) in families().zip(&mut self.departed) {
            if family.about.is_cumulative() && !row.place.is_within(family.places()) {
                add(departed, family.samples(last));
            }
        }
    }

    fn family(&self, number: usize, family: &Family, seen: &[(Arc<str>, Snapshot)]) -> MetricFamily {
        let mut metrics: Vec<Metric> = Vec::new();
        let mut others = self.departed.get(number).cloned().unwrap_or_default();
        for (name, snapshot) in seen {
            let place = self.known.get(name).map_or(Place::NONE, |row| row.place);
            if place.is_within(family.places()) {
                let samples = family.samples(snapshot).0;
                metrics.extend(samples.iter().map(|(words, value)| row(family, name, words, value)));
            } else if family.about.is_cumulative() {
                add(&mut others, family.samples(snapshot));
            }
        }
        metrics.extend(others.iter().map(|(words, value)| row(family, OTHER, words, value)));
        family.about.family(metrics)
    }

    fn overflows(&self) -> MetricFamily {
        let counts = [("dependency", self.overflowed), ("tenant", self.tenants.overflowed())];
        let metric = |(label, count)| about::OVERFLOWS.metric([label], &Value::Number(as_f64(count)));
        about::OVERFLOWS.family(counts.map(metric).into())
    }

    /// Remembers the last of those that some family counts among the others.
    fn keep(&mut self, seen: Vec<(Arc<str>, Snapshot)>) {
        let fewest = families().map(Family::places).min().unwrap_or(0);
        for (name, mut snapshot) in seen {
            if let Some(row) = self.known.get_mut(&name)
                && !row.place.is_within(fewest)
            {
                snapshot.tenants = Vec::new();
                snapshot.refusals = Vec::new();
                row.last = Some(snapshot);
            }
        }
    }
}

fn add(others: &mut Others, samples: Samples) {
    for (words, value) in samples.0 {
        others.entry(words).and_modify(|sum| sum.add(&value)).or_insert(value);
    }
}

fn row(family: &Family, dependency: &str, words: &Words, value: &Value) -> Metric {
    family.about.metric([dependency].into_iter().chain(words.iter().copied()), value)
}

#[cfg(test)]
mod tests;
