//! The protocol of an ask, step by step, as a host with a model drives it. Needs a server in CORTEX_TEST_PG18_URL or
//! CORTEX_TEST_PG16_URL.

use cortex_extension_tests::asks::{answer, close, corpus, list, model, open, round, select};
use cortex_extension_tests::serving::{cortex_work, json, must_verify, put};
use cortex_extension_tests::{Database, failure, one};
use postgres::Client;
use serde_json::{Value, json};

#[test]
fn a_model_selects_refines_and_answers_and_the_trace_holds_all_of_it() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let ask = open(
        &mut client,
        "When does the valve close?",
        "'evidence_answer'",
    );
    let first = round(&mut client, ask);
    assert!(first.len() >= 2, "{first:?}");
    let valve = first[0].0;
    let told = json(
        &mut client,
        &format!(
            "cortex_ask_select({ask}, 0, '{{{valve}}}', '{}')",
            model("which?", "the first")
        ),
    );
    assert_eq!(
        (&told["added"], &told["stalled"], &told["may_refine"]),
        (&json!(1), &json!(false), &json!(true))
    );
    let told = json(
        &mut client,
        &format!(
            "cortex_ask_refine({ask}, 'gasket rubber', 'what the gasket is made of', NULL, '{}')",
            model("what is missing?", "the gasket")
        ),
    );
    assert_eq!(told["waiting"], 1);
    let second = round(&mut client, ask);
    let gasket = second
        .iter()
        .find(|(_, text)| text.contains("gasket"))
        .unwrap()
        .0;
    assert_eq!(select(&mut client, ask, 1, Some(&[gasket]))["added"], 1);
    let told = answer(
        &mut client,
        ask,
        Some(
            "The valve closes at 12 bar. The gasket is of rubber. It closes at 13 bar. It is red.",
        ),
        json!([
            "The valve closes at 12 bar.",
            "The gasket is of rubber.",
            "The valve closes at 13 bar.",
            "The gasket is of rubber, says the valve's sheet.",
            "It is red."
        ]),
        json!([
            {"statement": 1, "item": valve, "quote": "closes at  12 bar"},
            {"statement": 2, "n": 2},
            {"statement": 3, "n": 1},
            {"statement": 4, "n": 1, "quote": "made of rubber"},
            {"statement": 5, "n": 2, "quote": "it is red"}
        ]),
        Some(model("answer", "The valve closes...")),
    );
    let checks: Vec<(&str, bool)> = told["statements"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| {
            (
                s["citations"][0]["check"].as_str().unwrap(),
                s["supported"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        checks,
        [
            ("supported", true),
            ("id", true),
            ("id", false),
            ("misattributed", false),
            ("absent", false)
        ]
    );
    assert_eq!(told["statements"][2]["numbers"], "unsupported");
    assert_eq!(told["statements"][3]["citations"][0]["other"], 2);
    let closed = close(&mut client, ask);
    assert_eq!(
        (closed.status.as_str(), closed.reason.as_deref()),
        ("PARTIAL", Some("statements_unsupported"))
    );
    assert_eq!(closed.statements, told["statements"]);
    assert_eq!(closed.evidence.as_array().unwrap().len(), 2);
    must_verify(&mut client, closed.trace, "L4");
    let report = json(&mut client, &format!("cortex_verify({})", closed.trace));
    let parts = |name: &str| {
        report["steps"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|s| s["name"] == name)
            .count()
    };
    assert_eq!(
        (parts("answer"), parts("texts"), parts("replay")),
        (6, 4, 2)
    );
    // Nothing of it is left where open asks are kept.
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.ask"),
        0
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.ask_round"),
        0
    );
    let trace = json(
        &mut client,
        &format!("cortex_trace({})::jsonb", closed.trace),
    );
    assert_eq!(trace["rounds"][1]["parent"], 0);
    assert_eq!(trace["rounds"][1]["refined_by"]["name"], "scripted");
    assert_eq!(trace["rounds"][0]["selected_by"]["digest"], "sha256:0");
    // The quote's span is the bytes that it was found at, not those that were written.
    let citation = &closed.statements[0]["citations"][0];
    let (start, end) = (
        citation["start_byte"].as_u64().unwrap() as usize,
        citation["end_byte"].as_u64().unwrap() as usize,
    );
    assert_eq!(
        &"The valve closes at 12 bar."[start..end],
        "closes at 12 bar"
    );
}

/// What an ask of a mode gives; `want` is selected of the first round.
fn outcome(
    client: &mut Client,
    question: &str,
    mode: &str,
    policy: Value,
    want: &[&str],
    told: Option<(Value, Value)>,
    abstain: bool,
) -> (String, Option<String>) {
    let ask = open(client, question, &format!("'{mode}', '{policy}'"));
    let seen = round(client, ask);
    let ids: Vec<i64> = want
        .iter()
        .map(|word| seen.iter().find(|(_, text)| text.contains(word)).unwrap().0)
        .collect();
    select(client, ask, 0, Some(&ids));
    if let Some((statements, citations)) = told {
        answer(client, ask, Some("An answer."), statements, citations, None);
    } else if abstain {
        answer(
            client,
            ask,
            None,
            json!([]),
            json!([]),
            Some(model("answer", "I do not know.")),
        );
    }
    let closed = close(client, ask);
    must_verify(client, closed.trace, "L4");
    (closed.status, closed.reason)
}

#[test]
fn every_mode_gives_every_status_that_it_has() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let c = &mut client;
    let says = |status: &str, reason: Option<&str>| (status.to_owned(), reason.map(String::from));
    let p = |extra: Value| extra;
    let must = json!({"allow_abstain": false});
    let none = || p(json!({}));
    assert_eq!(
        outcome(
            c,
            "valve",
            "find_relevant",
            none(),
            &["12 bar"],
            None,
            false
        ),
        says("ANSWERED", None)
    );
    assert_eq!(
        outcome(c, "valve", "find_relevant", none(), &[], None, false),
        says("INSUFFICIENT_EVIDENCE", Some("nothing_selected"))
    );
    assert_eq!(
        outcome(c, "zebra", "find_relevant", none(), &[], None, false),
        says("INSUFFICIENT_EVIDENCE", Some("nothing_retrieved"))
    );

    let good = || {
        Some((
            json!(["It closes at 12 bar."]),
            json!([{"statement": 1, "n": 1}]),
        ))
    };
    let bad = || {
        Some((
            json!(["It closes at 13 bar."]),
            json!([{"statement": 1, "n": 1}]),
        ))
    };
    let mixed = || {
        Some((
            json!(["It closes at 12 bar.", "So."]),
            json!([{"statement": 1, "n": 1}]),
        ))
    };
    let mode = "evidence_answer";
    assert_eq!(
        outcome(c, "valve", mode, none(), &["12 bar"], good(), false),
        says("ANSWERED", None)
    );
    assert_eq!(
        outcome(c, "valve", mode, none(), &["12 bar"], mixed(), false),
        says("PARTIAL", Some("statements_unsupported"))
    );
    assert_eq!(
        outcome(c, "valve", mode, none(), &["12 bar"], bad(), false),
        says("INSUFFICIENT_EVIDENCE", Some("statements_unsupported"))
    );
    assert_eq!(
        outcome(c, "valve", mode, must.clone(), &["12 bar"], bad(), false),
        says("PARTIAL", Some("statements_unsupported"))
    );
    assert_eq!(
        outcome(c, "valve", mode, none(), &["12 bar"], None, false),
        says("INSUFFICIENT_EVIDENCE", Some("no_model"))
    );
    assert_eq!(
        outcome(c, "valve", mode, must.clone(), &["12 bar"], None, false),
        says("PARTIAL", Some("no_model"))
    );
    assert_eq!(
        outcome(c, "valve", mode, none(), &["12 bar"], None, true),
        says("INSUFFICIENT_EVIDENCE", Some("model_abstained"))
    );
    assert_eq!(
        outcome(c, "valve", mode, must, &["12 bar"], None, true),
        says("PARTIAL", Some("model_abstained"))
    );
    assert_eq!(
        outcome(c, "valve", mode, none(), &[], None, false),
        says("INSUFFICIENT_EVIDENCE", Some("nothing_selected"))
    );
    // Quotes demanded: naming the evidence does not do.
    let strict = json!({"quote": "strict"});
    assert_eq!(
        outcome(c, "valve", mode, strict.clone(), &["12 bar"], good(), false),
        says("INSUFFICIENT_EVIDENCE", Some("statements_unsupported"))
    );
    let quoted = Some((
        json!(["It closes at 12 bar."]),
        json!([{"statement": 1, "n": 1, "quote": "closes at 12 bar"}]),
    ));
    assert_eq!(
        outcome(c, "valve", mode, strict, &["12 bar"], quoted, false),
        says("ANSWERED", None)
    );

    let mode = "compare_sources";
    assert_eq!(
        outcome(c, "valve", mode, none(), &["12 bar", "300"], None, false),
        says("ANSWERED", None)
    );
    assert_eq!(
        outcome(c, "valve", mode, none(), &["12 bar", "300"], mixed(), false),
        says("PARTIAL", Some("statements_unsupported"))
    );
    assert_eq!(
        outcome(c, "valve", mode, none(), &["12 bar"], None, false),
        says("PARTIAL", Some("one_family"))
    );
    assert_eq!(
        outcome(c, "valve", mode, none(), &[], None, false),
        says("INSUFFICIENT_EVIDENCE", Some("nothing_selected"))
    );
    assert_eq!(
        outcome(c, "zebra", mode, none(), &[], None, false),
        says("INSUFFICIENT_EVIDENCE", Some("nothing_retrieved"))
    );

    // coverage_review, without a model and in one call.
    for (sub, status, reason, gaps) in [
        ("{gasket,pump}", "ANSWERED", None, vec![]),
        (
            "{gasket,zebra}",
            "PARTIAL",
            Some("gaps_left"),
            vec!["nothing_retrieved"],
        ),
        (
            "{zebra,okapi}",
            "INSUFFICIENT_EVIDENCE",
            Some("gaps_left"),
            vec!["nothing_retrieved"; 2],
        ),
        (
            "{gasket,pump,rubber,water}",
            "PARTIAL",
            Some("gaps_left"),
            vec!["not_asked"],
        ),
    ] {
        let row = c
            .query_one(
                &format!("SELECT trace_id, status, reason, gaps::text FROM cortex_ask('valve', mode => 'coverage_review', sub_questions => '{sub}')"),
                &[],
            )
            .unwrap();
        assert_eq!(
            (row.get::<_, &str>(1), row.get::<_, Option<&str>>(2)),
            (status, reason),
            "{sub}"
        );
        let found: Value = serde_json::from_str(row.get(3)).unwrap();
        let why: Vec<&str> = found
            .as_array()
            .unwrap()
            .iter()
            .map(|gap| gap["why"].as_str().unwrap())
            .collect();
        assert_eq!(why, gaps, "{sub}");
        must_verify(c, row.get(0), "L4");
    }
}

