//! The read of the claim pool: when it serves, builds or escalates, and what it says of itself. Needs a server in
//! CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use cortex_extension_tests::pool::{build_all, modelled, reworded};
use cortex_extension_tests::serving::{
    Role, cortex_work, embed_with, json, must_verify, put, use_space, vector_literal,
};
use cortex_extension_tests::{Database, failure, one};
use postgres::Client;
use serde_json::{Value, json};

/// One read with all it says; `arguments` follow the question.
fn read(client: &mut Client, question: &str, arguments: &str) -> Value {
    let comma = if arguments.is_empty() { "" } else { ", " };
    json(
        client,
        &format!("SELECT to_jsonb(r) FROM cortex_read('{question}'{comma}{arguments}) r"),
    )
}

fn artifacts(read: &Value) -> Vec<&str> {
    read["claims"]
        .as_array()
        .unwrap()
        .iter()
        .map(|claim| claim["artifact_id"].as_str().unwrap())
        .collect()
}

fn bodies(read: &Value) -> Vec<&str> {
    read["claims"]
        .as_array()
        .unwrap()
        .iter()
        .map(|claim| claim["body"].as_str().unwrap())
        .collect()
}

/// A direction in the plane of the first two of four axes, `cosine` away from the first.
fn at(cosine: f32) -> Vec<f32> {
    vec![cosine, (1.0 - cosine * cosine).sqrt(), 0.0, 0.0]
}

fn question() -> String {
    format!("'{}'", vector_literal(&at(1.0)))
}

/// One source a text, each of a vector with this cosine to the question.
fn corpus(client: &mut Client, texts: &[(&str, f32)]) {
    use_space_first(client);
    for (n, (text, _)) in texts.iter().enumerate() {
        put(client, &format!("s{n}"), text);
    }
    cortex_work(client);
    embed_at(client, texts);
}

fn use_space_first(client: &mut Client) {
    client
        .batch_execute("SELECT cortex_create_namespace('default')")
        .unwrap();
    use_space(client, "m", 4);
}

fn embed_at(client: &mut Client, texts: &[(&str, f32)]) {
    embed_with(client, |body, _| {
        let known = texts.iter().find(|(text, _)| body.contains(text));
        known.map_or_else(|| vec![0.0, 0.0, 1.0, 0.0], |(_, cosine)| at(*cosine))
    });
}

#[test]
fn the_gate_stands_where_it_is_set_and_the_floor_below_it() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client, &[("The pump is blue all over.", 0.55)]);
    let vector = format!("{}, mode => 'vector'", question());
    let mut gate = |gate: &str, floor: &str| {
        client
            .batch_execute(&format!(
                "SELECT cortex_pool_set('default', '{{\"gate\": {gate}, \"coverage_floor\": {floor}}}')"
            ))
            .unwrap();
        let read = read(&mut client, "x", &vector);
        (
            read["decision"].as_str().unwrap().to_owned(),
            read["needs_retrieval"].as_bool().unwrap(),
            // The one chunk is the one claim, so raw text would only say it again.
            read["details"]["escalated"].as_bool().unwrap() && read["raw"].is_null(),
        )
    };
    assert_eq!(gate("0.54", "0.4"), ("serve".into(), false, false));
    // Below the gate, above the floor, nothing to build: all there is has been served.
    assert_eq!(gate("0.56", "0.4"), ("serve".into(), false, false));
    assert_eq!(gate("0.56", "0.54"), ("serve".into(), false, false));
    assert_eq!(gate("0.56", "0.56"), ("escalate".into(), true, true));
    // Without an absolute gate the space's floor is the gate of a pool that nothing was measured in.
    assert_eq!(gate("null", "null"), ("serve".into(), false, false));
    client
        .batch_execute("SELECT cortex_space_calibrate(1, 0.56)")
        .unwrap();
    let read = read(&mut client, "x", &vector);
    assert_eq!(read["decision"], "escalate");
    assert!((read["coverage"].as_f64().unwrap() - 0.55).abs() < 1e-3);
    assert!((read["match_score"].as_f64().unwrap() - 0.55).abs() < 1e-3);
    assert_eq!(read["details"]["gate"], 0.56);
    for bad in ["0", "1", "-0.1", "'NaN'", "NULL"] {
        assert_eq!(
            failure(
                &mut client,
                &format!("SELECT cortex_space_calibrate(1, {bad})")
            )
            .0,
            "22023"
        );
    }
}

