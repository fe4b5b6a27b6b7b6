//! Reciprocal rank fusion in integers.
//!
//! `cortex-rrf/1` adds 60 to each rank, the value of the original paper (Cormack, Clarke and Büttcher, 2009), made
//! for long lists of many systems. `cortex-rrf/2` adds 10: with two lists a first place then outweighs a middling
//! place in both, and where one arm is poor the good places of the other are not drowned. It also fuses in tiers, so
//! that looking deeper appends: what is among the first [`DEPTH`] of some list comes before all that is not, in the
//! order that these first places alone give; then what is among the first [`DEPTH`] x [`DEEPER`], and so on.

use std::collections::{HashMap, HashSet};

/// Name of the fusion that new reads use.
pub const NAME: &str = Fusion::CURRENT.name();

/// All names that a receipt may carry.
pub const NAMES: [&str; 3] = [Fusion::V1.name(), Fusion::V2.name(), Fusion::Rerank.name()];

/// Name under which the same sum orders what one arm found by its own ranks and those of another arm, which scored
/// nothing else.
pub const RERANK: &str = Fusion::Rerank.name();

/// What a rank of `1 - offset` would be worth: scores are in units of one thousand-millionth.
pub const SCALE: i64 = 1_000_000_000;

/// Places of each list that the first tier of `cortex-rrf/2` fuses.
pub const DEPTH: u32 = 100;
/// How many times as many places each further tier fuses.
pub const DEEPER: u32 = 5;

/// A fusion by its name. What one gave, it gives for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fusion {
    /// `cortex-rrf/1`.
    V1,
    /// `cortex-rrf/2`.
    V2,
    /// `cortex-rerank/1`: what one arm found, ordered by its own ranks and those of another that scored nothing else.
    Rerank,
}

impl Fusion {
    /// The fusion of new reads.
    pub const CURRENT: Self = Self::V2;

    /// The fusion of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::V1, Self::V2, Self::Rerank]
            .into_iter()
            .find(|fusion| fusion.name() == name)
    }

    /// Its name as recorded in receipts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "cortex-rrf/1",
            Self::V2 => "cortex-rrf/2",
            Self::Rerank => "cortex-rerank/1",
        }
    }

    /// Added to each rank, so that the first places of one list do not drown the agreement of several.
    pub const fn rank_offset(self) -> u32 {
        match self {
            Self::V1 | Self::Rerank => 60,
            Self::V2 => 10,
        }
    }

    /// Fuses ranked lists of item ids, each best first, into one list ordered by (score descending, item
    /// ascending).
    ///
    /// The score of an item is the sum over the lists that hold it of `SCALE / (offset + rank)`, with
    /// ranks from 1 and integer division. An id that occurs twice in one list counts at its first place. In a fusion
    /// with tiers, places beyond an item's tier do not count, and each tier costs [`SCALE`], more than all lists give.
    pub fn fuse(self, lists: &[&[i64]]) -> Vec<(i64, i64)> {
        let mut fused = Vec::new();
        let longest = lists.iter().map(|list| list.len()).max().unwrap_or(0);
        let (mut known, mut tier, mut bound) = (HashSet::new(), 0, self.first_tier());
        loop {
            let cut: Vec<&[i64]> = (lists.iter())
                .map(|list| &list[..list.len().min(bound)])
                .collect();
            let mut more = self.sum(&cut);
            more.retain(|(item, _)| known.insert(*item));
            fused.extend(
                more.iter()
                    .map(|(item, score)| (*item, score - tier * SCALE)),
            );
            if bound >= longest {
                return fused;
            }
            bound = bound.saturating_mul(DEEPER as usize);
            tier += 1;
        }
    }

    const fn first_tier(self) -> usize {
        match self {
            Self::V1 | Self::Rerank => usize::MAX,
            Self::V2 => DEPTH as usize,
        }
    }

    fn sum(self, lists: &[&[i64]]) -> Vec<(i64, i64)> {
        let offset = i64::from(self.rank_offset());
        // For each item its score and the number of the last list (from 1) that was counted.
        let mut scores: HashMap<i64, (i64, usize)> = HashMap::new();
        for (list_number, list) in (1..).zip(lists) {
            for (rank, &item) in (1..).zip(list.iter()) {
                let entry = scores.entry(item).or_insert((0, 0));
                if entry.1 < list_number {
                    *entry = (entry.0 + SCALE / (offset + rank), list_number);
                }
            }
        }
        let mut fused: Vec<(i64, i64)> = scores
            .into_iter()
            .map(|(item, (score, _))| (item, score))
            .collect();
        fused.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        fused
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn looking_deeper_appends(
            one in prop::collection::vec(0_i64..900, 0..700),
            other in prop::collection::vec(0_i64..900, 0..700),
        ) {
            // A list names an item once.
            let distinct = |list: Vec<i64>| {
                let mut known = HashSet::new();
                list.into_iter().filter(|item| known.insert(*item)).collect::<Vec<_>>()
            };
            let (one, other) = (distinct(one), distinct(other));
            let at = |depth: usize| {
                Fusion::V2.fuse(&[&one[..one.len().min(depth)], &other[..other.len().min(depth)]])
            };
            let (shallow, deep) = (at(100), at(500));
            prop_assert_eq!(&deep[..shallow.len()], &shallow[..]);
            prop_assert!(deep.windows(2).all(|pair| (pair[1].1, pair[0].0) < (pair[0].1, pair[1].0)));
            let all: HashSet<i64> = one.iter().take(500).chain(other.iter().take(500)).copied().collect();
            prop_assert_eq!(deep.len(), all.len());
        }
    }

    #[test]
    fn the_hundredth_place_is_of_the_first_tier_and_the_next_is_not() {
        let list: Vec<i64> = (1..=101).collect();
        let fused = Fusion::V2.fuse(&[&list, &[]]);
        assert_eq!(fused[99], (100, SCALE / 110));
        assert_eq!(fused[100], (101, SCALE / 111 - SCALE));
        assert_eq!(Fusion::V1.fuse(&[&list])[100], (101, SCALE / 161));
    }
}
