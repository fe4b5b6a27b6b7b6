//! Invariant 3: derivers commit only what still holds, and nothing rests on their doing so. Needs a server in
//! CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cortex_extension_tests::serving::{
    Random, cortex_work, embed, put, text_vector, use_space, vector_literal,
};
use cortex_extension_tests::{Database, failure, one};
use postgres::Client;

fn notes(client: &mut Client, rows: i32) {
    client
        .batch_execute(&format!(
            "CREATE TABLE note (id int PRIMARY KEY, body text NOT NULL); \
             INSERT INTO note SELECT g, 'The valve of row ' || g || ' has text 0.' FROM generate_series(1, {rows}) g; \
             SELECT cortex_bind('note', text_columns => '{{body}}')"
        ))
        .unwrap();
}

/// A worker of its own session: seals, takes what is there, does it. Ends when told to.
fn worker(database: &Database, name: String, stop: Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let mut session = database.connect();
    thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            session.batch_execute("SELECT cortex_seal()").unwrap();
            let Some(job) = session
                .query_opt("SELECT job_id, kind FROM cortex_job_take($1)", &[&name])
                .unwrap()
            else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            let (job, kind): (i64, String) = (job.get(0), job.get(1));
            if kind == "embed" {
                loop {
                    let texts = session
                        .query(
                            "SELECT item_id, body FROM cortex_embed_take($1, $2, 16)",
                            &[&job, &name],
                        )
                        .unwrap();
                    let ids: Vec<i64> = texts.iter().map(|row| row.get(0)).collect();
                    let vectors: Vec<String> = texts
                        .iter()
                        .map(|row| vector_literal(&text_vector(row.get(1), 4)))
                        .collect();
                    let done: bool = session
                        .query_one(
                            "SELECT (cortex_embed_commit($1, $2, $3, $4::text[]::vector[]) ->> 'done')::boolean",
                            &[&job, &name, &ids, &vectors],
                        )
                        .unwrap()
                        .get(0);
                    if done {
                        break;
                    }
                }
                continue;
            }
            loop {
                let done: bool = session
                    .query_one(
                        "SELECT (cortex_job_run($1, $2, 10) ->> 'done')::boolean",
                        &[&job, &name],
                    )
                    .unwrap_or_else(|error| panic!("{kind}: {error:?}"))
                    .get(0);
                if done {
                    break;
                }
            }
        }
    })
}

/// What is served, compared with the live rows in the same snapshot: texts and claims of other versions.
const STALE: &str = "
    SELECT coalesce(string_agg(s.artifact_id || ': ' || s.body || ' / ' || coalesce(n.body, 'gone'), E'\\n'), '')
      FROM (SELECT artifact_id, body FROM cortex_search('valve row text', k => 1000)
            UNION ALL
            SELECT c ->> 'artifact_id', c ->> 'body' FROM cortex_read('valve row text', budget_tokens => 100000) r, jsonb_array_elements(r.claims) c
            UNION ALL
            SELECT artifact_id, body FROM cortex_search('valve row text', '[1,0,0,0]', k => 1000)) s
      LEFT JOIN note n ON n.id = substring(s.artifact_id FROM '\\[(-?\\d+)\\]')::int
     WHERE n.body IS DISTINCT FROM s.body";

