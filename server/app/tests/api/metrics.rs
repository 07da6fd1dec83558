//! `GET /metrics`.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::{FULL_OF_TEN, Server, now, with};

/// The samples of a page, by name and sorted labels; the page must be well-formed.
fn parse(page: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut family = String::new();
    for line in page.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            family = declared.split(' ').next().unwrap().to_owned();
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            assert!(sample.starts_with(&family), "{line} under {family}");
            let known = samples.insert(sorted(sample), value.parse().unwrap());
            assert!(known.is_none(), "{sample} twice");
        }
    }
    samples
}

/// A sample with its labels in the order of their names.
fn sorted(sample: &str) -> String {
    let Some((name, labels)) = sample.trim_end_matches('}').split_once('{') else { return sample.to_owned() };
    let mut labels: Vec<&str> = labels.split(',').collect();
    labels.sort_unstable();
    format!("{name}{{{}}}", labels.join(","))
}

async fn samples(server: &Server) -> BTreeMap<String, f64> {
    parse(&server.text("/metrics").await)
}

#[tokio::test]
async fn counters_equal_decisions() {
    let server = Server::start(FULL_OF_TEN).await;
    for _ in 0..12 {
        server.ask(&now()).await;
    }
    server.ask(&with(now(), json!({"failure": {"class": "semantic"}}))).await;
    server.ask(&with(now(), json!({"kind": "hedge"}))).await;
    let samples = samples(&server).await;
    let decided = |kind: &str, decision: &str, reason: &str| {
        let labels =
            format!("dependency=\"payments\",kind=\"{kind}\",decision=\"{decision}\",reason=\"{reason}\"");
        samples.get(&sorted(&format!("damper_decisions_total{{{labels}}}"))).copied()
    };
    let state = server.state("payments").await;
    for (decision, reasons) in state["decisions"].as_object().unwrap() {
        for (reason, count) in reasons.as_object().unwrap() {
            let of_kind = |kind| decided(kind, decision, reason).unwrap_or(0.0);
            assert_eq!(
                of_kind("retry") + of_kind("hedge") + of_kind("first"),
                count.as_f64().unwrap(),
                "{reason}"
            );
        }
    }
    assert_eq!(decided("retry", "shed", "queue_full"), Some(0.0), "a reason is there before it occurs");
    assert_eq!(
        samples["damper_tokens_issued_total{dependency=\"payments\"}"],
        state["pool"]["issued"].as_f64().unwrap()
    );
    let asked = "damper_http_requests_total{code=\"200\",route=\"/v1/tokens\"}";
    assert_eq!(samples[asked], 14.0);
    assert_eq!(samples["damper_decision_duration_seconds_count{op=\"/v1/tokens\"}"], 14.0);
}

#[tokio::test]
async fn every_documented_metric_is_on_the_page_from_the_start() {
    let server = Server::start(FULL_OF_TEN).await;
    let samples = samples(&server).await;
    let names = [
        "damper_retry_tokens",
        "damper_retry_tokens_limit",
        "damper_retry_rate_per_second",
        "damper_queue_waiting",
        "damper_breaker_version",
        "damper_logical_operations_total",
        "damper_physical_attempts_total",
        "damper_recovered_operations_total",
        "damper_tokens_issued_total",
        "damper_tokens_returned_total",
    ];
    for name in names {
        assert!(samples.contains_key(&format!("{name}{{dependency=\"payments\"}}")), "{name}");
    }
    let state =
        |state: &str| samples[&format!("damper_breaker_state{{dependency=\"payments\",state=\"{state}\"}}")];
    assert_eq!((state("closed"), state("open"), state("half_open")), (1.0, 0.0, 0.0));
    for class in ["transient", "rate_limited", "invalid", "permission", "fatal", "semantic"] {
        let sample = format!("damper_attempt_failures_total{{class=\"{class}\",dependency=\"payments\"}}");
        assert!(samples.contains_key(&sample), "{class}");
    }
    assert_eq!(samples["damper_watch_streams"], 0.0);
    assert_eq!((samples["damper_config_version"], samples["damper_caller_refusals_total"]), (1.0, 0.0));
    for outcome in ["changed", "unchanged", "invalid"] {
        assert_eq!(samples[&format!("damper_config_reloads_total{{outcome=\"{outcome}\"}}")], 0.0);
    }
    assert!(samples.keys().any(|sample| sample.starts_with("damper_build_info{version=")));
    assert!(!samples.keys().any(|sample| sample.contains("tenant=")), "tenants are not labels");
}

#[tokio::test]
async fn reported_totals_are_counters() {
    let server = Server::start("").await;
    let totals = json!({"logical": 100, "physical": 112, "success": 98, "affected": 12, "recovered": 10,
        "failures": {"transient": 12, "rate_limited": 2}, "latency": [0, 0, 90, 10], "recovery": [0, 10]});
    let sync =
        json!({"client": {"id": "c", "incarnation": "1"}, "dependencies": {"a\"b\\c": {"totals": totals}}});
    server.post("/v1/sync", &sync).await;
    let page = server.text("/metrics").await;
    for expected in [
        r#"damper_logical_operations_total{dependency="a\"b\\c"} 100"#,
        r#"damper_physical_attempts_total{dependency="a\"b\\c"} 112"#,
        r#"damper_recovered_operations_total{dependency="a\"b\\c"} 10"#,
        r#"damper_attempt_duration_seconds_bucket{dependency="a\"b\\c",le="0.002"} 0"#,
        r#"damper_attempt_duration_seconds_bucket{dependency="a\"b\\c",le="0.004"} 90"#,
        r#"damper_attempt_duration_seconds_bucket{dependency="a\"b\\c",le="+Inf"} 100"#,
        r#"damper_recovery_duration_seconds_count{dependency="a\"b\\c"} 10"#,
    ] {
        assert!(page.contains(expected), "{expected}");
    }
}

#[tokio::test]
async fn what_peers_make_up_does_not_become_a_label() {
    let server = Server::start("").await;
    for number in 0..50 {
        server.get(&format!("/made/up/{number}")).await;
        server.get(&format!("/v1/dependencies/{number}")).await;
    }
    let method = reqwest::Method::from_bytes(b"MADEUP").unwrap();
    server.http.request(method, server.url("/v1/sync")).send().await.unwrap();
    let samples = samples(&server).await;
    assert_eq!(samples["damper_http_requests_total{code=\"404\",route=\"unmatched\"}"], 50.0);
    assert_eq!(samples["damper_http_requests_total{code=\"404\",route=\"/v1/dependencies/{name}\"}"], 50.0);
    assert_eq!(samples["damper_http_requests_total{code=\"405\",route=\"/v1/sync\"}"], 1.0);
    assert!(!server.text("/metrics").await.contains("made/up"));
}
