//! What becomes of a trace while its sources change and its database moves. Needs a server in CORTEX_TEST_PG18_URL or
//! CORTEX_TEST_PG16_URL and its programs.

use std::io::Write;
use std::process::Stdio;

use cortex_core::trace::Trace;
use cortex_core::verify::{Bundle, Evidence, Level, Options, verify};
use cortex_extension_tests::asks::{answer, close, open, round, select};
use cortex_extension_tests::server::Server;
use cortex_extension_tests::serving::{
    ask, cortex_work, embed, json, must_verify, put, text_vector, use_space, vector_literal,
};
use cortex_extension_tests::{Database, bind, one};
use postgres::Client;
use serde_json::{Value, json};

const DIMS: usize = 8;

/// Rows, a source, vectors, and a trace in each mode with everything that a trace can hold.
fn traces(client: &mut Client) -> Vec<i64> {
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, body text);
             INSERT INTO note SELECT g, 'The valve of row ' || g || ' closes at ' || 10 + g || ' bar.' FROM generate_series(1, 9) g",
        )
        .unwrap();
    bind(client, "note", "");
    put(
        client,
        "web:manual",
        "The valve in the manual is open. A pump feeds it.",
    );
    cortex_work(client);
    use_space(client, "first", DIMS);
    embed(client);
    client.batch_execute("SELECT cortex_seal()").unwrap();
    let vector = vector_literal(&text_vector("valve", DIMS));
    let mut traces = vec![
        ask(client, "valve", "").id,
        ask(client, "valve", &format!("'{vector}'")).id,
        ask(client, "valve", &format!("'{vector}', policy => '{{\"retrieval\": \"vector\"}}'")).id,
        ask(client, "valve", &format!("'{vector}', policy => '{{\"retrieval\": \"lexical\", \"allow_semantic_rerank\": true}}'")).id,
        ask(client, "valve", "mode => 'coverage_review', sub_questions => '{pump,zebra}'").id,
        ask(client, "valve", "mode => 'compare_sources'").id,
    ];
    let asked = open(client, "valve of row 2", "'evidence_answer'");
    let seen = round(client, asked);
    let second = seen
        .iter()
        .find(|(_, text)| text.contains("row 2"))
        .unwrap()
        .0;
    select(client, asked, 0, Some(&[second]));
    answer(
        client,
        asked,
        Some("It closes at 12 bar."),
        json!(["It closes at 12 bar."]),
        json!([{"statement": 1, "n": 1, "quote": "closes at 12 bar"}]),
        Some(json!({"name": "m", "input": "i", "output": "o"})),
    );
    traces.push(close(client, asked).trace);
    traces
}

fn bodies(client: &mut Client, traces: &[i64]) -> Vec<String> {
    traces
        .iter()
        .map(|trace| one(client, &format!("SELECT cortex_trace({trace})")))
        .collect()
}

fn all_verify(client: &mut Client, traces: &[i64]) {
    for trace in traces {
        must_verify(client, *trace, "L4");
    }
    let bad: i64 = one(
        client,
        "SELECT count(*) FROM cortex_verify_all() WHERE NOT ok OR level <> 'L4'",
    );
    assert_eq!(bad, 0);
}

