//! Invariant 1 at the edges of transactions: savepoints, a seal of one's own, two-phase commit, and TRUNCATE at every
//! isolation level. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL, with max_prepared_transactions.

use cortex_extension_tests::{Database, bind, differences, one, state};

/// A backend remembers its change row; savepoints and a seal within the transaction take the row from under it.
#[test]
fn inv_01_every_version_has_the_change_row_of_its_transaction() {
    let (database, mut client) = Database::with_cortex();
    client
        .batch_execute("CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note SELECT g, 'a' FROM generate_series(1, 9) g")
        .unwrap();
    bind(&mut client, "note", "");
    client.batch_execute("SELECT cortex_seal()").unwrap();
    let rows = "SELECT format('row:note:[%s]', id), body FROM note";
    let orphans = "SELECT count(*) FROM cortex.source_version v WHERE \
                   NOT EXISTS (SELECT FROM cortex.change c WHERE c.id = v.opened_by AND v.id > c.after_version) \
                   OR v.closed_by IS NOT NULL AND NOT EXISTS (SELECT FROM cortex.change c WHERE c.id = v.closed_by)";
    for (number, (steps, changes)) in [
        ("SAVEPOINT a; {w}; ROLLBACK TO a; {w}", 1),
        ("{w}; SAVEPOINT a; {w}; ROLLBACK TO a; {w}", 1),
        (
            "SAVEPOINT a; SAVEPOINT b; {w}; RELEASE b; {w}; ROLLBACK TO a; {w}",
            1,
        ),
        (
            "SAVEPOINT a; {w}; SAVEPOINT b; {w}; ROLLBACK TO b; {w}; RELEASE a; {w}",
            1,
        ),
        // What is written after a seal belongs to a later state.
        ("{w}; SELECT cortex_seal(); {w}; {w}", 2),
        (
            "{w}; SAVEPOINT a; SELECT cortex_seal(); {w}; ROLLBACK TO a; {w}",
            1,
        ),
        (
            "{w}; SAVEPOINT a; SELECT cortex_seal(); ROLLBACK TO a; {w}; SELECT cortex_seal(); {w}",
            2,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        for end in ["COMMIT", "prepare"] {
            // A seal may notify, and the server prepares no transaction that has.
            if end == "prepare" && steps.contains("cortex_seal") {
                continue;
            }
            let before: i64 = one(&mut client, "SELECT count(*) FROM cortex.change");
            let steps = steps.replace("{w}", "UPDATE note SET body = body || 'x' WHERE id <= 3");
            client.batch_execute(&format!("BEGIN; {steps}")).unwrap();
            if end == "COMMIT" {
                client.batch_execute("COMMIT").unwrap();
            } else {
                let gid = format!("{}_{number}", database.name);
                client
                    .batch_execute(&format!("PREPARE TRANSACTION '{gid}'"))
                    .unwrap();
                // The next transaction of this session has a change row of its own.
                client
                    .batch_execute("UPDATE note SET body = body || 'y' WHERE id = 9")
                    .unwrap();
                client
                    .batch_execute(&format!("COMMIT PREPARED '{gid}'"))
                    .unwrap();
            }
            let made = one::<i64>(&mut client, "SELECT count(*) FROM cortex.change") - before;
            assert_eq!(made, changes + i64::from(end != "COMMIT"), "{steps}; {end}");
            assert_eq!(one::<i64>(&mut client, orphans), 0, "{steps}; {end}");
            assert_eq!(
                differences(&mut client, rows),
                Vec::<String>::new(),
                "{steps}"
            );
        }
    }
    assert_eq!(state(&mut client, "note").0, "active");
    // The sealer finds each version that is open, by its range of ids.
    client.batch_execute("SELECT cortex_work()").unwrap();
    let without: i64 = one(
        &mut client,
        "SELECT count(*) FROM cortex.source_version v WHERE v.closed_by IS NULL \
            AND NOT EXISTS (SELECT FROM cortex.document d WHERE d.version_id = v.id)",
    );
    assert_eq!(without, 0);
}

#[test]
fn inv_01_truncate_is_for_read_committed_alone() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, body text); \
             CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1); \
             CREATE TABLE child (id int PRIMARY KEY REFERENCES parent, body text); \
             CREATE TABLE part (id int PRIMARY KEY, body text) PARTITION BY RANGE (id); \
             CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id); \
             CREATE TABLE part_low_all PARTITION OF part_low DEFAULT; \
             CREATE TABLE free (id int)",
        )
        .unwrap();
    for table in ["note", "child", "part"] {
        bind(&mut client, table, "");
    }
    let rows = "SELECT format('row:note:[%s]', id), body FROM note \
                UNION ALL SELECT format('row:child:[%s]', id), body FROM child \
                UNION ALL SELECT format('row:part:[%s]', id), body FROM part";
    let fill = "TRUNCATE note, child, part; INSERT INTO note VALUES (1, 'a'); \
                INSERT INTO child VALUES (1, 'a'); INSERT INTO part VALUES (1, 'a'), (2, 'b')";
    for (truncate, named) in [
        ("TRUNCATE note", "note"),
        ("TRUNCATE ONLY note", "note"),
        ("TRUNCATE parent CASCADE", "child"),
        ("TRUNCATE free, note", "note"),
        ("TRUNCATE part", "part"),
        ("TRUNCATE part_low", "part_low"),
        ("TRUNCATE part_low_all", "part_low_all"),
    ] {
        for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
            client
                .batch_execute("INSERT INTO parent VALUES (1) ON CONFLICT DO NOTHING")
                .unwrap();
            client.batch_execute(fill).unwrap();
            client
                .batch_execute(&format!("BEGIN ISOLATION LEVEL {isolation}"))
                .unwrap();
            let error = client.batch_execute(truncate).unwrap_err();
            let said = error.as_db_error().unwrap();
            assert_eq!(said.code().code(), "40001", "{truncate} in {isolation}");
            assert!(said.message().contains(isolation), "{}", said.message());
            assert!(
                said.message().contains(&format!("\"{named}\"")) || truncate == "TRUNCATE part",
                "{truncate}: {}",
                said.message()
            );
            assert!(said.hint().unwrap().contains("READ COMMITTED"));
            client.batch_execute("ROLLBACK").unwrap();
            assert_eq!(differences(&mut client, rows), Vec::<String>::new());
            assert_eq!(one::<i64>(&mut client, "SELECT count(*) FROM part"), 2);
        }
        client
            .batch_execute(&format!("BEGIN; {truncate}; COMMIT"))
            .unwrap();
        assert_eq!(
            differences(&mut client, rows),
            Vec::<String>::new(),
            "{truncate}"
        );
    }
    // An apply worker would come back with it for ever; it is followed as well as in READ COMMITTED.
    client.batch_execute(fill).unwrap();
    client
        .batch_execute(
            "SET session_replication_role = replica; BEGIN ISOLATION LEVEL REPEATABLE READ; \
             TRUNCATE part; COMMIT; RESET session_replication_role",
        )
        .unwrap();
    assert_eq!(one::<i64>(&mut client, "SELECT count(*) FROM part"), 0);
    assert_eq!(differences(&mut client, rows), Vec::<String>::new());
    // A table that is not bound, and one whose binding does nothing, are nobody's business.
    client.batch_execute("SELECT cortex_pause('note')").unwrap();
    for table in ["free", "note"] {
        client
            .batch_execute(&format!(
                "BEGIN ISOLATION LEVEL SERIALIZABLE; TRUNCATE {table}; COMMIT"
            ))
            .unwrap();
    }
    assert_eq!(state(&mut client, "part").0, "active");
}
