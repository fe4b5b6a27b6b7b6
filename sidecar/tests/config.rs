//! Settings: defaults, file, environment, and every way they can be wrong. In a binary of its own, with the
//! environment passed in, so that no test sees another's.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use cortex_sidecar::config::{self, Config, DEFAULTS, Origin};
use cortex_sidecar::error::Outcome;

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("cortex-config-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path.canonicalize().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn load(here: &Path, environment: &[(&str, &str)]) -> Outcome<(Config, Origin)> {
    let environment: Vec<(OsString, OsString)> = environment
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)))
        .collect();
    config::load_from(None, here, environment)
}

/// The message and hint of the failure that must come.
fn refused(here: &Path, environment: &[(&str, &str)]) -> String {
    match load(here, environment) {
        Ok(_) => panic!("it was accepted: {environment:?}"),
        Err(failure) => {
            assert_eq!(failure.code, "invalid_config");
            assert_eq!(failure.kind.exit_code(), 2);
            failure.to_string()
        }
    }
}

#[test]
fn defaults_stand_alone() {
    let folder = Folder::new("alone");
    let (config, origin) = load(&folder.0, &[]).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:7411");
    assert_eq!(config.model.dir, folder.0.join(".cortex/model"));
    assert_eq!(origin, Origin::default());
}

#[test]
fn every_default_has_a_comment() {
    let mut commented = false;
    for line in DEFAULTS.lines() {
        if line.starts_with('#') {
            commented = true;
        } else if line.contains(" = ") {
            assert!(commented, "no comment above `{line}`");
            commented = false;
        }
    }
}

#[test]
fn the_file_is_found_above_and_paths_follow_it() {
    let folder = Folder::new("above");
    folder.file(
        "cortex.toml",
        "[model]\ndir = \"models/small\"\n[read]\nk = 7\n",
    );
    let below = folder.0.join("a/b");
    fs::create_dir_all(&below).unwrap();
    let (config, origin) = load(&below, &[]).unwrap();
    assert_eq!(config.read.k, 7);
    assert_eq!(config.model.dir, folder.0.join("models/small"));
    assert_eq!(config.state.dir, folder.0.join(".cortex/run"));
    assert_eq!(origin.file, Some(folder.0.join("cortex.toml")));
}

#[test]
fn the_nearest_file_wins() {
    let folder = Folder::new("nearest");
    folder.file("cortex.toml", "[read]\nk = 1\n");
    folder.file("a/cortex.toml", "[read]\nk = 2\n");
    assert_eq!(load(&folder.0.join("a"), &[]).unwrap().0.read.k, 2);
}

#[test]
fn a_named_file_wins_over_a_found_one() {
    let folder = Folder::new("named");
    folder.file("cortex.toml", "[read]\nk = 1\n");
    folder.file("other/settings.toml", "[read]\nk = 3\n");
    let (config, _) = load(&folder.0, &[("CORTEX_CONFIG", "other/settings.toml")]).unwrap();
    assert_eq!(config.read.k, 3);
    assert_eq!(config.state.dir, folder.0.join("other/.cortex/run"));
    assert!(refused(&folder.0, &[("CORTEX_CONFIG", "none.toml")]).contains("none.toml"));
    assert!(refused(&folder.0, &[("CORTEX_CONFIG", "")]).contains("CORTEX_CONFIG is empty"));
}

#[test]
fn the_environment_comes_last() {
    let folder = Folder::new("environment");
    folder.file("cortex.toml", "[read]\nk = 1\n[log]\njson = false\n");
    let (config, origin) = load(
        &folder.0,
        &[
            ("CORTEX_READ__K", "9"),
            ("CORTEX_LOG__JSON", "true"),
            ("CORTEX_MODEL__DIR", ""),
            ("OTHER", "x"),
        ],
    )
    .unwrap();
    assert_eq!((config.read.k, config.log.json), (9, true));
    assert_eq!(config.model.dir(), None);
    assert_eq!(
        origin.variables,
        ["CORTEX_LOG__JSON", "CORTEX_MODEL__DIR", "CORTEX_READ__K"]
    );
}

