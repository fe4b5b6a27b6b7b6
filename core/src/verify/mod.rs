//! Verification of a trace: an ordered ladder of checks, cheap ones first, in which the first
//! failure wins and every step says what was expected and what was found.
//!
//! *Verified* means recorded, bound and replayable: the trace is what was recorded, everything it
//! used was retrieved and is stored as it says, and the retrieval gives the same again. It never
//! means that an answer is true.
//!
//! What a trace says about itself and no evidence speaks about (the engine's version, the role, the
//! budgets, to have quoted less than was found, which candidates were withheld) is held by the roots
//! alone: who can replace a stored trace with its roots can change it. Only a signature or the outward
//! log can tell.
//!
//! | step | name | codes | level reached |
//! |---|---|---|---|
//! | 1 | parse | `T_LIMIT`, `T_PARSE`, `T_NONCANON` | |
//! | 2 | version | `T_VERSION` | |
//! | 3 | structure | `T_STRUCT` | |
//! | 4 | roots, question | `T_ROOT`, `T_QUESTION` | |
//! | 5 | binding, budget, status | `T_UNBOUND`, `T_BUDGET`, `T_STATUS` | L0 |
//! | 6 | signature | not available yet | L1 |
//! | 7 | evidence, once for each item | `T_EVIDENCE` | |
//! | 7 | families | `T_EVIDENCE` | |
//! | 7 | answer, once for the prose and for each statement | `T_ANSWER`, `T_EVIDENCE` | L2 |
//! | 7 | texts, once for each gap that was refined and each model call | `T_EVIDENCE` | |
//! | 8 | log | not available yet | L3 |
//! | 9 | replay, once for each round | `T_REPLAY` | |
//! | 9 | exhaustive, once for each round that an index nominated, if asked for | | |
//! | 10 | visibility, once for each round | `T_VISIBILITY` | L4 or L4-nominated |
//!
//! L2 does not ask for the texts of gaps and model calls: they may be erased while the evidence stays. A level is reached when
//! every part of its steps passed and the levels before it that are available
//! were reached. A step that meets an erased text is `redacted`, one beyond the kept history is
//! `pruned`; neither is a failure, but both leave the level where it was. A store that cannot answer fails the step
//! with `T_FAULT`. Bad data gives a report, never an error and never a panic; the work is bounded by
//! the size limits of [`crate::canon`] and the caps of [`crate::trace::Policy`].

mod answer;
mod bundle;
mod known;
mod report;
mod store;

use crate::canon::{self, CanonError, CanonErrorKind, Value};
use crate::hash::{Hash, Salt, commit};
use crate::receipt::{Nominator, Violation};
use crate::trace::{Roots, Round, Trace, rules};

pub use bundle::{BUNDLE_VERSION, Bundle, BundleItem, BundleText, BundleVersion, StoredFields};
pub use report::{Code, Level, Missed, Outcome, Report, Step, StepOutcome};
pub use store::{Evidence, Lookup, Replay, Replayed, StoredItem, text_at};

use report::{Checked, Failure, Ladder};

/// What the verifier brings along.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The question that the verifier believes was asked.
    pub question: Option<&'a str>,
    /// The salt of the question's commitment, needed where no store has it.
    pub question_salt: Option<Salt>,
    /// Whether to scan exactly where an index nominated, and to report what it missed.
    pub exhaustive: bool,
}

/// The steps in their order.
const PARSE: (u8, &str) = (1, "parse");
const VERSION: (u8, &str) = (2, "version");
const STRUCTURE: (u8, &str) = (3, "structure");
const ROOTS: (u8, &str) = (4, "roots");
const QUESTION: (u8, &str) = (4, "question");
const BINDING: (u8, &str) = (5, "binding");
const BUDGET: (u8, &str) = (5, "budget");
const STATUS: (u8, &str) = (5, "status");
const SIGNATURE: (u8, &str) = (6, "signature");
const EVIDENCE: (u8, &str) = (7, "evidence");
const FAMILIES: (u8, &str) = (7, "families");
const ANSWER: (u8, &str) = (7, "answer");
const TEXTS: (u8, &str) = (7, "texts");
const LOG: (u8, &str) = (8, "log");
const REPLAY: (u8, &str) = (9, "replay");
const EXHAUSTIVE: (u8, &str) = (9, "exhaustive");
const VISIBILITY: (u8, &str) = (10, "visibility");
const LADDER: [(u8, &str); 17] = [
    PARSE, VERSION, STRUCTURE, ROOTS, QUESTION, BINDING, BUDGET, STATUS, SIGNATURE, EVIDENCE,
    FAMILIES, ANSWER, TEXTS, LOG, REPLAY, EXHAUSTIVE, VISIBILITY,
];

