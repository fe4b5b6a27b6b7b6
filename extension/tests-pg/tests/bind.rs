//! Binding and loading. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use cortex_extension_tests::{Database, bind, differences, failure, one, work};
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
fn a_preview_changes_nothing_and_says_what_would_happen() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client);
    let told: String = one(
        &mut client,
        "SELECT cortex_bind('note', preview => true)::text",
    );
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["bound"], false);
    assert_eq!(told["key_columns"], serde_json::json!(["id"]));
    assert_eq!(told["text_columns"], serde_json::json!(["title", "body"]));
    assert_eq!(told["preview"]["estimated_rows"], 30);
    let bytes: i64 = one(
        &mut client,
        "SELECT sum(octet_length(title) + octet_length(body)) FROM note",
    );
    assert_eq!(told["preview"]["estimated_text_bytes"], bytes);
    assert_eq!(
        told["preview"]["triggers"][0]["triggers"]
            .as_array()
            .unwrap()
            .len(),
        5
    );
    for nothing in [
        "cortex.namespace",
        "cortex.binding",
        "cortex.job",
        "cortex.change",
        "cortex.installation",
    ] {
        assert_eq!(
            one::<i64>(&mut client, &format!("SELECT count(*) FROM {nothing}")),
            0,
            "{nothing}"
        );
    }
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'note'::regclass"
        ),
        0
    );
}

#[test]
fn a_large_table_is_estimated_from_a_sample() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE big (id int PRIMARY KEY, body text); \
             INSERT INTO big SELECT g, repeat('x', 100) FROM generate_series(1, 30000) g",
        )
        .unwrap();
    let rows: i64 = one(
        &mut client,
        "SELECT (cortex_bind('big', preview => true) #>> '{preview,estimated_rows}')::bigint",
    );
    assert!((24_000..=36_000).contains(&rows), "{rows}");
}

#[test]
fn rows_are_loaded_and_followed_and_loading_twice_changes_nothing() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client);
    assert_eq!(bind(&mut client, "note", "title_column => 'title'"), "note");
    assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
    let versions: i64 = one(&mut client, "SELECT count(*) FROM cortex.source_version");
    let read: i32 = one(
        &mut client,
        "SELECT \"rows\" FROM cortex._load_batch(1, NULL, 1000)",
    );
    assert_eq!(read, 30);
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.source_version"),
        versions
    );
    client
        .batch_execute(
            "INSERT INTO note VALUES (31, NULL, 'new', 0); UPDATE note SET body = '' WHERE id = 1; \
             UPDATE note SET body = NULL WHERE id = 2; UPDATE note SET title = 't' WHERE id = 3; DELETE FROM note WHERE id = 4",
        )
        .unwrap();
    assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
    // NULL, empty and back are three contents.
    client
        .batch_execute("UPDATE note SET body = NULL WHERE id = 1")
        .unwrap();
    assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
    let of_one = "SELECT count(DISTINCT v.content_hash) FROM cortex.source_version v JOIN cortex.source s ON s.id = v.source_id \
                  WHERE s.artifact_id = 'row:note:[1]'";
    assert_eq!(one::<i64>(&mut client, of_one), 3);
}

