//! Invariant 16: no answer shows what the caller could not select. Needs a server in CORTEX_TEST_PG18_URL or
//! CORTEX_TEST_PG16_URL.

use cortex_extension_tests::serving::{Role, ask, cortex_work, put, verify};
use cortex_extension_tests::{Database, failure, one};
use postgres::Client;

/// A table of two tenants with a policy that shows each its own rows, bound and chunked.
fn tenants(client: &mut Client) {
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, tenant text NOT NULL, title text, body text); \
             ALTER TABLE note ENABLE ROW LEVEL SECURITY; \
             CREATE POLICY own ON note USING (tenant = current_user); \
             INSERT INTO note SELECT g, CASE WHEN g % 2 = 0 THEN 'even' ELSE 'odd' END, 'Valve ' || g, \
                    'The pressure valve of machine ' || g || ' closes at midnight.' FROM generate_series(1, 40) g; \
             SELECT cortex_bind('note', text_columns => '{body}', title_column => 'title')",
        )
        .unwrap();
    cortex_work(client);
}

fn grant(client: &mut Client, role: &Role) {
    client
        .batch_execute(&format!(
            "SELECT cortex_create_namespace('default'); SELECT cortex_grant('default', '{}')",
            role.name
        ))
        .unwrap();
}

/// Everything that the readers' functions show a caller for a query, as one text.
fn all_shown(client: &mut Client, query: &str) -> String {
    let mut shown = String::new();
    for sql in [
        format!("SELECT artifact_id || ' ' || body || ' ' || coalesce(title, '') || ' ' || receipt FROM cortex_search('{query}', k => 100)"),
        format!("SELECT payload || claims::text || receipt FROM cortex_read('{query}', budget_tokens => 5000)"),
        format!("SELECT evidence::text FROM cortex_ask('{query}')"),
        "SELECT cortex_trace(trace_id) || cortex_verify(trace_id)::text || cortex_drift(trace_id)::text FROM cortex.traces".to_owned(),
        "SELECT coalesce(string_agg(t::text, ' '), '') FROM cortex.traces t".to_owned(),
        "SELECT coalesce(string_agg(t::text, ' '), '') FROM cortex.jobs t".to_owned(),
        "SELECT coalesce(string_agg(t::text, ' '), '') FROM cortex.bindings t".to_owned(),
        "SELECT coalesce(string_agg(t::text, ' '), '') FROM cortex.namespaces t".to_owned(),
    ] {
        for row in client.query(&sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}")) {
            shown.push_str(row.get(0));
        }
    }
    shown
}

