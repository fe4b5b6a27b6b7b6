//! The ask protocol over REST, and traces told.

mod support;

use cortex_sidecar::encoder::Encoder;
use serde_json::{Value, json};
use support::http::Server;
use support::worker::{Running, no_model};
use support::{Database, Letters, put_sources, run, until, value};

async fn filled(encoder: Encoder) -> (Database, sqlx::postgres::PgConnection, Server) {
    let database = Database::new().await;
    let mut session = database.session().await;
    put_sources(&mut session, 10).await;
    run(&mut session, "SELECT cortex_work()").await;
    let server = Server::start(&database.config(), encoder).await;
    (database, session, server)
}

async fn post(server: &Server, path: &str, body: Value) -> Value {
    server.post(path, &body.to_string(), 200).await.json()
}

/// Runs an ask with a model's part played here, and gives what closing it gave.
async fn played(server: &Server, embed: bool) -> Value {
    let opened = post(
        server,
        "/api/v1/asks",
        json!({"question": "kestrel number 7", "ask_mode": "evidence_answer", "sub_questions": ["number 3"]}),
    )
    .await;
    let path = format!("/api/v1/asks/{}", opened["ask_id"]);
    let seen = post(server, &format!("{path}/round"), json!({})).await;
    let first = &seen[0];
    assert_eq!(
        (&first["round"], &first["why"]),
        (&json!(0), &json!("initial"))
    );
    let model = json!({"name": "m", "input": "which?", "output": "the first"});
    let told = post(
        server,
        &format!("{path}/select"),
        json!({"round": 0, "item_ids": [first["item_id"]], "model": model}),
    )
    .await;
    assert_eq!(
        (&told["added"], &told["next"]),
        (&json!(1), &json!("number 3"))
    );
    let told = post(
        server,
        &format!("{path}/refine"),
        json!({"query": "number 5", "gap": "the fifth", "embed": embed}),
    )
    .await;
    assert_eq!(told["waiting"], 2);
    for round in 1..3 {
        let words = ["number 5", "number 3"][round - 1];
        let body = match embed {
            true => json!({"embed": words}),
            false => json!({}),
        };
        let seen = post(server, &format!("{path}/round"), body).await;
        assert_eq!(seen[0]["query"], words);
        post(
            server,
            &format!("{path}/select"),
            json!({"round": round, "item_ids": [seen[0]["item_id"]]}),
        )
        .await;
    }
    let excerpt = first["excerpt"].as_str().unwrap();
    let told = post(
        server,
        &format!("{path}/answer"),
        json!({
            "prose": excerpt,
            "statements": [excerpt],
            "citations": [{"statement": 1, "item": first["item_id"], "quote": excerpt}],
            "model": {"name": "m", "input": "answer", "output": excerpt},
        }),
    )
    .await;
    assert_eq!(told["supported"], 1, "{told}");
    let closed = server.post(&format!("{path}/close"), "", 200).await.json();
    server.get(&format!("{path}/round"), 405).await;
    server.post(&format!("{path}/round"), "{}", 404).await;
    closed
}

#[tokio::test]
async fn a_host_drives_an_ask_over_rest() {
    let (_database, mut session, server) = filled(no_model()).await;
    let closed = played(&server, false).await;
    assert_eq!(
        (&closed["status"], &closed["gaps"]),
        (&json!("ANSWERED"), &json!([])),
        "{closed}"
    );
    let id = &closed["trace_id"];
    let report = server
        .get(&format!("/api/v1/traces/{id}/verify?exhaustive=true"), 200)
        .await
        .json();
    assert_eq!(
        (&report["level"], &report["missed"]),
        (&json!("L4"), &json!([]))
    );
    assert_eq!(played(&server, false).await["already"], true);
    for (path, sql) in [
        ("explain", format!("SELECT cortex_explain({id})")),
        ("dossier", format!("SELECT cortex_dossier({id})")),
        (
            "dossier?format=html",
            format!("SELECT cortex_dossier({id}, 'html')"),
        ),
        (
            "dossier?format=markdown",
            format!("SELECT cortex_dossier({id}, 'markdown')"),
        ),
        ("evidence", format!("SELECT cortex_trace_evidence({id})")),
    ] {
        let body = server
            .get(&format!("/api/v1/traces/{id}/{path}"), 200)
            .await
            .body;
        let same: String = value(&mut session, &sql).await;
        assert_eq!(body, same, "{path}");
    }
    let all = server
        .get("/api/v1/verify?namespace=default", 200)
        .await
        .json();
    assert_eq!(
        (
            all.as_array().unwrap().len(),
            &all[0]["ok"],
            &all[0]["where"]
        ),
        (1, &json!(true), &Value::Null)
    );
    let none = server
        .get("/api/v1/verify?since=2100-01-01", 200)
        .await
        .json();
    assert_eq!(none, json!([]));
}

