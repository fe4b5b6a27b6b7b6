//! Two verifiers, written apart, accept and reject the same.

mod common;

use std::collections::BTreeMap;

use common::{Input, agree};
use cortex_conformance::attack::{self, Expected, Repair};
use cortex_conformance::mutate::{Random, mutated};
use cortex_conformance::samples;
use cortex_conformance::vectors::EMBEDDED;
use cortex_core::verify::{Code, Level, Outcome};
use serde_json::Value;

/// Random changes in a usual run. CORTEX_MUTATIONS=50000 is the long one.
const MUTATIONS: usize = 5_000;

fn mutations() -> usize {
    let wanted = std::env::var("CORTEX_MUTATIONS").ok();
    wanted.map_or(MUTATIONS, |wanted| {
        wanted.parse().expect("CORTEX_MUTATIONS: a number")
    })
}

#[test]
fn sound_traces_reach_their_level_in_both() {
    let mut inputs = Vec::new();
    for sample in samples::all() {
        let trace = Input::new(&sample.id, sample.trace.as_bytes());
        let mut asked = trace.clone().with_evidence(sample.evidence.as_bytes());
        asked.question = Some(sample.question.clone());
        let mut other = asked.clone();
        other.question = Some("what else".into());
        inputs.extend([trace, asked, other]);
    }
    let large = samples::large(12);
    inputs.push(Input::new("large", large.trace).with_evidence(large.evidence));
    let reports = agree(&inputs);
    for (input, report) in inputs.iter().zip(reports) {
        let erased = input.label.ends_with("erased");
        let expected = match (&input.evidence, input.question.as_deref()) {
            (None, _) => (true, Outcome::Verified, Some(Level::L0)),
            (_, Some("what else")) if input.label != "texts-erased" => {
                (false, Outcome::Failed, None)
            }
            _ if erased => (true, Outcome::Redacted, Some(Level::L0)),
            _ => (true, Outcome::Verified, Some(Level::L2)),
        };
        assert_eq!(
            (report.ok, report.outcome, report.level),
            expected,
            "{}",
            input.label
        );
    }
}

/// The inputs of every vector that says something of a trace.
fn of_vectors() -> Vec<Input> {
    let mut inputs = Vec::new();
    for (path, text) in EMBEDDED {
        let file: Value = serde_json::from_str(text).unwrap();
        for case in file["cases"].as_array().unwrap() {
            let Some(trace) = case["trace"]
                .as_str()
                .filter(|trace| trace.len() > 40 || path.contains("alone"))
            else {
                continue;
            };
            let label = format!("{path} {}", case["id"]);
            let mut input = Input::new(label, trace.as_bytes());
            let salt = case["question_salt"].as_str();
            if let (Some(question), Some(salt)) = (case["question"].as_str(), salt) {
                input.question = Some(question.into());
                input.salt = Some(salt.parse().unwrap());
            }
            if let Some(evidence) = case["evidence"].as_str() {
                input.evidence = Some(evidence.into());
                input.question = case["question"].as_str().map(String::from);
            }
            inputs.push(input);
        }
    }
    inputs
}

#[test]
fn both_say_the_same_of_every_vector() {
    let inputs = of_vectors();
    assert!(inputs.len() > 200, "{}", inputs.len());
    agree(&inputs);
}

#[test]
fn both_refuse_the_whole_tamper_matrix() {
    // Between them they have every structure that there is.
    let chosen = [
        "partly-supported",
        "covered-refined",
        "nominated",
        "reranked",
    ];
    let mut cases = Vec::new();
    for sample in samples::all()
        .iter()
        .filter(|sample| chosen.contains(&sample.id.as_str()))
    {
        for attack in attack::on_trace(&sample.trace).unwrap() {
            let label = format!("{}: {attack}", sample.id);
            let mut input = Input::new(label, attack.text.as_bytes());
            if attack.repair == Repair::All {
                input.evidence =
                    attack::rebound(&sample.evidence, &attack.text).map(String::into_bytes);
            }
            cases.push((input, attack.expected));
        }
    }
    for id in ["partly-supported", "texts-erased"] {
        let sample = samples::all()
            .iter()
            .find(|sample| sample.id == id)
            .unwrap();
        for attack in attack::on_evidence(&sample.evidence).unwrap() {
            let label = format!("{id}, evidence file: {attack}");
            let input = Input::new(label, sample.trace.as_bytes()).with_evidence(attack.text);
            cases.push((input, attack.expected));
        }
    }
    let inputs: Vec<Input> = cases.iter().map(|(input, _)| input.clone()).collect();
    let reports = agree(&inputs);
    let mut codes: BTreeMap<String, usize> = BTreeMap::new();
    for ((input, expected), report) in cases.iter().zip(&reports) {
        if let Err(error) = expected.check(report) {
            panic!("{}: {error}", input.label);
        }
        let unbound = matches!(expected, Expected::Fails(..));
        assert!(!(unbound && report.ok), "{}", input.label);
        *codes.entry(format!("{:?}", report.code)).or_default() += 1;
    }
    let of = |code: Code| {
        codes
            .get(&format!("{:?}", Some(code)))
            .copied()
            .unwrap_or(0)
    };
    for code in [
        Code::TParse,
        Code::TNoncanon,
        Code::TVersion,
        Code::TStruct,
        Code::TRoot,
        Code::TUnbound,
        Code::TBudget,
        Code::TStatus,
        Code::TEvidence,
        Code::TAnswer,
    ] {
        assert!(of(code) > 0, "no {code:?} among {codes:?}");
    }
    assert!(inputs.len() > 4_000, "{} cases", inputs.len());
}

#[test]
fn no_random_change_is_accepted_and_both_say_why() {
    let samples = samples::all();
    let mut random = Random::new(4);
    let mut left = mutations();
    while left > 0 {
        let mut cases = Vec::new();
        for _ in 0..left.min(5_000) {
            let sample = &samples[random.below(samples.len())];
            let label = format!("{} {:?}", sample.id, random);
            if random.below(4) == 0 {
                let change = mutated(&sample.evidence, &mut random);
                let same = change.bytes == sample.evidence.as_bytes();
                let input = Input::new(label, sample.trace.as_bytes()).with_evidence(change.bytes);
                cases.push((input, same || change.erased));
                continue;
            }
            let change = mutated(&sample.trace, &mut random);
            let same = change.bytes == sample.trace.as_bytes();
            let mut input = Input::new(label, change.bytes);
            let text = String::from_utf8_lossy(&input.trace).into_owned();
            // Who made another trace also makes its file.
            let rebound = change
                .forged
                .then(|| attack::rebound(&sample.evidence, &text));
            input.evidence = rebound.flatten().map(String::into_bytes);
            cases.push((input, same || change.forged));
        }
        left -= cases.len();
        let inputs: Vec<Input> = cases.iter().map(|(input, _)| input.clone()).collect();
        for ((input, may), report) in cases.iter().zip(agree(&inputs)) {
            assert!(*may || !report.ok, "accepted: {}", input.label);
            assert_eq!(report.ok, report.code.is_none(), "{}", input.label);
        }
    }
}