#[test]
fn an_empty_pool_never_serves_and_an_unknown_namespace_is_an_error() {
    let (_database, mut client) = Database::with_cortex();
    use_space_first(&mut client);
    client
        .batch_execute("SELECT cortex_pool_set('default', '{\"gate\": 0}')")
        .unwrap();
    let empty = read(&mut client, "pump", &question());
    assert_eq!(
        (
            &empty["decision"],
            &empty["needs_retrieval"],
            &empty["payload"],
            &empty["tokens"]
        ),
        (&json!("escalate"), &json!(true), &json!(""), &json!(0))
    );
    for (arguments, code) in [
        ("namespace => 'nowhere'", "42704"),
        ("strategy => 'context'", "22023"),
        ("profile => 'none'", "42704"),
        ("budget_tokens => 0", "22023"),
        ("mode => 'all'", "22023"),
    ] {
        let (found, text) = failure(
            &mut client,
            &format!("SELECT * FROM cortex_read('pump', {arguments})"),
        );
        assert_eq!(found, code, "{arguments}: {text}");
    }
}

#[test]
fn a_source_repeats_nothing_and_two_sources_are_two_witnesses() {
    let (_database, mut client) = Database::with_cortex();
    use_space_first(&mut client);
    put(
        &mut client,
        "a",
        "The pump is blue all over. The whole pump is painted blue. The pump weighs nine tons.",
    );
    put(&mut client, "b", "The pump is blue all over.");
    cortex_work(&mut client);
    // The first two are 0.96 alike, the third is 0.94 away from the first.
    let turned = |cosine: f32| vec![cosine, 0.0, (1.0 - cosine * cosine).sqrt(), 0.0];
    embed_with(&mut client, |body, _| match body {
        body if body.contains("painted") => turned(0.96),
        body if body.contains("weighs") => turned(-0.94),
        _ => turned(1.0),
    });
    let read_all =
        |client: &mut Client| read(client, "x", &format!("{}, mode => 'vector'", question()));
    let first = read_all(&mut client);
    assert_eq!(
        bodies(&first),
        [
            "The pump is blue all over.",
            "The pump is blue all over.",
            "The pump weighs nine tons."
        ]
    );
    let mut owners = artifacts(&first);
    owners.sort_unstable();
    assert_eq!(owners, ["a", "a", "b"]);
    assert_eq!(
        (
            &first["details"]["candidates_raw"],
            &first["details"]["candidates_unique"]
        ),
        (&json!(4), &json!(3))
    );
    // Stored vectors tell repetitions also where the question has none.
    let words = read(&mut client, "pump", "mode => 'lexical'");
    assert_eq!(words["claims"].as_array().unwrap().len(), 3);
}

#[test]
fn what_is_served_at_a_budget_is_a_prefix_with_raw_text_too() {
    let (_database, mut client) = Database::with_cortex();
    let texts: Vec<String> = (0..12)
        .map(|n| {
            format!("Pump number {n} in hall {n} is described here at some length, as it deserves.")
        })
        .collect();
    let texts: Vec<(&str, f32)> = texts.iter().map(|text| (text.as_str(), 0.2)).collect();
    corpus(&mut client, &texts);
    let mut claims_before: Vec<i64> = Vec::new();
    let mut raw_before: Vec<(i64, i64)> = Vec::new();
    for budget in (1..=400).step_by(7) {
        let read = read(
            &mut client,
            "pump hall",
            &format!("{}, budget_tokens => {budget}", question()),
        );
        assert!(read["tokens"].as_i64().unwrap() <= budget, "{read}");
        let claims: Vec<i64> = read["claims"]
            .as_array()
            .unwrap()
            .iter()
            .map(|claim| claim["claim_id"].as_i64().unwrap())
            .collect();
        let raw: Vec<(i64, i64)> = read["raw"]["chunks"]
            .as_array()
            .map(|chunks| {
                chunks
                    .iter()
                    .map(|chunk| {
                        (
                            chunk["chunk_id"].as_i64().unwrap(),
                            chunk["end_byte"].as_i64().unwrap(),
                        )
                    })
                    .collect()
            })
            .unwrap_or_default();
        assert!(claims.starts_with(&claims_before), "claims at {budget}");
        for (n, (chunk, end)) in raw_before.iter().enumerate() {
            assert!(
                raw.get(n)
                    .is_some_and(|now| now.0 == *chunk && now.1 >= *end),
                "raw text at {budget}: {raw_before:?} then {raw:?}"
            );
        }
        (claims_before, raw_before) = (claims, raw);
    }
    assert!(
        claims_before.len() > 3 && raw_before.len() > 1,
        "{claims_before:?} {raw_before:?}"
    );
    // The spans of raw text are those of the source.
    let read = read(
        &mut client,
        "pump hall",
        &format!("{}, budget_tokens => 120", question()),
    );
    for chunk in read["raw"]["chunks"].as_array().unwrap() {
        let (id, start, end) = (&chunk["chunk_id"], &chunk["start_byte"], &chunk["end_byte"]);
        let held: bool = one(
            &mut client,
            &format!(
                "SELECT position(left(c.body, {end} - {start}) IN $p${}$p$) > 0 FROM cortex.chunk c WHERE c.id = {id}",
                read["payload"].as_str().unwrap()
            ),
        );
        assert!(held, "{chunk}");
    }
    assert_eq!(
        self::read(
            &mut client,
            "pump hall",
            &format!("{}, strategy => 'context_only'", question())
        )["raw"],
        Value::Null
    );
}

