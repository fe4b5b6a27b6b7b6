//! `cortex explain`, `cortex drift` and `cortex dossier`: a trace told.

use clap::{Args, ValueEnum};
use cortex_core::explain;
use cortex_core::trace::Trace;
use serde_json::json;

use super::ask::{parse, text};
use super::trace_text::TraceArgument;
use super::{Context, Output};
use crate::db::Db;
use crate::error::{Failure, Outcome};

/// Arguments of `cortex explain`.
#[derive(Args, Debug)]
#[command(after_help = "\
Says nothing that the trace does not hold; `cortex verify` says whether to believe it, and `cortex dossier`
shows the words, which a trace holds only as commitments.

Examples:
  cortex explain 42
  cortex explain trace.json")]
pub struct Explain {
    /// Id of a stored trace, a file with the text of a trace, or - for standard input
    trace: TraceArgument,
}

/// Arguments of `cortex drift`.
#[derive(Args, Debug)]
#[command(after_help = "\
Drift is no failure: the trace stays what it was, and still verifies.

Example:
  cortex drift 42")]
pub struct Drift {
    /// Id of a stored trace
    trace: i64,
}

/// Forms of a dossier.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Canonical JSON
    Json,
    /// Markdown
    Markdown,
    /// One HTML page without scripts
    Html,
}

/// Arguments of `cortex dossier`.
#[derive(Args, Debug)]
#[command(after_help = "\
The same trace gives the same bytes, until a text of it is erased.

Examples:
  cortex dossier 42 > answer.md
  cortex dossier 42 --format html > answer.html")]
pub struct Dossier {
    /// Id of a stored trace
    trace: i64,
    /// Form of the document
    #[arg(long, value_enum, default_value = "markdown")]
    format: Format,
}

pub async fn run(asked: Explain, context: &Context, out: &mut Output) -> Outcome<()> {
    let account = match &asked.trace {
        TraceArgument::Text(_) => {
            let trace = Trace::from_text(&asked.trace.read()?).map_err(|error| {
                Failure::usage(format!("this is not a trace: {error}"))
                    .hint("`cortex verify` says what is wrong with it")
            })?;
            explain::explain(&trace)
        }
        TraceArgument::Stored(id) => {
            let db = Db::open(&context.config.database, "explain")?;
            db.explain(*id).await?
        }
    };
    let lines: Vec<&str> = account.lines().collect();
    out.object(&json!({ "account": lines }));
    for line in lines {
        out.line(line);
    }
    Ok(())
}

pub async fn drift(asked: Drift, context: &Context, out: &mut Output) -> Outcome<()> {
    let db = Db::open(&context.config.database, "drift")?;
    let drift = db.drift(asked.trace).await?;
    out.raw(&drift);
    if out.is_json() {
        return Ok(());
    }
    let drift = parse(&drift)?;
    for item in drift["evidence"].as_array().into_iter().flatten() {
        let by = match text(item, "superseded_by") {
            none if none.is_empty() => String::new(),
            version => format!(" by version {version}"),
        };
        out.line(format!(
            "[{}] {} version {}: {}{by}",
            text(item, "n"),
            text(item, "artifact_id"),
            text(item, "version_id"),
            text(item, "now"),
        ));
    }
    for (i, round) in drift["rounds"].as_array().into_iter().flatten().enumerate() {
        out.line(format!(
            "round {i}: {} of {} candidates still found, {} new, {} of them above what was selected",
            text(round, "still_found"),
            text(round, "candidates_then"),
            text(round, "entered"),
            text(round, "new_above"),
        ));
    }
    out.line(format!(
        "-- state {} then, {} now; status {} then, {} if only what is unchanged counted",
        text(&drift, "recorded_seq"),
        text(&drift, "present_seq"),
        text(&drift, "status_was"),
        text(&drift, "status_would_be"),
    ));
    Ok(())
}

pub async fn dossier(asked: Dossier, context: &Context, out: &mut Output) -> Outcome<()> {
    let db = Db::open(&context.config.database, "dossier")?;
    let format = match asked.format {
        _ if out.is_json() => "json",
        Format::Json => "json",
        Format::Markdown => "markdown",
        Format::Html => "html",
    };
    let document = db.dossier(asked.trace, format).await?;
    if out.is_json() {
        out.raw(&document);
    } else {
        out.line(document.trim_end());
    }
    Ok(())
}