#[test]
fn unknown_names_are_fatal_and_name_the_nearest() {
    let folder = Folder::new("unknown");
    let said = refused(&folder.0, &[("CORTEX_DATABASE__URI", "postgresql:///x")]);
    assert!(
        said.contains("CORTEX_DATABASE__URI") && said.contains("CORTEX_DATABASE__URL"),
        "{said}"
    );
    let said = refused(&folder.0, &[("CORTEX_COFNIG", "x")]);
    assert!(said.contains("CORTEX_CONFIG"), "{said}");
    folder.file("cortex.toml", "[worker]\nlease_seconds = 5\n");
    let said = refused(&folder.0, &[]);
    assert!(
        said.contains("worker.lease_seconds") && said.contains("worker.lease_s?"),
        "{said}"
    );
    folder.file("cortex.toml", "[databse]\nurl = \"postgresql:///x\"\n");
    let said = refused(&folder.0, &[]);
    assert!(
        said.contains("[databse]") && said.contains("database"),
        "{said}"
    );
    folder.file("cortex.toml", "listen = \"127.0.0.1:1\"\n");
    assert!(refused(&folder.0, &[]).contains("listen"));
    folder.file("cortex.toml", "server = 3\n");
    assert!(refused(&folder.0, &[]).contains("[server]"));
}

#[test]
fn wrong_types_are_refused_with_the_value() {
    let folder = Folder::new("types");
    let said = refused(&folder.0, &[("CORTEX_READ__K", "ten")]);
    assert!(
        said.contains("CORTEX_READ__K") && said.contains("ten") && said.contains("whole number"),
        "{said}"
    );
    assert!(refused(&folder.0, &[("CORTEX_LOG__JSON", "yes")]).contains("true or false"));
    folder.file("cortex.toml", "[read]\nk = \"7\"\n");
    assert!(refused(&folder.0, &[]).contains("read.k"));
    folder.file("cortex.toml", "[server]\nlisten = \"somewhere\"\n");
    refused(&folder.0, &[]);
    folder.file("cortex.toml", "[read]\nk = 99999999999\n");
    refused(&folder.0, &[]);
}

#[test]
fn values_are_checked_at_both_ends() {
    let folder = Folder::new("ranges");
    for (name, inside, outside) in [
        ("CORTEX_READ__K", ["1", "200"], ["0", "201"]),
        (
            "CORTEX_READ__BUDGET_TOKENS",
            ["1", "1000000"],
            ["0", "1000001"],
        ),
        ("CORTEX_DATABASE__POOL_SIZE", ["2", "100"], ["1", "101"]),
        ("CORTEX_WORKER__LEASE_S", ["3", "3600"], ["2", "3601"]),
        ("CORTEX_WORKER__BATCH_ROWS", ["1", "1000"], ["0", "1001"]),
        (
            "CORTEX_WORKER__SEAL_IDLE_INTERVAL_MS",
            ["20", "60000"],
            ["19", "60001"],
        ),
        (
            "CORTEX_SERVER__BODY_LIMIT_BYTES",
            ["1024", "1073741824"],
            ["1023", "1073741825"],
        ),
        (
            "CORTEX_LOG__LEVEL",
            ["debug", "info,cortex=trace"],
            ["loud=very=much", "info,[{"],
        ),
    ] {
        for value in inside {
            load(&folder.0, &[(name, value)])
                .unwrap_or_else(|failure| panic!("{name}={value}: {failure}"));
        }
        for value in outside {
            refused(&folder.0, &[(name, value)]);
        }
    }
    refused(&folder.0, &[("CORTEX_READ__NAMESPACE", "")]);
    refused(
        &folder.0,
        &[("CORTEX_DATABASE__URL", "mysql://localhost/x")],
    );
    refused(&folder.0, &[("CORTEX_DATABASE__URL", "")]);
    refused(
        &folder.0,
        &[("CORTEX_DATABASE__DIRECT_URL", "host=localhost")],
    );
}

#[test]
fn beyond_loopback_needs_a_key() {
    let folder = Folder::new("exposure");
    let key = ("CORTEX_SERVER__KEY", "0123456789abcdef");
    for listen in ["0.0.0.0:7411", "[::]:7411", "192.0.2.1:80"] {
        let said = refused(&folder.0, &[("CORTEX_SERVER__LISTEN", listen)]);
        assert!(said.contains("server.key"), "{said}");
        load(&folder.0, &[("CORTEX_SERVER__LISTEN", listen), key]).unwrap();
    }
    for listen in ["127.0.0.1:0", "127.8.9.1:1", "[::1]:7411"] {
        load(&folder.0, &[("CORTEX_SERVER__LISTEN", listen)]).unwrap();
    }
    refused(&folder.0, &[("CORTEX_SERVER__KEY", "0123456789abcde")]);
    refused(&folder.0, &[("CORTEX_SERVER__KEY", "0123456789 abcdef")]);
}

