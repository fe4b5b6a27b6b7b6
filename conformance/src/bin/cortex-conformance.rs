//! Runs the golden vectors of Cortex.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cortex_conformance::vectors::{self, EMBEDDED, FROZEN, Tally};

const HELP: &str = "\
Runs the golden vectors of Cortex.

Usage:
  cortex-conformance vectors [DIR] [--json]   run all vectors; exit code 1 if a case fails
  cortex-conformance generate DIR             write the vector files under DIR

Without DIR the vectors built into this program are run. With DIR the files under it are run and
their digests are compared with the frozen ones.

Options:
  --json   one JSON object: {\"passed\", \"failed\": [reasons]}
  --help   this text
";

enum Command {
    Help,
    Vectors { dir: Option<PathBuf>, json: bool },
    Generate { dir: PathBuf },
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match parse(&arguments) {
        Ok(Command::Help) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Command::Vectors { dir, json }) => run(dir.as_deref(), json),
        Ok(Command::Generate { dir }) => match generate(&dir) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cortex-conformance: {error}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("cortex-conformance: {error}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: &[String]) -> Result<Command, String> {
    if arguments
        .iter()
        .any(|argument| argument == "--help" || argument == "-h")
    {
        return Ok(Command::Help);
    }
    let json = arguments.iter().any(|argument| argument == "--json");
    let words = arguments.iter().filter(|argument| *argument != "--json");
    let words: Vec<&str> = words.map(String::as_str).collect();
    if let Some(option) = words.iter().find(|word| word.starts_with('-')) {
        return Err(format!("unknown option {option}"));
    }
    match words[..] {
        ["vectors"] => Ok(Command::Vectors { dir: None, json }),
        ["vectors", dir] => Ok(Command::Vectors {
            dir: Some(dir.into()),
            json,
        }),
        ["generate", dir] if !json => Ok(Command::Generate { dir: dir.into() }),
        [] => Err("a command is missing".into()),
        _ => Err(format!("cannot understand {:?}", words.join(" "))),
    }
}

fn run(dir: Option<&Path>, json: bool) -> ExitCode {
    let mut total = Tally::default();
    for (path, text) in EMBEDDED {
        let tally = match dir {
            None => vectors::check(path, text),
            Some(dir) => check_file(dir, path),
        };
        if !json {
            println!(
                "{path}: {} passed, {} failed",
                tally.passed,
                tally.failed.len()
            );
        }
        total.add(tally);
    }
    let failed = total.failed.len();
    if json {
        println!(
            "{}",
            serde_json::json!({"passed": total.passed, "failed": total.failed})
        );
    } else {
        for reason in &total.failed {
            println!("FAILED {reason}");
        }
        println!("{} passed, {failed} failed", total.passed);
    }
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Runs a file of a folder. A file that is not the frozen one is run all the same, and counts as one
/// more failure.
fn check_file(dir: &Path, path: &str) -> Tally {
    let text = match std::fs::read_to_string(dir.join(path)) {
        Ok(text) => text,
        Err(error) => return Tally::broken(path, error),
    };
    let mut tally = vectors::check(path, &text);
    let frozen = FROZEN.iter().find(|(frozen, _)| *frozen == path);
    let found = vectors::file_digest(&text);
    if let Some((_, expected)) = frozen.filter(|(_, expected)| *expected != found) {
        let reason = format!("digest: expected {expected}, found {found}");
        tally.add(Tally::broken(path, reason));
    }
    tally
}

fn generate(dir: &Path) -> std::io::Result<()> {
    for (path, text) in vectors::generate() {
        let file = dir.join(path);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&file, &text)?;
        println!("{}  {path}", vectors::file_digest(&text));
    }
    Ok(())
}