#[test]
fn copies_are_one_family_and_both_counts_are_recorded() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let ask = open(&mut client, "valve closes at 12 bar", "'compare_sources'");
    let seen = round(&mut client, ask);
    let copies: Vec<i64> = seen
        .iter()
        .filter(|(_, text)| text.contains("12 bar"))
        .map(|(id, _)| *id)
        .collect();
    assert_eq!(copies.len(), 2);
    select(&mut client, ask, 0, Some(&copies));
    let closed = close(&mut client, ask);
    assert_eq!(
        (closed.status.as_str(), closed.reason.as_deref()),
        ("PARTIAL", Some("one_family"))
    );
    let trace = json(
        &mut client,
        &format!("cortex_trace({})::jsonb", closed.trace),
    );
    assert_eq!(
        (&trace["answer"]["sources"], &trace["answer"]["families"]),
        (&json!(2), &json!(1))
    );
    must_verify(&mut client, closed.trace, "L4");
}

#[test]
fn refinement_stops_at_a_stall_and_planned_questions_go_on() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let ask = open(
        &mut client,
        "valve",
        "'coverage_review', sub_questions => '{gasket}'",
    );
    round(&mut client, ask);
    let told = select(&mut client, ask, 0, Some(&[]));
    assert_eq!(
        (&told["stalled"], &told["may_refine"], &told["waiting"]),
        (&json!(true), &json!(false), &json!(1))
    );
    let (code, text) = failure(
        &mut client,
        &format!("SELECT cortex_ask_refine({ask}, 'pump', 'the pump')"),
    );
    assert_eq!(code, "55000", "{text}");
    let seen = round(&mut client, ask);
    assert!(!seen.is_empty());
    select(&mut client, ask, 1, None);
    // The stall counts for the rest of the ask.
    assert_eq!(
        failure(
            &mut client,
            &format!("SELECT cortex_ask_refine({ask}, 'pump', 'the pump')")
        )
        .0,
        "55000"
    );
    assert_eq!(
        failure(
            &mut client,
            &format!("SELECT * FROM cortex_ask_round({ask})")
        )
        .0,
        "55000"
    );
    let closed = close(&mut client, ask);
    assert_eq!(closed.status, "ANSWERED");
    let trace = json(
        &mut client,
        &format!("cortex_trace({})::jsonb", closed.trace),
    );
    assert_eq!(
        (
            &trace["rounds"][0]["stalled"],
            &trace["rounds"][1]["origin"]
        ),
        (&json!(true), &json!("planned"))
    );
    must_verify(&mut client, closed.trace, "L4");

    // A refinement that names the sub-question as its gap fills it.
    let ask = open(
        &mut client,
        "valve",
        "'coverage_review', sub_questions => '{zebra}'",
    );
    round(&mut client, ask);
    select(&mut client, ask, 0, None);
    json(
        &mut client,
        &format!("cortex_ask_refine({ask}, 'gasket', 'zebra')"),
    );
    round(&mut client, ask);
    select(&mut client, ask, 1, None);
    round(&mut client, ask);
    select(&mut client, ask, 2, Some(&[]));
    let closed = close(&mut client, ask);
    assert_eq!(
        (closed.status.as_str(), &closed.gaps),
        ("ANSWERED", &json!([]))
    );
    must_verify(&mut client, closed.trace, "L4");
}

