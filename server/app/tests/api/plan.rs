//! `GET /v1/plan`: requirement R2, to the printed digits.

use serde_json::{Value, json};

use crate::support::{Server, pointers};

fn digits(value: &Value, decimals: usize) -> String {
    format!("{:.decimals$}", value.as_f64().unwrap())
}

#[tokio::test]
async fn the_burst_is_priced_as_in_the_requirements() {
    let server = Server::start("").await;
    let query = "arrival_per_s=120&failure_rate=0.12&max_attempts=4&capacity_per_s=130&retry_per_s=10";
    let (status, plan) = server.get(&format!("/v1/plan?{query}")).await;
    assert_eq!(status, 200);
    let table: Vec<_> = plan["table"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let (a, physical) = (digits(&row["amplification"], 6), digits(&row["physical_per_s"], 3));
            (
                row["max_attempts"].clone(),
                a,
                physical,
                digits(&row["logical_success_per_s"], 3),
                row["fits"].clone(),
            )
        })
        .collect();
    let row = |attempts: u32, a: &str, physical: &str, success: &str, fits: bool| {
        (json!(attempts), a.to_owned(), physical.to_owned(), success.to_owned(), json!(fits))
    };
    assert_eq!(
        table,
        [
            row(1, "1.000000", "120.000", "105.600", true),
            row(2, "1.120000", "134.400", "118.272", false),
            row(3, "1.134400", "136.128", "119.793", false),
            row(4, "1.136128", "136.335", "119.975", false),
        ]
    );
    assert_eq!(digits(&plan["physical_per_s"], 5), "136.33536");
    assert_eq!(digits(&plan["excess_per_s"], 5), "6.33536");
    assert_eq!(digits(&plan["safe_arrival_per_s"], 3), "114.424");
    assert_eq!(digits(&plan["retry_demand_per_s"], 5), "16.33536");
    assert_eq!(digits(&plan["excess_retry_demand_per_s"], 5), "6.33536");
    let by_attempt: Vec<String> =
        plan["by_attempt_per_s"].as_array().unwrap().iter().map(|rate| digits(rate, 5)).collect();
    assert_eq!(by_attempt, ["120.00000", "14.40000", "1.72800", "0.20736"]);
}

#[tokio::test]
async fn a_dependency_fills_in_what_is_left_out() {
    let server =
        Server::start("[dependencies.payments]\ncapacity_per_s = 130\nmax_attempts = 3\nretry.per_s = 10")
            .await;
    let (status, problem) = server.get("/v1/plan?dependency=payments").await;
    assert_eq!(
        (status, pointers(&problem)),
        (422, vec!["?arrival_per_s", "?failure_rate"]),
        "nothing is known yet"
    );
    let totals = json!({"logical": 88, "physical": 100, "success": 88, "failures": {"transient": 12}});
    let sync =
        json!({"client": {"id": "c", "incarnation": "1"}, "dependencies": {"payments": {"totals": totals}}});
    server.post("/v1/sync", &sync).await;
    let (status, plan) = server.get("/v1/plan?dependency=payments&arrival_per_s=120").await;
    assert_eq!(status, 200);
    assert_eq!(
        plan["given"],
        json!({"arrival_per_s": 120.0, "failure_rate": 0.12, "max_attempts": 3, "capacity_per_s": 130.0, "retry_per_s": 8.0,
            "retry_ratio": null}),
        "the room below the capacity is less than the fixed pool"
    );
    assert_eq!(digits(&plan["amplification"], 4), "1.1344");
    assert_eq!((&plan["pool_bound_by"], &plan["now"]["over_s"]), (&json!("headroom"), &json!(10)));
    assert_eq!(digits(&plan["now"]["failure_rate"], 2), "0.12");
    let (_, plan) = server.get("/v1/plan?dependency=payments").await;
    assert!(plan["given"]["arrival_per_s"].as_f64().unwrap() > 0.0);
}

