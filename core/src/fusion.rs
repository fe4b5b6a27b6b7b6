//! Reciprocal rank fusion in integers, `cortex-rrf/1`.

use std::collections::HashMap;

/// Name of this fusion as recorded in receipts.
pub const NAME: &str = "cortex-rrf/1";

/// Name under which the same sum orders what one arm found by its own ranks and those of another arm, which scored
/// nothing else.
pub const RERANK: &str = "cortex-rerank/1";

/// Added to each rank, so that the first places of one list do not drown the agreement of several.
/// The value of the original paper (Cormack, Clarke and Büttcher, 2009).
pub const RANK_OFFSET: i64 = 60;

/// What a rank of `1 - RANK_OFFSET` would be worth: scores are in units of one thousand-millionth.
pub const SCALE: i64 = 1_000_000_000;

/// Fuses ranked lists of item ids, each best first, into one list ordered by (score descending, item
/// ascending).
///
/// The score of an item is the sum over the lists that hold it of `SCALE / (RANK_OFFSET + rank)`, with
/// ranks from 1 and integer division. An id that occurs twice in one list counts at its first place.
pub fn fuse(lists: &[&[i64]]) -> Vec<(i64, i64)> {
    // For each item its score and the number of the last list (from 1) that was counted.
    let mut scores: HashMap<i64, (i64, usize)> = HashMap::new();
    for (list_number, list) in (1..).zip(lists) {
        for (rank, &item) in (1..).zip(list.iter()) {
            let entry = scores.entry(item).or_insert((0, 0));
            if entry.1 < list_number {
                *entry = (entry.0 + SCALE / (RANK_OFFSET + rank), list_number);
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
