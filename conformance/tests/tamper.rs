//! Tampering with a trace: every field, every kind of change, with and without fresh roots.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use cortex_conformance::asks;
use cortex_conformance::library::{Library, Search};
use cortex_conformance::tamper::{Tamper, pointers, tampered};
use cortex_core::receipt::{Arm, Nominator};
use cortex_core::trace::{Trace, Visible};
use cortex_core::verify::{Code, Evidence, Level, Options, Outcome, Report, verify};
use proptest::prelude::*;
use serde_json::Value;

static TRACES: LazyLock<Vec<(Library, Trace)>> = LazyLock::new(traces);

fn traces() -> Vec<(Library, Trace)> {
    let searches = [
        Search {
            k: 3,
            ..Search::default()
        },
        Search {
            visible: Visible::Checked,
            ..Search::default()
        },
        Search {
            query: "is vacuum fast",
            arms: &[Arm::Lexical, Arm::Vector],
            nominator: Nominator::Approximate,
            k: 3,
            ..Search::default()
        },
    ];
    let mut traces: Vec<_> = searches
        .iter()
        .map(|search| {
            let mut library = Library::default();
            let trace = library.ask(search, 2);
            (library, trace)
        })
        .collect();
    let mut library = Library::default();
    let trace = library.ask_in_rounds();
    traces.push((library, trace));
    let chosen = ["partly-supported", "covered-refined", "compared-copies"];
    for (_, _, ask) in asks::all()
        .into_iter()
        .filter(|(id, _, _)| chosen.contains(id))
    {
        let mut library = Library::with_copies();
        let trace = library.answer(&ask);
        traces.push((library, trace));
    }
    traces
}

fn check(text: &str, library: &mut Library) -> Report {
    let store: &mut dyn Evidence = library;
    verify(text, &Options::default(), Some(store))
}

fn document(trace: &Trace) -> Value {
    serde_json::from_str(&trace.to_text().unwrap()).unwrap()
}

#[test]
fn no_single_change_is_accepted_by_anyone() {
    let mut tried = 0;
    for (_, trace) in TRACES.iter() {
        let document = document(trace);
        for pointer in pointers(&document) {
            for tamper in Tamper::ALL {
                let Some(text) = tampered(&document, &pointer, tamper) else {
                    continue;
                };
                tried += 1;
                let report = verify(&text, &Options::default(), None);
                assert_eq!(report.outcome, Outcome::Failed, "{tamper:?} at {pointer}");
                assert_eq!(report.level, None, "{tamper:?} at {pointer}");
                let code = report.code.unwrap();
                let kind_known = match tamper {
                    // A key twice is refused by the reader, an element twice by rule or root.
                    Tamper::Duplicate => pointer.is_empty() || code != Code::TNoncanon,
                    Tamper::Reorder => code != Code::TParse,
                    _ => !matches!(code, Code::TParse | Code::TNoncanon | Code::TLimit),
                };
                assert!(kind_known, "{tamper:?} at {pointer}: {code:?}");
            }
        }
    }
    assert!(tried > 2500, "only {tried} changes");
}

/// What a forger may change where nothing is signed: what the record says about itself, and a choice
/// that no evidence contradicts. Only a signature or the log can hold it.
const SELF_ASSERTED: [&str; 25] = [
    // Which model was called, or that one was; its texts are held if it was.
    "/answer/model",
    "/answer/model/digest",
    "/answer/model/name",
    "/answer/model/options",
    // To have said or cited less.
    "/answer/statements/#",
    "/answer/statements/#/citations/#",
    "/engine",
    // To have quoted or selected less, or to have stopped a round earlier.
    "/evidence/#",
    "/origin",
    // Where nothing was abstained from or put into another order.
    "/policy/allow_abstain",
    "/policy/allow_semantic_rerank",
    "/policy/max_candidates",
    "/policy/max_evidence",
    "/policy/max_rounds",
    "/principal/role",
    "/rounds/#",
    // Which earlier round's gap was refined.
    "/rounds/#/parent",
    // A nominee that was not among the best, and the order of nominees.
    "/rounds/#/receipt/nominees/#",
    // Every arm gave fewer candidates than this, so one more gives the same.
    "/rounds/#/receipt/params/depth",
    // All that matched was considered, so one more allowed gives the same.
    "/rounds/#/receipt/params/k",
    "/rounds/#/selected/#",
    "/rounds/#/selected_by",
    "/rounds/#/selected_by/digest",
    "/rounds/#/selected_by/name",
    "/rounds/#/selected_by/options",
];

