//! Building a trace: positions, counts, checks, status and roots are computed here, so that a caller can
//! not get them wrong.

use super::answer::{ItemText, Judge, source_counts};
use super::{
    Answer, Citation, EvidenceItem, Mode, ModelCall, Origin, Policy, Principal, Roots, Round,
    Rules, Span, Statement, Trace, TraceVersion, rules,
};
use crate::canon::{self, CanonError};
use crate::family::{self, Member};
use crate::hash::{Hash, Target};
use crate::receipt::{Receipt, State, Violation};

/// What is known of a trace before its first round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Program that makes the trace, as in `cortex/0.1.0`.
    pub engine: String,
    /// Analyzer of every round.
    pub analyzer: String,
    /// Ranker of every round.
    pub ranker: String,
    /// Chunker of the items.
    pub chunker: String,
    /// Id of the installation.
    pub origin: String,
    /// Namespace that is asked.
    pub namespace: String,
    /// On whose behalf.
    pub principal: Principal,
    /// State of every round.
    pub state: State,
    /// Commitment to the question; the first round's query must be the same commitment.
    pub question: Hash,
    /// Commitments to the planned sub-questions.
    pub planned: Vec<Hash>,
    /// Kind of answer.
    pub mode: Mode,
    /// Budgets.
    pub policy: Policy,
}

/// A round, as the caller knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundDraft {
    /// Why it was run.
    pub origin: Origin,
    /// Round whose gap it refines.
    pub parent: Option<u32>,
    /// Commitment to the text that names what was missing.
    pub gap: Option<Hash>,
    /// The model call that wrote the query.
    pub refined_by: Option<ModelCall>,
    /// The retrieval.
    pub receipt: Receipt,
    /// The model call that selected.
    pub selected_by: Option<ModelCall>,
    /// What was selected, in any order.
    pub selected: Vec<i64>,
}

impl RoundDraft {
    /// A round without models that refines nothing.
    pub fn new(origin: Origin, receipt: Receipt, selected: &[i64]) -> Self {
        Self {
            origin,
            parent: None,
            gap: None,
            refined_by: None,
            receipt,
            selected_by: None,
            selected: selected.to_vec(),
        }
    }
}

/// A quoted span, as the caller knows it; the rest comes from the candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceDraft {
    /// Position of the round that selected the item.
    pub round: u32,
    /// Id of the item.
    pub item: i64,
    /// Content hash of the item's source version.
    pub content: Hash,
    /// Equality digest of that content, where it is known.
    pub equality: Option<Hash>,
    /// First byte of the item in the source text.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// The item's whole text.
    pub text: String,
    /// Where the quote stands in the source text.
    pub span: Span,
    /// Commitment to the quoted text.
    pub quote: Hash,
}

/// A citation, as the caller knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CitationDraft {
    /// Number of the evidence.
    pub n: u32,
    /// The quote and its commitment.
    pub quote: Option<(String, Hash)>,
}

/// A statement, as the caller knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementDraft {
    /// The text.
    pub text: String,
    /// Commitment to it.
    pub commitment: Hash,
    /// What it rests on.
    pub citations: Vec<CitationDraft>,
}

