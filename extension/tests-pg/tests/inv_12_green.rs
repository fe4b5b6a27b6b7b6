//! Invariant 12: never green while losing data. What is stuck, dead, held, too long or pending is visible, and counts
//! are those of SQL. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use cortex_extension_tests::serving::{Role, cortex_work, embed, json, put, use_space};
use cortex_extension_tests::{Database, failure, one};
use postgres::Client;

fn notes(client: &mut Client, rows: i32) {
    client
        .batch_execute(&format!(
            "CREATE TABLE note (id int PRIMARY KEY, body text); \
             INSERT INTO note SELECT g, 'The valve of row ' || g || ' is closed.' FROM generate_series(1, {rows}) g; SELECT cortex_bind('note')"
        ))
        .unwrap();
}

#[test]
fn inv_12_the_counts_shown_are_counts() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client, 40);
    put(&mut client, "a", "The valve is red. It is round.");
    cortex_work(&mut client);
    use_space(&mut client, "m", 4);
    let check = |client: &mut Client, moment: &str| {
        client.batch_execute("SELECT cortex_seal()").unwrap();
        let row = client
            .query_one(
                "SELECT n.sources, n.versions_current, n.chunks, n.claims, n.unsealed, n.seq, \
                        (SELECT count(*) FROM cortex.source), \
                        (SELECT count(*) FROM cortex.source_version WHERE closed_by IS NULL), \
                        (SELECT count(*) FROM cortex.chunk c JOIN cortex.source_version v ON v.id = c.version_id AND v.closed_by IS NULL), \
                        (SELECT count(*) FROM cortex.claim c JOIN cortex.source_version v ON v.id = c.version_ids[1] AND v.closed_by IS NULL), \
                        (SELECT count(*) FROM cortex.change WHERE seq IS NULL), (SELECT max(seq) FROM cortex.change) \
                   FROM cortex.namespaces n WHERE n.namespace = 'default'",
                &[],
            )
            .unwrap();
        let (shown, counted): (Vec<i64>, Vec<i64>) = (
            (0..6).map(|n| row.get(n)).collect(),
            (6..12).map(|n| row.get(n)).collect(),
        );
        assert_eq!(shown, counted, "{moment}");
        let row = client
            .query_one(
                "SELECT b.rows_known, b.versions_pending, (SELECT count(*) FROM note), \
                        (SELECT count(*) FROM cortex.source_version v JOIN cortex.source s ON s.id = v.source_id AND s.binding_id IS NOT NULL \
                          WHERE v.closed_by IS NULL AND NOT EXISTS (SELECT FROM cortex.chunk c WHERE c.version_id = v.id)) FROM cortex.bindings b",
                &[],
            )
            .unwrap();
        assert_eq!(row.get::<_, i64>(0), row.get::<_, i64>(2), "{moment}: rows");
        assert_eq!(
            row.get::<_, i64>(1),
            row.get::<_, i64>(3),
            "{moment}: pending versions"
        );
        let pending: i64 = one(client, "SELECT pending FROM cortex_read('valve')");
        let jobs: i64 = one(
            client,
            "SELECT coalesce(sum(greatest(coalesce(total, 0) - progress, 1)), 0)::bigint FROM cortex.job WHERE state <> 'dead'",
        );
        assert_eq!(pending, jobs, "{moment}");
        let health = json(client, "cortex_health()");
        assert_eq!(health["unsealed"], 0, "{moment}");
    };
    check(&mut client, "loaded");
    assert_eq!(
        embed(&mut client),
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.emb_1"),
        "the vectors told are the vectors stored"
    );
    check(&mut client, "embedded");
    client.batch_execute("UPDATE note SET body = 'The other valve.' WHERE id <= 7; DELETE FROM note WHERE id > 30; SELECT cortex_source_deleted('a')").unwrap();
    check(&mut client, "changed and not chunked");
    assert_eq!(
        one::<i64>(&mut client, "SELECT pending_chunk FROM cortex.namespaces"),
        7
    );
    cortex_work(&mut client);
    check(&mut client, "worked");
    assert_eq!(
        one::<i64>(&mut client, "SELECT pending_embed FROM cortex.namespaces"),
        14
    );
    embed(&mut client);
    check(&mut client, "embedded again");
    assert_eq!(
        one::<i64>(&mut client, "SELECT pending FROM cortex_read('valve')"),
        0
    );
}

