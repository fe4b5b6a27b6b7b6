//! When something recalled is relevant enough to be put before the model.
//!
//! Formulas, for vectors of length one, so that a threshold means the same whatever store measured it:
//!
//! - squared distance `d = 2 - 2 * cos`, relevance `r = 1 / (1 + d) = 1 / (3 - 2 * cos)`, from 1/5 (opposite) over
//!   1/3 (unrelated) to 1 (equal);
//! - a threshold is calibrated for each embedding space from pairs that are known to belong together and pairs that
//!   are known not to: it stands in the middle between the 95th percentile of the unrelated and the 5th percentile of
//!   the related. If these overlap, the space cannot tell them apart and the threshold is the 95th percentile of the
//!   unrelated: rather silent than wrong.
//!
//! One space's numbers say nothing about another's: a threshold is kept with the space it was measured in.

/// Thresholds of one embedding space, as relevance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// For facts of earlier sessions.
    pub facts: f64,
    /// For tasks solved before, whose tools are hinted at.
    pub procedures: f64,
}

/// The fewest pairs of each kind that calibrate.
pub const PAIRS_MIN: usize = 8;

/// The relevance that a cosine stands for; 0 for NaN, which passes no threshold above 0.
pub fn relevance(cosine: f64) -> f64 {
    if cosine.is_nan() {
        return 0.0;
    }
    1.0 / (3.0 - 2.0 * cosine.clamp(-1.0, 1.0))
}

/// The cosine that a relevance stands for: the inverse of [`relevance`].
pub fn cosine(relevance: f64) -> f64 {
    ((3.0 - 1.0 / relevance) / 2.0).clamp(-1.0, 1.0)
}

/// Whether a similarity is relevant enough.
pub fn is_relevant(cosine: f64, threshold: f64) -> bool {
    !cosine.is_nan() && relevance(cosine) >= threshold
}

/// A threshold from cosines of pairs that belong together and of pairs that do not. `None` with too few of either.
pub fn calibrate(related: &[f64], unrelated: &[f64]) -> Option<f64> {
    let low = percentile(related, 5)?;
    let high = percentile(unrelated, 95)?;
    let threshold = if low > high { (low + high) / 2.0 } else { high };
    Some(threshold)
}

/// The value at place `floor(n * percent / 100)` of the relevances in ascending order, counted from 0.
fn percentile(cosines: &[f64], percent: usize) -> Option<f64> {
    let mut sorted: Vec<f64> = cosines
        .iter()
        .filter(|cosine| !cosine.is_nan())
        .map(|cosine| relevance(*cosine))
        .collect();
    if sorted.len() < PAIRS_MIN {
        return None;
    }
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() - 1) * percent / 100).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_formula() {
        assert_eq!(relevance(1.0), 1.0);
        assert_eq!(relevance(0.0), 1.0 / 3.0);
        assert_eq!(relevance(-1.0), 0.2);
        assert!(!is_relevant(f64::NAN, 0.0));
        let cosine_of = cosine(0.6);
        assert!(is_relevant(cosine_of + 1e-9, 0.6) && !is_relevant(cosine_of - 1e-9, 0.6));
    }

    #[test]
    fn calibration() {
        let related = [0.8; PAIRS_MIN];
        let unrelated = [0.2; PAIRS_MIN];
        let threshold = calibrate(&related, &unrelated).expect("enough pairs");
        assert!(is_relevant(0.8, threshold) && !is_relevant(0.2, threshold));
        assert_eq!(calibrate(&related[1..], &unrelated), None);
        assert_eq!(calibrate(&unrelated, &related), Some(relevance(0.8)));
    }

    proptest! {
        #[test]
        fn more_similar_is_more_relevant(a in -1.0f64..1.0, b in -1.0f64..1.0) {
            prop_assert!(a > b || relevance(a) <= relevance(b));
            prop_assert!((cosine(relevance(a)) - a).abs() < 1e-9);
        }

        #[test]
        fn a_threshold_lies_within_what_was_measured(
            related in prop::collection::vec(-1.0f64..1.0, PAIRS_MIN..30), unrelated in prop::collection::vec(-1.0f64..1.0, PAIRS_MIN..30),
        ) {
            let threshold = calibrate(&related, &unrelated).expect("enough pairs");
            prop_assert!((0.2..=1.0).contains(&threshold));
            let wrong = unrelated.iter().filter(|cosine| relevance(**cosine) > threshold).count();
            prop_assert!(wrong * 100 <= unrelated.len() * 5 + 100);
        }
    }
}