#[test]
fn keys_of_every_kind_name_their_artifacts() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute("CREATE TYPE mood AS ENUM ('sad', 'so \"so\"'); CREATE DOMAIN code AS text CHECK (VALUE <> 'no')")
        .unwrap();
    // Type, value in SQL, element of the canonical JSON array.
    let keys = [
        ("int2", "-7", "-7"),
        ("int8", "9007199254740991", "9007199254740991"),
        ("int8", "9007199254740992", "\"9007199254740992\""),
        ("int8", "-9223372036854775808", "\"-9223372036854775808\""),
        (
            "uuid",
            "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
            "\"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\"",
        ),
        ("text", "''", "\"\""),
        (
            "text",
            "E'quo\"te \\\\ back\\nline\\u0001 \\u00e4'",
            "\"quo\\\"te \\\\ back\\nline\\u0001 \u{e4}\"",
        ),
        ("varchar(20)", "'v'", "\"v\""),
        ("char(3)", "'c'", "\"c  \""),
        ("code", "'d'", "\"d\""),
        ("mood", "'so \"so\"'", "\"so \\\"so\\\"\""),
        ("numeric", "1.00", "\"1.00\""),
        ("numeric", "'NaN'", "\"NaN\""),
        ("float8", "'-Infinity'", "\"-Infinity\""),
        ("float8", "0.1", "\"0.1\""),
        ("bytea", "'\\x00ff'", "\"\\\\x00ff\""),
        ("boolean", "true", "\"t\""),
        ("date", "'infinity'", "\"infinity\""),
        (
            "timestamptz",
            "'2020-01-02 03:04:05+02'",
            "\"2020-01-02 01:04:05+00\"",
        ),
        ("interval", "'1 day 2 hours'", "\"P1DT2H\""),
        ("inet", "'10.0.0.1'", "\"10.0.0.1\""),
        ("int4range", "'[1,5)'", "\"[1,5)\""),
    ];
    for (n, (kind, value, json)) in keys.iter().enumerate() {
        let table = format!("k{n}");
        client
            .batch_execute(&format!(
                "CREATE TABLE {table} (k {kind}, n int, body text, PRIMARY KEY (k, n)); INSERT INTO {table} VALUES ({value}, 1, 'a')"
            ))
            .unwrap();
        bind(&mut client, &table, "");
        let artifact = |n: i32| format!("row:{table}:[{json},{n}]");
        let current = |client: &mut Client| -> Vec<String> {
            let rows = client.query(
                "SELECT s.artifact_id FROM cortex.source s JOIN cortex.source_version v ON v.source_id = s.id AND closed_by IS NULL \
                 WHERE s.artifact_id LIKE 'row:' || $1 || ':%' ORDER BY 1",
                &[&table],
            );
            rows.unwrap().iter().map(|row| row.get(0)).collect()
        };
        assert_eq!(current(&mut client), [artifact(1)], "{kind}: loaded");
        client
            .batch_execute(&format!("INSERT INTO {table} VALUES ({value}, 2, 'b')"))
            .unwrap();
        assert_eq!(
            current(&mut client),
            [artifact(1), artifact(2)],
            "{kind}: inserted"
        );
        client.batch_execute(&format!("SET session_replication_role = replica; UPDATE {table} SET n = 3 WHERE n = 1; RESET ALL")).unwrap();
        assert_eq!(
            current(&mut client),
            [artifact(2), artifact(3)],
            "{kind}: key changed by row trigger"
        );
        client
            .batch_execute(&format!("DELETE FROM {table} WHERE n = 2"))
            .unwrap();
        assert_eq!(current(&mut client), [artifact(3)], "{kind}: deleted");
        one::<String>(
            &mut client,
            &format!("SELECT cortex_reconcile('{table}')::text"),
        );
        let payload = format!("{{\"binding\": {}}}", n + 1);
        client.execute("INSERT INTO cortex.job (namespace_id, kind, payload) VALUES (1, 'reconcile', $1::text::jsonb)", &[&payload]).unwrap();
        work(&mut client);
        assert_eq!(current(&mut client), [artifact(3)], "{kind}: reconciled");
    }
}

#[test]
fn equal_keys_of_different_text_are_different_artifacts() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute("CREATE TABLE price (k numeric PRIMARY KEY, body text); INSERT INTO price VALUES (1.0, 'a'), (2, 'b')")
        .unwrap();
    bind(&mut client, "price", "");
    let rows = "SELECT format('row:price:[\"%s\"]', k), body FROM price";
    for change in [
        "UPDATE price SET k = 1.00 WHERE k = 1",
        "UPDATE price SET k = 1.000, body = 'c' WHERE k = 1",
        "SET session_replication_role = replica; UPDATE price SET k = 1.0 WHERE k = 1; RESET ALL",
        "DELETE FROM price WHERE k = 1; INSERT INTO price VALUES (1, 'd')",
    ] {
        client.batch_execute(change).unwrap();
        assert_eq!(
            differences(&mut client, rows),
            Vec::<String>::new(),
            "{change}"
        );
    }
}

