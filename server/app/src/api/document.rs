//! The OpenAPI document, made from the handlers and the wire types.

use std::sync::LazyLock;

use damper_protocol::{Bye, Snapshot, WatchBreaker, WatchDependency};
use utoipa::OpenApi;

use super::{admin, dependencies, plan, process, sync, tokens, watch};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "damper",
        description = "The retry budget of a whole fleet. Durations are whole milliseconds and always relative; \
                       rates are numbers per second. Unknown fields are ignored on both sides.",
        license(name = "Apache-2.0 OR MIT")
    ),
    paths(
        tokens::ask,
        tokens::batch,
        tokens::give_back,
        sync::sync,
        watch::watch,
        dependencies::list,
        dependencies::one,
        plan::plan,
        admin::breaker,
        admin::put,
        admin::delete,
        admin::reload,
        process::livez,
        process::readyz,
        process::metrics,
        process::openapi
    ),
    components(schemas(Snapshot, WatchBreaker, WatchDependency, Bye))
)]
struct Document;

/// The document, as it is committed in `protocol/openapi.json`.
pub(crate) fn json() -> &'static str {
    static JSON: LazyLock<String> =
        LazyLock::new(|| Document::openapi().to_pretty_json().unwrap_or_default() + "\n");
    &JSON
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use damper_protocol::Reason;

    /// Set this to write the committed document anew.
    const BLESS: &str = "DAMPER_BLESS";

    #[test]
    fn the_committed_document_is_the_generated_one() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol/openapi.json");
        if env::var_os(BLESS).is_some() {
            fs::write(&path, super::json()).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == super::json(), "{} is stale: run this test with {BLESS}=1", path.display());
    }

    #[test]
    fn the_words_of_the_document_are_those_of_the_wire() {
        let document: serde_json::Value = serde_json::from_str(super::json()).unwrap();
        let words = |list: &str| document["components"]["schemas"][list]["enum"].clone();
        assert_eq!(words("AskKind"), serde_json::json!(["retry", "hedge", "first"]));
        assert_eq!(words("BreakerState"), serde_json::json!(["closed", "open", "half_open"]));
        let reasons: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words("Reason"), serde_json::json!(reasons));
    }

    #[test]
    fn the_parameters_of_the_document_are_those_that_are_known() {
        let document: serde_json::Value = serde_json::from_str(super::json()).unwrap();
        for (route, operation) in document["paths"].as_object().unwrap() {
            let Some(get) = operation.get("get") else { continue };
            let listed = get["parameters"].as_array().map_or(&[][..], Vec::as_slice).iter();
            let listed = listed.filter(|one| one["in"] == "query").map(|one| one["name"].as_str().unwrap());
            let known = match route.as_str() {
                "/v1/plan" => super::plan::PARAMETERS,
                "/v1/watch" => &["tenant", "dependency"],
                _ => &[],
            };
            assert_eq!(listed.collect::<Vec<_>>(), known, "{route}");
        }
    }

    #[test]
    fn every_route_is_in_the_document() {
        let document: serde_json::Value = serde_json::from_str(super::json()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        for route in crate::app::ROUTES.iter().filter(|route| **route != "/") {
            assert!(paths.contains_key(*route), "{route}");
        }
    }
}
