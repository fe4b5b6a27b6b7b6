//! A reranker may change the order of the candidates and nothing else.
//!
//! Coverage, gate and floor are decided before it is asked. Whatever it answers, each candidate stays in the
//! list exactly once.

use thiserror::Error;

/// Why the answer of a reranker is not used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RerankFault {
    /// It failed or ran out of time.
    #[error("{0}")]
    Failed(String),
    /// It did not give one score for each candidate.
    #[error(
        "reranker gave {found} scores for {expected} candidates; give one score for each text, in order"
    )]
    WrongLength {
        /// Number of candidates.
        expected: usize,
        /// Number of scores.
        found: usize,
    },
    /// A score is not a number.
    #[error("reranker score {position} of {count} is not a number")]
    NotANumber {
        /// Position of the first such score, from 1.
        position: usize,
        /// Number of candidates.
        count: usize,
    },
}

/// The order in which candidates are packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reranked {
    /// A permutation of the candidates' positions.
    pub order: Vec<usize>,
    /// Why the given order was kept; `None` if the reranker's was taken.
    pub fault: Option<RerankFault>,
}

/// Orders `count` candidates by the scores of a reranker, best first, equal scores in the given order.
///
/// A NaN ranks last. A failure, another number of scores than candidates or a score that is no number
/// (`None`) leaves the order as it is, and the fault says why.
pub fn order(count: usize, scores: Result<&[Option<f64>], String>) -> Reranked {
    let given: Vec<usize> = (0..count).collect();
    let scores = match scores {
        Err(reason) => return keep(given, RerankFault::Failed(reason)),
        Ok(scores) if scores.len() != count => {
            let found = scores.len();
            let expected = count;
            return keep(given, RerankFault::WrongLength { expected, found });
        }
        Ok(scores) => scores,
    };
    let mut ranked = Vec::with_capacity(count);
    for (at, score) in scores.iter().enumerate() {
        match score {
            Some(score) if score.is_nan() => ranked.push((f64::NEG_INFINITY, at)),
            Some(score) => ranked.push((*score, at)),
            None => {
                let position = at + 1;
                return keep(given, RerankFault::NotANumber { position, count });
            }
        }
    }
    // `+ 0.0` makes the two zeros one, which `total_cmp` would tell apart.
    ranked.sort_by(|a, b| (b.0 + 0.0).total_cmp(&(a.0 + 0.0)).then(a.1.cmp(&b.1)));
    Reranked {
        order: ranked.into_iter().map(|(_, at)| at).collect(),
        fault: None,
    }
}

fn keep(order: Vec<usize>, fault: RerankFault) -> Reranked {
    Reranked {
        order,
        fault: Some(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn best_first_and_stable() {
        let scores = [Some(0.1), Some(0.9), Some(-0.0), Some(0.9), Some(0.0)];
        assert_eq!(order(5, Ok(&scores)).order, [1, 3, 0, 2, 4]);
    }

    #[test]
    fn nonsense_keeps_the_order() {
        for scores in [
            Err("timed out after 1000 ms".into()),
            Ok(&[Some(1.0)][..]),
            Ok(&[Some(1.0), None][..]),
        ] {
            let reranked = order(2, scores);
            assert_eq!(reranked.order, [0, 1]);
            assert!(reranked.fault.is_some());
        }
    }

    #[test]
    fn not_a_number_by_arithmetic_ranks_last() {
        let scores = [Some(f64::NAN), Some(f64::NEG_INFINITY), Some(1.0)];
        let reranked = order(3, Ok(&scores));
        assert_eq!(reranked.order, [2, 0, 1]);
        assert_eq!(reranked.fault, None);
    }

    proptest! {
        #[test]
        fn no_candidate_is_lost(scores in prop::collection::vec(prop::option::of(prop::num::f64::ANY), 0..20), count in 0_usize..20) {
            let mut order = order(count, Ok(&scores)).order;
            order.sort_unstable();
            prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }
}