#[test]
fn text_does_not_depend_on_the_session() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE event (at timestamptz PRIMARY KEY, span interval, ratio float8, raw bytea, body text); \
             INSERT INTO event VALUES ('2020-06-01 12:00:00+00', '1 month -2 days', 0.1::float4, '\\xdeadbeef', 'x')",
        )
        .unwrap();
    bind(
        &mut client,
        "event",
        "text_columns => '{body,span,ratio,raw}', date_column => 'at'",
    );
    let versions: i64 = one(&mut client, "SELECT count(*) FROM cortex.source_version");
    client
        .batch_execute(
            "SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German, DMY'; SET IntervalStyle = 'sql_standard'; \
             SET extra_float_digits = -10; SET bytea_output = 'escape'; SET search_path = ''; \
             UPDATE public.event SET body = 'x'; SET session_replication_role = replica; UPDATE public.event SET body = 'x'",
        )
        .unwrap();
    one::<String>(&mut client, "SELECT public.cortex_reconcile('event')::text");
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.source_version"),
        versions
    );
}

#[test]
fn what_cannot_be_bound_is_refused_with_a_reason() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TYPE pair AS (a int, b int); \
             CREATE TABLE nokey (id int, body text); \
             CREATE TABLE loosekey (id int NOT NULL, other int NOT NULL, maybe int, body text); \
             CREATE UNIQUE INDEX ON loosekey (other) WHERE other > 0; CREATE UNIQUE INDEX ON loosekey (abs(id)); \
             CREATE UNIQUE INDEX ON loosekey (maybe); \
             ALTER TABLE loosekey ADD CONSTRAINT late UNIQUE (id) DEFERRABLE; \
             CREATE TABLE pairs (k pair PRIMARY KEY, body text); \
             CREATE TABLE cash (k money PRIMARY KEY, body text); \
             CREATE TABLE names (k regclass PRIMARY KEY, body text); \
             CREATE TABLE numbers (id int PRIMARY KEY, n int); \
             CREATE TABLE good (id int PRIMARY KEY, body text, p pair); \
             CREATE UNLOGGED TABLE quick (id int PRIMARY KEY, body text); \
             CREATE TEMP TABLE passing (id int PRIMARY KEY, body text); \
             CREATE VIEW seen AS SELECT * FROM good; \
             CREATE TABLE root (id int PRIMARY KEY, body text) PARTITION BY RANGE (id); \
             CREATE TABLE part PARTITION OF root FOR VALUES FROM (0) TO (10); \
             CREATE FOREIGN DATA WRAPPER nowhere; CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere; \
             CREATE TABLE far (id int, body text) PARTITION BY RANGE (id); \
             CREATE FOREIGN TABLE far1 PARTITION OF far FOR VALUES FROM (0) TO (10) SERVER nowhere",
        )
        .unwrap();
    for (call, code, part) in [
        ("'nokey'", "55000", "no usable primary key"),
        (
            "'nokey', key_columns => '{id}'",
            "55000",
            "not a usable key",
        ),
        ("'nokey', key_columns => '{}'", "22023", "1 to 8"),
        ("'nokey', key_columns => '{id,id}'", "22023", "twice"),
        (
            "'nokey', key_columns => '{nope}'",
            "42703",
            "\"id\", \"body\"",
        ),
        (
            "'loosekey', key_columns => '{id}'",
            "55000",
            "not deferrable",
        ),
        (
            "'loosekey', key_columns => '{other}'",
            "55000",
            "not partial",
        ),
        (
            "'loosekey', key_columns => '{maybe}'",
            "55000",
            "may be NULL",
        ),
        ("'pairs'", "0A000", "base types"),
        ("'cash'", "0A000", "locale"),
        ("'names'", "0A000", "renamed"),
        ("'numbers'", "22023", "no text column"),
        (
            "'good', text_columns => '{body,nope}'",
            "42703",
            "no column \"nope\"",
        ),
        ("'good', text_columns => '{p}'", "0A000", "base types"),
        (
            "'good', text_columns => ARRAY[NULL]::name[]",
            "22023",
            "NULL",
        ),
        ("'good', title_column => 'nope'", "42703", "title_column"),
        ("'good', namespace => ''", "22023", "1 to 200 bytes"),
        ("'good', name => ''", "22023", "1 to 200 bytes"),
        ("NULL", "22023", "relation is NULL"),
        ("'nope'", "42P01", "\"nope\" does not exist"),
        ("'quick'", "0A000", "unlogged"),
        ("'passing'", "0A000", "temporary"),
        ("'seen'", "0A000", "view"),
        ("'part'", "0A000", "root"),
        ("'far', key_columns => '{id}'", "0A000", "foreign table"),
        ("'pg_class'", "0A000", "system"),
        ("'cortex.source'", "0A000", "system"),
    ] {
        let (state, text) = failure(&mut client, &format!("SELECT cortex_bind({call})"));
        assert_eq!(
            (state.as_str(), text.contains(part)),
            (code, true),
            "{call}: {state} {text}"
        );
    }
    let columns = |count: usize, kind: &str| {
        (1..=count)
            .map(|n| format!("c{n} {kind}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let names = |count: usize| {
        (1..=count)
            .map(|n| format!("c{n}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    for (count, key, refused) in [(64, 8, false), (65, 1, true), (1, 9, true)] {
        let table = format!("wide_{count}_{key}");
        client
            .batch_execute(&format!(
                "CREATE TABLE {table} ({}, {}, PRIMARY KEY ({}))",
                columns(key, "int"),
                columns(count, "text").replace('c', "t"),
                names(key)
            ))
            .unwrap();
        let call = format!("SELECT cortex_bind('{table}', preview => true)");
        if refused {
            assert_eq!(failure(&mut client, &call).0, "54000", "{table}");
        } else {
            client.batch_execute(&call).unwrap();
        }
    }
    // Only a server with ICU has collations that take different texts for equal.
    let loose = "CREATE COLLATION loose (provider = icu, locale = 'und', deterministic = false); \
                 CREATE TABLE loosetext (k text COLLATE loose PRIMARY KEY, body text)";
    match client.batch_execute(loose) {
        Ok(()) => assert_eq!(
            failure(&mut client, "SELECT cortex_bind('loosetext')").0,
            "55000"
        ),
        Err(error) => assert!(
            error
                .as_db_error()
                .unwrap()
                .message()
                .contains("ICU is not supported")
        ),
    }
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.binding"),
        0
    );
    client
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .unwrap();
    let (state, text) = failure(&mut client, "SELECT cortex_bind('good')");
    assert_eq!(
        (state.as_str(), text.contains("READ COMMITTED")),
        ("25001", true),
        "{text}"
    );
}

#[test]
fn a_table_in_use_is_not_waited_for_long() {
    let (database, mut client) = Database::with_cortex();
    notes(&mut client);
    let mut writer = database.connect();
    writer
        .batch_execute("BEGIN; UPDATE note SET body = body")
        .unwrap();
    client.batch_execute("SET lock_timeout = '50ms'").unwrap();
    let (state, text) = failure(&mut client, "SELECT cortex_bind('note')");
    assert_eq!(
        (state.as_str(), text.contains("Try again")),
        ("55P03", true),
        "{text}"
    );
    writer.batch_execute("COMMIT").unwrap();
    bind(&mut client, "note", "title_column => 'title'");
    assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
    assert_eq!(one::<String>(&mut client, "SHOW lock_timeout"), "50ms");
}

#[test]
fn names_with_quotes_and_of_full_length_work() {
    let (_database, mut client) = Database::with_cortex();
    let long = "x".repeat(60);
    let (table, key, text) = (
        format!("a\"{long}'"),
        format!("k\\{long}"),
        format!("T \"{long}"),
    );
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    client
        .batch_execute(&format!(
            "CREATE SCHEMA \"S'\"\"x\"; CREATE TABLE \"S'\"\"x\".{} ({} text PRIMARY KEY, {} text); \
             INSERT INTO \"S'\"\"x\".{} VALUES ('1', 'a')",
            quoted(&table),
            quoted(&key),
            quoted(&text),
            quoted(&table)
        ))
        .unwrap();
    let name = format!("\"S'\"\"x\".{}", quoted(&table));
    assert_eq!(bind(&mut client, &name.replace('\'', "''"), ""), table);
    client
        .batch_execute(&format!(
            "UPDATE {name} SET {} = 'b'; INSERT INTO {name} VALUES ('2', 'c')",
            quoted(&text)
        ))
        .unwrap();
    let rows = format!(
        "SELECT 'row:{}:[\"' || {} || '\"]', {} FROM {name}",
        table.replace('\'', "''"),
        quoted(&key),
        quoted(&text)
    );
    assert_eq!(differences(&mut client, &rows), Vec::<String>::new());
}

#[test]
fn binding_twice_fails_and_other_namespaces_are_apart() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client);
    client
        .batch_execute("CREATE SCHEMA other; CREATE TABLE other.note (LIKE note INCLUDING ALL)")
        .unwrap();
    assert_eq!(bind(&mut client, "note", ""), "note");
    let (state, text) = failure(&mut client, "SELECT cortex_bind('note')");
    assert_eq!(
        (state.as_str(), text.contains("cortex_unbind")),
        ("42710", true),
        "{text}"
    );
    assert_eq!(bind(&mut client, "note", "namespace => 'second'"), "note");
    assert_eq!(bind(&mut client, "other.note", ""), "other.note");
    let (state, _) = failure(
        &mut client,
        "SELECT cortex_bind('other.note', namespace => 'second', name => 'note')",
    );
    assert_eq!(state, "42710");
    client.batch_execute("INSERT INTO note VALUES (77, 't', 'b', 0); INSERT INTO other.note VALUES (77, 't', 'b', 0)").unwrap();
    let artifacts: i64 = one(
        &mut client,
        "SELECT count(*) FROM cortex.source WHERE artifact_id LIKE '%[77]'",
    );
    assert_eq!(artifacts, 3);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.change WHERE seq IS NULL AND xact = (SELECT max(xact) FROM cortex.change)"
        ),
        2
    );
}

