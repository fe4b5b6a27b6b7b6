//! Invariant 2: a change writes nothing of another source, and an update that leaves the bound columns
//! unchanged writes nothing at all. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use std::collections::BTreeMap;

use cortex_extension_tests::{Database, bind, one};
use postgres::Client;

fn notes(client: &mut Client) {
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, body text, other text, stars int DEFAULT 0); \
             INSERT INTO note SELECT g, 'body ' || g, 'other ' || g FROM generate_series(1, 200) g",
        )
        .unwrap();
    bind(client, "note", "text_columns => '{body}'");
}

/// Where every row of every table of ours is and which transaction wrote it, with a name for the row.
fn places(client: &mut Client) -> BTreeMap<String, String> {
    let tables = client
        .query("SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'cortex'::regnamespace AND relkind = 'r'", &[])
        .unwrap();
    let mut places = BTreeMap::new();
    for table in tables {
        let table: String = table.get(0);
        for row in client
            .query(
                &format!("SELECT ctid::text, xmin::text || ':' || xmax::text FROM {table}"),
                &[],
            )
            .unwrap()
        {
            places.insert(format!("{table} {}", row.get::<_, String>(0)), row.get(1));
        }
    }
    places
}

/// What differs between two answers of [`places`].
fn changes(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let gone = before
        .iter()
        .filter(|(place, mark)| after.get(*place) != Some(*mark))
        .map(|(place, _)| format!("- {place}"));
    let new = after
        .keys()
        .filter(|place| !before.contains_key(*place))
        .map(|place| format!("+ {place}"));
    gone.chain(new).collect()
}

#[test]
fn inv_02_an_update_of_other_columns_writes_nothing() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client);
    let before = places(&mut client);
    let sequences = "SELECT string_agg(last_value::text, ',' ORDER BY sequencename) FROM pg_sequences WHERE schemaname = 'cortex'";
    let drawn: String = one(&mut client, sequences);
    for quiet in [
        "UPDATE note SET stars = stars + 1",
        "UPDATE note SET other = other || '.'",
        "UPDATE note SET body = body",
        "UPDATE note SET body = body || '' WHERE id < 10",
        "INSERT INTO note SELECT * FROM note ON CONFLICT (id) DO UPDATE SET stars = 7",
        "INSERT INTO note VALUES (1) ON CONFLICT DO NOTHING",
        "DELETE FROM note WHERE false",
        "MERGE INTO note n USING (SELECT 1 AS id) s ON n.id = s.id WHEN MATCHED THEN UPDATE SET stars = 9",
        "SET session_replication_role = replica; UPDATE note SET stars = 3; RESET session_replication_role",
        "UPDATE note SET id = id WHERE id IN (SELECT id FROM note)",
    ] {
        client.batch_execute(quiet).unwrap();
        assert_eq!(
            changes(&before, &places(&mut client)),
            Vec::<String>::new(),
            "{quiet}"
        );
    }
    assert_eq!(one::<String>(&mut client, sequences), drawn);
}

#[test]
fn inv_02_a_changed_back_row_opens_a_version_only_if_it_was_seen_between() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client);
    // Both updates in one statement list, each with its own trigger: two versions, since each commit state counts.
    client.batch_execute("BEGIN; UPDATE note SET body = 'x' WHERE id = 1; UPDATE note SET body = 'body 1' WHERE id = 1; COMMIT").unwrap();
    let now: i64 = one(
        &mut client,
        "SELECT count(*) FROM cortex.source_version v WHERE source_id = (SELECT id FROM cortex.source WHERE artifact_id = 'row:note:[1]')",
    );
    assert_eq!(now, 3);
    let touched: i64 = one(
        &mut client,
        "SELECT count(DISTINCT source_id) FROM cortex.source_version WHERE opened_by = (SELECT max(id) FROM cortex.change)",
    );
    assert_eq!(touched, 1);
}

#[test]
fn inv_02_a_change_touches_rows_of_its_own_source_alone() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client);
    let version_of = "SELECT v.ctid::text FROM cortex.source_version v JOIN cortex.source s ON s.id = v.source_id WHERE s.artifact_id = 'row:note:[7]'";
    let own: String = one(&mut client, version_of);
    let before = places(&mut client);
    client
        .batch_execute("UPDATE note SET body = 'new' WHERE id = 7")
        .unwrap();
    let after = places(&mut client);
    let mut changed = changes(&before, &after);
    // One version is closed and moves within its table, its successor is new, and so is the change.
    assert_eq!(changed.remove(0), format!("- cortex.source_version {own}"));
    let tables: Vec<_> = changed
        .iter()
        .map(|change| change.rsplit_once(' ').unwrap().0)
        .collect();
    assert_eq!(
        tables,
        [
            "+ cortex.change",
            "+ cortex.source_version",
            "+ cortex.source_version"
        ]
    );
}

#[test]
fn inv_02_a_transaction_has_one_change_row_for_each_namespace() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client);
    bind(&mut client, "note", "namespace => 'second'");
    let before: i64 = one(&mut client, "SELECT count(*) FROM cortex.change");
    client
        .batch_execute(
            "BEGIN; UPDATE note SET body = 'a' WHERE id = 1; SAVEPOINT s; UPDATE note SET body = 'b' WHERE id = 2; ROLLBACK TO s; \
             INSERT INTO note VALUES (900, 'c', 'd'); SAVEPOINT t; DELETE FROM note WHERE id = 3; RELEASE t; TRUNCATE note; COMMIT",
        )
        .unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.change") - before,
        2
    );
    // A change row made inside a savepoint goes with it, and the next change makes another.
    client
        .batch_execute("BEGIN; SAVEPOINT s; INSERT INTO note VALUES (1, 'x'); ROLLBACK TO s; INSERT INTO note VALUES (2, 'y'); COMMIT")
        .unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.change") - before,
        4
    );
    let orphans: i64 = one(
        &mut client,
        "SELECT count(*) FROM cortex.source_version v WHERE NOT EXISTS (SELECT FROM cortex.change c WHERE c.id = v.opened_by) OR v.closed_by IS NOT NULL AND NOT EXISTS (SELECT FROM cortex.change c WHERE c.id = v.closed_by)",
    );
    assert_eq!(orphans, 0);
}
