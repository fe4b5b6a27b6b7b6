//! What keeps the pool within bounds: joined jobs, kept questions, attempts, statistics, what is looked at of many
//! changed sources. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use std::thread;
use std::time::Duration;

use cortex_extension_tests::pool::{
    build_all, chunks, commit, long_text, modelled, reworded, take, told, want, wanted,
};
use cortex_extension_tests::serving::{
    cortex_work, embed_with, json, put, use_space, vector_literal,
};
use cortex_extension_tests::{Database, one};
use postgres::Client;
use serde_json::{Value, json};

fn at(cosine: f32) -> Vec<f32> {
    vec![cosine, (1.0 - cosine * cosine).sqrt(), 0.0, 0.0]
}

#[test]
fn small_embed_jobs_are_joined_and_slices_of_a_namespace_are_not() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute("SELECT cortex_create_namespace('default')")
        .unwrap();
    use_space(&mut client, "m", 4);
    // Three slices, then forty jobs of 300, and one a little larger.
    client
        .batch_execute(
            "INSERT INTO cortex.job (namespace_id, kind, payload, total) \
             SELECT 1, 'embed', jsonb_build_object('space', 1, 'from', n * 2000, 'to', n * 2000 + 1999), \
                    CASE WHEN n < 3 THEN 2000 WHEN n < 43 THEN 300 ELSE 301 END FROM generate_series(0, 43) n ORDER BY n",
        )
        .unwrap();
    while client
        .query_opt("SELECT job_id FROM cortex_job_take('w', '{embed}')", &[])
        .unwrap()
        .is_some()
    {}
    let rows = client.query("SELECT total FROM cortex.job", &[]).unwrap();
    let mut totals: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    totals.sort_unstable();
    // Six of 300 at a time, and four are left.
    assert_eq!(
        totals,
        [
            301, 1200, 1800, 1800, 1800, 1800, 1800, 1800, 2000, 2000, 2000
        ]
    );
    // No id is lost, and none is in two jobs.
    let ids: i64 = one(
        &mut client,
        "SELECT sum(upper(r) - lower(r))::int8 FROM cortex.job j, unnest(cortex._embed_ids(j.payload)) r",
    );
    assert_eq!(ids, 44 * 2000);
}

fn named(client: &mut Client, question: &str, arguments: &str) -> Value {
    json(
        client,
        &format!("SELECT masked FROM cortex_read('{question}', {arguments})"),
    )
}

#[test]
fn of_two_thousand_changed_rows_those_that_the_question_is_about_are_named() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, body text);
             INSERT INTO note SELECT n, format('The keeper of tower%s is called keeper%s.', n, n) FROM generate_series(1, 2000) n;
             SELECT cortex_bind('note', text_columns => '{body}')",
        )
        .unwrap();
    cortex_work(&mut client);
    client
        .batch_execute("UPDATE note SET body = 'Nobody keeps tower' || id")
        .unwrap();
    for (seal, about) in [(false, 1900), (true, 1900), (true, 7), (true, 1000)] {
        if seal {
            client.batch_execute("SELECT cortex_seal()").unwrap();
        }
        let masked = named(
            &mut client,
            &format!("Who is the keeper of tower{about}?"),
            "NULL",
        );
        assert_eq!(
            masked[0]["artifact_id"],
            json!(format!("row:note:[{about}]")),
            "{masked}"
        );
        assert!(
            masked
                .as_array()
                .unwrap()
                .iter()
                .all(|entry| entry.get("more").is_none()),
            "all were ranked: {masked}"
        );
    }
    // More than are ranked: it is said how many are beyond.
    client
        .batch_execute(
            "WITH made AS (INSERT INTO cortex.source (namespace_id, artifact_id, hash_key) \
                 SELECT 1, 'made/' || n, sha256('k') FROM generate_series(1, 9000) n RETURNING id), \
             versions AS (INSERT INTO cortex.source_version (source_id, content_hash, opened_by) \
                 SELECT id, sha256('h'), (SELECT max(id) FROM cortex.change) FROM made RETURNING id) \
             INSERT INTO cortex.job (namespace_id, kind, payload, total) \
             SELECT 1, 'chunk', jsonb_build_object('change', (SELECT max(id) FROM cortex.change), 'from', min(id), 'to', max(id)), count(*) \
               FROM versions",
        )
        .unwrap();
    let masked = named(&mut client, "Who is the keeper of tower1900?", "NULL");
    let last = masked.as_array().unwrap().last().unwrap();
    assert_eq!(last, &json!({"more": 1000, "reason": "changed"}));
}