const RERANKERS: &str = "
    CREATE FUNCTION longest(q text, t text[]) RETURNS float8[] LANGUAGE sql STABLE AS
        'SELECT array_agg(length(x)::float8 ORDER BY n) FROM unnest(t) WITH ORDINALITY u(x, n)';
    CREATE FUNCTION short(q text, t text[]) RETURNS float8[] LANGUAGE sql STABLE AS 'SELECT ARRAY[1.0]';
    CREATE FUNCTION nothing(q text, t text[]) RETURNS float8[] LANGUAGE sql STABLE AS 'SELECT NULL::float8[]';
    CREATE FUNCTION holes(q text, t text[]) RETURNS float8[] LANGUAGE sql STABLE AS
        'SELECT array_agg(CASE WHEN n = 2 THEN NULL ELSE n::float8 END) FROM unnest(t) WITH ORDINALITY u(x, n)';
    CREATE FUNCTION raises(q text, t text[]) RETURNS float8[] LANGUAGE sql STABLE AS 'SELECT ARRAY[1/0::float8]';
    CREATE FUNCTION sleeps(q text, t text[]) RETURNS float8[] LANGUAGE sql STABLE AS
        'SELECT ARRAY[1.0] FROM pg_sleep(30)';";

#[test]
fn a_reranker_changes_the_order_and_nothing_else_whatever_it_does() {
    let (_database, mut client) = Database::with_cortex();
    let texts = [
        ("The pump is blue all over.", 0.9),
        ("The pump is green and rather long in the tooth.", 0.8),
        ("The pump is red, says the manual.", 0.7),
    ];
    corpus(&mut client, &texts);
    client.batch_execute(RERANKERS).unwrap();
    let arguments = format!("{}, mode => 'vector'", question());
    let plain = read(&mut client, "pump", &arguments);
    assert_eq!(artifacts(&plain), ["s0", "s1", "s2"]);
    let mut with = |function: &str| {
        client
            .batch_execute(&format!(
                "SELECT cortex_pool_set('default', '{{\"reranker\": \"public.{function}(text, text[])\", \"hook_timeout_ms\": 200}}')"
            ))
            .unwrap();
        read(&mut client, "pump", &arguments)
    };
    let longest = with("longest");
    assert_eq!(artifacts(&longest), ["s1", "s2", "s0"]);
    assert_eq!(longest["details"]["reranked"], true);
    for (what, same) in [
        ("coverage", true),
        ("decision", true),
        ("receipt", true),
        ("match_score", false),
    ] {
        assert_eq!(longest[what] == plain[what], same, "{what}");
    }
    for (function, told) in [
        ("short", "1 scores for 3"),
        ("nothing", "NULL"),
        ("holes", "2 of 3"),
        ("raises", "division by zero"),
        ("sleeps", "200 ms"),
    ] {
        let read = with(function);
        assert_eq!(artifacts(&read), ["s0", "s1", "s2"], "{function}");
        let why = read["details"]["rerank_failed"].as_str().unwrap();
        assert!(why.contains(told), "{function}: {why}");
        assert_eq!(read["payload"], plain["payload"], "{function}");
    }
    // The statement's own deadline still holds, and a cancelled read is a cancelled read.
    client
        .batch_execute("SET statement_timeout = '100ms'")
        .unwrap();
    let (code, _) = failure(
        &mut client,
        &format!("SELECT * FROM cortex_read('pump', {arguments})"),
    );
    assert_eq!(code, "57014");
    client
        .batch_execute("SET statement_timeout = 0; DROP FUNCTION sleeps")
        .unwrap();
    let gone = read(&mut client, "pump", &arguments);
    assert!(
        gone["details"]["rerank_failed"]
            .as_str()
            .unwrap()
            .contains("does not exist")
    );
    assert_eq!(artifacts(&gone), ["s0", "s1", "s2"]);
}