#[test]
fn inv_12_a_job_that_keeps_failing_dies_in_sight() {
    let (_database, mut client) = Database::with_cortex();
    put(&mut client, "a", "The valve is red.");
    client.batch_execute("SELECT cortex_seal()").unwrap();
    use_space(&mut client, "m", 4);
    let mut waits = Vec::new();
    for attempt in 1..=8 {
        let job: i64 = one(
            &mut client,
            "SELECT job_id FROM cortex_job_take('w', '{embed}')",
        );
        let state: String = one(
            &mut client,
            &format!(
                "SELECT cortex_job_fail({job}, 'w', 'the model server said 503, attempt {attempt}')"
            ),
        );
        assert_eq!(state, if attempt == 8 { "dead" } else { "ready" });
        waits.push(one::<f64>(
            &mut client,
            "SELECT extract(epoch FROM run_after - clock_timestamp())::float8 FROM cortex.job",
        ));
        client
            .batch_execute("UPDATE cortex.job SET run_after = now() WHERE state = 'ready'")
            .unwrap();
    }
    assert!(
        waits[..7].windows(2).all(|pair| pair[1] > pair[0] * 1.5),
        "each wait is about twice the one before: {waits:?}"
    );
    assert!(
        client
            .query("SELECT * FROM cortex_job_take('w')", &[])
            .unwrap()
            .is_empty(),
        "a dead job is not taken"
    );
    let row = client
        .query_one("SELECT state, attempts, last_error FROM cortex.jobs", &[])
        .unwrap();
    assert_eq!(
        (row.get::<_, String>(0).as_str(), row.get::<_, i32>(1)),
        ("dead", 8)
    );
    assert!(row.get::<_, String>(2).contains("attempt 8"));
    assert_eq!(
        one::<i64>(&mut client, "SELECT dead_jobs FROM cortex.namespaces"),
        1
    );
    let health = json(&mut client, "cortex_health()");
    assert_eq!(
        (&health["dead_jobs"], &health["jobs"]["embed_dead"]),
        (&1.into(), &1.into()),
        "{health:#}"
    );
    // A worker that vanishes time and again dies as well, with its name.
    put(&mut client, "b", "The pump is blue.");
    for attempt in 1..=9 {
        client.batch_execute("UPDATE cortex.job SET lease_until = now() - interval '1 hour' WHERE state = 'running'; SELECT * FROM cortex_job_take('nobody', '{none}'); UPDATE cortex.job SET run_after = now() WHERE state = 'ready'").unwrap();
        let taken = client
            .query("SELECT * FROM cortex_job_take('lost', '{embed}')", &[])
            .unwrap();
        assert_eq!(taken.len(), usize::from(attempt <= 8), "attempt {attempt}");
    }
    let reason: String = one(
        &mut client,
        "SELECT last_error FROM cortex.jobs WHERE state = 'dead' ORDER BY job_id DESC LIMIT 1",
    );
    assert!(
        reason.contains("lost") && reason.contains("lease"),
        "{reason}"
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT dead_jobs FROM cortex.namespaces"),
        2
    );
    // Unreasonable settings of a failure or a lease are errors, and the job stays as it was.
    put(&mut client, "c", "The tank is full.");
    let job: i64 = one(
        &mut client,
        "SELECT job_id FROM cortex_job_take('w', '{embed}')",
    );
    for call in [
        format!("cortex_job_heartbeat({job}, 'w', NULL)"),
        format!("cortex_job_heartbeat({job}, 'w', '-1 day')"),
        format!("cortex_job_heartbeat({job}, 'w', '1 year')"),
        format!("cortex_job_fail({job}, 'w', 'x', NULL)"),
        format!("cortex_job_fail({job}, 'w', 'x', 0)"),
        "cortex_job_take('w', NULL, '0')".into(),
        "cortex_job_take('')".into(),
        "cortex_job_take(NULL)".into(),
    ] {
        let (code, text) = failure(&mut client, &format!("SELECT {call}"));
        assert_eq!(code, "22023", "{call}: {text}");
    }
    assert!(one::<bool>(
        &mut client,
        "SELECT lease_until > now() FROM cortex.jobs WHERE state = 'running'"
    ));
}

#[test]
fn inv_12_a_held_binding_and_a_vanished_worker_are_seen() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client, 5);
    cortex_work(&mut client);
    client.batch_execute("SELECT cortex_pause('note')").unwrap();
    let row = client
        .query_one("SELECT state, hold_reason FROM cortex.bindings", &[])
        .unwrap();
    assert_eq!(
        (
            row.get::<_, String>(0).as_str(),
            row.get::<_, String>(1).as_str()
        ),
        ("held", "paused")
    );
    assert_eq!(json(&mut client, "cortex_health()")["held_bindings"], 1);
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_search('valve')"),
        0
    );
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.claims WHERE fresh"
        ),
        0
    );
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.stale WHERE reason = 'held: paused'"
        ),
        5
    );
    client
        .batch_execute("SELECT cortex_resume('note'); SELECT cortex_work()")
        .unwrap();
    assert_eq!(json(&mut client, "cortex_health()")["held_bindings"], 0);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.claims WHERE fresh"
        ),
        5
    );
    // Nobody works: changes wait in sight, and what they changed is not served meanwhile.
    client
        .batch_execute("UPDATE note SET body = 'The new valve.'")
        .unwrap();
    let health = json(&mut client, "cortex_health()");
    assert!(
        health["unsealed"].as_i64().unwrap() > 0
            && health["oldest_unsealed_seconds"].as_f64().unwrap() >= 0.0,
        "{health:#}"
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT versions_pending FROM cortex.bindings"),
        5
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_search('valve')"),
        0
    );
}

