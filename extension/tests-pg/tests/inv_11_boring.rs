//! Invariant 11: a boring extension. No panic reaches the client, long reads can be cancelled, it goes when it is
//! dropped, and it lives in any schema. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use std::time::{Duration, Instant};

use cortex_extension_tests::serving::{Random, ask, cortex_work, must_verify, put};
use cortex_extension_tests::{Database, failure, one};
use postgres::Client;

/// Values of every type that an argument may have, in SQL: ordinary, empty, extreme, NULL.
fn values(kind: &str) -> Vec<String> {
    let texts: Vec<String> = [
        "''",
        "' '",
        "'default'",
        "'row:note:[1]'",
        "'row:'",
        "'{}'",
        "'[1,2'",
        "E'\\u0001'",
        "E'\\uFFFD\\U0010FFFF\\u202E'",
        "'%s %I $1 \\'",
        "'a''b\"c;--'",
        "repeat('x', 300)",
        "repeat('ä', 100000)",
        "repeat('[', 60000)",
        "'lexical'",
        "'vector'",
        "'b3:00'",
        "'find_relevant'",
        "'nope'",
        "NULL",
    ]
    .map(str::to_owned)
    .into();
    match kind {
        "text" => texts,
        "name" => ["'note'", "''", "'no such'", "repeat('n', 70)::name", "NULL"]
            .map(str::to_owned)
            .into(),
        "integer" => [
            "1",
            "0",
            "-1",
            "10",
            "1000",
            "2147483647",
            "-2147483648",
            "NULL",
        ]
        .map(str::to_owned)
        .into(),
        "bigint" => [
            "1::bigint",
            "0::bigint",
            "(-1)::bigint",
            "9223372036854775807",
            "(-9223372036854775807 - 1)",
            "NULL::bigint",
        ]
        .map(str::to_owned)
        .into(),
        "boolean" => ["true", "false", "NULL"].map(str::to_owned).into(),
        "jsonb" => [
            "'{}'",
            "'[]'",
            "'null'",
            "'1'",
            "'{\"max_evidence\": 0}'",
            "'{\"max_evidence\": 1e400}'",
            "'{\"max_evidence\": \"1\"}'",
            "'{\"max_candidates\": 99999999999999999999}'",
            "'{\"max_candidates\": 1.5, \"x\": null}'",
            "'[\"a statement\"]'",
            "'[{\"statement\": 1, \"n\": 1}]'",
            "'{\"name\": \"m\", \"input\": \"i\", \"output\": \"o\"}'",
            "NULL",
        ]
        .map(str::to_owned)
        .into(),
        "vector" => [
            "'[1,2,3,4]'",
            "'[0,0,0,0]'",
            "'[1]'",
            "'[3.4e38,-3.4e38,1e-45,0]'",
            "array_fill(1, ARRAY[16000])::vector",
            "NULL",
        ]
        .map(str::to_owned)
        .into(),
        "vector[]" => [
            "'{}'",
            "ARRAY['[1,2,3,4]']::vector[]",
            "ARRAY[NULL]::vector[]",
            "ARRAY[['[1]'],['[2]']]::vector[]",
            "NULL",
        ]
        .map(str::to_owned)
        .into(),
        "bigint[]" => [
            "'{}'",
            "'{1}'",
            "'{NULL}'",
            "'{{1,2},{3,4}}'",
            "'[5:6]={1,2}'",
            "NULL",
        ]
        .map(str::to_owned)
        .into(),
        "name[]" => [
            "'{}'",
            "'{body}'",
            "'{id,id}'",
            "'{NULL}'",
            "'{nope}'",
            "'{{id,body}}'",
            "'[7:7]={body}'",
            "NULL",
        ]
        .map(str::to_owned)
        .into(),
        "text[]" => ["'{}'", "'{load,chunk}'", "'{NULL}'", "'{{a,b}}'", "NULL"]
            .map(str::to_owned)
            .into(),
        "regclass" => [
            "'note'",
            "'pg_class'",
            "'cortex.chunk'",
            "'cortex.namespaces'",
            "0::regclass",
            "4294967295::oid::regclass",
            "NULL",
        ]
        .map(str::to_owned)
        .into(),
        "regrole" => [
            "current_user::regrole",
            "0::regrole",
            "4294967295::oid::regrole",
            "NULL",
        ]
        .map(str::to_owned)
        .into(),
        "interval" => [
            "'60 seconds'",
            "'0'",
            "'-1 day'",
            "'178000000 years'",
            "'infinity'",
            "NULL",
        ]
        .map(str::to_owned)
        .into(),
        "timestamp with time zone" => [
            "now()",
            "'-infinity'",
            "'infinity'",
            "'4713-01-01 BC'",
            "'294276-12-31'",
            "NULL",
        ]
        .map(str::to_owned)
        .into(),
        "double precision" => [
            "0",
            "0.4",
            "1",
            "-1",
            "1e308",
            "'NaN'",
            "'Infinity'",
            "NULL",
        ]
        .map(str::to_owned)
        .into(),
        other => panic!("no values for arguments of type {other}"),
    }
}

