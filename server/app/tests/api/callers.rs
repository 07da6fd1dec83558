//! `server.caller_per_s`: how often one peer may call.

use serde_json::{Value, json};

use crate::support::{Server, file, now};

#[tokio::test(start_paused = true)]
async fn whoever_calls_too_often_is_told_when_to_come_back() {
    let server = Server::start("server.caller_per_s = 0.001").await;
    assert_eq!(server.get("/v1/dependencies").await.0, 200);
    let response = server.posting("/v1/tokens", &now()).send().await.unwrap();
    let retry_after: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!(response.status(), 429);
    let problem: Value = response.json().await.unwrap();
    assert_eq!((&problem["code"], &problem["retryable"]), (&json!("caller_rate_limited"), &json!(true)));
    let ms = problem["retry_after_ms"].as_u64().unwrap();
    assert!((1..=1_000_000).contains(&ms) && retry_after == ms.div_ceil(1000), "{retry_after} {problem}");
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(server.http.get(server.url(path)).send().await.unwrap().status(), 200, "{path}");
    }
    for path in ["/", "/nope", "/v1/plan"] {
        assert_eq!(server.get(path).await.0, 429, "{path}");
    }
    let claimed =
        server.http.get(server.url("/")).header("x-forwarded-for", "10.9.8.7").send().await.unwrap();
    assert_eq!(claimed.status(), 429, "an address is not a matter of headers");
    assert!(server.text("/metrics").await.contains("damper_caller_refusals_total 5\n"));
    assert!(!server.text("/metrics").await.contains("damper_retry_tokens{"), "no ask got through");
}

#[tokio::test]
async fn a_limit_comes_and_goes_with_a_reload() {
    let path = file("callers.toml", "");
    let server = Server::start_with_file(&path).await;
    let calls = async |count: usize| {
        for _ in 0..count {
            assert_eq!(server.get("/v1/dependencies").await.0, 200);
        }
    };
    calls(50).await;
    file("callers.toml", "server.caller_per_s = 0.001");
    assert_eq!(server.running.reload().await.unwrap().config_version, 2);
    calls(1).await;
    assert_eq!(server.running.reload().await.unwrap().config_version, 2, "nothing changed");
    assert_eq!(server.get("/v1/dependencies").await.0, 429, "a reload gives nobody another start");
    file("callers.toml", "");
    server.running.reload().await.unwrap();
    calls(50).await;
}