#[test]
fn changes_of_every_kind_leave_the_replay_as_it_was_and_drift_tells_of_them() {
    let (database, mut client) = Database::with_cortex();
    // A transaction that began before the traces and commits after them.
    let mut late = database.connect();
    let traces = traces(&mut client);
    late.batch_execute(
        "BEGIN; INSERT INTO note VALUES (50, 'The valve of a late row closes at 60 bar.')",
    )
    .unwrap();
    let told = traces[traces.len() - 1];
    let late_trace = ask(&mut client, "valve late", "").id;
    let recorded = bodies(&mut client, &traces);
    all_verify(&mut client, &traces);
    late.batch_execute("COMMIT").unwrap();
    cortex_work(&mut client);
    must_verify(&mut client, late_trace, "L4");
    all_verify(&mut client, &traces);

    let drift = json(&mut client, &format!("cortex_drift({told})"));
    assert_eq!(
        (
            &drift["status_was"],
            &drift["status_would_be"],
            &drift["unchanged"]
        ),
        (&json!("ANSWERED"), &json!("ANSWERED"), &json!(1))
    );
    // Updated, deleted, deleted and inserted again with the same text, and a source put anew.
    client
        .batch_execute(
            "UPDATE note SET body = 'The valve of row 2 closes at 99 bar.' WHERE id = 2; DELETE FROM note WHERE id = 3;
             DELETE FROM note WHERE id = 4; INSERT INTO note VALUES (4, 'The valve of row 4 closes at 14 bar.')",
        )
        .unwrap();
    put(
        &mut client,
        "web:manual",
        "The valve in the manual is shut.",
    );
    cortex_work(&mut client);
    embed(&mut client);
    cortex_work(&mut client);
    all_verify(&mut client, &traces);
    let drift = json(&mut client, &format!("cortex_drift({told})"));
    assert_eq!(
        (
            &drift["status_would_be"],
            &drift["reason_would_be"],
            &drift["superseded"],
            &drift["unchanged"]
        ),
        (
            &json!("INSUFFICIENT_EVIDENCE"),
            &json!("nothing_selected"),
            &json!(1),
            &json!(0)
        ),
        "{drift:#}"
    );
    let drift = json(&mut client, &format!("cortex_drift({})", traces[0]));
    let fate = |artifact: &str| {
        let items = drift["evidence"].as_array().unwrap();
        let found = items.iter().find(|item| item["artifact_id"] == artifact);
        found.map(|item| item["now"].as_str().unwrap().to_owned())
    };
    assert_eq!(fate("row:note:[2]").as_deref(), Some("superseded"));
    assert_eq!(fate("row:note:[3]").as_deref(), Some("deleted"));
    assert_eq!(fate("row:note:[4]").as_deref(), Some("superseded"));
    assert_eq!(fate("row:note:[5]").as_deref(), Some("unchanged"));
    assert_eq!(fate("web:manual").as_deref(), Some("superseded"));
    assert_eq!(drift["closed"], 1);
    assert_eq!(drift["status_would_be"], "ANSWERED");
    assert!(
        drift["rounds"][0]["entered"].as_u64().unwrap() >= 3,
        "{drift:#}"
    );

    // Embedded again by another model.
    use_space(&mut client, "second", DIMS);
    embed(&mut client);
    cortex_work(&mut client);
    assert_eq!(
        one::<String>(&mut client, "SELECT model FROM cortex.namespaces"),
        "second"
    );
    all_verify(&mut client, &traces);
    assert_eq!(bodies(&mut client, &traces), recorded);
}

#[test]
fn a_dump_restored_into_a_new_cluster_verifies_the_same() {
    let (database, mut client) = Database::with_cortex();
    let traces = traces(&mut client);
    client
        .batch_execute("UPDATE note SET body = 'Else.' WHERE id = 2; SELECT cortex_work()")
        .unwrap();
    let open_ask = open(&mut client, "valve", "'find_relevant'");
    round(&mut client, open_ask);
    let recorded = bodies(&mut client, &traces);
    let dump = database.program("pg_dump").output().unwrap();
    assert!(
        dump.status.success(),
        "{}",
        String::from_utf8_lossy(&dump.stderr)
    );
    let server = Server::new(&database, "fresh");
    server.init();
    server.start();
    server
        .connect("postgres")
        .batch_execute("CREATE DATABASE moved")
        .unwrap();
    let mut psql = server
        .program("psql", "moved")
        .args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    psql.stdin.take().unwrap().write_all(&dump.stdout).unwrap();
    let done = psql.wait_with_output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let mut moved = server.connect("moved");
    assert_eq!(bodies(&mut moved, &traces), recorded);
    all_verify(&mut moved, &traces);
    let drift = |client: &mut Client| {
        json(client, &format!("cortex_drift({})", traces[0]))["evidence"].clone()
    };
    assert_eq!(drift(&mut moved), drift(&mut client));
    // An ask that was open goes on, and new numbers do not collide.
    select(&mut moved, open_ask, 0, None);
    let closed = close(&mut moved, open_ask);
    must_verify(&mut moved, closed.trace, "L4");
    let asked = ask(&mut moved, "pump", "");
    assert!(!asked.already);
    must_verify(&mut moved, asked.id, "L4");
}