#[test]
fn inv_11_no_value_of_any_argument_is_an_internal_error() {
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute("CREATE TABLE note (id int PRIMARY KEY, title text, body text); INSERT INTO note VALUES (1, 't', 'The valve is red.')").unwrap();
    put(&mut client, "a", "The valve in the manual is blue.");
    cortex_work(&mut client);
    ask(&mut client, "valve", "");
    // Asks to go on with: one that waits for a round, one that waits for a selection.
    client
        .batch_execute(
            "SELECT cortex_ask_open('valve', 'evidence_answer'), cortex_ask_open('valve', 'evidence_answer'); SELECT cortex_ask_round(2)",
        )
        .unwrap();
    client
        .batch_execute(
            "SELECT cortex_space_register('m', '1', 'd', 4); SELECT cortex_space_use('default', 1)",
        )
        .unwrap();
    // The server knows what is there: a function that joins later is tried as well.
    let functions = client
        .query(
            "SELECT p.proname::text, ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY a (t, n) ORDER BY n), p.pronargdefaults::int \
               FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' \
               JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'cortex' WHERE p.pronamespace <> 'cortex'::regnamespace ORDER BY 1",
            &[],
        )
        .unwrap();
    assert!(functions.len() >= 30);
    let mut random = Random::new(20);
    let mut codes = std::collections::BTreeMap::<String, usize>::new();
    let mut faults = Vec::new();
    client
        .batch_execute("SET statement_timeout = '20s'")
        .unwrap();
    for row in functions {
        let (name, types, defaults): (String, Vec<String>, i32) =
            (row.get(0), row.get(1), row.get(2));
        let choices: Vec<Vec<String>> = types.iter().map(|kind| values(kind)).collect();
        let mut calls: Vec<Vec<String>> = Vec::new();
        // Each value once at each place beside ordinary ones, all NULL, then mixtures.
        let ordinary: Vec<String> = choices.iter().map(|choices| choices[0].clone()).collect();
        for (place, choices) in choices.iter().enumerate() {
            for value in choices {
                let mut call = ordinary.clone();
                call[place].clone_from(value);
                calls.push(call);
            }
        }
        calls.push(vec!["NULL".into(); types.len()]);
        for _ in 0..25 {
            calls.push(
                choices
                    .iter()
                    .map(|choices| random.of(choices).clone())
                    .collect(),
            );
        }
        for call in calls {
            let given = if defaults > 0 && random.below(4) == 0 {
                types.len() - random.below(defaults as usize + 1)
            } else {
                types.len()
            };
            let arguments: Vec<String> = call
                .iter()
                .zip(&types)
                .take(given)
                .map(|(value, kind)| format!("({value})::{kind}"))
                .collect();
            let sql = format!("SELECT * FROM {name}({})", arguments.join(", "));
            // Each in a transaction that is rolled back, so that the next starts from the same.
            client.batch_execute("BEGIN").unwrap();
            if let Err(error) = client.batch_execute(&sql) {
                let shown: String = sql.chars().take(200).collect();
                let Some(told) = error.as_db_error() else {
                    panic!("{shown}: the connection is gone: {error:?}")
                };
                let code = told.code().code();
                let text = format!("{} {:?} {:?}", told.message(), told.detail(), told.hint());
                let bad = code.starts_with("XX")
                    || code == "57P01"
                    || code == "57014"
                    || ["panicked", "backtrace", ".rs:", "unwrap", "src/"]
                        .iter()
                        .any(|word| text.contains(word));
                if bad {
                    faults.push(format!("{shown}\n    {code}: {text}"));
                }
                *codes.entry(code.to_owned()).or_default() += 1;
            }
            client.batch_execute("ROLLBACK").unwrap();
        }
    }
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert!(codes.values().sum::<usize>() > 300, "{codes:?}");
}

