//! Settings and profiles of the pool, and who may do what with it. Needs a server in CORTEX_TEST_PG18_URL or
//! CORTEX_TEST_PG16_URL.

use cortex_extension_tests::pool::{build_all, modelled, reworded, take, want, wanted};
use cortex_extension_tests::serving::{Role, cortex_work, json, put};
use cortex_extension_tests::{Database, failure, one};
use postgres::Client;
use serde_json::json;

fn set(client: &mut Client, settings: &str) -> serde_json::Value {
    json(client, &format!("cortex_pool_set('default', '{settings}')"))
}

#[test]
fn settings_are_merged_and_put_back() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "SELECT cortex_create_namespace('default'), cortex_create_namespace('other')",
        )
        .unwrap();
    let defaults = set(&mut client, "{}");
    assert_eq!(
        defaults,
        json!({"gate": null, "coverage_floor": null, "reserved_share": 0.25, "reuse_threshold": 0.9, "builder": "extract", "build_when": "lazy",
               "reranker": null, "header": null, "hook_timeout_ms": 1000, "event_cap": 10000, "exact_items": 400000, "widen_chunks": null, "synthesis": {}})
    );
    set(&mut client, r#"{"gate": 0.4, "builder": "model"}"#);
    let both = set(
        &mut client,
        r#"{"synthesis": {"depth": null, "fields": ["a"]}, "event_cap": 5}"#,
    );
    assert_eq!(
        (&both["gate"], &both["builder"], &both["event_cap"]),
        (&json!(0.4), &json!("model"), &json!(5))
    );
    assert_eq!(
        both["synthesis"],
        json!({"depth": null, "fields": ["a"]}),
        "what is in it is its reader's"
    );
    let back = set(
        &mut client,
        r#"{"gate": null, "builder": null, "event_cap": null, "synthesis": null}"#,
    );
    assert_eq!(back, defaults);
    assert_eq!(
        json(&mut client, "cortex_pool_set('other', '{}')"),
        defaults
    );
    set(&mut client, r#"{"gate": 1}"#);
    assert_eq!(
        json(&mut client, "cortex_pool_set('other', '{}')"),
        defaults,
        "settings are of one namespace"
    );
}

#[test]
fn both_sides_of_every_limit() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "SELECT cortex_create_namespace('default'); \
             CREATE FUNCTION public.scores(text, text[]) RETURNS double precision[] LANGUAGE sql AS 'SELECT ARRAY[1.0::float8]'; \
             CREATE FUNCTION public.scores(text, text) RETURNS double precision[] LANGUAGE sql AS 'SELECT ARRAY[1.0::float8]'; \
             CREATE FUNCTION public.head(jsonb) RETURNS text LANGUAGE sql AS 'SELECT ''x'''; \
             CREATE FUNCTION public.heads(jsonb) RETURNS SETOF text LANGUAGE sql AS 'SELECT ''x'''",
        )
        .unwrap();
    for right in [
        r#"{"gate": 0}"#,
        r#"{"gate": 1}"#,
        r#"{"coverage_floor": 0.5}"#,
        r#"{"reserved_share": 0}"#,
        r#"{"reserved_share": 0.9}"#,
        r#"{"reuse_threshold": 1.0}"#,
        r#"{"hook_timeout_ms": 1}"#,
        r#"{"hook_timeout_ms": 60000}"#,
        r#"{"event_cap": 0}"#,
        r#"{"event_cap": 1000000}"#,
        r#"{"build_when": "eager"}"#,
        r#"{"build_when": "off"}"#,
        r#"{"builder": "extract"}"#,
        r#"{"reranker": "public.scores"}"#,
        r#"{"reranker": "public.scores(text, text[])"}"#,
        r#"{"header": "public.head"}"#,
        r#"{"header": null}"#,
        r#"{"synthesis": {"depth": 0.5}}"#,
    ] {
        set(&mut client, right);
    }
    assert_eq!(
        set(&mut client, "{}")["reranker"],
        "public.scores(text,text[])"
    );
    let long = format!(
        r#"{{"synthesis": {{"instruction": "{}"}}}}"#,
        "x".repeat(17_000)
    );
    for (wrong, code, says) in [
        (r#"{"gate": -0.01}"#, "22023", "gate is -0.01"),
        (r#"{"gate": 1.01}"#, "22023", "gate is 1.01"),
        (r#"{"gate": "0.5"}"#, "22023", "gate is \"0.5\""),
        (r#"{"gate": 1e400}"#, "22023", "gate is 1000"),
        (
            r#"{"coverage_floor": true}"#,
            "22023",
            "coverage_floor is true",
        ),
        (r#"{"reserved_share": 0.91}"#, "22023", "0.9"),
        (r#"{"reuse_threshold": 2}"#, "22023", "reuse_threshold is 2"),
        (r#"{"hook_timeout_ms": 0}"#, "22023", "from 1 to 60000"),
        (r#"{"hook_timeout_ms": 1.5}"#, "22023", "whole number"),
        (r#"{"hook_timeout_ms": 60001}"#, "22023", "from 1 to 60000"),
        (r#"{"event_cap": -1}"#, "22023", "event_cap is -1"),
        (r#"{"event_cap": 1000001}"#, "22023", "event_cap"),
        (r#"{"builder": "llm"}"#, "22023", "extract, model"),
        (r#"{"build_when": 3}"#, "22023", "lazy, eager, off"),
        (r#"{"reranker": "scores"}"#, "42883", "with its schema"),
        (r#"{"reranker": "public.head"}"#, "42883", "text,text[]"),
        (
            r#"{"reranker": "public.scores(text,text)"}"#,
            "42883",
            "text,text[]",
        ),
        (r#"{"reranker": 7}"#, "42883", "text,text[]"),
        (r#"{"header": "public.heads"}"#, "42883", "returns text"),
        (
            r#"{"header": "public.none(jsonb)"}"#,
            "42883",
            "returns text",
        ),
        (r#"{"synthesis": []}"#, "22023", "synthesis"),
        (r#"{"synthesis": {"a": [{"b": -1e400}]}}"#, "22023", "1e308"),
        (long.as_str(), "22023", "16384"),
        (
            r#"{"reserve_share": 0.5}"#,
            "22023",
            "The nearest is \"reserved_share\"",
        ),
        (r#"{"budget_tokens": 5}"#, "22023", "is no setting"),
        ("[]", "22023", "a JSON array"),
        ("7", "22023", "a JSON number"),
    ] {
        let (told, text) = failure(
            &mut client,
            &format!("SELECT cortex_pool_set('default', '{wrong}')"),
        );
        assert_eq!(told, code, "{wrong}: {text}");
        assert!(text.contains(says), "{wrong}: {text}");
    }
    assert_eq!(
        failure(&mut client, "SELECT cortex_pool_set('default', NULL)").0,
        "22023"
    );
    assert_eq!(
        failure(&mut client, "SELECT cortex_pool_set('nowhere', '{}')").0,
        "42704"
    );
    assert_eq!(
        failure(&mut client, "SELECT cortex_pool_set(NULL, '{}')").0,
        "42704"
    );
}

#[test]
fn profiles_are_named_sets_of_a_read() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute("SELECT cortex_create_namespace('default')")
        .unwrap();
    let full = r#"{"budget_tokens": 500, "strategy": "context_raw", "mode": "hybrid", "gate": 0.4, "coverage_floor": 0, "reserved_share": 0.5}"#;
    let told = json(
        &mut client,
        &format!("cortex_profile_set('default', 'short', '{full}')"),
    );
    assert_eq!(
        told,
        serde_json::from_str::<serde_json::Value>(full).unwrap()
    );
    assert_eq!(
        json(
            &mut client,
            "cortex_profile_set('default', 'short', '{\"gate\": 0.1, \"mode\": null}')"
        ),
        json!({"gate": 0.1})
    );
    assert_eq!(
        json(&mut client, "cortex._profile(1, 'short')"),
        json!({"gate": 0.1})
    );
    for (call, code, says) in [
        (
            r#"'default', 'short', '{"budget_tokens": 0}'"#,
            "22023",
            "budget_tokens is 0",
        ),
        (
            r#"'default', 'short', '{"budget_tokens": -4}'"#,
            "22023",
            "budget_tokens is -4",
        ),
        (
            r#"'default', 'short', '{"strategy": "all"}'"#,
            "22023",
            "context_first",
        ),
        (
            r#"'default', 'short', '{"mode": "fast"}'"#,
            "22023",
            "lexical",
        ),
        (
            r#"'default', 'short', '{"budget": 5}'"#,
            "22023",
            "The nearest is \"budget_tokens\"",
        ),
        (
            r#"'default', 'short', '{"builder": "model"}'"#,
            "22023",
            "no setting of a profile",
        ),
        ("'default', '', '{}'", "22023", "1 to 200 bytes"),
        ("'default', NULL, '{}'", "22023", "NULL"),
        ("'nowhere', 'short', '{}'", "42704", "nowhere"),
        (
            "'default', 'shirt', NULL",
            "42704",
            "The nearest is \"short\"",
        ),
    ] {
        let (told, text) = failure(&mut client, &format!("SELECT cortex_profile_set({call})"));
        assert_eq!(told, code, "{call}: {text}");
        assert!(text.contains(says), "{call}: {text}");
    }
    client
        .batch_execute("SELECT cortex_profile_set('default', 'short', NULL)")
        .unwrap();
    assert_eq!(
        failure(&mut client, "SELECT cortex._profile(1, 'short')").0,
        "42704"
    );
}

#[test]
fn readers_see_only_what_they_were_granted() {
    let (database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, tenant text NOT NULL, body text); \
             ALTER TABLE note ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON note USING (tenant = current_user); \
             INSERT INTO note SELECT g, 'x', 'The valve of machine ' || g || ' is red.' FROM generate_series(1, 4) g; \
             SELECT cortex_bind('note', text_columns => '{body}')",
        )
        .unwrap();
    put(&mut client, "open", "The pump of machine 9 is red.");
    cortex_work(&mut client);
    let reader = Role::new(&database, "reader", "");
    let stranger = Role::new(&database, "stranger", "");
    client
        .batch_execute(&format!(
            "SELECT cortex_create_namespace('other'); SELECT cortex_grant('default', '{0}'); SELECT cortex_grant('other', '{1}'); \
             GRANT SELECT ON note TO {0}, {1}; UPDATE note SET tenant = '{0}' WHERE id <= 2",
            reader.name, stranger.name
        ))
        .unwrap();
    cortex_work(&mut client);
    for artifact in [
        "row:note:[1]",
        "row:note:[2]",
        "row:note:[3]",
        "row:note:[4]",
        "open",
    ] {
        want(&mut client, artifact, &[]);
    }
    build_all(&mut client, reworded);
    let mut session = reader.login(&database);
    let mut outside = stranger.login(&database);
    let units: Vec<(i64, String)> = client
        .query(
            "SELECT unit_id, artifact_id FROM cortex.units WHERE state = 'fresh'",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    assert_eq!(units.len(), 10, "extracted and built, of each source");
    for (unit, artifact) in &units {
        let shown = session
            .query(&format!("SELECT body FROM cortex_drill({unit})"), &[])
            .unwrap()
            .len();
        let mine = ["row:note:[1]", "row:note:[2]", "open"].contains(&artifact.as_str());
        assert_eq!(shown, usize::from(mine), "{artifact}");
        assert_eq!(
            failure(&mut outside, &format!("SELECT * FROM cortex_drill({unit})")).0,
            "42704"
        );
        // In a namespace of one's own, another's unit does not exist.
        assert_eq!(
            failure(
                &mut outside,
                &format!("SELECT * FROM cortex_drill({unit}, 'other')")
            )
            .0,
            "42704"
        );
    }
    let row_of_mine = units
        .iter()
        .find(|(_, artifact)| artifact == "row:note:[1]")
        .unwrap()
        .0;
    let drill = format!("SELECT count(*) FROM cortex_drill({row_of_mine})");
    client
        .batch_execute(&format!("REVOKE SELECT ON note FROM {}", reader.name))
        .unwrap();
    assert_eq!(one::<i64>(&mut session, &drill), 0);
    client
        .batch_execute(&format!("GRANT SELECT ON note TO {}", reader.name))
        .unwrap();
    assert_eq!(one::<i64>(&mut session, &drill), 1);

    let open = wanted(&mut client, "open", &[]);
    for sql in [
        "SELECT * FROM cortex_events()".to_owned(),
        "SELECT cortex_stats()".to_owned(),
        format!("SELECT cortex_build_want('{open}')"),
    ] {
        session
            .batch_execute(&sql)
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let (code, text) = failure(&mut outside, &sql);
        assert_eq!(code, "42704", "{sql}: {text}");
        assert!(text.contains("that you may read"), "{text}");
    }
    assert!(one::<i64>(&mut session, "SELECT count(*) FROM cortex.pool_stats") > 0);
    assert_eq!(
        one::<i64>(&mut outside, "SELECT count(*) FROM cortex.pool_stats"),
        0
    );
    client.batch_execute("SELECT cortex_seal()").unwrap();
    // What events say of rows names none.
    let told: String = one(
        &mut session,
        "SELECT string_agg(detail::text, ' ') FROM cortex_events()",
    );
    assert!(!told.contains("note") && !told.contains("valve"), "{told}");
    let closed = [
        "SELECT * FROM cortex_build_take()",
        "SELECT cortex_build_commit(1, '[]')",
        "SELECT cortex_build_fail(1, 'x')",
        "SELECT cortex_unit_evict(1)",
        "SELECT cortex_pool_purge('default')",
        "SELECT cortex_pool_set('default', '{}')",
        "SELECT cortex_profile_set('default', 'x', '{}')",
        "SELECT * FROM cortex.units",
        "SELECT * FROM cortex.event",
        "SELECT * FROM cortex._counted",
        "SELECT cortex._build_want(1, '[]', NULL)",
        "SELECT cortex._read_logged(1, 1, true, NULL)",
    ];
    for sql in closed {
        assert_eq!(failure(&mut session, sql).0, "42501", "{sql}");
    }
    // Without any grant nothing can be called at all.
    client
        .batch_execute(&format!(
            "SELECT cortex_revoke('default', '{}')",
            reader.name
        ))
        .unwrap();
    for sql in [
        "SELECT * FROM public.cortex_events()",
        "SELECT public.cortex_stats()",
        "SELECT public.cortex_build_want('[]')",
        "SELECT * FROM public.cortex_drill(1)",
        "SELECT * FROM cortex.pool_stats",
    ] {
        assert_eq!(failure(&mut session, sql).0, "42501", "{sql}");
    }
    // A worker builds without a right on any table, and leaves the settings alone.
    client
        .batch_execute(&format!("SELECT cortex_grant_worker('{}')", reader.name))
        .unwrap();
    client.batch_execute(&format!("SELECT cortex_unit_evict(unit_id) FROM cortex.units WHERE purpose = 'model'; SELECT cortex_build_want('{open}')")).unwrap();
    let taken = take(&mut session, "w", "60 seconds").unwrap();
    session
        .batch_execute(&format!(
            "SELECT cortex_build_commit({}, '[\"The pump is red.\"]', worker => 'w')",
            taken.job
        ))
        .unwrap();
    for sql in [
        "SELECT cortex_pool_set('default', '{}')",
        "SELECT cortex_profile_set('default', 'x', '{}')",
        "SELECT * FROM cortex.job",
    ] {
        assert_eq!(failure(&mut session, sql).0, "42501", "{sql}");
    }
}
