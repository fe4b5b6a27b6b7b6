//! DDL that moves, rewrites or hides rows, and DDL that does not. Needs a server in CORTEX_TEST_PG18_URL or
//! CORTEX_TEST_PG16_URL.

use cortex_extension_tests::{Database, bind, differences, failure, one, state, work};
use postgres::Client;

const NOTE: &str = "CREATE TABLE note (id int PRIMARY KEY, title text, body text, stars int DEFAULT 0); \
    INSERT INTO note SELECT g, 'title ' || g, 'body ' || g FROM generate_series(1, 20) g";

const PART: &str = "CREATE TABLE part (id int, body text, PRIMARY KEY (id)) PARTITION BY RANGE (id); \
    CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10); \
    CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (10) TO (20); \
    INSERT INTO part SELECT g, 'body ' || g FROM generate_series(0, 19) g";

const PART_ROWS: &str = "SELECT format('row:part:[%s]', id), body FROM part";

fn active(client: &mut Client, binding: &str, after: &str) {
    let (held, reason, detail) = state(client, binding);
    assert_eq!(held, "active", "{after}: {reason:?} {detail:?}");
}

/// The binding is held with a detail that contains `part`; a worker's reconcile job puts it right again.
fn held(client: &mut Client, binding: &str, part: &str, after: &str) {
    let (held, reason, detail) = state(client, binding);
    assert_eq!(
        (held.as_str(), reason.as_deref()),
        ("held", Some("needs_reconcile")),
        "{after}"
    );
    assert!(
        detail.as_ref().is_some_and(|detail| detail.contains(part)),
        "{after}: {detail:?}"
    );
    assert!(
        one::<i64>(
            client,
            "SELECT count(*) FROM cortex.job WHERE kind = 'reconcile'"
        ) > 0,
        "{after}"
    );
    work(client);
    active(client, binding, after);
}

#[test]
fn ddl_that_moves_no_row_changes_nothing() {
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute(NOTE).unwrap();
    bind(&mut client, "note", "title_column => 'title'");
    let rows = "SELECT format('row:note:[%s]', id), body, title FROM note";
    let versions: i64 = one(&mut client, "SELECT count(*) FROM cortex.source_version");
    for ddl in [
        "ALTER TABLE note ADD COLUMN extra text DEFAULT 'x'",
        "ALTER TABLE note ADD COLUMN more text DEFAULT clock_timestamp()::text",
        "ALTER TABLE note DROP COLUMN extra",
        "ALTER TABLE note ALTER COLUMN stars SET NOT NULL",
        "ALTER TABLE note ALTER COLUMN body SET STORAGE EXTERNAL",
        "ALTER TABLE note ADD CONSTRAINT stars CHECK (stars >= 0)",
        "CREATE INDEX note_body ON note (body)",
        "DROP INDEX note_body",
        "CREATE TRIGGER other BEFORE INSERT ON note FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "DROP TRIGGER other ON note",
        "CREATE TABLE unrelated (id int); ALTER TABLE unrelated ADD COLUMN a int; DROP TABLE unrelated",
        "ALTER TABLE note SET (fillfactor = 90)",
        "VACUUM FULL note",
        "CLUSTER note USING note_pkey",
        "ALTER TABLE note SET LOGGED",
        "COMMENT ON TABLE note IS 'x'; GRANT SELECT ON note TO PUBLIC",
        "ANALYZE note; REINDEX TABLE note",
    ] {
        client.batch_execute(ddl).unwrap();
        active(&mut client, "note", ddl);
        client
            .batch_execute("UPDATE note SET stars = stars + 1")
            .unwrap();
    }
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.source_version"),
        versions
    );
    client
        .batch_execute("UPDATE note SET body = 'after' WHERE id = 1")
        .unwrap();
    assert_eq!(differences(&mut client, rows), Vec::<String>::new());
}

