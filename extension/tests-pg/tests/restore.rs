//! Dump and restore of a database with bindings. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL
//! and its programs in CORTEX_TEST_PG18_BIN or CORTEX_TEST_PG16_BIN.

use std::io::Write;
use std::process::{Output, Stdio};

use cortex_extension_tests::pool::{
    build_all, commit, events, modelled, reworded, served, take, want,
};
use cortex_extension_tests::serving::{cortex_work, json, put, use_space};
use cortex_extension_tests::{Database, bind, differences, one, state, work};
use postgres::Client;

const TABLES: &str = "
    CREATE TABLE note (gone int, id bigint PRIMARY KEY, title text, body text, stars int DEFAULT 0);
    ALTER TABLE note DROP COLUMN gone;
    INSERT INTO note SELECT g, 'title ' || g, 'body ' || g FROM generate_series(1, 25) g;
    CREATE TABLE part (id int, kind text, body text, PRIMARY KEY (id, kind)) PARTITION BY RANGE (id);
    CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (0) TO (10) PARTITION BY LIST (kind);
    CREATE TABLE part_low_a PARTITION OF part_low FOR VALUES IN ('a');
    CREATE TABLE part_high PARTITION OF part FOR VALUES FROM (10) TO (20);
    INSERT INTO part SELECT g, 'a', 'body ' || g FROM generate_series(0, 19) g;
    CREATE TABLE past (id int PRIMARY KEY, body text);
    CREATE TABLE dropped (id int PRIMARY KEY, body text);
    INSERT INTO dropped VALUES (1, 'x')";

/// What differs, the two bindings together: contents of `part` have no title.
fn differing(client: &mut Client) -> Vec<String> {
    let note = "SELECT format('row:note:[%s]', id), body, title FROM note";
    let part = "SELECT format('row:part:[%s,%s]', id, to_json(kind)), body FROM part";
    let of = |client: &mut Client, rows: &str, binding: &str| {
        let prefix = format!("row:{binding}:");
        differences(client, rows)
            .into_iter()
            .filter(|text| text.starts_with(&prefix))
            .collect::<Vec<_>>()
    };
    let mut all = of(client, note, "note");
    all.extend(of(client, part, "part"));
    all
}

fn bound() -> (Database, Client) {
    let (database, mut client) = Database::with_cortex();
    client.batch_execute(TABLES).unwrap();
    bind(
        &mut client,
        "note",
        "title_column => 'title', origin => 'the notes'",
    );
    bind(&mut client, "part", "");
    bind(&mut client, "past", "");
    bind(&mut client, "dropped", "");
    client
        .batch_execute(
            "UPDATE note SET body = 'second ' || id WHERE id < 5; DELETE FROM note WHERE id = 6; DELETE FROM part WHERE id = 10; \
             UPDATE part SET id = id + 1 WHERE id = 9; SELECT cortex_unbind('past'); DROP TABLE dropped",
        )
        .unwrap();
    assert_eq!(differing(&mut client), Vec::<String>::new());
    (database, client)
}

fn succeed(output: Output, what: &str) -> Vec<u8> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {errors}");
    assert!(
        !errors.contains("ERROR") && !errors.contains("WARNING") && !errors.contains("cortex"),
        "{what}: {errors}"
    );
    output.stdout
}

fn dump(database: &Database, arguments: &[&str]) -> Vec<u8> {
    succeed(
        database
            .program("pg_dump")
            .args(arguments)
            .output()
            .unwrap(),
        "pg_dump",
    )
}

