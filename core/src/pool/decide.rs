//! Serve, build or escalate.

/// What a read does with the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The same question was asked before and all that was built for it is fresh.
    Reuse,
    /// The pool answers.
    Serve,
    /// The best claim is too weak: retrieve, and build what is missing.
    Build,
}

impl Outcome {
    /// The name used in results and events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reuse => "reuse",
            Self::Serve => "serve",
            Self::Build => "build",
        }
    }
}

/// What a reader wants beside the claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Claims; raw text only where the claims do not cover the question.
    #[default]
    ContextFirst,
    /// Claims and the raw text that was retrieved.
    ContextRaw,
    /// Claims only.
    ContextOnly,
}

/// Takes the decision. `best` is the similarity of the best fresh claim, `None` if there is none; an empty
/// pool never serves, whatever the gate. A question that was built before is not built again, even if that gave nothing.
pub fn outcome(reuse: bool, best: Option<f64>, gate: f64) -> Outcome {
    match best {
        _ if reuse => Outcome::Reuse,
        Some(best) if best >= gate => Outcome::Serve,
        _ => Outcome::Build,
    }
}

/// How a read ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The reader should not rely on the claims alone.
    pub needs_retrieval: bool,
    /// Raw text is added for want of coverage.
    pub escalate: bool,
    /// Raw text is added because the strategy asks for it.
    pub raw_wanted: bool,
}

/// Judges the coverage of what is served against the floor of the embedding space.
///
/// `nothing_found` says that a retrieval ran and brought nothing. `escalation` is the setting that allows
/// raw text at all.
pub fn verdict(
    coverage: f64,
    floor: f64,
    strategy: Strategy,
    escalation: bool,
    nothing_found: bool,
) -> Verdict {
    // Written so that NaN counts as uncovered.
    let covered = coverage >= floor;
    Verdict {
        needs_retrieval: nothing_found || !covered,
        escalate: !covered && escalation && strategy == Strategy::ContextFirst,
        raw_wanted: strategy == Strategy::ContextRaw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_is_inclusive_and_an_empty_pool_builds() {
        assert_eq!(outcome(false, Some(0.6), 0.6), Outcome::Serve);
        assert_eq!(outcome(false, Some(0.6 - 1e-9), 0.6), Outcome::Build);
        assert_eq!(outcome(false, None, 0.0), Outcome::Build);
        assert_eq!(outcome(false, None, -1.0), Outcome::Build);
        assert_eq!(outcome(true, None, 0.6), Outcome::Reuse);
        assert_eq!(outcome(true, Some(0.1), 0.6), Outcome::Reuse);
        assert_eq!(outcome(false, Some(f64::NAN), 0.0), Outcome::Build);
    }

    #[test]
    fn only_context_first_escalates() {
        let at =
            |coverage, strategy, escalation| verdict(coverage, 0.4, strategy, escalation, false);
        assert!(!at(0.4, Strategy::ContextFirst, true).needs_retrieval);
        assert!(at(0.399, Strategy::ContextFirst, true).escalate);
        assert!(!at(0.399, Strategy::ContextFirst, false).escalate);
        assert!(at(0.399, Strategy::ContextFirst, false).needs_retrieval);
        assert!(!at(0.1, Strategy::ContextRaw, true).escalate);
        assert!(at(0.9, Strategy::ContextRaw, true).raw_wanted);
        assert!(!at(0.1, Strategy::ContextOnly, true).escalate);
        assert!(at(f64::NAN, Strategy::ContextFirst, true).escalate);
        assert!(verdict(0.9, 0.4, Strategy::ContextFirst, true, true).needs_retrieval);
    }
}
