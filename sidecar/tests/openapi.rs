//! The OpenAPI document says what the router has, and no more.

use std::collections::BTreeSet;

use cortex_sidecar::http;
use serde_json::Value;

const METHODS: [&str; 7] = ["get", "put", "post", "delete", "patch", "head", "options"];

fn document() -> Value {
    serde_json::from_str(http::document()).unwrap()
}

#[test]
fn document_and_router_have_the_same_routes() {
    let routed: BTreeSet<(String, String)> = http::routes()
        .map(|(method, path)| (method.to_owned(), path.to_owned()))
        .collect();
    assert_eq!(
        routed.len(),
        http::routes().count(),
        "a route is listed twice"
    );
    let mut documented = BTreeSet::new();
    for (path, item) in document()["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            assert!(METHODS.contains(&method.as_str()), "{path}: {method}");
            documented.insert((method.clone(), path.clone()));
        }
    }
    assert_eq!(documented, routed);
}

#[test]
fn every_operation_is_described_and_can_fail() {
    let mut ids = BTreeSet::new();
    for (path, item) in document()["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let place = format!("{method} {path}");
            assert!(
                ids.insert(operation["operationId"].as_str().unwrap().to_owned()),
                "{place}"
            );
            for member in ["summary", "description"] {
                assert!(
                    !operation[member].as_str().unwrap().is_empty(),
                    "{place} has no {member}"
                );
            }
            let named: BTreeSet<&str> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|parameter| parameter["in"] == "path")
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            let in_path: BTreeSet<&str> = path
                .split('/')
                .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
                .collect();
            assert_eq!(named, in_path, "{place}");
            let takes_body = matches!(method.as_str(), "post" | "put") && !path.ends_with("/close");
            assert_eq!(
                operation.get("requestBody").is_some(),
                takes_body,
                "{place}"
            );
            let describes = ["/api/v1/docs", "/api/v1/openapi.json"].contains(&path.as_str());
            assert_eq!(
                operation["responses"].get("default").is_some(),
                !describes,
                "{place}"
            );
        }
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    match member.as_str() {
                        Some(target) if name == "$ref" => found.push(target.to_owned()),
                        _ => references(member, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for target in found {
        assert!(
            document.pointer(target.trim_start_matches('#')).is_some(),
            "{target}"
        );
    }
}

#[test]
fn the_version_is_the_binarys() {
    assert_eq!(document()["info"]["version"], env!("CARGO_PKG_VERSION"));
}