#[test]
fn inv_11_bytes_that_are_no_text_do_not_come_through() {
    let (_database, mut client) = Database::with_cortex();
    // The server's own refusals, before we see anything.
    for (call, code) in [
        (
            "SELECT cortex_source_put('a', convert_from('\\xff', 'UTF8'))",
            "22021",
        ),
        ("SELECT cortex_source_put('a', E'a\\x00b')", "22021"),
        ("SELECT cortex_source_put('a', E'\\u0000')", "22021"),
    ] {
        let (told, text) = failure(&mut client, call);
        assert!(
            told == code || told == "42601" || told == "22P05",
            "{call}: {told} {text}"
        );
    }
    let error = client
        .execute("SELECT cortex_source_put('a', $1)", &[&"a\0b"])
        .unwrap_err();
    assert_eq!(error.code().unwrap().code(), "22021", "{error:?}");
}

/// A statement that must end with 57014 within a few times its timeout. The bound is generous: a machine may be
/// busy, but a loop that ignores the cancel would run far longer.
fn cancelled(client: &mut Client, sql: &str) {
    client
        .batch_execute("SET statement_timeout = '100ms'")
        .unwrap();
    let started = Instant::now();
    let error = client
        .batch_execute(sql)
        .expect_err(&format!("ended before its timeout: {sql}"));
    assert_eq!(error.code().unwrap().code(), "57014", "{sql}: {error:?}");
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{sql}: cancelled after {:?}",
        started.elapsed()
    );
    client
        .batch_execute("SET statement_timeout = '60s'; SELECT 1")
        .unwrap();
}

#[test]
fn inv_11_long_work_can_be_cancelled() {
    let (_database, mut client) = Database::with_cortex();
    // Texts at the limit of size take seconds to chunk.
    client
        .batch_execute(
            "CREATE TABLE big (body text); \
             INSERT INTO big SELECT left(string_agg('The valve number ' || g || ' of the plant is closed at night. ', ''), 8 * 1024 * 1024) FROM generate_series(1, 160000) g",
        )
        .unwrap();
    cancelled(
        &mut client,
        "SELECT cortex_source_put('big', (SELECT body FROM big))",
    );
    let left: i64 = one(&mut client, "SELECT count(*) FROM cortex.source");
    assert_eq!(left, 0, "nothing half-done");
    client
        .batch_execute(
            "SELECT cortex_source_put('big', (SELECT body FROM big)); SELECT cortex_seal()",
        )
        .unwrap();
    // Every chunk and every claim matches.
    let query = "valve number plant closed night";
    cancelled(
        &mut client,
        &format!(
            "SELECT cortex_search('{query}', k => 1000), cortex_read('{query}', budget_tokens => 1000000), cortex_search('{query}', k => 1000)"
        ),
    );
    let asked = ask(&mut client, query, "");
    cancelled(
        &mut client,
        &format!(
            "SELECT cortex_verify({0}) FROM generate_series(1, 1000)",
            asked.id
        ),
    );
    must_verify(&mut client, asked.id, "L4");
}

#[test]
fn inv_11_a_read_of_all_claims_ends_in_seconds() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "SELECT cortex_source_put('s' || n, (SELECT string_agg('The valve number ' || g || ' of plant ' || n || ' is closed. ', '') FROM generate_series(1, 200) g)) \
               FROM generate_series(1, 40) n; SELECT cortex_work()",
        )
        .unwrap();
    // Repeated packing would make this quadratic; the statement's own timeout is the bound.
    client
        .batch_execute("SET statement_timeout = '30s'")
        .unwrap();
    let claims: i32 = one(
        &mut client,
        "SELECT jsonb_array_length(claims) FROM cortex_read('valve number', budget_tokens => 1000000)",
    );
    assert_eq!(claims, 8000);
}

#[test]
fn inv_11_dropping_the_extension_leaves_nothing_and_breaks_nothing() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note VALUES (1, 'The valve.'); SELECT cortex_bind('note'); SELECT cortex_work(); \
             SELECT cortex_space_register('m', '1', 'd', 4); SELECT cortex_space_use('default', 1)",
        )
        .unwrap();
    // The plain DROP says what would go.
    let (code, _) = failure(&mut client, "DROP EXTENSION cortex");
    assert_eq!(code, "2BP01");
    client
        .batch_execute("DROP EXTENSION cortex CASCADE")
        .unwrap();
    client.batch_execute("INSERT INTO note VALUES (2, 'x'); UPDATE note SET body = 'y'; DELETE FROM note WHERE id = 1; TRUNCATE note; ALTER TABLE note ADD COLUMN c int; DROP TABLE note").unwrap();
    let left: i64 = one(
        &mut client,
        "SELECT (SELECT count(*) FROM pg_namespace WHERE nspname = 'cortex') + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'cortex%') \
              + (SELECT count(*) FROM pg_event_trigger WHERE evtname LIKE 'cortex%') + (SELECT count(*) FROM pg_trigger WHERE tgname LIKE '%cortex%')",
    );
    assert_eq!(left, 0);
    // And comes back.
    client
        .batch_execute("CREATE EXTENSION cortex; SELECT cortex_source_put('a', 'The valve.')")
        .unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_search('valve')"),
        1
    );
}

