//! The recorded cases of the claim pool, and that a wrong recording is noticed.

use cortex_conformance::claim_pool::{Verdict, judge, run};
use serde_json::{Value, json};

const RECORDED: &str = include_str!("../claim-pool/v1/recorded.json");

/// Parts of an operation that are compared.
const COMPARED: [&str; 5] = [
    "result",
    "events",
    "synth_calls",
    "retriever_calls",
    "trace",
];

/// One in so many wrong recordings is tried; a prime, so that each kind of place comes up.
const STRIDE: usize = 41;

fn cases() -> Vec<(String, Value)> {
    let file: Value = serde_json::from_str(RECORDED).expect("the file is JSON");
    let scenarios = file["scenarios"].as_array().expect("scenarios").clone();
    scenarios
        .iter()
        .flat_map(|scenario| {
            let id = scenario["id"].as_str().expect("an id").to_owned();
            let cases = scenario["cases"].as_array().expect("cases").clone();
            cases.into_iter().map(move |case| (id.clone(), case))
        })
        .collect()
}

#[test]
fn every_recorded_case_passes_or_differs_by_design() {
    let judged = run(RECORDED).expect("the file has cases");
    let count =
        |wanted: fn(&Verdict) -> bool| judged.iter().filter(|case| wanted(&case.verdict)).count();
    let failed: Vec<String> = judged
        .iter()
        .filter(|case| matches!(case.verdict, Verdict::Failed(_)))
        .map(ToString::to_string)
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!(count(|verdict| *verdict == Verdict::Passed), 45);
    assert_eq!(count(|verdict| matches!(verdict, Verdict::ByDesign(_))), 23);
}

#[test]
fn the_crowded_window_and_the_defects_show_the_better_behaviour() {
    for judged in run(RECORDED).expect("the file has cases") {
        let better = judged.case == "S20/crowded_out" || judged.case.starts_with("S22/");
        if better {
            let Verdict::ByDesign(reasons) = &judged.verdict else {
                panic!("{judged}");
            };
            assert_eq!(reasons.len(), 1, "{judged}");
        }
    }
}

#[test]
fn scenarios_and_operations_that_are_not_built_fail() {
    let (_, case) = cases().remove(0);
    let failed = |judged: cortex_conformance::claim_pool::Judged| {
        assert!(matches!(judged.verdict, Verdict::Failed(_)), "{judged}");
    };
    failed(judge("S11", case.clone()));
    failed(judge("S99", case.clone()));
    for (place, value) in [
        ("/ops/0/op", json!("report_refusal")),
        ("/ops/0/args", json!({"query": "q", "subs": ["a"]})),
        ("/config", json!({"residual_spans": true})),
        ("/ops", json!(7)),
    ] {
        let mut other = case.clone();
        *other.pointer_mut(place).expect("the place is there") = value;
        failed(judge("S01", other));
    }
    assert!(run("{}").is_err());
    assert!(run("[").is_err());
}

#[test]
fn a_wrong_value_anywhere_fails() {
    let mut tried = 0;
    for (number, (scenario, case)) in cases().into_iter().enumerate() {
        let mut places = Vec::new();
        for at in 0..case["ops"].as_array().map_or(0, Vec::len) {
            for part in COMPARED {
                let place = format!("/ops/{at}/{part}");
                if let Some(value) = case.pointer(&place) {
                    leaves(&place, value, &mut places);
                }
            }
        }
        for place in places.iter().skip(number % STRIDE).step_by(STRIDE) {
            let mut wrong = case.clone();
            let value = wrong.pointer_mut(place).expect("the place is there");
            *value = changed(value);
            let judged = judge(&scenario, wrong);
            assert!(
                matches!(judged.verdict, Verdict::Failed(_)),
                "{place}: {judged}"
            );
            tried += 1;
        }
    }
    assert!(tried > 300, "{tried} wrong values were tried");
}

#[test]
fn a_wrong_order_and_a_missing_or_foreign_entry_fail() {
    let mut tried = 0;
    for (number, (scenario, case)) in cases().into_iter().enumerate() {
        let mut places = Vec::new();
        for at in 0..case["ops"].as_array().map_or(0, Vec::len) {
            for part in COMPARED {
                let place = format!("/ops/{at}/{part}");
                if let Some(value) = case.pointer(&place) {
                    lists(&place, value, &mut places);
                }
            }
        }
        for (n, place) in places.iter().enumerate().skip(number % 9).step_by(9) {
            let mut wrong = case.clone();
            let list = wrong.pointer_mut(place).and_then(Value::as_array_mut);
            let list = list.expect("the place is a list");
            let different = (1..list.len()).find(|&at| list[at - 1] != list[at]);
            match (n / 9 % 3, different) {
                (0, Some(at)) => list.swap(at - 1, at),
                (1, _) if !list.is_empty() => drop(list.remove(0)),
                _ => list.push(json!("foreign")),
            }
            let judged = judge(&scenario, wrong);
            assert!(
                matches!(judged.verdict, Verdict::Failed(_)),
                "{place}: {judged}"
            );
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried} wrong lists were tried");
}

/// Places of all values that are compared.
fn leaves(at: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let fault = fields.get("event") == Some(&json!("rerank_failed"));
            for (key, value) in fields {
                if key != "python_rng_sample_if_calibrated_now" && !(fault && key == "reason") {
                    leaves(
                        &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                        value,
                        found,
                    );
                }
            }
        }
        Value::Array(items) => {
            for (n, value) in items.iter().enumerate() {
                leaves(&format!("{at}/{n}"), value, found);
            }
        }
        _ => found.push(at.to_owned()),
    }
}

/// Places of all lists that are compared.
fn lists(at: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if key != "python_rng_sample_if_calibrated_now" {
                    lists(
                        &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                        value,
                        found,
                    );
                }
            }
        }
        Value::Array(items) => {
            found.push(at.to_owned());
            for (n, value) in items.iter().enumerate() {
                lists(&format!("{at}/{n}"), value, found);
            }
        }
        _ => {}
    }
}

/// A value that is wrong by little.
fn changed(value: &Value) -> Value {
    match value {
        Value::Null => json!("null"),
        Value::Bool(flag) => json!(!flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => json!(whole + 1),
            None => json!(number.as_f64().unwrap_or_default() + 1e-3),
        },
        Value::String(text) => json!(format!("{text}x")),
        other => json!([other]),
    }
}
