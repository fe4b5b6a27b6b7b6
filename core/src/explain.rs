//! A trace told in sentences, from the trace alone: the same trace gives the same words, and nothing is said that
//! does not stand in it. Texts are known by their commitments only.

use std::fmt::Write;

use crate::receipt::{Arm, Cut, Nominator};
use crate::trace::{Check, Origin, Reason, Round, Statement, Status, Trace, Visible};

/// Tells a trace.
pub fn explain(trace: &Trace) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!(
        "Trace {} of namespace {:?}, made by {} for role {:?}.",
        trace.roots.trace, trace.namespace, trace.engine, trace.principal.role
    ));
    line(format!(
        "It was asked in mode {} at position {} of the ledger{}. {}",
        trace.mode.as_str(),
        trace.state.seq,
        match trace.state.extra.len() {
            0 => String::new(),
            n => format!(
                ", with {}",
                counted(n as u64, "visible change", "without a position")
            ),
        },
        match trace.principal.visible {
            Visible::All => "The role could see everything.",
            Visible::Checked => "What the role could not see was withheld.",
        }
    ));
    let policy = &trace.policy;
    line(format!(
        "The policy allowed {} rounds, {} candidates a round, {} pieces of evidence and excerpts of {} characters.",
        policy.max_rounds, policy.max_candidates, policy.max_evidence, policy.excerpt_chars
    ));
    if !trace.planned.is_empty() {
        let count = counted(
            trace.planned.len() as u64,
            "sub-question",
            "planned beforehand",
        );
        line(format!("The plan had {count}."));
    }
    for round in &trace.rounds {
        line(told_round(round));
    }
    for item in &trace.evidence {
        let mut text = format!(
            "Evidence {}: item {} of {:?}, version {}, bytes {} to {}, from round {}",
            item.n,
            item.item,
            item.artifact,
            item.version,
            item.span.start,
            item.span.end,
            item.round
        );
        if item.family != item.n {
            let _ = write!(text, "; of one family with evidence {}", item.family);
        }
        line(text + ".");
    }
    for statement in &trace.answer.statements {
        line(told_statement(statement));
    }
    for gap in &trace.answer.gaps {
        let place = trace.planned.iter().position(|query| *query == gap.query);
        let which = place.map_or("A sub-question".into(), |i| {
            format!("Sub-question {}", i + 1)
        });
        line(format!("{which} has no evidence: {}.", gap.why.as_str()));
    }
    line(told_answer(trace));
    line(
        "The texts are not part of the trace; it holds commitments to them. Verified means recorded, bound and \
         replayable. It does not mean that the answer is true."
            .into(),
    );
    out
}

fn counted(n: u64, one: &str, rest: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {one}{plural} {rest}").trim_end().to_owned()
}

fn told_round(round: &Round) -> String {
    let receipt = &round.receipt;
    let why = match (round.origin, round.parent) {
        (Origin::Initial, _) => "the question".to_owned(),
        (Origin::Planned, _) => "a planned sub-question".to_owned(),
        (Origin::Refine, Some(parent)) => format!("a gap of round {parent}"),
        (Origin::Refine, None) => "a gap".to_owned(),
    };
    let arms = match receipt.arms[..] {
        [Arm::Lexical] => "by words",
        [Arm::Vector] => "by vector",
        _ if receipt.nominator == Nominator::Lexical => "by words, put into order by vectors too",
        _ => "by words and by vector",
    };
    let mut text = format!(
        "Round {} asked for {why} {arms}: {} matched, {} were listed",
        round.i,
        receipt.total_matched,
        receipt.candidates.len()
    );
    if receipt.masked > 0 {
        let _ = write!(text, ", {} withheld from the role", receipt.masked);
    }
    if receipt.cut == Cut::Cap {
        text.push_str(", the rest was cut");
    }
    if receipt.nominator == Nominator::Approximate {
        text.push_str("; an approximate index nominated");
    }
    let who = match &round.selected_by {
        Some(call) => format!("Model {:?}", call.name),
        None => "A caller without a model".into(),
    };
    let _ = write!(
        text,
        ". {who} selected {}, {} of them new{}.",
        round.selected.len(),
        round.added,
        if round.stalled {
            "; the round stalled"
        } else {
            ""
        }
    );
    if let Some(call) = &round.refined_by {
        let _ = write!(text, " Model {:?} wrote its query.", call.name);
    }
    text
}

fn told_statement(statement: &Statement) -> String {
    let citations: Vec<String> = statement
        .citations
        .iter()
        .map(|citation| match (citation.check, citation.other) {
            (Check::Id, _) => format!("evidence {}", citation.n),
            (Check::Supported, _) => {
                format!("evidence {} with a quote that occurs there", citation.n)
            }
            (Check::Misattributed, Some(other)) => format!(
                "evidence {} with a quote that occurs in evidence {other} instead",
                citation.n
            ),
            (Check::Misattributed | Check::Absent, _) => {
                format!(
                    "evidence {} with a quote that occurs in no evidence",
                    citation.n
                )
            }
        })
        .collect();
    let cites = match citations.is_empty() {
        true => "cites nothing".into(),
        false => format!("cites {}", citations.join(", ")),
    };
    let verdict = match statement.supported {
        true => "supported by what it cites",
        false => "not supported by what it cites",
    };
    format!(
        "Statement {} {cites}; its numbers: {}. It is {verdict}.",
        statement.n,
        statement.numbers.as_str()
    )
}

fn told_answer(trace: &Trace) -> String {
    let answer = &trace.answer;
    let mut text = format!(
        "Status {}, from {} of {}",
        answer.status.as_str(),
        counted(trace.evidence.len() as u64, "piece", "of evidence"),
        counted(u64::from(answer.sources), "source", "")
    );
    let families = answer.families;
    let _ = write!(
        text,
        " in {families} independent famil{}.",
        if families == 1 { "y" } else { "ies" }
    );
    if answer.status != Status::Answered
        && let Some(reason) = answer.reason
    {
        let _ = write!(text, " {}", because(reason));
    }
    text.push_str(match (&answer.prose, &answer.model) {
        (Some(_), Some(_)) => " A model wrote the prose.",
        (Some(_), None) => " The prose was handed in without a model.",
        (None, Some(_)) => " A model was asked for prose and wrote none.",
        (None, None) => " There is no prose.",
    });
    text
}

/// A reason as a sentence.
pub fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::NothingRetrieved => "Nothing was found that the role may see.",
        Reason::NothingSelected => "Nothing that was found was selected.",
        Reason::NoModel => "Nobody wrote an answer.",
        Reason::ModelAbstained => "The model wrote no answer.",
        Reason::StatementsUnsupported => "Not every statement is supported by what it cites.",
        Reason::GapsLeft => "Not every sub-question has evidence.",
        Reason::OneFamily => "All evidence is of one family of sources.",
    }
}
