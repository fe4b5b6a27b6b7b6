//! The trace: the whole record of one answer.
//!
//! A trace holds the question, the policy, each retrieval round with its receipt, what was
//! selected, the evidence and the answer, and a root over each part. Free text enters only as
//! salted commitments, so a trace can be shown, and its texts erased, without breaking a root.
//! When it was made (`created_at`) is kept beside the trace and enters no root.
//!
//! *Verified* means that a trace is what was recorded, that its parts are bound to each other and
//! that its retrieval can be replayed. It never means that the answer is true.

pub mod answer;
mod builder;
mod policy;
pub mod rules;
mod status;

use serde::{Deserialize, Serialize};

use crate::canon::{self, CanonError};
use crate::hash::{Context, Hash, Target, structure_hash};
use crate::receipt::{Receipt, State};

pub use answer::{Answer, Check, Citation, Gap, Numbers, Reason, Statement, Status, Why};
pub use builder::{
    CitationDraft, EvidenceDraft, Head, RoundDraft, StatementDraft, TraceBuilder, TraceError,
};
pub use policy::{Policy, QuoteRule, Retrieval};

/// Layout of a trace, the value of its member `v`.
pub const TRACE_VERSION: &str = "trace/1";

/// Layout of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TraceVersion {
    /// The layout of this module.
    #[serde(rename = "trace/1")]
    V1,
}

/// A member whose place is kept for a later layout and that is always null in this one.
pub type Reserved = ();

/// Which items the caller could see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visible {
    /// Everything in the namespace.
    All,
    /// Each item was checked against the caller's own rights; what failed was withheld.
    Checked,
}

/// On whose behalf the question was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Principal {
    /// Database role.
    pub role: String,
    /// Which items it could see.
    pub visible: Visible,
}

/// What kind of answer was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Quoted evidence without prose; answered when at least one item was found.
    FindRelevant,
    /// Prose whose statements cite evidence; answered when all of them are supported.
    EvidenceAnswer,
    /// Evidence of at least two independent families of sources.
    CompareSources,
    /// Evidence for each planned sub-question.
    CoverageReview,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 4] = [
        Self::FindRelevant,
        Self::EvidenceAnswer,
        Self::CompareSources,
        Self::CoverageReview,
    ];

    /// As it is written in a trace.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FindRelevant => "find_relevant",
            Self::EvidenceAnswer => "evidence_answer",
            Self::CompareSources => "compare_sources",
            Self::CoverageReview => "coverage_review",
        }
    }

    /// Whether an answer may hold prose.
    pub fn has_prose(self) -> bool {
        matches!(self, Self::EvidenceAnswer | Self::CompareSources)
    }
}

/// The rules by which the checks of an answer were made. Names are versioned and immutable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// How an excerpt is cut.
    pub excerpt: String,
    /// How a quote is found.
    pub quote: String,
    /// How numbers and dates are compared.
    pub ground: String,
    /// What makes sources one family.
    pub family: String,
}

impl Default for Rules {
    /// The rules of this version.
    fn default() -> Self {
        Self {
            excerpt: crate::excerpt::NAME.into(),
            quote: crate::quote::NAME.into(),
            ground: crate::ground::NAME.into(),
            family: crate::family::NAME.into(),
        }
    }
}

/// One call of a model, as far as it can be pinned down without showing its texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelCall {
    /// Name of the model.
    pub name: String,
    /// Digest of its weights, where the server says it.
    pub digest: Option<String>,
    /// Commitment to the options of the call.
    pub options: Option<Hash>,
    /// Commitment to the exact input.
    pub input: Hash,
    /// Commitment to the exact output.
    pub output: Hash,
}

impl ModelCall {
    /// The commitments of the call with their names.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, Hash)> {
        let options = self.options.map(|options| ("options", options));
        let rest = [("input", self.input), ("output", self.output)];
        options.into_iter().chain(rest)
    }
}

/// Why a round was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The question itself; the first round, and only the first.
    Initial,
    /// A sub-question planned beforehand; runs even after a round that added nothing.
    Planned,
    /// A query made from a gap; none may follow a round that added nothing.
    Refine,
}

/// One retrieval and what was selected from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// Position, from 0.
    pub i: u32,
    /// Why it was run.
    pub origin: Origin,
    /// Round whose gap it refines; null otherwise.
    pub parent: Option<u32>,
    /// Commitment to the text that names what was missing; null unless it refines.
    pub gap: Option<Hash>,
    /// The model call that wrote the query; null where no model did.
    pub refined_by: Option<ModelCall>,
    /// Commitment to the query text, the same as in the receipt.
    pub query: Hash,
    /// The retrieval.
    pub receipt: Receipt,
    /// The model call that selected; null where no model did.
    pub selected_by: Option<ModelCall>,
    /// Items that were selected, in the order of the candidates.
    pub selected: Vec<i64>,
    /// How many of them no earlier round had selected.
    pub added: u32,
    /// Whether it added none.
    pub stalled: bool,
}

