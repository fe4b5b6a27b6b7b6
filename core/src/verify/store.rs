//! Checks against what a store holds: evidence (step 7), replay (9) and visibility (10).

use super::report::{Checked, Code, Failure, StepOutcome};
use crate::hash::{Hash, Key, Leaf, SaltedText, Target, commit};
use crate::receipt::{Candidate, Nominator, Receipt, Stats, Violation};
use crate::trace::answer::ItemText;
use crate::trace::{EvidenceItem, Round, Span, Trace, Visible};

/// What a store knows under an id or a commitment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// It is here.
    Found(T),
    /// It was erased, and the erasure is on record.
    Erased,
    /// It is not here and no erasure says why.
    Missing,
}

/// A chunk or claim as it is stored now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredItem {
    /// Its text.
    pub text: String,
    /// Key of its source.
    pub source_key: Key,
    /// Stable name of its source.
    pub artifact: String,
    /// Id of its source version.
    pub version: i64,
    /// Content hash of that version.
    pub content: Hash,
    /// Equality digest of that content; `None` where the store does not have it.
    pub equality: Option<Hash>,
    /// First byte of its span in the source text.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// What running a retrieval again gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay {
    /// It ran.
    Done(Replayed),
    /// The history that it needs was pruned.
    Pruned,
    /// Texts that it needs were erased.
    Erased,
}

/// A retrieval that was run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Candidates in order as the retrieval finds them before anything is withheld from a caller:
    /// the first `params.k` of the receipt, or all if there are fewer. Leaves are computed from the
    /// stored texts.
    pub candidates: Vec<Candidate>,
    /// Corpus statistics at the recorded state.
    pub stats: Stats,
    /// Items that matched at all.
    pub total_matched: u64,
}

/// The store that holds what traces speak of.
///
/// An error is a fault of the store (it cannot be read, an algorithm it needs is gone); it becomes a
/// failed step with code `T_FAULT` and never passes for an answer.
pub trait Evidence {
    /// The text behind a commitment.
    ///
    /// # Errors
    /// A fault of the store, as a sentence.
    fn text(&mut self, commitment: &Hash) -> Result<Lookup<SaltedText>, String>;

    /// The item with this id.
    ///
    /// # Errors
    /// A fault of the store, as a sentence.
    fn item(&mut self, target: Target, id: i64) -> Result<Lookup<StoredItem>, String>;

    /// Runs the retrieval of a receipt again: its parameters, at its state, for this query text.
    /// With [`Nominator::Approximate`] the vector arm starts from the recorded nominees; which of
    /// them are valid at the state, their scores and their order are computed.
    ///
    /// # Errors
    /// A fault of the store, as a sentence.
    fn replay(&mut self, receipt: &Receipt, query: &str) -> Result<Replay, String>;

    /// As [`Evidence::replay`], but the vector arm scans its whole scope, whatever nominated then.
    ///
    /// # Errors
    /// A fault of the store, as a sentence.
    fn scan(&mut self, receipt: &Receipt, query: &str) -> Result<Replay, String>;

    /// Whether retrievals can be run again at all; a file of texts cannot.
    fn can_replay(&self) -> bool {
        true
    }

    /// Called once, before the evidence is looked up. A file that was made for one trace tells here that it is not
    /// the one of this trace.
    ///
    /// # Errors
    /// What does not belong to this trace.
    fn bind(&mut self, _trace: &Trace) -> Result<(), Violation> {
        Ok(())
    }
}

/// Most missed items that a report names.
const MAX_MISSED: usize = 1_000;

pub(super) fn fault(at: &str) -> impl Fn(String) -> Failure + '_ {
    move |message| Failure::new(Code::TFault, at, "an answer of the store", message)
}