#[test]
fn inv_12_text_that_is_too_long_is_kept_out_in_sight() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client, 2);
    // 50 MB in a row of the user's: the write goes through, the row stays a source, and it is said why it is not read.
    client.batch_execute("SET statement_timeout = '120s'; INSERT INTO note SELECT 3, string_agg(md5(g::text), ' ') FROM generate_series(1, 1600000) g").unwrap();
    assert!(
        one::<i32>(
            &mut client,
            "SELECT octet_length(body) FROM note WHERE id = 3"
        ) > 50_000_000
    );
    cortex_work(&mut client);
    let note: String = one(
        &mut client,
        "SELECT note FROM cortex.document WHERE note IS NOT NULL",
    );
    assert!(note.contains("over the limit"), "{note}");
    assert_eq!(json(&mut client, "cortex_health()")["not_chunked"], 1);
    let row = client
        .query_one(
            "SELECT rows_known, versions_pending, state FROM cortex.bindings",
            &[],
        )
        .unwrap();
    assert_eq!(
        (
            row.get::<_, i64>(0),
            row.get::<_, i64>(1),
            row.get::<_, String>(2).as_str()
        ),
        (3, 0, "active")
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_search('valve')"),
        2,
        "the others are served"
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.job"),
        0
    );
    // Shortened, it is as any other.
    client
        .batch_execute(
            "UPDATE note SET body = 'The short valve.' WHERE id = 3; SELECT cortex_work()",
        )
        .unwrap();
    assert_eq!(json(&mut client, "cortex_health()")["not_chunked"], 0);
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_search('valve')"),
        3
    );
    // Handed over, it is refused with both sizes, just inside the limit it is taken.
    let limit = 8 << 20;
    for (bytes, fits) in [(limit, true), (limit + 1, false), (50_000_000, false)] {
        let result = client.query("SELECT cortex_source_put('long', repeat('valve ', $1::int / 6) || repeat('x', $1::int % 6))", &[&bytes]);
        match result {
            Ok(_) => assert!(fits, "{bytes}"),
            Err(error) => {
                let error = error.as_db_error().unwrap();
                assert!(
                    !fits
                        && error.code().code() == "54000"
                        && error.message().contains(&bytes.to_string())
                        && error.message().contains(&limit.to_string()),
                    "{error:?}"
                );
            }
        }
    }
    assert!(one::<bool>(&mut client, "SELECT cortex_has_source('long')"));
    // A query that is a document.
    let (code, text) = failure(&mut client, "SELECT cortex_search(repeat('valve ', 20000))");
    assert!(code == "54000" && text.contains("120000"), "{code}: {text}");
}

#[test]
fn inv_12_health_is_a_query_that_runs() {
    let (database, mut client) = Database::with_cortex();
    put(&mut client, "a", "The valve is red.");
    let space = use_space(&mut client, "m", 4);
    assert_eq!(
        json(&mut client, "cortex_health()")["spaces"][0]["answered"],
        0
    );
    embed(&mut client);
    let health = json(&mut client, "cortex_health()");
    assert_eq!(
        (
            &health["spaces"][0]["query"],
            &health["spaces"][0]["answered"]
        ),
        (&"ok".into(), &1.into()),
        "{health:#}"
    );
    // A table of vectors that is gone shows, and does not take the rest of health along.
    client
        .batch_execute(&format!("ALTER TABLE cortex.emb_{space} RENAME TO lost"))
        .unwrap();
    let health = json(&mut client, "cortex_health()");
    let told = health["spaces"][0]["query"].as_str().unwrap();
    assert!(
        told.contains("does not exist") && health["namespaces"] == 1,
        "{health:#}"
    );
    client
        .batch_execute(&format!("ALTER TABLE cortex.lost RENAME TO emb_{space}"))
        .unwrap();
    // A worker may ask for it, a reader may not.
    let (worker, reader) = (
        Role::new(&database, "worker", ""),
        Role::new(&database, "reader", ""),
    );
    client
        .batch_execute(&format!(
            "SELECT cortex_grant_worker('{}'); SELECT cortex_grant('default', '{}')",
            worker.name, reader.name
        ))
        .unwrap();
    assert_eq!(
        json(&mut worker.login(&database), "cortex_health()")["namespaces"],
        1
    );
    assert_eq!(
        failure(&mut reader.login(&database), "SELECT cortex_health()").0,
        "42501"
    );
    // And a worker does all its work with that grant alone.
    let mut session = worker.login(&database);
    notes(&mut client, 3);
    session.batch_execute("SELECT cortex_seal(); SELECT cortex_work(); SELECT cortex_source_put('w', 'A worker''s valve.'); SELECT cortex_source_deleted('w')").unwrap();
    session
        .batch_execute(
            "SELECT cortex_space_register('n', '1', 'n', 3); SELECT cortex_space_use('default', 2)",
        )
        .unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_search('valve')"),
        4
    );
}
