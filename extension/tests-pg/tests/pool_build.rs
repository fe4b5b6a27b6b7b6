//! Builds: from a want to claims, by one model or several at once. Needs a server in CORTEX_TEST_PG18_URL or
//! CORTEX_TEST_PG16_URL.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use cortex_extension_tests::pool::{
    build_all, chunks, commit, events, long_text, modelled, reworded, served, take, told, want,
    wanted,
};
use cortex_extension_tests::serving::{cortex_work, json, put};
use cortex_extension_tests::{Database, failure, one};
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
fn two_processes_build_one_unit() {
    let (database, mut client) = firm();
    want(&mut client, "firm", &[]);
    let mut other = database.connect();
    let slow = take(&mut client, "slow", "1 second").unwrap();
    let quick = wait_for(|| take(&mut other, "quick", "60 seconds"));
    assert_eq!(quick.job, slow.job);
    assert_eq!(quick.chunks, slow.chunks);
    let claims = "[\"It has 12 doors.\"]";
    let (code, text) = failure(
        &mut client,
        &format!(
            "SELECT cortex_build_commit({}, '{claims}', worker => 'slow')",
            slow.job
        ),
    );
    assert_eq!(code, "55000", "{text}");
    assert!(text.contains("lease ran out"), "{text}");
    assert_eq!(served(&mut client), 0);
    commit(
        &mut other,
        quick.job,
        "quick",
        &json!(["It has 12 doors."]),
        "",
    );
    assert_eq!(served(&mut client), 1);
    assert_eq!(
        failure(
            &mut other,
            &format!(
                "SELECT cortex_build_commit({}, '{claims}', worker => 'quick')",
                quick.job
            )
        )
        .0,
        "55000"
    );
    assert_eq!(served(&mut client), 1);
}

fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_builder_killed_before_its_commit_loses_nothing() {
    let (database, mut client) = firm();
    want(&mut client, "firm", &[]);
    let mut doomed = database.connect();
    let pid: i32 = one(&mut doomed, "SELECT pg_backend_pid()");
    take(&mut doomed, "doomed", "1 second").unwrap();
    doomed.batch_execute("BEGIN").unwrap();
    client
        .batch_execute(&format!("SELECT pg_terminate_backend({pid}, 5000)"))
        .unwrap();
    let again = wait_for(|| take(&mut client, "next", "60 seconds"));
    assert_eq!(again.class, "NOVEL");
    commit(
        &mut client,
        again.job,
        "next",
        &json!(["It has 12 doors."]),
        "",
    );
    assert_eq!(served(&mut client), 1);
    // And killed within the commit: nothing of it is there, and the job is still held.
    put(&mut client, "firm", &format!("{FIRM} It moved."));
    want(&mut client, "firm", &[]);
    let mut doomed = database.connect();
    let pid: i32 = one(&mut doomed, "SELECT pg_backend_pid()");
    let taken = take(&mut doomed, "doomed", "60 seconds").unwrap();
    doomed.batch_execute("BEGIN").unwrap();
    commit(
        &mut doomed,
        taken.job,
        "doomed",
        &json!(["It has 12 doors."]),
        "",
    );
    client
        .batch_execute(&format!("SELECT pg_terminate_backend({pid}, 5000)"))
        .unwrap();
    assert_eq!(served(&mut client), 0);
    let held: String = one(
        &mut client,
        &format!("SELECT state FROM cortex.job WHERE id = {}", taken.job),
    );
    assert_eq!(held, "running");
}