/// Looks a text up and checks that it is the one committed to; `None` if it was erased.
pub(super) fn committed_text(
    store: &mut dyn Evidence,
    commitment: &Hash,
    at: &str,
) -> Result<Option<SaltedText>, Failure> {
    match store.text(commitment).map_err(fault(at))? {
        Lookup::Erased => Ok(None),
        Lookup::Missing => {
            let expected = "the text of the commitment, or a record of its erasure";
            Err(Failure::new(Code::TEvidence, at, expected, "neither"))
        }
        Lookup::Found(stored) => {
            let found = stored.commitment();
            if found != *commitment {
                return Err(Failure::new(Code::TEvidence, at, commitment, found));
            }
            Ok(Some(stored))
        }
    }
}

/// Step 7 for one evidence item: the leaf recomputes from the stored text, and the quote is what
/// stands at the span. Gives the item too, unless it was erased.
pub(super) fn evidence_item(
    store: &mut dyn Evidence,
    trace: &Trace,
    item: &EvidenceItem,
    at: &str,
) -> Result<(Checked, Option<StoredItem>), Failure> {
    let Some(target) = trace.target(item) else {
        let expected = "one of the trace's rounds";
        return Err(Failure::new(
            Code::TUnbound,
            format!("{at}.round"),
            expected,
            item.round,
        ));
    };
    let quote = committed_text(store, &item.quote, &format!("{at}.quote"))?;
    let stored = match store.item(target, item.item).map_err(fault(at))? {
        Lookup::Found(stored) => stored,
        Lookup::Erased => {
            let expected = format!("leaf {}", item.leaf);
            let checked = Checked::new(StepOutcome::Redacted, at, expected, "erased");
            return Ok((checked, None));
        }
        Lookup::Missing => {
            let expected = format!("item {}, or a record of its erasure", item.item);
            return Err(Failure::new(Code::TEvidence, at, expected, "neither"));
        }
    };
    let found = stored_leaf(target, item.item, &stored, at)?;
    let fail = |field: &str, expected: String, found: String| {
        let at = format!("{at}.{field}");
        Err(Failure::new(Code::TEvidence, at, expected, found))
    };
    if found != item.leaf {
        return fail("leaf", item.leaf.to_string(), found.to_string());
    }
    // The leaf covers the content hash of the store; the evidence names it once more by itself.
    if stored.content != item.content {
        return fail(
            "content",
            item.content.to_string(),
            stored.content.to_string(),
        );
    }
    let Some(text) = text_at(&stored, item.span) else {
        let expected = format!(
            "a span of characters within {} to {}",
            stored.start, stored.end
        );
        let found = format!("{} to {}", item.span.start, item.span.end);
        return fail("span", expected, found);
    };
    let Some(quote) = quote else {
        let expected = format!("quote {}", item.quote);
        let checked = Checked::new(StepOutcome::Redacted, at, expected, "erased");
        return Ok((checked, Some(stored)));
    };
    if quote.text != text {
        // As commitments: a report may go to someone who may not read the text.
        let found = commit(&quote.salt, text);
        return fail("quote", item.quote.to_string(), found.to_string());
    }
    let length = quote.text.chars().count() as u64;
    let most = u64::from(trace.policy.excerpt_chars);
    if length > most {
        return fail(
            "quote",
            format!("at most {most} characters"),
            length.to_string(),
        );
    }
    Ok((Checked::passed(item.leaf, found).at(at), Some(stored)))
}

fn stored_leaf(target: Target, id: i64, stored: &StoredItem, at: &str) -> Result<Hash, Failure> {
    let leaf = Leaf {
        kind: target,
        item: id,
        artifact: &stored.artifact,
        version: stored.version,
        content: stored.content,
        start: stored.start,
        end: stored.end,
    };
    let hash = leaf.hash(&stored.source_key, &stored.text);
    hash.map_err(|error| fault(at)(error.to_string()))
}

/// The part of an item's text that a span of the source text covers (see [`ItemText::at`]).
pub fn text_at(stored: &StoredItem, span: Span) -> Option<&str> {
    item_text(stored, span).at(span)
}

