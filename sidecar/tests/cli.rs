//! The command line end to end: the binary, its exit codes, and what it prints.

mod support;

use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use support::command::Cortex;
use support::{Database, put_sources, run};

/// A database with ten chunked sources.
async fn filled() -> Database {
    let database = Database::new().await;
    let mut session = database.session().await;
    put_sources(&mut session, 10).await;
    run(&mut session, "SELECT cortex_work()").await;
    database
}

#[tokio::test]
async fn help_teaches_and_wrong_arguments_exit_with_2() {
    let cortex = Cortex::new("help", "postgresql://localhost/unused");
    let help = cortex.run(&["--help"], 0).out;
    for word in [
        "Examples:",
        "Exit codes:",
        "CORTEX_",
        "cortex doctor",
        "never means true",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    for command in [
        "up", "down", "serve", "worker", "ingest", "read", "find", "ask", "verify", "explain",
        "drift", "dossier", "doctor", "demo",
    ] {
        assert!(help.contains(&format!("  {command} ")), "{command}");
        cortex.run(&[command, "--help"], 0);
    }
    for wrong in [
        &["reed", "x"][..],
        &["read"],
        &["ingest"],
        &["read", "x", "--budget", "many"],
        &["verify"],
        &[],
    ] {
        cortex.run(wrong, 2);
    }
}

#[tokio::test]
async fn wrong_settings_exit_with_2_and_name_the_nearest() {
    let cortex =
        Cortex::new("settings", "postgresql://localhost/unused").with("CORTEX_WORKER__LEASE", "5");
    let run = cortex.run(&["doctor", "--json"], 2);
    assert_eq!(run.json()["code"], "invalid_config");
    assert!(
        run.json()["hint"]
            .as_str()
            .unwrap()
            .contains("CORTEX_WORKER__LEASE_S"),
        "{run:?}"
    );
    // The reference can be had even then.
    assert!(
        cortex
            .run(&["doctor", "--defaults"], 0)
            .out
            .contains("lease_s = 60")
    );
    let human = cortex.run(&["doctor"], 2);
    assert!(
        human.out.is_empty() && human.err.contains("CORTEX_WORKER__LEASE"),
        "{human:?}"
    );
}

#[tokio::test]
async fn no_postgres_exits_with_3() {
    let cortex = Cortex::new("away", "postgresql://me:secret-word@127.0.0.1:1/nothing")
        .with("CORTEX_DATABASE__CONNECT_TIMEOUT_S", "1");
    for arguments in [
        &["read", "x", "--json"][..],
        &["find", "x", "--json"],
        &["verify", "1", "--json"],
        &["explain", "1", "--json"],
    ] {
        let run = cortex.run(arguments, 3);
        assert_eq!(run.json()["code"], "postgres_unreachable");
        assert!(
            !run.out.contains("secret-word") && !run.err.contains("secret-word"),
            "{run:?}"
        );
    }
    let doctor = cortex.run(&["doctor", "--json"], 1);
    assert!(!doctor.out.contains("secret-word"), "{doctor:?}");
    let checks = doctor.json()["checks"].as_array().unwrap().clone();
    let postgres = checks
        .iter()
        .find(|check| check["name"] == "postgres")
        .unwrap();
    assert_eq!(postgres["verdict"], "fail");
    assert!(postgres["hint"].is_string());
}

#[tokio::test]
async fn refusals_of_postgres_exit_with_4_and_keep_the_sqlstate() {
    let database = filled().await;
    let cortex = Cortex::new("refused", &database.url);
    let run = cortex.run(&["read", "x", "--namespace", "nowhere", "--json"], 4);
    assert_eq!(run.json()["sqlstate"], "42704");
    let human = cortex.run(&["read", "x", "--namespace", "nowhere"], 4);
    assert!(
        human.err.contains("42704") && human.err.contains("nowhere"),
        "{human:?}"
    );
    assert_eq!(
        cortex
            .run(&["read", "x", "--budget", "0", "--json"], 4)
            .json()["sqlstate"],
        "22023"
    );
    assert_eq!(
        cortex.run(&["verify", "999999", "--json"], 4).json()["sqlstate"],
        "42704"
    );
}

#[tokio::test]
async fn read_find_verify_and_explain_tell_one_story() {
    let database = filled().await;
    let cortex = Cortex::new("story", &database.url);
    let read = cortex
        .run(&["read", "kestrel number 7", "--budget", "60", "--json"], 0)
        .json();
    assert!(read["tokens"].as_i64().unwrap() <= 60);
    assert_eq!(read["arms"], "lexical");
    let human = cortex
        .run(&["read", "kestrel number 7", "--budget", "60"], 0)
        .out;
    assert!(
        human.starts_with(read["payload"].as_str().unwrap()),
        "{human}"
    );

    let found = cortex
        .run(&["find", "kestrel number 7", "--quotes", "2", "--json"], 0)
        .json();
    assert_eq!(found["status"], "ANSWERED");
    assert_eq!(found["evidence"].as_array().unwrap().len(), 2);
    let id = found["trace_id"].to_string();
    let human = cortex
        .run(&["find", "kestrel number 7", "--quotes", "2"], 0)
        .out;
    assert!(
        human.contains("file:note-7") && human.contains(&format!("trace {id}")),
        "{human}"
    );

    let report = cortex.run(&["verify", &id, "--json"], 0).json();
    assert_eq!(
        (report["ok"].clone(), report["level"].clone()),
        (json!(true), json!("L4"))
    );
    cortex.run(&["verify", &id, "--question", "kestrel number 7"], 0);
    let wrong = cortex.run(&["verify", &id, "--question", "kestrel number 8"], 1);
    assert!(
        wrong.out.contains("T_QUESTION") && wrong.err.is_empty(),
        "{wrong:?}"
    );

    let account = cortex.run(&["explain", &id], 0).out;
    for part in [
        "mode find_relevant",
        "file:note-7",
        "Round 0 asked for the question by words",
        "Status ANSWERED",
        "withheld",
    ] {
        assert!(account.contains(part), "{part}: {account}");
    }
    assert!(!account.contains("kestrel number 7"), "{account}");
    let told = cortex.run(&["explain", &id, "--json"], 0).json();
    assert_eq!(
        told["account"].as_array().unwrap().len(),
        account.lines().count()
    );
    let document = cortex.run(&["dossier", &id], 0).out;
    assert!(document.starts_with("# kestrel number 7"), "{document}");
    let page = cortex.run(&["dossier", &id, "--format", "html"], 0).out;
    assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
    let json = cortex.run(&["dossier", &id, "--json"], 0).json();
    assert_eq!(json["question"], "kestrel number 7");
    let drift = cortex.run(&["drift", &id], 0).out;
    assert!(
        drift.contains("unchanged") && drift.contains("status ANSWERED then, ANSWERED"),
        "{drift}"
    );
    assert_eq!(
        cortex.run(&["drift", &id, "--json"], 0).json()["evidence_changed"],
        0
    );
    cortex.run(&["verify", &id, "--exhaustive"], 0);
    cortex.run(&["drift", "999999"], 4);
    cortex.run(&["dossier", "999999"], 4);
}

#[tokio::test]
async fn ask_takes_every_mode_and_shows_gaps() {
    let database = filled().await;
    let cortex = Cortex::new("modes", &database.url);
    let coverage = [
        "ask",
        "kestrel",
        "--answer",
        "coverage_review",
        "--sub",
        "number 7",
        "--sub",
        "zebra",
    ];
    let shown = cortex.run(&coverage, 0).out;
    assert!(
        shown.contains("gap: zebra (nothing_retrieved)")
            && shown.contains("-- PARTIAL (gaps_left), trace "),
        "{shown}"
    );
    let told = cortex.run(&[&coverage[..], &["--json"]].concat(), 0).json();
    assert_eq!(
        (&told["status"], &told["already"]),
        (&json!("PARTIAL"), &json!(true))
    );
    let id = told["trace_id"].to_string();
    assert_eq!(
        cortex.run(&["verify", &id, "--json"], 0).json()["level"],
        "L4"
    );
    let policy = "{\"max_evidence\": 1, \"allow_abstain\": false}";
    let told = cortex
        .run(
            &[
                "ask",
                "kestrel",
                "--answer",
                "evidence_answer",
                "--policy",
                policy,
                "--json",
            ],
            0,
        )
        .json();
    assert_eq!(
        (&told["status"], &told["reason"]),
        (&json!("PARTIAL"), &json!("no_model"))
    );
    assert_eq!(told["evidence"].as_array().unwrap().len(), 1);
    cortex.run(&["ask", "kestrel", "--policy", "[]"], 2);
    cortex.run(&["ask", "kestrel", "--answer", "prove_or_abstain"], 4);
}

#[tokio::test]
async fn a_trace_in_a_file_is_verified_with_and_without_a_database() {
    let database = filled().await;
    let cortex = Cortex::new("file", &database.url);
    let id = cortex.run(&["find", "kestrel", "--json"], 0).json()["trace_id"].to_string();
    let mut session = database.session().await;
    let trace: String = support::value(&mut session, &format!("SELECT cortex_trace({id})")).await;
    cortex.file("trace.json", format!("{trace}\n"));
    cortex.file(
        "tampered.json",
        trace.replacen("\"max_evidence\":12", "\"max_evidence\":11", 1),
    );
    cortex.file("latin.json", b"\xe4\xf6".as_slice());
    assert_eq!(
        cortex.run(&["verify", "trace.json", "--json"], 0).json()["level"],
        "L4"
    );
    assert_eq!(
        cortex.run(&["verify", "tampered.json", "--json"], 1).json()["code"],
        "T_ROOT"
    );
    cortex.run(&["explain", "trace.json"], 0);
    cortex.run(&["verify", "latin.json"], 2);
    cortex.run(&["verify", "none.json"], 5);
    drop(session);
    let away = Cortex::new("file-away", "postgresql://localhost:1/nothing");
    away.file("trace.json", &trace);
    away.file(
        "tampered.json",
        trace.replacen("\"max_evidence\":12", "\"max_evidence\":11", 1),
    );
    assert_eq!(
        away.run(&["verify", "trace.json", "--offline", "--json"], 0)
            .json()["level"],
        "L0"
    );
    assert_eq!(
        away.run(&["verify", "tampered.json", "--offline", "--json"], 1)
            .json()["code"],
        "T_ROOT"
    );
    away.run(&["verify", "1", "--offline"], 2);
}

#[tokio::test]
async fn ingest_is_idempotent_and_lists_what_it_leaves_out() {
    let database = Database::new().await;
    let cortex = Cortex::new("ingest", &database.url).with("CORTEX_INGEST__MAX_FILE_BYTES", "1000");
    cortex.file(
        "docs/heron.md",
        "Preface.\n# The heron\nA heron stood there.\n",
    );
    cortex.file("docs/deep/er/kestrel.txt", "A kestrel hovered.");
    cortex.file("docs/exactly.txt", "x".repeat(1000));
    cortex.file("docs/too-large.txt", "x".repeat(1001));
    cortex.file("docs/binary.bin", b"\xff\xfe\x00".as_slice());
    cortex.file("docs/nul.txt", b"a\0b".as_slice());
    cortex.file("docs/empty.txt", " \n");
    cortex.file("docs/.hidden", "secret");
    cortex.file("docs/.git/config", "secret");
    symlink("heron.md", cortex.folder().join("docs/link.md")).unwrap();
    let first = cortex
        .run(&["ingest", "docs", "docs/heron.md", "--json"], 0)
        .json();
    assert_eq!(
        (
            first["stored"].clone(),
            first["unchanged"].clone(),
            first["readable"].clone()
        ),
        (json!(3), json!(0), json!(3)),
        "{first}"
    );
    let skipped: Vec<&str> = first["skipped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["path"].as_str().unwrap())
        .collect();
    assert_eq!(skipped.len(), 5, "{skipped:?}");
    assert!(!first.to_string().contains("hidden") && !first.to_string().contains(".git"));
    let mut session = database.session().await;
    for name in [
        "file:docs/heron.md",
        "file:docs/deep/er/kestrel.txt",
        "file:docs/exactly.txt",
    ] {
        assert!(
            support::value::<bool>(&mut session, &format!("SELECT cortex_has_source('{name}')"))
                .await,
            "{name}"
        );
    }
    run(&mut session, "SELECT cortex_work()").await;
    let title: String = support::value(
        &mut session,
        "SELECT min(title) FROM cortex_search('heron')",
    )
    .await;
    assert_eq!(title, "The heron");

    let second = cortex.run(&["ingest", "docs", "--json"], 0).json();
    assert_eq!(
        (second["stored"].clone(), second["unchanged"].clone()),
        (json!(0), json!(3))
    );
    assert!(cortex.run(&["ingest", "docs"], 0).out.contains("unchanged"));
    cortex.file("docs/heron.md", "# The heron\nTwo herons stood there.\n");
    let third = cortex.run(&["ingest", "docs", "--json"], 0).json();
    assert_eq!(
        (third["stored"].clone(), third["unchanged"].clone()),
        (json!(1), json!(2))
    );

    // What is gone, and what can no longer be read as text, is served no longer; what lies elsewhere stays.
    cortex.file("docs-of-others/a.txt", "Elsewhere.");
    cortex.run(&["ingest", "docs-of-others"], 0);
    std::fs::remove_file(cortex.folder().join("docs/deep/er/kestrel.txt")).unwrap();
    cortex.file("docs/exactly.txt", "x".repeat(1001));
    let fourth = cortex.run(&["ingest", "docs", "--json"], 0).json();
    assert_eq!(
        (fourth["removed"].clone(), fourth["unchanged"].clone()),
        (json!(2), json!(1)),
        "{fourth}"
    );
    for (name, there) in [
        ("file:docs/heron.md", true),
        ("file:docs/deep/er/kestrel.txt", false),
        ("file:docs/exactly.txt", false),
        ("file:docs-of-others/a.txt", true),
    ] {
        let known = format!("SELECT cortex_has_source('{name}')");
        assert_eq!(
            support::value::<bool>(&mut session, &known).await,
            there,
            "{name}"
        );
    }
    cortex.file("docs/heron.md", "");
    let fifth = cortex.run(&["ingest", "docs/heron.md", "--json"], 0).json();
    assert_eq!(fifth["removed"], 1, "a named file that is left out by now");
    let everything = cortex.run(&["ingest", ".", "--json"], 0).json();
    assert_eq!(
        (everything["removed"].clone(), everything["stored"].clone()),
        (json!(0), json!(0))
    );

    cortex.run(&["ingest", "nowhere"], 2);
    cortex.run(&["ingest", "/"], 2);
    let one = Cortex::new("ingest-limit", &database.url).with("CORTEX_INGEST__MAX_FILES", "1");
    one.file("a.txt", "a");
    one.run(&["ingest", "a.txt"], 0);
    one.file("b.txt", "b");
    assert!(one.run(&["ingest", "."], 2).err.contains("max_files"));
}

#[tokio::test]
async fn up_and_down_are_idempotent_and_know_each_other() {
    let database = filled().await;
    let cortex = Cortex::new("up", &database.url);
    assert_eq!(cortex.run(&["down", "--json"], 0).json()["stopped"], false);
    let up = cortex.run(&["up", "--json"], 0).json();
    assert_eq!(up["started"], true, "{up}");
    let again = cortex.run(&["up", "--json"], 0).json();
    assert_eq!(
        (again["started"].clone(), again["pid"].clone()),
        (json!(false), up["pid"].clone())
    );
    let address = up["address"].as_str().unwrap().to_owned();
    let health = support::http::send(
        &address,
        b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert_eq!(health.status, 200);
    assert_eq!(health.json()["worker"]["state"], "working");
    // A second service of the same folder, or on the same port, is refused with the reason.
    let second = cortex.run(&["serve"], 5);
    assert!(second.err.contains("down"), "{second:?}");
    let other = Cortex::new("up-other", &database.url).with("CORTEX_SERVER__LISTEN", &address);
    let taken = other.run(&["up"], 5);
    assert!(
        taken.err.contains(&address) && taken.err.contains("server.listen"),
        "{taken:?}"
    );
    let doctor = cortex.run(&["doctor", "--json"], 0).json();
    let worker = doctor["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["name"] == "worker")
        .unwrap()
        .clone();
    assert_eq!(worker["verdict"], "ok", "{worker}");

    assert_eq!(cortex.run(&["down", "--json"], 0).json()["stopped"], true);
    assert_eq!(cortex.run(&["down", "--json"], 0).json()["stopped"], false);
    assert!(tokio::net::TcpStream::connect(&address).await.is_err());
}

#[tokio::test]
async fn an_extension_of_another_release_is_refused_with_what_to_do() {
    let database = filled().await;
    let cortex = Cortex::new("release", &database.url);
    let mut session = database.session().await;
    let ours = env!("CARGO_PKG_VERSION");
    let (major, minor) = ours
        .split_once('.')
        .map(|(major, rest)| (major, rest.split('.').next().unwrap()))
        .unwrap();
    let (major, minor): (u32, u32) = (major.parse().unwrap(), minor.parse().unwrap());
    for (version, hint) in [
        (format!("{major}.{}.0", minor + 1), Some("binary")),
        (format!("{}.0.0", major + 1), Some("binary")),
        (format!("{major}.{minor}.99"), None),
    ] {
        let update =
            format!("UPDATE pg_extension SET extversion = '{version}' WHERE extname = 'cortex'");
        run(&mut session, &update).await;
        let code = if hint.is_some() { 4 } else { 0 };
        let read = cortex.run(&["read", "kestrel", "--json"], code).json();
        if let Some(word) = hint {
            assert_eq!(read["code"], "extension_version");
            assert!(
                read["hint"].as_str().unwrap().contains(word)
                    && read["error"].as_str().unwrap().contains(&version),
                "{read}"
            );
            let doctor = cortex.run(&["doctor", "--json"], 1).json();
            assert!(doctor.to_string().contains(&version), "{doctor}");
            cortex.run(&["worker"], 4);
        }
    }
}

#[tokio::test]
async fn logs_hold_no_secret_and_no_text() {
    let database = Database::new().await;
    let cortex = Cortex::new("logs", &database.url)
        .with("CORTEX_LOG__LEVEL", "trace")
        .with("CORTEX_LOG__JSON", "true")
        .with("CORTEX_SERVER__KEY", "quetzal-key-0123456789");
    let up = cortex.run(&["up", "--json"], 0).json();
    let address = up["address"].as_str().unwrap().to_owned();
    for (path, body) in [
        (
            "/api/v1/sources",
            r#"{"artifact_id":"file:quetzal-name","body":"A quetzal-body sat there."}"#,
        ),
        ("/api/v1/search", r#"{"question":"quetzal-question"}"#),
        (
            "/api/v1/search",
            r#"{"question":"quetzal-question","namespace":"quetzal-nowhere"}"#,
        ),
        ("/api/v1/read", r#"{"question":"quetzal-question","#),
        ("/api/v1/quetzal-path", "{}"),
    ] {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Authorization: Bearer quetzal-key-0123456789\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        support::http::send(&address, request.as_bytes()).await;
    }
    let mut session = database.session().await;
    support::until(&mut session, "the worker is done", support::DRAINED).await;
    cortex.run(&["down"], 0);
    let log = std::fs::read_to_string(up["log"].as_str().unwrap()).unwrap();
    assert!(!log.contains("quetzal"), "{log}");
    assert!(
        log.contains("/api/v1/sources"),
        "requests are not logged: {log}"
    );
    for line in log.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[tokio::test]
async fn an_up_that_fails_shows_why() {
    let database = Database::new().await;
    let mut session = database.session().await;
    run(&mut session, "DROP EXTENSION cortex CASCADE").await;
    let failed = Cortex::new("up-fails", &database.url).run(&["up"], 5);
    assert!(failed.err.contains("CREATE EXTENSION cortex"), "{failed:?}");
}

#[tokio::test]
async fn doctor_names_each_trouble() {
    let database = filled().await;
    let cortex = Cortex::new("doctor", &database.url);
    let verdict = |report: &Value, name: &str| {
        let checks = report["checks"].as_array().unwrap().clone();
        let check = checks
            .into_iter()
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {report}"));
        (
            check["verdict"].as_str().unwrap().to_owned(),
            check["found"].as_str().unwrap().to_owned(),
        )
    };
    let well = cortex.run(&["doctor", "--json"], 0).json();
    assert_eq!(well["ok"], true);
    assert_eq!(verdict(&well, "model").0, "warn");
    assert_eq!(verdict(&well, "worker").0, "warn");
    for name in [
        "settings",
        "postgres",
        "extension",
        "query",
        "sealer",
        "queue",
        "bindings",
        "triggers",
        "listen",
    ] {
        assert_eq!(verdict(&well, name).0, "ok", "{name}: {well}");
    }

    let mut session = database.session().await;
    run(
        &mut session,
        "CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note VALUES (1, 'A heron stood there.');
         SELECT cortex_bind('note'); SELECT cortex_work(); SELECT cortex_pause('note');
         INSERT INTO cortex.job (namespace_id, kind, payload, state, last_error) SELECT id, 'load', '{}', 'dead', 'it broke' FROM cortex.namespace;
         UPDATE cortex.change SET seq = NULL, made_at = now() - interval '1 hour' WHERE id = (SELECT max(id) FROM cortex.change);
         ALTER TABLE note DISABLE TRIGGER cortex_1_update",
    )
    .await;
    let ill = cortex.run(&["doctor", "--json"], 1).json();
    assert_eq!(ill["ok"], false);
    for (name, word) in [
        ("bindings", "paused"),
        ("queue", "it broke"),
        ("sealer", "wait for their number"),
        ("triggers", "cortex_1_update"),
    ] {
        let (verdict, found) = verdict(&ill, name);
        assert_eq!(verdict, "fail", "{name}: {found}");
        assert!(found.contains(word), "{name}: {found}");
    }
}