#[test]
fn inv_03_no_outdated_claim_is_served_while_workers_and_writers_race() {
    let (database, mut client) = Database::with_cortex();
    notes(&mut client, 30);
    use_space(&mut client, "m", 4);
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..3)
        .map(|n| worker(&database, format!("w{n}"), stop.clone()))
        .collect();
    let writers: Vec<_> = (0..3)
        .map(|n| {
            let mut session = database.connect();
            let stop = stop.clone();
            thread::spawn(move || {
                let mut random = Random::new(n);
                let mut edits = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let (id, text) = (1 + random.below(30), random.below(1000));
                    let sql = match random.below(6) {
                        0 => format!("DELETE FROM note WHERE id = {id}"),
                        1 => format!("INSERT INTO note VALUES ({id}, 'The valve of row {id} has text {text}.') ON CONFLICT (id) DO UPDATE SET body = excluded.body"),
                        2 => format!("BEGIN; UPDATE note SET body = 'The valve of row {id} has text {text}.' WHERE id = {id}; SAVEPOINT s; DELETE FROM note WHERE id = {id}; ROLLBACK TO s; COMMIT"),
                        _ => format!("UPDATE note SET body = 'The valve of row {id} has text {text}.' WHERE id = {id}"),
                    };
                    match session.batch_execute(&sql) {
                        Ok(()) => edits += 1,
                        Err(error) => {
                            let code = error.code().unwrap().code().to_owned();
                            assert!(["40001", "40P01"].contains(&code.as_str()), "{sql}: {error:?}");
                            session.batch_execute("ROLLBACK").unwrap();
                        }
                    }
                    thread::sleep(Duration::from_millis(random.below(8) as u64));
                }
                edits
            })
        })
        .collect();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let mut session = database.connect();
            let (stop, served) = (stop.clone(), served.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(
                        one::<String>(&mut session, STALE),
                        "",
                        "served and not the live row"
                    );
                    served.fetch_add(
                        one::<i64>(
                            &mut session,
                            "SELECT count(*) FROM cortex_search('valve row text', k => 1000)",
                        ) as u64,
                        Ordering::Relaxed,
                    );
                }
            })
        })
        .collect();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(8)
        && readers.iter().all(|reader| !reader.is_finished())
    {
        thread::sleep(Duration::from_millis(50));
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.join().unwrap();
    }
    let edits: u64 = writers
        .into_iter()
        .map(|writer| writer.join().unwrap())
        .sum();
    for worker in workers {
        worker.join().unwrap();
    }
    assert!(
        edits > 20 && served.load(Ordering::Relaxed) > 20,
        "{edits} edits, {} served",
        served.load(Ordering::Relaxed)
    );
    // At rest, every row is served as it is, once.
    client.batch_execute("UPDATE cortex.job SET state = 'ready', worker = NULL, lease_until = NULL, run_after = now()").unwrap();
    cortex_work(&mut client);
    embed(&mut client);
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.job"),
        0
    );
    let rows: i64 = one(&mut client, "SELECT count(*) FROM note");
    for sql in [
        "SELECT count(*) FROM cortex_search('valve row text', k => 1000)",
        "SELECT count(*) FROM cortex_search('x', '[1,0,0,0]', k => 1000, mode => 'vector')",
    ] {
        assert_eq!(one::<i64>(&mut client, sql), rows, "{sql}");
    }
    assert_eq!(one::<String>(&mut client, STALE), "");
    whole(&mut client);
}

/// Nothing half-done: what a document says is there, nothing is there without a document, nothing twice.
fn whole(client: &mut Client) {
    for (what, sql) in [
        (
            "documents whose chunks or claims are not as counted",
            "SELECT count(*) FROM cortex.document d \
              WHERE d.chunk_count <> (SELECT count(*) FROM cortex.chunk c WHERE c.version_id = d.version_id) \
                 OR d.claim_count <> (SELECT count(*) FROM cortex.claim c WHERE c.version_ids[1] = d.version_id)",
        ),
        (
            "chunks without a document",
            "SELECT count(*) FROM cortex.chunk c WHERE NOT EXISTS (SELECT FROM cortex.document d WHERE d.version_id = c.version_id)",
        ),
        (
            "claims without a document",
            "SELECT count(*) FROM cortex.claim c WHERE NOT EXISTS (SELECT FROM cortex.document d WHERE d.version_id = c.version_ids[1])",
        ),
        (
            "documents without a version",
            "SELECT count(*) FROM cortex.document d WHERE NOT EXISTS (SELECT FROM cortex.source_version v WHERE v.id = d.version_id)",
        ),
        (
            "units without a claim",
            "SELECT count(*) FROM cortex.unit u WHERE NOT EXISTS (SELECT FROM cortex.claim c WHERE c.unit_id = u.id)",
        ),
        (
            "postings without a document",
            "SELECT count(*) FROM cortex.posting p WHERE NOT EXISTS (SELECT FROM cortex.document d WHERE d.version_id = p.version_id)",
        ),
        (
            "terms twice",
            "SELECT count(*) FROM (SELECT FROM cortex.posting GROUP BY version_id, term, added_by HAVING count(*) > 1) t",
        ),
        (
            "sources with two current versions",
            "SELECT count(*) FROM (SELECT FROM cortex.source_version WHERE closed_by IS NULL GROUP BY source_id HAVING count(*) > 1) t",
        ),
        (
            "changes named and not there",
            "SELECT count(*) FROM (SELECT opened_by AS id FROM cortex.source_version UNION SELECT closed_by FROM cortex.source_version WHERE closed_by IS NOT NULL UNION SELECT added_by FROM cortex.document) c WHERE NOT EXISTS (SELECT FROM cortex.change x WHERE x.id = c.id)",
        ),
    ] {
        assert_eq!(one::<i64>(client, sql), 0, "{what}");
    }
}