#[test]
fn budgets_of_rounds_and_evidence_are_kept() {
    let (_database, mut client) = Database::with_cortex();
    for n in 0..40 {
        put(
            &mut client,
            &format!("s{n}"),
            &format!("The valve number {n} is closed. Pump {n} runs."),
        );
    }
    cortex_work(&mut client);
    let ask = open(
        &mut client,
        "valve",
        "'find_relevant', '{\"max_rounds\": 2, \"max_evidence\": 3, \"max_candidates\": 5}'",
    );
    let seen = round(&mut client, ask);
    assert_eq!(seen.len(), 5);
    let ids: Vec<i64> = seen.iter().map(|(id, _)| *id).collect();
    assert_eq!(
        failure(
            &mut client,
            &format!(
                "SELECT cortex_ask_select({ask}, 0, '{{{}}}')",
                list(&ids[..4])
            )
        )
        .0,
        "22023"
    );
    assert_eq!(
        select(&mut client, ask, 0, Some(&ids[..2]))["evidence_left"],
        1
    );
    json(
        &mut client,
        &format!("cortex_ask_refine({ask}, 'pump', 'pumps')"),
    );
    assert_eq!(
        failure(
            &mut client,
            &format!("SELECT cortex_ask_refine({ask}, 'pump 7', 'pumps')")
        )
        .0,
        "55000"
    );
    let seen = round(&mut client, ask);
    // One more fits; what was selected before costs nothing.
    let again: Vec<i64> = seen
        .iter()
        .map(|(id, _)| *id)
        .filter(|id| ids[..2].contains(id))
        .collect();
    let new: Vec<i64> = seen
        .iter()
        .map(|(id, _)| *id)
        .filter(|id| !ids[..2].contains(id))
        .collect();
    assert_eq!(
        failure(
            &mut client,
            &format!(
                "SELECT cortex_ask_select({ask}, 1, '{{{}}}')",
                list(&new[..2])
            )
        )
        .0,
        "22023"
    );
    let told = select(&mut client, ask, 1, Some(&[&new[..1], &again[..]].concat()));
    assert_eq!(
        (&told["added"], &told["rounds_left"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(
        failure(
            &mut client,
            &format!("SELECT * FROM cortex_ask_round({ask})")
        )
        .0,
        "55000"
    );
    let closed = close(&mut client, ask);
    assert_eq!(closed.evidence.as_array().unwrap().len(), 3);
    must_verify(&mut client, closed.trace, "L4");
    // Without ids the budget is shared with the queries that wait.
    let row = client
        .query_one("SELECT trace_id, evidence::text FROM cortex_ask('valve', mode => 'coverage_review', sub_questions => '{pump 3,pump 4}')", &[])
        .unwrap();
    let evidence: Value = serde_json::from_str(row.get(1)).unwrap();
    let of = |n: u64| {
        evidence
            .as_array()
            .unwrap()
            .iter()
            .filter(|item| item["round"] == n)
            .count()
    };
    assert_eq!((of(0), of(1), of(2)), (4, 4, 4));
    must_verify(&mut client, row.get(0), "L4");
}

#[test]
fn the_same_ask_at_the_same_state_gives_the_same_bytes() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let run = |client: &mut Client| {
        let ask = open(
            client,
            "valve",
            "'compare_sources', sub_questions => '{pump,gasket}'",
        );
        for n in 0..3 {
            round(client, ask);
            select(client, ask, n, None);
        }
        answer(
            client,
            ask,
            Some("Both."),
            json!(["It closes at 12 bar."]),
            json!([{"statement": 1, "n": 1, "quote": "12 bar"}]),
            Some(model("q", "a")),
        );
        close(client, ask)
    };
    let (first, second) = (run(&mut client), run(&mut client));
    assert_eq!(
        (first.already, second.already, first.trace),
        (false, true, second.trace)
    );
    assert_eq!(first.evidence, second.evidence);
    // In one call and step by step, without a model, it is the same trace too.
    let ask = open(&mut client, "pump", "'find_relevant'");
    round(&mut client, ask);
    select(&mut client, ask, 0, None);
    let stepped = close(&mut client, ask);
    let row = client
        .query_one("SELECT trace_id, already FROM cortex_ask('pump')", &[])
        .unwrap();
    assert_eq!(
        (row.get::<_, i64>(0), row.get::<_, bool>(1)),
        (stepped.trace, true)
    );
}
