//! The manual of the metrics, made from the tables of families, and held against a page. Only a test makes it: the
//! committed one is what people read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::{env, fs, path::Path};

use damper_core::{Policy, PolicyDraft, Report, Totals};
use damper_engine::{MemoryEngine, Settings};
use prometheus::proto::MetricType;

use super::Metrics;
use super::about::{SERVER, TENANTS};
use super::dependencies::families;
use super::family::About;

/// Set this to write the committed manual anew.
const BLESS: &str = "DAMPER_BLESS";

const INTRODUCTION: &str = "\
# Metrics

<!-- Made from the tables in server/app/src/metrics: run the tests with DAMPER_BLESS=1 to write it anew. -->

`GET /metrics` answers in Prometheus' text format. Counters are those that decisions were counted with, read when the
page is asked for; they start at nothing with each start of the server. Label sets that are known beforehand are there
from the start, so that the first event of its kind is an increase. A sample is absent where there is nothing to say:
a ratio without anything to divide, a capacity that is not configured.

Whatever peers send, a metric has at most 1000 label sets and the page at most 2 MiB. Dependencies get rows of their own
in the order in which they come, as long as there is room, and keep them while they exist. The counters of the others
are added up under `dependency=\"_other\"`, and their gauges are left out; `damper_label_overflow_total` says how many
there were. A metric with many label sets for each dependency is full earlier: decisions have rows for 27 dependencies,
histograms for 54.
";

const TENANTS_INTRODUCTION: &str = "\
With `telemetry.tenants = true`. Of each dependency the first `telemetry.max_tenants` have rows, the busiest first where
several come at once; the others are added up under `tenant=\"_other\"`. A row adds up what its tenant does from when it
has the row, and stays while the dependency exists. All dependencies together have rows for 999 tenants at most, and for
332 and 165 in the metrics by decision and by class; a row that is missing there is counted under `_other`.
";

fn manual() -> String {
    let mut text = INTRODUCTION.to_owned();
    section(&mut text, "Dependencies", families().map(|family| &family.about));
    section(&mut text, "Tenants", &TENANTS);
    text = text.replace("## Tenants\n", &format!("## Tenants\n\n{TENANTS_INTRODUCTION}"));
    section(&mut text, "The server", SERVER);
    text
}

fn section<'a>(text: &mut String, title: &str, abouts: impl IntoIterator<Item = &'a About>) {
    let _ =
        write!(text, "\n## {title}\n\n| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n");
    for about in abouts {
        let labels: Vec<String> = about.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, unit, labels) = (about.name, word(about.kind), about.unit, labels.join(", "));
        let _ = writeln!(text, "| `{name}` | {kind} | {unit} | {labels} | {} |", about.help);
    }
}

fn word(kind: MetricType) -> String {
    format!("{kind:?}").to_lowercase()
}

/// A page of a server on which everything happens that can make a sample.
fn page() -> String {
    let draft = PolicyDraft { capacity_per_s: Some(100.0), ..PolicyDraft::default() };
    let policy = Policy::new(&draft).unwrap().into();
    let dependencies = [("payments".to_owned(), policy)].into();
    let engine = MemoryEngine::new(Settings { dependencies, ..Settings::default() });
    let mut totals = Totals { logical: 10, physical: 12, success: 9, ..Totals::default() };
    totals.failures[0] = 3;
    let report = Report { client: "c".into(), tenant: "t".into(), totals, ..Report::default() };
    engine.sync("payments", report, None::<std::iter::Empty<(&str, bool)>>).unwrap();
    let metrics = Metrics::new(engine, Some(10));
    metrics.answered(Some("/livez"), 200, std::time::Duration::ZERO);
    metrics.text().unwrap()
}

/// Every family of a page: its type, meaning and labels.
fn families_of(page: &str) -> BTreeMap<String, (String, String, BTreeSet<String>)> {
    let mut found: BTreeMap<String, (String, String, BTreeSet<String>)> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            current = name.to_owned();
            found.entry(current.clone()).or_default().1 = help.to_owned();
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            found.entry(current.clone()).or_default().0 = kind.to_owned();
        } else if let Some((_, rest)) = line.split_once('{') {
            let names = rest.split("=\"").filter_map(|part| part.rsplit(['{', ',', '"']).next());
            let labels = names.filter(|name| name.chars().all(|c| c == '_' || c.is_ascii_lowercase()));
            let labels = labels.filter(|name| !name.is_empty() && *name != "le").map(str::to_owned);
            found.entry(current.clone()).or_default().2.extend(labels);
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn the_manual_and_the_page_have_the_same_metrics() {
    let about = |about: &About| {
        let labels = about.labels.iter().map(|label| (*label).to_owned()).collect();
        (about.name.to_owned(), (word(about.kind), about.help.to_owned(), labels))
    };
    let documented: BTreeMap<_, _> =
        families().map(|family| &family.about).chain(&TENANTS).chain(SERVER).map(about).collect();
    let shown = families_of(&page());
    let names = |families: &BTreeMap<String, _>| families.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&shown), names(&documented));
    assert_eq!(shown, documented);
    let text = manual();
    let rows =
        text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name));
    assert_eq!(rows.collect::<BTreeSet<_>>(), shown.keys().map(String::as_str).collect());
}

#[test]
fn the_committed_manual_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if env::var_os(BLESS).is_some() {
        fs::write(&path, manual()).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == manual(), "{} is stale: run this test with {BLESS}=1", path.display());
}
