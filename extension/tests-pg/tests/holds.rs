//! Pausing, unbinding and faults: while a hold is open, nothing of a binding is current. Needs a server in
//! CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use cortex_extension_tests::{Database, bind, differences, failure, one, state, work};
use postgres::Client;

fn notes(client: &mut Client) {
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, title text, body text, stars int); \
             INSERT INTO note SELECT g, 'title ' || g, 'body ' || g, 0 FROM generate_series(1, 30) g",
        )
        .unwrap();
}

const NOTE_ROWS: &str = "SELECT format('row:note:[%s]', id), body, title FROM note";

#[test]
fn a_paused_binding_is_held_until_it_is_resumed() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client);
    let name = bind(&mut client, "note", "title_column => 'title'");
    client.batch_execute("SELECT cortex_pause('note')").unwrap();
    assert_eq!(state(&mut client, &name).1.as_deref(), Some("paused"));
    client.batch_execute("UPDATE note SET body = 'x' WHERE id < 5; DELETE FROM note WHERE id = 6; INSERT INTO note VALUES (99, 't', 'b', 0)").unwrap();
    assert_ne!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
    assert_eq!(
        failure(&mut client, "SELECT cortex_reconcile('note')").0,
        "55000"
    );
    client
        .batch_execute("SELECT cortex_resume('note')")
        .unwrap();
    assert_eq!(state(&mut client, &name).0, "active");
    assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
}

#[test]
fn a_session_that_knows_the_binding_notices_every_pause_and_its_end() {
    let (database, mut client) = Database::with_cortex();
    notes(&mut client);
    bind(&mut client, "note", "title_column => 'title'");
    let mut writer = database.connect();
    let mut number = 0;
    let mut write = |writer: &mut Client| {
        number += 1;
        writer
            .batch_execute(&format!("UPDATE note SET body = 'n {number}' WHERE id < 3"))
            .unwrap();
    };
    let none = Vec::<String>::new();
    for _ in 0..2 {
        write(&mut writer);
        assert_eq!(differences(&mut client, NOTE_ROWS), none);
        client.batch_execute("SELECT cortex_pause('note')").unwrap();
        write(&mut writer);
        assert_ne!(differences(&mut client, NOTE_ROWS), none);
        client
            .batch_execute("SELECT cortex_resume('note')")
            .unwrap();
    }
    // A pause that is rolled back leaves the binding's row as it was.
    writer
        .batch_execute("BEGIN; SAVEPOINT s; SELECT cortex_pause('note')")
        .unwrap();
    write(&mut writer);
    writer.batch_execute("ROLLBACK TO s").unwrap();
    write(&mut writer);
    writer.batch_execute("COMMIT").unwrap();
    assert_eq!(differences(&mut client, NOTE_ROWS), none);
    // One that begins and ends within a transaction, around writes of its own.
    writer
        .batch_execute("BEGIN; SELECT cortex_pause('note')")
        .unwrap();
    write(&mut writer);
    writer
        .batch_execute("SELECT cortex_resume('note')")
        .unwrap();
    write(&mut writer);
    writer.batch_execute("COMMIT").unwrap();
    assert_eq!(differences(&mut client, NOTE_ROWS), none);
}

#[test]
fn a_resume_waits_for_writers_that_saw_the_pause() {
    let (database, mut client) = Database::with_cortex();
    notes(&mut client);
    bind(&mut client, "note", "title_column => 'title'");
    client
        .batch_execute("SELECT cortex_pause('note'); SET lock_timeout = '100ms'")
        .unwrap();
    let mut writer = database.connect();
    writer
        .batch_execute("BEGIN; UPDATE note SET body = 'unseen' WHERE id = 1")
        .unwrap();
    assert_eq!(
        failure(&mut client, "SELECT cortex_resume('note')").0,
        "55P03"
    );
    writer.batch_execute("COMMIT").unwrap();
    client
        .batch_execute("SELECT cortex_resume('note')")
        .unwrap();
    assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
}

