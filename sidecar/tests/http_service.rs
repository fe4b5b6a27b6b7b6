//! What stands around the REST interface: limits, key, hosts, pooler, and a PostgreSQL that is not there.

mod support;

use cortex_sidecar::config::Secret;
use cortex_sidecar::encoder::Encoder;
use cortex_sidecar::http as service;
use serde_json::json;
use support::http::Server;
use support::{Database, Letters, put_sources, run, value};

fn no_model() -> Encoder {
    Encoder::absent("no model in this test")
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