/// A stored item as the checks of statements take it.
pub(super) fn item_text(stored: &StoredItem, span: Span) -> ItemText<'_> {
    ItemText {
        span,
        start: stored.start,
        end: stored.end,
        text: &stored.text,
    }
}

/// What step 9 gives for one round: the check and, for step 10, the candidates withheld.
pub(super) struct ReplayCheck {
    pub checked: Checked,
    /// Candidates that the replay found among the considered ones and the receipt does not list;
    /// `None` where the replay could not run.
    pub withheld: Option<u64>,
}

/// Step 9 for one round: the retrieval gives the recorded statistics, candidates, scores and order.
pub(super) fn replay_round(
    store: &mut dyn Evidence,
    round: &Round,
    visible: Visible,
    at: &str,
) -> Result<ReplayCheck, Failure> {
    let receipt = &round.receipt;
    let not_run = |outcome, found: &str| {
        let checked = Checked::new(outcome, at, "a replay", found);
        ReplayCheck {
            checked,
            withheld: None,
        }
    };
    let query = committed_text(store, &round.query, &format!("{at}.query"))?;
    let Some(query) = query else {
        return Ok(not_run(StepOutcome::Redacted, "the query was erased"));
    };
    let replayed = match store.replay(receipt, &query.text).map_err(fault(at))? {
        Replay::Done(replayed) => replayed,
        Replay::Pruned => return Ok(not_run(StepOutcome::Pruned, "the history was pruned")),
        Replay::Erased => return Ok(not_run(StepOutcome::Redacted, "items were erased")),
    };
    let at_receipt = format!("{at}.receipt");
    check_complete(receipt, &replayed, &at_receipt)?;
    compare_totals(receipt, &replayed, &at_receipt)?;
    let most = replayed.candidates.len().min(receipt.params.k as usize);
    let found = replayed.candidates.get(..most).unwrap_or_default();
    let withheld = if visible == Visible::Checked && receipt.masked > 0 {
        compare_visible(receipt, found, &at_receipt)?
    } else {
        compare_all(receipt, found, &at_receipt)?;
        0
    };
    let how = match receipt.nominator {
        Nominator::Approximate => "recomputed from the recorded nominees",
        Nominator::None | Nominator::Exact | Nominator::Lexical => "recomputed",
    };
    let recorded = receipt.candidates.len();
    let expected = format!("{recorded} candidates, {} withheld", receipt.masked);
    let found = format!("{recorded} candidates, {withheld} withheld, {how}");
    Ok(ReplayCheck {
        checked: Checked::passed(expected, found).at(at),
        withheld: Some(withheld),
    })
}

/// The exhaustive part of step 9 for one round whose nominees an index gave: which items a scan of the whole scope
/// finds among the considered ones that the recorded nominees do not give. `None` where it could not run.
pub(super) fn scan_round(
    store: &mut dyn Evidence,
    round: &Round,
    at: &str,
) -> Result<(Checked, Option<Vec<i64>>), Failure> {
    let not_run = |outcome, found: &str| Ok((Checked::new(outcome, at, "a scan", found), None));
    let receipt = &round.receipt;
    let query = committed_text(store, &round.query, &format!("{at}.query"))?;
    let Some(query) = query else {
        return not_run(StepOutcome::Redacted, "the query was erased");
    };
    let mut runs = Vec::with_capacity(2);
    for scan in [false, true] {
        let run = match scan {
            false => store.replay(receipt, &query.text),
            true => store.scan(receipt, &query.text),
        };
        let run = match run.map_err(fault(at))? {
            Replay::Done(run) => run,
            Replay::Pruned => return not_run(StepOutcome::Pruned, "the history was pruned"),
            Replay::Erased => return not_run(StepOutcome::Redacted, "items were erased"),
        };
        let items = run.candidates.iter().map(|candidate| candidate.item);
        let considered = receipt.considered();
        runs.push(items.take(considered).collect::<Vec<i64>>());
    }
    let [nominated, scanned] = &runs[..] else {
        return not_run(StepOutcome::Skipped, "no two runs");
    };
    let missed = scanned.iter().filter(|item| !nominated.contains(item));
    let missed: Vec<i64> = missed.copied().take(MAX_MISSED).collect();
    let expected = format!("{} best items by a scan", scanned.len());
    let found = format!("{} of them missed by the index", missed.len());
    let checked = Checked::passed(expected, found).at(at);
    Ok((checked, Some(missed)))
}

