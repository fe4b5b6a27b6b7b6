//! Invariant 7: reads only read. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use std::thread;
use std::time::{Duration, Instant};

use cortex_extension_tests::server::Server;
use cortex_extension_tests::serving::{
    ask, cortex_work, embed, must_verify, put, text_vector, use_space, vector_literal,
};
use cortex_extension_tests::{Database, one};
use postgres::Client;

const DIMS: usize = 8;

/// Rows, texts and vectors, and a trace of a question about them.
fn corpus(client: &mut Client) -> i64 {
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, body text); \
             INSERT INTO note SELECT g, 'The valve of row ' || g || ' is closed.' FROM generate_series(1, 20) g; SELECT cortex_bind('note')",
        )
        .unwrap();
    put(client, "a", "The valve in the manual is open.");
    cortex_work(client);
    use_space(client, "m", DIMS);
    embed(client);
    client.batch_execute("SELECT cortex_seal()").unwrap();
    ask(client, "valve", "").id
}

/// Every function that only reads, called with everything it takes.
fn reads(trace: i64) -> Vec<String> {
    let vector = vector_literal(&text_vector("valve", DIMS));
    vec![
        "SELECT count(*) FROM cortex_search('valve')".to_owned(),
        format!("SELECT count(*) FROM cortex_search('valve', '{vector}', mode => 'vector')"),
        format!(
            "SELECT count(*) FROM cortex_search('valve', '{vector}', k => 1000, mode => 'hybrid')"
        ),
        "SELECT count(*) FROM cortex_read('valve', budget_tokens => 300)".to_owned(),
        format!("SELECT count(*) FROM cortex_read('valve', '{vector}')"),
        format!("SELECT cortex_verify({trace})"),
        format!("SELECT cortex_verify({trace}, 'valve')"),
        format!("SELECT cortex_verify(cortex_trace({trace}))"),
        format!("SELECT cortex_verify({trace}, 'valve', exhaustive => true)"),
        "SELECT * FROM cortex_verify_all()".to_owned(),
        "SELECT * FROM cortex_verify_all('default', now() - interval '1 day')".to_owned(),
        format!("SELECT cortex_drift({trace})"),
        format!("SELECT cortex_explain({trace})"),
        format!("SELECT cortex_explain(cortex_trace({trace}))"),
        format!(
            "SELECT cortex_dossier({trace}), cortex_dossier({trace}, 'markdown'), cortex_dossier({trace}, 'html')"
        ),
        format!("SELECT cortex_trace_evidence({trace})"),
        "SELECT cortex_has_source('a')".to_owned(),
        "SELECT cortex_health()".to_owned(),
        "SELECT * FROM cortex.health".to_owned(),
        "SELECT * FROM cortex.namespaces".to_owned(),
        "SELECT * FROM cortex.bindings".to_owned(),
        "SELECT * FROM cortex.claims".to_owned(),
        "SELECT * FROM cortex.stale".to_owned(),
        "SELECT * FROM cortex.jobs".to_owned(),
        "SELECT * FROM cortex.traces".to_owned(),
        "SELECT * FROM cortex.asks".to_owned(),
        "SELECT * FROM cortex.units".to_owned(),
        "SELECT * FROM cortex.pool_stats".to_owned(),
        "SELECT * FROM cortex_events()".to_owned(),
        "SELECT cortex_stats()".to_owned(),
        "SELECT count(*) FROM cortex_drill((SELECT min(unit_id) FROM cortex.units))".to_owned(),
        "SELECT cortex_version()".to_owned(),
    ]
}

#[test]
fn inv_07_reads_take_no_transaction_id_and_no_row_lock() {
    let (database, mut client) = Database::with_cortex();
    let trace = corpus(&mut client);
    // Every row locked by another session: a read that locked one would wait.
    let mut other = database.connect();
    other
        .batch_execute("BEGIN; SELECT * FROM note FOR UPDATE")
        .unwrap();
    for table in [
        "namespace",
        "source",
        "source_version",
        "chunk",
        "claim",
        "document",
        "trace",
        "change",
        "space",
        "binding",
        "emb_1",
    ] {
        other
            .batch_execute(&format!("SELECT * FROM cortex.{table} FOR UPDATE"))
            .unwrap();
    }
    client.batch_execute("SET lock_timeout = '200ms'").unwrap();
    for read in reads(trace) {
        client.batch_execute("BEGIN").unwrap();
        client
            .batch_execute(&read)
            .unwrap_or_else(|error| panic!("{read}: {error:?}"));
        let assigned: Option<String> = client
            .query_one("SELECT pg_current_xact_id_if_assigned()::text", &[])
            .unwrap()
            .get(0);
        assert_eq!(assigned, None, "{read}");
        let locks: Vec<String> = client
            .query(
                "SELECT DISTINCT mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype <> 'virtualxid' AND mode <> 'AccessShareLock'",
                &[],
            )
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert_eq!(locks, Vec::<String>::new(), "{read}");
        client.batch_execute("COMMIT").unwrap();
    }
}