#[test]
fn hooks_run_with_the_rights_of_who_reads() {
    let (database, mut client) = Database::with_cortex();
    corpus(&mut client, &[("The pump is blue all over.", 0.9)]);
    let role = Role::new(&database, "reader", "");
    client
        .batch_execute(&format!(
            "SELECT cortex_grant('default', '{0}'); CREATE TABLE secret (x text); INSERT INTO secret VALUES ('hidden');
             CREATE FUNCTION spy(q text, t text[]) RETURNS float8[] LANGUAGE sql STABLE AS 'SELECT ARRAY[length(x)::float8] FROM public.secret';
             CREATE FUNCTION whose(about jsonb) RETURNS text LANGUAGE sql STABLE AS
                 $$SELECT 'of ' || current_user || ' [' || (about ->> 'artifact_id') || ']'$$;
             SELECT cortex_pool_set('default', '{{\"reranker\": \"public.spy(text, text[])\", \"header\": \"public.whose(jsonb)\"}}')",
            role.name
        ))
        .unwrap();
    let mut reader = role.login(&database);
    let told = read(&mut reader, "pump", &question());
    let why = told["details"]["rerank_failed"].as_str().unwrap();
    assert!(why.contains("permission denied"), "{why}");
    assert!(
        told["payload"]
            .as_str()
            .unwrap()
            .starts_with(&format!("of {} [s0]\n- ", role.name)),
        "{}",
        told["payload"]
    );
    client
        .batch_execute("DROP FUNCTION whose(jsonb); CREATE FUNCTION whose(about jsonb) RETURNS text LANGUAGE sql STABLE AS 'SELECT (1/0)::text'")
        .unwrap();
    let told = read(&mut reader, "pump", &question());
    assert!(
        told["details"]["header_failed"]
            .as_str()
            .unwrap()
            .contains("division")
    );
    assert!(
        told["payload"]
            .as_str()
            .unwrap()
            .starts_with("[source: s0]\n- ")
    );
}

#[test]
fn owners_that_changed_are_named_until_they_are_back() {
    let (database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, tenant text, body text);
             INSERT INTO note VALUES (1, 'a', 'The pump is blue all over.'), (2, 'b', 'The pump is green all over.');
             SELECT cortex_bind('note', text_columns => '{body}')",
        )
        .unwrap();
    cortex_work(&mut client);
    let named = |read: &Value| -> Vec<String> {
        read["masked"]
            .as_array()
            .unwrap()
            .iter()
            .map(|owner| {
                owner["artifact_id"]
                    .as_str()
                    .unwrap_or_else(|| owner["reason"].as_str().unwrap())
                    .to_owned()
            })
            .collect()
    };
    assert!(named(&read(&mut client, "pump", "")).is_empty());
    client
        .batch_execute("UPDATE note SET body = 'The pump is red all over.' WHERE id = 1")
        .unwrap();
    let unsealed = read(&mut client, "is the pump blue", "");
    assert_eq!(artifacts(&unsealed), ["row:note:[2]"]);
    assert_eq!(named(&unsealed), ["row:note:[1]"]);
    client.batch_execute("SELECT cortex_seal()").unwrap();
    assert_eq!(
        named(&read(&mut client, "is the pump blue", "")),
        ["row:note:[1]"],
        "queued"
    );
    assert!(
        named(&read(&mut client, "something else entirely", "")).is_empty(),
        "an owner that never answered this is not named"
    );
    // Only to those who can see the row.
    let role = Role::new(&database, "tenant", "");
    client
        .batch_execute(&format!(
            "SELECT cortex_grant('default', '{0}'); GRANT SELECT ON note TO {0}; ALTER TABLE note ENABLE ROW LEVEL SECURITY;
             CREATE POLICY own ON note TO {0} USING (tenant = 'b')",
            role.name
        ))
        .unwrap();
    let mut tenant = role.login(&database);
    assert!(named(&read(&mut tenant, "is the pump blue", "")).is_empty());
    cortex_work(&mut client);
    let back = read(&mut client, "is the pump red", "");
    assert!(named(&back).is_empty());
    assert_eq!(bodies(&back)[0], "The pump is red all over.");
    client.batch_execute("SELECT cortex_pause('note')").unwrap();
    assert_eq!(named(&read(&mut client, "pump", "")), ["held: paused"]);
}

