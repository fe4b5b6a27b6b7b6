//! Which texts run together.
//!
//! A batch is padded to its longest text, so texts of like length share one, and the cost of padding stays small.

/// Upper bound on the padded word pieces of a batch, unless one text alone is longer. Its widest intermediate (1,536 numbers a piece
/// in MiniLM) then takes 1.5 MB and stays in a core's cache: 128 to 512 ran at the same speed, 1,024 lost 7 % and 2,048 14 %.
const MAX_PADDED_PIECES: usize = 256;

/// Upper bound on the texts of a batch.
const MAX_ROWS: usize = 32;

/// Texts that run together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Indexes of the texts.
    pub(super) texts: Vec<usize>,
    /// Word pieces of the longest of them.
    pub(super) width: usize,
}

/// Distributes texts of the given lengths (in word pieces) over batches for `lanes` threads.
///
/// Batches come longest first, so that the last ones to run are short and the lanes end together. A small call is cut into as many
/// batches as there are lanes.
pub(super) fn plan(lengths: &[usize], lanes: usize) -> Vec<Batch> {
    let mut by_length: Vec<(usize, usize)> = lengths.iter().copied().enumerate().collect();
    by_length.sort_by_key(|&(index, length)| (std::cmp::Reverse(length), index));
    let fair_share = lengths.len().div_ceil(lanes.max(1));

    let mut batches = Vec::new();
    let mut rest = by_length.as_slice();
    while let Some(&(_, width)) = rest.first() {
        let rows = (MAX_PADDED_PIECES / width.max(1))
            .min(MAX_ROWS)
            .min(fair_share)
            .max(1);
        let (batch, remaining) = rest.split_at(rows.min(rest.len()));
        batches.push(Batch {
            texts: batch.iter().map(|&(index, _)| index).collect(),
            width,
        });
        rest = remaining;
    }
    batches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_text_runs_once_in_a_batch_wide_enough(
            lengths in prop::collection::vec(3usize..=256, 0..300),
            lanes in 1usize..20,
        ) {
            let batches = plan(&lengths, lanes);
            let mut seen: Vec<usize> = batches.iter().flat_map(|batch| batch.texts.clone()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
            for batch in &batches {
                prop_assert_eq!(Some(batch.width), batch.texts.iter().map(|&text| lengths[text]).max());
                prop_assert!(batch.texts.len() <= MAX_ROWS);
                prop_assert!(batch.texts.len() * batch.width <= MAX_PADDED_PIECES);
            }
            prop_assert!(batches.windows(2).all(|pair| pair[0].width >= pair[1].width));
        }

        #[test]
        fn a_call_with_enough_texts_keeps_every_lane_busy(count in 1usize..100, lanes in 1usize..20) {
            let batches = plan(&vec![3; count], lanes);
            // Equal shares of ceil(count / lanes) may leave the last lanes idle, by less than one share in all.
            let share = count.div_ceil(lanes).min(MAX_ROWS);
            prop_assert_eq!(batches.len(), count.div_ceil(share));
        }
    }

    #[test]
    fn a_text_of_the_whole_budget_runs_alone() {
        let batches = plan(
            &[
                MAX_PADDED_PIECES,
                MAX_PADDED_PIECES,
                MAX_PADDED_PIECES / 2,
                MAX_PADDED_PIECES / 2,
            ],
            1,
        );
        assert_eq!(
            batches
                .iter()
                .map(|batch| batch.texts.len())
                .collect::<Vec<_>>(),
            [1, 1, 2]
        );
    }
}
