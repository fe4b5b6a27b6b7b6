//! `cortex explain`: an account for people, from the trace alone.

use clap::Args;
use cortex_core::receipt::{Arm, Nominator, Receipt};
use cortex_core::trace::{Mode, Origin, Status, Trace, Visible};
use serde_json::json;

use super::trace_text::TraceArgument;
use super::{Context, Output};
use crate::db::Db;
use crate::error::{Failure, Outcome};

/// Candidates of a round that are listed; the trace holds the rest.
const SHOWN: usize = 5;

/// Arguments of `cortex explain`.
#[derive(Args, Debug)]
#[command(after_help = "\
Says nothing that the trace does not hold; `cortex verify` says whether to believe it. The words of the
question are shown if this database still has them and you may see them.

Examples:
  cortex explain 42
  cortex explain trace.json")]
pub struct Explain {
    /// Id of a stored trace, a file with the text of a trace, or - for standard input
    trace: TraceArgument,
}

pub async fn run(explain: Explain, context: &Context, out: &mut Output) -> Outcome<()> {
    let (text, words) = match &explain.trace {
        TraceArgument::Text(_) => (explain.trace.read()?, None),
        TraceArgument::Stored(id) => {
            let db = Db::open(&context.config.database, "explain")?;
            (db.trace(*id).await?, db.trace_question(*id).await?)
        }
    };
    let trace = Trace::from_text(&text).map_err(|error| {
        Failure::usage(format!("this is not a trace: {error}"))
            .hint("`cortex verify` says what is wrong with it")
    })?;
    let lines = account(&trace, words.as_deref());
    out.object(&json!({"question": words, "account": lines}));
    for line in &lines {
        out.line(line);
    }
    Ok(())
}

/// The account, line by line.
fn account(trace: &Trace, words: Option<&str>) -> Vec<String> {
    let mut lines = vec![format!("Trace {}", trace.roots.trace)];
    lines.push(match words {
        Some(words) => format!("Question: {words}"),
        None => format!("Question: known only by its commitment {}", trace.question),
    });
    let Mode::FindRelevant = trace.mode;
    let asked = match trace.principal.visible {
        Visible::All => "who could see everything in it",
        Visible::Checked => "each item checked against that role's own rights",
    };
    lines.push(format!(
        "Asked by role {} of namespace {}, {asked}; for evidence, without prose.",
        trace.principal.role, trace.namespace
    ));
    lines.push(format!(
        "State: all changes up to number {}{}, of installation {}.",
        trace.state.seq,
        match trace.state.extra.len() {
            0 => String::new(),
            more => format!(" and {more} without a number yet"),
        },
        trace.origin
    ));
    lines.push(format!(
        "Made by {} with {}, {}, {}.",
        trace.engine, trace.analyzer, trace.ranker, trace.chunker
    ));
    for round in &trace.rounds {
        let why = match round.origin {
            Origin::Initial => "the question itself",
            Origin::Planned => "a planned sub-question",
            Origin::Refine => "a query made from a gap",
        };
        lines.push(format!("Round {}: {why}", round.i + 1));
        lines.extend(receipt_lines(&round.receipt));
        lines.push(format!(
            "  selected {}, of which {} new{}",
            round.selected.len(),
            round.added,
            if round.stalled {
                "; the round added nothing"
            } else {
                ""
            }
        ));
    }
    lines.push(format!("Evidence: {} items", trace.evidence.len()));
    for item in &trace.evidence {
        lines.push(format!(
            "  [{}] {} version {}, bytes {}-{}, found in round {}",
            item.n,
            item.artifact,
            item.version,
            item.span.start,
            item.span.end,
            item.round + 1
        ));
    }
    let status = match trace.answer.status {
        Status::Answered => "answered",
        Status::Partial => "answered in part",
        Status::InsufficientEvidence => "not answered, the evidence does not suffice",
    };
    let reason = trace
        .answer
        .reason
        .as_deref()
        .map_or(String::new(), |reason| format!(" ({reason})"));
    lines.push(format!("Result: {status}{reason}."));
    lines
}

fn receipt_lines(receipt: &Receipt) -> Vec<String> {
    let arms: Vec<&str> = receipt
        .arms
        .iter()
        .map(|arm| match arm {
            Arm::Lexical => "words",
            Arm::Vector => "meaning",
        })
        .collect();
    let how = match receipt.nominator {
        Nominator::None => "",
        Nominator::Exact => ", every vector compared",
        Nominator::Approximate => ", nominated by an approximate index",
    };
    let mut lines = vec![
        format!("  searched by {}{how}", arms.join(" and ")),
        format!(
            "  {} of {} matching items listed; {} withheld from this role",
            receipt.candidates.len(),
            receipt.total_matched,
            receipt.masked
        ),
    ];
    for (rank, candidate) in receipt.candidates.iter().take(SHOWN).enumerate() {
        let place = |rank: Option<u32>| rank.map_or("-".to_owned(), |rank| format!("#{rank}"));
        lines.push(format!(
            "    {}. {} version {}, score {} (words {}, meaning {})",
            rank + 1,
            candidate.artifact,
            candidate.version,
            candidate.score,
            place(candidate.lexical_rank),
            place(candidate.vector_rank)
        ));
    }
    if receipt.candidates.len() > SHOWN {
        lines.push(format!(
            "    ... {} more in the trace",
            receipt.candidates.len() - SHOWN
        ));
    }
    lines
}
