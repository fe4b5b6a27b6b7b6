//! The vector files: frozen, equal to what the generator writes, and passing.

use std::path::Path;
use std::process::{Command, Output};

use cortex_conformance::vectors::{EMBEDDED, FROZEN, check, file_digest, generate};

const REGENERATE: &str =
    "cargo run -p cortex-conformance --bin cortex-conformance -- generate conformance";

#[test]
fn the_files_are_what_the_generator_writes() {
    let generated = generate();
    let paths = generated.iter().map(|(path, _)| *path);
    assert!(paths.eq(EMBEDDED.iter().map(|(path, _)| *path)));
    for ((path, written), (_, stored)) in generated.iter().zip(EMBEDDED) {
        let line = written
            .lines()
            .zip(stored.lines())
            .position(|(a, b)| a != b);
        assert!(
            written == stored,
            "{path} differs from the generator's output, first in line {line:?} (from 0). If the change \
             is meant, it needs a new version; before a release, regenerate with\n    {REGENERATE}"
        );
    }
}

#[test]
fn released_files_are_frozen() {
    for ((path, text), (frozen, expected)) in EMBEDDED.iter().zip(FROZEN) {
        assert_eq!(*path, frozen);
        assert_eq!(
            file_digest(text),
            expected,
            "{path} was changed: {REGENERATE}"
        );
    }
}

#[test]
fn every_case_passes() {
    for (path, text) in EMBEDDED {
        let tally = check(path, text);
        assert_eq!(tally.failed, Vec::<String>::new());
        assert!(tally.passed >= 6, "{path}: only {} cases", tally.passed);
    }
}

#[test]
fn ids_are_unique_and_cases_are_described() {
    for (path, text) in EMBEDDED {
        let file: serde_json::Value = serde_json::from_str(text).unwrap();
        let cases = file["cases"].as_array().unwrap();
        let ids = cases.iter().map(|case| case["id"].as_str().unwrap());
        let distinct: std::collections::BTreeSet<&str> = ids.collect();
        assert_eq!(distinct.len(), cases.len(), "{path}");
        assert!(
            cases
                .iter()
                .all(|case| !case["description"].as_str().unwrap().is_empty())
        );
    }
}

#[test]
fn a_wrong_expectation_is_found_in_every_file() {
    for (path, text) in EMBEDDED {
        // The first expected digest, rule or step of the file, replaced.
        let changes = [
            (
                "\"canonical\":[{\"text\":\"null\"}]",
                "\"canonical\":[{\"text\":\"true\"}]",
            ),
            ("\"error\":\"unexpected_end\"", "\"error\":\"float\""),
            ("\"hash\":\"b3:", "\"hash\":\"b3:0"),
            ("\"receipts\":[\"b3:", "\"receipts\":[\"b3:0"),
            ("\"level\":\"L0\"", "\"level\":\"L2\""),
            ("\"level\":\"L4\"", "\"level\":\"L2\""),
            ("\"code\":\"T_STRUCT\"", "\"code\":\"T_ROOT\""),
            ("\"gives\":{\"tokens\":[]}", "\"gives\":{\"terms\":[]}"),
            ("\"gives\":{\"range\":[0,0]}", "\"gives\":{\"range\":null}"),
            ("\"gives\":{\"range\":null}", "\"gives\":{\"range\":[0,1]}"),
            (
                "\"gives\":{\"figures\":[0,[]]}",
                "\"gives\":{\"figures\":[1,[]]}",
            ),
            ("\"gives\":{\"Ok\":[]}", "\"gives\":{\"Err\":\"\"}"),
            ("\"error\":\"exponent\"", "\"error\":\"float\""),
        ];
        let change = changes.iter().find(|(from, _)| text.contains(from));
        let (from, to) = change.unwrap_or_else(|| panic!("{path} expects none of these"));
        let mut changed = text.replacen(from, to, 1);
        if to.ends_with("b3:0") {
            // Sixty-four digits again.
            let at = changed.find(to).unwrap() + to.len();
            changed.remove(at);
            changed.replace_range(
                at - 1..at,
                if text[at - 1..].starts_with('0') {
                    "1"
                } else {
                    "0"
                },
            );
        }
        assert_eq!(check(path, &changed).failed.len(), 1, "{path}");
    }
}

