//! The REST interface against a real database: the real server in this process, on a free port.

mod support;

use cortex_sidecar::config::Secret;
use cortex_sidecar::encoder::Encoder;
use cortex_sidecar::http as service;
use serde_json::{Value, json};
use support::http::Server;
use support::{Database, Letters, put_sources, run, value};

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
    assert_eq!(health["search"]["vector"], false);
    assert_eq!(health["embedding"], "no model in this test");
    assert!(health["database"]["unsealed"].is_number(), "{health}");
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
async fn the_vector_goes_along_only_into_the_models_own_space() {
    let (database, server) = filled(Letters::encoder()).await;
    let mut session = database.session().await;
    let asked = r#"{"question":"kestrel"}"#;
    // No space yet.
    assert_eq!(
        server.post("/api/v1/read", asked, 200).await.json()["arms"],
        "lexical"
    );
    // Another model with the same number of dimensions.
    let other = "cortex_space_register('test/other', '1', 'b3:other', 8)";
    run(
        &mut session,
        &format!("SELECT cortex_space_use('default', {other})"),
    )
    .await;
    assert_eq!(
        server.post("/api/v1/read", asked, 200).await.json()["arms"],
        "lexical"
    );
    let digest = format!("b3:{}", "0".repeat(64));
    let ours = format!("cortex_space_register('test/letters', '1', '{digest}', 8)");
    run(
        &mut session,
        &format!("SELECT cortex_space_use('default', {ours})"),
    )
    .await;
    assert_eq!(
        server.post("/api/v1/read", asked, 200).await.json()["arms"],
        "lexical+vector"
    );
    assert_eq!(
        server.get("/api/v1/health", 200).await.json()["search"]["vector"],
        true
    );
    let lexical = server
        .post(
            "/api/v1/read",
            r#"{"question":"kestrel","mode":"lexical"}"#,
            200,
        )
        .await
        .json();
    assert_eq!(lexical["arms"], "lexical");
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
    assert_eq!(
        server.get(path, 200).await.json()["artifact_id"],
        source["artifact_id"]
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
async fn bodies_are_limited() {
    let database = Database::new().await;
    let mut config = database.config();
    config.server.body_limit_bytes = 1_024;
    let server = Server::start(&config, no_model()).await;
    let body = |length: usize| {
        let frame = json!({"artifact_id": "file:a", "body": ""})
            .to_string()
            .len();
        json!({"artifact_id": "file:a", "body": "x".repeat(length - frame)}).to_string()
    };
    server.post("/api/v1/sources", &body(1_024), 200).await;
    assert_eq!(
        server
            .post("/api/v1/sources", &body(1_025), 413)
            .await
            .json()["code"],
        "too_large"
    );
    server
        .ask("POST", "/api/v1/verify", "", &"x".repeat(1_025), 413)
        .await;
}

#[tokio::test]
async fn a_key_opens_and_nothing_else_does() {
    let database = Database::new().await;
    let mut config = database.config();
    config.server.key = Secret::new("0123456789abcdef");
    let server = Server::start(&config, no_model()).await;
    for headers in [
        "",
        "Authorization: Bearer 0123456789abcdeg\r\n",
        "Authorization: Bearer 0123456789abcdef0\r\n",
        "Authorization: Basic 0123456789abcdef\r\n",
        "Authorization: Bearer \r\n",
    ] {
        let reply = server.ask("GET", "/api/v1/health", headers, "", 401).await;
        assert_eq!(reply.json()["code"], "no_key");
        assert!(
            reply.headers.contains("www-authenticate: bearer"),
            "{}",
            reply.headers
        );
    }
    server
        .ask(
            "GET",
            "/api/v1/health",
            "Authorization: Bearer 0123456789abcdef\r\n",
            "",
            200,
        )
        .await;
    server.get("/api/v1/openapi.json", 200).await;
    server.get("/api/v1/docs", 200).await;
    // A path that does not exist is no way to learn which do.
    server.get("/api/v1/nothing", 401).await;
}

#[tokio::test]
async fn without_a_key_other_hosts_names_are_refused() {
    let database = Database::new().await;
    let server = Server::start(&database.config(), no_model()).await;
    for (host, expected) in [
        ("localhost", 200),
        ("LOCALHOST:7411", 200),
        ("127.0.0.1", 200),
        ("127.9.9.9:1", 200),
        ("[::1]:7411", 200),
        ("example.org", 403),
        ("example.org:7411", 403),
        ("127.0.0.1.example.org", 403),
        ("localhost.example.org", 403),
        ("192.0.2.7", 403),
        ("", 403),
    ] {
        let request = format!(
            "GET /api/v1/openapi.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(
            server.send(request.as_bytes()).await.status,
            expected,
            "{host:?}"
        );
    }
}

#[tokio::test]
async fn every_answer_has_an_id_of_its_own() {
    let database = Database::new().await;
    let server = Server::start(&database.config(), no_model()).await;
    let mut seen = std::collections::BTreeSet::new();
    for path in ["/api/v1/docs", "/api/v1/docs", "/api/v1/health", "/nothing"] {
        let reply = server
            .send(
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    .as_bytes(),
            )
            .await;
        let id = reply
            .headers
            .lines()
            .find_map(|line| line.strip_prefix("x-request-id: "))
            .unwrap()
            .to_owned();
        assert!(seen.insert(id), "an id came twice");
    }
}

#[tokio::test]
async fn the_page_needs_no_network() {
    let database = Database::new().await;
    let server = Server::start(&database.config(), no_model()).await;
    let page = server.get("/api/v1/docs", 200).await;
    assert!(
        page.headers.contains("content-type: text/html"),
        "{}",
        page.headers
    );
    for (method, path) in service::routes() {
        assert!(
            page.body
                .contains(&format!("{} {path}", method.to_uppercase())),
            "{method} {path}"
        );
    }
    for remote in ["http://", "https://", "<script", "<link", "@import", "url("] {
        assert!(!page.body.contains(remote), "{remote}");
    }
}

#[tokio::test]
async fn without_postgres_health_is_red_and_requests_say_why() {
    let mut config = support::defaults();
    config.database.url = Secret::new("postgresql://me:secret-word@127.0.0.1:1/nothing");
    config.database.connect_timeout_s = 1;
    let server = Server::start(&config, no_model()).await;
    let health = server.ask("GET", "/api/v1/docs", "", "", 200).await;
    assert_eq!(health.status, 200);
    let request = "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let health = server.send(request.as_bytes()).await;
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["status"], "down");
    assert_eq!(health.json()["error"]["code"], "postgres_unreachable");
    let reply = server
        .post("/api/v1/read", r#"{"question":"x"}"#, 503)
        .await;
    assert_eq!(reply.json()["code"], "postgres_unreachable");
    assert!(!reply.body.contains("secret-word") && !health.body.contains("secret-word"));
}

#[tokio::test]
async fn without_the_extension_requests_say_how_to_get_it() {
    let database = Database::new().await;
    let mut session = database.session().await;
    run(&mut session, "DROP EXTENSION cortex CASCADE").await;
    let server = Server::start(&database.config(), no_model()).await;
    let reply = server
        .post("/api/v1/read", r#"{"question":"x"}"#, 503)
        .await
        .json();
    assert_eq!(reply["code"], "extension_missing");
    assert!(
        reply["hint"]
            .as_str()
            .unwrap()
            .contains("CREATE EXTENSION cortex"),
        "{reply}"
    );
    // Nothing has to be restarted once it is there.
    run(&mut session, "CREATE EXTENSION cortex CASCADE").await;
    put_sources(&mut session, 1).await;
    run(&mut session, "SELECT cortex_work()").await;
    server
        .post("/api/v1/read", r#"{"question":"kestrel"}"#, 200)
        .await;
}

#[tokio::test]
async fn an_extension_in_another_schema_is_found() {
    let database = Database::new().await;
    let mut session = database.session().await;
    run(
        &mut session,
        "DROP EXTENSION cortex CASCADE; DROP EXTENSION vector; CREATE SCHEMA \"My Tools\"; CREATE SCHEMA v;
         CREATE EXTENSION vector SCHEMA v; CREATE EXTENSION cortex SCHEMA \"My Tools\"",
    )
    .await;
    let server = Server::start(&database.config(), Letters::encoder()).await;
    let source = r#"{"artifact_id":"file:a","body":"A heron stood there."}"#;
    server.post("/api/v1/sources", source, 200).await;
    run(&mut session, "SELECT \"My Tools\".cortex_work()").await;
    let read = server
        .post("/api/v1/read", r#"{"question":"heron"}"#, 200)
        .await
        .json();
    assert!(
        read["payload"]
            .as_str()
            .unwrap()
            .contains("A heron stood there."),
        "{read}"
    );
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = support::defaults();
    config.server.listen = taken.local_addr().unwrap();
    let failure = service::bind(&config).await.err().unwrap();
    assert_eq!(failure.kind.exit_code(), 5);
    assert!(
        failure.message.contains(&config.server.listen.to_string()),
        "{failure}"
    );
    assert!(failure.hint.unwrap().contains("server.listen"));
}

#[tokio::test]
async fn stopping_lets_running_requests_end() {
    let database = Database::new().await;
    let server = Server::start(&database.config(), no_model()).await;
    let mut other = database.session().await;
    // An open transaction holds the name, so the request has to wait for it.
    run(
        &mut other,
        "BEGIN; SELECT cortex_source_put('file:held', 'First.')",
    )
    .await;
    let address = server.address.clone();
    let request = tokio::spawn(async move {
        let body = r#"{"artifact_id":"file:held","body":"Second."}"#;
        let request = format!(
            "POST /api/v1/sources HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        support::http::send(&address, request.as_bytes()).await
    });
    let mut watcher = database.session().await;
    support::until(
        &mut watcher,
        "the request waits",
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'cortex service' AND wait_event_type = 'Lock')",
    )
    .await;
    server.stop.cancel();
    // No new connection is taken ...
    let started = std::time::Instant::now();
    while tokio::net::TcpStream::connect(&server.address)
        .await
        .is_ok()
    {
        assert!(
            started.elapsed() < support::PATIENCE,
            "the stopping server still takes connections"
        );
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(
        !server.ended.is_finished(),
        "the server left a request behind"
    );
    // ... and the old one is answered.
    run(&mut other, "COMMIT").await;
    let reply = request.await.unwrap();
    assert_eq!(reply.status, 200, "{reply:?}");
    server.ended.await.unwrap().unwrap();
    let stored: bool = value(&mut other, "SELECT cortex_has_source('file:held')").await;
    assert!(stored);
}

#[tokio::test]
async fn a_request_over_time_is_ended_and_says_so() {
    let database = Database::new().await;
    let mut config = database.config();
    config.server.request_timeout_s = 1;
    let server = Server::start(&config, no_model()).await;
    let mut other = database.session().await;
    run(
        &mut other,
        "BEGIN; SELECT cortex_source_put('file:held', 'First.')",
    )
    .await;
    let source = r#"{"artifact_id":"file:held","body":"Second."}"#;
    assert_eq!(
        server.post("/api/v1/sources", source, 504).await.json()["code"],
        "timed_out"
    );
    run(&mut other, "ROLLBACK").await;
    server.post("/api/v1/sources", source, 200).await;
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_enough() {
    let database = Database::new().await;
    let mut config = database.config();
    config.database.url = Secret::new(support::pooler::before(&database.url).await);
    let server = Server::start(&config, Letters::encoder()).await;
    let mut session = database.session().await;
    put_sources(&mut session, 3).await;
    run(&mut session, "SELECT cortex_work()").await;
    // More than once, so that anything kept from the first time is missed the second.
    for _ in 0..3 {
        server
            .post("/api/v1/read", r#"{"question":"kestrel"}"#, 200)
            .await;
        server
            .post("/api/v1/search", r#"{"question":"kestrel"}"#, 200)
            .await;
        server
            .post("/api/v1/traces", r#"{"question":"kestrel"}"#, 200)
            .await;
        server
            .post(
                "/api/v1/sources",
                r#"{"artifact_id":"file:a","body":"x"}"#,
                200,
            )
            .await;
        server
            .post(
                "/api/v1/search",
                r#"{"question":"kestrel","namespace":"nowhere"}"#,
                404,
            )
            .await;
        server.get("/api/v1/health", 200).await;
    }
}
