//! The rules of a trace that need nothing but the trace. The builder applies them before a trace
//! is made and verification applies them to every trace it is given.

use std::collections::HashSet;

use super::answer::{MAX_CITATIONS, MAX_STATEMENTS, source_counts};
use super::{
    Check, EvidenceItem, Mode, ModelCall, Origin, Policy, Retrieval, Round, Statement, Status,
    Trace, Visible,
};
use crate::hash::Hash;
use crate::receipt::{
    Arm, Candidate, Nominator, Violation, check_distinct, check_name, check_namespace, check_state,
    require,
};

pub use super::status::{expected_gaps, expected_status, status, status_without};

/// Longest role name, in bytes, with room above PostgreSQL's 63.
const MAX_ROLE: usize = 255;
/// Longest installation id, in bytes.
const MAX_ORIGIN: usize = 128;
/// Most planned sub-questions.
pub const MAX_PLANNED: usize = 32;
/// Longest name or digest of a model, in bytes.
pub const MAX_MODEL: usize = 255;

/// Each part is well formed by itself and agrees with the head of the trace.
///
/// # Errors
/// The first rule that does not hold.
pub fn structure(trace: &Trace) -> Result<(), Violation> {
    counts(trace)?;
    check_name(&trace.engine, "engine")?;
    check_name(&trace.analyzer, "analyzer")?;
    check_name(&trace.ranker, "ranker")?;
    check_name(&trace.chunker, "chunker")?;
    for (name, rule) in [
        ("excerpt", &trace.rules.excerpt),
        ("quote", &trace.rules.quote),
        ("ground", &trace.rules.ground),
        ("family", &trace.rules.family),
    ] {
        check_name(rule, &format!("rules.{name}"))?;
    }
    check_namespace(&trace.namespace, "namespace")?;
    let short = |text: &str, most, at: &str| {
        let expected = format!("1 to {most} bytes");
        require((1..=most).contains(&text.len()), at, expected, text.len())
    };
    short(&trace.origin, MAX_ORIGIN, "origin")?;
    short(&trace.principal.role, MAX_ROLE, "principal.role")?;
    check_state(&trace.state, "state")?;
    policy(&trace.policy)?;
    plan(trace.mode, trace.question, &trace.planned)?;
    for (at, call) in trace.model_calls() {
        model_call(call).map_err(|violation| violation.within(&at))?;
    }
    for (i, round) in trace.rounds.iter().enumerate() {
        round_structure(trace, i, round)
            .map_err(|violation| violation.within(&format!("rounds[{i}]")))?;
    }
    let mut seen = HashSet::new();
    for (i, item) in trace.evidence.iter().enumerate() {
        let at = format!("evidence[{i}]");
        let number = require(u64::from(item.n) == i as u64 + 1, "n", i + 1, item.n);
        number.map_err(|violation| violation.within(&at))?;
        let span = item.span;
        let some = span.start < span.end;
        let found = format!("{} to {}", span.start, span.end);
        require(
            some,
            format!("{at}.span"),
            "a span of at least one byte",
            &found,
        )?;
        let new = seen.insert((item.round, item.item, span.start, span.end));
        require(
            new,
            at.clone(),
            "each span once",
            format!("item {} at {found} twice", item.item),
        )?;
        family(trace, i, item).map_err(|violation| violation.within(&at))?;
    }
    answer(trace)
}

/// A family is named by its first evidence, and evidence of one artifact is of one family.
fn family(trace: &Trace, i: usize, item: &EvidenceItem) -> Result<(), Violation> {
    let before = trace.evidence.get(..i).unwrap_or_default();
    let first = (item.family as usize)
        .checked_sub(1)
        .and_then(|at| trace.evidence.get(at));
    let names_a_first =
        item.family <= item.n && first.is_some_and(|first| first.family == item.family);
    let expected = "the number of the first evidence of its family";
    require(names_a_first, "family", expected, item.family)?;
    let same = before.iter().find(|other| other.artifact == item.artifact);
    let family = same.map_or(item.family, |same| same.family);
    require(item.family == family, "family", family, item.family)
}

