//! The rules of a trace that need nothing but the trace. The builder applies them before a trace
//! is made and verification applies them to every trace it is given.

use std::collections::HashSet;

use super::{EvidenceItem, Mode, Origin, Policy, Round, Status, Trace, Visible};
use crate::receipt::{
    Candidate, Violation, check_distinct, check_name, check_namespace, check_state, require,
};

/// Longest role name, in bytes, with room above PostgreSQL's 63.
const MAX_ROLE: usize = 255;
/// Longest installation id, in bytes.
const MAX_ORIGIN: usize = 128;
/// Longest reason code, in bytes.
const MAX_REASON: usize = 64;

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
    check_namespace(&trace.namespace, "namespace")?;
    let short = |text: &str, most, at: &str| {
        let expected = format!("1 to {most} bytes");
        require((1..=most).contains(&text.len()), at, expected, text.len())
    };
    short(&trace.origin, MAX_ORIGIN, "origin")?;
    short(&trace.principal.role, MAX_ROLE, "principal.role")?;
    check_state(&trace.state, "state")?;
    policy(&trace.policy)?;
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
            at,
            "each span once",
            format!("item {} at {found} twice", item.item),
        )?;
    }
    answer(trace)
}

/// No list is longer than the highest budget allows, which bounds the work of all other rules.
fn counts(trace: &Trace) -> Result<(), Violation> {
    let caps = Policy::CAPS;
    let within = |length: usize, cap: u32, at: String| {
        require(length <= cap as usize, at, format!("at most {cap}"), length)
    };
    within(trace.rounds.len(), caps.max_rounds, "rounds".into())?;
    within(trace.evidence.len(), caps.max_evidence, "evidence".into())?;
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
    let Mode::FindRelevant = trace.mode;
    let answer = &trace.answer;
    require(
        answer.prose.is_none(),
        "answer.prose",
        "null in mode find_relevant",
        "a value",
    )?;
    let length = answer.statements.len();
    require(
        length == 0,
        "answer.statements",
        "none in mode find_relevant",
        length,
    )?;
    let length = answer.gaps.len();
    require(
        length == 0,
        "answer.gaps",
        "none in mode find_relevant",
        length,
    )?;
    let answered = answer.status == Status::Answered;
    match &answer.reason {
        None => require(answered, "answer.reason", "a code, as not answered", "null"),
        Some(reason) => {
            require(!answered, "answer.reason", "null, as answered", reason)?;
            let allowed = |byte| matches!(byte, b'a'..=b'z' | b'_');
            let code = (1..=MAX_REASON).contains(&reason.len()) && reason.bytes().all(allowed);
            let expected = format!("1 to {MAX_REASON} lower-case letters and underscores");
            require(code, "answer.reason", expected, format!("{reason:?}"))
        }
    }
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
    for (i, item) in trace.evidence.iter().enumerate() {
        evidence_binding(trace, item)
            .map_err(|violation| violation.within(&format!("evidence[{i}]")))?;
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
    let may_run = round.origin != Origin::Refine || !stalled_before;
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

/// The status that the mode's rule gives for this evidence.
pub fn expected_status(mode: Mode, evidence: &[EvidenceItem]) -> Status {
    match mode {
        Mode::FindRelevant if evidence.is_empty() => Status::InsufficientEvidence,
        Mode::FindRelevant => Status::Answered,
    }
}

/// The recorded status follows from the evidence, and a question was really asked.
///
/// # Errors
/// Where it does not.
pub fn status(trace: &Trace) -> Result<(), Violation> {
    require(
        !trace.rounds.is_empty(),
        "rounds",
        "at least one round",
        "none",
    )?;
    let expected = expected_status(trace.mode, &trace.evidence);
    let found = trace.answer.status;
    require(
        expected == found,
        "answer.status",
        format!("{expected:?}"),
        format!("{found:?}"),
    )
}
