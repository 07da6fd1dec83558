use std::collections::BTreeMap;

use damper_core::{Ask, Class, Dispatch, Failure, Kind, Priority, Report, Span, Totals};
use damper_engine::Settings;
use prometheus::TextEncoder;

use super::*;
use crate::metrics::family::MOST_SETS;

/// Most bytes of a page.
const MOST_BYTES: usize = 2 * 1024 * 1024;

fn engine(most_dependencies: usize) -> MemoryEngine {
    MemoryEngine::new(Settings { most_dependencies, ..Settings::default() })
}

/// One client reports what everyone did, so that what it adds belongs to the tenant that it names.
fn report(engine: &MemoryEngine, dependency: &str, tenant: &str, operations: u64) {
    let mut totals =
        Totals { logical: operations, physical: operations, success: operations, ..Totals::default() };
    totals.failures[2] = operations / 2;
    let report = Report { client: "c".into(), tenant: tenant.into(), totals, ..Report::default() };
    engine.sync(dependency, report, None::<std::iter::Empty<(&str, bool)>>).unwrap();
}

fn ask(tenant: &str) -> Ask {
    let failure = Failure {
        class: Class::Invalid,
        reason: None,
        dispatch: Dispatch::NotSent,
        retry_after: None,
        do_not_retry: false,
        caller_rejected: false,
    };
    Ask {
        request_id: None,
        tenant: tenant.into(),
        kind: Kind::Retry,
        attempt: 2,
        failure: Some(failure),
        idempotent: true,
        recovery_mode: None,
        priority: Priority::Normal,
        cost: 1,
        deadline: Span::from_secs(30),
        earliest: Span::ZERO,
        expected: Span::ZERO,
        max_wait: Some(Span::ZERO),
    }
}

fn text(page: &Page) -> String {
    let families = page.collect();
    let families: Vec<_> = families.into_iter().filter(|family| !family.get_metric().is_empty()).collect();
    TextEncoder::new().encode_to_string(&families).unwrap()
}

/// The samples of the page by name and labels; none stands there twice.
fn samples(page: &Page) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for line in text(page).lines().filter(|line| !line.starts_with('#')) {
        let (sample, value) = line.rsplit_once(' ').unwrap();
        assert!(samples.insert(sample.to_owned(), value.parse().unwrap()).is_none(), "{sample} twice");
    }
    samples
}

fn sum(samples: &BTreeMap<String, f64>, beginning: &str) -> f64 {
    samples.iter().filter(|(sample, _)| sample.starts_with(beginning)).map(|(_, value)| value).sum()
}

fn assert_bounded(page: &Page) {
    let text = text(page);
    assert!(text.len() <= MOST_BYTES, "{} bytes", text.len());
    let mut sets: BTreeMap<&str, usize> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        *sets.entry(line.split(['{', ' ']).next().unwrap()).or_default() += 1;
    }
    let over: Vec<_> = sets.iter().filter(|(_, count)| **count > MOST_SETS).collect();
    assert!(over.is_empty(), "{over:?}");
    assert!(sets.values().any(|count| *count > MOST_SETS / 2), "the bound is not met: {sets:?}");
}

#[tokio::test(start_paused = true)]
async fn thousands_of_dependencies_with_the_longest_names_stay_within_the_bounds() {
    let engine = engine(3000);
    let page = Page::new(engine.clone(), Some(100)).unwrap();
    let ugly = "\"\\".repeat(61);
    for number in 0..3000 {
        report(&engine, &format!("{ugly}{number:06}"), &format!("{ugly}{:06}", number % 7), 10);
    }
    assert_bounded(&page);
    let samples = samples(&page);
    assert_eq!(sum(&samples, "damper_logical_operations_total{"), 30_000.0);
    assert_eq!(sum(&samples, "damper_attempt_failures_total{"), 15_000.0);
    assert_eq!(sum(&samples, "damper_tenant_logical_operations_total{"), 30_000.0);
    assert_eq!(sum(&samples, "damper_tenant_attempt_failures_total{"), 15_000.0);
    let overflow = samples["damper_label_overflow_total{label=\"dependency\"}"];
    assert!((2950.0..3000.0).contains(&overflow), "{overflow}");
    assert!(!samples.contains_key("damper_retry_tokens{dependency=\"_other\"}"), "gauges are not added up");
}

#[tokio::test(start_paused = true)]
async fn many_dependencies_with_short_names_stay_within_the_bounds() {
    let engine = engine(1000);
    for number in 0..1000 {
        report(&engine, &number.to_string(), "t", 10);
    }
    let page = Page::new(engine, None).unwrap();
    assert_bounded(&page);
    assert_eq!(sum(&samples(&page), "damper_logical_operations_total{"), 10_000.0);
}