#[test]
fn renames_are_followed() {
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute(NOTE).unwrap();
    bind(&mut client, "note", "title_column => 'title'");
    client
        .batch_execute("INSERT INTO note VALUES (100, 't', 'b')")
        .unwrap(); // the session has a kept plan now
    for (n, ddl, table, key, body) in [
        (
            1,
            "ALTER TABLE note RENAME COLUMN body TO \"Text \"\"1\"\"\"",
            "note",
            "id",
            "\"Text \"\"1\"\"\"",
        ),
        (
            2,
            "ALTER TABLE note RENAME COLUMN id TO number",
            "note",
            "number",
            "\"Text \"\"1\"\"\"",
        ),
        (
            3,
            "ALTER TABLE note RENAME TO paper",
            "paper",
            "number",
            "\"Text \"\"1\"\"\"",
        ),
        (
            4,
            "CREATE SCHEMA elsewhere; ALTER TABLE paper SET SCHEMA elsewhere",
            "elsewhere.paper",
            "number",
            "\"Text \"\"1\"\"\"",
        ),
        (
            5,
            "ALTER SCHEMA elsewhere RENAME TO here",
            "here.paper",
            "number",
            "\"Text \"\"1\"\"\"",
        ),
        (
            6,
            "ALTER TABLE here.paper RENAME COLUMN \"Text \"\"1\"\"\" TO title2; ALTER TABLE here.paper RENAME COLUMN title TO body; ALTER TABLE here.paper RENAME COLUMN title2 TO title",
            "here.paper",
            "number",
            "title",
        ),
        (
            7,
            "ALTER VIEW here.paper RENAME COLUMN title TO by_view",
            "here.paper",
            "number",
            "by_view",
        ),
    ] {
        client.batch_execute(ddl).unwrap();
        active(&mut client, "note", ddl);
        client.batch_execute(&format!("UPDATE {table} SET {body} = 'after {n}' WHERE {key} = {n}; DELETE FROM {table} WHERE {key} = 10 + {n}")).unwrap();
        active(&mut client, "note", ddl);
        let title = if n >= 6 { "body" } else { "title" };
        let rows = format!("SELECT format('row:note:[%s]', {key}), {body}, {title} FROM {table}");
        assert_eq!(
            differences(&mut client, &rows),
            Vec::<String>::new(),
            "{ddl}"
        );
    }
}

#[test]
fn rewrites_close_the_binding_until_it_is_reconciled() {
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute(NOTE).unwrap();
    client
        .batch_execute(
            "ALTER TABLE note ADD COLUMN loud text GENERATED ALWAYS AS (upper(body)) STORED",
        )
        .unwrap();
    bind(&mut client, "note", "text_columns => '{body,loud}'");
    let rows = "SELECT format('row:note:[%s]', id), body, loud FROM note";
    for (ddl, part) in [
        (
            "ALTER TABLE note DROP COLUMN loud; ALTER TABLE note ADD COLUMN loud text",
            "dropped",
        ),
        (
            "ALTER TABLE note ALTER COLUMN body TYPE text USING body || '!'",
            "rewritten",
        ),
        (
            "ALTER TABLE note ALTER COLUMN body TYPE varchar",
            "type of a bound column",
        ),
        (
            "ALTER TABLE note ALTER COLUMN body TYPE varchar(100)",
            "rewritten",
        ),
    ] {
        client.batch_execute(ddl).unwrap();
        if part == "dropped" {
            assert!(state(&mut client, "note").2.unwrap().contains(part));
            // A column of the same name is not the column that was bound.
            client.batch_execute("SELECT cortex_unbind('note'); SELECT cortex_bind('note', text_columns => '{body,loud}')").unwrap();
            work(&mut client);
            active(&mut client, "note", ddl);
        } else {
            held(&mut client, "note", part, ddl);
        }
        assert_eq!(
            differences(&mut client, rows),
            Vec::<String>::new(),
            "{ddl}"
        );
    }
}

#[test]
fn a_key_that_changes_its_type_names_other_artifacts() {
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute(NOTE).unwrap();
    bind(&mut client, "note", "text_columns => '{body}'");
    client
        .batch_execute("ALTER TABLE note ALTER COLUMN id TYPE text")
        .unwrap();
    client
        .batch_execute(
            "UPDATE note SET body = 'while held' WHERE id = '3'; DELETE FROM note WHERE id = '4'",
        )
        .unwrap();
    held(&mut client, "note", "rewritten", "int to text");
    assert_eq!(
        differences(
            &mut client,
            "SELECT format('row:note:[\"%s\"]', id), body FROM note"
        ),
        Vec::<String>::new()
    );
    client
        .batch_execute("ALTER TABLE note ALTER COLUMN id TYPE bigint USING id::bigint")
        .unwrap();
    one::<String>(&mut client, "SELECT cortex_reconcile('note')::text");
    active(&mut client, "note", "text to bigint");
    assert_eq!(
        differences(
            &mut client,
            "SELECT format('row:note:[%s]', id), body FROM note"
        ),
        Vec::<String>::new()
    );
}

