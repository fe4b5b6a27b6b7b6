//! Builds that go wrong: two builders, dead ones, sources that change meanwhile, failures, bad input. Needs a server in
//! CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use std::thread;
use std::time::{Duration, Instant};

use cortex_extension_tests::pool::{
    build_all, commit, events, modelled, reworded, served, take, told, want, wanted,
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
            "22023",
            "of space NULL",
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
