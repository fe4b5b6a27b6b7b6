//! The REST interface against a real database: the real server in this process, on a free port.

mod support;

use cortex_sidecar::config::Secret;
use cortex_sidecar::encoder::Encoder;
use serde_json::{Value, json};
use support::http::Server;
use support::{Database, Letters, put_sources, run, until, value};

/// A database with ten sources that are chunked, and a server in front of it.
async fn filled(encoder: Encoder) -> (Database, Server) {
    let database = Database::new().await;
    let mut session = database.session().await;
    put_sources(&mut session, 10).await;
    run(&mut session, "SELECT cortex_work()").await;
    let server = Server::start(&database.config(), encoder).await;
    (database, server)
}

fn no_model() -> Encoder {
    Encoder::absent("no model in this test")
}

#[tokio::test]
async fn health_tells_versions_queue_and_a_query_that_ran() {
    let (_database, server) = filled(no_model()).await;
    let health = server.get("/api/v1/health", 200).await.json();
    assert_eq!(health["status"], "ok", "{health}");
    assert_eq!(health["binary"], env!("CARGO_PKG_VERSION"));
    assert!(
        health["postgres"]
            .as_str()
            .is_some_and(|version| version.starts_with('1')),
        "{health}"
    );
    assert!(
        health["pgvector"].is_string() && health["extension"].is_string(),
        "{health}"
    );
    assert_eq!(health["read"]["vector"], false);
    assert_eq!(health["embedding"], "no model in this test");
    assert!(health["database"]["unsealed"].is_number(), "{health}");
    assert!(health["storage"]["durable"].is_boolean(), "{health}");
    assert!(
        health["storage"]["cortex_bytes"].as_i64().unwrap() > 0,
        "{health}"
    );
    assert_eq!(health["backlog"]["jobs_dead"], 0, "{health}");
    assert_eq!(health["worker"], Value::Null);
}

