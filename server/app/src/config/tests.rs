use damper_engine::Unknown;

use super::*;

fn faults(toml: &str) -> Vec<String> {
    match Config::from_toml(toml) {
        Ok(_) => Vec::new(),
        Err(error) => error.faults().iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn no_configuration_is_a_good_one() {
    let config = Config::from_toml("").unwrap();
    assert_eq!(config.listen().to_string(), damper_protocol::DEFAULT_ADDRESS);
    assert_eq!(config.settings().unknown, Unknown::Create);
    assert_eq!(*config.settings().defaults, damper_core::Policy::default());
}

#[test]
fn the_documented_example_is_read() {
    let config = Config::from_toml(
        r#"
        [server]
        listen = "127.0.0.1:7118"
        engine = "memory"
        unknown_dependencies = "refuse"
        max_dependencies = 7
        [defaults]
        max_attempts = 3
        [dependencies.payments]
        capacity_per_s = 130
        max_delay_ms = 2000
        fail_mode = "closed"
        retry_owner = "innermost"
        [dependencies.payments.retry]
        per_s = 10
        burst = 10
        ratio = 0.1
        floor_per_s = 1
        headroom_share = 0.8
        [dependencies.payments.breaker]
        failure_share = 0.8
        min_volume = 20
        window_ms = 10000
        open_for_ms = 30000
        probes = 3
        close_after = 5
        on_open = "retries"
        [dependencies.payments.tenants.checkout]
        weight = 3
        [dependencies."a.b"]
        "#,
    )
    .unwrap();
    let settings = config.settings();
    assert_eq!(
        (config.listen().port(), settings.unknown, settings.most_dependencies),
        (7118, Unknown::Refuse, 7)
    );
    let payments = &settings.dependencies["payments"];
    assert_eq!((payments.max_attempts(), payments.weight("checkout"), payments.weight("other")), (3, 3, 1));
    assert_eq!(payments.capacity().unwrap().as_per_s(), 130.0);
    assert_eq!(payments.on_open(), damper_core::OnOpen::Retries);
    assert_eq!(settings.dependencies["a.b"].max_attempts(), 3, "defaults reach every dependency");
}

#[test]
fn every_mistake_is_reported_at_once_with_its_place_and_remedy() {
    let found = faults(
        "[server]
listen = \"localhost\"
prot = 1
engine = \"redis\"
insecure = \"yes\"
[defaults]
max_attempts = 0
retry.per_s = \"many\"
[dependencies.payments]
capacity_per_sec = 130
max_delay_ms = -1
breaker = 5
fail_mode = \"ajar\"
retry.floor_per_s = nan
tenants.checkout.weight = 1.5
tenants.checkout.wieght = 1
[dependencies.\" padded\"]
[dependency.mail]
[[credentials]]
name = \"x\"
",
    );
    let expected = [
        "configuration:2: server.listen is \"localhost\"; give an IP address and a port, such as \"127.0.0.1:7117\"",
        "configuration:3: server.prot is not a key; `damper --help` lists the keys",
        "configuration:4: server.engine is \"redis\", which is not available in this version; give \"memory\"",
        "configuration:5: server.insecure is \"yes\"; give true or false",
        "configuration:8: defaults.retry.per_s is \"many\"; give a number",
        "configuration:10: dependencies.payments.capacity_per_sec is not a key; did you mean capacity_per_s?",
        "configuration:11: dependencies.payments.max_delay_ms is -1; give a whole number from 0 to 18446744073709551615",
        "configuration:12: dependencies.payments.breaker is 5; give its keys: it is a section",
        "configuration:13: dependencies.payments.fail_mode is \"ajar\"; give one of: open, closed",
        "configuration:15: dependencies.payments.tenants.checkout.weight is 1.5; give a whole number",
        "configuration:16: dependencies.payments.tenants.checkout.wieght is not a key; did you mean weight?",
        "configuration:17: dependencies. padded cannot be the name of a dependency: it starts or ends with white space",
        "configuration:18: dependency.mail is not a key; `damper --help` lists the keys",
        "configuration:19: credentials is not available in this version; leave it out",
        "configuration:7: defaults.max_attempts is 0; give 1 to 100",
        "configuration:14: dependencies.payments.retry.floor_per_s is NaN; give 0 to 1000000000",
    ];
    let (mut found, mut expected) = (found, expected.map(str::to_owned).to_vec());
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn keys_that_do_nothing_yet_are_not_taken() {
    for key in ["server.state_dir = \"x\"", "redis.url = \"x\"", "credentials = []"] {
        let found = faults(key);
        assert!(found.len() == 1 && found[0].contains("not available in this version"), "{key}: {found:?}");
    }
}

#[test]
fn a_mistake_of_the_defaults_is_reported_once() {
    let found = faults("[defaults]\nretry.per_s = -1\n[dependencies.a]\n[dependencies.b]\nretry.per_s = -1");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("defaults.retry.per_s") && found[1].contains("dependencies.b.retry.per_s"));
}

#[test]
fn all_mistakes_of_syntax_are_reported() {
    let found = faults("[server\nlisten = \n[defaults]\nmax_attempts = 4 4\n");
    assert!(found.len() >= 2, "{found:?}");
    assert!(found.iter().all(|fault| fault.contains("is not TOML")), "{found:?}");
    assert!(found.iter().any(|fault| fault.starts_with("configuration:4:")), "{found:?}");
}

#[test]
fn a_variable_that_misses_its_section_is_a_mistake() {
    for (variable, hint) in [
        ("DAMPER_DEFAULT__MAX_ATTEMPTS", "default.max_attempts is not a key"),
        ("DAMPER_SERVER_LISTEN", "two underscores, as in DAMPER_SERVER__"),
    ] {
        let sources = Sources::default().with_environment([(variable.to_owned(), "7".to_owned())]);
        let error = sources.read().unwrap_err().to_string();
        assert!(error.contains(variable) && error.contains(hint), "{error}");
    }
}

#[test]
fn later_sources_win_and_variables_of_clients_are_ignored() {
    let variables = [
        ("DAMPER_SERVER__LISTEN", "127.0.0.1:3"),
        ("DAMPER_DEFAULTS__MAX_ATTEMPTS", "7"),
        ("DAMPER_DEPENDENCIES__MAIL__RETRY__PER_S", "2.5"),
        ("DAMPER_DEPENDENCIES__PAYMENTS__FAIL_MODE", "closed"),
        ("DAMPER_ENDPOINT", "http://x"),
        ("DAMPER_MODE", "observe"),
        ("DAMPER_MAX_ATTEMPTS", "1"),
        ("PATH", "/bin"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Sources::default()
        .with_toml(
            "damper.toml",
            "server.listen = \"127.0.0.1:2\"\n[dependencies.Payments]\nmax_attempts = 2",
        )
        .with_environment(variables)
        .with_flag("--listen", &["server", "listen"], "127.0.0.1:4")
        .read()
        .unwrap();
    let settings = config.settings();
    assert_eq!((config.listen().port(), settings.defaults.max_attempts()), (4, 7));
    assert_eq!(settings.dependencies.keys().collect::<Vec<_>>(), ["Payments", "mail"]);
    let payments = &settings.dependencies["Payments"];
    assert_eq!((payments.max_attempts(), payments.fail_mode()), (2, damper_core::FailMode::Closed));
}

#[test]
fn strangers_are_kept_out_unless_told_otherwise() {
    for address in ["0.0.0.0:7117", "[::]:7117", "10.0.0.1:7117", "[::ffff:10.0.0.1]:1"] {
        let found = faults(&format!("server.listen = \"{address}\""));
        assert!(found.len() == 1 && found[0].contains("--insecure"), "{address}: {found:?}");
        assert_eq!(faults(&format!("[server]\nlisten = \"{address}\"\ninsecure = true")), [""; 0]);
    }
    for address in ["127.0.0.1:0", "127.8.9.10:7117", "[::1]:7117"] {
        assert_eq!(faults(&format!("server.listen = \"{address}\"")), [""; 0]);
    }
}

#[test]
fn the_reference_names_every_key() {
    let reference = reference();
    for key in keys::POLICY
        .iter()
        .map(|key| key.path)
        .chain(keys::SERVER.iter().map(|key| key.path))
        .chain(keys::TENANT.iter().map(|key| key.path))
    {
        assert!(reference.contains(key), "{key}");
    }
}

#[test]
fn traces_go_where_the_key_or_a_variable_of_opentelemetry_says() {
    let endpoint = |toml: &str, variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let sources = Sources::default().with_toml("t", toml).with_environment(variables);
        sources.read().map(|config| config.telemetry().otlp_endpoint.clone())
    };
    const ANY: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://any:4318");
    const TRACES: (&str, &str) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces/v1/traces");
    const OURS: (&str, &str) = ("DAMPER_TELEMETRY__OTLP_ENDPOINT", "http://ours:4318");
    const KEY: &str = "telemetry.otlp_endpoint = \"http://key:4318\"";
    for (toml, variables, expected) in [
        ("", vec![], None),
        ("", vec![ANY], Some("http://any:4318")),
        ("", vec![ANY, TRACES], Some("http://traces/v1/traces")),
        (KEY, vec![ANY, TRACES], Some("http://key:4318")),
        (KEY, vec![ANY, OURS], Some("http://ours:4318")),
        ("telemetry.otlp_endpoint = \"\"", vec![ANY], None),
    ] {
        assert_eq!(endpoint(toml, &variables).unwrap().as_deref(), expected, "{toml} {variables:?}");
    }
    for (name, value) in [("OTEL_EXPORTER_OTLP_ENDPOINT", "https://a:4318"), (OURS.0, "a:4318")] {
        let error = endpoint("", &[(name, value)]).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("give an http URL"), "{error}");
    }
}

#[test]
fn an_endpoint_that_traces_cannot_reach_is_refused_before_the_server_starts() {
    let fault = |endpoint: &str| faults(&format!("telemetry.otlp_endpoint = \"{endpoint}\"")).join("\n");
    for endpoint in ["http://a", "http://a:65535", "http://[::1]:4318/otel", "http://10.0.0.1:4318/v1/traces"]
    {
        assert_eq!(fault(endpoint), "", "{endpoint}");
    }
    for (endpoint, why) in [
        ("http://a:65536", "which is no URL: invalid port number"),
        ("http://a:999999999999", "which is no URL: invalid port number"),
        ("http://a:0", "is \"http://a:0\""),
        ("http://", "which is no URL: empty host"),
        ("http:///v1/traces", "is \"http:///v1/traces\""),
        ("collector", "which is no URL: relative URL without a base"),
        ("collector:4318", "is \"collector:4318\""),
        ("http://a b", "which is no URL: invalid international domain name"),
        ("http://[::1", "which is no URL: invalid IPv6 address"),
        ("https://a:4318", "without TLS"),
        ("grpc://a:4317", "is \"grpc://a:4317\""),
        ("unix:/run/otel.sock", "is \"unix:/run/otel.sock\""),
        ("http://a?key=hunter2", "has a query"),
        ("http://a#hunter2", "has a query or a fragment"),
        ("http://hunter2@a:4318", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://user:hunter2@a:4318", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://user:hunter2/x@a:99999", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("https://user:hunter2@a", "OTEL_EXPORTER_OTLP_HEADERS"),
    ] {
        let fault = fault(endpoint);
        assert!(fault.starts_with("configuration:1: telemetry.otlp_endpoint "), "{endpoint}: {fault}");
        assert!(fault.contains(why) && fault.contains("; give an http URL, such as"), "{endpoint}: {fault}");
        assert!(!fault.contains("hunter2"), "a secret is repeated: {fault}");
    }
}