#[test]
fn who_does_not_own_the_table_cannot_bind_it_and_writers_need_no_rights_on_ours() {
    let (database, mut client) = Database::with_cortex();
    let (owner, writer, stranger) = (
        format!("{}_owner", database.name),
        format!("{}_writer", database.name),
        format!("{}_stranger", database.name),
    );
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        client
            .batch_execute(&format!(
                "CREATE ROLE {owner}; CREATE ROLE {writer}; CREATE ROLE {stranger}; \
                 CREATE TABLE note (id int PRIMARY KEY, title text, body text); ALTER TABLE note OWNER TO {owner}; \
                 ALTER TABLE note ENABLE ROW LEVEL SECURITY; CREATE POLICY all_rows ON note USING (id <> 5); \
                 GRANT INSERT, UPDATE, DELETE, TRUNCATE, SELECT ON note TO {writer}; \
                 GRANT EXECUTE ON FUNCTION cortex_bind, cortex_unbind TO {owner}, {stranger}"
            ))
            .unwrap();
        let mut strangers = database.connect_as(&stranger);
        assert_eq!(
            failure(&mut strangers, "SELECT cortex_bind('note')").0,
            "42501"
        );
        let mut writers = database.connect_as(&writer);
        assert_eq!(
            failure(&mut writers, "SELECT cortex_bind('note')").0,
            "42501"
        );
        let mut owners = database.connect_as(&owner);
        owners
            .batch_execute("SELECT cortex_bind('note', title_column => 'title')")
            .unwrap();
        work(&mut client);
        writers.batch_execute("INSERT INTO note VALUES (1, 't', 'b'), (2, 't', 'b'); UPDATE note SET body = 'c'; DELETE FROM note WHERE id = 2").unwrap();
        assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
        assert_eq!(
            failure(&mut writers, "SELECT count(*) FROM cortex.source").0,
            "42501"
        );
        assert_eq!(failure(&mut writers, "CREATE TEMP TABLE t (i int); CREATE TRIGGER t AFTER INSERT ON t EXECUTE FUNCTION cortex._touch(1)").0, "42501");
        writers.batch_execute("TRUNCATE note").unwrap();
        assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
        assert_eq!(
            failure(&mut strangers, "SELECT cortex_unbind('note')").0,
            "42704"
        );
        // Into a namespace that exists, only who may read it may bind.
        client.batch_execute("CREATE TABLE mine (id int PRIMARY KEY, body text); INSERT INTO cortex.namespace (name, secret) VALUES ('closed', sha256('x'))").unwrap();
        client
            .batch_execute(&format!("ALTER TABLE mine OWNER TO {owner}"))
            .unwrap();
        assert_eq!(
            failure(
                &mut owners,
                "SELECT cortex_bind('mine', namespace => 'closed')"
            )
            .0,
            "42704"
        );
        owners
            .batch_execute("SELECT cortex_unbind('note')")
            .unwrap();
    }));
    let mut admin = database.connect();
    admin.batch_execute(&format!("DROP OWNED BY {owner}, {writer}, {stranger} CASCADE; DROP ROLE {owner}, {writer}, {stranger}")).unwrap();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_small_statement_after_a_large_one_looks_up_by_index() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE big (id int PRIMARY KEY, body text); INSERT INTO big SELECT g, 'b' || g FROM generate_series(1, 20000) g; \
             SELECT cortex_bind('big'); UPDATE big SET body = body || '.' WHERE id <= 10000; ANALYZE",
        )
        .unwrap();
    client
        .batch_execute("UPDATE big SET body = 'x' WHERE id <= 10000")
        .unwrap();
    let scans = "SELECT sum(seq_scan)::bigint FROM pg_stat_xact_user_tables WHERE relid IN \
                 ('big'::regclass, 'cortex.source'::regclass, 'cortex.source_version'::regclass, 'cortex.change'::regclass)";
    client.batch_execute("BEGIN").unwrap();
    let before = one::<i64>(&mut client, scans);
    client.batch_execute("UPDATE big SET body = 'y' WHERE id = 1; INSERT INTO big VALUES (30000, 'n'); DELETE FROM big WHERE id = 2").unwrap();
    assert_eq!(one::<i64>(&mut client, scans), before);
    client.batch_execute("COMMIT").unwrap();
    // And the other way round: the kept plan for few rows is not used for many.
    client
        .batch_execute("UPDATE big SET body = 'z' WHERE id <= 10000")
        .unwrap();
    let rows = "SELECT format('row:big:[%s]', id), body FROM big WHERE id <= 10000 OR id = 30000";
    assert_eq!(differences(&mut client, rows), Vec::<String>::new());
}

#[test]
fn large_and_odd_texts_are_followed() {
    let (_database, mut client) = Database::with_cortex();
    notes(&mut client);
    bind(&mut client, "note", "title_column => 'title'");
    client
        .batch_execute(
            "INSERT INTO note VALUES (100, '', repeat('0123456789', 5000000), 0), (101, E'\\u0001', E'\\r\\n\\t\\U0001F600', 0)",
        )
        .unwrap();
    assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
    client
        .batch_execute("UPDATE note SET body = body || '.' WHERE id = 100")
        .unwrap();
    assert_eq!(differences(&mut client, NOTE_ROWS), Vec::<String>::new());
}