#[test]
fn inv_03_a_source_changed_between_take_and_commit() {
    let (database, mut client) = Database::with_cortex();
    notes(&mut client, 3);
    cortex_work(&mut client);
    client.batch_execute("UPDATE note SET body = 'The valve of row 1 has text 1.' WHERE id = 1; SELECT cortex_seal()").unwrap();
    let mut worker = database.connect();
    let job: i64 = one(
        &mut worker,
        "SELECT job_id FROM cortex_job_take('w', '{chunk}')",
    );
    // The row changes after the job was taken, before it ran.
    client
        .batch_execute("UPDATE note SET body = 'The valve of row 1 has text 2.' WHERE id = 1")
        .unwrap();
    let told: String = one(
        &mut worker,
        &format!("SELECT cortex_job_run({job}, 'w')::text"),
    );
    assert!(told.contains("true"), "{told}");
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.claim WHERE body LIKE '%text 1%'"
        ),
        0,
        "not derived at all"
    );
    // While it runs: the worker has read the row and not committed when it changes again.
    client.batch_execute("SELECT cortex_seal()").unwrap();
    let job: i64 = one(
        &mut worker,
        "SELECT job_id FROM cortex_job_take('w', '{chunk}')",
    );
    worker
        .batch_execute(&format!("BEGIN; SELECT cortex_job_run({job}, 'w')"))
        .unwrap();
    client.batch_execute("SET lock_timeout = '2s'; UPDATE note SET body = 'The valve of row 1 has text 3.' WHERE id = 1").expect("a writer does not wait for a worker");
    worker.batch_execute("COMMIT").unwrap();
    // Born stale: stored, named by the view, never served.
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.claim WHERE body LIKE '%text 2%'"
        ),
        1
    );
    assert!(!one::<bool>(
        &mut client,
        "SELECT fresh FROM cortex.claims WHERE body LIKE '%text 2%'"
    ));
    assert_eq!(
        one::<String>(
            &mut client,
            "SELECT reason FROM cortex.stale WHERE body LIKE '%text 2%'"
        ),
        "updated"
    );
    let shown: i64 = one(
        &mut client,
        "SELECT count(*) FROM cortex_search('valve row text', k => 100) WHERE artifact_id = 'row:note:[1]'",
    );
    assert_eq!(shown, 0);
    cortex_work(&mut client);
    assert_eq!(
        one::<String>(
            &mut client,
            "SELECT body FROM cortex_search('valve row text', k => 100) WHERE artifact_id = 'row:note:[1]'"
        ),
        "The valve of row 1 has text 3."
    );
    whole(&mut client);
}

#[test]
fn inv_03_the_same_job_run_twice_and_by_two() {
    let (database, mut client) = Database::with_cortex();
    notes(&mut client, 12);
    cortex_work(&mut client);
    let made = |client: &mut Client| {
        one::<i64>(
            client,
            "SELECT (SELECT count(*) FROM cortex.chunk) + (SELECT count(*) FROM cortex.claim) + (SELECT count(*) FROM cortex.posting)",
        )
    };
    let first = made(&mut client);
    // A job that was done and is queued again, as after a crash between commit and answer.
    client
        .batch_execute("INSERT INTO cortex.job (namespace_id, kind, payload) SELECT 1, 'chunk', jsonb_build_object('change', opened_by, 'from', min(id), 'to', max(id)) FROM cortex.source_version GROUP BY opened_by; \
                        INSERT INTO cortex.job (namespace_id, kind, payload) SELECT 1, 'load', '{\"binding\": 1}'")
        .unwrap();
    cortex_work(&mut client);
    assert_eq!(made(&mut client), first);
    // Two sessions chunk the same versions at once, each in a transaction: one waits and finds it done.
    client
        .batch_execute("UPDATE note SET body = body || ' More.'; SELECT cortex_seal()")
        .unwrap();
    let (low, high, change): (i64, i64, i64) = {
        let row = client.query_one("SELECT min(id), max(id), max(opened_by) FROM cortex.source_version WHERE closed_by IS NULL", &[]).unwrap();
        (row.get(0), row.get(1), row.get(2))
    };
    let (mut one_worker, mut other) = (database.connect(), database.connect());
    let batch = format!("SELECT cortex._chunk_batch(1, {change}, {low}, {high}, 100)");
    one_worker
        .batch_execute(&format!("BEGIN; {batch}"))
        .unwrap();
    let second = thread::spawn(move || other.batch_execute(&batch).unwrap());
    thread::sleep(Duration::from_millis(200));
    one_worker.batch_execute("COMMIT").unwrap();
    second.join().unwrap();
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex_search('valve more', k => 100)"
        ),
        12
    );
    whole(&mut client);
}

