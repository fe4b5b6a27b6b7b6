//! Reciprocal rank fusion in integers.
//!
//! `cortex-rrf/1` adds 60 to each rank, the value of the original paper (Cormack, Clarke and Büttcher, 2009), made
//! for long lists of many systems. `cortex-rrf/2` adds 10: with two lists a first place then outweighs a middling
//! place in both, and where one arm is poor the good places of the other are not drowned.

use std::collections::HashMap;

/// Name of the fusion that new reads use.
pub const NAME: &str = Fusion::CURRENT.name();

/// All names that a receipt may carry.
pub const NAMES: [&str; 2] = [Fusion::V1.name(), Fusion::V2.name()];

/// What a rank of `1 - offset` would be worth: scores are in units of one thousand-millionth.
pub const SCALE: i64 = 1_000_000_000;

/// A fusion by its name. What one gave, it gives for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fusion {
    /// `cortex-rrf/1`.
    V1,
    /// `cortex-rrf/2`.
    V2,
}

impl Fusion {
    /// The fusion of new reads.
    pub const CURRENT: Self = Self::V2;

    /// The fusion of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::V1, Self::V2]
            .into_iter()
            .find(|fusion| fusion.name() == name)
    }

    /// Its name as recorded in receipts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "cortex-rrf/1",
            Self::V2 => "cortex-rrf/2",
        }
    }

    /// Added to each rank, so that the first places of one list do not drown the agreement of several.
    pub const fn rank_offset(self) -> u32 {
        match self {
            Self::V1 => 60,
            Self::V2 => 10,
        }
    }

    /// Fuses ranked lists of item ids, each best first, into one list ordered by (score descending, item
    /// ascending).
    ///
    /// The score of an item is the sum over the lists that hold it of `SCALE / (offset + rank)`, with
    /// ranks from 1 and integer division. An id that occurs twice in one list counts at its first place.
    pub fn fuse(self, lists: &[&[i64]]) -> Vec<(i64, i64)> {
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