#[test]
fn a_forger_who_recomputes_the_roots_fails_against_the_store() {
    let mut accepted = BTreeSet::new();
    let mut tried = 0;
    for (mut library, trace) in TRACES.iter().cloned() {
        let document = document(&trace);
        for pointer in pointers(&document) {
            // Where nothing was found, other parameters find nothing either.
            let found = |i: usize| !trace.rounds[i].receipt.candidates.is_empty();
            if (0..trace.rounds.len())
                .any(|i| !found(i) && pointer.starts_with(&format!("/rounds/{i}/receipt/params/")))
            {
                continue;
            }
            for tamper in Tamper::ALL {
                let text = tampered(&document, &pointer, tamper);
                let forged = text.and_then(|text| serde_json::from_str::<Trace>(&text).ok());
                let Some(mut forged) = forged else { continue };
                let Ok(roots) = forged.compute_roots() else {
                    continue;
                };
                forged.roots = roots;
                if forged == trace {
                    continue;
                }
                tried += 1;
                if check(&forged.to_text().unwrap(), &mut library).ok {
                    accepted.insert(pattern(&pointer));
                }
            }
        }
    }
    let expected: BTreeSet<String> = SELF_ASSERTED.map(String::from).into();
    assert_eq!(accepted, expected);
    assert!(tried > 500, "only {tried} forgeries");
}

/// A pointer with its numbers left out.
fn pattern(pointer: &str) -> String {
    let parts = pointer.split('/').map(|part| match part.parse::<u32>() {
        Ok(_) => "#",
        Err(_) => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn a_trace_moved_to_another_state_fails_in_replay() {
    let mut library = Library::default();
    let mut trace = library.ask(&Search::default(), 2);
    trace.state.seq = 105;
    trace.rounds[0].receipt.state.seq = 105;
    trace.roots = trace.compute_roots().unwrap();
    let report = check(&trace.to_text().unwrap(), &mut library);
    assert_eq!(
        (report.code, report.level),
        (Some(Code::TReplay), Some(Level::L2))
    );
}

#[test]
fn evidence_that_was_never_retrieved_is_unbound() {
    let mut library = Library::default();
    let mut trace = library.ask(&Search::default(), 2);
    trace.evidence[0].item = 16;
    trace.roots = trace.compute_roots().unwrap();
    let report = check(&trace.to_text().unwrap(), &mut library);
    assert_eq!(report.code, Some(Code::TUnbound));
    assert_eq!(report.at.as_deref(), Some("evidence[0].item"));
}

/// Values that do harm where they are not expected.
fn hostile() -> impl Strategy<Value = Value> {
    let integers = [
        0,
        1,
        -1,
        9_007_199_254_740_991,
        -9_007_199_254_740_991,
        i64::MAX,
        i64::MIN,
    ];
    let mut values: Vec<Value> = integers.map(Value::from).into();
    values.extend(["", "x", "b3:", "initial", "refine", "checked"].map(Value::from));
    values.extend([Value::Null, true.into(), 0.5.into(), u64::MAX.into()]);
    values.extend([
        serde_json::json!([]),
        serde_json::json!({}),
        serde_json::json!([[1, 1]]),
    ]);
    prop::sample::select(values)
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in ".{0,200}") {
        prop_assert!(!verify(&text, &Options::default(), None).ok);
    }

    #[test]
    fn spliced_text_is_refused(
        which in 0..TRACES.len(),
        cut in any::<[prop::sample::Index; 2]>(),
        insert in "[ -~é]{0,4}",
    ) {
        let (mut library, trace) = TRACES[which].clone();
        let text = trace.to_text().unwrap();
        let mut ends = cut.map(|index| text.floor_char_boundary(index.index(text.len() + 1)));
        ends.sort_unstable();
        let spliced = [&text[..ends[0]], &insert, &text[ends[1]..]].concat();
        let report = check(&spliced, &mut library);
        prop_assert_eq!(report.ok, spliced == text);
    }

    #[test]
    fn hostile_values_with_fresh_roots_never_panic(
        which in 0..TRACES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), hostile()), 1..6),
    ) {
        let (mut library, trace) = TRACES[which].clone();
        let mut document = document(&trace);
        let all = pointers(&document);
        for (index, value) in changes {
            if let Some(place) = document.pointer_mut(&all[index.index(all.len())]) {
                *place = value;
            }
        }
        let text = match serde_json::from_value::<Trace>(document.clone()) {
            Ok(mut forged) => {
                if let Ok(roots) = forged.compute_roots() {
                    forged.roots = roots;
                }
                forged.to_text().unwrap_or_default()
            }
            Err(_) => document.to_string(),
        };
        let report = check(&text, &mut library);
        prop_assert_eq!(report.ok, report.outcome != Outcome::Failed);
        prop_assert_eq!(report.ok, report.code.is_none());
    }
}
