//! Events and counters. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use cortex_extension_tests::pool::{events, modelled, take, want};
use cortex_extension_tests::serving::{cortex_work, json, put};
use cortex_extension_tests::{Database, failure, one};
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use serde_json::{Value, json};

fn logged(client: &mut Client, read: i64, is_new: bool, details: &str) {
    client
        .batch_execute(&format!(
            "SELECT cortex._read_logged(1, {read}, {is_new}, {details})"
        ))
        .unwrap_or_else(|error| panic!("{details}: {error:?}"));
}

fn counters(client: &mut Client) -> Value {
    json(client, "cortex_stats()")["counters"].clone()
}

#[test]
fn counters_are_right_under_eight_writers_and_a_sealer() {
    let (database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    let start = Arc::new(Barrier::new(9));
    let stop = Arc::new(AtomicBool::new(false));
    let sealer = {
        let (mut session, start, stop) = (database.connect(), start.clone(), stop.clone());
        thread::spawn(move || {
            start.wait();
            while !stop.load(Ordering::Relaxed) {
                session.batch_execute("SELECT cortex_seal()").unwrap();
            }
        })
    };
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let (mut session, start) = (database.connect(), start.clone());
            thread::spawn(move || {
                start.wait();
                for read in 0..50 {
                    // Several in one transaction, in both orders: nobody waits for anybody.
                    session.batch_execute("BEGIN").unwrap();
                    for part in [n % 2, 1 - n % 2] {
                        let details = [
                            r#"{"decision": "serve", "n_claims": 2, "tokens": 7, "saved": 3}"#,
                            r#"{"decision": "build", "escalated": true, "masked": [{}, {}]}"#,
                        ][part];
                        logged(&mut session, read, true, &format!("'{details}'"));
                    }
                    session
                        .batch_execute(if read % 10 == 9 { "ROLLBACK" } else { "COMMIT" })
                        .unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let right = |counters: &Value| {
        for (name, value) in [
            ("reads", 720),
            ("serves", 360),
            ("builds_asked", 360),
            ("escalations", 360),
            ("claims_served", 720),
            ("tokens_served", 2_520),
            ("tokens_saved", 1_080),
            ("reads_masked", 360),
            ("owners_masked", 720),
        ] {
            assert_eq!(counters[name], value, "{name}: {counters}");
        }
    };
    // Right before the sealer is done, and after.
    right(&counters(&mut client));
    stop.store(true, Ordering::Relaxed);
    sealer.join().unwrap();
    client.batch_execute("SELECT cortex_seal()").unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.event_draft"),
        0
    );
    right(&counters(&mut client));
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.event"),
        720 + 360 + 360
    );
    let stats = json(&mut client, "cortex_stats()");
    assert_eq!(
        (
            &stats["serve_rate"],
            &stats["escalation_rate"],
            &stats["mask_rate"]
        ),
        (&json!(0.5), &json!(0.5), &json!(0.5))
    );
    let shown: i64 = one(
        &mut client,
        "SELECT value FROM cortex.pool_stats WHERE namespace = 'default' AND counter = 'reads'",
    );
    assert_eq!(shown, 720);
}

#[test]
fn events_are_numbered_as_they_were_committed() {
    let (database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    let mut slow = database.connect();
    slow.batch_execute("BEGIN").unwrap();
    logged(&mut slow, 1, true, r#"'{"decision": "serve"}'"#);
    logged(&mut client, 2, true, r#"'{"decision": "serve"}'"#);
    client.batch_execute("SELECT cortex_seal()").unwrap();
    let seen: i64 = one(
        &mut client,
        "SELECT max(event_id) FROM cortex_events() WHERE (detail ->> 'read_id')::int = 2",
    );
    slow.batch_execute("COMMIT").unwrap();
    client.batch_execute("SELECT cortex_seal()").unwrap();
    // Who follows the feed misses nothing of whoever committed late.
    let late: Vec<i64> = client
        .query(
            "SELECT event_id FROM cortex_events(after => $1) WHERE (detail ->> 'read_id')::int = 1",
            &[&seen],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(late.len(), 2);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex_events(max_events => 3)"
        ),
        3
    );
    for (arguments, code) in [
        ("max_events => 0", "22023"),
        ("max_events => 10001", "22023"),
        ("after => NULL", "22004"),
        ("'nowhere'", "42704"),
    ] {
        assert_eq!(
            failure(
                &mut client,
                &format!("SELECT * FROM cortex_events({arguments})")
            )
            .0,
            code,
            "{arguments}"
        );
    }
}

#[test]
fn events_are_capped_by_namespace() {
    let (_database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({"event_cap": 50}));
    client
        .batch_execute("SELECT cortex_create_namespace('other')")
        .unwrap();
    client
        .batch_execute("SELECT cortex._report(2, 'unit_built', '{}')")
        .unwrap();
    for round in 0..4 {
        for n in 0..60 {
            client
                .batch_execute(&format!(
                    "SELECT cortex._report(1, 'unit_built', '{{\"n\": {}}}')",
                    round * 60 + n
                ))
                .unwrap();
        }
        let told: Vec<i64> = events(&mut client)
            .iter()
            .map(|(_, detail)| detail["n"].as_i64().unwrap())
            .collect();
        let last = round * 60 + 60;
        assert_eq!(told, (last - 50..last).collect::<Vec<_>>());
    }
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_events('other')"),
        1
    );
    client.batch_execute(r#"SELECT cortex_pool_set('default', '{"event_cap": 0}'); SELECT cortex._report(1, 'unit_built', '{}')"#).unwrap();
    assert_eq!(events(&mut client), []);
}

#[test]
fn only_the_sealer_notifies() {
    let (database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    let mut listener = database.connect();
    listener.batch_execute("LISTEN cortex_event").unwrap();
    let mut heard = move || {
        let mut payloads = Vec::new();
        let mut notifications = listener.notifications();
        let mut waiting = notifications.timeout_iter(Duration::from_millis(300));
        while let Some(notification) = waiting.next().unwrap() {
            payloads.push((notification.process_id(), notification.payload().to_owned()));
        }
        payloads
    };
    // A transaction that notified could not be prepared.
    put(&mut client, "a", "The valve is red.");
    client
        .batch_execute("BEGIN; SELECT cortex_source_put('a', 'The valve is blue.')")
        .unwrap();
    want(&mut client, "a", &[]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    client
        .batch_execute(&format!(
            "SELECT cortex_build_commit({}, '[]', worker => 'w')",
            taken.job
        ))
        .unwrap();
    logged(&mut client, 1, true, r#"'{"decision": "serve"}'"#);
    for step in [
        "PREPARE TRANSACTION 'users_own'",
        "COMMIT PREPARED 'users_own'",
    ] {
        client.batch_execute(step).unwrap();
    }
    assert_eq!(heard(), []);
    let mut sealer = database.connect();
    let pid: i32 = one(&mut sealer, "SELECT pg_backend_pid()");
    sealer.batch_execute("SELECT cortex_seal()").unwrap();
    let last: i64 = one(&mut client, "SELECT max(id) FROM cortex.event");
    assert_eq!(heard(), [(pid, last.to_string())]);
    sealer.batch_execute("SELECT cortex_seal()").unwrap();
    assert_eq!(heard(), []);
}

#[test]
fn changes_of_sources_are_told_by_the_sealer() {
    let (_database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    client
        .batch_execute("CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note SELECT g, 'The valve of row ' || g FROM generate_series(1, 9) g; SELECT cortex_bind('note')")
        .unwrap();
    cortex_work(&mut client);
    assert_eq!(events(&mut client), [], "what is new has not changed");
    client
        .batch_execute("BEGIN; UPDATE note SET body = body || ' moves.' WHERE id < 4; DELETE FROM note WHERE id > 7; COMMIT")
        .unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.event_draft"),
        0,
        "the user's transaction writes none"
    );
    cortex_work(&mut client);
    put(&mut client, "a", "The valve is red.");
    put(&mut client, "a", "The valve is blue.");
    let told = events(&mut client);
    let told: Vec<(&str, Value)> = told
        .iter()
        .map(|(kind, detail)| {
            (
                kind.as_str(),
                json!([detail["closed"], detail["deleted"], detail["units"]]),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("source_changed", json!([5, 2, 5])),
            ("source_changed", json!([1, 0, 1]))
        ]
    );
    let counters = counters(&mut client);
    assert_eq!(
        (
            &counters["sources_changed"],
            &counters["sources_deleted"],
            &counters["units_invalidated"]
        ),
        (&json!(4), &json!(2), &json!(6))
    );
    let artifacts: i64 = one(
        &mut client,
        "SELECT count(*) FROM cortex.event WHERE detail::text LIKE '%note%' OR detail::text LIKE '%valve%'",
    );
    assert_eq!(artifacts, 0, "events name no row");
}

#[test]
fn a_read_counts_once_with_what_it_did() {
    let (_database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    let full = json!({
        "decision": "REUSE", "coverage": 0.71, "gate": 0.5, "n_claims": 4, "n_sources": 2, "tokens": 90, "budget_tokens": 100,
        "candidates_raw": 30, "candidates_unique": 20, "reranked": true, "rerank_failed": "column \"secret\" says no", "rerank_ms": 12.5,
        "reuse": true, "needs_retrieval": true, "masked": [{"unit_id": 5, "artifact_id": "row:secret:[1]"}, {"unit_id": "x"}],
        "escalated": true, "floor_chunks": 3, "saved": {"m": 40, "n": 2}, "later": {"unknown": "keys are passed over"}
    });
    logged(&mut client, 7, true, &format!("'{full}'"));
    logged(&mut client, 7, false, &format!("'{full}'"));
    let told = events(&mut client);
    assert_eq!(
        told.iter()
            .map(|(kind, _)| kind.as_str())
            .collect::<Vec<_>>(),
        [
            "pool_gate",
            "pool_served",
            "pool_masked_stale",
            "rerank_failed"
        ]
    );
    assert_eq!(
        told[0].1,
        json!({"read_id": 7, "coverage": 0.71, "gate": 0.5, "outcome": "reuse"})
    );
    assert_eq!(
        told[1].1,
        json!({"read_id": 7, "coverage": 0.71, "gate": 0.5, "n_claims": 4, "n_sources": 2, "tokens": 90, "budget_tokens": 100,
               "candidates_raw": 30, "candidates_unique": 20, "reranked": true, "rerank_ms": 12.5, "reuse": true})
    );
    assert_eq!(told[2].1, json!({"read_id": 7, "n": 2, "units": [5]}));
    assert_eq!(told[3].1, json!({"read_id": 7, "reason": "error"}));
    let stats = json(&mut client, "cortex_stats()");
    assert_eq!(
        (
            &stats["counters"]["reads"],
            &stats["counters"]["reuses"],
            &stats["counters"]["reranks_failed"]
        ),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(
        stats["models"],
        json!({"m": {"tokens_saved": 40}, "n": {"tokens_saved": 2}})
    );
    // Without details a read still counts.
    for details in ["NULL", "'null'", "'{}'"] {
        logged(&mut client, 8, true, details);
    }
    assert_eq!(counters(&mut client)["reads"], 4);
    for (details, says) in [
        ("[]", "array"),
        (r#"{"tokens": -1}"#, "tokens"),
        (r#"{"tokens": 1.5}"#, "tokens"),
        (r#"{"tokens": "many"}"#, "tokens"),
        (r#"{"n_claims": 1e300}"#, "n_claims"),
        (r#"{"coverage": 2}"#, "coverage"),
        (r#"{"reuse": "yes"}"#, "reuse"),
        (r#"{"masked": {}}"#, "masked"),
        (r#"{"decision": 1}"#, "decision"),
        (r#"{"decision": "a text of a row"}"#, "decision"),
        (r#"{"saved": -4}"#, "saved"),
        (r#"{"saved": {"m": "x"}}"#, "saved"),
        (r#"{"saved": [1]}"#, "saved"),
    ] {
        let (code, text) = failure(
            &mut client,
            &format!("SELECT cortex._read_logged(1, 9, true, '{details}')"),
        );
        assert_eq!(code, "22023", "{details}: {text}");
        assert!(text.contains(says), "{details}: {text}");
    }
    assert_eq!(counters(&mut client)["reads"], 4);
}
