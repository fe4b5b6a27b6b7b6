//! Builds: from a want to claims, by one model or several at once. Needs a server in CORTEX_TEST_PG18_URL or
//! CORTEX_TEST_PG16_URL.

use std::sync::{Arc, Barrier};
use std::thread;

use cortex_extension_tests::pool::{
    chunks, commit, events, long_text, modelled, served, take, told, want, wanted,
};
use cortex_extension_tests::serving::{cortex_work, json, put};
use cortex_extension_tests::{Database, one};
use postgres::Client;
use serde_json::{Value, json};

const FIRM: &str = "Ada Stein founded the firm in 1999. It has 12 doors and sells boats.";

fn firm() -> (Database, Client) {
    let (database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    put(&mut client, "firm", FIRM);
    cortex_work(&mut client);
    (database, client)
}

fn dropped(told: &Value, what: &str) -> i64 {
    told["dropped"][what].as_i64().unwrap()
}

#[test]
fn a_build_from_want_to_a_served_claim() {
    let (_database, mut client) = firm();
    assert_eq!(want(&mut client, "firm", &[]), told("queued"));
    assert_eq!(want(&mut client, "firm", &[]), told("already"));
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    assert_eq!(taken.class, "NOVEL");
    assert_eq!(
        taken.chunks,
        [(chunks(&mut client, "firm")[0], FIRM.to_owned())]
    );
    assert_eq!(taken.versions.len(), 1);
    assert!(take(&mut client, "other", "60 seconds").is_none());
    assert_eq!(want(&mut client, "firm", &[]), told("already"));
    // A word that only the model used leads to its claim.
    let claims = json!([{"claim": "A vessel dealer was founded by Ada Stein in 1999.", "chunks": [taken.chunks[0].0]}]);
    let answer = commit(&mut client, taken.job, "w", &claims, "");
    assert_eq!(answer["admitted"], 1, "{answer}");
    assert_eq!(answer["stale"], false);
    cortex_work(&mut client);
    let payload: String = one(&mut client, "SELECT payload FROM cortex_read('vessel')");
    assert!(payload.contains("A vessel dealer was founded"), "{payload}");
    // The chunk is covered now: nothing is left to build.
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.job WHERE kind = 'build'"
        ),
        0
    );
    let chunk = chunks(&mut client, "firm");
    assert_eq!(want(&mut client, "firm", &chunk), told("already"));
    let unit = &answer["unit_id"];
    assert_eq!(
        one::<i64>(
            &mut client,
            &format!("SELECT chunk_id FROM cortex_drill({unit})")
        ),
        chunk[0]
    );
    let kinds: Vec<String> = events(&mut client)
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, ["build_triggered_by_gap", "unit_built"]);
    let stats = json(&mut client, "cortex_stats()");
    assert_eq!(
        stats["models"]["m"],
        json!({"synth_calls": 1, "prompt_tokens": 100, "completion_tokens": 10})
    );
}