#[tokio::test]
async fn what_was_not_shown_and_what_is_unknown_is_refused() {
    let (_database, _session, server) = filled(no_model()).await;
    let opened = post(&server, "/api/v1/asks", json!({"question": "kestrel"})).await;
    let path = format!("/api/v1/asks/{}", opened["ask_id"]);
    post(&server, &format!("{path}/round"), json!({})).await;
    let refused = server
        .post(
            &format!("{path}/select"),
            r#"{"round":0,"item_ids":[999999]}"#,
            400,
        )
        .await
        .json();
    let message = refused["error"].as_str().unwrap();
    assert!(message.starts_with("CORTEX_MODEL_UNBOUND"), "{refused}");
    for body in [
        r#"{"round":0,"ids":[1]}"#,
        r#"{"round":7}"#,
        r#"{"round":0,"model":{"name":"m"}}"#,
    ] {
        server.post(&format!("{path}/select"), body, 400).await;
    }
    server.post(&format!("{path}/close"), "", 409).await;
    server
        .post(
            "/api/v1/asks",
            r#"{"question":"x","ask_mode":"prove_or_abstain"}"#,
            501,
        )
        .await;
    server
        .post(
            "/api/v1/asks",
            r#"{"question":"x","policy":{"max_rounds":9}}"#,
            400,
        )
        .await;
    server.post("/api/v1/asks/999/round", "{}", 404).await;
    server.ask("DELETE", &path, "", "", 204).await;
    server.ask("DELETE", &path, "", "", 404).await;
    server.get("/api/v1/traces/999/explain", 404).await;
    server.get("/api/v1/traces/999/dossier", 404).await;
}

#[tokio::test]
async fn a_worker_embeds_for_an_ask_and_audits_its_trace() {
    let (database, mut session, server) = filled(Letters::encoder()).await;
    let worker = Running::start(&database.config(), Letters::encoder());
    until(
        &mut session,
        "embedded",
        "SELECT bool_and(space IS NOT NULL AND pending_embed = 0 AND pending_chunk = 0) FROM cortex.namespaces",
    )
    .await;
    run(&mut session, "SELECT cortex_seal()").await;
    let closed = played(&server, true).await;
    let id = closed["trace_id"].clone();
    let arms: String = value(
        &mut session,
        &format!("SELECT string_agg(r #>> '{{receipt,arms}}', ' ') FROM jsonb_array_elements(cortex_trace({id})::jsonb -> 'rounds') r"),
    )
    .await;
    assert_eq!(arms, ["[\"lexical\", \"vector\"]"; 3].join(" "));
    until(
        &mut session,
        "audited",
        &format!("SELECT EXISTS (SELECT FROM cortex.trace_check WHERE trace_id = {id} AND ok)"),
    )
    .await;
    // The stored trace is changed behind everyone's back: the next audit tells, by event and in health.
    run(
        &mut session,
        &format!("UPDATE cortex.trace SET body = replace(body, '\"max_rounds\":4', '\"max_rounds\":5') WHERE id = {id}"),
    )
    .await;
    run(
        &mut session,
        "UPDATE cortex.trace_check SET checked_at = now() - interval '2 days'",
    )
    .await;
    until(
        &mut session,
        "told",
        "SELECT EXISTS (SELECT FROM cortex_events() WHERE kind = 'trace_failed' AND detail ->> 'code' = 'T_ROOT')",
    )
    .await;
    let health = server.get("/api/v1/health", 200).await.json();
    assert_eq!(health["database"]["failed_traces"], 1);
    let warned = health["warnings"].to_string();
    assert!(warned.contains("1 traces do not verify"), "{warned}");
    worker.stop().await;
}