#[test]
fn of_many_changed_sources_the_nearest_former_claim_is_named() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, body text);
             INSERT INTO note SELECT n, format('Entry %s stands alone.', n) FROM generate_series(1, 400) n;
             SELECT cortex_bind('note', text_columns => '{body}')",
        )
        .unwrap();
    use_space(&mut client, "m", 4);
    cortex_work(&mut client);
    embed_with(&mut client, |body, _| {
        at(if body.contains("Entry 390 ") {
            0.9
        } else {
            0.45
        })
    });
    client
        .batch_execute("UPDATE note SET body = 'Gone ' || id")
        .unwrap();
    let question = format!("'{}', mode => 'vector'", vector_literal(&at(1.0)));
    let masked = named(&mut client, "x", &question);
    assert_eq!(masked[0]["artifact_id"], "row:note:[390]", "{masked}");
}

#[test]
fn a_reader_cannot_fill_the_questions_or_make_foreign_ones_count_as_built() {
    let (_database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({"coverage_floor": 0.5}));
    use_space(&mut client, "m", 4);
    put(&mut client, "a", "The pump is blue all over.");
    cortex_work(&mut client);
    embed_with(&mut client, |_, _| at(1.0));
    let of_a = chunks(&mut client, "a");
    let wanted = wanted(&mut client, "a", &of_a);
    let ask = |client: &mut Client, cosine: f32| {
        let vector = vector_literal(&at(cosine));
        let answer = json(
            client,
            &format!("cortex_build_want('{wanted}', query_embedding => '{vector}')"),
        );
        let kept: i64 = one(client, "SELECT count(*) FROM cortex.question");
        (answer, kept)
    };
    // Not about the chunk: the build is queued, the question is not kept. Just inside it is.
    assert_eq!(ask(&mut client, 0.49), (told("queued"), 0));
    assert_eq!(ask(&mut client, 0.51), (told("already"), 1));
    build_all(&mut client, reworded);
    // Nothing is left to build: whatever is asked leads to none.
    assert_eq!(ask(&mut client, 0.9), (told("already"), 1));
    // The cap holds at the insert.
    client
        .batch_execute(
            "INSERT INTO cortex.question (namespace_id, space_id, embedding, version_ids, chunk_ids, digest) \
             SELECT 1, 1, '[0,0,1,0]', '{1}', '{1}', sha256(n::text::bytea) FROM generate_series(1, 2300) n; \
             SELECT cortex_unit_evict(unit_id) FROM cortex.units WHERE purpose = 'model'",
        )
        .unwrap();
    assert_eq!(ask(&mut client, 0.8), (told("queued"), 2000));
}

#[test]
fn a_dead_build_does_not_wait_twice_and_what_is_given_back_was_no_attempt() {
    let (_database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    put(&mut client, "firm", "Ada Stein founded the firm in 1999.");
    cortex_work(&mut client);
    want(&mut client, "firm", &[]);
    let due = |client: &mut Client| {
        client
            .batch_execute("UPDATE cortex.job SET run_after = clock_timestamp()")
            .unwrap();
        take(client, "w", "60 seconds").unwrap().job
    };
    for _ in 0..9 {
        let job = due(&mut client);
        let state: String = one(
            &mut client,
            &format!("SELECT cortex_job_fail({job}, 'w', 'stopped', 2147483647)"),
        );
        assert_eq!(state, "ready");
    }
    for failure in 1..=8 {
        let job = due(&mut client);
        let state: String = one(
            &mut client,
            &format!("SELECT cortex_build_fail({job}, 'prose', '{{}}', 'w')"),
        );
        assert_eq!(
            state,
            if failure < 8 { "ready" } else { "dead" },
            "failure {failure}"
        );
    }
    let past: bool = one(
        &mut client,
        "SELECT run_after <= clock_timestamp() FROM cortex.job WHERE state = 'dead'",
    );
    assert!(past, "the hour counts from the death");
}

#[test]
fn statistics_do_not_go_through_what_other_namespaces_hold() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "SELECT cortex_create_namespace('default'), cortex_create_namespace('other')",
        )
        .unwrap();
    put(&mut client, "pump", "The pump is blue. It is new.");
    cortex_work(&mut client);
    client
        .batch_execute(
            "INSERT INTO cortex.unit (namespace_id, source_id, version_id, purpose, builder, added_by) \
             SELECT 2, n, n, 'extract', 'b', 1 FROM generate_series(1000, 100999) n; \
             INSERT INTO cortex.claim (namespace_id, unit_id, ordinal, body, leaf, version_ids, chunk_ids, start_bytes, end_bytes, added_by) \
             SELECT 2, u.id, 0, 'x', '', ARRAY[u.version_id], '{1}', '{0}', '{1}', 1 FROM cortex.unit u WHERE u.namespace_id = 2; \
             ANALYZE cortex.unit; ANALYZE cortex.claim",
        )
        .unwrap();
    client.batch_execute("BEGIN").unwrap();
    let stats = json(&mut client, "cortex_stats()");
    assert_eq!(
        (&stats["units"]["fresh"], &stats["claims_total"]),
        (&json!(1), &json!(2)),
        "{stats}"
    );
    let read: i64 = one(
        &mut client,
        "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int8 FROM pg_stat_xact_all_tables \
          WHERE relid IN ('cortex.unit'::regclass, 'cortex.claim'::regclass)",
    );
    assert!(read < 100, "{read} rows");
    assert_eq!(
        (&stats["gate"], &stats["noise_ceiling"]),
        (&Value::Null, &Value::Null),
        "without a space there is none"
    );
}