#[test]
fn a_model_may_say_only_what_its_chunks_say() {
    let (_database, mut client) = firm();
    want(&mut client, "firm", &[]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    let id = taken.chunks[0].0;
    let just = format!("It has {} doors.", "many ".repeat(390).trim_end());
    let just = format!("{just}{}", "x".repeat(2_000 - just.chars().count()));
    assert_eq!(just.chars().count(), 2_000);
    let over = format!("{just}\u{e4}");
    let cases = [
        (json!("It has 12 doors."), ""),
        (json!({"text": "The founder is Ada Stein."}), ""),
        (json!({"claim": "Boats are sold.", "chunks": []}), ""),
        (
            json!({"claim": "It was founded in 1999", "chunks": [id, id, 999_999]}),
            "unknown_chunk",
        ),
        (json!(just), ""),
        (json!(over), "too_long"),
        (json!("x".repeat(20_000)), "too_long"),
        (json!(null), "blank"),
        (json!(" \n\t\u{a0}"), "blank"),
        (json!(""), "blank"),
        (json!(7), "blank"),
        (json!(["It has doors"]), "blank"),
        (json!({}), "blank"),
        (json!({"claim": null}), "blank"),
        (json!({"claim": 12}), "blank"),
        (json!("It has 13 doors."), "ungrounded"),
        (json!("The founder is Bert Stein."), "ungrounded"),
        (
            json!({"claim": "It sells ropes", "chunks": [999_999]}),
            "unknown_chunk",
        ),
        (
            json!({"claim": "It sells oars", "chunks": "no"}),
            "unknown_chunk",
        ),
        (
            json!({"claim": "It sells masts", "chunks": [-1]}),
            "unknown_chunk",
        ),
        (json!("  it has  12 doors. "), "repeated"),
    ];
    let claims: Vec<&Value> = cases.iter().map(|(claim, _)| claim).collect();
    let answer = commit(&mut client, taken.job, "w", &json!(claims), "");
    assert_eq!(answer["admitted"], 5, "{answer}");
    for what in [
        "blank",
        "ungrounded",
        "unknown_chunk",
        "too_long",
        "repeated",
    ] {
        let expected = cases.iter().filter(|(_, why)| *why == what).count() as i64;
        assert_eq!(dropped(&answer, what), expected, "{what}: {answer}");
    }
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.claim c WHERE 999999 = ANY (c.chunk_ids) OR cardinality(c.chunk_ids) <> 1"
        ),
        0
    );
    assert_eq!(served(&mut client), 5);
}

