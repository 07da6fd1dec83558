//! `POST /v1/admin/reload`.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{Server, file, now, pointers, retry, with};
use crate::watch::Stream;

const RELOAD: &str = "/v1/admin/reload";

/// Pools that bring nothing while a test runs.
fn slow(more: &str) -> String {
    format!(
        "[defaults]\nretry.per_s = 0.001\nretry.floor_per_s = 0\nretry.burst = 5\n[dependencies.payments]\n\
         retry.floor_per_s = 5\nretry.per_s = 0\n{more}"
    )
}

fn of(dependency: &str) -> Value {
    with(now(), json!({"dependency": dependency}))
}

async fn granted(server: &Server, dependency: &str) -> usize {
    let ask = of(dependency);
    let answers = join_all((0..8).map(|_| server.ask(&ask))).await;
    answers.iter().filter(|answer| answer["decision"] == "granted").count()
}

#[tokio::test(start_paused = true)]
async fn two_hundred_reloads_bring_no_token() {
    let path = file("same.toml", &slow(""));
    let server = Server::start_with_file(&path).await;
    let mut stream = Stream::open(&server, "").await;
    stream.expect("snapshot").await;
    while granted(&server, "payments").await > 0 {}
    let spent = server.state("payments").await["pool"].clone();
    let started = server.running.engine().now();
    for _ in 0..200 {
        let nothing = json!({"config_version": 1, "changed": []});
        assert_eq!(server.post(RELOAD, &json!({})).await, (200, nothing));
        server.ask(&of("payments")).await;
    }
    // The clock is the pool's own: what it brought in this time, and nothing beside.
    let pool = server.state("payments").await["pool"].clone();
    let took = server.running.engine().now().since(started).as_nanos() as f64 / 1e9;
    let issued = |pool: &Value| pool["issued"].as_f64().unwrap();
    let most = spent["rate_per_s"].as_f64().unwrap() * took + spent["tokens"].as_f64().unwrap();
    assert!(issued(&pool) - issued(&spent) <= most + 1e-6, "{pool} after {took} s");
    assert_eq!(pool["rate_per_s"], spent["rate_per_s"]);
    assert!(
        server.text("/metrics").await.contains("damper_config_reloads_total{outcome=\"unchanged\"} 200\n")
    );
    // Nobody was told of anything: the next news is the one that this makes.
    server.put("/v1/admin/dependencies/new", &json!({})).await;
    assert_eq!(stream.expect("dependency").await["dependency"], "new");
}

#[tokio::test]
async fn a_changed_rule_is_live_at_once_for_its_key_alone() {
    let path = file("change.toml", &slow("[dependencies.mail]\nmax_attempts = 2"));
    let server = Server::start_with_file(&path).await;
    let mut stream = Stream::open(&server, "").await;
    stream.expect("snapshot").await;
    file("change.toml", &slow("[dependencies.mail]\nmax_attempts = 3\n[dependencies.new]"));
    let (status, reloaded) = server.post(RELOAD, &json!({})).await;
    assert_eq!((status, reloaded), (200, json!({"config_version": 2, "changed": ["mail", "new"]})));
    assert_eq!(server.config_version().await, 2);
    let told = stream.expect("dependency").await;
    assert_eq!((&told["dependency"], &told["policy"]["max_attempts"]), (&json!("mail"), &json!(3)));
    assert_eq!(stream.expect("dependency").await["dependency"], "new");
    let third = with(of("mail"), json!({"attempt": 4}));
    assert_eq!(server.ask(&third).await["reason"], "attempts_exhausted");
    let page = server.text("/metrics").await;
    assert!(
        page.contains("damper_config_version 2\n") && page.contains("{outcome=\"changed\"} 1\n"),
        "{page}"
    );
}