#[test]
fn a_question_that_was_built_is_known_again_and_hides_no_stale_part() {
    let (_database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({"gate": 0.9, "coverage_floor": 0.1}));
    use_space(&mut client, "m", 4);
    let texts = [("The pump is blue", 0.5), ("The valve is green", 0.5)];
    put(&mut client, "a", "The pump is blue all over.");
    put(&mut client, "b", "The valve is green all over.");
    cortex_work(&mut client);
    embed_at(&mut client, &texts);
    let arguments = format!("{}, mode => 'vector'", question());
    let first = read(&mut client, "pump and valve", &arguments);
    assert_eq!(first["decision"], "build");
    let wanted = first["wanted"].as_array().unwrap();
    assert_eq!(wanted.len(), 2);
    assert!(
        wanted.iter().all(|want| want["class"] == "NOVEL"),
        "{wanted:?}"
    );
    // Reading asks for nothing by itself.
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.job WHERE kind = 'build'"
        ),
        0
    );
    let want = |client: &mut Client, read: &Value| {
        json(
            client,
            &format!(
                "cortex_build_want('{}', query_embedding => {})",
                read["wanted"].to_string().replace('\'', "''"),
                question()
            ),
        )
    };
    assert_eq!(want(&mut client, &first)["queued"], 2);
    assert_eq!(want(&mut client, &first)["already"], 2);
    build_all(&mut client, reworded);
    // As similar to the question as the sentences of the source, and not to them.
    let aside = |client: &mut Client| {
        embed_with(client, |body, _| match body.starts_with("It is known") {
            true => vec![0.5, 0.0, 0.75_f32.sqrt(), 0.0],
            false => at(0.5),
        });
    };
    aside(&mut client);
    let second = read(&mut client, "pump and valve", &arguments);
    assert_eq!(second["decision"], "reuse", "{second}");
    assert_eq!(second["wanted"], json!([]));
    assert!(second["details"]["saved"]["m"].as_i64().unwrap() > 0);
    // A question that is not the same gains nothing by it.
    let other = format!(
        "'{}', mode => 'vector'",
        vector_literal(&[0.85, 0.0, 0.526_782_7, 0.0])
    );
    assert_ne!(
        read(&mut client, "pump and valve", &other)["decision"],
        "reuse"
    );
    // One of its sources changes: the fresh sibling does not stand for it.
    put(&mut client, "b", "The valve is yellow all over.");
    cortex_work(&mut client);
    embed_with(&mut client, |_, _| at(0.5));
    let third = read(&mut client, "pump and valve", &arguments);
    assert_eq!(third["decision"], "build", "{third}");
    let wanted = third["wanted"].as_array().unwrap();
    assert_eq!(
        (wanted.len(), &wanted[0]["artifact_id"], &wanted[0]["class"]),
        (1, &json!("b"), &json!("STALE-OWNED"))
    );
    assert!(bodies(&third).iter().all(|body| !body.contains("green")));
    want(&mut client, &third);
    build_all(&mut client, reworded);
    aside(&mut client);
    let fourth = read(&mut client, "pump and valve", &arguments);
    assert_eq!(fourth["decision"], "reuse", "{fourth}");
    // An evicted unit is not served, and its source is wanted again.
    let unit: i64 = one(
        &mut client,
        "SELECT unit_id FROM cortex.units WHERE artifact_id = 'a' AND purpose = 'model' AND state = 'fresh'",
    );
    client
        .batch_execute(&format!("SELECT cortex_unit_evict({unit})"))
        .unwrap();
    let fifth = read(&mut client, "pump and valve", &arguments);
    assert_eq!(fifth["decision"], "build");
    assert!(
        bodies(&fifth)
            .iter()
            .all(|body| !body.starts_with("It is known that: The pump"))
    );
}