#[test]
fn builds_add_and_forget_nothing() {
    let (_database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    let text = long_text(&["Part 1 is red.", "Part 2 is blue.", "Part 3 is green."]);
    put(&mut client, "parts", &text);
    let chunks = chunks(&mut client, "parts");
    assert!(chunks.len() >= 3, "{chunks:?}");
    want(&mut client, "parts", &chunks[..1]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    assert_eq!(taken.chunks.len(), 1);
    let first = commit(
        &mut client,
        taken.job,
        "w",
        &json!(["Part 1 is red.", "Its colour is red."]),
        "",
    );
    want(&mut client, "parts", &chunks[..2]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    assert_eq!(taken.class, "THIN");
    assert_eq!(taken.chunks.len(), 1, "what was built is not built again");
    assert_eq!(taken.chunks[0].0, chunks[1]);
    let second = commit(
        &mut client,
        taken.job,
        "w",
        &json!(["Part 2 is blue.", "part 1 IS red."]),
        "",
    );
    // What was said of another chunk is not said of this one.
    assert_eq!(
        (&second["admitted"], dropped(&second, "repeated")),
        (&json!(1), 1),
        "{second}"
    );
    assert_eq!(first["unit_id"], second["unit_id"]);
    assert_eq!(served(&mut client), 3);
    let unit = json(
        &mut client,
        "(SELECT to_jsonb(u) FROM cortex.units u WHERE purpose = 'model')",
    );
    assert_eq!(
        (
            &unit["claims"],
            &unit["chunks_covered"],
            &unit["prompt_tokens"]
        ),
        (&json!(3), &json!(2), &json!(200))
    );
    // Claims that no model was called for cost nothing and count no call.
    want(&mut client, "parts", &chunks[2..3]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    json(
        &mut client,
        &format!("cortex_build_commit({}, '[]', worker => 'w')", taken.job),
    );
    let stats = json(&mut client, "cortex_stats()");
    assert_eq!(
        (
            &stats["models"]["m"]["synth_calls"],
            stats["models"].get("model")
        ),
        (&json!(2), None),
        "{stats}"
    );
    // A later change of the source ends both at once.
    put(&mut client, "parts", "Nothing is left.");
    assert_eq!(served(&mut client), 0);
}

#[test]
fn a_long_source_is_read_in_parts() {
    let (_database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    let about: Vec<String> = (0..40).map(|n| format!("Part {n} is red.")).collect();
    let about: Vec<&str> = about.iter().map(String::as_str).collect();
    put(&mut client, "parts", &long_text(&about));
    let all = chunks(&mut client, "parts").len();
    assert!(all >= 40);
    want(&mut client, "parts", &[]);
    let mut seen = Vec::new();
    let mut parts = 0;
    while let Some(taken) = take(&mut client, "w", "60 seconds") {
        assert!(taken.chunks.len() <= 16);
        seen.extend(taken.chunks.iter().map(|(id, _)| *id));
        parts += 1;
        commit(&mut client, taken.job, "w", &json!([]), "");
    }
    assert_eq!(seen, chunks(&mut client, "parts"));
    assert!(parts >= 3);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.job WHERE kind = 'build'"
        ),
        0
    );
}

#[test]
fn however_many_readers_miss_one_build_is_queued() {
    let (database, mut client) = firm();
    for round in 0..10 {
        let artifact = format!("s{round}");
        put(&mut client, &artifact, FIRM);
        let wanted = wanted(&mut client, &artifact, &[]);
        let start = Arc::new(Barrier::new(8));
        let readers: Vec<_> = (0..8)
            .map(|_| {
                let mut session = database.connect();
                let (wanted, start) = (wanted.clone(), start.clone());
                thread::spawn(move || {
                    start.wait();
                    cortex_extension_tests::pool::ask_for(&mut session, &wanted)
                })
            })
            .collect();
        let answers: Vec<Value> = readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect();
        let queued: i64 = answers
            .iter()
            .map(|answer| answer["queued"].as_i64().unwrap())
            .sum();
        let already: i64 = answers
            .iter()
            .map(|answer| answer["already"].as_i64().unwrap())
            .sum();
        assert_eq!((queued, already), (1, 7), "{answers:?}");
    }
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.job WHERE kind = 'build'"
        ),
        10
    );
}

#[test]
fn a_want_never_waits() {
    let (database, mut client) = firm();
    let mut slow = database.connect();
    slow.batch_execute("BEGIN").unwrap();
    assert_eq!(want(&mut slow, "firm", &[]), told("queued"));
    client
        .batch_execute("SET statement_timeout = '2s'")
        .unwrap();
    assert_eq!(want(&mut client, "firm", &[]), told("already"));
    // Nor does the sealer, the writer of the source, or a worker.
    put(&mut client, "firm", "Another text of the firm.");
    client.batch_execute("SELECT cortex_seal()").unwrap();
    assert!(take(&mut client, "w", "60 seconds").is_none());
    slow.batch_execute("ROLLBACK").unwrap();
    assert_eq!(want(&mut client, "firm", &[]), told("queued"));
    // A build that is being taken or committed keeps no reader waiting either.
    slow.batch_execute("BEGIN").unwrap();
    let taken = take(&mut slow, "w", "60 seconds").unwrap();
    assert_eq!(want(&mut client, "firm", &[]), told("already"));
    commit(&mut slow, taken.job, "w", &json!([]), "");
    assert_eq!(want(&mut client, "firm", &[]), told("already"));
    slow.batch_execute("COMMIT").unwrap();
}

#[test]
fn a_build_is_widened_to_its_source_where_the_namespace_says_so() {
    let (_database, mut client) = Database::with_cortex();
    let about: Vec<String> = (0..5).map(|n| format!("Part {n} is blue.")).collect();
    let text = long_text(&about.iter().map(String::as_str).collect::<Vec<_>>());
    for (widen, expected) in [
        (json!(null), vec![3]),
        (json!(1), vec![0, 3]),
        (json!(2), vec![0, 1, 3]),
        (json!(100), vec![0, 1, 2, 3, 4]),
    ] {
        modelled(&mut client, json!({"widen_chunks": widen}));
        let artifact = format!("parts {widen}");
        put(&mut client, &artifact, &text);
        cortex_work(&mut client);
        let all = chunks(&mut client, &artifact);
        assert_eq!(all.len(), 5);
        assert_eq!(want(&mut client, &artifact, &[all[3]]), told("queued"));
        let taken = take(&mut client, "w", "60 seconds").unwrap();
        let ids: Vec<i64> = taken.chunks.iter().map(|(id, _)| *id).collect();
        let wanted: Vec<i64> = expected.iter().map(|&at| all[at]).collect();
        assert_eq!(ids, wanted, "widen_chunks {widen}");
        commit(&mut client, taken.job, "w", &json!([]), "");
        assert!(
            take(&mut client, "w", "60 seconds").is_none(),
            "nothing is left of it"
        );
    }
}