fn model_call(call: &ModelCall) -> Result<(), Violation> {
    let digest = call.digest.as_deref().unwrap_or("x");
    for (name, text) in [("name", call.name.as_str()), ("digest", digest)] {
        let fits = (1..=MAX_MODEL).contains(&text.len());
        require(fits, name, format!("1 to {MAX_MODEL} bytes"), text.len())?;
    }
    Ok(())
}

/// The plan is short, asks nothing twice, and is there where the mode is about it.
///
/// # Errors
/// The first rule that does not hold.
pub fn plan(mode: Mode, question: Hash, planned: &[Hash]) -> Result<(), Violation> {
    let length = planned.len();
    let expected = format!("at most {MAX_PLANNED}");
    require(length <= MAX_PLANNED, "planned", expected, length)?;
    let needed = mode == Mode::CoverageReview;
    let expected = "sub-questions in mode coverage_review";
    require(!needed || length > 0, "planned", expected, "none")?;
    let mut seen = HashSet::from([question]);
    for (i, query) in planned.iter().enumerate() {
        let at = format!("planned[{i}]");
        require(seen.insert(*query), at, "each question once", query)?;
    }
    Ok(())
}

/// No list is longer than the highest budget allows, which bounds the work of all other rules.
fn counts(trace: &Trace) -> Result<(), Violation> {
    let caps = Policy::CAPS;
    let within = |length: usize, cap: u32, at: String| {
        require(length <= cap as usize, at, format!("at most {cap}"), length)
    };
    within(trace.rounds.len(), caps.max_rounds, "rounds".into())?;
    within(trace.evidence.len(), caps.max_evidence, "evidence".into())?;
    let most = MAX_STATEMENTS as u32;
    let statements = &trace.answer.statements;
    within(statements.len(), most, "answer.statements".into())?;
    let citations = statements.iter().map(|statement| statement.citations.len());
    let most = MAX_CITATIONS as u32;
    within(citations.sum(), most, "answer.statements".into())?;
    let most = MAX_PLANNED as u32;
    within(trace.answer.gaps.len(), most, "answer.gaps".into())?;
    for (i, round) in trace.rounds.iter().enumerate() {
        let at = format!("rounds[{i}].receipt.candidates");
        within(round.receipt.candidates.len(), caps.max_candidates, at)?;
        within(
            round.selected.len(),
            caps.max_candidates,
            format!("rounds[{i}].selected"),
        )?;
    }
    Ok(())
}

/// Each budget is at least 1 and within [`Policy::CAPS`].
///
/// # Errors
/// The first budget outside.
pub fn policy(policy: &Policy) -> Result<(), Violation> {
    let caps = Policy::CAPS;
    for (name, value, cap) in [
        ("max_rounds", policy.max_rounds, caps.max_rounds),
        ("max_candidates", policy.max_candidates, caps.max_candidates),
        ("max_evidence", policy.max_evidence, caps.max_evidence),
        ("excerpt_chars", policy.excerpt_chars, caps.excerpt_chars),
    ] {
        let at = format!("policy.{name}");
        require((1..=cap).contains(&value), at, format!("1 to {cap}"), value)?;
    }
    Ok(())
}

fn round_structure(trace: &Trace, i: usize, round: &Round) -> Result<(), Violation> {
    require(u64::from(round.i) == i as u64, "i", i, round.i)?;
    let receipt = &round.receipt;
    receipt
        .check()
        .map_err(|violation| violation.within("receipt"))?;
    for (name, of_receipt, of_trace) in [
        ("namespace", &receipt.namespace, &trace.namespace),
        ("analyzer", &receipt.analyzer, &trace.analyzer),
        ("ranker", &receipt.ranker, &trace.ranker),
    ] {
        let at = format!("receipt.{name}");
        require(of_receipt == of_trace, at, of_trace, of_receipt)?;
    }
    let same = receipt.state == trace.state;
    let found = format!("seq {}", receipt.state.seq);
    require(
        same,
        "receipt.state",
        format!("the trace's, seq {}", trace.state.seq),
        found,
    )?;
    let may_mask = trace.principal.visible == Visible::Checked || receipt.masked == 0;
    require(
        may_mask,
        "receipt.masked",
        "0, as everything was visible",
        receipt.masked,
    )?;
    check_distinct(&round.selected, "selected")
}

