//! Claims by a language model, from the want to the read: real database, real worker, scripted server.

mod support;

use std::time::Duration;

use cortex_conformance::ollama::{Fault, Reply, Rule, Script, Server};
use cortex_sidecar::config::{Config, Provider, Secret};
use serde_json::{Value, json};
use sqlx::postgres::PgConnection;
use support::command::Cortex;
use support::worker::{Running, no_model};
use support::{Database, Letters, PATIENCE, run, until, value, with_user};
use tokio::net::TcpListener;

/// No build is queued, running or waiting.
const BUILT: &str = "
SELECT NOT EXISTS (SELECT FROM cortex.jobs WHERE state <> 'dead') AND NOT EXISTS (SELECT FROM cortex.change WHERE seq IS NULL)
   AND EXISTS (SELECT FROM cortex.units WHERE purpose = 'model')";

/// Each claim has its vector in the namespace's space.
const EMBEDDED: &str = "
SELECT NOT EXISTS (SELECT FROM cortex.claim c WHERE NOT EXISTS (SELECT FROM cortex.emb_1 e WHERE e.item_id = c.id))";

/// Claims of models, in order.
const CLAIMS: &str = "
SELECT coalesce(array_agg(c.body ORDER BY c.id), '{}') FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id
 WHERE u.purpose = 'model' AND u.evicted_by IS NULL
   AND NOT EXISTS (SELECT FROM cortex.source_version v WHERE v.id = u.version_id AND v.closed_by IS NOT NULL)";

const KESTREL: &str = "The kestrel of Berlin hovered at 30 m. It saw 3 voles.";

fn kestrel() -> Reply {
    Reply::json(json!({"claims": [
        {"claim": "The kestrel of Berlin hovered at 30 m.", "chunks": [1]},
        {"claim": "The kestrel of Berlin saw 3 voles.", "chunks": [1]},
    ]}))
}

fn with_model(database: &Database, server: &Server) -> Config {
    let mut config = database.config();
    config.language_model.provider = Provider::Ollama;
    config.language_model.url = server.url();
    config.language_model.name = "scripted".to_owned();
    config.language_model.timeout_s = 20;
    config
}

async fn set(session: &mut PgConnection, settings: Value) {
    run(
        session,
        &format!("SELECT cortex_pool_set('default', '{settings}')"),
    )
    .await;
}

/// Stores a source and asks for its claims, as a read would that found too few.
async fn want(session: &mut PgConnection, name: &str, body: &str) {
    run(
        session,
        &format!("SELECT cortex_source_put('{name}', '{body}', 'Birds')"),
    )
    .await;
    run(session, "SELECT cortex_work()").await;
    let asked: String = value(
        session,
        &format!(
            "SELECT cortex_build_want(jsonb_build_array(jsonb_build_object('class', 'NOVEL', 'source_id', s.id)))::text
               FROM cortex.source s WHERE s.artifact_id = '{name}'"
        ),
    )
    .await;
    let asked: Value = serde_json::from_str(&asked).unwrap();
    assert_eq!(asked["queued"], 1, "{asked}");
}

async fn claims(session: &mut PgConnection) -> Vec<String> {
    value(session, CLAIMS).await
}

async fn stat(session: &mut PgConnection, name: &str) -> i64 {
    value(
        session,
        &format!("SELECT coalesce((cortex_stats() -> 'counters' ->> '{name}')::bigint, 0)"),
    )
    .await
}

async fn ready(settings: Value) -> (Database, PgConnection) {
    let database = Database::new().await;
    let mut session = database.session().await;
    run(&mut session, "SELECT cortex_create_namespace('default')").await;
    let mut all = json!({"builder": "model"});
    for (key, value) in settings.as_object().unwrap() {
        all[key] = value.clone();
    }
    set(&mut session, all).await;
    (database, session)
}