/// Verifies the canonical text of a trace: alone up to level L0, with a store up to L4. The text may
/// be given as bytes that were not checked for UTF-8.
pub fn verify(
    trace_text: impl AsRef<[u8]>,
    options: &Options<'_>,
    evidence: Option<&mut dyn Evidence>,
) -> Report {
    let mut ladder = Ladder::default();
    let replays = evidence.as_ref().is_none_or(|store| store.can_replay());
    let end = climb(&mut ladder, trace_text.as_ref(), options, evidence);
    let why = match end {
        Ok(()) if !replays => "a file of texts cannot replay",
        Ok(()) => "no store was given to check against",
        Err(Stopped) => "an earlier step failed",
    };
    ladder.skip_missing(&LADDER, why);
    ladder.close()
}

/// A step failed and is recorded; no later one is run.
struct Stopped;

fn climb(
    ladder: &mut Ladder,
    text: &[u8],
    options: &Options<'_>,
    mut store: Option<&mut dyn Evidence>,
) -> Result<(), Stopped> {
    let value = ladder.step(PARSE, parse(text), |value| {
        let found = format!("{} bytes", text.len());
        (Checked::passed("canonical JSON", found), value)
    })?;
    ladder.check(VERSION, known::check(&value))?;
    let trace = ladder.step(STRUCTURE, structure(value, text), |trace| {
        let found = format!(
            "{} rounds, {} evidence",
            trace.rounds.len(),
            trace.evidence.len()
        );
        (Checked::passed("a well-formed trace", found), trace)
    })?;
    ladder.check(ROOTS, roots(&trace))?;
    match options.question {
        Some(question) => {
            let salt = options.question_salt;
            ladder.check(QUESTION, check_question(&trace, question, salt, &mut store))?;
        }
        None => ladder.skip(QUESTION, "no question was given"),
    }
    let rule = |result: Result<(), Violation>, code, expected: &str| match result {
        Ok(()) => Ok(Checked::passed(expected, "as expected")),
        Err(violation) => Err(violated(code, violation)),
    };
    let bound = rule(
        rules::binding(&trace),
        Code::TUnbound,
        "only what was retrieved is used",
    );
    ladder.check(BINDING, bound)?;
    ladder.check(
        BUDGET,
        rule(rules::budget(&trace), Code::TBudget, "budgets kept"),
    )?;
    ladder.check(
        STATUS,
        rule(
            rules::status(&trace),
            Code::TStatus,
            "the status of the mode",
        ),
    )?;
    ladder.reach(Level::L0);
    ladder.check(SIGNATURE, Ok(Checked::not_available()))?;
    let Some(store) = store else {
        return Ok(());
    };
    if check_evidence(ladder, &trace, store)? {
        ladder.reach(Level::L2);
    }
    ladder.check(LOG, Ok(Checked::not_available()))?;
    if !store.can_replay() {
        return Ok(());
    }
    if check_replay(ladder, &trace, store, options.exhaustive)? && ladder.reached(Level::L2) {
        let approximate = |round: &Round| round.receipt.nominator == Nominator::Approximate;
        ladder.reach(if trace.rounds.iter().any(approximate) {
            Level::L4Nominated
        } else {
            Level::L4
        });
    }
    Ok(())
}

fn parse(text: &[u8]) -> Result<Value, Failure> {
    canon::parse_canonical(text).map_err(|CanonError { at, kind }| {
        let code = match kind {
            CanonErrorKind::NotCanonical => Code::TNoncanon,
            ref kind if kind.is_limit() => Code::TLimit,
            _ => Code::TParse,
        };
        Failure::new(code, format!("byte {at}"), "canonical JSON", kind)
    })
}