fn answer(trace: &Trace) -> Result<(), Violation> {
    let answer = &trace.answer;
    let in_mode = |what: &str| format!("{what} in mode {}", trace.mode.as_str());
    let prose = trace.mode.has_prose();
    let expected = in_mode("null");
    let at = "answer.prose";
    require(prose || answer.prose.is_none(), at, &expected, "a value")?;
    let at = "answer.model";
    require(prose || answer.model.is_none(), at, &expected, "a value")?;
    let length = answer.statements.len();
    let expected = "none without prose";
    let may = answer.prose.is_some() || length == 0;
    require(may, "answer.statements", expected, length)?;
    for (i, statement) in answer.statements.iter().enumerate() {
        statement_structure(i, statement)
            .map_err(|violation| violation.within(&format!("answer.statements[{i}]")))?;
    }
    let counted = source_counts(&trace.evidence);
    require(
        answer.sources == counted.0,
        "answer.sources",
        counted.0,
        answer.sources,
    )?;
    require(
        answer.families == counted.1,
        "answer.families",
        counted.1,
        answer.families,
    )?;
    let answered = answer.status == Status::Answered;
    match answer.reason {
        None => require(answered, "answer.reason", "a code, as not answered", "null"),
        Some(reason) => {
            let expected = "null, as answered";
            require(!answered, "answer.reason", expected, reason.as_str())
        }
    }
}

fn statement_structure(i: usize, statement: &Statement) -> Result<(), Violation> {
    require(
        u64::from(statement.n) == i as u64 + 1,
        "n",
        i + 1,
        statement.n,
    )?;
    let mut seen = HashSet::new();
    for (i, citation) in statement.citations.iter().enumerate() {
        let at = |name: &str| format!("citations[{i}].{name}");
        let quoted = citation.check != Check::Id;
        let when = if quoted {
            "a value, as a quote was checked"
        } else {
            "null, as no quote was checked"
        };
        let found = if citation.quote.is_some() {
            "a value"
        } else {
            "null"
        };
        require(citation.quote.is_some() == quoted, at("quote"), when, found)?;
        let misattributed = citation.check == Check::Misattributed;
        let when = if misattributed {
            "a value, as misattributed"
        } else {
            "null, as not misattributed"
        };
        let found = citation.other.map_or("null".into(), |n| n.to_string());
        require(
            citation.other.is_some() == misattributed,
            at("other"),
            when,
            found,
        )?;
        let new = seen.insert((citation.n, citation.quote));
        let found = format!("evidence {} twice", citation.n);
        require(new, at("n"), "each citation once", found)?;
    }
    Ok(())
}

/// Everything used was retrieved: the first query is the question, what is selected is among the
/// candidates of its round, and evidence quotes what its round selected.
///
/// # Errors
/// The first reference that leads nowhere.
pub fn binding(trace: &Trace) -> Result<(), Violation> {
    let mut seen = HashSet::new();
    let mut stalled = false;
    for (i, round) in trace.rounds.iter().enumerate() {
        round_binding(trace, round, stalled, &mut seen)
            .map_err(|violation| violation.within(&format!("rounds[{i}]")))?;
        stalled |= round.stalled;
    }
    planned_binding(trace)?;
    for (i, item) in trace.evidence.iter().enumerate() {
        evidence_binding(trace, item)
            .map_err(|violation| violation.within(&format!("evidence[{i}]")))?;
    }
    for (i, statement) in trace.answer.statements.iter().enumerate() {
        citations_binding(trace, statement)
            .map_err(|violation| violation.within(&format!("answer.statements[{i}]")))?;
    }
    Ok(())
}