#[tokio::test]
async fn what_is_wanted_is_built_grounded_embedded_and_read() {
    let (database, mut session) = ready(json!({})).await;
    let server = Server::start(Script::always(kestrel().with(Fault::InventedNumber)))
        .await
        .unwrap();
    want(&mut session, "file:kestrel", KESTREL).await;
    let worker = Running::start(&with_model(&database, &server), Letters::encoder());
    until(&mut session, "the claims are built", BUILT).await;
    assert_eq!(
        claims(&mut session).await,
        [
            "The kestrel of Berlin hovered at 30 m.",
            "The kestrel of Berlin saw 3 voles."
        ]
    );
    until(
        &mut session,
        "the counters are summed up",
        "SELECT (cortex_stats() -> 'counters' -> 'builds') IS NOT NULL",
    )
    .await;
    assert_eq!(stat(&mut session, "dropped_ungrounded").await, 1);
    assert_eq!(stat(&mut session, "builds").await, 1);
    let tokens: i64 = value(
        &mut session,
        "SELECT (cortex_stats() #>> '{models,scripted,prompt_tokens}')::bigint",
    )
    .await;
    assert!(tokens > 100, "{tokens}");
    // Each claim has its vector in the namespace's space, and a read serves it.
    until(&mut session, "the vectors are there", EMBEDDED).await;
    let payload: String = value(
        &mut session,
        "SELECT payload FROM cortex_read('voles Berlin')",
    )
    .await;
    assert!(
        payload.contains("The kestrel of Berlin saw 3 voles."),
        "{payload}"
    );
    let view = worker.status.view();
    assert_eq!((view.builds_done, view.builds_failed), (1, 0));
    assert_eq!(view.building, "scripted");
    worker.stop().await;
}