#[test]
fn the_adaptive_gate_rises_with_the_noise_and_stays_in_its_band() {
    let (_database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({"coverage_floor": 0.1}));
    use_space(&mut client, "m", 4);
    let gate = |client: &mut Client| {
        read(client, "x", &format!("{}, mode => 'vector'", question()))["details"]["gate"]
            .as_f64()
            .unwrap()
    };
    assert_eq!(gate(&mut client), 0.4);
    // Ten sources, each built for a question of its own, all questions 0.5 away from every claim.
    for n in 0..10 {
        put(
            &mut client,
            &format!("s{n}"),
            &format!("Pump {n} is blue all over."),
        );
    }
    cortex_work(&mut client);
    embed_with(&mut client, |_, _| at(1.0));
    let ask = format!("'{}'", vector_literal(&[0.5, 0.0, 0.75_f32.sqrt(), 0.0]));
    for n in 0..10 {
        let wanted = cortex_extension_tests::pool::wanted(&mut client, &format!("s{n}"), &[]);
        json(
            &mut client,
            &format!("cortex_build_want('{wanted}', query_embedding => {ask})"),
        );
        build_all(&mut client, reworded);
        embed_with(&mut client, |_, _| at(1.0));
        let measured = gate(&mut client);
        // Seven are too few to speak of noise.
        let expected = if n < 7 { 0.4 } else { 0.52 };
        assert!(
            (measured - expected).abs() < 1e-3,
            "after {} builds: {measured}",
            n + 1
        );
    }
    let told = json(&mut client, "cortex_gate_measure('default')");
    assert_eq!(told["probes"], 10);
    assert!((told["ceiling"].as_f64().unwrap() - 0.5).abs() < 1e-3);
    client
        .batch_execute("SELECT cortex_pool_set('default', '{\"gate\": 0.3}')")
        .unwrap();
    assert_eq!(gate(&mut client), 0.3);
}

#[test]
fn profiles_and_reads_that_only_read() {
    let (_database, mut client) = Database::with_cortex();
    corpus(
        &mut client,
        &[
            ("The pump is blue all over.", 0.9),
            ("The valve is green all over.", 0.8),
        ],
    );
    client
        .batch_execute("SELECT cortex_profile_set('default', 'small', '{\"budget_tokens\": 20, \"mode\": \"vector\", \"strategy\": \"context_only\"}')")
        .unwrap();
    client.batch_execute("BEGIN READ ONLY").unwrap();
    let small = read(
        &mut client,
        "pump",
        &format!("{}, profile => 'small'", question()),
    );
    assert_eq!(
        (
            &small["details"]["budget_tokens"],
            &small["arms"],
            small["claims"].as_array().unwrap().len()
        ),
        (&json!(20), &json!("vector"), 1)
    );
    // What the caller says himself counts more.
    let large = read(
        &mut client,
        "pump",
        &format!(
            "{}, profile => 'small', budget_tokens => 500, mode => 'hybrid'",
            question()
        ),
    );
    assert_eq!(
        (
            &large["details"]["budget_tokens"],
            &large["arms"],
            large["claims"].as_array().unwrap().len()
        ),
        (&json!(500), &json!("lexical+vector"), 2)
    );
    assert!(one::<bool>(
        &mut client,
        "SELECT pg_current_xact_id_if_assigned() IS NULL"
    ));
    client.batch_execute("COMMIT").unwrap();
    // Inside a transaction with changes of its own it says so.
    client.batch_execute("BEGIN").unwrap();
    put(&mut client, "late", "The pump is black.");
    assert_eq!(read(&mut client, "pump", "")["uncommitted"], true);
    client.batch_execute("COMMIT").unwrap();
    assert_eq!(read(&mut client, "pump", "")["uncommitted"], false);
    let logged = "SELECT cortex_read_log(receipt, details) FROM cortex_read('pump')";
    let id: i64 = one(&mut client, logged);
    assert_eq!(one::<i64>(&mut client, logged), id, "the same read is one");
    assert_eq!(json(&mut client, "cortex_stats()")["counters"]["reads"], 1);
    let asked = cortex_extension_tests::serving::ask(&mut client, "pump", "");
    must_verify(&mut client, asked.id, "L4");
}