#[tokio::test(start_paused = true)]
async fn a_million_tenant_names_stay_within_the_bounds() {
    let engine = engine(10);
    let page = Page::new(engine.clone(), Some(100)).unwrap();
    for number in 0..1_000_000_u64 {
        let dependency = ["a", "b", "c", "d", "e"][(number % 5) as usize];
        drop(engine.ask(dependency, &ask(&format!("tenant-{number}"))).unwrap());
        if number % 250_000 == 0 {
            assert!(text(&page).len() <= MOST_BYTES);
        }
    }
    assert_bounded(&page);
    let samples = samples(&page);
    assert_eq!(sum(&samples, "damper_tenant_decisions_total{"), 1_000_000.0);
    assert!(samples["damper_label_overflow_total{label=\"tenant\"}"] > 400_000.0);
}

#[tokio::test(start_paused = true)]
async fn label_values_are_escaped() {
    let engine = engine(10);
    let page = Page::new(engine.clone(), Some(10)).unwrap();
    report(&engine, "a\"b\\c\nd}é,", "t\"u\\v\n{Ω", 3);
    let expected =
        r#"damper_tenant_logical_operations_total{dependency="a\"b\\c\nd}é,",tenant="t\"u\\v\n{Ω"} 3"#;
    assert!(text(&page).lines().any(|line| line == expected));
}

#[tokio::test(start_paused = true)]
async fn names_that_peers_make_look_like_the_others_are_among_them() {
    let engine = engine(10);
    let page = Page::new(engine.clone(), Some(10)).unwrap();
    report(&engine, OTHER, OTHER, 3);
    report(&engine, "a", OTHER, 4);
    let samples = samples(&page);
    assert_eq!(samples["damper_logical_operations_total{dependency=\"_other\"}"], 3.0);
    assert_eq!(samples["damper_tenant_logical_operations_total{dependency=\"a\",tenant=\"_other\"}"], 4.0);
    assert_eq!(
        samples["damper_tenant_logical_operations_total{dependency=\"_other\",tenant=\"_other\"}"],
        3.0
    );
}

/// Whether a sample can never fall while its dependency lives.
fn is_counter(sample: &str) -> bool {
    let name = sample.split('{').next().unwrap_or_default();
    ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end))
}

fn assert_none_fell(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>, forgotten: Option<&str>) {
    let own = forgotten.map(|name| format!("dependency=\"{name}\""));
    for (sample, value) in before.iter().filter(|(sample, _)| is_counter(sample)) {
        if own.as_ref().is_some_and(|own| sample.contains(own)) {
            continue;
        }
        let now = after.get(sample).copied();
        assert!(now >= Some(*value), "{sample} fell from {value} to {now:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_counter_falls_while_dependencies_and_tenants_come_and_go() {
    let engine = engine(60);
    let bytes: usize = families().map(|family| family.bytes(2)).sum();
    // Rows for 34 dependencies, of which 27 fit the widest family, and for some forty tenants.
    let page = Page::within(engine.clone(), Some(3), 34 * bytes, 64 * 1024).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut reported: BTreeMap<String, u64> = BTreeMap::new();
    let (mut before, mut others_met, mut departures) = (samples(&page), false, 0);
    for step in 0..200 {
        let name = format!("{:02}", random.u32(0..45));
        let mut forgotten: Option<String> = None;
        if step > 80 && random.u32(0..4) == 0 && engine.forget(&name) {
            reported.remove(&name);
            (forgotten, departures) = (Some(name), departures + 1);
        } else {
            let operations = reported.entry(name.clone()).or_default();
            *operations += random.u64(1..20);
            report(&engine, &name, &format!("t{}", random.u32(0..6)), *operations);
            drop(engine.ask(&name, &ask(&format!("t{}", random.u32(0..6)))).unwrap());
        }
        if step == 150 {
            page.show_tenants(Some(5));
        }
        let after = samples(&page);
        assert_none_fell(&before, &after, forgotten.as_deref());
        others_met |= after.contains_key("damper_logical_operations_total{dependency=\"_other\"}");
        before = after;
    }
    assert!(others_met && departures > 10, "{departures}");
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_comes_back_between_two_pages_starts_anew() {
    let engine = engine(10);
    let page = Page::new(engine.clone(), Some(10)).unwrap();
    report(&engine, "a", "t", 10);
    samples(&page);
    assert!(engine.forget("a"));
    report(&engine, "a", "t", 3);
    let samples = samples(&page);
    assert_eq!(samples["damper_logical_operations_total{dependency=\"a\"}"], 3.0);
    assert_eq!(samples["damper_tenant_logical_operations_total{dependency=\"a\",tenant=\"t\"}"], 3.0);
}