impl Round {
    /// Hash of the round; the receipt enters through its own root, so a round can be disclosed
    /// without its candidates.
    ///
    /// # Errors
    /// Where a number is outside ±(2^53 - 1).
    pub fn hash(&self) -> Result<Hash, CanonError> {
        #[derive(Serialize)]
        struct Preimage<'a> {
            i: u32,
            origin: Origin,
            parent: Option<u32>,
            gap: Option<Hash>,
            refined_by: &'a Option<ModelCall>,
            query: Hash,
            receipt: Hash,
            selected_by: &'a Option<ModelCall>,
            selected: &'a [i64],
            added: u32,
            stalled: bool,
        }
        structure_hash(
            Context::Round,
            &Preimage {
                i: self.i,
                origin: self.origin,
                parent: self.parent,
                gap: self.gap,
                refined_by: &self.refined_by,
                query: self.query,
                receipt: self.receipt.root()?,
                selected_by: &self.selected_by,
                selected: &self.selected,
                added: self.added,
                stalled: self.stalled,
            },
        )
    }
}

/// A half-open range of bytes of the source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// A quoted span of a selected item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceItem {
    /// Number in the answer, from 1.
    pub n: u32,
    /// Id of the chunk or claim.
    pub item: i64,
    /// Stable name of its source.
    pub artifact: String,
    /// Id of its source version.
    pub version: i64,
    /// Content hash of that version.
    pub content: Hash,
    /// Leaf hash of the item.
    pub leaf: Hash,
    /// Round whose candidate it is.
    pub round: u32,
    /// Where the quote stands in the source text, within the item's own span.
    pub span: Span,
    /// Commitment to the quoted text.
    pub quote: Hash,
    /// Number of the first evidence of its family of sources.
    pub family: u32,
}

impl EvidenceItem {
    /// Hash of the item, so that one item can be disclosed alone.
    ///
    /// # Errors
    /// Where a number is outside ±(2^53 - 1).
    pub fn hash(&self) -> Result<Hash, CanonError> {
        structure_hash(Context::EvidenceItem, self)
    }
}

/// The roots of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roots {
    /// Over the commitment to the question.
    pub question: Hash,
    /// Over the policy.
    pub policy: Hash,
    /// Over the principal.
    pub principal: Hash,
    /// Over the list of round hashes.
    pub rounds: Hash,
    /// Over the list of evidence hashes.
    pub evidence: Hash,
    /// Over the answer.
    pub answer: Hash,
    /// Over the head of the trace and the other roots.
    pub trace: Hash,
}

impl Roots {
    /// Roots of a trace that is still being built.
    const UNSET: Self = Self {
        question: Hash([0; 32]),
        policy: Hash([0; 32]),
        principal: Hash([0; 32]),
        rounds: Hash([0; 32]),
        evidence: Hash([0; 32]),
        answer: Hash([0; 32]),
        trace: Hash([0; 32]),
    };
}

/// The record of one answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// Layout.
    pub v: TraceVersion,
    /// Program that made the trace, as in `cortex/0.1.0`.
    pub engine: String,
    /// Analyzer of every round.
    pub analyzer: String,
    /// Ranker of every round.
    pub ranker: String,
    /// Chunker of the items.
    pub chunker: String,
    /// Rules of the answer's checks.
    pub rules: Rules,
    /// Id of the installation whose ids and states the trace speaks of.
    pub origin: String,
    /// Namespace that was asked.
    pub namespace: String,
    /// On whose behalf.
    pub principal: Principal,
    /// State of every round.
    pub state: State,
    /// Commitment to the question.
    pub question: Hash,
    /// Kind of answer.
    pub mode: Mode,
    /// Budgets.
    pub policy: Policy,
    /// Reserved for a requirement plan.
    pub plan: Reserved,
    /// Commitments to the sub-questions planned beforehand, in their order.
    pub planned: Vec<Hash>,
    /// Rounds, in the order they ran.
    pub rounds: Vec<Round>,
    /// Evidence, in the order of the answer.
    pub evidence: Vec<EvidenceItem>,
    /// Reserved for the certificate of a requirement plan.
    pub certificate: Reserved,
    /// Answer.
    pub answer: Answer,
    /// Reserved for the position in the outward log.
    pub log: Reserved,
    /// Roots over all of the above.
    pub roots: Roots,
}