#[test]
fn an_enum_label_that_is_renamed_renames_the_artifact() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute("CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TABLE note (id mood PRIMARY KEY, body text); INSERT INTO note VALUES ('sad', 'b')")
        .unwrap();
    bind(&mut client, "note", "");
    client
        .batch_execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
        .unwrap();
    held(
        &mut client,
        "note",
        "type of a bound column",
        "RENAME VALUE",
    );
    assert_eq!(
        differences(
            &mut client,
            "SELECT format('row:note:[\"%s\"]', id), body FROM note"
        ),
        Vec::<String>::new()
    );
}

#[test]
fn a_key_that_is_no_longer_one_closes_the_binding() {
    for ddl in [
        "ALTER TABLE note DROP CONSTRAINT note_pkey",
        "ALTER TABLE note ADD CONSTRAINT again UNIQUE (id); ALTER TABLE note DROP CONSTRAINT note_pkey, DROP CONSTRAINT again",
        "ALTER TABLE note DROP CONSTRAINT note_pkey; CREATE UNIQUE INDEX k ON note (id); DROP INDEX k",
        "ALTER TABLE note DROP CONSTRAINT note_pkey; CREATE UNIQUE INDEX k ON note (id); ALTER TABLE note ALTER COLUMN id DROP NOT NULL",
    ] {
        let (_database, mut client) = Database::with_cortex();
        client.batch_execute(NOTE).unwrap();
        bind(&mut client, "note", "");
        client.batch_execute(ddl).unwrap();
        assert_eq!(
            state(&mut client, "note").1.as_deref(),
            Some("needs_reconcile"),
            "{ddl}"
        );
        client
            .batch_execute("UPDATE note SET body = 'while held' WHERE id = 1")
            .unwrap();
        assert_eq!(
            failure(&mut client, "SELECT cortex_reconcile('note')").0,
            "55000",
            "{ddl}"
        );
        client.batch_execute("ALTER TABLE note ALTER COLUMN id SET NOT NULL; CREATE UNIQUE INDEX IF NOT EXISTS k ON note (id)").unwrap();
        work(&mut client);
        assert_eq!(
            one::<i64>(&mut client, "SELECT count(*) FROM cortex._binding_flaws()"),
            0,
            "{ddl}"
        );
        active(&mut client, "note", ddl);
        assert_eq!(
            differences(
                &mut client,
                "SELECT format('row:note:[%s]', id), title, body FROM note"
            ),
            Vec::<String>::new()
        );
    }
    // Another index that serves as well is as good.
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute(NOTE).unwrap();
    client
        .batch_execute("CREATE UNIQUE INDEX k ON note (id)")
        .unwrap();
    bind(&mut client, "note", "");
    client
        .batch_execute("ALTER TABLE note DROP CONSTRAINT note_pkey")
        .unwrap();
    active(&mut client, "note", "the other index is left");
}

#[test]
fn triggers_that_are_disabled_or_dropped_close_the_binding_and_come_back() {
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute(NOTE).unwrap();
    bind(&mut client, "note", "text_columns => '{body}'");
    let rows = "SELECT format('row:note:[%s]', id), body FROM note";
    for ddl in [
        "ALTER TABLE note DISABLE TRIGGER ALL",
        "ALTER TABLE note DISABLE TRIGGER USER",
        "ALTER TABLE note DISABLE TRIGGER cortex_1_update",
        "ALTER TABLE note ENABLE TRIGGER cortex_1_replica",
        "ALTER TABLE note ENABLE REPLICA TRIGGER cortex_1_truncate",
        "DROP TRIGGER cortex_1_update ON note",
        "ALTER TRIGGER cortex_1_update ON note RENAME TO mine",
    ] {
        client.batch_execute(ddl).unwrap();
        client
            .batch_execute("UPDATE note SET body = body || '.'")
            .unwrap();
        held(&mut client, "note", "cortex_1_", ddl);
        assert_eq!(
            differences(&mut client, rows),
            Vec::<String>::new(),
            "{ddl}"
        );
        client
            .batch_execute("UPDATE note SET body = body || '!'")
            .unwrap();
        assert_eq!(
            differences(&mut client, rows),
            Vec::<String>::new(),
            "{ddl}"
        );
    }
}