/// `text` is the canonical text of `value`.
fn structure(value: Value, text: &[u8]) -> Result<Trace, Failure> {
    // Only texts in UTF-8 parse.
    let text = std::str::from_utf8(text).unwrap_or_default();
    let trace: Trace = canon::from_canonical(value, text).map_err(|error| match error.kind {
        CanonErrorKind::Shape { path, message } => {
            Failure::new(Code::TStruct, path, "the layout trace/1", message)
        }
        kind => Failure::new(Code::TStruct, "", "the layout trace/1", kind),
    })?;
    rules::structure(&trace).map_err(|violation| violated(Code::TStruct, violation))?;
    Ok(trace)
}

fn violated(code: Code, violation: Violation) -> Failure {
    Failure::new(code, violation.at, violation.expected, violation.found)
}

/// Every root recomputes from the parts, the part roots first.
fn roots(trace: &Trace) -> Result<Checked, Failure> {
    let computed = trace.compute_roots();
    let computed = computed.map_err(|error| Failure::new(Code::TStruct, "", "a root", error))?;
    for ((name, recorded), (_, computed)) in named(&trace.roots).into_iter().zip(named(&computed)) {
        if recorded != computed {
            let at = format!("roots.{name}");
            return Err(Failure::new(Code::TRoot, at, recorded, computed));
        }
    }
    Ok(Checked::passed(trace.roots.trace, computed.trace))
}