/// A replay that stops where the receipt stops could not show what the receipt leaves out. By its own
/// count it must give all that the parameters ask for.
fn check_complete(receipt: &Receipt, replayed: &Replayed, at: &str) -> Result<(), Failure> {
    let asked = u64::from(receipt.params.k.min(receipt.params.depth));
    let least = asked.min(replayed.total_matched);
    let given = replayed.candidates.len() as u64;
    if given >= least {
        return Ok(());
    }
    let expected = format!("at least {least} replayed candidates");
    let at = format!("{at}.candidates");
    Err(Failure::new(Code::TFault, at, expected, given))
}

fn compare_totals(receipt: &Receipt, replayed: &Replayed, at: &str) -> Result<(), Failure> {
    for (name, recorded, found) in [
        ("stats.items", receipt.stats.items, replayed.stats.items),
        (
            "stats.term_total",
            receipt.stats.term_total,
            replayed.stats.term_total,
        ),
        (
            "total_matched",
            receipt.total_matched,
            replayed.total_matched,
        ),
    ] {
        if recorded != found {
            let at = format!("{at}.{name}");
            return Err(Failure::new(Code::TReplay, at, recorded, found));
        }
    }
    Ok(())
}

fn compare_all(receipt: &Receipt, replayed: &[Candidate], at: &str) -> Result<(), Failure> {
    let recorded = &receipt.candidates;
    for (i, (recorded, found)) in recorded.iter().zip(replayed).enumerate() {
        compare_candidate(recorded, found, &format!("{at}.candidates[{i}]"))?;
    }
    if recorded.len() == replayed.len() {
        return Ok(());
    }
    let at = format!("{at}.candidates");
    Err(Failure::new(
        Code::TReplay,
        at,
        recorded.len(),
        replayed.len(),
    ))
}

/// The recorded candidates are a part of the replayed ones, in their order; returns how many of the
/// replayed ones are not recorded.
fn compare_visible(receipt: &Receipt, replayed: &[Candidate], at: &str) -> Result<u64, Failure> {
    let mut rest = replayed.iter();
    for (i, recorded) in receipt.candidates.iter().enumerate() {
        let at = format!("{at}.candidates[{i}]");
        match rest.find(|found| found.item == recorded.item) {
            Some(found) => compare_candidate(recorded, found, &at)?,
            None => {
                let expected = format!("item {} at this place of the order", recorded.item);
                return Err(Failure::new(Code::TReplay, at, expected, "not found again"));
            }
        }
    }
    Ok(replayed.len().saturating_sub(receipt.candidates.len()) as u64)
}

fn compare_candidate(recorded: &Candidate, found: &Candidate, at: &str) -> Result<(), Failure> {
    let rank = |rank: Option<u32>| rank.map_or("null".into(), |rank| rank.to_string());
    let fields = |of: &Candidate| {
        [
            ("item", of.item.to_string()),
            ("artifact", of.artifact.clone()),
            ("version", of.version.to_string()),
            ("score", of.score.to_string()),
            ("lexical_rank", rank(of.lexical_rank)),
            ("vector_rank", rank(of.vector_rank)),
            ("lexical", of.lexical.to_string()),
            ("vector", of.vector.to_string()),
            ("leaf", of.leaf.to_string()),
        ]
    };
    for ((name, recorded), (_, found)) in fields(recorded).into_iter().zip(fields(found)) {
        if recorded != found {
            let at = format!("{at}.{name}");
            return Err(Failure::new(Code::TReplay, at, recorded, found));
        }
    }
    Ok(())
}