/// Planned rounds ask the plan's questions, in its order.
fn planned_binding(trace: &Trace) -> Result<(), Violation> {
    let mut plan = trace.planned.iter();
    for (i, round) in trace.rounds.iter().enumerate() {
        if round.origin == Origin::Planned {
            let next = plan.next();
            let at = format!("rounds[{i}].query");
            let expected = next.map_or("no further planned round".into(), Hash::to_string);
            require(next == Some(&round.query), at, expected, round.query)?;
        }
    }
    Ok(())
}

/// Statements cite evidence of the trace, at its span where no quote says another one.
fn citations_binding(trace: &Trace, statement: &Statement) -> Result<(), Violation> {
    let count = trace.evidence.len();
    let evidence = |n: u32| {
        (n as usize)
            .checked_sub(1)
            .and_then(|i| trace.evidence.get(i))
    };
    for (i, citation) in statement.citations.iter().enumerate() {
        let at = |name: &str| format!("citations[{i}].{name}");
        let expected = format!("evidence 1 to {count}");
        let Some(item) = evidence(citation.n) else {
            return require(false, at("n"), expected, citation.n);
        };
        if let Some(other) = citation.other {
            let another = other != citation.n && evidence(other).is_some();
            let expected = format!("another one of evidence 1 to {count}");
            require(another, at("other"), expected, other)?;
        }
        let span = |span: super::Span| format!("{} to {}", span.start, span.end);
        let found = span(citation.span);
        if citation.check == Check::Supported {
            let some = citation.span.start < citation.span.end;
            require(some, at("span"), "a span of at least one byte", found)?;
        } else {
            let same = citation.span == item.span;
            require(same, at("span"), span(item.span), found)?;
        }
    }
    Ok(())
}

fn round_binding(
    trace: &Trace,
    round: &Round,
    stalled_before: bool,
    seen: &mut HashSet<(crate::hash::Target, i64)>,
) -> Result<(), Violation> {
    let receipt = &round.receipt;
    require(
        receipt.query == round.query,
        "receipt.query",
        round.query,
        receipt.query,
    )?;
    let initial = round.origin == Origin::Initial;
    let expected = if round.i == 0 {
        "initial in the first round"
    } else {
        "planned or refine after the first round"
    };
    require(
        initial == (round.i == 0),
        "origin",
        expected,
        format!("{:?}", round.origin),
    )?;
    let bound = !initial || round.query == trace.question;
    require(
        bound,
        "query",
        format!("the question, {}", trace.question),
        round.query,
    )?;
    let refines = round.origin == Origin::Refine;
    let count = |given: bool| if given { "a value" } else { "null" };
    for (name, given) in [
        ("parent", round.parent.is_some()),
        ("gap", round.gap.is_some()),
    ] {
        let expected = if refines {
            "a value, as it refines"
        } else {
            "null, as it does not refine"
        };
        require(given == refines, name, expected, count(given))?;
    }
    if let Some(parent) = round.parent {
        let earlier = parent < round.i;
        require(earlier, "parent", "an earlier round", parent)?;
    }
    let by_model = round.refined_by.is_some();
    let expected = "null, as it does not refine";
    require(refines || !by_model, "refined_by", expected, "a value")?;
    let may_run = !refines || !stalled_before;
    require(
        may_run,
        "origin",
        "no refinement after a stalled round",
        "Refine",
    )?;

    let mut rest = receipt.candidates.iter();
    for item in &round.selected {
        let found = rest.any(|candidate| candidate.item == *item);
        let expected = "candidates of this round, in their order";
        require(found, "selected", expected, format!("item {item}"))?;
    }
    let fresh = (round.selected.iter()).filter(|item| seen.insert((receipt.target, **item)));
    let added = fresh.count();
    require(
        added as u64 == u64::from(round.added),
        "added",
        added,
        round.added,
    )?;
    require(
        round.stalled == (added == 0),
        "stalled",
        added == 0,
        round.stalled,
    )
}