#[tokio::test]
async fn what_is_not_in_the_file_any_more_goes_by_the_defaults_again() {
    let text =
        |more: &str| format!("[defaults]\nmax_attempts = 5\n[dependencies.kept]\nmax_attempts = 2\n{more}");
    let path = file("removed.toml", &text("[dependencies.gone]\nmax_attempts = 9"));
    let server = Server::start_with_file(&path).await;
    server.put("/v1/admin/dependencies/kept", &json!({"max_attempts": 7})).await;
    server.put("/v1/admin/dependencies/byhand", &json!({"max_attempts": 8})).await;
    assert_eq!(server.delete("/v1/admin/dependencies/gone").await.0, 409);
    file("removed.toml", &text(""));
    let (_, reloaded) = server.post(RELOAD, &json!({})).await;
    assert_eq!(reloaded, json!({"config_version": 4, "changed": ["byhand", "gone", "kept"]}));
    let mut attempts = Vec::new();
    for name in ["byhand", "gone", "kept"] {
        attempts.push(server.state(name).await["policy"]["max_attempts"].clone());
    }
    assert_eq!(attempts, [5, 5, 2], "the file is the truth");
    assert_eq!(server.delete("/v1/admin/dependencies/gone").await.0, 204);
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_names_every_mistake() {
    let path = file("bad_reload.toml", &slow(""));
    let server = Server::start_with_file(&path).await;
    let before = server.state("payments").await["policy"].clone();
    let bad = "[server]\nlisten = \"127.0.0.1:1\"\nengine = \"redis\"\n[dependencies.payments]\nmax_attempts = 0\n\
               retry.brust = 1\n[dependencies.late]";
    file("bad_reload.toml", bad);
    let (status, problem) = server.post(RELOAD, &json!({})).await;
    assert_eq!((status, &problem["code"]), (422, &json!("invalid_configuration")));
    let mut found = pointers(&problem);
    found.sort_unstable();
    let expected = [
        "/dependencies/payments/max_attempts",
        "/dependencies/payments/retry/brust",
        "/server/engine",
        "/server/listen",
    ];
    assert_eq!(found, expected);
    for error in problem["errors"].as_array().unwrap() {
        assert!(error["detail"].as_str().unwrap().contains("bad_reload.toml:"), "no place: {error}");
    }
    let listen =
        problem["errors"].as_array().unwrap().iter().find(|error| error["pointer"] == "/server/listen");
    assert!(listen.unwrap()["detail"].as_str().unwrap().contains("restart"), "{problem}");
    std::fs::remove_file(&path).unwrap();
    let (status, problem) = server.post(RELOAD, &json!({})).await;
    assert_eq!((status, &problem["code"]), (422, &json!("invalid_configuration")));
    assert!(problem["detail"].as_str().unwrap().contains("bad_reload.toml"), "{problem}");
    assert_eq!(server.state("payments").await["policy"], before);
    assert_eq!((server.config_version().await, server.get("/v1/dependencies/late").await.0), (1, 404));
    assert!(server.text("/metrics").await.contains("damper_config_reloads_total{outcome=\"invalid\"} 2\n"));
}

#[tokio::test]
async fn waiting_asks_keep_their_places_through_a_reload() {
    let text =
        |rate: f64| format!("[defaults]\nmax_delay_ms = 600000\nretry.per_s = {rate}\nretry.burst = 5");
    let path = file("waiting.toml", &text(0.01));
    let server = Server::start_with_file(&path).await;
    while server.ask(&now()).await["decision"] == "granted" {}
    let long = with(retry(), json!({"deadline_ms": 600_000}));
    let waiting = server.posting("/v1/tokens", &long).send().await.unwrap();
    server.until_waiting("payments", 1).await;
    server.post(RELOAD, &json!({})).await;
    server.until_waiting("payments", 1).await;
    file("waiting.toml", &text(1000.0));
    server.post(RELOAD, &json!({})).await;
    let answer: Value = waiting.json().await.unwrap();
    assert_eq!(answer["reason"], "after_delay", "at the new rate, at once");
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_is_raised_lowered_removed_and_added_again_always_limits() {
    let rule = |per_s: u32| {
        slow(&format!(
            "[dependencies.mail]\ncapacity_per_s = 100\n\
             retry = {{ per_s = {per_s}, floor_per_s = {per_s}, burst = 10 }}"
        ))
    };
    let path = file("rule.toml", &rule(10));
    let server = Server::start_with_file(&path).await;
    let started = server.running.engine().now();
    let asks: Vec<Value> =
        (0..200).map(|tenant| with(of("mail"), json!({"tenant": tenant.to_string()}))).collect();
    let sync = json!({"client": {"id": "c", "incarnation": "1"},
        "dependencies": {"mail": {"wants_first_per_s": 50, "totals": {"logical": 1}}}});
    let mut granted = 0;
    for text in [rule(10), rule(50), rule(1), slow("")].iter().cycle().take(40) {
        file("rule.toml", text);
        assert_eq!(server.post(RELOAD, &json!({})).await.0, 200);
        let (_, batch) = server.post("/v1/tokens/batch", &json!({"asks": asks})).await;
        let answers = batch["answers"].as_array().unwrap();
        granted += answers.iter().filter(|answer| answer["decision"] == "granted").count();
        assert_eq!(server.post("/v1/sync", &sync).await.0, 200);
        let pool = server.state("mail").await["pool"].clone();
        assert_eq!((&pool["issued"], &pool["granted"]), (&json!(granted as f64), &pool["issued"]));
        let took = server.running.engine().now().since(started).as_nanos() as f64 / 1e9;
        assert!((1.0..=10.0 + 50.0 * took).contains(&(granted as f64)), "{granted} in {took} s");
    }
}