#[test]
fn inv_07_reads_run_in_read_only_transactions_of_every_level() {
    let (_database, mut client) = Database::with_cortex();
    let trace = corpus(&mut client);
    for level in [
        "READ COMMITTED READ ONLY",
        "REPEATABLE READ READ ONLY",
        "SERIALIZABLE READ ONLY",
        "SERIALIZABLE READ ONLY DEFERRABLE",
    ] {
        client
            .batch_execute(&format!("BEGIN ISOLATION LEVEL {level}"))
            .unwrap();
        for read in reads(trace) {
            client
                .batch_execute(&read)
                .unwrap_or_else(|error| panic!("{level}: {read}: {error:?}"));
        }
        client.batch_execute("COMMIT").unwrap();
    }
    // What writes says so, and writes nothing.
    let traces: i64 = one(&mut client, "SELECT count(*) FROM cortex.trace");
    for write in [
        "SELECT * FROM cortex_ask('another valve')",
        "SELECT cortex_read_log((SELECT receipt FROM cortex_read('valve')))",
        "SELECT cortex_seal()",
        "SELECT cortex_source_put('b', 'x')",
    ] {
        client.batch_execute("BEGIN READ ONLY").unwrap();
        let error = client.batch_execute(write).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "25006", "{write}: {error:?}");
        client.batch_execute("ROLLBACK").unwrap();
    }
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.trace"),
        traces
    );
}

/// While one session is inside a read, held up by a policy of its own table, another changes all that the read
/// looks at. The read must show the state from before, whole.
fn read_with_a_writer_in_between(read: &str, before: &str, wrote: &str) {
    let (database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE slow (id int PRIMARY KEY, body text); INSERT INTO slow VALUES (1, 'The slow valve waits.'); \
             CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note SELECT g, 'The old valve of row ' || g || '.' FROM generate_series(1, 20) g; \
             CREATE FUNCTION waits(n int) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_lock_shared(99); PERFORM pg_advisory_unlock_shared(99); RETURN true; END'; \
             ALTER TABLE slow ENABLE ROW LEVEL SECURITY; CREATE POLICY waits ON slow USING (waits(id)); \
             SELECT cortex_bind('slow'); SELECT cortex_bind('note')",
        )
        .unwrap();
    cortex_work(&mut client);
    let role = cortex_extension_tests::serving::Role::new(&database, "reader", "");
    client
        .batch_execute(&format!("SELECT cortex_grant('default', '{0}'); GRANT SELECT ON slow, note TO {0}; GRANT CREATE ON SCHEMA public TO {0}", role.name))
        .unwrap();
    let mut reader = role.login(&database);
    reader
        .batch_execute(&format!("CREATE TABLE scratch (n int); BEGIN; {wrote}"))
        .unwrap();
    let first: String = one(&mut reader, before);
    client.batch_execute("SELECT pg_advisory_lock(99)").unwrap();
    let reading = thread::spawn({
        let read = read.to_owned();
        move || {
            let shown: String = one(&mut reader, &read);
            (reader, shown)
        }
    });
    let waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 99 AND NOT granted)";
    let started = Instant::now();
    while !one::<bool>(&mut client, waiting) {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "the read never reached the policy"
        );
        thread::sleep(Duration::from_millis(10));
    }
    client
        .batch_execute(
            "UPDATE note SET body = 'The new valve.' WHERE id <= 10; DELETE FROM note WHERE id > 10; \
             INSERT INTO slow VALUES (2, 'The slow valve is new.'); SELECT cortex_work(); SELECT cortex_source_put('new', 'The new valve.'); \
             SELECT pg_advisory_unlock(99)",
        )
        .unwrap();
    let (mut reader, shown) = reading.join().unwrap();
    assert_eq!(shown, first, "one snapshot from end to end");
    assert!(
        shown.contains("old valve") && !shown.contains("new"),
        "{shown}"
    );
    // The next statement of the same transaction sees the new state, whole as well.
    let after: String = one(&mut reader, read);
    assert!(
        after.contains("new valve") && !after.contains("old valve"),
        "{after}"
    );
}