/// What a small model gets wrong, and the counter of the database that has it.
#[tokio::test]
async fn every_fault_of_a_model_is_dropped_by_the_database_and_counted() {
    let (database, mut session) = ready(json!({})).await;
    let faults = [
        (
            "Aar",
            Fault::InventedNumber,
            1,
            Some(("dropped_ungrounded", 1)),
        ),
        ("Bern", Fault::Repeated, 1, Some(("dropped_repeated", 19))),
        (
            "Chur",
            Fault::WrongChunks,
            0,
            Some(("dropped_unknown_chunk", 1)),
        ),
        ("Davos", Fault::LongClaim, 1, Some(("dropped_too_long", 1))),
        ("Egg", Fault::NullClaims, 1, None),
        ("Flims", Fault::BlankClaims, 1, None),
        ("Gais", Fault::Fenced, 1, None),
        ("Horn", Fault::NoWrapper, 1, None),
    ];
    let mut script = Script::default();
    for (place, fault, ..) in faults {
        let claim =
            json!({"claims": [{"claim": format!("A kestrel lives in {place}."), "chunks": [1]}]});
        script = script.when(place, Reply::json(claim).with(fault));
    }
    let server = Server::start(script).await.unwrap();
    for (place, ..) in faults {
        want(
            &mut session,
            &format!("file:{place}"),
            &format!("A kestrel lives in {place}. It is well."),
        )
        .await;
    }
    let worker = Running::start(&with_model(&database, &server), no_model());
    until(
        &mut session,
        "all are built",
        "SELECT count(*) = 8 FROM cortex.units WHERE purpose = 'model'",
    )
    .await;
    until(&mut session, "and counted", BUILT).await;
    for (place, fault, admitted, dropped) in faults {
        let claims: i64 = value(
            &mut session,
            &format!("SELECT claims FROM cortex.units WHERE purpose = 'model' AND artifact_id = 'file:{place}'"),
        )
        .await;
        assert_eq!(claims, admitted, "{fault:?}");
        if let Some((counter, expected)) = dropped {
            let sql = format!(
                "SELECT coalesce((cortex_stats() -> 'counters' ->> '{counter}')::bigint, 0) = {expected}"
            );
            until(&mut session, counter, &sql).await;
        }
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_builds_with_the_rights_of_a_worker() {
    for synthesizer in ["model", "extractive"] {
        let synthesis = json!({"synthesizer": synthesizer});
        let (database, mut session) =
            ready(json!({"build_when": "eager", "synthesis": synthesis})).await;
        let role = format!("cortex_builder_{synthesizer}_{}", std::process::id());
        run(
            &mut session,
            &format!("DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN PASSWORD 'builder'"),
        )
        .await;
        run(
            &mut session,
            &format!("SELECT cortex_grant_worker('{role}')"),
        )
        .await;
        if synthesizer == "extractive" {
            // Which namespaces need no model is for readers of theirs to see.
            run(
                &mut session,
                &format!("SELECT cortex_grant('default', '{role}')"),
            )
            .await;
        }
        run(
            &mut session,
            &format!("SELECT cortex_source_put('file:kestrel', '{KESTREL}')"),
        )
        .await;
        let server = Server::start(Script::always(kestrel())).await.unwrap();
        let mut config = database.config();
        if synthesizer == "model" {
            config = with_model(&database, &server);
        }
        config.database.url = Secret::new(with_user(&database.url, &role, "builder"));
        let worker = Running::start(&config, Letters::encoder());
        until(&mut session, "the claims are built", BUILT).await;
        assert_eq!(claims(&mut session).await.len(), 2, "{synthesizer}");
        until(&mut session, "the vectors are there", EMBEDDED).await;
        worker.stop().await;
        run(
            &mut session,
            &format!("DROP OWNED BY {role}; DROP ROLE {role}"),
        )
        .await;
    }
}

#[tokio::test]
async fn tool_results_become_claims_without_a_model() {
    let synthesis = json!({"synthesizer": "json"});
    let (database, mut session) =
        ready(json!({"build_when": "eager", "synthesis": synthesis})).await;
    let result = r#"{"station": {"name": "Zollikofen", "altitude_m": 553}, "readings": [{"id": "A7", "temp_c": 3.50}]}"#;
    run(
        &mut session,
        &format!("SELECT cortex_source_put('tool:1', '{result}')"),
    )
    .await;
    let worker = Running::start(&database.config(), no_model());
    until(&mut session, "the claims are built", BUILT).await;
    assert_eq!(
        claims(&mut session).await,
        [
            "station.name: Zollikofen; station.altitude_m: 553",
            "readings.id: A7; readings.temp_c: 3.50"
        ]
    );
    assert_eq!(worker.status.view().building, "no language model");
    worker.stop().await;
}

#[tokio::test]
async fn without_a_model_builds_wait_for_a_worker_that_has_one() {
    let (database, mut session) = ready(json!({})).await;
    want(&mut session, "file:kestrel", KESTREL).await;
    let worker = Running::start(&database.config(), no_model());
    run(
        &mut session,
        "SELECT cortex_source_put('file:other', 'A heron stood there.')",
    )
    .await;
    until(
        &mut session,
        "the worker does what it can",
        "SELECT EXISTS (SELECT FROM cortex.claims WHERE artifact_id = 'file:other')",
    )
    .await;
    let waiting: bool = value(
        &mut session,
        "SELECT state = 'ready' AND attempts = 0 FROM cortex.jobs WHERE kind = 'build'",
    )
    .await;
    assert!(waiting);
    worker.stop().await;
}

#[tokio::test]
async fn prose_fails_the_build_and_leaves_the_raw_text() {
    let (database, mut session) = ready(json!({})).await;
    let server = Server::start(Script::always(kestrel().with(Fault::ProseOnly)))
        .await
        .unwrap();
    want(&mut session, "file:kestrel", KESTREL).await;
    let worker = Running::start(&with_model(&database, &server), no_model());
    until(
        &mut session,
        "the build backs off with its reason",
        "SELECT EXISTS (SELECT FROM cortex.jobs WHERE kind = 'build' AND state = 'ready' AND attempts >= 1 AND last_error LIKE '%cannot be used%')",
    )
    .await;
    let raw: String = value(
        &mut session,
        "SELECT payload FROM cortex_read('kestrel of Berlin')",
    )
    .await;
    assert!(raw.contains("hovered at 30 m"), "{raw}");
    let none: Vec<String> = claims(&mut session).await;
    assert!(none.is_empty());
    worker
        .until("it is counted", |view| view.builds_failed >= 1)
        .await;
    // What it cost is counted although nothing came of it.
    until(
        &mut session,
        "the tokens are counted",
        "SELECT coalesce((cortex_stats() #>> '{models,scripted,prompt_tokens}')::bigint, 0) > 200",
    )
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn wrong_settings_fail_the_build_by_name() {
    let synthesis = json!({"synthesizer": "extractive", "deepth": 1});
    let (database, mut session) = ready(json!({"synthesis": synthesis})).await;
    let server = Server::start(Script::always(kestrel())).await.unwrap();
    want(&mut session, "file:kestrel", KESTREL).await;
    let worker = Running::start(&with_model(&database, &server), no_model());
    until(
        &mut session,
        "the reason names the key",
        "SELECT EXISTS (SELECT FROM cortex.jobs WHERE kind = 'build' AND last_error LIKE '%deepth%')",
    )
    .await;
    assert!(server.requests().is_empty());
    worker.stop().await;
}

#[tokio::test]
async fn a_server_that_is_away_costs_no_build_its_life() {
    let (database, mut session) = ready(json!({})).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::on(listener, Script::default()).unwrap();
    let config = with_model(&database, &server);
    drop(server);
    for i in 0..3 {
        want(&mut session, &format!("file:{i}"), KESTREL).await;
    }
    let worker = Running::start(&config, no_model());
    worker
        .until("it notices", |view| view.builds_failed == 1)
        .await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    // One source told it and was given back, which is no attempt; the others were not tried.
    let tried: i64 = value(
        &mut session,
        "SELECT sum(attempts) FROM cortex.jobs WHERE kind = 'build'",
    )
    .await;
    assert_eq!((tried, worker.status.view().builds_failed), (0, 1));
    let said = worker.status.view().last_build_error;
    assert_eq!(said.as_deref(), Some("model_unreachable"));
    let listener = TcpListener::bind(address).await.unwrap();
    let _server = Server::on(listener, Script::always(kestrel())).unwrap();
    until(
        &mut session,
        "all are built",
        "SELECT count(*) = 3 FROM cortex.units WHERE purpose = 'model'",
    )
    .await;
    worker
        .until("it says so no more", |view| view.last_build_error.is_none())
        .await;
    worker.stop().await;
}

#[tokio::test]
async fn inv_03_a_source_that_changes_while_a_model_writes_gets_no_old_claims() {
    let (database, mut session) = ready(json!({"build_when": "eager"})).await;
    let slow = Reply {
        delay_ms: 1_500,
        ..kestrel()
    };
    let new =
        Reply::json(json!({"claims": [{"claim": "The kestrel of Berlin left.", "chunks": [1]}]}));
    let script = Script::default().when("hovered", slow).when("left", new);
    let server = Server::start(script).await.unwrap();
    run(
        &mut session,
        &format!("SELECT cortex_source_put('file:kestrel', '{KESTREL}')"),
    )
    .await;
    let worker = Running::start(&with_model(&database, &server), no_model());
    let started = std::time::Instant::now();
    while server.requests().is_empty() {
        assert!(started.elapsed() < PATIENCE, "no model is asked");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    run(
        &mut session,
        "SELECT cortex_source_put('file:kestrel', 'The kestrel of Berlin left.')",
    )
    .await;
    until(&mut session, "the new text is built", BUILT).await;
    until(
        &mut session,
        "and nothing else",
        &format!("SELECT ({CLAIMS}) = ARRAY['The kestrel of Berlin left.']"),
    )
    .await;
    let old: i64 = value(
        &mut session,
        "SELECT count(*) FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id WHERE u.purpose = 'model' AND c.body LIKE '%30 m%'",
    )
    .await;
    assert_eq!(old, 0);
    worker.stop().await;
}

#[tokio::test]
async fn several_workers_share_the_sources_and_build_each_once() {
    let (database, mut session) = ready(json!({"build_when": "eager"})).await;
    let mut script = Script::default();
    script.rules.push(Rule {
        pattern: Some(r"The kestrel number (\d+) was seen".to_owned()),
        reply: Reply {
            text: r#"{"claims": [{"claim": "The kestrel number $1 was seen.", "chunks": [1]}]}"#
                .to_owned(),
            delay_ms: 30,
            ..Reply::default()
        },
        ..Rule::default()
    });
    let server = Server::start(script).await.unwrap();
    support::put_sources(&mut session, 24).await;
    let mut config = with_model(&database, &server);
    config.language_model.parallel = 2;
    let workers: Vec<Running> = (0..3)
        .map(|_| Running::start(&config, no_model()))
        .collect();
    until(
        &mut session,
        "all are built",
        "SELECT count(*) = 24 FROM cortex.units WHERE purpose = 'model' AND claims = 1",
    )
    .await;
    until(&mut session, "nothing is left", BUILT).await;
    assert_eq!(server.requests().len(), 24);
    let done: u64 = workers
        .iter()
        .map(|worker| worker.status.view().builds_done)
        .sum();
    assert_eq!(done, 24);
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_worker_that_stops_gives_its_build_back_at_once() {
    let (database, mut session) = ready(json!({})).await;
    let server = Server::start(Script::always(Reply::default().with(Fault::Hang)))
        .await
        .unwrap();
    want(&mut session, "file:kestrel", KESTREL).await;
    let worker = Running::start(&with_model(&database, &server), no_model());
    let running =
        "SELECT EXISTS (SELECT FROM cortex.jobs WHERE kind = 'build' AND state = 'running')";
    until(&mut session, "the build runs", running).await;
    let started = std::time::Instant::now();
    worker.stop().await;
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(!value::<bool>(&mut session, running).await);
}

#[tokio::test]
async fn a_model_that_takes_longer_than_the_lease_keeps_its_build() {
    let (database, mut session) = ready(json!({})).await;
    let slow = Reply {
        delay_ms: 6_000,
        ..kestrel()
    };
    let server = Server::start(Script::always(slow)).await.unwrap();
    want(&mut session, "file:kestrel", KESTREL).await;
    let mut config = with_model(&database, &server);
    config.worker.lease_s = 3;
    let workers: Vec<Running> = (0..2)
        .map(|_| Running::start(&config, no_model()))
        .collect();
    until(&mut session, "the claims are built", BUILT).await;
    assert_eq!(server.requests().len(), 1);
    for worker in workers {
        worker.stop().await;
    }
}

/// Long sources come in several jobs of several requests; claims of all of them end up in one unit.
#[tokio::test]
async fn a_long_source_is_built_to_its_end() {
    let (database, mut session) = ready(json!({})).await;
    let mut script = Script::default();
    script.rules.push(Rule {
        pattern: Some(r"(?s)(Station \d+) measured.*Station (\d+) measured \d+ mm[^S]*$".to_owned()),
        reply: Reply::text(r#"{"claims": [{"claim": "$1 measured rain."}, {"claim": "Station $2 measured rain."}]}"#),
        ..Rule::default()
    });
    let server = Server::start(script).await.unwrap();
    let body: Vec<String> = (1..=1_200)
        .map(|i| {
            format!(
                "Station {i} measured {} mm of rain during the storm in the night.",
                i % 90
            )
        })
        .collect();
    want(&mut session, "file:stations", &body.join(" ")).await;
    let worker = Running::start(&with_model(&database, &server), no_model());
    until(&mut session, "the source is built", BUILT).await;
    let unit: String = value(
        &mut session,
        "SELECT format('%s of %s chunks', chunks_covered, chunks) FROM cortex.units WHERE purpose = 'model'",
    )
    .await;
    let chunks: i64 = value(&mut session, "SELECT count(*) FROM cortex.chunk").await;
    assert!(chunks > 16, "{chunks}");
    assert_eq!(unit, format!("{chunks} of {chunks} chunks"));
    let claims = claims(&mut session).await;
    for end in ["Station 1 measured rain.", "Station 1200 measured rain."] {
        assert!(claims.iter().any(|claim| claim == end), "{end}: {claims:?}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn doctor_and_health_say_where_texts_go() {
    let database = Database::new().await;
    let server = Server::start(Script::default()).await.unwrap();
    let url = server.url();
    let cortex = Cortex::new("where", &database.url);
    tokio::task::spawn_blocking(move || {
        let language = |cortex: &Cortex, code: i32| {
            let checks = cortex.run(&["doctor", "--json"], code).json()["checks"].clone();
            let all = checks.as_array().unwrap();
            let found = all.iter().find(|check| check["name"] == "language");
            found.unwrap_or_else(|| panic!("{checks}")).clone()
        };
        assert_eq!(language(&cortex, 0)["verdict"], "ok");
        let cortex = cortex
            .with("CORTEX_LANGUAGE_MODEL__PROVIDER", "ollama")
            .with("CORTEX_LANGUAGE_MODEL__NAME", "scripted")
            .with("CORTEX_LANGUAGE_MODEL__URL", &url);
        let check = language(&cortex, 0);
        assert_eq!(check["verdict"], "ok", "{check}");
        assert!(
            !check["found"].as_str().unwrap().contains("BEYOND"),
            "{check}"
        );
        let cortex = cortex.with("CORTEX_LANGUAGE_MODEL__NAME", "unknown");
        assert_eq!(language(&cortex, 0)["verdict"], "warn");
        let cortex = cortex.with("CORTEX_LANGUAGE_MODEL__URL", "http://model.invalid:1");
        let check = language(&cortex, 1);
        assert_eq!(check["verdict"], "fail", "{check}");
        assert!(
            check["found"]
                .as_str()
                .unwrap()
                .contains("BEYOND THIS MACHINE"),
            "{check}"
        );
    })
    .await
    .unwrap();
    let mut config = with_model(&database, &server);
    config.language_model.url = "https://models.example.org".to_owned();
    let service = support::http::Server::start(&config, no_model()).await;
    let health = service.get("/api/v1/health", 200).await.json();
    assert_eq!(
        health["language_model"],
        json!({"name": "scripted", "url": "https://models.example.org", "remote": true})
    );
}

#[tokio::test]
async fn the_command_line_lists_shows_evicts_and_sets() {
    let (database, mut session) = ready(json!({})).await;
    let server = Server::start(Script::always(kestrel())).await.unwrap();
    want(&mut session, "file:kestrel", KESTREL).await;
    let worker = Running::start(&with_model(&database, &server), no_model());
    until(&mut session, "the claims are built", BUILT).await;
    worker.stop().await;
    let cortex = Cortex::new("pool", &database.url);
    tokio::task::spawn_blocking(move || {
        let units = cortex.run(&["pool", "ls", "--json"], 0).json()["units"].clone();
        let of = |purpose: &str| {
            let all = units.as_array().unwrap().iter();
            all.filter(|unit| unit["purpose"] == purpose)
                .cloned()
                .collect::<Vec<_>>()
        };
        let (model, extract) = (of("model"), of("extract"));
        assert_eq!((model.len(), extract.len()), (1, 1), "{units}");
        assert_eq!(
            (&model[0]["claims"], &model[0]["builder"]),
            (&json!(2), &json!("scripted"))
        );
        let id = model[0]["unit_id"].to_string();
        let shown = cortex.run(&["pool", "show", &id, "--json"], 0).json();
        assert_eq!(shown["unit"]["artifact_id"], "file:kestrel");
        assert_eq!(shown["chunks"][0]["body"], KESTREL);
        let text = cortex.run(&["pool", "show", &id], 0).out;
        assert!(
            text.contains(KESTREL) && text.contains("scripted"),
            "{text}"
        );
        let evicted = cortex.run(&["pool", "evict", &id, "--json"], 0).json();
        assert_eq!(
            (&evicted["claims"], &evicted["already"]),
            (&json!(2), &json!(false))
        );
        let again = cortex.run(&["pool", "evict", &id, "--json"], 0).json();
        assert_eq!(again["already"], true);
        let set = [
            "pool",
            "set",
            "gate=0.4",
            r#"synthesis={"depth": 1}"#,
            "--json",
        ];
        let settings = cortex.run(&set, 0).json();
        assert_eq!(
            (&settings["gate"], &settings["synthesis"]["depth"]),
            (&json!(0.4), &json!(1))
        );
        let stats = cortex.run(&["pool", "stats", "--json"], 0).json();
        assert_eq!(stats["settings"]["gate"], 0.4);
        let refused = cortex.run(&["pool", "set", "gaet=0.4"], 4);
        assert!(refused.err.contains("gate"), "{refused:?}");
        cortex.run(&["pool", "purge"], 2);
        let purged = cortex.run(&["pool", "purge", "--yes", "--json"], 0).json();
        assert_eq!(purged["units"], 0);
        assert_eq!(
            cortex.run(&["pool", "show", "999999", "--json"], 2).json()["code"],
            "not_found"
        );
        cortex.run(&["pool", "ls", "--namespace", "nowhere"], 2);
    })
    .await
    .unwrap();
}
