//! Runs the golden vectors of Cortex.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cortex_conformance::claim_pool::{self, Verdict};
use cortex_conformance::files::{self, Case, Tampering, Totals};
use cortex_conformance::unicode;
use cortex_conformance::vectors::{self, EMBEDDED, FROZEN, Tally};

const HELP: &str = "\
Runs the golden vectors of Cortex.

Usage:
  cortex-conformance vectors [DIR] [--json]   run all vectors; exit code 1 if a case fails
  cortex-conformance generate DIR             write the vector files under DIR
  cortex-conformance verify FILE...           verify trace files; exit code 1 if one fails
  cortex-conformance tamper FILE... [--random N] [--seed N] [--forge]
                                              change them in every way; exit code 1 if a change is accepted
  cortex-conformance claim-pool FILE...       replay recorded cases of the claim pool; exit code 1 if a case fails

Without DIR the vectors built into this program are run. With DIR the files under it are run and
their digests are compared with the frozen ones.

verify and tamper take traces, evidence files (which go with the trace whose root they name), files of vectors and
lines of JSON; what a file is, its content says. They print a line a case and close with
`N passed, N failed, N by design`. By design are texts that an evidence file says were erased, and with --forge
changes whose author recomputed every root: that is another trace, and only evidence, replay, a signature or the log
can tell.

Options:
  --json      one JSON object: {\"passed\", \"failed\": [reasons]}
  --random N  random changes of each trace and evidence file beside the matrix (default 1000)
  --seed N    seed of the random changes (default 1)
  --forge     also changes with every root recomputed
  --quiet     only cases that fail, and the closing line
  --help      this text
";

enum Command {
    Help,
    Vectors {
        dir: Option<PathBuf>,
        json: bool,
    },
    Generate {
        dir: PathBuf,
    },
    ClaimPool {
        files: Vec<PathBuf>,
    },
    Files {
        files: Vec<PathBuf>,
        tampering: Option<Tampering>,
        quiet: bool,
    },
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match parse(&arguments) {
        Ok(Command::Help) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Command::ClaimPool { files }) => claim_pool(&files),
        Ok(Command::Files {
            files,
            tampering,
            quiet,
        }) => run_files(&files, tampering, quiet),
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
    if let Some(command @ ("verify" | "tamper")) = arguments.first().map(String::as_str) {
        return parse_files(command, &arguments[1..]);
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
        ["claim-pool"] => Err("claim-pool needs a file".into()),
        ["claim-pool", ref files @ ..] if !json => Ok(Command::ClaimPool {
            files: files.iter().map(PathBuf::from).collect(),
        }),
        ["generate", dir] if !json => Ok(Command::Generate { dir: dir.into() }),
        [] => Err("a command is missing".into()),
        _ => Err(format!("cannot understand {:?}", words.join(" "))),
    }
}

fn parse_files(command: &str, words: &[String]) -> Result<Command, String> {
    let mut tampering = (command == "tamper").then(Tampering::default);
    let mut files = Vec::new();
    let mut quiet = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a number"))?;
            value
                .parse::<u64>()
                .map_err(|error| format!("{word} {value}: {error}"))
        };
        match (word.as_str(), &mut tampering) {
            ("--quiet", _) => quiet = true,
            ("--random", Some(how)) => how.random = number()? as usize,
            ("--seed", Some(how)) => how.seed = number()?,
            ("--forge", Some(how)) => how.forge = true,
            (option, _) if option.starts_with("--") => {
                return Err(format!("unknown option {option} of {command}"));
            }
            (file, _) => files.push(PathBuf::from(file)),
        }
    }
    match files.is_empty() {
        true => Err(format!("{command} needs a file")),
        false => Ok(Command::Files {
            files,
            tampering,
            quiet,
        }),
    }
}

/// Longest file that is read, in bytes; a file of vectors may hold many traces.
const MAX_FILE: u64 = 256 << 20;

fn run_files(paths: &[PathBuf], tampering: Option<Tampering>, quiet: bool) -> ExitCode {
    let mut totals = Totals::default();
    let mut each = |case: Case| {
        totals.count(&case);
        if !quiet || matches!(case.verdict, files::Verdict::Failed(_)) {
            println!("{case}");
        }
    };
    let mut read = Vec::new();
    for path in paths {
        let name = path.display().to_string();
        let bytes = match std::fs::metadata(path) {
            Ok(about) if about.len() > MAX_FILE => Err(format!("more than {MAX_FILE} bytes")),
            _ => std::fs::read(path).map_err(|error| error.to_string()),
        };
        match bytes {
            Ok(bytes) => read.push((name, bytes)),
            Err(error) => each(Case {
                name,
                verdict: files::Verdict::Failed(error),
            }),
        }
    }
    match tampering {
        None => files::verify(read, &mut each),
        Some(how) => files::tamper(read, how, &mut each),
    }
    println!("{totals}");
    match totals.failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
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

/// Replays the cases of files. A file that cannot be read or run counts as one failure.
fn claim_pool(files: &[PathBuf]) -> ExitCode {
    let (mut passed, mut failed, mut by_design) = (0, 0, 0);
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
        let judged =
            text.and_then(|text| claim_pool::run(&text).map_err(|error| error.to_string()));
        let judged = match judged {
            Ok(judged) => judged,
            Err(error) => {
                println!("{} failed: {error}", file.display());
                failed += 1;
                continue;
            }
        };
        for case in judged {
            match case.verdict {
                Verdict::Passed => passed += 1,
                Verdict::ByDesign(_) => by_design += 1,
                Verdict::Failed(_) => failed += 1,
            }
            println!("{case}");
        }
    }
    println!("{passed} passed, {failed} failed, {by_design} by design");
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
    let tables = (unicode::PATH, unicode::tables());
    for (path, text) in vectors::generate().into_iter().chain([tables]) {
        let file = dir.join(path);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&file, &text)?;
        println!("{}  {path}", vectors::file_digest(&text));
    }
    Ok(())
}