#[test]
fn an_unbound_table_is_free_and_can_be_bound_again() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client);
    let name = bind(&mut client, "note", "title_column => 'title'");
    let kept: i64 = one(
        &mut client,
        "SELECT id FROM cortex.source_version v WHERE v.source_id = (SELECT id FROM cortex.source WHERE artifact_id = 'row:note:[9]')",
    );
    client
        .batch_execute("SELECT cortex_unbind('note')")
        .unwrap();
    assert_eq!(state(&mut client, &name).1.as_deref(), Some("unbound"));
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'note'::regclass"
        ),
        0
    );
    client.batch_execute("UPDATE note SET body = 'x' WHERE id < 5; DELETE FROM note WHERE id = 6; INSERT INTO note VALUES (99, 't', 'b', 0)").unwrap();
    assert_eq!(
        failure(&mut client, "SELECT cortex_pause('note')").0,
        "55000"
    );
    assert_eq!(
        failure(&mut client, "SELECT cortex_bind('note', name => 'other')").0,
        "42710"
    );
    client
        .batch_execute("SELECT cortex_bind('note', title_column => 'title')")
        .unwrap();
    assert_eq!(state(&mut client, &name).0, "held");
    work(&mut client);
    assert_eq!(state(&mut client, &name).0, "active");
    assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
    // A row that did not change kept its version, and with it all that was derived.
    assert_eq!(
        one::<i64>(
            &mut client,
            &format!(
                "SELECT count(*) FROM cortex.source_version WHERE id = {kept} AND closed_by IS NULL"
            )
        ),
        1
    );
    // Other columns, another key: nothing of the old shape stays current.
    client.batch_execute("SELECT cortex_unbind('note'); CREATE UNIQUE INDEX ON note (title); UPDATE note SET title = id; ALTER TABLE note ALTER title SET NOT NULL").unwrap();
    client
        .batch_execute(
            "SELECT cortex_bind('note', key_columns => '{title}', text_columns => '{body}')",
        )
        .unwrap();
    work(&mut client);
    assert_eq!(
        differences(
            &mut client,
            "SELECT format('row:note:[\"%s\"]', title), body FROM note"
        ),
        Vec::<String>::new()
    );
}

#[test]
fn a_fault_of_ours_closes_the_binding_and_never_fails_the_write() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client);
    let name = bind(&mut client, "note", "title_column => 'title'");
    client
        .batch_execute(
            "ALTER TABLE cortex.source_version ADD CONSTRAINT broken CHECK (false) NOT VALID",
        )
        .unwrap();
    client.batch_execute("INSERT INTO note VALUES (50, 't', 'b', 0); UPDATE note SET body = 'x' WHERE id = 1; DELETE FROM note WHERE id = 50").unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM note WHERE body = 'x'"),
        1
    );
    let (held, reason, detail) = state(&mut client, &name);
    assert_eq!((held.as_str(), reason.as_deref()), ("held", Some("fault")));
    assert!(detail.unwrap().contains("broken"));
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.hold"),
        1,
        "one hold until it is released"
    );
    client.batch_execute("ALTER TABLE cortex.source_version DROP CONSTRAINT broken; SELECT cortex_reconcile('note')").unwrap();
    assert_eq!(state(&mut client, &name).0, "active");
    assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
    // A worker does the same by itself.
    client.batch_execute("ALTER TABLE cortex.source_version ADD CONSTRAINT broken CHECK (false) NOT VALID; UPDATE note SET body = 'w' WHERE id = 2").unwrap();
    client
        .batch_execute("ALTER TABLE cortex.source_version DROP CONSTRAINT broken")
        .unwrap();
    work(&mut client);
    assert_eq!(state(&mut client, &name).0, "active");
    assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
    // In the replica role as well, where an error would stop logical replication.
    client.batch_execute("ALTER TABLE cortex.source_version ADD CONSTRAINT broken CHECK (false) NOT VALID; SET session_replication_role = replica").unwrap();
    client
        .batch_execute("UPDATE note SET body = 'y' WHERE id = 1")
        .unwrap();
    assert_eq!(state(&mut client, &name).1.as_deref(), Some("fault"));
}

#[test]
fn if_even_the_hold_cannot_be_recorded_the_write_fails() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client);
    bind(&mut client, "note", "title_column => 'title'");
    client
        .batch_execute(
            "ALTER TABLE cortex.source_version ADD CONSTRAINT broken CHECK (false) NOT VALID; \
             ALTER TABLE cortex.hold ADD CONSTRAINT broken CHECK (false) NOT VALID",
        )
        .unwrap();
    failure(&mut client, "UPDATE note SET body = 'x' WHERE id = 1");
    client.batch_execute("UPDATE note SET stars = 1").unwrap();
    assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
}