#[test]
fn partitions_that_come_and_go() {
    let (database, mut client) = Database::with_cortex();
    client.batch_execute(PART).unwrap();
    bind(&mut client, "part", "");
    let everywhere = |client: &mut Client, leaf: &str, id: i32| {
        client
            .batch_execute(&format!(
                "INSERT INTO {leaf} VALUES ({id}, 'leaf'); UPDATE part SET body = 'root' WHERE id = {id}; \
                 UPDATE {leaf} SET body = body || ' leaf' WHERE id = {id}"
            ))
            .unwrap();
        assert_eq!(
            differences(client, PART_ROWS),
            Vec::<String>::new(),
            "{leaf}"
        );
    };
    // Empty partitions come without a pause, at any level.
    client
        .batch_execute(
            "CREATE TABLE part_3 PARTITION OF part FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (id); \
             CREATE TABLE part_3a PARTITION OF part_3 FOR VALUES FROM (20) TO (25); \
             CREATE TABLE apart (id int NOT NULL, body text); ALTER TABLE part ATTACH PARTITION apart FOR VALUES FROM (30) TO (40); \
             CREATE SCHEMA more CREATE TABLE deep PARTITION OF public.part_3 FOR VALUES FROM (25) TO (30)",
        )
        .unwrap();
    active(&mut client, "part", "empty partitions");
    for (leaf, id) in [
        ("part_1", -1),
        ("part_3", 20),
        ("part_3a", 21),
        ("apart", 30),
        ("more.deep", 26),
    ] {
        if id >= 0 {
            everywhere(&mut client, leaf, id);
        }
    }
    // A partition with rows brings them unseen.
    client.batch_execute("CREATE TABLE full_one (id int NOT NULL, body text); INSERT INTO full_one VALUES (40, 'attached')").unwrap();
    client
        .batch_execute("ALTER TABLE part ATTACH PARTITION full_one FOR VALUES FROM (40) TO (50)")
        .unwrap();
    held(&mut client, "part", "attached", "ATTACH");
    everywhere(&mut client, "full_one", 41);
    // One that leaves takes them away, and is a table like any other afterwards.
    client
        .batch_execute("ALTER TABLE part DETACH PARTITION full_one")
        .unwrap();
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'full_one'::regclass"
        ),
        0
    );
    held(&mut client, "part", "detached", "DETACH");
    client
        .batch_execute("INSERT INTO full_one VALUES (43, 'free')")
        .unwrap();
    assert_eq!(differences(&mut client, PART_ROWS), Vec::<String>::new());
    // An open snapshot keeps DETACH ... CONCURRENTLY between its two transactions, the rows hidden already.
    let mut reader = database.connect();
    reader
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM part")
        .unwrap();
    let mut detaching = database.connect();
    let detached = std::thread::spawn(move || {
        detaching.batch_execute("ALTER TABLE part DETACH PARTITION apart CONCURRENTLY")
    });
    while one::<i64>(
        &mut client,
        "SELECT count(*) FROM part WHERE id >= 30 AND id < 40",
    ) > 0
    {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(
        state(&mut client, "part").2.as_deref(),
        Some("a partition is being detached")
    );
    reader.batch_execute("COMMIT").unwrap();
    detached.join().unwrap().unwrap();
    held(&mut client, "part", "detached", "DETACH CONCURRENTLY");
    assert_eq!(differences(&mut client, PART_ROWS), Vec::<String>::new());
    client.batch_execute("DROP TABLE part_2").unwrap();
    held(&mut client, "part", "dropped", "DROP TABLE");
    assert_eq!(differences(&mut client, PART_ROWS), Vec::<String>::new());
    client.batch_execute("DROP SCHEMA more CASCADE").unwrap();
    held(&mut client, "part", "dropped", "DROP SCHEMA");
    assert_eq!(differences(&mut client, PART_ROWS), Vec::<String>::new());
    client
        .batch_execute("TRUNCATE part_1; TRUNCATE part_3")
        .unwrap();
    assert_eq!(differences(&mut client, PART_ROWS), Vec::<String>::new());
}

#[test]
fn a_bound_table_that_becomes_a_partition_is_held() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note VALUES (1, 'a')",
        )
        .unwrap();
    bind(&mut client, "note", "");
    client.batch_execute("CREATE TABLE roof (id int, body text) PARTITION BY RANGE (id); ALTER TABLE roof ATTACH PARTITION note FOR VALUES FROM (0) TO (10)").unwrap();
    assert_eq!(
        state(&mut client, "note").1.as_deref(),
        Some("needs_reconcile")
    );
    client
        .batch_execute("UPDATE roof SET body = 'unseen'")
        .unwrap();
    assert_eq!(
        failure(&mut client, "SELECT cortex_reconcile('note')").0,
        "0A000"
    );
    client
        .batch_execute("ALTER TABLE roof DETACH PARTITION note")
        .unwrap();
    one::<String>(&mut client, "SELECT cortex_reconcile('note')::text");
    active(&mut client, "note", "detached again");
    assert_eq!(
        differences(
            &mut client,
            "SELECT format('row:note:[%s]', id), body FROM note"
        ),
        Vec::<String>::new()
    );
}

