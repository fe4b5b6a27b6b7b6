//! A question asked before is answered from what was built for it, but never past a stale part of that.

/// Questions at least this similar are the same question.
pub const THRESHOLD: f64 = 0.9;

/// A unit and the question it was built for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seed {
    /// Cosine of that question to the one asked now.
    pub similarity: f64,
    /// Whether all sources of the unit are as they were.
    pub fresh: bool,
}

/// Units that were built for this very question, as positions in the slice given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reuse {
    /// The one built for the most similar question, the first of equals.
    pub matched: Option<usize>,
    /// All that are stale, in order.
    pub stale: Vec<usize>,
}

impl Reuse {
    /// Whether the pool may serve whatever its gate says: the question is known and nothing that was built
    /// for it is stale. With a stale part, that part must be built anew first, or the gate decides.
    pub fn serves(&self) -> bool {
        self.matched.is_some() && self.stale.is_empty()
    }
}

/// Finds the units built for this question: positive similarity, at least `threshold`.
pub fn find(seeds: &[Seed], threshold: f64) -> Reuse {
    let mut found = Reuse::default();
    let mut best = 0.0;
    for (at, seed) in seeds.iter().enumerate() {
        let same = seed.similarity > 0.0 && seed.similarity >= threshold;
        if !same {
            continue;
        }
        if seed.similarity > best {
            best = seed.similarity;
            found.matched = Some(at);
        }
        if !seed.fresh {
            found.stale.push(at);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(similarity: f64, fresh: bool) -> Seed {
        Seed { similarity, fresh }
    }

    #[test]
    fn the_first_of_equals_matches_and_the_threshold_is_inclusive() {
        let seeds = [seed(0.899, true), seed(0.9, true), seed(0.9, true)];
        let found = find(&seeds, THRESHOLD);
        assert_eq!(found.matched, Some(1));
        assert!(found.serves());
        assert_eq!(find(&seeds[..1], THRESHOLD), Reuse::default());
        assert!(!find(&seeds[..1], THRESHOLD).serves());
    }

    #[test]
    fn a_stale_sibling_is_never_hidden() {
        let seeds = [seed(1.0, true), seed(0.95, false), seed(0.2, false)];
        let found = find(&seeds, THRESHOLD);
        assert_eq!(found.matched, Some(0));
        assert_eq!(found.stale, [1]);
        assert!(!found.serves());
    }

    #[test]
    fn no_threshold_makes_strangers_the_same() {
        let strangers = [seed(0.0, true), seed(-1.0, true), seed(f64::NAN, true)];
        assert_eq!(find(&strangers, -1.0).matched, None);
    }
}