fn evidence_binding(trace: &Trace, item: &EvidenceItem) -> Result<(), Violation> {
    let count = trace.rounds.len();
    let Some(round) = trace.rounds.get(item.round as usize) else {
        return require(false, "round", format!("one of {count} rounds"), item.round);
    };
    let selected = round.selected.contains(&item.item);
    let expected = format!("an item that round {} selected", item.round);
    require(selected, "item", expected, item.item)?;
    let Some(candidate) = candidate(round, item.item) else {
        return require(false, "item", "a candidate of its round", item.item);
    };
    let same = item.artifact == candidate.artifact;
    require(same, "artifact", &candidate.artifact, &item.artifact)?;
    let same = item.version == candidate.version;
    require(same, "version", candidate.version, item.version)?;
    require(
        item.leaf == candidate.leaf,
        "leaf",
        candidate.leaf,
        item.leaf,
    )
}

/// The candidate of a round with this item id.
pub fn candidate(round: &Round, item: i64) -> Option<&Candidate> {
    let mut candidates = round.receipt.candidates.iter();
    candidates.find(|candidate| candidate.item == item)
}

/// The budgets of the policy were kept.
///
/// # Errors
/// The first budget that was exceeded.
pub fn budget(trace: &Trace) -> Result<(), Violation> {
    let policy = &trace.policy;
    let within = |count: u64, most: u32, name: &str, at: String| {
        let expected = format!("at most {name} = {most}");
        require(count <= u64::from(most), at, expected, count)
    };
    let rounds = trace.rounds.len() as u64;
    within(rounds, policy.max_rounds, "max_rounds", "rounds".into())?;
    for (i, round) in trace.rounds.iter().enumerate() {
        let at = format!("rounds[{i}].receipt.params.k");
        // What was withheld from the caller cost it nothing, and must not keep it from what it may see.
        let withheld = round.receipt.masked;
        let k = u64::from(round.receipt.params.k.saturating_sub(withheld));
        within(k, policy.max_candidates, "max_candidates", at)?;
        arms(policy, round)
            .map_err(|violation| violation.within(&format!("rounds[{i}].receipt")))?;
    }
    let evidence = trace.evidence.len() as u64;
    within(
        evidence,
        policy.max_evidence,
        "max_evidence",
        "evidence".into(),
    )?;
    for (i, item) in trace.evidence.iter().enumerate() {
        // A character takes at most four bytes; the exact count is checked where the text is known.
        let bytes = item.span.end.saturating_sub(item.span.start);
        let most = 4 * policy.excerpt_chars;
        within(
            bytes,
            most,
            "4 bytes a character",
            format!("evidence[{i}].span"),
        )?;
    }
    Ok(())
}

/// The round's arms are those of the policy.
fn arms(policy: &Policy, round: &Round) -> Result<(), Violation> {
    let receipt = &round.receipt;
    let reranked = receipt.nominator == Nominator::Lexical;
    let may = !reranked || (policy.allow_semantic_rerank && policy.retrieval == Retrieval::Lexical);
    let expected = "no semantic rerank, as the policy does not allow it";
    require(may, "nominator", expected, "lexical")?;
    let expected: &[Arm] = match policy.retrieval {
        Retrieval::Lexical if reranked => &[Arm::Lexical, Arm::Vector],
        Retrieval::Lexical => &[Arm::Lexical],
        Retrieval::Vector => &[Arm::Vector],
        Retrieval::Hybrid => &[Arm::Lexical, Arm::Vector],
    };
    let found = format!("{:?}", receipt.arms);
    let same = receipt.arms == expected;
    require(same, "arms", format!("{expected:?}"), found)
}