#[tokio::test]
async fn a_plan_goes_by_the_policy_and_says_apart_what_the_pool_brings_now() {
    let server = Server::start("[dependencies.payments]\ncapacity_per_s = 130").await;
    let planned = async |query: &str| {
        let traffic = "dependency=payments&arrival_per_s=120&failure_rate=0.12";
        let (status, plan) = server.get(&format!("/v1/plan?{traffic}{query}")).await;
        assert_eq!(status, 200, "{plan}");
        let pool = digits(&plan["given"]["retry_per_s"], 2);
        (pool, plan["pool_bound_by"].clone(), plan["fits"].clone(), plan["fits_with_pool"].clone(), plan)
    };
    let (pool, bound_by, fits, fits_with_pool, plan) = planned("").await;
    assert_eq!((pool.as_str(), bound_by), ("8.00", json!("headroom")), "0.8 x (130 - 120)");
    assert_eq!((fits, fits_with_pool), (json!(false), json!(true)));
    assert_eq!(digits(&plan["physical_with_pool_per_s"], 3), "128.000");
    let now = json!({"over_s": 60, "arrival_per_s": null, "failure_rate": null, "retry_per_s": 1.0,
        "retry_bound_by": "floor", "throttle": 1.0});
    assert_eq!(plan["safe_arrival_by_pool_per_s"], Value::Null, "this pool shrinks as the traffic grows");
    // Of the capacity alone: nobody has reported a first attempt, so that the ratio earns nothing.
    assert_eq!(plan["now"], now);
    for (query, pool, bound_by) in [
        ("&capacity_per_s=200", "64.00", json!("headroom")),
        ("&retry_ratio=0.05", "5.28", json!("ratio")),
        ("&capacity_per_s=120", "1.00", json!("floor")),
        ("&retry_per_s=3", "3.00", Value::Null),
    ] {
        let (planned, by, .., plan) = planned(query).await;
        let fixed = ["floor", "per_s"].map(Value::from).contains(&by) || by.is_null();
        assert_eq!((planned.as_str(), by), (pool, bound_by), "{query}");
        assert_eq!(plan["safe_arrival_by_pool_per_s"].is_number(), fixed, "{query}");
    }
    let (_, plan) = server.get("/v1/plan?arrival_per_s=1&failure_rate=0&max_attempts=1").await;
    assert_eq!((&plan["now"], &plan["pool_bound_by"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn every_parameter_that_cannot_be_is_named() {
    let server = Server::start("").await;
    let cases = [
        ("", vec!["?arrival_per_s", "?failure_rate", "?max_attempts"]),
        (
            "arrival_per_s=-1&failure_rate=1.5&max_attempts=101&capacity_per_s=NaN&retry_per_s=inf",
            vec!["?arrival_per_s", "?failure_rate", "?max_attempts", "?capacity_per_s", "?retry_per_s"],
        ),
        ("arrival_per_s=many&failure_rate=2", vec!["?arrival_per_s", "?max_attempts", "?failure_rate"]),
        ("arrival_per_s=1&failure_rate=0&max_attempts=99999999999", vec!["?max_attempts"]),
    ];
    for (query, expected) in cases {
        let (status, problem) = server.get(&format!("/v1/plan?{query}")).await;
        assert_eq!((status, pointers(&problem)), (422, expected), "{query}");
    }
    assert_eq!(server.get("/v1/plan?arrival_per_s=%ff").await.0, 422);
}

#[tokio::test]
async fn a_parameter_that_is_misspelt_does_not_count_as_left_out() {
    let server = Server::start("[dependencies.payments]").await;
    let sound = "arrival_per_s=120&failure_rate=0.12&max_attempts=4";
    let (status, problem) = server.get(&format!("/v1/plan?{sound}&retries_per_s=10")).await;
    assert_eq!((status, pointers(&problem)), (422, vec!["?retries_per_s"]));
    let error = &problem["errors"][0];
    assert_eq!(error["code"], "unknown_parameter");
    let detail = error["detail"].as_str().unwrap();
    let known = "The parameters are: arrival_per_s, failure_rate, max_attempts, capacity_per_s, retry_per_s, \
        retry_ratio, format, dependency";
    assert!(
        detail.starts_with("is not known; did you mean retry_per_s? ") && detail.ends_with(known),
        "{detail}"
    );
    let both = format!("/v1/plan?{sound}&zz=1&zz=2&Format=csv&capacity_per_s=-1&%00=");
    let (status, problem) = server.get(&both).await;
    assert_eq!((status, pointers(&problem)), (422, vec!["?\u{0}", "?Format", "?zz", "?capacity_per_s"]));
    let long = format!("/v1/plan?{sound}&{}=1", "x".repeat(8000));
    assert!(
        server.get(&long).await.1.to_string().len() < 1000,
        "what a peer made long is not repeated to it"
    );
    let many: String = (0..1000).map(|number| format!("&x{number}")).collect();
    let (_, problem) = server.get(&format!("/v1/plan?{sound}{many}")).await;
    assert_eq!(pointers(&problem).len(), 16);
}

#[tokio::test]
async fn no_endpoint_ignores_a_parameter_that_would_change_its_answer() {
    let server = Server::start("[dependencies.payments]").await;
    for path in ["/v1/dependencies?tenant=checkout", "/v1/dependencies/payments?tenant=checkout"] {
        let answer = server.http.get(server.url(path)).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{path}");
        let problem: Value = answer.json().await.unwrap();
        let name = path.split(['?', '=']).nth(1).unwrap();
        assert_eq!(pointers(&problem), [format!("?{name}")], "{path}");
        assert_eq!(problem["errors"][0]["code"], "unknown_parameter");
    }
    for path in ["/livez?probe=1", "/readyz?probe=1", "/metrics?job=damper", "/openapi.json?v=1", "/?x"] {
        assert_eq!(
            server.get(path).await.0,
            200,
            "{path}: supervisors and scrapers have parameters of their own"
        );
    }
}

#[tokio::test]
async fn the_lines_of_a_planner_are_there() {
    let server = Server::start("").await;
    let numbers = "arrival_per_s=120&failure_rate=0.12&max_attempts=4&capacity_per_s=130";
    let (_, plan) = server.get(&format!("/v1/plan?{numbers}&retry_per_s=10&retry_ratio=0.1")).await;
    let lines = ["headroom_per_s", "safe_arrival_per_s", "safe_arrival_by_ratio_per_s"];
    assert_eq!(lines.map(|line| digits(&plan[line], 3)), ["-6.335", "114.424", "118.182"]);
    let lines = ["safe_arrival_by_pool_per_s", "safe_arrival_by_attempts_per_s"];
    assert_eq!(lines.map(|line| digits(&plan[line], 3)), ["120.000", "32.500"]);
    let (_, plan) = server.get(&format!("/v1/plan?{numbers}")).await;
    assert_eq!(
        (&plan["safe_arrival_by_ratio_per_s"], &plan["safe_arrival_by_pool_per_s"]),
        (&Value::Null, &Value::Null),
        "nothing limits retries"
    );
}

#[tokio::test]
async fn the_table_is_also_for_spreadsheets() {
    let server = Server::start("").await;
    let path = "/v1/plan?arrival_per_s=120&failure_rate=0.5&max_attempts=2&capacity_per_s=130";
    let expected = "120,0.5,130,,,2,1.5,180,90,false,-50,86.66666666666667,,,65,,";
    let cases = [
        ("", "text/csv", true),
        ("", "text/csv;q=0.9, application/json", true),
        ("", "application/json, text/csv", false),
        ("", "*/*", false),
        ("&format=csv", "application/json", true),
        ("&format=json", "text/csv", false),
    ];
    for (format, accept, is_csv) in cases {
        let sent = server
            .http
            .get(server.url(&format!("{path}{format}")))
            .header("accept", accept)
            .send()
            .await
            .unwrap();
        let kind = sent.headers()["content-type"].to_str().unwrap().to_owned();
        assert_eq!(kind.starts_with("text/csv"), is_csv, "{format} {accept}: {kind}");
        let text = sent.text().await.unwrap();
        assert_eq!(text.lines().last() == Some(expected), is_csv, "{text}");
        assert_eq!(text.lines().count(), if is_csv { 3 } else { 1 });
    }
    let (status, problem) = server.get(&format!("{path}&format=xml")).await;
    assert_eq!((status, pointers(&problem)), (422, vec!["?format"]));
}