#[test]
fn inv_16_row_level_security_of_the_table_holds() {
    let (database, mut client) = Database::with_cortex();
    tenants(&mut client);
    let reader = Role::new(&database, "even", "");
    grant(&mut client, &reader);
    client
        .batch_execute(&format!(
            "UPDATE note SET tenant = '{0}' WHERE tenant = 'even'; GRANT SELECT ON note TO {0}",
            reader.name
        ))
        .unwrap();
    let mut session = reader.login(&database);
    let rows = session
        .query(
            "SELECT artifact_id FROM cortex_search('pressure valve', k => 100)",
            &[],
        )
        .unwrap();
    assert_eq!(rows.len(), 20);
    let shown = all_shown(&mut session, "pressure valve");
    for id in 1..=40 {
        let there = shown.contains(&format!("row:note:[{id}]"));
        assert_eq!(there, id % 2 == 0, "row {id}");
        assert!(
            id % 2 == 0 || !shown.contains(&format!("machine {id} ")),
            "text of row {id}"
        );
    }
    // The trace says that candidates were withheld, and still verifies.
    let asked = ask(&mut session, "pressure valve", "");
    let report = verify(&mut session, asked.id);
    assert!(
        report["ok"] == true && report["level"] == "L4",
        "{report:#}"
    );
    // The policy changes: the very next read follows.
    client.batch_execute("DROP POLICY own ON note").unwrap();
    assert_eq!(
        session
            .query("SELECT FROM cortex_search('pressure valve', k => 100)", &[])
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn inv_16_no_select_no_answer() {
    let (database, mut client) = Database::with_cortex();
    tenants(&mut client);
    client
        .batch_execute("ALTER TABLE note DISABLE ROW LEVEL SECURITY")
        .unwrap();
    put(
        &mut client,
        "manual",
        "The pressure valve in the manual is blue.",
    );
    let reader = Role::new(&database, "reader", "");
    grant(&mut client, &reader);
    let mut session = reader.login(&database);
    let rows_shown = |session: &mut Client| -> usize {
        let rows = session
            .query(
                "SELECT artifact_id FROM cortex_search('pressure valve', k => 100)",
                &[],
            )
            .unwrap();
        let shown = all_shown(session, "pressure valve");
        assert!(shown.contains("manual"));
        // Traces of questions asked while the rows could be read keep naming them; the text is never shown.
        assert_eq!(rows.len() > 1, shown.contains("machine 2 "));
        rows.len() - 1
    };
    assert_eq!(rows_shown(&mut session), 0, "without any right");
    // Column by column: only with the last of the columns that an answer is made of.
    for columns in ["id", "body", "tenant"] {
        client
            .batch_execute(&format!(
                "GRANT SELECT ({columns}) ON note TO {}",
                reader.name
            ))
            .unwrap();
        assert_eq!(rows_shown(&mut session), 0, "with {columns}");
    }
    client
        .batch_execute(&format!("GRANT SELECT (title) ON note TO {}", reader.name))
        .unwrap();
    assert_eq!(rows_shown(&mut session), 40, "with all bound columns");
    client
        .batch_execute(&format!(
            "REVOKE SELECT (body) ON note FROM {0}",
            reader.name
        ))
        .unwrap();
    assert_eq!(rows_shown(&mut session), 0, "without body");
    client
        .batch_execute(&format!("GRANT SELECT ON note TO {}", reader.name))
        .unwrap();
    assert_eq!(rows_shown(&mut session), 40, "with the table");
}

#[test]
fn inv_16_a_table_in_a_schema_that_the_caller_may_not_use_is_left_out() {
    let (database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE SCHEMA hidden; CREATE TABLE hidden.note (id int PRIMARY KEY, body text); \
             INSERT INTO hidden.note VALUES (1, 'The hidden valve leaks.'); SELECT cortex_bind('hidden.note')",
        )
        .unwrap();
    cortex_work(&mut client);
    put(&mut client, "open", "The open valve is tight.");
    let reader = Role::new(&database, "reader", "");
    grant(&mut client, &reader);
    client
        .batch_execute(&format!("GRANT SELECT ON hidden.note TO {}", reader.name))
        .unwrap();
    let mut session = reader.login(&database);
    let found: Vec<String> = session
        .query("SELECT artifact_id FROM cortex_search('valve')", &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(
        found,
        ["open"],
        "one table out of reach does not take the others along"
    );
    client
        .batch_execute(&format!("GRANT USAGE ON SCHEMA hidden TO {}", reader.name))
        .unwrap();
    assert_eq!(
        session
            .query("SELECT FROM cortex_search('valve')", &[])
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn inv_16_set_role_and_security_definer_count_as_who_they_are() {
    let (database, mut client) = Database::with_cortex();
    tenants(&mut client);
    let (reader, login) = (
        Role::new(&database, "owner", ""),
        Role::new(&database, "login", "NOINHERIT"),
    );
    grant(&mut client, &reader);
    client
        .batch_execute(&format!(
            "UPDATE note SET tenant = '{0}' WHERE id <= 10; GRANT SELECT ON note TO {0}; GRANT {0} TO {1}; \
             GRANT CREATE ON SCHEMA public TO {0}; SET SESSION AUTHORIZATION {0}; \
             CREATE FUNCTION ask_for_all() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = public \
                 AS 'SELECT count(*) FROM cortex_search(''pressure valve'', k => 100)'; \
             CREATE FUNCTION ask_as_me() RETURNS bigint LANGUAGE sql \
                 AS 'SELECT count(*) FROM cortex_search(''pressure valve'', k => 100)'; \
             RESET SESSION AUTHORIZATION",
            reader.name, login.name
        ))
        .unwrap();
    let mut session = login.login(&database);
    // The member has not the right by itself (NOINHERIT), by SET ROLE it has, by the definer's function too.
    assert_eq!(
        failure(&mut session, "SELECT cortex_search('pressure valve')").0,
        "42501"
    );
    assert_eq!(failure(&mut session, "SELECT ask_as_me()").0, "42501");
    assert_eq!(one::<i64>(&mut session, "SELECT ask_for_all()"), 10);
    session
        .batch_execute(&format!("SET ROLE {}", reader.name))
        .unwrap();
    assert_eq!(
        one::<i64>(
            &mut session,
            "SELECT count(*) FROM cortex_search('pressure valve', k => 100)"
        ),
        10
    );
    let name: String = one(&mut session, "SELECT current_user::text");
    assert_eq!(name, reader.name, "the role is the caller's again");
    session.batch_execute("RESET ROLE").unwrap();
    assert_eq!(
        failure(&mut session, "SELECT cortex_search('pressure valve')").0,
        "42501"
    );
}

#[test]
fn inv_16_a_namespace_without_a_grant_does_not_exist() {
    let (database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "SELECT cortex_source_put('a', 'The red valve.', namespace => 'red'); SELECT cortex_source_put('b', 'The blue valve.', namespace => 'blue')",
        )
        .unwrap();
    let reader = Role::new(&database, "reader", "");
    client
        .batch_execute(&format!("SELECT cortex_grant('red', '{}')", reader.name))
        .unwrap();
    let blue: i64 = one(
        &mut client,
        "SELECT trace_id FROM cortex_ask('valve', namespace => 'blue')",
    );
    let blue_text: String = one(&mut client, &format!("SELECT cortex_trace({blue})"));
    let receipt: String = one(
        &mut client,
        "SELECT receipt FROM cortex_search('valve', namespace => 'blue')",
    );
    let mut session = reader.login(&database);
    assert_eq!(
        one::<String>(
            &mut session,
            "SELECT string_agg(namespace, ' ') FROM cortex.namespaces"
        ),
        "red"
    );
    for call in [
        "SELECT cortex_search('valve', namespace => '%')",
        "SELECT cortex_read('valve', namespace => '%')",
        "SELECT cortex_ask('valve', namespace => '%')",
        "SELECT cortex_has_source('b', '%')",
    ] {
        // Same words for one that is there and one that is not.
        let (there, absent) = (
            failure(&mut session, &call.replace('%', "blue")),
            failure(&mut session, &call.replace('%', "pink")),
        );
        assert_eq!(there.0, "42704");
        assert_eq!((there.0, there.1.replace("blue", "pink")), absent, "{call}");
    }
    for call in ["cortex_trace(%)", "cortex_verify(%)", "cortex_drift(%)"] {
        let (code, text) = failure(
            &mut session,
            &format!("SELECT {}", call.replace('%', &blue.to_string())),
        );
        let absent = failure(
            &mut session,
            &format!("SELECT {}", call.replace('%', "4711")),
        );
        assert_eq!(
            (code, text.replace(&blue.to_string(), "4711")),
            absent,
            "{call}"
        );
    }
    let log = session
        .query_one("SELECT cortex_read_log($1)", &[&receipt])
        .unwrap_err();
    assert_eq!(log.code().unwrap().code(), "42704");
    // The text of a trace from elsewhere is checked alone, never against a store its caller may not read.
    let report: String = session
        .query_one("SELECT cortex_verify($1, 'valve')::text", &[&blue_text])
        .unwrap()
        .get(0);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        (&report["ok"], &report["level"]),
        (&true.into(), &"L0".into()),
        "{report:#}"
    );
    assert!(!report.to_string().contains("blue valve"));
    client
        .batch_execute(&format!("SELECT cortex_revoke('red', '{}')", reader.name))
        .unwrap();
    for call in [
        "SELECT cortex_search('valve', namespace => 'red')",
        "SELECT cortex_version()",
        "SELECT * FROM cortex.namespaces",
        "SELECT * FROM cortex.traces",
    ] {
        assert_eq!(failure(&mut session, call).0, "42501", "{call}");
    }
}

#[test]
fn inv_16_a_trace_is_its_askers() {
    let (database, mut client) = Database::with_cortex();
    put(&mut client, "a", "The secret valve opens at noon.");
    let (alice, bob) = (
        Role::new(&database, "alice", ""),
        Role::new(&database, "bob", ""),
    );
    grant(&mut client, &alice);
    grant(&mut client, &bob);
    let mut alices = alice.login(&database);
    let asked = ask(&mut alices, "When does the secret valve open?", "");
    let mut bobs = bob.login(&database);
    for call in ["cortex_trace", "cortex_verify", "cortex_drift"] {
        assert_eq!(
            failure(&mut bobs, &format!("SELECT {call}({})", asked.id)).0,
            "42704",
            "{call}"
        );
    }
    assert_eq!(
        one::<i64>(&mut bobs, "SELECT count(*) FROM cortex.traces"),
        0
    );
    assert_eq!(
        one::<i64>(&mut alices, "SELECT count(*) FROM cortex.traces"),
        1
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.traces"),
        1
    );
    // A leaky condition must not see rows before the view has withheld them.
    client
        .batch_execute(&format!("GRANT CREATE ON SCHEMA public TO {}", bob.name))
        .unwrap();
    bobs.batch_execute(
        "CREATE TABLE leaked (what text); \
         CREATE FUNCTION leak(what text) RETURNS boolean LANGUAGE plpgsql COST 0.0000000001 \
             AS 'BEGIN INSERT INTO leaked VALUES (what); RETURN true; END'; \
         SELECT * FROM cortex.traces WHERE leak(trace_id::text || coalesce(body::text, '')); \
         SELECT * FROM cortex.traces WHERE leak(asked_by::text); \
         SELECT * FROM cortex.jobs WHERE leak(last_error); SELECT * FROM cortex.namespaces WHERE leak(model)",
    )
    .unwrap();
    let leaked: i64 = one(
        &mut bobs,
        "SELECT count(*) FROM leaked WHERE what IS NOT NULL",
    );
    assert_eq!(leaked, 0);
    // The same question of another role is another trace.
    let bobs_own = ask(&mut bobs, "When does the secret valve open?", "");
    assert_ne!(bobs_own.id, asked.id);
    assert!(!bobs_own.already);
}

#[test]
fn inv_16_readers_cannot_touch_the_tables_or_the_internal_functions() {
    let (database, mut client) = Database::with_cortex();
    tenants(&mut client);
    let reader = Role::new(&database, "reader", "");
    grant(&mut client, &reader);
    let mut session = reader.login(&database);
    let relations = client
        .query(
            "SELECT c.relname::text, c.relkind::text FROM pg_class c WHERE c.relnamespace = 'cortex'::regnamespace AND c.relkind IN ('r', 'v', 'S')",
            &[],
        )
        .unwrap();
    for row in relations {
        let (name, kind): (String, String) = (row.get(0), row.get(1));
        if [
            "namespaces",
            "bindings",
            "traces",
            "asks",
            "jobs",
            "pool_stats",
        ]
        .contains(&name.as_str())
        {
            session
                .batch_execute(&format!("SELECT * FROM cortex.{name}"))
                .unwrap();
        } else {
            assert_eq!(
                failure(&mut session, &format!("SELECT * FROM cortex.{name}")).0,
                "42501",
                "{name}"
            );
        }
        if kind == "r" {
            assert_eq!(
                failure(&mut session, &format!("DELETE FROM cortex.{name}")).0,
                "42501",
                "{name}"
            );
        }
    }
    let functions = client
        .query(
            "SELECT p.oid::regprocedure::text, p.proname::text, has_function_privilege($1::text, p.oid, 'EXECUTE') \
               FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' \
               JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'cortex'",
            &[&reader.name],
        )
        .unwrap();
    let readers = [
        "cortex_search",
        "cortex_read",
        "cortex_read_log",
        "cortex_ask",
        "cortex_ask_open",
        "cortex_ask_round",
        "cortex_ask_select",
        "cortex_ask_refine",
        "cortex_ask_answer",
        "cortex_ask_close",
        "cortex_ask_abandon",
        "cortex_verify",
        "cortex_verify_all",
        "cortex_explain",
        "cortex_dossier",
        "cortex_trace_evidence",
        "cortex_drift",
        "cortex_trace",
        "cortex_has_source",
        "cortex_source_list",
        "cortex_version",
        "cortex_build_want",
        "cortex_drill",
        "cortex_unit_claims",
        "cortex_events",
        "cortex_stats",
    ];
    for row in functions {
        let (signature, name, may): (String, String, bool) = (row.get(0), row.get(1), row.get(2));
        assert_eq!(may, readers.contains(&name.as_str()), "{signature}");
    }
    assert_eq!(
        failure(&mut session, "CREATE TABLE cortex.mine (id int)").0,
        "42501"
    );
}

/// Objects that shadow what our SQL names, in a schema that the caller puts before pg_catalog.
const MALICE: &str = "
    CREATE SCHEMA evil; GRANT ALL ON SCHEMA evil TO PUBLIC;
    CREATE TABLE evil.caught (who text, how text); GRANT ALL ON evil.caught TO PUBLIC;
    CREATE FUNCTION evil.trap(text) RETURNS void LANGUAGE plpgsql AS
        'BEGIN INSERT INTO evil.caught VALUES (current_user, $1); END';
    CREATE FUNCTION evil.format(text, VARIADIC \"any\") RETURNS text LANGUAGE internal AS 'text_format';
    CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE plpgsql AS 'BEGIN PERFORM evil.trap(''lower''); RETURN $1; END';
    CREATE FUNCTION evil.count(anyelement) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN PERFORM evil.trap(''count''); RETURN 7; END';
    CREATE FUNCTION evil.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS 'BEGIN PERFORM evil.trap(''unnest''); RETURN NEXT ''x''; END';
    CREATE FUNCTION evil.pg_has_role(name, text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM evil.trap(''role''); RETURN true; END';
    CREATE FUNCTION evil.pg_has_role(oid, oid, text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM evil.trap(''role''); RETURN true; END';
    CREATE FUNCTION evil.eq(int, int) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM evil.trap(''eq int''); RETURN true; END';
    CREATE OPERATOR evil.= (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.eq);
    CREATE FUNCTION evil.eq(text, text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM evil.trap(''eq text''); RETURN true; END';
    CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq);
    CREATE FUNCTION evil.eq(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM evil.trap(''eq bigint''); RETURN true; END';
    CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.eq);
    CREATE FUNCTION evil.cat(text, text) RETURNS text LANGUAGE plpgsql AS 'BEGIN PERFORM evil.trap(''cat''); RETURN $1; END';
    CREATE OPERATOR evil.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.cat);
    CREATE DOMAIN evil.text AS pg_catalog.text CHECK (evil.trap('domain') IS NOT NULL OR true);
    CREATE VIEW evil.pg_roles AS SELECT 'postgres'::name AS rolname, true AS rolsuper, 10::oid AS oid;
    CREATE TABLE evil.note AS SELECT 1 AS id, 'odd'::pg_catalog.text AS tenant, ''::pg_catalog.text AS title, ''::pg_catalog.text AS body;
";

#[test]
fn inv_16_a_search_path_with_traps_before_pg_catalog_changes_nothing() {
    let (database, mut client) = Database::with_cortex();
    tenants(&mut client);
    client.batch_execute(MALICE).unwrap();
    let reader = Role::new(&database, "reader", "");
    grant(&mut client, &reader);
    client
        .batch_execute(&format!(
            "UPDATE note SET tenant = '{0}' WHERE id = 2; GRANT SELECT ON note TO {0}",
            reader.name
        ))
        .unwrap();
    cortex_work(&mut client);
    let mut session = reader.login(&database);
    session
        .batch_execute(
            "CREATE TEMP TABLE namespace (id int, name pg_catalog.text); CREATE TEMP TABLE pg_class (oid oid); \
             SET search_path = evil, pg_temp, pg_catalog, public",
        )
        .unwrap();
    // The caller's own SQL is hit by the traps, so nothing of it is used here but the call.
    for call in [
        "SELECT FROM public.cortex_search('pressure valve', k => 100)",
        "SELECT FROM public.cortex_read('pressure valve')",
        "SELECT FROM public.cortex_ask('pressure valve')",
        "SELECT public.cortex_verify(1::pg_catalog.int8)",
        "SELECT public.cortex_drift(1)",
        "SELECT public.cortex_trace(1)",
        "SELECT public.cortex_has_source('row:note:[2]')",
        "SELECT * FROM cortex.namespaces",
        "SELECT * FROM cortex.bindings",
        "SELECT * FROM cortex.traces",
        "SELECT * FROM cortex.jobs",
    ] {
        session
            .batch_execute(call)
            .unwrap_or_else(|error| panic!("{call}: {error:?}"));
    }
    session.batch_execute("SET search_path = public").unwrap();
    assert_eq!(
        one::<i64>(
            &mut session,
            "SELECT pg_catalog.count(*) FROM cortex_search('pressure valve', k => 100)"
        ),
        1
    );
    // Writers and workers too: the superuser's own path is no better.
    client
        .batch_execute(
            "SET search_path = evil, pg_catalog, public; \
             SELECT public.cortex_source_put('a', 'The valve.'); SELECT public.cortex_source_changed('a'); SELECT public.cortex_source_deleted('a'); \
             UPDATE public.note SET body = 'The changed valve.' WHERE id OPERATOR(pg_catalog.=) 3; SELECT public.cortex_work(); \
             SELECT public.cortex_health(); SELECT public.cortex_space_register('m', '1', 'd', 3); SELECT public.cortex_space_use('default', 1); \
             SELECT public.cortex_grant('default', 'postgres'); SELECT public.cortex_revoke('default', 'postgres'); \
             SELECT public.cortex_seal(); SELECT * FROM cortex.claims; SELECT * FROM cortex.stale; SELECT * FROM cortex.health; \
             SELECT public.cortex_pause('note'); SELECT public.cortex_resume('note'); SELECT public.cortex_reconcile('note'); \
             SELECT public.cortex_unbind('note'); SET search_path = public",
        )
        .unwrap();
    let caught = client
        .query("SELECT who, how FROM evil.caught", &[])
        .unwrap();
    let caught: Vec<(String, String)> = caught.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(caught, Vec::new());
}

#[test]
fn inv_16_a_policy_function_runs_as_the_reader_and_cannot_become_another() {
    let (database, mut client) = Database::with_cortex();
    let (owner, reader) = (
        Role::new(&database, "owner", ""),
        Role::new(&database, "reader", ""),
    );
    grant(&mut client, &reader);
    // The table's owner writes a policy that tries to use whatever rights it finds itself with.
    client
        .batch_execute(&format!(
            "CREATE SCHEMA shop AUTHORIZATION {0}; GRANT USAGE ON SCHEMA shop TO PUBLIC; \
             CREATE TABLE public.secret (what text); INSERT INTO public.secret VALUES ('treasure'); \
             CREATE SEQUENCE public.escaped; GRANT USAGE ON SEQUENCE public.escaped TO PUBLIC; \
             SET SESSION AUTHORIZATION {0}; \
             CREATE TABLE shop.seen (who text, session text, path text, did text); GRANT INSERT ON shop.seen TO PUBLIC; \
             CREATE FUNCTION shop.look(n int) RETURNS boolean LANGUAGE plpgsql AS $f$ \
                DECLARE did text := ''; step text; \
                BEGIN \
                    FOREACH step IN ARRAY ARRAY['SELECT * FROM public.secret', 'SELECT * FROM cortex.namespace', 'SET ROLE postgres', \
                        'SET SESSION AUTHORIZATION postgres', 'RESET SESSION AUTHORIZATION', 'RESET ROLE', \
                        'ALTER ROLE {0} SUPERUSER', 'CREATE TABLE cortex.mine (id int)', 'SELECT cortex._random_key()', \
                        'SELECT set_config(''role'', ''postgres'', false)', \
                        'UPDATE cortex.namespace_grant SET role = 0'] LOOP \
                        BEGIN EXECUTE step; IF step NOT LIKE 'RESET%' THEN did := did || step || '; '; \
                              ELSIF current_user = 'postgres' THEN did := did || step || ' became postgres; '; END IF; \
                        EXCEPTION WHEN OTHERS THEN NULL; END; \
                    END LOOP; \
                    INSERT INTO shop.seen VALUES (current_user, session_user, current_setting('search_path'), did); \
                    RETURN true; \
                END $f$; \
             CREATE TABLE shop.item (id int PRIMARY KEY, body text); ALTER TABLE shop.item ENABLE ROW LEVEL SECURITY; \
             CREATE POLICY look ON shop.item USING (shop.look(id)); GRANT SELECT ON shop.item TO {1}; \
             INSERT INTO shop.item VALUES (1, 'The item valve.'); RESET SESSION AUTHORIZATION; SELECT cortex_bind('shop.item')",
            owner.name, reader.name
        ))
        .unwrap();
    cortex_work(&mut client);
    let mut session = reader.login(&database);
    session
        .batch_execute("SET search_path = public, shop")
        .unwrap();
    // Read in a call that is VOLATILE, so that the trap can write what it found.
    assert_eq!(
        one::<String>(&mut session, "SELECT status FROM cortex_ask('item valve')"),
        "ANSWERED"
    );
    let seen = client
        .query("SELECT who, path, did FROM shop.seen", &[])
        .unwrap();
    assert!(!seen.is_empty(), "the policy was not asked");
    for row in seen {
        let (who, path, did): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        assert_eq!(
            (who, path, did),
            (
                reader.name.clone(),
                "public, shop".to_owned(),
                String::new()
            )
        );
    }
    assert!(!one::<bool>(
        &mut client,
        &format!(
            "SELECT rolsuper FROM pg_roles WHERE rolname = '{}'",
            owner.name
        )
    ));
}

#[test]
fn inv_16_rights_come_back_after_errors_inside_a_read() {
    let (database, mut client) = Database::with_cortex();
    let reader = Role::new(&database, "reader", "");
    grant(&mut client, &reader);
    client
        .batch_execute(&format!(
            "CREATE FUNCTION fails(n int) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN 1 / (n - n) = 1; END'; \
             CREATE TABLE item (id int PRIMARY KEY, body text); ALTER TABLE item ENABLE ROW LEVEL SECURITY; \
             CREATE POLICY fails ON item USING (fails(id)); GRANT SELECT ON item TO {}; \
             INSERT INTO item VALUES (1, 'The item valve.'); SELECT cortex_bind('item')",
            reader.name
        ))
        .unwrap();
    cortex_work(&mut client);
    let mut session = reader.login(&database);
    session
        .batch_execute("SET search_path = public, pg_temp")
        .unwrap();
    let mut transaction = session.transaction().unwrap();
    for _ in 0..3 {
        let mut savepoint = transaction.savepoint("s").unwrap();
        let error = savepoint
            .query("SELECT * FROM cortex_search('valve')", &[])
            .unwrap_err();
        assert_eq!(
            error.code().unwrap().code(),
            "22012",
            "the policy's own error: {error:?}"
        );
        savepoint.rollback().unwrap();
        let row = transaction.query_one("SELECT current_user::text, current_setting('search_path'), current_setting('enable_sort')", &[]).unwrap();
        assert_eq!(
            (
                row.get::<_, String>(0),
                row.get::<_, String>(1),
                row.get::<_, String>(2)
            ),
            (
                reader.name.clone(),
                "public, pg_temp".to_owned(),
                "on".to_owned()
            )
        );
    }
}
