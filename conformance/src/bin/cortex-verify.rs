//! Verifies a trace by itself: no database, no network.

use std::io::Read;
use std::process::ExitCode;

use cortex_conformance::offline::{self, Given};
use cortex_core::canon::MAX_BYTES;
use cortex_core::hash::Salt;
use cortex_core::verify::{Outcome, Report, StepOutcome};

const HELP: &str = "\
Verifies a Cortex trace by itself, without a database. Alone it reaches level L0: the trace is well formed, every root
recomputes, and everything it used was retrieved. With the evidence file that was exported along with it, it reaches
level L2: the stored texts are those quoted, and the checks of every statement give the same again.

Verified means recorded, bound and replayable. It does not mean that the answer is true. That the retrieval gives the
same again (L4) is checked by cortex_verify in the database that made the trace.

Usage:
  cortex-verify FILE [--evidence FILE] [--question TEXT [--salt HEX]] [--json]
  cortex-verify -                                   reads standard input

Options:
  --evidence FILE   the items and texts of the trace, as cortex_trace_evidence writes them
  --question TEXT   the question that you believe was asked; needs the evidence file or the salt
  --salt HEX        the salt of the question's commitment, 64 lower-case hexadecimal digits
  --json            the whole report as JSON
  --help            this text

A file may have at most 8 MiB. One line feed at its end is not part of it.

Exit code: 0 verified, 1 not verified, 2 not run.
";

struct Arguments {
    file: String,
    evidence: Option<String>,
    question: Option<String>,
    salt: Option<Salt>,
    json: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let arguments = match parse(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("cortex-verify: {error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let read = |file: &str| read(file).map_err(|error| format!("{file}: {error}"));
    let files = read(&arguments.file)
        .and_then(|trace| Ok((trace, arguments.evidence.as_deref().map(read).transpose()?)));
    let (trace, evidence) = match files {
        Ok(files) => files,
        Err(error) => {
            eprintln!("cortex-verify: {error}");
            return ExitCode::from(2);
        }
    };
    let given = Given {
        evidence: evidence.as_deref(),
        question: arguments.question.as_deref(),
        salt: arguments.salt,
    };
    let report = offline::check(&trace, &given);
    print(&report, arguments.json);
    match report.ok {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn parse(words: Vec<String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        file: String::new(),
        evidence: None,
        question: None,
        salt: None,
        json: false,
    };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--json" => arguments.json = true,
            "--evidence" => arguments.evidence = Some(value()?),
            "--question" => arguments.question = Some(value()?),
            "--salt" => {
                let salt = value()?.parse::<Salt>();
                arguments.salt = Some(salt.map_err(|error| format!("--salt: {error}"))?);
            }
            option if option.starts_with("--") => return Err(format!("unknown option {option}")),
            _ if !arguments.file.is_empty() => return Err(format!("one file, not {word:?} too")),
            _ => arguments.file = word,
        }
    }
    if arguments.file.is_empty() {
        return Err("a file is missing".into());
    }
    if arguments.salt.is_some() && arguments.question.is_none() {
        return Err("--salt is the salt of a --question".into());
    }
    let can_commit = arguments.salt.is_some() || arguments.evidence.is_some();
    if arguments.question.is_some() && !can_commit {
        return Err(
            "--question needs --salt or --evidence: a commitment is checked with its salt".into(),
        );
    }
    if arguments.file == "-" && arguments.evidence.as_deref() == Some("-") {
        return Err("standard input is one file".into());
    }
    Ok(arguments)
}

/// Reads one byte more than a trace may have at most, so that a larger one is refused as such.
fn read(file: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = MAX_BYTES as u64 + 1;
    match file {
        "-" => std::io::stdin().lock().take(most).read_to_end(&mut bytes)?,
        path => std::fs::File::open(path)?
            .take(most)
            .read_to_end(&mut bytes)?,
    };
    // A file from an editor ends with a line feed, which is not part of the trace.
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(bytes)
}

fn print(report: &Report, json: bool) {
    if json {
        match serde_json::to_string(report) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("cortex-verify: {error}"),
        }
        return;
    }
    for step in &report.steps {
        let outcome = match step.outcome {
            StepOutcome::Passed => "passed",
            StepOutcome::Failed => "FAILED",
            StepOutcome::Redacted => "redacted",
            StepOutcome::Pruned => "pruned",
            StepOutcome::NotAvailable => "not available",
            StepOutcome::Skipped => "skipped",
        };
        let code = step.code.and_then(|code| serde_json::to_value(code).ok());
        let code = code.as_ref().and_then(|code| code.as_str());
        let code = code.map_or_else(String::new, |code| format!(" {code}"));
        println!("{:>2} {:<11} {outcome}{code}", step.step, step.name);
        if step.outcome == StepOutcome::Failed {
            println!("   where     {}", step.at);
            println!("   expected  {}", step.expected);
            println!("   found     {}", step.found);
        }
    }
    match (report.outcome, report.level) {
        (Outcome::Verified, Some(level)) => println!("verified, level {level:?}"),
        (Outcome::Redacted, Some(level)) => {
            println!("verified as far as the texts were not erased, level {level:?}");
        }
        _ => println!("NOT verified"),
    }
}