fn run(program: &str, arguments: &[&str]) -> Output {
    let program = match program {
        "cortex-verify" => env!("CARGO_BIN_EXE_cortex-verify"),
        _ => env!("CARGO_BIN_EXE_cortex-conformance"),
    };
    Command::new(program).args(arguments).output().unwrap()
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn the_runner_ends_with_its_counts() {
    let folder = tempdir("runner");
    let alone = run("cortex-conformance", &["vectors"]);
    assert!(alone.status.success());
    assert!(
        last_line(&alone).ends_with(" passed, 0 failed"),
        "{}",
        last_line(&alone)
    );

    let path = folder.to_str().unwrap();
    assert!(
        run("cortex-conformance", &["generate", path])
            .status
            .success()
    );
    let written = run("cortex-conformance", &["vectors", path]);
    assert_eq!(last_line(&written), last_line(&alone));

    // A file that was changed, even where no case notices.
    let file = folder.join("canon/v1/accept.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "\n").unwrap();
    let changed = run("cortex-conformance", &["vectors", path]);
    assert!(!changed.status.success());
    assert!(last_line(&changed).ends_with(" passed, 1 failed"));

    std::fs::remove_file(&file).unwrap();
    let gone = run("cortex-conformance", &["vectors", path, "--json"]);
    assert!(!gone.status.success());
    let report: serde_json::Value = serde_json::from_slice(&gone.stdout).unwrap();
    assert_eq!(report["failed"].as_array().unwrap().len(), 1);

    assert_eq!(
        run("cortex-conformance", &["victors"]).status.code(),
        Some(2)
    );
    assert_eq!(
        run("cortex-conformance", &["vectors", "--jsn"])
            .status
            .code(),
        Some(2)
    );
    assert!(run("cortex-conformance", &["--help"]).status.success());
    std::fs::remove_dir_all(folder).unwrap();
}

fn tempdir(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("cortex-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn case(file: &str, id: &str) -> serde_json::Value {
    let (_, text) = EMBEDDED.iter().find(|(path, _)| *path == file).unwrap();
    let file: serde_json::Value = serde_json::from_str(text).unwrap();
    let cases = file["cases"].as_array().unwrap();
    cases.iter().find(|case| case["id"] == id).unwrap().clone()
}

#[test]
fn the_standalone_verifier_tells_by_its_exit_code() {
    let folder = tempdir("verify");
    let file = folder.join("trace.json");
    let path = file.to_str().unwrap();
    let question = case("trace/v1/alone.json", "question");
    let trace = question["trace"].as_str().unwrap();
    std::fs::write(&file, trace).unwrap();
    let sound = run("cortex-verify", &[path]);
    assert_eq!(sound.status.code(), Some(0));
    assert_eq!(last_line(&sound), "verified, level L0");

    let salt = question["question_salt"].as_str().unwrap();
    let asked = |question| {
        run(
            "cortex-verify",
            &[path, "--question", question, "--salt", salt, "--json"],
        )
    };
    assert_eq!(asked("how fast is vacuum").status.code(), Some(0));
    let other = asked("how slow is vacuum");
    assert_eq!(other.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&other.stdout).unwrap();
    assert_eq!(report["code"], "T_QUESTION");
    assert_eq!(report["where"], "question");

    std::fs::write(&file, trace.replacen("b3:", "b3;", 1)).unwrap();
    assert_eq!(run("cortex-verify", &[path]).status.code(), Some(1));
    let mut bytes = trace.as_bytes().to_vec();
    bytes[2] = 0xff;
    std::fs::write(&file, bytes).unwrap();
    assert_eq!(run("cortex-verify", &[path]).status.code(), Some(1));

    for wrong in [
        &["--question", "x", path][..],
        &[],
        &["--salt", "1", path],
        &["/none"],
        &[path, path],
    ] {
        assert_eq!(
            run("cortex-verify", wrong).status.code(),
            Some(2),
            "{wrong:?}"
        );
    }
    assert!(run("cortex-verify", &["--help"]).status.success());
    std::fs::remove_dir_all(folder).unwrap();
}

/// Runs the Python check of roots on a text, from a file.
fn python(script: &Path, file: &Path) -> Output {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let output = Command::new(&python).arg(script).arg(file).output();
    let output =
        output.unwrap_or_else(|error| panic!("{python}: {error}; set PYTHON to a Python 3"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !errors.contains("No module named 'blake3'"),
        "{python} lacks the package blake3: {python} -m pip install blake3 (make test does it)"
    );
    assert!(!errors.contains("Traceback"), "{errors}");
    output
}

#[test]
fn python_recomputes_every_root_and_finds_a_changed_one() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/verify_root.py");
    let lines = std::fs::read_to_string(&script).unwrap().lines().count();
    assert!(lines <= 40, "{lines} lines");
    let folder = tempdir("python");
    let file = folder.join("trace.json");
    let (_, text) = EMBEDDED
        .iter()
        .find(|(path, _)| *path == "trace/v1/roots.json")
        .unwrap();
    let vectors: serde_json::Value = serde_json::from_str(text).unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        let trace = case["trace"].as_str().unwrap();
        std::fs::write(&file, trace).unwrap();
        let output = python(&script, &file);
        assert!(
            output.status.success(),
            "{}: {}",
            case["id"],
            last_line(&output)
        );

        std::fs::write(&file, trace.replacen("\"seq\":106", "\"seq\":105", 1)).unwrap();
        let output = python(&script, &file);
        assert!(!output.status.success(), "{}", case["id"]);
        assert!(String::from_utf8_lossy(&output.stderr).contains("recorded b3:"));
    }
    std::fs::remove_dir_all(folder).unwrap();
}
