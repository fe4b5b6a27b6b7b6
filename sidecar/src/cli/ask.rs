//! `cortex read`, `cortex find`, `cortex ask` and `cortex verify`.

use clap::Args;
use cortex_core::verify::{self, Report, StepOutcome};
use serde_json::Value;

use super::trace_text::TraceArgument;
use super::{Context, Output};
use crate::db::Db;
use crate::db::reader::{AskOptions, Question, ReadOptions};
use crate::encoder::Encoder;
use crate::error::{Failure, Kind, Outcome};

/// Words, namespace and arms of a question.
#[derive(Args, Debug)]
struct Asked {
    /// The question
    question: String,
    /// Namespace to look in [default: read.namespace]
    #[arg(short, long)]
    namespace: Option<String>,
    /// Which arms search: auto, lexical, vector or hybrid
    #[arg(long, default_value = "auto")]
    mode: String,
}

/// Arguments of `cortex read`.
#[derive(Args, Debug)]
#[command(after_help = "\
Prints the context as it would be given to a model: claims under [title | origin | date] headers, best
first, within the budget. Only claims whose sources are unchanged are served.

Examples:
  cortex read 'what changed in logical replication?' --budget 400
  cortex read --json 'vacuum' | jq -r .payload")]
pub struct Read {
    #[command(flatten)]
    asked: Asked,
    /// Tokens that the context may have, headers included [default: read.budget_tokens]
    #[arg(short, long, value_name = "TOKENS")]
    budget: Option<i32>,
    /// context_first (raw text only where the claims do not cover the question), context_raw or context_only
    #[arg(long)]
    strategy: Option<String>,
    /// Named settings of the namespace (cortex_profile_set)
    #[arg(long)]
    profile: Option<String>,
    /// Record the read, and ask for the builds that would have helped
    #[arg(long)]
    record: bool,
}

/// Arguments of `cortex find`.
#[derive(Args, Debug)]
#[command(after_help = "\
Prints quotes with the row or file they stand in, its version, and the bytes; and the id of the trace that
records how they were found. The same question at the same state gives the same trace.

Examples:
  cortex find 'which versions fix index corruption?'
  cortex verify $(cortex find --json 'index corruption' | jq .trace_id)")]
pub struct Find {
    #[command(flatten)]
    asked: Asked,
    /// Quotes at most, 1 to 32
    #[arg(short, long)]
    quotes: Option<u32>,
}

/// Arguments of `cortex ask`.
#[derive(Args, Debug)]
#[command(after_help = "\
Asks without a model: evidence and quotes, never prose. A host with a model drives the ask protocol instead
(docs/ask-protocol.md). Sub-questions are asked after the question, each in a round of its own.

Examples:
  cortex ask 'how is WAL archived?' --answer compare_sources
  cortex ask 'logical replication' --answer coverage_review --sub 'failover slots' --sub 'row filters'
  cortex ask 'vacuum' --policy '{\"max_evidence\": 4, \"retrieval\": \"lexical\"}'")]
pub struct Ask {
    #[command(flatten)]
    asked: Asked,
    /// find_relevant, evidence_answer, compare_sources or coverage_review
    #[arg(long, default_value = "find_relevant")]
    answer: String,
    /// A sub-question; may be given several times
    #[arg(long = "sub", value_name = "QUESTION")]
    sub_questions: Vec<String>,
    /// Policy as a JSON object
    #[arg(long, value_name = "JSON")]
    policy: Option<String>,
}

/// Arguments of `cortex verify`.
#[derive(Args, Debug)]
#[command(after_help = "\
Recomputes every root of the trace, compares the stored evidence with it, and runs the retrieval again at
the recorded state, also when rows have changed since. Exit code 1 if a step fails.
\"Verified\" means recorded, bound and replayable. It never means true.

Examples:
  cortex verify 42
  cortex verify 42 --question 'how is the WAL archived?'   was that the question?
  cortex verify trace.json                                 a trace that was sent to you
  cortex verify trace.json --offline                       without a database: level L0")]