fn restore(database: &Database, program: &str, arguments: &[&str], dump: &[u8]) {
    let mut running = database
        .program(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = running.stdin.take().unwrap();
    let dump = dump.to_vec();
    let writing = std::thread::spawn(move || input.write_all(&dump));
    succeed(running.wait_with_output().unwrap(), program);
    writing.join().unwrap().unwrap();
}

/// Everything of ours as text, apart from oids and what a restore may renumber.
fn contents(client: &mut Client) -> String {
    let tables = [
        "namespace",
        "source",
        "source_version",
        "hold",
        "change",
        "installation",
    ];
    let parts: Vec<String> = tables
        .iter()
        .map(|table| {
            format!("(SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM cortex.{table} t)")
        })
        .collect();
    let bindings = "(SELECT string_agg(format('%s %s %s %s %s', name, relation, key_columns, text_columns, origin), ',' ORDER BY id) FROM cortex.binding)";
    one(
        client,
        &format!("SELECT concat_ws(' ', {}, {bindings})", parts.join(", ")),
    )
}

/// Bindings of a restored database follow every kind of change, renames included.
fn goes_on(client: &mut Client) {
    assert_eq!(differing(client), Vec::<String>::new());
    for binding in ["note", "part"] {
        let (held, reason, detail) = state(client, binding);
        assert_eq!(held, "active", "{binding}: {reason:?} {detail:?}");
    }
    client
        .batch_execute(
            "INSERT INTO note (id, body) VALUES (1000, 'new'); UPDATE note SET title = 'changed' WHERE id = 1; UPDATE part SET body = 'root'; \
             UPDATE part_high SET body = 'leaf' WHERE id > 15; DELETE FROM part_low WHERE id = 3; \
             SET session_replication_role = replica; UPDATE part SET id = id + 100 WHERE false; UPDATE note SET body = 'replica' WHERE id = 2; \
             UPDATE part_low_a SET body = 'replica leaf' WHERE id = 1; RESET session_replication_role; TRUNCATE part_high",
        )
        .unwrap();
    assert_eq!(differing(client), Vec::<String>::new());
    client
        .batch_execute("ALTER TABLE note RENAME COLUMN body TO words; UPDATE note SET words = 'renamed' WHERE id = 3; ALTER TABLE note RENAME COLUMN words TO body")
        .unwrap();
    assert_eq!(state(client, "note").0, "active");
    client.batch_execute("CREATE TABLE part_more PARTITION OF part FOR VALUES FROM (20) TO (30); INSERT INTO part_more VALUES (20, 'a', 'more')").unwrap();
    assert_eq!(differing(client), Vec::<String>::new());
    client.batch_execute("DROP TABLE part_more").unwrap();
    assert_eq!(state(client, "part").0, "held");
    work(client);
    assert_eq!(differing(client), Vec::<String>::new());
    one::<String>(client, "SELECT cortex_reconcile('note')::text");
    assert_eq!(differing(client), Vec::<String>::new());
}

#[test]
fn a_plain_dump_comes_back_through_psql() {
    let (database, mut client) = bound();
    let before = contents(&mut client);
    let text = dump(&database, &[]);
    let other = Database::empty();
    restore(
        &other,
        "psql",
        &["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"],
        &text,
    );
    let mut client = other.connect();
    assert_eq!(contents(&mut client), before);
    goes_on(&mut client);
}

#[test]
fn a_binary_dump_comes_back_at_once_and_in_parts() {
    let (database, mut client) = bound();
    let before = contents(&mut client);
    let archive = dump(&database, &["--format=custom"]);
    let whole = Database::empty();
    restore(&whole, "pg_restore", &["--exit-on-error"], &archive);
    let mut client = whole.connect();
    assert_eq!(contents(&mut client), before);
    goes_on(&mut client);
    // The first command that a restored database sees drops a partition.
    let dropped = Database::empty();
    restore(&dropped, "pg_restore", &["--exit-on-error"], &archive);
    let mut client = dropped.connect();
    client.batch_execute("DROP TABLE part_high").unwrap();
    assert_eq!(state(&mut client, "part").0, "held");
    work(&mut client);
    assert_eq!(differing(&mut client), Vec::<String>::new());
    let parts = Database::empty();
    for section in ["pre-data", "data", "post-data"] {
        restore(
            &parts,
            "pg_restore",
            &["--exit-on-error", &format!("--section={section}")],
            &archive,
        );
    }
    let mut client = parts.connect();
    assert_eq!(contents(&mut client), before);
    goes_on(&mut client);
}

#[test]
fn a_dump_of_a_restored_database_makes_the_same_triggers() {
    let triggers = |dump: &[u8]| {
        let text = String::from_utf8_lossy(dump);
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| line.contains("TRIGGER cortex_"))
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    let (database, _client) = bound();
    let text = dump(&database, &[]);
    let other = Database::empty();
    restore(
        &other,
        "psql",
        &["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"],
        &text,
    );
    let first = triggers(&text);
    // Five on each table that holds rows, four on each level above; states are lines of their own.
    assert_eq!(
        first
            .iter()
            .filter(|line| line.starts_with("CREATE"))
            .count(),
        3 * 5 + 2 * 4
    );
    assert_eq!(triggers(&dump(&other, &[])), first);
}

#[test]
fn loading_data_with_triggers_disabled_is_noticed() {
    let (database, mut client) = bound();
    let data = dump(
        &database,
        &["--data-only", "--disable-triggers", "--table=public.note"],
    );
    client.batch_execute("DELETE FROM note").unwrap();
    restore(
        &database,
        "psql",
        &["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"],
        &data,
    );
    assert_eq!(
        state(&mut client, "note").1.as_deref(),
        Some("needs_reconcile")
    );
    one::<String>(&mut client, "SELECT cortex_reconcile('note')::text");
    assert_eq!(differing(&mut client), Vec::<String>::new());
}

/// The pool as it is: settings, profiles, events, counters, units and what they cover, questions, jobs.
fn pool(client: &mut Client) -> serde_json::Value {
    json(
        client,
        "(SELECT jsonb_build_array( \
            cortex_stats(), cortex_pool_set('default', '{}'), cortex._profile(1, 'short'), \
            (SELECT jsonb_agg(u ORDER BY unit_id) FROM cortex.units u), \
            (SELECT jsonb_agg(k ORDER BY chunk_id) FROM cortex.unit_chunk k), \
            (SELECT jsonb_agg(a ORDER BY id) FROM cortex.unit_addition a), \
            (SELECT jsonb_agg(q ORDER BY id) FROM cortex.question q), \
            (SELECT jsonb_agg(e ORDER BY id) FROM cortex.event e), \
            (SELECT jsonb_agg(d ORDER BY id) FROM cortex.event_draft d), \
            (SELECT jsonb_agg(j ORDER BY id) FROM cortex.job j)))",
    )
}

#[test]
fn the_pool_comes_back_and_goes_on() {
    let (database, mut client) = Database::with_cortex();
    modelled(
        &mut client,
        serde_json::json!({"gate": 0.4, "event_cap": 4, "synthesis": {"depth": 1}}),
    );
    client
        .batch_execute("SELECT cortex_profile_set('default', 'short', '{\"budget_tokens\": 99}')")
        .unwrap();
    use_space(&mut client, "m", 3);
    for source in ["a", "b", "c"] {
        put(
            &mut client,
            source,
            &format!("The valve of {source} is red."),
        );
        want(&mut client, source, &[]);
    }
    let wanted = cortex_extension_tests::pool::wanted(&mut client, "a", &[]);
    json(
        &mut client,
        &format!("cortex_build_want('{wanted}', 'default', '[1,2,3]')"),
    );
    let taken = take(&mut client, "w", "1 hour").unwrap();
    commit(
        &mut client,
        taken.job,
        "w",
        &serde_json::json!(["A valve is red."]),
        "",
    );
    cortex_work(&mut client);
    let taken = take(&mut client, "w", "1 hour").unwrap();
    let before = pool(&mut client);
    let text = dump(&database, &[]);
    let other = Database::empty();
    restore(
        &other,
        "psql",
        &["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"],
        &text,
    );
    let mut client = other.connect();
    assert_eq!(pool(&mut client), before);
    // A build that was under way at the dump is still its worker's, and new ones get new numbers.
    commit(
        &mut client,
        taken.job,
        "w",
        &serde_json::json!(["A valve is red."]),
        "",
    );
    assert_eq!(build_all(&mut client, reworded), 1);
    assert_eq!(served(&mut client), 3);
    assert_eq!(events(&mut client).len(), 4, "the cap is kept");
}
