//! The programs that verify without a database, and the page that tells a stranger how.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{python, python_folder, sound};
use cortex_conformance::samples::{self, Sample};
use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("cortex-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn sample(id: &str) -> &'static Sample {
    samples::all()
        .iter()
        .find(|sample| sample.id == id)
        .unwrap()
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().unwrap_or_default().to_owned()
}

/// Runs the commands of the page, with the Python of the tests, in a copy of what they need.
#[test]
fn a_stranger_can_follow_the_page() {
    let page = std::fs::read_to_string(repository().join("docs/verify-an-answer.md")).unwrap();
    let folder = folder("page");
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    // What the commands write stays out of the repository.
    std::os::unix::fs::symlink(
        repository().join("conformance").canonicalize().unwrap(),
        folder.join("conformance"),
    )
    .unwrap();
    let mut commands = 0;
    for block in page.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for part in block.split("$ ").skip(1) {
            let (command, expected) = part.split_once('\n').unwrap();
            let here = command.replace("python3 ", &format!("{python} "));
            let output = Command::new("sh")
                .args(["-c", &here])
                .current_dir(&folder)
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .output()
                .unwrap();
            sound(&output);
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                expected,
                "{command}"
            );
            commands += 1;
        }
    }
    assert!(commands >= 5, "{commands} commands");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_example_of_the_page_is_a_trace_of_the_vectors() {
    let answered = sample("answered");
    for (name, text) in [("trace", &answered.trace), ("evidence", &answered.evidence)] {
        let path = repository().join(format!("conformance/example/{name}.json"));
        assert_eq!(std::fs::read_to_string(path).unwrap(), format!("{text}\n"));
    }
}

fn both(arguments: &[&str]) -> [Output; 2] {
    let first = Command::new(env!("CARGO_BIN_EXE_cortex-verify"))
        .args(arguments)
        .output();
    let second = python()
        .arg(python_folder().join("verify.py"))
        .args(arguments)
        .output();
    let outputs = [first.unwrap(), second.unwrap()];
    outputs.iter().for_each(sound);
    outputs
}

#[test]
fn both_programs_tell_by_their_exit_codes() {
    let folder = folder("programs");
    let of = sample("answered");
    let trace = write(&folder, "trace.json", &of.trace);
    let evidence = write(&folder, "evidence.json", &(of.evidence.clone() + "\n"));
    let other = write(&folder, "other.json", &sample("compared").evidence);
    let broken = write(&folder, "broken.json", &of.trace.replacen("b3:", "b3;", 1));
    let large = write(&folder, "large.json", &" ".repeat((8 << 20) + 2));
    let none = folder.join("none").to_str().unwrap().to_owned();
    let question = of.question.as_str();
    let erased = write(&folder, "erased.json", &sample("texts-erased").evidence);
    let erased_trace = write(&folder, "erased-trace.json", &sample("texts-erased").trace);

    type Expected = (i32, &'static str);
    let cases: [(&[&str], Expected); 15] = [
        (&[&trace], (0, "verified, level L0")),
        (
            &[&trace, "--evidence", &evidence],
            (0, "verified, level L2"),
        ),
        (
            &[&trace, "--evidence", &evidence, "--question", question],
            (0, "verified, level L2"),
        ),
        (
            &[&trace, "--evidence", &evidence, "--question", "what else"],
            (1, "NOT verified"),
        ),
        (&[&trace, "--evidence", &other], (1, "NOT verified")),
        (&[&trace, "--evidence", &broken], (1, "NOT verified")),
        (&[&trace, "--evidence", &large], (1, "NOT verified")),
        (
            &[&erased_trace, "--evidence", &erased],
            (0, "verified as far as the texts were not erased, level L0"),
        ),
        (&[&broken], (1, "NOT verified")),
        (&[&large], (1, "NOT verified")),
        (&[&none], (2, "")),
        (&[&trace, "--evidence", &none], (2, "")),
        (&[&trace, "--question", question], (2, "")),
        (&[&trace, "--salt", "00"], (2, "")),
        (&[], (2, "")),
    ];
    for (arguments, (code, last)) in cases {
        for output in both(arguments) {
            assert_eq!(
                output.status.code(),
                Some(code),
                "{arguments:?}: {output:?}"
            );
            assert_eq!(last_line(&output), last, "{arguments:?}");
            assert_eq!(output.stderr.is_empty(), code != 2, "{arguments:?}");
        }
    }
    for output in both(&["--help"]) {
        assert!(output.status.success());
        assert!(
            String::from_utf8_lossy(&output.stdout)
                .contains("does not mean that the answer is true")
        );
    }
    let [first, second] = both(&[&trace, "--evidence", &other, "--json"]);
    let [first, second]: [Value; 2] =
        [first, second].map(|output| serde_json::from_slice(&output.stdout).unwrap());
    for member in [
        "ok",
        "level",
        "outcome",
        "failed_step",
        "code",
        "where",
        "expected",
        "found",
    ] {
        assert_eq!(first[member], second[member], "{member}");
    }
    assert_eq!(first["code"], "T_EVIDENCE");
    std::fs::remove_dir_all(folder).unwrap();
}

fn runner(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cortex-conformance"));
    command.args(arguments).output().unwrap()
}

#[test]
fn the_runner_takes_any_trace_file() {
    let folder = folder("files");
    let of = sample("partly-supported");
    let trace = write(&folder, "a", &(of.trace.clone() + "\n"));
    let evidence = write(&folder, "b", &of.evidence);
    let lines = [&sample("lexical").trace, &sample("rounds").trace];
    let lines = write(&folder, "c", &format!("{}\n{}\n", lines[0], lines[1]));
    let erased = sample("item-erased");
    let case = serde_json::json!({"trace": erased.trace, "evidence": erased.evidence, "question": erased.question});
    let case = write(&folder, "d", &case.to_string());
    let vectors = repository().join("conformance/trace/v1/offline.json");
    let vectors = vectors.to_str().unwrap();

    let all = runner(&["verify", &trace, &evidence, &lines, &case]);
    assert_eq!(last_line(&all), "3 passed, 0 failed, 1 by design");
    assert!(all.status.success());
    assert!(String::from_utf8_lossy(&all.stdout).contains("/a: verified, level L2"));
    let of_vectors = runner(&["verify", vectors]);
    assert!(
        last_line(&of_vectors).ends_with(" passed, 0 failed, 0 by design"),
        "{}",
        last_line(&of_vectors)
    );

    let broken = write(&folder, "e", &of.trace.replacen("\"n\":1", "\"n\":2", 1));
    let empty = write(&folder, "f", "");
    let none = folder.join("none").to_str().unwrap().to_owned();
    let wrong = runner(&["verify", &broken, &empty, &none, &trace]);
    assert_eq!(last_line(&wrong), "1 passed, 3 failed, 0 by design");
    assert_eq!(wrong.status.code(), Some(1));

    let tampered = runner(&["tamper", "--random", "200", &trace, &evidence]);
    let closing = last_line(&tampered);
    assert!(tampered.status.success(), "{closing}");
    let counts: Vec<usize> = closing
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(
        counts[0] > 2_000 && counts[1] == 0 && counts[2] > 0,
        "{closing}"
    );
    let wrong = runner(&["tamper", "--random", "0", "--quiet", &broken]);
    assert_eq!(last_line(&wrong), "0 passed, 1 failed, 0 by design");
    for arguments in [
        &["tamper"][..],
        &["verify", "--forge", &trace],
        &["tamper", "--random", "x", &trace],
    ] {
        assert_eq!(runner(arguments).status.code(), Some(2), "{arguments:?}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