pub struct Verify {
    /// Id of a stored trace, a file with the text of a trace, or - for standard input
    trace: TraceArgument,
    /// The question that you believe was asked
    #[arg(short, long)]
    question: Option<String>,
    /// Check the text alone, without a database
    #[arg(long)]
    offline: bool,
    /// Where an approximate index nominated, scan everything as well and say what it missed
    #[arg(long, conflicts_with = "offline")]
    exhaustive: bool,
}

pub async fn read(read: Read, context: &Context, out: &mut Output) -> Outcome<()> {
    let own = context.config.read.budget_tokens;
    let options = ReadOptions {
        budget_tokens: read.budget.or(read.profile.is_none().then_some(own)),
        strategy: read.strategy,
        profile: read.profile,
    };
    let (db, question) = prepare(read.asked, context).await?;
    let answer = db.read(&question, &options).await?;
    if read.record {
        db.record_read(&question, &answer).await?;
    }
    let answer = answer.json;
    out.raw(&answer);
    if !out.is_json() {
        let answer = parse(&answer)?;
        out.line(text(&answer, "payload"));
        out.line(format!(
            "-- {} of {} tokens, {} claims, {}, arms: {}{}{}",
            text(&answer, "tokens"),
            text(
                answer.get("details").unwrap_or(&Value::Null),
                "budget_tokens"
            ),
            answer
                .get("claims")
                .and_then(Value::as_array)
                .map_or(0, Vec::len),
            text(&answer, "decision"),
            text(&answer, "arms"),
            match answer.get("needs_retrieval").and_then(Value::as_bool) {
                Some(true) => ", does not cover the question",
                _ => "",
            },
            match answer.get("pending").and_then(Value::as_i64) {
                Some(pending) if pending > 0 => format!(", {pending} sources pending"),
                _ => String::new(),
            }
        ));
    }
    Ok(())
}

pub async fn find(find: Find, context: &Context, out: &mut Output) -> Outcome<()> {
    let mut options = AskOptions::default();
    if let Some(quotes) = find.quotes {
        options.policy.insert("max_evidence".into(), quotes.into());
    }
    answered(find.asked, &options, context, out).await
}

pub async fn ask(ask: Ask, context: &Context, out: &mut Output) -> Outcome<()> {
    let policy = match ask.policy.as_deref().map(serde_json::from_str) {
        None => serde_json::Map::new(),
        Some(Ok(Value::Object(policy))) => policy,
        Some(_) => {
            return Err(Failure::usage("--policy is not a JSON object")
                .hint("for example --policy '{\"max_evidence\": 4}'"));
        }
    };
    let options = AskOptions {
        mode: ask.answer,
        policy,
        sub_questions: (!ask.sub_questions.is_empty()).then_some(ask.sub_questions),
    };
    answered(ask.asked, &options, context, out).await
}

async fn answered(
    asked: Asked,
    options: &AskOptions,
    context: &Context,
    out: &mut Output,
) -> Outcome<()> {
    let (db, question) = prepare(asked, context).await?;
    let answer = db.ask(&question, options).await?.json;
    out.raw(&answer);
    if !out.is_json() {
        show_answer(&parse(&answer)?, out);
    }
    Ok(())
}

pub async fn verify(asked: Verify, context: &Context, out: &mut Output) -> Outcome<()> {
    let question = asked.question.as_deref();
    let report = if asked.offline {
        let text = match &asked.trace {
            TraceArgument::Stored(id) => {
                return Err(Failure::usage(format!(
                    "--offline needs the text of a trace, and {id} is an id"
                ))
                .hint(format!("SELECT cortex_trace({id}) gives its text")));
            }
            TraceArgument::Text(_) => asked.trace.read()?,
        };
        let options = verify::Options {
            question,
            question_salt: None,
            exhaustive: false,
        };
        serde_json::to_string(&verify::verify(&text, &options, None))
            .map_err(|error| Failure::internal(format!("the report cannot be written: {error}")))?
    } else {
        let db = Db::open(&context.config.database, "verify")?;
        match &asked.trace {
            TraceArgument::Stored(id) => db.verify_stored(*id, question, asked.exhaustive).await?,
            TraceArgument::Text(_) => {
                let text = asked.trace.read()?;
                db.verify_text(&text, question, asked.exhaustive).await?
            }
        }
    };
    out.raw(&report);
    let report: Report = serde_json::from_str(&report).map_err(|error| {
        Failure::internal(format!("the verification report cannot be read: {error}"))
    })?;
    for line in report_lines(&report) {
        out.line(line);
    }
    if report.ok {
        return Ok(());
    }
    out.not_passed()
}