const SEARCH: &str = "SELECT string_agg(body || ' ' || receipt, E'\\n' ORDER BY rank) FROM cortex_search('valve', k => 1000)";
const READ: &str =
    "SELECT payload || receipt || claims FROM cortex_read('valve', budget_tokens => 10000)";

#[test]
fn inv_07_a_search_sees_one_snapshot() {
    read_with_a_writer_in_between(SEARCH, SEARCH, "SELECT 1");
}

#[test]
fn inv_07_a_search_sees_one_snapshot_in_a_transaction_that_wrote() {
    read_with_a_writer_in_between(SEARCH, SEARCH, "INSERT INTO scratch VALUES (1)");
}

#[test]
fn inv_07_a_read_sees_one_snapshot() {
    read_with_a_writer_in_between(READ, READ, "SELECT 1");
}

#[test]
fn inv_07_a_read_sees_one_snapshot_in_a_transaction_that_wrote() {
    read_with_a_writer_in_between(READ, READ, "INSERT INTO scratch VALUES (1)");
}

#[test]
fn inv_07_reads_run_on_a_hot_standby() {
    let (database, mut client) = Database::with_cortex();
    let trace = corpus(&mut client);
    let level: String = one(&mut client, "SELECT current_setting('wal_level')");
    assert_ne!(level, "minimal", "the test server must allow standbys");
    let standby = Server::new(&database, "standby");
    standby.base_backup(&database);
    standby.start();
    let mut replica = standby.connect(&database.name);
    let caught_up = |client: &mut Client, replica: &mut Client| {
        let target: String = one(client, "SELECT pg_current_wal_flush_lsn()::text");
        let started = Instant::now();
        while !one::<bool>(
            replica,
            &format!("SELECT pg_last_wal_replay_lsn() >= '{target}'"),
        ) {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "the standby does not catch up"
            );
            thread::sleep(Duration::from_millis(20));
        }
    };
    caught_up(&mut client, &mut replica);
    assert!(one::<bool>(&mut replica, "SELECT pg_is_in_recovery()"));
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        replica
            .batch_execute(&format!("BEGIN ISOLATION LEVEL {level}"))
            .unwrap();
        for read in reads(trace) {
            replica
                .batch_execute(&read)
                .unwrap_or_else(|error| panic!("{level}: {read}: {error:?}"));
        }
        replica.batch_execute("COMMIT").unwrap();
    }
    // The same bytes as on the primary, and the same verdict.
    for read in [
        SEARCH,
        READ,
        &format!("SELECT cortex_verify({trace})::text"),
        "SELECT cortex_trace(1)",
        "SELECT cortex_explain(1)",
        "SELECT cortex_dossier(1, 'html')",
        "SELECT cortex_trace_evidence(1)",
        "SELECT string_agg(v::text, ',' ORDER BY v.trace_id) FROM cortex_verify_all() v",
    ] {
        assert_eq!(
            one::<String>(&mut replica, read),
            one::<String>(&mut client, read),
            "{read}"
        );
    }
    assert!(one::<bool>(
        &mut replica,
        "SELECT (cortex_health() ->> 'recovery')::boolean"
    ));
    // A change on the primary arrives with its invalidation.
    client
        .batch_execute("UPDATE note SET body = 'Replaced.' WHERE id = 3; SELECT cortex_work()")
        .unwrap();
    caught_up(&mut client, &mut replica);
    assert!(!one::<String>(&mut replica, SEARCH).contains("row 3 "));
    assert_eq!(
        one::<String>(&mut replica, SEARCH),
        one::<String>(&mut client, SEARCH)
    );
    let error = replica
        .query("SELECT * FROM cortex_ask('valve')", &[])
        .unwrap_err();
    assert_eq!(error.code().unwrap().code(), "25006", "{error:?}");
    // A base backup that goes on by itself is a new cluster with the same evidence.
    let before: String = one(&mut client, &format!("SELECT cortex_trace({trace})"));
    assert!(one::<bool>(&mut replica, "SELECT pg_promote()"));
    assert_eq!(
        one::<String>(&mut replica, &format!("SELECT cortex_trace({trace})")),
        before
    );
    must_verify(&mut replica, trace, "L4");
    let asked = ask(&mut replica, "valve", "");
    must_verify(&mut replica, asked.id, "L4");
}