#[test]
fn a_source_that_changes_or_goes_meanwhile_gets_nothing() {
    let (_database, mut client) = firm();
    let steps = [
        "SELECT cortex_source_put('firm', 'Another text of the firm.')",
        "SELECT cortex_source_changed('firm')",
    ];
    for step in steps {
        put(&mut client, "firm", FIRM);
        cortex_work(&mut client);
        want(&mut client, "firm", &[]);
        let taken = take(&mut client, "w", "60 seconds").unwrap();
        let before: i64 = one(&mut client, "SELECT count(*) FROM cortex.claim");
        client.batch_execute(step).unwrap();
        let between: i64 = one(&mut client, "SELECT count(*) FROM cortex.claim");
        let answer = commit(
            &mut client,
            taken.job,
            "w",
            &json!(["It has 12 doors."]),
            "",
        );
        assert_eq!(answer["stale"], true, "{step}");
        assert_eq!(answer["admitted"], 0);
        assert_eq!(answer["unit_id"], Value::Null);
        assert_eq!(
            one::<i64>(&mut client, "SELECT count(*) FROM cortex.claim"),
            between,
            "{step} {before}"
        );
        assert_eq!(
            one::<i64>(
                &mut client,
                "SELECT count(*) FROM cortex.unit WHERE purpose = 'model'"
            ),
            0
        );
        assert_eq!(
            one::<i64>(
                &mut client,
                "SELECT count(*) FROM cortex.job WHERE kind = 'build'"
            ),
            0,
            "the job ends"
        );
    }
    // Gone before anyone took it.
    put(&mut client, "firm", FIRM);
    want(&mut client, "firm", &[]);
    let old = wanted(&mut client, "firm", &[]);
    client
        .batch_execute("SELECT cortex_source_deleted('firm')")
        .unwrap();
    assert!(take(&mut client, "w", "60 seconds").is_none());
    assert_eq!(
        cortex_extension_tests::pool::ask_for(&mut client, &old),
        told("gone")
    );
    let stale = events(&mut client)
        .iter()
        .filter(|(kind, _)| kind == "build_stale")
        .count();
    assert_eq!(stale, 3);
    // Tokens are spent whatever comes of them.
    let stats = json(&mut client, "cortex_stats()");
    assert_eq!(stats["models"]["m"]["prompt_tokens"], 200);
    // A want of a version that is no longer current asks for nothing.
    put(&mut client, "firm", FIRM);
    let old = wanted(&mut client, "firm", &[]);
    put(&mut client, "firm", "A third text.");
    assert_eq!(
        cortex_extension_tests::pool::ask_for(&mut client, &old),
        told("gone")
    );
}

#[test]
fn failed_builds_back_off_and_die() {
    let (_database, mut client) = firm();
    want(&mut client, "firm", &[]);
    for attempt in 1..=8 {
        let taken =
            take(&mut client, "w", "60 seconds").unwrap_or_else(|| panic!("attempt {attempt}"));
        let state: String = one(
            &mut client,
            &format!(
                "SELECT cortex_build_fail({}, 'prose', '{{\"model\": \"m\", \"prompt_tokens\": 5}}', 'w')",
                taken.job
            ),
        );
        assert_eq!(state, if attempt < 8 { "ready" } else { "dead" });
        assert_eq!(
            want(&mut client, "firm", &[]),
            told("backing_off"),
            "attempt {attempt}"
        );
        assert!(take(&mut client, "w", "60 seconds").is_none());
        client
            .batch_execute(
                "UPDATE cortex.job SET run_after = clock_timestamp() WHERE state = 'ready'",
            )
            .unwrap();
    }
    // Dead: an hour of rest, or a new version.
    assert_eq!(want(&mut client, "firm", &[]), told("backing_off"));
    client.batch_execute("UPDATE cortex.job SET run_after = clock_timestamp() - interval '61 minutes' WHERE kind = 'build'").unwrap();
    assert_eq!(want(&mut client, "firm", &[]), told("queued"));
    client.batch_execute("UPDATE cortex.job SET state = 'dead', run_after = clock_timestamp() WHERE kind = 'build'").unwrap();
    assert_eq!(want(&mut client, "firm", &[]), told("backing_off"));
    put(&mut client, "firm", &format!("{FIRM} It moved."));
    assert_eq!(want(&mut client, "firm", &[]), told("queued"));
    assert_eq!(
        events(&mut client)
            .iter()
            .filter(|(kind, _)| kind == "build_failed")
            .count(),
        8
    );
    let stats = json(&mut client, "cortex_stats()");
    assert_eq!(stats["counters"]["builds_failed"], 8);
    assert_eq!(stats["models"]["m"]["prompt_tokens"], 40);
}