/// A connection, and the question with its vector where the namespace has our space.
async fn prepare(asked: Asked, context: &Context) -> Outcome<(Db, Question)> {
    let db = Db::open(&context.config.database, "command line")?;
    let namespace = context.namespace(asked.namespace);
    let model = context.config.model.clone();
    let encoder = if asked.mode == "lexical" {
        Encoder::absent("the question is lexical")
    } else {
        tokio::task::spawn_blocking(move || Encoder::load(&model))
            .await
            .map_err(|error| Failure::internal(format!("loading the model stopped: {error}")))?
    };
    let vector = encoder.question(&asked.question).await?;
    Ok((
        db,
        Question {
            text: asked.question,
            vector,
            namespace,
            mode: asked.mode,
        },
    ))
}

/// Prints an answer of `cortex_ask` for people.
pub(super) fn show_answer(answer: &Value, out: &mut Output) {
    for line in answer_lines(answer) {
        out.line(line);
    }
    for gap in answer["gaps"].as_array().into_iter().flatten() {
        out.line(format!(
            "gap: {} ({})",
            text(gap, "query"),
            text(gap, "why")
        ));
    }
    let id = text(answer, "trace_id");
    let reason = match text(answer, "reason") {
        none if none.is_empty() => none,
        reason => format!(" ({reason})"),
    };
    out.line(format!(
        "-- {}{reason}, trace {id}: cortex verify {id}",
        text(answer, "status")
    ));
}

/// The quotes of an answer of `cortex_ask`, each with its place.
pub fn answer_lines(answer: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for item in answer
        .get("evidence")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        lines.push(format!(
            "[{}] {} version {}, bytes {}-{}",
            text(item, "n"),
            text(item, "artifact_id"),
            text(item, "version_id"),
            text(item, "start_byte"),
            text(item, "end_byte"),
        ));
        for line in text(item, "quote").lines() {
            lines.push(format!("    {line}"));
        }
    }
    lines
}

/// A report, one line a step that says something.
pub fn report_lines(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for step in &report.steps {
        let mark = match step.outcome {
            StepOutcome::Passed => "ok",
            StepOutcome::Failed => "FAILED",
            StepOutcome::Redacted => "redacted",
            StepOutcome::Pruned => "pruned",
            StepOutcome::NotAvailable | StepOutcome::Skipped => "-",
        };
        let place = if step.at.is_empty() {
            String::new()
        } else {
            format!(" {}", step.at)
        };
        lines.push(format!(
            "  {mark:<8} {}. {}{place}: {}",
            step.step, step.name, step.found
        ));
        if step.outcome == StepOutcome::Failed {
            lines.push(format!("           expected: {}", step.expected));
            lines.push(format!("           found:    {}", step.found));
        }
    }
    lines.push(report_summary(report));
    lines
}

/// A report in one line: outcome, level, and the code of a failure.
pub fn report_summary(report: &Report) -> String {
    let level = report
        .level
        .map_or("none".to_owned(), |level| plain(&level));
    let code = report
        .code
        .map_or(String::new(), |code| format!(", {}", plain(&code)));
    format!("{}: level {level}{code}", plain(&report.outcome))
}

/// The name that a value has in JSON, without quotes.
fn plain(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

pub(super) fn parse(json: &str) -> Outcome<Value> {
    serde_json::from_str(json).map_err(|error| {
        Failure::new(
            Kind::Internal,
            "internal",
            format!("PostgreSQL's answer is not JSON: {error}"),
        )
    })
}

/// A member as text; empty where it is missing or null.
pub(super) fn text(value: &Value, member: &str) -> String {
    match value.get(member) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
