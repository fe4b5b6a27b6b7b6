//! What follows from the rest of a trace: gaps, status and reason.

use super::{Gap, Mode, Origin, Reason, Round, Statement, Status, Trace, Why};
use crate::hash::Hash;
use crate::receipt::{Violation, require};

/// The planned sub-questions that have no evidence: neither their own round nor a refinement that names them as
/// its gap selected anything.
pub fn expected_gaps(planned: &[Hash], rounds: &[Round]) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for query in planned {
        let mut own = rounds.iter();
        let own = own.find(|round| round.origin == Origin::Planned && round.query == *query);
        let refined = |round: &Round| round.origin == Origin::Refine && round.gap == Some(*query);
        let mut about = rounds.iter().filter(|round| refined(round)).chain(own);
        if about.any(|round| !round.selected.is_empty()) {
            continue;
        }
        let why = match own {
            None => Why::NotAsked,
            Some(round) if round.receipt.candidates.is_empty() => Why::NothingRetrieved,
            Some(_) => Why::NothingSelected,
        };
        gaps.push(Gap {
            query: *query,
            round: own.map(|round| round.i),
            why,
        });
    }
    gaps
}

/// The status and its reason that mode, policy, evidence, statements and gaps give.
pub fn expected_status(trace: &Trace) -> (Status, Option<Reason>) {
    let answer = &trace.answer;
    let answered = (Status::Answered, None);
    let partial = |reason| (Status::Partial, Some(reason));
    let insufficient = |reason| (Status::InsufficientEvidence, Some(reason));
    let abstained = |reason| match trace.policy.allow_abstain {
        true => insufficient(reason),
        false => partial(reason),
    };
    let mut rounds = trace.rounds.iter();
    let nothing = match rounds.any(|round| !round.receipt.candidates.is_empty()) {
        true => Reason::NothingSelected,
        false => Reason::NothingRetrieved,
    };
    let supported = |statement: &Statement| statement.supported;
    let some = answer.statements.iter().any(supported);
    let all = some && answer.statements.iter().all(supported);
    let gaps = answer.gaps.len();
    if trace.mode == Mode::CoverageReview {
        return match gaps {
            0 => answered,
            n if n < trace.planned.len() => partial(Reason::GapsLeft),
            _ => insufficient(Reason::GapsLeft),
        };
    }
    if trace.evidence.is_empty() {
        return insufficient(nothing);
    }
    match trace.mode {
        Mode::FindRelevant | Mode::CoverageReview => answered,
        Mode::EvidenceAnswer if answer.prose.is_none() => abstained(match answer.model.is_some() {
            true => Reason::ModelAbstained,
            false => Reason::NoModel,
        }),
        Mode::EvidenceAnswer if !some => abstained(Reason::StatementsUnsupported),
        Mode::CompareSources if answer.families < 2 => partial(Reason::OneFamily),
        Mode::EvidenceAnswer | Mode::CompareSources => {
            if answer.prose.is_some() && !all {
                partial(Reason::StatementsUnsupported)
            } else if gaps > 0 {
                partial(Reason::GapsLeft)
            } else {
                answered
            }
        }
    }
}

/// Gaps, support, status and reason follow from the rest, and a question was really asked.
///
/// # Errors
/// Where one does not.
pub fn status(trace: &Trace) -> Result<(), Violation> {
    require(
        !trace.rounds.is_empty(),
        "rounds",
        "at least one round",
        "none",
    )?;
    let answer = &trace.answer;
    for (i, statement) in answer.statements.iter().enumerate() {
        let holds = statement.holds(trace.policy.quote);
        let at = format!("answer.statements[{i}].supported");
        require(statement.supported == holds, at, holds, statement.supported)?;
    }
    let gaps = expected_gaps(&trace.planned, &trace.rounds);
    require(
        answer.gaps == gaps,
        "answer.gaps",
        shown(&gaps),
        shown(&answer.gaps),
    )?;
    let (status, reason) = expected_status(trace);
    require(
        status == answer.status,
        "answer.status",
        status.as_str(),
        answer.status.as_str(),
    )?;
    let name = |reason: Option<Reason>| reason.map_or("null", Reason::as_str);
    require(
        reason == answer.reason,
        "answer.reason",
        name(reason),
        name(answer.reason),
    )
}

fn shown(gaps: &[Gap]) -> String {
    let gaps = gaps
        .iter()
        .map(|gap| format!("{} {}", gap.query, gap.why.as_str()));
    match gaps.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "none".into(),
        gaps => gaps,
    }
}

/// The status that the answer would have if only the evidence of `standing` counted (one flag for each piece): what
/// rests on the rest is supported no more, and a round that selected none of what stands has selected nothing.
pub fn status_without(trace: &Trace, standing: &[bool]) -> (Status, Option<Reason>) {
    let mut less = trace.clone();
    let stands = |n: u32| {
        let place = (n as usize).checked_sub(1);
        place
            .and_then(|i| standing.get(i))
            .copied()
            .unwrap_or(false)
    };
    let mut left = trace.evidence.iter().filter(|item| stands(item.n));
    let items: std::collections::HashSet<i64> = left.by_ref().map(|item| item.item).collect();
    for round in &mut less.rounds {
        round.selected.retain(|item| items.contains(item));
    }
    less.evidence.retain(|item| stands(item.n));
    let families: std::collections::HashSet<u32> =
        less.evidence.iter().map(|item| item.family).collect();
    less.answer.families = families.len() as u32;
    for statement in &mut less.answer.statements {
        statement.supported &= statement
            .citations
            .iter()
            .all(|citation| stands(citation.n));
    }
    less.answer.gaps = expected_gaps(&less.planned, &less.rounds);
    expected_status(&less)
}
