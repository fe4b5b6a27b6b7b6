//! A bound table that a logical replication subscription writes to. Needs a server in CORTEX_TEST_PG18_URL or
//! CORTEX_TEST_PG16_URL, with wal_level = logical.

use std::time::{Duration, Instant};

use cortex_extension_tests::{Database, bind, differences, one, state, work};
use postgres::Client;

/// Waits until a condition on the subscriber holds.
fn until(client: &mut Client, condition: &str) {
    let start = Instant::now();
    while !one::<bool>(client, condition) {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "never came true: {condition}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn inv_01_the_apply_worker_is_followed() {
    const TABLES: &str = "
        CREATE TABLE note (id int PRIMARY KEY, body text, stars int);
        CREATE TABLE part (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
        CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (0) TO (10);
        CREATE TABLE part_high PARTITION OF part FOR VALUES FROM (10) TO (100);";
    let publisher = Database::empty();
    let mut source = publisher.connect();
    source
        .batch_execute(&format!(
            "{TABLES} INSERT INTO note SELECT g, 'body ' || g, 0 FROM generate_series(1, 9) g; INSERT INTO part SELECT g, 'body ' || g FROM generate_series(5, 15) g; \
             CREATE PUBLICATION everything FOR TABLE note, part WITH (publish_via_partition_root = false)"
        ))
        .unwrap();
    let slot = format!("{}_slot", publisher.name);
    source
        .execute(
            "SELECT pg_create_logical_replication_slot($1, 'pgoutput')",
            &[&slot],
        )
        .unwrap();
    let (database, mut client) = Database::with_cortex();
    client.batch_execute(TABLES).unwrap();
    bind(&mut client, "note", "");
    bind(&mut client, "part", "");
    let socket: String = one(
        &mut client,
        "SELECT split_part(current_setting('unix_socket_directories'), ',', 1)",
    );
    let port: String = one(&mut client, "SHOW port");
    client
        .batch_execute(&format!(
            "CREATE SUBSCRIPTION {slot} CONNECTION 'host={socket} port={port} user=postgres dbname={}' PUBLICATION everything \
             WITH (create_slot = false, slot_name = '{slot}', streaming = off)",
            publisher.name
        ))
        .unwrap();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let rows = "SELECT format('row:note:[%s]', id), body FROM note UNION ALL SELECT format('row:part:[%s]', id), body FROM part";
        until(
            &mut client,
            "SELECT count(*) = 3 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel",
        );
        assert_eq!(one::<i64>(&mut client, "SELECT count(*) FROM note"), 9);
        assert_eq!(
            differences(&mut client, rows),
            Vec::<String>::new(),
            "initial copy"
        );
        let versions: i64 = one(&mut client, "SELECT count(*) FROM cortex.source_version");
        assert_eq!(versions, 20, "the initial copy opens each version once");
        source
            .batch_execute("UPDATE note SET stars = 5; INSERT INTO note VALUES (90, 'mark', 0)")
            .unwrap();
        until(
            &mut client,
            "SELECT EXISTS (SELECT FROM note WHERE id = 90)",
        );
        assert_eq!(
            one::<i64>(&mut client, "SELECT count(*) FROM cortex.source_version"),
            versions + 1,
            "an unbound column writes nothing"
        );
        source
            .batch_execute(
                "BEGIN; UPDATE note SET body = 'applied ' || id WHERE id < 4; UPDATE note SET id = 50 WHERE id = 5; DELETE FROM note WHERE id = 6; COMMIT; \
                 UPDATE part SET body = 'applied' WHERE id IN (6, 12); UPDATE part SET id = 30 WHERE id = 7; DELETE FROM part WHERE id = 13; INSERT INTO note VALUES (91, 'mark', 0)",
            )
            .unwrap();
        until(
            &mut client,
            "SELECT EXISTS (SELECT FROM note WHERE id = 91)",
        );
        assert_eq!(
            differences(&mut client, rows),
            Vec::<String>::new(),
            "applied changes"
        );
        source
            .batch_execute(
                "TRUNCATE part_low; TRUNCATE note; INSERT INTO note VALUES (92, 'mark', 0)",
            )
            .unwrap();
        until(
            &mut client,
            "SELECT EXISTS (SELECT FROM note WHERE id = 92)",
        );
        assert_eq!(
            differences(&mut client, rows),
            Vec::<String>::new(),
            "TRUNCATE"
        );
        // A fault of ours must not stop the subscription.
        client
            .batch_execute(
                "ALTER TABLE cortex.source_version ADD CONSTRAINT broken CHECK (false) NOT VALID",
            )
            .unwrap();
        source
            .batch_execute("UPDATE note SET body = 'x'; INSERT INTO note VALUES (93, 'mark', 0)")
            .unwrap();
        until(
            &mut client,
            "SELECT EXISTS (SELECT FROM note WHERE id = 93)",
        );
        assert_eq!(state(&mut client, "note").1.as_deref(), Some("fault"));
        client
            .batch_execute("ALTER TABLE cortex.source_version DROP CONSTRAINT broken")
            .unwrap();
        one::<String>(&mut client, "SELECT cortex_reconcile('note')::text");
        work(&mut client);
        assert_eq!(
            differences(&mut client, rows),
            Vec::<String>::new(),
            "reconciled"
        );
    }));
    let mut admin = database.connect();
    admin
        .batch_execute(&format!("ALTER SUBSCRIPTION {slot} DISABLE"))
        .unwrap();
    admin
        .batch_execute(&format!("ALTER SUBSCRIPTION {slot} SET (slot_name = NONE)"))
        .unwrap();
    admin
        .batch_execute(&format!("DROP SUBSCRIPTION {slot}"))
        .unwrap();
    let start = Instant::now();
    while let Err(error) = source.execute("SELECT pg_drop_replication_slot($1)", &[&slot]) {
        assert!(start.elapsed() < Duration::from_secs(30), "{error:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}
