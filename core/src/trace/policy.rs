//! The policy of an ask: its budgets, and what it allows.

use serde::{Deserialize, Serialize};

/// Which arms a round's retrieval has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retrieval {
    /// By words.
    Lexical,
    /// By embedding.
    Vector,
    /// Both, fused by rank.
    Hybrid,
}

/// When a citation supports its statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuoteRule {
    /// By naming a piece of evidence. A quote that is given is checked.
    Id,
    /// Only with a quote that occurs in that piece of evidence.
    Strict,
}

/// Policy of an ask, every value resolved. A value over its cap is refused, never lowered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Retrieval rounds, 1 to [`Policy::CAPS`].
    pub max_rounds: u32,
    /// Candidates a round may ask for, those withheld from the caller not counted.
    pub max_candidates: u32,
    /// Evidence items in the answer.
    pub max_evidence: u32,
    /// Longest excerpt, in characters (Unicode scalar values).
    pub excerpt_chars: u32,
    /// Whether an ask may end without an answer; otherwise it ends with the evidence, in part.
    pub allow_abstain: bool,
    /// Whether a lexical retrieval may be put into another order by vectors.
    pub allow_semantic_rerank: bool,
    /// Arms of each round.
    pub retrieval: Retrieval,
    /// What a citation needs.
    pub quote: QuoteRule,
}

impl Policy {
    /// Hard caps of the budgets.
    pub const CAPS: Self = Self {
        max_rounds: 8,
        max_candidates: 200,
        max_evidence: 32,
        excerpt_chars: 500,
        allow_abstain: true,
        allow_semantic_rerank: true,
        retrieval: Retrieval::Hybrid,
        quote: QuoteRule::Strict,
    };
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_rounds: 4,
            max_candidates: 80,
            max_evidence: 12,
            excerpt_chars: 500,
            allow_abstain: true,
            allow_semantic_rerank: false,
            retrieval: Retrieval::Lexical,
            quote: QuoteRule::Id,
        }
    }
}
