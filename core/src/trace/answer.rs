//! The answer of a trace, and what is checked of its statements.

use serde::{Deserialize, Serialize};

use super::{EvidenceItem, ModelCall, QuoteRule, Span};
use crate::hash::Hash;
use crate::quote::Normal;
use crate::{family, ground};

/// Most statements of an answer.
pub const MAX_STATEMENTS: usize = 64;
/// Most citations of all statements together.
pub const MAX_CITATIONS: usize = 256;
/// Longest text of a statement or a quote, in characters.
pub const MAX_STATEMENT_CHARS: usize = 2_000;

/// How far the question was answered. It follows from mode, policy and the checks of the answer, and is
/// recomputed by verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Answered.
    Answered,
    /// Answered in part.
    Partial,
    /// Not answered: the evidence does not suffice.
    InsufficientEvidence,
}

impl Status {
    /// As it is written in a trace.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "ANSWERED",
            Self::Partial => "PARTIAL",
            Self::InsufficientEvidence => "INSUFFICIENT_EVIDENCE",
        }
    }
}

/// Why a question was not answered, or only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No round found a candidate that the caller may see.
    NothingRetrieved,
    /// Candidates were found and none was selected.
    NothingSelected,
    /// The mode needs prose, and nobody wrote any.
    NoModel,
    /// A model was asked for prose and wrote none.
    ModelAbstained,
    /// A statement, or every statement, is not supported by what it cites.
    StatementsUnsupported,
    /// A sub-question has no evidence.
    GapsLeft,
    /// All evidence is of one family of sources, so there is nothing to compare.
    OneFamily,
}

impl Reason {
    /// As it is written in a trace.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NothingRetrieved => "nothing_retrieved",
            Self::NothingSelected => "nothing_selected",
            Self::NoModel => "no_model",
            Self::ModelAbstained => "model_abstained",
            Self::StatementsUnsupported => "statements_unsupported",
            Self::GapsLeft => "gaps_left",
            Self::OneFamily => "one_family",
        }
    }
}

/// What came of the quote of a citation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// No quote was given.
    Id,
    /// The quote occurs in the cited item, at the span of the citation.
    Supported,
    /// It does not, but in the item of another piece of evidence.
    Misattributed,
    /// It occurs in none.
    Absent,
}

impl Check {
    /// As it is written in a trace.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Supported => "supported",
            Self::Misattributed => "misattributed",
            Self::Absent => "absent",
        }
    }
}

/// What came of the numbers and dates of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// There are none.
    None,
    /// Each occurs in a span that the statement cites.
    Supported,
    /// One at least does not.
    Unsupported,
}

impl Numbers {
    /// As it is written in a trace.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Supported => "supported",
            Self::Unsupported => "unsupported",
        }
    }
}

/// A statement's reference to a piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Citation {
    /// Number of the evidence.
    pub n: u32,
    /// The quote's place in the source text; without a quote that occurs there, the span of the evidence.
    pub span: Span,
    /// Commitment to the quote; null without one.
    pub quote: Option<Hash>,
    /// What came of the quote.
    pub check: Check,
    /// Where a misattributed quote occurs: number of the first such evidence; null otherwise.
    pub other: Option<u32>,
}

/// A part of an answer that carries citations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// Number in the answer, from 1.
    pub n: u32,
    /// Commitment to the text.
    pub text: Hash,
    /// What it rests on.
    pub citations: Vec<Citation>,
    /// Whether its numbers and dates are in what it cites.
    pub numbers: Numbers,
    /// Whether all of that holds: a citation counts, no quote fails, no number is missing.
    pub supported: bool,
}

impl Statement {
    /// What [`Statement::supported`] must be, given the checks.
    pub fn holds(&self, rule: QuoteRule) -> bool {
        let checks: Vec<Check> = self
            .citations
            .iter()
            .map(|citation| citation.check)
            .collect();
        supported(&checks, self.numbers, rule)
    }
}

/// Whether checks support a statement: a citation counts, no quote fails, no number is missing.
fn supported(checks: &[Check], numbers: Numbers, rule: QuoteRule) -> bool {
    let fails = |check: &Check| matches!(check, Check::Misattributed | Check::Absent);
    checks.iter().any(|check| counts(*check, rule))
        && !checks.iter().any(fails)
        && numbers != Numbers::Unsupported
}

fn counts(check: Check, rule: QuoteRule) -> bool {
    match check {
        Check::Supported => true,
        Check::Id => rule == QuoteRule::Id,
        Check::Misattributed | Check::Absent => false,
    }
}

/// Why a sub-question has no evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its round found no candidate that the caller may see.
    NothingRetrieved,
    /// Nothing of its round was selected.
    NothingSelected,
    /// No round was left for it.
    NotAsked,
}

impl Why {
    /// As it is written in a trace.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NothingRetrieved => "nothing_retrieved",
            Self::NothingSelected => "nothing_selected",
            Self::NotAsked => "not_asked",
        }
    }
}