#[test]
fn the_texts_of_a_trace_take_a_verifier_without_the_database_to_l2() {
    let (_database, mut client) = Database::with_cortex();
    for trace in traces(&mut client) {
        let body: String = one(&mut client, &format!("SELECT cortex_trace({trace})"));
        let texts: String = one(
            &mut client,
            &format!("SELECT cortex_trace_evidence({trace})"),
        );
        let mut bundle = Bundle::from_text(&texts).unwrap();
        let report = verify(
            &body,
            &Options::default(),
            Some(&mut bundle as &mut dyn Evidence),
        );
        assert_eq!(
            (report.ok, report.level),
            (true, Some(Level::L2)),
            "{report:#?}"
        );
        let steps: Vec<&str> = report
            .steps
            .iter()
            .filter(|step| step.found.contains("cannot replay"))
            .map(|step| step.name.as_str())
            .collect();
        assert_eq!(steps, ["replay", "exhaustive", "visibility"]);
        // A letter of an item is enough to be found.
        for item in &mut bundle.items {
            if let Some(stored) = &mut item.stored {
                stored.text = stored.text.replacen('v', "w", 1);
            }
        }
        let trace = Trace::from_text(&body).unwrap();
        let report = verify(
            &body,
            &Options::default(),
            Some(&mut bundle as &mut dyn Evidence),
        );
        assert_eq!(report.ok, trace.evidence.is_empty());
    }
}

#[test]
fn a_rerank_is_done_only_where_the_policy_allows_it_and_a_vector_is_given() {
    let (_database, mut client) = Database::with_cortex();
    traces(&mut client);
    let vector = vector_literal(&text_vector("row 7", DIMS));
    let receipt = |client: &mut Client, arguments: &str| -> Value {
        let asked = ask(client, "valve", arguments);
        must_verify(client, asked.id, "L4");
        json(
            client,
            &format!(
                "(cortex_trace({})::jsonb #> '{{rounds,0,receipt}}')",
                asked.id
            ),
        )
    };
    let lexical = "policy => '{\"retrieval\": \"lexical\"}'";
    let allowed = "policy => '{\"retrieval\": \"lexical\", \"allow_semantic_rerank\": true}'";
    let plain = receipt(&mut client, lexical);
    assert_eq!(
        (&plain["arms"], &plain["fusion"]),
        (&json!(["lexical"]), &json!("cortex-rrf/2"))
    );
    // A vector that is not allowed to matter changes nothing at all.
    assert_eq!(
        receipt(&mut client, &format!("'{vector}', {lexical}")),
        plain
    );
    assert_eq!(receipt(&mut client, allowed)["arms"], json!(["lexical"]));
    let reranked = receipt(&mut client, &format!("'{vector}', {allowed}"));
    assert_eq!(
        (
            &reranked["arms"],
            &reranked["fusion"],
            &reranked["nominator"]
        ),
        (
            &json!(["lexical", "vector"]),
            &json!("cortex-rerank/1"),
            &json!("lexical")
        )
    );
    let items = |receipt: &Value| -> Vec<i64> {
        receipt["candidates"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["item"].as_i64().unwrap())
            .collect()
    };
    let sorted = |receipt: &Value| {
        let mut items = items(receipt);
        items.sort_unstable();
        items
    };
    assert_eq!(sorted(&reranked), sorted(&plain));
    assert_ne!(items(&reranked), items(&plain));
    assert!(
        reranked["candidates"]
            .as_array()
            .unwrap()
            .iter()
            .all(|c| c["lexical_rank"].is_i64())
    );
    let hybrid = receipt(
        &mut client,
        &format!("'{vector}', policy => '{{\"allow_semantic_rerank\": true}}'"),
    );
    assert_eq!(
        (&hybrid["fusion"], &hybrid["nominator"]),
        (&json!("cortex-rrf/2"), &json!("exact"))
    );
}