#[test]
fn secrets_are_never_shown() {
    let folder = Folder::new("secrets");
    let secret = "hunter2hunter2hunter2";
    let url =
        format!("postgresql://me:{secret}@db.example:5432/app?password={secret}&sslmode=disable");
    let (config, _) = load(
        &folder.0,
        &[
            ("CORTEX_DATABASE__URL", &url),
            ("CORTEX_DATABASE__DIRECT_URL", &url),
            ("CORTEX_SERVER__KEY", secret),
        ],
    )
    .unwrap();
    let shown = format!("{config:?} {}", serde_json::to_string(&config).unwrap());
    assert!(!shown.contains(secret), "{shown}");
    assert!(
        shown.contains("postgresql://me:***@db.example:5432/app?sslmode=disable"),
        "{shown}"
    );
    // Nor in what is said about a wrong one.
    for text in [
        format!("[server]\nkey = \"{secret}\n"),
        format!("[server]\nkey = [\"{secret}\"]\n"),
        format!("[database]\nurl = \"mysql://me:{secret}@x\"\n"),
        format!("[database]\nurl = {{ password = \"{secret}\" }}\n"),
    ] {
        folder.file("cortex.toml", &text);
        let said = refused(&folder.0, &[]);
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn a_syntax_error_names_its_line() {
    let folder = Folder::new("syntax");
    folder.file("cortex.toml", "[read]\nk = 1\nbudget_tokens = = 3\n");
    assert!(refused(&folder.0, &[]).contains("line 3"));
}

#[test]
fn a_huge_file_is_not_read() {
    let folder = Folder::new("huge");
    folder.file("cortex.toml", &"#".repeat((1 << 20) + 1));
    assert!(refused(&folder.0, &[]).contains("limit"));
    folder.file("cortex.toml", &"#".repeat(1 << 20));
    load(&folder.0, &[]).unwrap();
}

#[test]
fn a_language_model_must_be_named_with_a_plain_address() {
    let folder = Folder::new("language");
    let on = |more: &[(&str, &str)]| {
        let mut all = vec![
            ("CORTEX_LANGUAGE_MODEL__PROVIDER", "openai"),
            ("CORTEX_LANGUAGE_MODEL__NAME", "qwen"),
        ];
        all.extend_from_slice(more);
        all.iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect::<Vec<_>>()
    };
    let refused_with = |more: &[(&str, &str)]| {
        let all = on(more);
        let all: Vec<(&str, &str)> = all.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        refused(&folder.0, &all)
    };
    let (config, _) = load(&folder.0, &[]).unwrap();
    assert!(!config.language_model.is_on() && !config.language_model.is_remote());
    for url in [
        "ftp://127.0.0.1",
        "127.0.0.1:11434",
        "http://user:secret@127.0.0.1",
        "http://127.0.0.1/?key=secret",
        "",
    ] {
        let said = refused_with(&[("CORTEX_LANGUAGE_MODEL__URL", url)]);
        assert!(
            said.contains("language_model.url") && !said.contains("secret"),
            "{said}"
        );
    }
    for (key, value) in [
        ("CORTEX_LANGUAGE_MODEL__NAME", " "),
        ("CORTEX_LANGUAGE_MODEL__PROVIDER", "magic"),
        ("CORTEX_LANGUAGE_MODEL__API_KEY", "two words"),
        ("CORTEX_LANGUAGE_MODEL__TIMEOUT_S", "0"),
        ("CORTEX_LANGUAGE_MODEL__CONTEXT_TOKENS", "1023"),
        ("CORTEX_LANGUAGE_MODEL__REPLY_TOKENS", "4097"),
        ("CORTEX_LANGUAGE_MODEL__PARALLEL", "65"),
    ] {
        let said = refused_with(&[(key, value)]);
        assert!(!said.contains("two words"), "{said}");
    }
    for (url, remote, shows_key) in [
        ("http://127.0.0.1:11434", false, false),
        ("http://[::1]:11434/", false, false),
        ("http://localhost:11434/v1", false, false),
        ("http://192.168.1.9:8080", true, true),
        ("https://models.example.org/v1", true, false),
        ("http://localhost.example.org", true, true),
    ] {
        let all = on(&[
            ("CORTEX_LANGUAGE_MODEL__URL", url),
            ("CORTEX_LANGUAGE_MODEL__API_KEY", "a-secret-key"),
        ]);
        let all: Vec<(&str, &str)> = all.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let (config, _) = load(&folder.0, &all).unwrap();
        let model = &config.language_model;
        assert_eq!(
            (model.is_remote(), model.shows_its_key()),
            (remote, shows_key),
            "{url}"
        );
        assert!(
            !serde_json::to_string(&config)
                .unwrap()
                .contains("a-secret-key")
        );
    }
}