/// A planned sub-question without evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// Commitment to the sub-question.
    pub query: Hash,
    /// Round that asked it; null if none did.
    pub round: Option<u32>,
    /// Why it has none.
    pub why: Why,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// How far the question was answered.
    pub status: Status,
    /// Why not further; null when answered.
    pub reason: Option<Reason>,
    /// Commitment to the prose; null without any.
    pub prose: Option<Hash>,
    /// The model call that wrote prose and statements, or none; null where no model was asked.
    pub model: Option<ModelCall>,
    /// Parts of the prose with their citations; empty without prose.
    pub statements: Vec<Statement>,
    /// Planned sub-questions without evidence, in the order of the plan.
    pub gaps: Vec<Gap>,
    /// Distinct artifacts among the evidence.
    pub sources: u32,
    /// Independent families among the evidence.
    pub families: u32,
}

/// Distinct artifacts and families of a list of evidence.
pub fn source_counts(evidence: &[EvidenceItem]) -> (u32, u32) {
    let artifacts: std::collections::HashSet<&str> =
        evidence.iter().map(|item| item.artifact.as_str()).collect();
    let families: Vec<u32> = evidence.iter().map(|item| item.family).collect();
    (artifacts.len() as u32, family::count(&families))
}

/// The text of an item with its place, as the checks of a statement need it.
#[derive(Clone, Copy, Debug)]
pub struct ItemText<'a> {
    /// Span of the evidence in the source text.
    pub span: Span,
    /// First byte of the item in the source text.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// The item's whole text.
    pub text: &'a str,
}

impl<'a> ItemText<'a> {
    /// The part of the text that a span of the source text covers. An item whose text is its own span of
    /// the source can be quoted in part; one that was worded anew, only whole.
    pub fn at(&self, span: Span) -> Option<&'a str> {
        if self.end.checked_sub(self.start)? == self.text.len() as u64 {
            let start = usize::try_from(span.start.checked_sub(self.start)?).ok()?;
            let end = usize::try_from(span.end.checked_sub(self.start)?).ok()?;
            return self.text.get(start..end);
        }
        let whole = (span.start, span.end) == (self.start, self.end);
        whole.then_some(self.text)
    }

    /// The span of the source text that a range of this text stands for.
    fn span_of(&self, range: std::ops::Range<usize>) -> Span {
        match self.end.checked_sub(self.start) == Some(self.text.len() as u64) {
            true => Span {
                start: self.start + range.start as u64,
                end: self.start + range.end as u64,
            },
            false => Span {
                start: self.start,
                end: self.end,
            },
        }
    }
}

/// What the checks of a statement gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// For each citation: the span, what came of the quote, and where else it occurs.
    pub citations: Vec<(Span, Check, Option<u32>)>,
    /// What came of the numbers.
    pub numbers: Numbers,
}

impl Judged {
    /// Whether the statement is supported.
    pub fn supported(&self, rule: QuoteRule) -> bool {
        let checks: Vec<Check> = self.citations.iter().map(|(_, check, _)| *check).collect();
        supported(&checks, self.numbers, rule)
    }
}

/// The items of a trace's evidence, in their order, ready to be searched for quotes.
pub struct Judge<'a> {
    items: Vec<(ItemText<'a>, Normal)>,
}

impl<'a> Judge<'a> {
    /// Takes the items of all evidence, evidence 1 first.
    pub fn new(items: impl IntoIterator<Item = ItemText<'a>>) -> Self {
        let items = items.into_iter().map(|item| (item, Normal::of(item.text)));
        Self {
            items: items.collect(),
        }
    }

    /// Checks a statement: each citation is the number of a piece of evidence and its quote. `None` if there
    /// is no evidence of that number.
    pub fn statement(
        &self,
        text: &str,
        citations: &[(u32, Option<&str>)],
        rule: QuoteRule,
    ) -> Option<Judged> {
        let mut judged = Vec::with_capacity(citations.len());
        let mut cited: Vec<&str> = Vec::new();
        for (n, quote) in citations {
            let (item, normal) = self.items.get((*n as usize).checked_sub(1)?)?;
            let (span, check, other) = match quote {
                None => (item.span, Check::Id, None),
                Some(quote) => match normal.locate(quote) {
                    Some(range) => (item.span_of(range), Check::Supported, None),
                    None => match self.elsewhere(quote) {
                        Some(other) => (item.span, Check::Misattributed, Some(other)),
                        None => (item.span, Check::Absent, None),
                    },
                },
            };
            if counts(check, rule) {
                cited.extend(item.at(span));
            }
            judged.push((span, check, other));
        }
        let numbers = match ground::figures(text, &cited) {
            (0, _) => Numbers::None,
            (_, missing) if missing.is_empty() => Numbers::Supported,
            _ => Numbers::Unsupported,
        };
        Some(Judged {
            citations: judged,
            numbers,
        })
    }

    fn elsewhere(&self, quote: &str) -> Option<u32> {
        let mut items = (1..).zip(&self.items);
        let found = items.find(|(_, (_, normal))| normal.locate(quote).is_some());
        found.map(|(n, _)| n)
    }
}