#[test]
fn lazy_eager_and_off() {
    let (_database, mut client) = firm();
    let set = |client: &mut Client, settings: &str| {
        client
            .batch_execute(&format!("SELECT cortex_pool_set('default', '{settings}')"))
            .unwrap();
    };
    // Lazy: nothing is built unasked.
    assert!(take(&mut client, "w", "60 seconds").is_none());
    for settings in [
        r#"{"build_when": "off"}"#,
        r#"{"builder": "extract", "build_when": null}"#,
    ] {
        want(&mut client, "firm", &[]);
        set(&mut client, settings);
        let wanted = wanted(&mut client, "firm", &[]);
        let (code, text) = failure(
            &mut client,
            &format!("SELECT cortex_build_want('{wanted}')"),
        );
        assert_eq!(code, "55000", "{text}");
        assert!(take(&mut client, "w", "60 seconds").is_none());
        assert_eq!(json(&mut client, "cortex_build_want('[]')")["queued"], 0);
        set(&mut client, r#"{"builder": "model", "build_when": null}"#);
    }
    build_all(&mut client, reworded);
    // Eager: rows and texts, from their first version on.
    set(&mut client, r#"{"build_when": "eager"}"#);
    client
        .batch_execute("CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note SELECT g, 'Row ' || g || ' is red.' FROM generate_series(1, 5) g; SELECT cortex_bind('note')")
        .unwrap();
    put(&mut client, "text", "The text is red.");
    cortex_work(&mut client);
    assert_eq!(build_all(&mut client, reworded), 6);
    client
        .batch_execute("UPDATE note SET body = 'Row 1 is blue.' WHERE id = 1")
        .unwrap();
    cortex_work(&mut client);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    assert_eq!(taken.class, "STALE-OWNED");
    // It changes again while the model reads: the newest version is built all the same.
    client
        .batch_execute("UPDATE note SET body = 'Row 1 is green.' WHERE id = 1")
        .unwrap();
    cortex_work(&mut client);
    assert!(take(&mut client, "other", "60 seconds").is_none());
    assert_eq!(
        commit(&mut client, taken.job, "w", &json!(["Row 1 is blue."]), "")["stale"],
        true
    );
    assert_eq!(build_all(&mut client, reworded), 1);
    let bodies: i64 = one(
        &mut client,
        "SELECT count(*) FROM cortex.claims WHERE fresh AND body = 'It is known that: Row 1 is green.'",
    );
    assert_eq!(bodies, 1);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.job WHERE kind IN ('build', 'plan')"
        ),
        0
    );
}