#[test]
fn inv_11_nothing_that_exists_is_adopted() {
    for existing in [
        "CREATE SCHEMA cortex",
        "CREATE FUNCTION public.cortex_version() RETURNS text LANGUAGE sql AS 'SELECT ''mine'''",
        "CREATE FUNCTION public.cortex_seal() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
    ] {
        let database = Database::empty();
        let mut client = database.connect();
        client.batch_execute(existing).unwrap();
        let (code, _) = failure(&mut client, "CREATE EXTENSION cortex CASCADE");
        assert!(code == "42P06" || code == "42723", "{existing}: {code}");
    }
}

#[test]
fn inv_11_any_schema_will_do() {
    let database = Database::empty();
    let mut client = database.connect();
    // The server itself allows none of "$'\ in the schema of an extension.
    let schema = "\"Odd schema, ünd so; -- ()%I\"";
    client
        .batch_execute(&format!(
            "CREATE SCHEMA vectors; CREATE EXTENSION vector SCHEMA vectors; CREATE SCHEMA {schema}; CREATE EXTENSION cortex SCHEMA {schema}; \
             CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note VALUES (1, 'The valve.')"
        ))
        .unwrap();
    for call in [
        "cortex_bind('note')",
        "cortex_work()",
        "cortex_source_put('a', 'A valve.')",
        "cortex_space_register('m', '1', 'd', 4)",
        "cortex_space_use('default', 1)",
        "cortex_seal()",
        "cortex_health()",
        "cortex_search('valve')",
        "cortex_ask('valve')",
        "cortex_verify(1::bigint)",
        "cortex_drift(1)",
        "cortex_search('valve', '[1,2,3,4]'::vectors.vector)",
        "cortex_reconcile('note')",
        "cortex_pause('note')",
        "cortex_resume('note')",
        "cortex_work()",
        "cortex_grant('default', current_user::regrole)",
        "cortex_revoke('default', current_user::regrole)",
        "cortex_grant_worker(current_user::regrole)",
    ] {
        client
            .batch_execute(&format!("SELECT {schema}.{call}"))
            .unwrap_or_else(|error| panic!("{call}: {error:?}"));
    }
    let job: i64 = one(
        &mut client,
        &format!("SELECT job_id FROM {schema}.cortex_job_take('w', '{{embed}}')"),
    );
    client
        .batch_execute(&format!(
            "SELECT {schema}.cortex_embed_commit({job}, 'w', (SELECT array_agg(item_id) FROM {schema}.cortex_embed_take({job}, 'w', 1)), ARRAY['[1,2,3,4]'::vectors.vector]); \
             SELECT * FROM cortex.health"
        ))
        .unwrap();
    assert_eq!(
        one::<i64>(
            &mut client,
            &format!(
                "SELECT count(*) FROM {schema}.cortex_search('x', '[1,2,3,4]', mode => 'vector')"
            )
        ),
        1
    );
    let spaces: String = one(
        &mut client,
        "SELECT spaces #>> '{0,query}' FROM cortex.health",
    );
    assert_eq!(spaces, "ok");
    client
        .batch_execute(&format!(
            "SELECT {schema}.cortex_unbind('note'); DROP EXTENSION cortex CASCADE"
        ))
        .unwrap();
}

#[test]
fn inv_11_only_a_superuser_installs_it() {
    let database = Database::empty();
    let role = cortex_extension_tests::serving::Role::new(&database, "plain", "");
    let mut admin = database.connect();
    admin
        .batch_execute(&format!(
            "GRANT CREATE ON DATABASE {} TO {}; CREATE EXTENSION vector",
            database.name, role.name
        ))
        .unwrap();
    let (code, _) = failure(&mut role.login(&database), "CREATE EXTENSION cortex");
    assert_eq!(code, "42501");
}