#[test]
fn inv_03_a_job_is_held_by_one_and_lost_by_a_lease() {
    let (database, mut client) = Database::with_cortex();
    notes(&mut client, 50);
    let mut other = database.connect();
    client.batch_execute("BEGIN").unwrap();
    let job: i64 = one(
        &mut client,
        "SELECT job_id FROM cortex_job_take('a', '{load}')",
    );
    // Another taker skips the row that is being taken.
    assert!(
        other
            .query("SELECT * FROM cortex_job_take('b', '{load}')", &[])
            .unwrap()
            .is_empty()
    );
    client.batch_execute("COMMIT").unwrap();
    assert!(
        other
            .query("SELECT * FROM cortex_job_take('b', '{load}')", &[])
            .unwrap()
            .is_empty()
    );
    for call in [
        format!("SELECT cortex_job_run({job}, 'b')"),
        format!("SELECT cortex_job_fail({job}, 'b', 'x')"),
        format!("SELECT cortex_embed_take({job}, 'b')"),
        format!("SELECT cortex_embed_commit({job}, 'b', '{{}}', '{{}}')"),
    ] {
        let (code, text) = failure(&mut other, &call);
        assert!(
            code == "55000" && text.contains("does not hold job"),
            "{call}: {code} {text}"
        );
    }
    assert!(!one::<bool>(
        &mut other,
        &format!("SELECT cortex_job_heartbeat({job}, 'b')")
    ));
    assert!(one::<bool>(
        &mut other,
        &format!("SELECT cortex_job_heartbeat({job}, 'a')")
    ));
    // The lease runs out in the middle: half is done and stays, the holder is told, the next goes on.
    client
        .batch_execute(&format!("SELECT cortex_job_run({job}, 'a', 20)"))
        .unwrap();
    client
        .batch_execute("UPDATE cortex.job SET lease_until = now() - interval '1 hour'")
        .unwrap();
    assert!(
        other
            .query("SELECT * FROM cortex_job_take('b', '{load}')", &[])
            .unwrap()
            .is_empty(),
        "first it waits"
    );
    let (code, _) = failure(
        &mut client,
        &format!("SELECT cortex_job_run({job}, 'a', 20)"),
    );
    assert_eq!(code, "55000");
    client
        .batch_execute("UPDATE cortex.job SET run_after = now()")
        .unwrap();
    let row = other
        .query_one(
            "SELECT job_id, attempts FROM cortex_job_take('b', '{load}')",
            &[],
        )
        .unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i32>(1)), (job, 2));
    other
        .batch_execute(&format!("SELECT cortex_job_run({job}, 'b', 1000)"))
        .unwrap();
    cortex_work(&mut client);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex_search('valve row text', k => 100)"
        ),
        50
    );
    whole(&mut client);
}

#[test]
fn inv_03_a_killed_worker_leaves_nothing_half_done() {
    let (database, mut client) = Database::with_cortex();
    notes(&mut client, 200);
    client.batch_execute("SELECT cortex_work(1)").unwrap();
    let mut doomed = database.connect();
    let pid: i32 = one(&mut doomed, "SELECT pg_backend_pid()");
    let job: i64 = one(
        &mut doomed,
        "SELECT job_id FROM cortex_job_take('doomed', '{chunk}')",
    );
    doomed
        .batch_execute(&format!("SELECT cortex_job_run({job}, 'doomed', 30)"))
        .unwrap();
    doomed
        .batch_execute(&format!(
            "BEGIN; SELECT cortex_job_run({job}, 'doomed', 30)"
        ))
        .unwrap();
    assert!(one::<bool>(
        &mut client,
        &format!("SELECT pg_terminate_backend({pid}, 10000)")
    ));
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.document"),
        30
    );
    whole(&mut client);
    client.batch_execute("UPDATE cortex.job SET lease_until = now() - interval '1 hour' WHERE state = 'running'; SELECT * FROM cortex_job_take('x', '{none}'); UPDATE cortex.job SET run_after = now()").unwrap();
    cortex_work(&mut client);
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.document"),
        200
    );
    put(&mut client, "a", "The valve.");
    whole(&mut client);
}

#[test]
fn inv_03_what_was_invalidated_stays_so_after_all_workers_have_run() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client, 5);
    put(&mut client, "a", "The valve of row text is in the manual.");
    cortex_work(&mut client);
    client.batch_execute("DELETE FROM note WHERE id <= 3; SELECT cortex_source_deleted('a'); SELECT cortex_work()").unwrap();
    use_space(&mut client, "m", 4);
    embed(&mut client);
    for _ in 0..3 {
        client
            .batch_execute("SELECT cortex_reconcile('note'); SELECT cortex_work()")
            .unwrap();
        embed(&mut client);
    }
    let found: Vec<String> = client
        .query(
            "SELECT artifact_id FROM cortex_search('valve row text', k => 100) ORDER BY 1",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(found, ["row:note:[4]", "row:note:[5]"]);
}