/// Why no trace was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A number has no canonical form, or the trace is too large to be read again.
    #[error(transparent)]
    Canon(#[from] CanonError),
    /// The parts break a rule, which verification would find.
    #[error("the trace breaks a rule: {0}")]
    Rule(#[from] Violation),
}

/// Collects rounds, evidence and statements and closes them into a [`Trace`].
#[derive(Clone, Debug)]
pub struct TraceBuilder {
    head: Head,
    rounds: Vec<Round>,
    evidence: Vec<EvidenceItem>,
    drafts: Vec<EvidenceDraft>,
    prose: Option<Hash>,
    model: Option<ModelCall>,
    statements: Vec<Statement>,
}

impl TraceBuilder {
    /// Starts a trace.
    ///
    /// # Errors
    /// A budget of the policy outside its cap, or a plan that the mode cannot have.
    pub fn new(head: Head) -> Result<Self, TraceError> {
        rules::policy(&head.policy)?;
        rules::plan(head.mode, head.question, &head.planned)?;
        Ok(Self {
            head,
            rounds: Vec::new(),
            evidence: Vec::new(),
            drafts: Vec::new(),
            prose: None,
            model: None,
            statements: Vec::new(),
        })
    }

    /// Adds a round with what was selected of its candidates and returns its position.
    ///
    /// # Errors
    /// A selected item that is not among the candidates.
    pub fn round(&mut self, draft: RoundDraft) -> Result<u32, TraceError> {
        let i = self.rounds.len() as u32;
        let receipt = draft.receipt;
        let candidates = receipt.candidates.iter().map(|candidate| candidate.item);
        let in_order: Vec<i64> = candidates
            .filter(|item| draft.selected.contains(item))
            .collect();
        if let Some(stranger) = draft.selected.iter().find(|item| !in_order.contains(item)) {
            return Err(TraceError::Rule(Violation {
                at: format!("rounds[{i}].selected"),
                expected: "candidates of this round".into(),
                found: format!("item {stranger}"),
            }));
        }
        let fresh = in_order
            .iter()
            .filter(|item| !self.selected_before(receipt.target, **item));
        let added = fresh.count() as u32;
        self.rounds.push(Round {
            i,
            origin: draft.origin,
            parent: draft.parent,
            gap: draft.gap,
            refined_by: draft.refined_by,
            query: receipt.query,
            receipt,
            selected_by: draft.selected_by,
            selected: in_order,
            added,
            stalled: added == 0,
        });
        Ok(i)
    }

    fn selected_before(&self, target: Target, item: i64) -> bool {
        let mut rounds = self.rounds.iter();
        rounds.any(|round| round.receipt.target == target && round.selected.contains(&item))
    }

    /// Adds a quoted span and returns its number in the answer.
    ///
    /// # Errors
    /// A round that was not run, or an item that is not among its candidates.
    pub fn evidence(&mut self, draft: EvidenceDraft) -> Result<u32, TraceError> {
        let round = self.rounds.get(draft.round as usize);
        let candidate = round.and_then(|round| rules::candidate(round, draft.item));
        let Some(candidate) = candidate else {
            return Err(TraceError::Rule(Violation {
                at: format!("evidence[{}].item", self.evidence.len()),
                expected: format!("a candidate of round {}", draft.round),
                found: draft.item.to_string(),
            }));
        };
        let n = self.evidence.len() as u32 + 1;
        self.evidence.push(EvidenceItem {
            n,
            item: draft.item,
            artifact: candidate.artifact.clone(),
            version: candidate.version,
            content: draft.content,
            leaf: candidate.leaf,
            round: draft.round,
            span: draft.span,
            quote: draft.quote,
            // Known when all evidence is.
            family: n,
        });
        self.drafts.push(draft);
        Ok(n)
    }

    /// Sets the answer of a model or of anyone else: its prose if there is any, and the statements in it. Call it
    /// when all evidence is added.
    ///
    /// # Errors
    /// A citation of evidence that there is not.
    pub fn answer(
        &mut self,
        prose: Option<Hash>,
        model: Option<ModelCall>,
        statements: Vec<StatementDraft>,
    ) -> Result<(), TraceError> {
        self.prose = prose;
        self.model = model;
        let judge = Judge::new(self.drafts.iter().map(|draft| ItemText {
            span: draft.span,
            start: draft.start,
            end: draft.end,
            text: &draft.text,
        }));
        self.statements.clear();
        for (i, draft) in statements.into_iter().enumerate() {
            let cited: Vec<(u32, Option<&str>)> = draft
                .citations
                .iter()
                .map(|citation| {
                    let quote = citation.quote.as_ref().map(|(quote, _)| quote.as_str());
                    (citation.n, quote)
                })
                .collect();
            let rule = self.head.policy.quote;
            let Some(judged) = judge.statement(&draft.text, &cited, rule) else {
                return Err(TraceError::Rule(Violation {
                    at: format!("answer.statements[{i}].citations"),
                    expected: format!("evidence 1 to {}", self.evidence.len()),
                    found: format!("{:?}", cited.iter().map(|(n, _)| n).collect::<Vec<_>>()),
                }));
            };
            let citations = draft.citations.iter().zip(judged.citations);
            let citations = citations.map(|(citation, (span, check, other))| Citation {
                n: citation.n,
                span,
                quote: citation.quote.as_ref().map(|(_, commitment)| *commitment),
                check,
                other,
            });
            let mut statement = Statement {
                n: i as u32 + 1,
                text: draft.commitment,
                citations: citations.collect(),
                numbers: judged.numbers,
                supported: false,
            };
            statement.supported = statement.holds(rule);
            self.statements.push(statement);
        }
        Ok(())
    }

    /// Closes the trace: families, gaps, status, reason and roots. All rules that verification checks without
    /// the stored texts hold for the result.
    ///
    /// # Errors
    /// The first rule that the parts break.
    pub fn finish(self) -> Result<Trace, TraceError> {
        let head = self.head;
        let mut evidence = self.evidence;
        let members: Vec<Member> = evidence
            .iter()
            .zip(self.drafts)
            .map(|(item, draft)| Member {
                artifact: item.artifact.clone(),
                equality: draft.equality,
                text: Some(draft.text),
            })
            .collect();
        for (item, family) in evidence.iter_mut().zip(family::families(&members)) {
            item.family = family;
        }
        let (sources, families) = source_counts(&evidence);
        let answer = Answer {
            // Set below, from the rest.
            status: super::Status::InsufficientEvidence,
            reason: None,
            prose: self.prose,
            model: self.model,
            statements: self.statements,
            gaps: rules::expected_gaps(&head.planned, &self.rounds),
            sources,
            families,
        };
        let mut trace = Trace {
            v: TraceVersion::V1,
            engine: head.engine,
            analyzer: head.analyzer,
            ranker: head.ranker,
            chunker: head.chunker,
            rules: Rules::default(),
            origin: head.origin,
            namespace: head.namespace,
            principal: head.principal,
            state: head.state,
            question: head.question,
            mode: head.mode,
            policy: head.policy,
            plan: (),
            planned: head.planned,
            rounds: self.rounds,
            evidence,
            certificate: (),
            answer,
            log: (),
            roots: Roots::UNSET,
        };
        (trace.answer.status, trace.answer.reason) = rules::expected_status(&trace);
        trace.roots = trace.compute_roots()?;
        rules::structure(&trace)?;
        rules::binding(&trace)?;
        rules::budget(&trace)?;
        rules::status(&trace)?;
        canon::check_size(trace.to_text()?.as_bytes())?;
        Ok(trace)
    }
}