#[test]
fn a_dropped_table_leaves_a_binding_that_another_can_take_over() {
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute(NOTE).unwrap();
    bind(&mut client, "note", "text_columns => '{body}'");
    client.batch_execute("DROP TABLE note").unwrap();
    assert_eq!(state(&mut client, "note").1.as_deref(), Some("unbound"));
    client
        .batch_execute(&NOTE.replace("'body '", "'other '"))
        .unwrap();
    client
        .batch_execute("DELETE FROM note WHERE id > 15")
        .unwrap();
    bind(&mut client, "note", "text_columns => '{body}'");
    active(&mut client, "note", "bound again");
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.binding"),
        1
    );
    assert_eq!(
        differences(
            &mut client,
            "SELECT format('row:note:[%s]', id), body FROM note"
        ),
        Vec::<String>::new()
    );
    // Rolled back, a drop leaves everything as it was.
    client
        .batch_execute("BEGIN; DROP TABLE note; ROLLBACK")
        .unwrap();
    active(&mut client, "note", "DROP rolled back");
}

#[test]
fn ddl_by_a_role_without_any_right_on_ours_is_followed() {
    let (database, mut client) = Database::with_cortex();
    let owner = format!("{}_owner", database.name);
    client
        .batch_execute(&format!(
            "CREATE ROLE {owner}; GRANT CREATE ON SCHEMA public TO {owner}"
        ))
        .unwrap();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut owners = database.connect_as(&owner);
        owners.batch_execute(PART).unwrap();
        bind(&mut client, "part", "");
        owners
            .batch_execute(
                "CREATE TABLE part_3 PARTITION OF part FOR VALUES FROM (20) TO (30); INSERT INTO part_3 VALUES (20, 'a'); \
                 ALTER TABLE part RENAME COLUMN body TO text; UPDATE part SET text = 'b'; CREATE TEMP TABLE t (i int); DROP TABLE t",
            )
            .unwrap();
        active(&mut client, "part", "owner's DDL");
        assert_eq!(
            differences(&mut client, &PART_ROWS.replace("body", "text")),
            Vec::<String>::new()
        );
        owners.batch_execute("DROP TABLE part_3").unwrap();
        held(&mut client, "part", "dropped", "owner's DROP");
    }));
    client
        .batch_execute(&format!("DROP OWNED BY {owner} CASCADE; DROP ROLE {owner}"))
        .unwrap();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_fault_in_following_ddl_holds_every_binding_and_lets_the_command_through() {
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute(NOTE).unwrap();
    bind(&mut client, "note", "text_columns => '{body}'");
    client
        .batch_execute(
            "ALTER TABLE cortex.binding ADD CONSTRAINT broken CHECK (generation < 1) NOT VALID",
        )
        .unwrap();
    client
        .batch_execute("ALTER TABLE note RENAME COLUMN body TO text")
        .unwrap();
    let (_, reason, detail) = state(&mut client, "note");
    assert_eq!(reason.as_deref(), Some("needs_reconcile"));
    assert!(detail.unwrap().contains("broken"));
    client
        .batch_execute("ALTER TABLE cortex.binding DROP CONSTRAINT broken")
        .unwrap();
    one::<String>(&mut client, "SELECT cortex_reconcile('note')::text");
    active(&mut client, "note", "reconciled");
    assert_eq!(
        differences(
            &mut client,
            "SELECT format('row:note:[%s]', id), text FROM note"
        ),
        Vec::<String>::new()
    );
}

#[test]
fn dropping_the_extension_leaves_the_users_table_alone() {
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute(NOTE).unwrap();
    bind(&mut client, "note", "");
    client.batch_execute("UPDATE note SET body = 'x'").unwrap();
    failure(&mut client, "DROP EXTENSION cortex");
    client
        .batch_execute("DROP EXTENSION cortex CASCADE; UPDATE note SET body = 'y'; DROP TABLE note")
        .unwrap();
    client
        .batch_execute(&format!("CREATE EXTENSION cortex; {NOTE}"))
        .unwrap();
    bind(&mut client, "note", "text_columns => '{body}'");
    client
        .batch_execute("UPDATE note SET body = 'z' WHERE id = 1")
        .unwrap();
    assert_eq!(
        differences(
            &mut client,
            "SELECT format('row:note:[%s]', id), body FROM note"
        ),
        Vec::<String>::new()
    );
}
