//! Ranked rows to candidates: repetitions within one owner collapse, those of different owners stay.
//!
//! Two sources that say the same are two witnesses, so both are kept. One source that says the same twice
//! wastes the reader's tokens.

use std::collections::HashMap;
use std::hash::Hash;

use crate::vector::{self, VectorError};

/// Rows that are looked at, after those that must not be served were filtered out.
pub const WINDOW: usize = 600;

/// Candidates that are kept; rows after the last of them are not looked at.
pub const KEPT_MAX: usize = 400;

/// Claims of one owner whose vectors are at least this similar say the same.
pub const SIMILAR_COSINE: f64 = 0.95;

/// A row of the ranking; slices of rows are in rank order, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a, O> {
    /// Who owns the claim: the key under which claims share a header.
    pub owner: O,
    /// Text of the claim.
    pub text: &'a str,
}

/// A row that repeats an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collapsed {
    /// Position of the row that is left out.
    pub row: usize,
    /// Position of the kept row that stands for it.
    pub into: usize,
}

/// What is left of a ranking.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Positions of the rows to serve, in rank order, at most [`KEPT_MAX`].
    pub kept: Vec<usize>,
    /// Rows left out.
    pub collapsed: Vec<Collapsed>,
}

/// Collapses the first [`WINDOW`] rows to at most [`KEPT_MAX`]; see [`collapse_within`].
pub fn collapse<O: Copy + Eq + Hash>(
    rows: &[Row<'_, O>],
    similar: impl FnMut(usize, usize) -> bool,
) -> Candidates {
    collapse_within(rows, WINDOW, KEPT_MAX, similar)
}

/// Collapses the first `window` rows to at most `kept_max`.
///
/// A row collapses into the first kept row of its owner that has the same text or of which
/// `similar(kept, row)` holds. It is compared with kept rows only, so a chain of small changes does not
/// swallow what is different at its ends. `similar` is asked only for rows of one owner, at most
/// `window * kept_max` times.
pub fn collapse_within<O: Copy + Eq + Hash>(
    rows: &[Row<'_, O>],
    window: usize,
    kept_max: usize,
    mut similar: impl FnMut(usize, usize) -> bool,
) -> Candidates {
    let mut found = Candidates::default();
    let mut kept_of: HashMap<O, Vec<usize>> = HashMap::new();
    for (at, row) in rows.iter().enumerate().take(window) {
        if found.kept.len() == kept_max {
            break;
        }
        let kept = kept_of.entry(row.owner).or_default();
        let stands_for_it = kept
            .iter()
            .find(|&&earlier| rows[earlier].text == row.text || similar(earlier, at));
        match stands_for_it {
            Some(&into) => found.collapsed.push(Collapsed { row: at, into }),
            None => {
                kept.push(at);
                found.kept.push(at);
            }
        }
    }
    found
}

/// A quantised vector with its square, so that comparing many costs one inner product each.
#[derive(Debug, Clone, Copy)]
pub struct Quantised<'a> {
    components: &'a [i16],
    square: i64,
}

impl<'a> Quantised<'a> {
    /// Measures a vector.
    pub fn of(components: &'a [i16]) -> Self {
        let squares = components.iter().map(|&x| i64::from(x) * i64::from(x));
        Self {
            components,
            square: squares.sum(),
        }
    }

    /// Whether the cosine to another is at least [`SIMILAR_COSINE`], in exact arithmetic.
    ///
    /// Errors: [`VectorError::WrongSize`] if the sizes differ.
    pub fn similar(&self, other: &Self) -> Result<bool, VectorError> {
        let dot = i128::from(vector::dot_quantised(self.components, other.components)?);
        let squares = i128::from(self.square) * i128::from(other.square);
        // cos >= 19/20: where the dot is positive, square and clear the fraction.
        Ok(dot > 0 && dot * dot * 400 >= squares * 361)
    }
}

/// Cosine of two vectors in double precision, summed in order; 0 if one of them has no direction.
/// Components beyond the shorter one are ignored.
pub fn cosine<T: Copy + Into<f64>>(a: &[T], b: &[T]) -> f64 {
    let (mut dot, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (&x, &y) in a.iter().zip(b) {
        dot += x.into() * y.into();
    }
    for &x in a {
        aa += x.into() * x.into();
    }
    for &y in b {
        bb += y.into() * y.into();
    }
    if aa == 0.0 || bb == 0.0 {
        return 0.0;
    }
    dot / (aa.sqrt() * bb.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn similar(a: &[i16], b: &[i16]) -> Result<bool, VectorError> {
        Quantised::of(a).similar(&Quantised::of(b))
    }

    fn row<'a>(owner: u8, text: &'a str) -> Row<'a, u8> {
        Row { owner, text }
    }

    #[test]
    fn equal_texts_collapse_within_an_owner_only() {
        let rows = [row(1, "a"), row(2, "a"), row(1, "a"), row(1, "b")];
        let found = collapse(&rows, |_, _| false);
        assert_eq!(found.kept, [0, 1, 3]);
        assert_eq!(found.collapsed, [Collapsed { row: 2, into: 0 }]);
    }

    #[test]
    fn chains_are_not_followed() {
        let rows = [row(1, "a"), row(1, "b"), row(1, "c")];
        let neighbours = |x: usize, y: usize| x.abs_diff(y) == 1;
        let found = collapse(&rows, neighbours);
        assert_eq!(found.kept, [0, 2]);
        assert_eq!(found.collapsed, [Collapsed { row: 1, into: 0 }]);
    }

    #[test]
    fn at_most_the_window_is_looked_at_and_the_maximum_kept() {
        let texts: Vec<String> = (0..WINDOW + 50).map(|n| n.to_string()).collect();
        let distinct: Vec<Row<u8>> = texts.iter().map(|text| row(1, text)).collect();
        assert_eq!(collapse(&distinct, |_, _| false).kept.len(), KEPT_MAX);
        let same: Vec<Row<u8>> = texts.iter().map(|_| row(1, "same")).collect();
        let found = collapse(&same, |_, _| false);
        assert_eq!((found.kept.len(), found.collapsed.len()), (1, WINDOW - 1));
    }

    #[test]
    fn the_similarity_bound_is_inclusive_and_exact() {
        let base = [2_000, 0];
        assert_eq!(similar(&base, &[1_900, 624]), Ok(true));
        assert_eq!(similar(&base, &[1_900, 625]), Ok(false));
        // 19² + 5² + 3² + 2² + 1² = 400: the cosine to the first axis is 19/20 to the last bit.
        assert_eq!(similar(&[7, 0, 0, 0, 0], &[19, 5, 3, 2, 1]), Ok(true));
        assert_eq!(similar(&[7, 0, 0, 0, 0], &[19, 5, 3, 2, 2]), Ok(false));
        assert_eq!(similar(&base, &[-2_000, 0]), Ok(false));
        assert!(similar(&base, &[1]).is_err());
    }

    #[test]
    fn the_cosine_of_nothing_is_zero() {
        assert_eq!(cosine(&[0.0_f32, 0.0], &[1.0, 0.0]), 0.0);
        assert_eq!(cosine(&[2.0_f64, 0.0], &[3.0, 0.0]), 1.0);
    }

    proptest! {
        #[test]
        fn collapsing_twice_changes_nothing(
            rows in prop::collection::vec((0_u8..3, 0_u8..6, -3_i16..4, 1_i16..4), 0..40)
        ) {
            let texts: Vec<String> = rows.iter().map(|row| row.1.to_string()).collect();
            let vectors: Vec<[i16; 2]> = rows.iter().map(|row| [row.2, row.3]).collect();
            let offered: Vec<Row<u8>> = rows.iter().zip(&texts).map(|(r, text)| row(r.0, text)).collect();
            let near = |a: usize, b: usize| similar(&vectors[a], &vectors[b]) == Ok(true);
            let once = collapse(&offered, near);
            let left: Vec<Row<u8>> = once.kept.iter().map(|&at| offered[at]).collect();
            let twice = collapse(&left, |a, b| near(once.kept[a], once.kept[b]));
            prop_assert_eq!(twice.kept, (0..left.len()).collect::<Vec<_>>());
            prop_assert!(twice.collapsed.is_empty());
            prop_assert_eq!(once.kept.len() + once.collapsed.len(), offered.len());
            for pair in &once.collapsed {
                prop_assert!(pair.into < pair.row && once.kept.contains(&pair.into));
                prop_assert_eq!(offered[pair.into].owner, offered[pair.row].owner);
            }
        }
    }
}