#[test]
fn statistics_tell_the_gate_and_the_units_of_a_serve() {
    let (_database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    use_space(&mut client, "m", 4);
    put(&mut client, "pump", "The pump is painted blue.");
    put(&mut client, "valve", "The valve is painted white.");
    cortex_work(&mut client);
    client
        .batch_execute(
            "SELECT cortex._read_logged(1, 1, true, r.details) FROM cortex_read('painted pump valve') r; \
             SELECT cortex._read_logged(1, 2, true, '{\"probed\": true, \"contained\": true}')",
        )
        .unwrap();
    let stats = json(&mut client, "cortex_stats()");
    assert_eq!(
        (
            &stats["gate"],
            &stats["noise_ceiling"],
            &stats["avg_units_per_serve"]
        ),
        (&json!(0.4), &json!(0), &json!(2.0)),
        "{stats}"
    );
    assert_eq!(stats["counters"]["admission_reuses"], 1, "{stats}");
    assert!(
        stats["counters"]["probe_reads"].as_i64() >= Some(1),
        "{stats}"
    );
    // Measuring leaves the caller's transaction as it was.
    let after: String = one(
        &mut client,
        "SELECT set_config('hnsw.iterative_scan', 'strict_order', false)",
    );
    assert_eq!(after, "strict_order");
    client
        .batch_execute("BEGIN; SELECT cortex_gate_measure('default')")
        .unwrap();
    let after: String = one(&mut client, "SELECT current_setting('hnsw.iterative_scan')");
    assert_eq!(after, "strict_order");
}

#[test]
fn no_claim_gets_into_a_unit_that_is_being_evicted() {
    let (database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    put(
        &mut client,
        "firm",
        &long_text(&["The door is green.", "The boat is fast."]),
    );
    cortex_work(&mut client);
    let all = chunks(&mut client, "firm");
    want(&mut client, "firm", &all[..1]);
    build_all(&mut client, |_| vec!["The door is green.".into()]);
    let first: i64 = one(
        &mut client,
        "SELECT unit_id FROM cortex.units WHERE purpose = 'model'",
    );
    want(&mut client, "firm", &all[1..]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    let mut evicting = database.connect();
    evicting
        .batch_execute(&format!("BEGIN; SELECT cortex_unit_evict({first})"))
        .unwrap();
    let mut builder = database.connect();
    let handed_in = thread::spawn(move || {
        let claims = json!(["The boat is fast."]);
        commit(&mut builder, taken.job, "w", &claims, "")
    });
    thread::sleep(Duration::from_millis(500));
    evicting.batch_execute("COMMIT").unwrap();
    let answer = handed_in.join().unwrap();
    assert_eq!(answer["admitted"], 1, "{answer}");
    assert_ne!(answer["unit_id"], json!(first), "{answer}");
    let fresh: i64 = one(
        &mut client,
        "SELECT count(*) FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id \
          WHERE u.purpose = 'model' AND u.evicted_by IS NULL",
    );
    assert_eq!(fresh, 1);
}