impl Trace {
    /// The canonical text: what is stored and what [`crate::verify::verify`] takes.
    ///
    /// # Errors
    /// Where a number is outside ±(2^53 - 1).
    pub fn to_text(&self) -> Result<String, CanonError> {
        canon::to_text(self)
    }

    /// Reads a trace from its canonical text. It is not verified by this.
    ///
    /// # Errors
    /// A text that is not canonical or not a trace.
    pub fn from_text(text: &str) -> Result<Self, CanonError> {
        canon::from_text(text)
    }

    /// Every commitment to a text, each once, in the order of the trace.
    pub fn commitments(&self) -> Vec<Hash> {
        let mut all = vec![self.question];
        all.extend(&self.planned);
        for round in &self.rounds {
            all.push(round.query);
            all.extend(round.gap);
        }
        all.extend(self.evidence.iter().map(|item| item.quote));
        all.extend(self.answer.prose);
        for statement in &self.answer.statements {
            all.push(statement.text);
            all.extend(
                statement
                    .citations
                    .iter()
                    .filter_map(|citation| citation.quote),
            );
        }
        for (_, call) in self.model_calls() {
            all.extend(call.texts().map(|(_, commitment)| commitment));
        }
        let mut seen = std::collections::HashSet::new();
        all.retain(|commitment| seen.insert(*commitment));
        all
    }

    /// Every model call with its path.
    pub fn model_calls(&self) -> impl Iterator<Item = (String, &ModelCall)> {
        let of_rounds = self.rounds.iter().enumerate().flat_map(|(i, round)| {
            let refined = round.refined_by.iter();
            let refined = refined.map(move |call| (format!("rounds[{i}].refined_by"), call));
            let selected = round.selected_by.iter();
            refined.chain(selected.map(move |call| (format!("rounds[{i}].selected_by"), call)))
        });
        let of_answer = self.answer.model.iter();
        of_rounds.chain(of_answer.map(|call| ("answer.model".into(), call)))
    }

    /// Kind of the items that the evidence quotes, as the round of the item tells.
    pub fn target(&self, evidence: &EvidenceItem) -> Option<Target> {
        let round = self.rounds.get(evidence.round as usize)?;
        Some(round.receipt.target)
    }

    /// Recomputes all roots from the parts; the recorded ones play no role.
    ///
    /// # Errors
    /// Where a number is outside ±(2^53 - 1).
    pub fn compute_roots(&self) -> Result<Roots, CanonError> {
        let rounds: Result<Vec<Hash>, _> = self.rounds.iter().map(Round::hash).collect();
        let evidence: Result<Vec<Hash>, _> = self.evidence.iter().map(EvidenceItem::hash).collect();
        let parts = PartRoots {
            question: structure_hash(Context::Question, &self.question)?,
            policy: structure_hash(Context::Policy, &self.policy)?,
            principal: structure_hash(Context::Principal, &self.principal)?,
            rounds: structure_hash(Context::Rounds, &rounds?)?,
            evidence: structure_hash(Context::Evidence, &evidence?)?,
            answer: structure_hash(Context::Answer, &self.answer)?,
        };
        let trace = structure_hash(
            Context::Trace,
            &TraceHead {
                v: self.v,
                engine: &self.engine,
                analyzer: &self.analyzer,
                ranker: &self.ranker,
                chunker: &self.chunker,
                rules: &self.rules,
                origin: &self.origin,
                namespace: &self.namespace,
                state: &self.state,
                mode: self.mode,
                plan: self.plan,
                planned: &self.planned,
                certificate: self.certificate,
                log: self.log,
                roots: &parts,
            },
        )?;
        Ok(Roots {
            question: parts.question,
            policy: parts.policy,
            principal: parts.principal,
            rounds: parts.rounds,
            evidence: parts.evidence,
            answer: parts.answer,
            trace,
        })
    }
}

/// Preimage of the trace root: what no part root covers, and the part roots.
#[derive(Serialize)]
struct TraceHead<'a> {
    v: TraceVersion,
    engine: &'a str,
    analyzer: &'a str,
    ranker: &'a str,
    chunker: &'a str,
    rules: &'a Rules,
    origin: &'a str,
    namespace: &'a str,
    state: &'a State,
    mode: Mode,
    plan: Reserved,
    planned: &'a [Hash],
    certificate: Reserved,
    log: Reserved,
    roots: &'a PartRoots,
}

/// [`Roots`] without the trace root itself.
#[derive(Serialize)]
struct PartRoots {
    question: Hash,
    policy: Hash,
    principal: Hash,
    rounds: Hash,
    evidence: Hash,
    answer: Hash,
}