fn named(roots: &Roots) -> [(&'static str, Hash); 7] {
    [
        ("question", roots.question),
        ("policy", roots.policy),
        ("principal", roots.principal),
        ("rounds", roots.rounds),
        ("evidence", roots.evidence),
        ("answer", roots.answer),
        ("trace", roots.trace),
    ]
}

/// The verifier's own question is the one committed to, under the salt that is kept with it.
fn check_question(
    trace: &Trace,
    question: &str,
    salt: Option<Salt>,
    store: &mut Option<&mut dyn Evidence>,
) -> Result<Checked, Failure> {
    let salt = match (salt, store) {
        (Some(salt), _) => salt,
        (None, Some(store)) => match store::committed_text(*store, &trace.question, "question")? {
            Some(stored) => stored.salt,
            None => {
                let redacted = StepOutcome::Redacted;
                return Ok(Checked::new(redacted, "question", trace.question, "erased"));
            }
        },
        (None, None) => {
            let found = "no salt to commit with";
            let skipped = StepOutcome::Skipped;
            return Ok(Checked::new(skipped, "question", trace.question, found));
        }
    };
    let found = commit(&salt, question);
    if found != trace.question {
        return Err(Failure::new(
            Code::TQuestion,
            "question",
            trace.question,
            found,
        ));
    }
    Ok(Checked::passed(trace.question, found).at("question"))
}

/// Step 7; `true` if every item, the families, the prose and every statement passed.
fn check_evidence(
    ladder: &mut Ladder,
    trace: &Trace,
    store: &mut dyn Evidence,
) -> Result<bool, Stopped> {
    let passed = |outcome| outcome == StepOutcome::Passed;
    if let Err(violation) = store.bind(trace) {
        ladder.check(EVIDENCE, Err(violated(Code::TEvidence, violation)))?;
    }
    let mut all = true;
    let mut items = Vec::with_capacity(trace.evidence.len());
    for (i, item) in trace.evidence.iter().enumerate() {
        let at = format!("evidence[{i}]");
        let checked = store::evidence_item(store, trace, item, &at);
        let (outcome, stored) = ladder.step(EVIDENCE, checked, |(checked, stored)| {
            let outcome = checked.outcome;
            (checked, (outcome, stored))
        })?;
        all &= passed(outcome);
        items.push(stored);
    }
    if trace.evidence.is_empty() {
        ladder.check(EVIDENCE, Ok(Checked::passed("no evidence", "no evidence")))?;
    }
    ladder.check(FAMILIES, answer::families(trace, &items))?;

    let statements = &trace.answer.statements;
    match answer::prose(store, trace) {
        Ok(None) => {
            ladder.check(ANSWER, Ok(Checked::passed("no prose", "no prose")))?;
        }
        Ok(Some(checked)) => all &= passed(ladder.check(ANSWER, Ok(checked))?),
        Err(failure) => {
            ladder.check(ANSWER, Err(failure))?;
        }
    }
    if !statements.is_empty() {
        let judge = match answer::judge(trace, &items) {
            Ok(judge) => judge,
            Err(failure) => {
                ladder.check(ANSWER, Err(failure))?;
                return Ok(false);
            }
        };
        for (i, statement) in statements.iter().enumerate() {
            let at = format!("answer.statements[{i}]");
            let checked = answer::statement(store, trace, judge.as_ref(), statement, &at);
            all &= passed(ladder.check(ANSWER, checked)?);
        }
    }

    let mut texts = 0;
    for (i, round) in trace.rounds.iter().enumerate() {
        if let Some(gap) = &round.gap {
            let at = format!("rounds[{i}].gap");
            ladder.check(TEXTS, answer::texts(store, &[("", *gap)], &at))?;
            texts += 1;
        }
    }
    for (at, call) in trace.model_calls() {
        let of_call: Vec<_> = call.texts().collect();
        ladder.check(TEXTS, answer::texts(store, &of_call, &at))?;
        texts += 1;
    }
    if texts == 0 {
        let none = "no gap refined, no model called";
        ladder.check(TEXTS, Ok(Checked::passed(none, none)))?;
    }
    Ok(all)
}

/// Steps 9 and 10; `true` if every round passed.
fn check_replay(
    ladder: &mut Ladder,
    trace: &Trace,
    store: &mut dyn Evidence,
    exhaustive: bool,
) -> Result<bool, Stopped> {
    let visible = trace.principal.visible;
    let mut replays = Vec::new();
    for (i, round) in trace.rounds.iter().enumerate() {
        let at = format!("rounds[{i}]");
        let replay = store::replay_round(store, round, visible, &at);
        let withheld = ladder.step(REPLAY, replay, |replay| (replay.checked, replay.withheld))?;
        replays.push((round, at, withheld));
    }
    if exhaustive {
        check_exhaustively(ladder, trace, store)?;
    } else {
        ladder.skip(EXHAUSTIVE, "not asked for");
    }
    let all = replays.iter().all(|(_, _, withheld)| withheld.is_some());
    for (round, at, withheld) in replays {
        match withheld {
            Some(withheld) => ladder.check(VISIBILITY, visibility(round, withheld, &at))?,
            None => {
                ladder.skip(VISIBILITY, "the round was not replayed");
                StepOutcome::Skipped
            }
        };
    }
    Ok(all)
}

/// Scans exactly where an index nominated; what it missed is told and fails nothing.
fn check_exhaustively(
    ladder: &mut Ladder,
    trace: &Trace,
    store: &mut dyn Evidence,
) -> Result<(), Stopped> {
    let mut missed = Vec::new();
    let mut scanned = 0;
    for (i, round) in trace.rounds.iter().enumerate() {
        if round.receipt.nominator != Nominator::Approximate {
            continue;
        }
        scanned += 1;
        let scan = store::scan_round(store, round, &format!("rounds[{i}]"));
        if let Some(items) = ladder.step(EXHAUSTIVE, scan, |scan| scan)?
            && !items.is_empty()
        {
            missed.push(Missed {
                round: round.i,
                items,
            });
        }
    }
    if scanned == 0 {
        let none = "no index nominated";
        ladder.check(EXHAUSTIVE, Ok(Checked::passed(none, none)))?;
    }
    ladder.missed = Some(missed);
    Ok(())
}

fn visibility(round: &Round, withheld: u64, at: &str) -> Result<Checked, Failure> {
    let recorded = u64::from(round.receipt.masked);
    if recorded != withheld {
        let at = format!("{at}.receipt.masked");
        return Err(Failure::new(Code::TVisibility, at, recorded, withheld));
    }
    let text = |count| format!("{count} withheld from the caller");
    Ok(Checked::passed(text(recorded), text(withheld)).at(at))
}
