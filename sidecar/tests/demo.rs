//! The demo through the binary, on a PostgreSQL of its own, with a few rows instead of the real ones.

mod support;

use serde_json::{Value, json};
use support::cluster::Cluster;
use support::command::Cortex;
use support::run;

const ROWS: [&str; 8] = [
    "pg_cancel_backend(integer): cancel a server process' current query",
    "pg_client_encoding(): encoding name of current database",
    "log(numeric, numeric): logarithm base m of n",
    "lpad(text, integer): left-pad string to length",
    "now(): current transaction time",
    "lastval(): current value from last used sequence",
    "current_schemas(boolean): current schema search list",
    "age(xid): age of a transaction ID, in transactions before current transaction",
];

/// Writes rows and where they are from, as `tools/release_notes.py` does.
fn notes(cortex: &Cortex) -> String {
    let rows: String = ROWS
        .iter()
        .zip(1..)
        .map(|(body, id)| format!("{}\n", json!({"id": id, "version": "18", "released_on": null, "section": "catalogue", "body": body})))
        .collect();
    cortex.file(
        "notes/SOURCE.json",
        json!({"kind": "catalogue", "version": "18.0", "rows": ROWS.len()}).to_string(),
    );
    cortex
        .file("notes/release_note.jsonl", rows)
        .to_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn the_proof_holds_step_by_step_and_again() {
    let cluster = Cluster::new("demo");
    let cortex = Cortex::new("demo", "postgresql://localhost/unused")
        .with("CORTEX_MODEL__DIR", &support::model_dir());
    let (notes, folder) = (notes(&cortex), cluster.folder.to_str().unwrap().to_owned());
    let arguments = ["demo", "--cluster", &folder, "--notes", &notes];
    for _ in 0..2 {
        let run = cortex.run(&[&arguments[..], &["--json"]].concat(), 0);
        let steps: Vec<Value> = run
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let names: Vec<&str> = steps
            .iter()
            .map(|step| step["step"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "rows", "answers", "psql", "change", "replay", "tamper", "rights", "next"
            ]
        );
        for step in &steps {
            let members: Vec<&String> = step.as_object().unwrap().keys().collect();
            assert_eq!(members, ["detail", "ms", "ok", "step"]);
            assert_eq!(step["ok"], true, "{step}");
        }
    }
    let shown = cortex.run(&arguments, 0).out;
    for part in [
        "cortex_bind(",
        "bytes ",
        "UPDATE release_note",
        "cortex_verify(",
        "cortex_drift(",
        "T_EVIDENCE",
        "T_ROOT",
        "SET ROLE",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(
        !shown.contains('\u{1b}'),
        "colours or cursor moves without a terminal"
    );

    // The three commands at its end work as printed.
    let url = shown
        .lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix("export CORTEX_DATABASE__URL='")?
                .strip_suffix('\'')
        })
        .unwrap();
    let next = Cortex::new("demo-next", url);
    next.run(
        &[
            "find",
            "How is the current query of a server process cancelled?",
        ],
        0,
    );
    next.run(&["explain", "1"], 0);
}

#[tokio::test]
async fn what_is_not_the_demos_is_left_alone() {
    let cluster = Cluster::new("foreign");
    let mut session = support::session(&cluster.url).await;
    run(&mut session, "CREATE DATABASE cortex_demo").await;
    let cortex = Cortex::new("foreign", "postgresql://localhost/unused")
        .with("CORTEX_MODEL__DIR", &support::model_dir());
    let (notes, folder) = (notes(&cortex), cluster.folder.to_str().unwrap().to_owned());
    let refused = cortex.run(
        &["demo", "--cluster", &folder, "--notes", &notes, "--json"],
        5,
    );
    let step: Value = serde_json::from_str(refused.out.lines().last().unwrap()).unwrap();
    assert_eq!(
        (step["step"].clone(), step["ok"].clone()),
        (json!("rows"), json!(false))
    );
    let there: bool = support::value(
        &mut session,
        "SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'cortex_demo')",
    )
    .await;
    assert!(there);
}

#[tokio::test]
async fn a_folder_without_a_cluster_and_rows_that_are_none_are_named() {
    let cortex = Cortex::new("no-cluster", "postgresql://localhost/unused");
    let refused = cortex.run(&["demo", "--cluster", "nowhere"], 2);
    assert!(refused.err.contains("cluster.json"), "{refused:?}");
    cortex.file("bad/cluster.json", "{}");
    cortex.run(&["demo", "--cluster", "bad"], 2);
}
