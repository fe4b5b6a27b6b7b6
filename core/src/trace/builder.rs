//! Building a trace: positions, counts, status and roots are computed here, so that a caller can
//! not get them wrong.

use super::{
    Answer, EvidenceItem, Mode, Origin, Policy, Principal, Roots, Round, Span, Status, Trace,
    TraceVersion, rules,
};
use crate::canon::{self, CanonError};
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
    /// Kind of answer.
    pub mode: Mode,
    /// Budgets.
    pub policy: Policy,
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
    /// Where the quote stands in the source text.
    pub span: Span,
    /// Commitment to the quoted text.
    pub quote: Hash,
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

/// Collects rounds and evidence and closes them into a [`Trace`].
#[derive(Clone, Debug)]
pub struct TraceBuilder {
    head: Head,
    rounds: Vec<Round>,
    evidence: Vec<EvidenceItem>,
}

impl TraceBuilder {
    /// Starts a trace.
    ///
    /// # Errors
    /// A budget of the policy outside its cap.
    pub fn new(head: Head) -> Result<Self, TraceError> {
        rules::policy(&head.policy)?;
        Ok(Self {
            head,
            rounds: Vec::new(),
            evidence: Vec::new(),
        })
    }

    /// Adds a round with what was selected of its candidates, in any order, and returns its
    /// position.
    ///
    /// # Errors
    /// A selected item that is not among the candidates.
    pub fn round(
        &mut self,
        origin: Origin,
        receipt: Receipt,
        selected: &[i64],
    ) -> Result<u32, TraceError> {
        let i = self.rounds.len() as u32;
        let candidates = receipt.candidates.iter().map(|candidate| candidate.item);
        let in_order: Vec<i64> = candidates.filter(|item| selected.contains(item)).collect();
        if let Some(stranger) = selected.iter().find(|item| !in_order.contains(item)) {
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
            origin,
            query: receipt.query,
            receipt,
            model: (),
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
        });
        Ok(n)
    }

    /// Closes the trace: status, reason and roots. All rules that verification checks without
    /// the stored texts hold for the result.
    ///
    /// # Errors
    /// The first rule that the parts break.
    pub fn finish(self) -> Result<Trace, TraceError> {
        let head = self.head;
        let status = rules::expected_status(head.mode, &self.evidence);
        let candidates = self
            .rounds
            .iter()
            .map(|round| round.receipt.candidates.len());
        let reason = match status {
            Status::Answered => None,
            _ if candidates.sum::<usize>() == 0 => Some("nothing_retrieved"),
            _ => Some("nothing_selected"),
        };
        let answer = Answer {
            status,
            reason: reason.map(String::from),
            prose: None,
            statements: Vec::new(),
            gaps: Vec::new(),
        };
        let mut trace = Trace {
            v: TraceVersion::V1,
            engine: head.engine,
            analyzer: head.analyzer,
            ranker: head.ranker,
            chunker: head.chunker,
            origin: head.origin,
            namespace: head.namespace,
            principal: head.principal,
            state: head.state,
            question: head.question,
            mode: head.mode,
            policy: head.policy,
            plan: (),
            rounds: self.rounds,
            evidence: self.evidence,
            certificate: (),
            answer,
            log: (),
            roots: Roots::UNSET,
        };
        trace.roots = trace.compute_roots()?;
        rules::structure(&trace)?;
        rules::binding(&trace)?;
        rules::budget(&trace)?;
        rules::status(&trace)?;
        canon::check_size(trace.to_text()?.as_bytes())?;
        Ok(trace)
    }
}