#[test]
fn bad_input_of_builds() {
    let (_database, mut client) = firm();
    want(&mut client, "firm", &[]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    let job = taken.job;
    let many = json!(vec!["x"; 1_001]).to_string();
    for (sql, code, says) in [
        (
            "cortex_build_want(NULL)".to_owned(),
            "22004",
            "wanted is NULL",
        ),
        (
            "cortex_build_want('{}')".to_owned(),
            "22023",
            "a JSON object",
        ),
        (
            "cortex_build_want('[7]')".to_owned(),
            "22023",
            "names no source",
        ),
        (
            r#"cortex_build_want('[{"source_id": "a"}]')"#.to_owned(),
            "22023",
            "names no source",
        ),
        (
            r#"cortex_build_want('[{"source_id": 1.5}]')"#.to_owned(),
            "22023",
            "names no source",
        ),
        (
            r#"cortex_build_want('[{"source_id": 1e30}]')"#.to_owned(),
            "22023",
            "names no source",
        ),
        (
            r#"cortex_build_want('[{"source_id": 1, "chunk_ids": ["x"]}]')"#.to_owned(),
            "22023",
            "ids",
        ),
        (
            r#"cortex_build_want('[{"source_id": 1, "chunk_ids": 4}]')"#.to_owned(),
            "22023",
            "names no source",
        ),
        (
            format!(
                "cortex_build_want('{}')",
                json!(vec![json!({"source_id": 1}); 101])
            ),
            "22023",
            "array of 101",
        ),
        (
            "cortex_build_want('[]', 'nowhere')".to_owned(),
            "42704",
            "nowhere",
        ),
        (
            "cortex_build_want('[]', 'default', '[1,2]')".to_owned(),
            "55000",
            "no embedding space",
        ),
        (
            "(SELECT count(*) FROM cortex_build_take('nowhere'))".to_owned(),
            "42704",
            "nowhere",
        ),
        (
            "(SELECT count(*) FROM cortex_build_take(lease => '0 seconds'))".to_owned(),
            "22023",
            "lease",
        ),
        (
            "(SELECT count(*) FROM cortex_build_take(lease => '2 hours'))".to_owned(),
            "22023",
            "lease",
        ),
        (
            format!("cortex_build_commit({job}, NULL, worker => 'w')"),
            "22023",
            "NULL",
        ),
        (
            format!("cortex_build_commit({job}, '\"prose\"', worker => 'w')"),
            "22023",
            "a JSON string",
        ),
        (
            format!("cortex_build_commit({job}, '{many}', worker => 'w')"),
            "22023",
            "1001",
        ),
        (
            format!("cortex_build_commit({job}, '[]', worker => 'v')"),
            "55000",
            "does not hold",
        ),
        (
            format!("cortex_build_commit({job}, '[]')"),
            "55000",
            "does not hold",
        ),
        (
            "cortex_build_commit(-1, '[]', worker => 'w')".to_owned(),
            "55000",
            "does not hold",
        ),
        (
            format!(r#"cortex_build_commit({job}, '["a b c"]', '{{}}'::vector[], worker => 'w')"#),
            "22023",
            "1 claims and 0 vectors",
        ),
        (
            format!(
                r#"cortex_build_commit({job}, '["a b c"]', ARRAY['[1]'::vector], worker => 'w')"#
            ),
            "55000",
            "no embedding space",
        ),
        (
            format!("cortex_build_commit({job}, '[]', usage => '[]', worker => 'w')"),
            "22023",
            "usage",
        ),
        (
            format!(
                r#"cortex_build_commit({job}, '[]', usage => '{{"prompt_tokens": -1}}', worker => 'w')"#
            ),
            "22023",
            "prompt_tokens",
        ),
        (
            format!(
                r#"cortex_build_commit({job}, '[]', usage => '{{"completion_tokens": 1.5}}', worker => 'w')"#
            ),
            "22023",
            "completion_tokens",
        ),
        (
            format!(
                r#"cortex_build_commit({job}, '[]', usage => '{{"model": ""}}', worker => 'w')"#
            ),
            "22023",
            "model",
        ),
        (
            format!("cortex_build_fail({job}, 'x', worker => 'v')"),
            "55000",
            "does not hold",
        ),
        ("cortex_unit_evict(-1)".to_owned(), "42704", "no unit -1"),
        (
            "cortex_unit_evict(NULL)".to_owned(),
            "42704",
            "no unit NULL",
        ),
        (
            "cortex_pool_purge('nowhere')".to_owned(),
            "42704",
            "nowhere",
        ),
        (
            "(SELECT count(*) FROM cortex_drill(-1))".to_owned(),
            "42704",
            "no unit -1",
        ),
        (
            "(SELECT count(*) FROM cortex_drill(NULL))".to_owned(),
            "22004",
            "unit_id",
        ),
    ] {
        let (told, text) = failure(&mut client, &format!("SELECT {sql}"));
        assert_eq!(told, code, "{sql}: {text}");
        assert!(text.contains(says), "{sql}: {text}");
    }
    // A truncated answer is no JSON, and the job is still ours after all of this.
    assert_eq!(
        failure(
            &mut client,
            &format!("SELECT cortex_build_commit({job}, '[\"cut', worker => 'w')")
        )
        .0,
        "22P02"
    );
    assert_eq!(
        commit(&mut client, job, "w", &json!(["It has 12 doors."]), "")["admitted"],
        1
    );
    // Jobs of other kinds are not builds, and builds are not handed out as other jobs.
    put(&mut client, "firm", "Another text of the firm.");
    want(&mut client, "firm", &[]);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex_job_take('w') t WHERE t.kind = 'build'"
        ),
        0
    );
}