#[tokio::test]
async fn answers_are_the_bytes_that_sql_gives() {
    let (database, server) = filled(no_model()).await;
    let mut session = database.session().await;
    let question = "kestrel 'number' 7 hovered?";
    let quoted = question.replace('\'', "''");

    let body = server
        .post(
            "/api/v1/read",
            &json!({"question": question, "budget_tokens": 90}).to_string(),
            200,
        )
        .await
        .body;
    let same: String = value(
        &mut session,
        &format!("SELECT row_to_json(r)::text FROM cortex_read('{quoted}', NULL, 90) r"),
    )
    .await;
    assert_eq!(body, same);

    let body = server
        .post(
            "/api/v1/search",
            &json!({"question": question, "k": 3}).to_string(),
            200,
        )
        .await
        .json();
    let same: Vec<String> = {
        let text: String = value(
            &mut session,
            &format!("SELECT json_agg(s.body ORDER BY s.rank)::text FROM cortex_search('{quoted}', NULL, 3) s"),
        )
        .await;
        serde_json::from_str(&text).unwrap()
    };
    let bodies: Vec<&str> = body["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["body"].as_str().unwrap())
        .collect();
    assert_eq!(bodies, same);
    assert_eq!(bodies.len(), 3);
    let receipt: String = value(
        &mut session,
        &format!("SELECT min(s.receipt) FROM cortex_search('{quoted}', NULL, 3) s"),
    )
    .await;
    assert_eq!(body["receipt"], receipt.as_str());

    let asked = server
        .post(
            "/api/v1/traces",
            &json!({"question": question}).to_string(),
            200,
        )
        .await
        .json();
    let id = asked["trace_id"].as_i64().unwrap();
    let trace = server.get(&format!("/api/v1/traces/{id}"), 200).await.body;
    let same: String = value(&mut session, &format!("SELECT cortex_trace({id})")).await;
    assert_eq!(trace, same);
    let report = server
        .get(&format!("/api/v1/traces/{id}/verify"), 200)
        .await
        .body;
    let same: String = value(&mut session, &format!("SELECT cortex_verify({id})::text")).await;
    assert_eq!(report, same);
    let by_text = server
        .ask(
            "POST",
            "/api/v1/verify",
            "Content-Type: text/plain\r\n",
            &trace,
            200,
        )
        .await
        .json();
    assert_eq!(
        (by_text["ok"].clone(), by_text["level"].clone()),
        (json!(true), json!("L4")),
        "{by_text}"
    );
    let drift = server
        .get(&format!("/api/v1/traces/{id}/drift"), 200)
        .await
        .body;
    let same: String = value(&mut session, &format!("SELECT cortex_drift({id})::text")).await;
    assert_eq!(drift, same);

    let again = server
        .post(
            "/api/v1/traces",
            &json!({"question": question}).to_string(),
            200,
        )
        .await
        .json();
    assert_eq!(
        (again["trace_id"].as_i64(), again["already"].clone()),
        (Some(id), json!(true))
    );
}

#[tokio::test]
async fn a_question_of_the_verifiers_own_is_compared() {
    let (_database, server) = filled(no_model()).await;
    let asked = server
        .post("/api/v1/traces", r#"{"question":"kestrel"}"#, 200)
        .await
        .json();
    let path = format!("/api/v1/traces/{}/verify", asked["trace_id"]);
    assert_eq!(
        server
            .get(&format!("{path}?question=kestrel"), 200)
            .await
            .json()["ok"],
        true
    );
    let other = server
        .get(&format!("{path}?question=kestrels"), 200)
        .await
        .json();
    assert_eq!(
        (other["ok"].clone(), other["code"].clone()),
        (json!(false), json!("T_QUESTION"))
    );
}

#[tokio::test]
async fn inv_05_a_vector_is_compared_only_in_its_own_space() {
    let (database, server) = filled(Letters::encoder()).await;
    let mut session = database.session().await;
    let asked = r#"{"question":"kestrel"}"#;
    let arms = async || {
        server.post("/api/v1/read", asked, 200).await.json()["arms"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let trace_arms = async || {
        let id = server.post("/api/v1/traces", asked, 200).await.json()["trace_id"].clone();
        server
            .get(&format!("/api/v1/traces/{id}"), 200)
            .await
            .json()["rounds"][0]["receipt"]["arms"]
            .clone()
    };
    // No space yet.
    assert_eq!(
        (arms().await.as_str(), trace_arms().await),
        ("lexical", json!(["lexical"]))
    );
    // Another model, first with as many dimensions as ours, then with more.
    for dims in [8, 9] {
        let other = format!("cortex_space_register('test/other-{dims}', '1', 'b3:other', {dims})");
        run(
            &mut session,
            &format!("SELECT cortex_space_use('default', {other})"),
        )
        .await;
        assert_eq!(
            (arms().await.as_str(), trace_arms().await),
            ("lexical", json!(["lexical"])),
            "{dims}"
        );
        for mode in ["vector", "hybrid"] {
            let demanded = json!({"question": "kestrel", "mode": mode}).to_string();
            server.post("/api/v1/read", &demanded, 400).await;
        }
    }
    assert_eq!(
        server.get("/api/v1/health", 200).await.json()["read"]["vector"],
        false
    );
    let digest = format!("b3:{}", "0".repeat(64));
    let ours = format!("cortex_space_register('test/letters', '1', '{digest}', 8)");
    run(
        &mut session,
        &format!("SELECT cortex_space_use('default', {ours})"),
    )
    .await;
    assert_eq!(
        (arms().await.as_str(), trace_arms().await),
        ("lexical+vector", json!(["lexical", "vector"]))
    );
    assert_eq!(
        server.get("/api/v1/health", 200).await.json()["read"]["vector"],
        true
    );
    let lexical = server
        .post(
            "/api/v1/read",
            r#"{"question":"kestrel","mode":"lexical"}"#,
            200,
        )
        .await;
    assert_eq!(lexical.json()["arms"], "lexical");
    // No trace with another model's vectors was left behind.
    let wrong: i64 = value(
        &mut session,
        &format!("SELECT count(*) FROM cortex.traces t WHERE t.body #>> '{{rounds,0,receipt,space,digest}}' <> '{digest}'"),
    )
    .await;
    assert_eq!(wrong, 0);
}

#[tokio::test]
async fn a_role_with_a_grant_and_nothing_else_can_ask() {
    let (database, _) = filled(no_model()).await;
    let mut session = database.session().await;
    let digest = format!("b3:{}", "0".repeat(64));
    let role = format!("cortex_test_reader_{}", std::process::id());
    run(
        &mut session,
        &format!(
            "CREATE ROLE {role}; SELECT cortex_grant('default', '{role}');
             SELECT cortex_space_use('default', cortex_space_register('test/letters', '1', '{digest}', 8))"
        ),
    )
    .await;
    let mut config = database.config();
    let separator = if database.url.contains('?') { '&' } else { '?' };
    config.database.url = Secret::new(format!(
        "{}{separator}options=-c%20role%3D{role}",
        database.url
    ));
    let server = Server::start(&config, Letters::encoder()).await;
    let asked = r#"{"question":"kestrel"}"#;
    assert_eq!(
        server.post("/api/v1/read", asked, 200).await.json()["arms"],
        "lexical+vector"
    );
    server.post("/api/v1/search", asked, 200).await;
    let id = server.post("/api/v1/traces", asked, 200).await.json()["trace_id"].clone();
    assert_eq!(
        server
            .get(&format!("/api/v1/traces/{id}/verify"), 200)
            .await
            .json()["ok"],
        true
    );
    let refused = server
        .post(
            "/api/v1/sources",
            r#"{"artifact_id":"file:a","body":"x"}"#,
            403,
        )
        .await;
    assert_eq!(refused.json()["sqlstate"], "42501");
    server.stop.cancel();
    server.ended.await.unwrap().unwrap();
    run(
        &mut session,
        &format!("SELECT cortex_revoke('default', '{role}'); DROP ROLE {role}"),
    )
    .await;
}

#[tokio::test]
async fn sources_come_stay_and_go() {
    let database = Database::new().await;
    let server = Server::start(&database.config(), no_model()).await;
    let source = json!({"artifact_id": "web:https://example.org/a?b=c#d", "body": "A heron stood there.", "title": "Heron"});
    let path = "/api/v1/sources/web%3Ahttps%3A%2F%2Fexample.org%2Fa%3Fb%3Dc%23d";
    server.get(path, 404).await;
    let made = server
        .post("/api/v1/sources", &source.to_string(), 200)
        .await
        .json();
    assert_eq!(made["changed"], true, "{made}");
    let again = server
        .post("/api/v1/sources", &source.to_string(), 200)
        .await
        .json();
    assert_eq!(again["changed"], false, "{again}");
    let told = server.get(path, 200).await.json();
    assert_eq!(
        (
            &told["artifact_id"],
            &told["title"],
            &told["state"],
            &told["chunks"]
        ),
        (
            &source["artifact_id"],
            &source["title"],
            &json!("fresh"),
            &json!(1)
        ),
        "{told}"
    );
    let put = server
        .ask(
            "PUT",
            path,
            "Content-Type: application/json\r\n",
            r#"{"body":"Two herons stood there."}"#,
            200,
        )
        .await
        .json();
    assert_eq!(put["changed"], true, "{put}");
    let other = json!({"artifact_id": "web:other", "body": "x"}).to_string();
    server
        .ask(
            "PUT",
            path,
            "Content-Type: application/json\r\n",
            &other,
            400,
        )
        .await;
    server.ask("DELETE", path, "", "", 200).await;
    server.get(path, 404).await;
    server
        .ask("DELETE", "/api/v1/sources/web%3Anever", "", "", 404)
        .await;
}

#[tokio::test]
async fn bad_requests_say_what_is_wrong() {
    let (_database, server) = filled(no_model()).await;
    for (path, body, expected, code) in [
        ("/api/v1/read", "{", 400, "invalid_argument"),
        ("/api/v1/read", "[]", 400, "invalid_argument"),
        ("/api/v1/read", "{}", 400, "invalid_argument"),
        ("/api/v1/read", r#"{"question":1}"#, 400, "invalid_argument"),
        (
            "/api/v1/read",
            r#"{"question":"x","limit":3}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/read",
            r#"{"question":"x","question":"y"}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/read",
            r#"{"question":"x","k":3}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/search",
            r#"{"question":"x","budget_tokens":3}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/read",
            r#"{"question":"x","budget_tokens":0}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/search",
            r#"{"question":"x","k":0}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/search",
            r#"{"question":"x","mode":"psychic"}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/search",
            r#"{"question":"x","mode":"vector"}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/traces",
            r#"{"question":"x","policy":{"max_evidence":33}}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/traces",
            r#"{"question":"x","policy":{"max_evidense":3}}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/read",
            r#"{"question":"x\u0000y"}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/sources",
            r#"{"artifact_id":"file:a","body":"x\u0000y"}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/sources",
            r#"{"artifact_id":"","body":"x"}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/sources",
            r#"{"body":"x"}"#,
            400,
            "invalid_argument",
        ),
        (
            "/api/v1/read",
            r#"{"question":"x","namespace":"nowhere"}"#,
            404,
            "not_found",
        ),
    ] {
        let reply = server.post(path, body, expected).await.json();
        assert_eq!(reply["code"], code, "{path} {body}: {reply}");
        assert!(!reply["error"].as_str().unwrap().is_empty());
    }
    server.get("/api/v1/traces/999999", 404).await;
    server.get("/api/v1/traces/first", 400).await;
    server.get("/api/v1/traces/1/verify?q=x", 400).await;
    assert_eq!(
        server.get("/api/v2/read", 404).await.json()["code"],
        "no_such_path"
    );
    assert_eq!(
        server.get("/api/v1/read", 405).await.json()["code"],
        "no_such_method"
    );
    let plain = server
        .ask(
            "POST",
            "/api/v1/read",
            "Content-Type: text/plain\r\n",
            r#"{"question":"x"}"#,
            415,
        )
        .await;
    assert_eq!(plain.json()["code"], "wrong_media_type");
    // PostgreSQL's own words are kept.
    let reply = server
        .post(
            "/api/v1/search",
            r#"{"question":"x","namespace":"nowhere"}"#,
            404,
        )
        .await
        .json();
    assert_eq!(reply["sqlstate"], "42704", "{reply}");
    assert!(
        reply["error"].as_str().unwrap().contains("nowhere"),
        "{reply}"
    );
}

#[tokio::test]
async fn bad_traces_give_a_report_and_no_error() {
    let (_database, server) = filled(no_model()).await;
    let asked = server
        .post("/api/v1/traces", r#"{"question":"kestrel"}"#, 200)
        .await
        .json();
    let trace = server
        .get(&format!("/api/v1/traces/{}", asked["trace_id"]), 200)
        .await
        .body;
    let twice = trace.replacen("{\"", "{\"v\":\"trace/1\",\"", 1);
    let changed = trace.replacen("\"max_evidence\":12", "\"max_evidence\":11", 1);
    assert_ne!(changed, trace);
    for (text, code) in [
        ("", "T_PARSE"),
        ("{}", "T_STRUCT"),
        ("null", "T_STRUCT"),
        (&twice, "T_PARSE"),
        (&changed, "T_ROOT"),
    ] {
        let report = server
            .ask("POST", "/api/v1/verify", "", text, 200)
            .await
            .json();
        assert_eq!(report["ok"], false, "{text:.80}: {report}");
        assert_eq!(report["code"], code, "{text:.80}: {report}");
    }
}

#[tokio::test]
async fn a_read_is_recorded_off_its_path_and_takes_the_settings_of_the_pool() {
    let (database, _) = filled(no_model()).await;
    let mut session = database.session().await;
    run(
        &mut session,
        "SELECT cortex_profile_set('default', 'small', '{\"budget_tokens\": 12, \"strategy\": \"context_only\"}')",
    )
    .await;
    let server = Server::start(&database.config(), no_model()).await;
    let read = server
        .post("/api/v1/read", r#"{"question":"kestrel"}"#, 200)
        .await
        .json();
    assert_eq!(read["details"]["budget_tokens"], 1000, "{read}");
    let small = server
        .post(
            "/api/v1/read",
            r#"{"question":"kestrel","profile":"small"}"#,
            200,
        )
        .await
        .json();
    assert_eq!(small["details"]["budget_tokens"], 12);
    for (body, status) in [
        (r#"{"question":"kestrel","profile":"none"}"#, 404),
        (r#"{"question":"kestrel","strategy":"all"}"#, 400),
    ] {
        server.post("/api/v1/read", body, status).await;
    }
    server
        .post(
            "/api/v1/search",
            r#"{"question":"kestrel","profile":"small"}"#,
            400,
        )
        .await;
    // Twice the same receipt at the same state is one read.
    until(
        &mut session,
        "the read is recorded",
        "SELECT coalesce((cortex_stats() -> 'counters' ->> 'reads')::int, 0) = 1",
    )
    .await;
    let logged: i64 = value(&mut session, "SELECT count(*) FROM cortex.read_log").await;
    assert_eq!(logged, 1);
}
