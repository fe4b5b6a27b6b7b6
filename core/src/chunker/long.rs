//! Cutting a stretch of text that is too long in one piece.

use unicode_segmentation::UnicodeSegmentation;

use crate::tokens::Counter;

/// Grapheme clusters beyond this size are cut between characters.
const MAX_CLUSTER_BYTES: usize = 256;

/// Where the pieces of `text` start, from 0, so that each has at most `max_tokens` (not counting white space
/// around it) and something visible, unless it is a single cluster.
///
/// A cut comes after the last clause mark with white space in the second half of the piece, else after the
/// last white space there, else between clusters. Takes time linear in the text.
pub(crate) fn cut_points(text: &str, max_tokens: u32) -> Vec<usize> {
    let mut starts = vec![0];
    // A token is at least one byte, so most texts are known to fit without a look at their clusters.
    if text.len() <= max_tokens as usize || crate::tokens::estimate(text.trim()) <= max_tokens {
        return starts;
    }
    while let Some(&start) = starts.last()
        && let Some(length) = first_cut(&text[start..], max_tokens)
    {
        starts.push(start + length);
    }
    starts
}

/// Length of the first piece of `text`, or `None` if all of it fits.
fn first_cut(text: &str, max_tokens: u32) -> Option<usize> {
    let mut counter = Counter::new();
    let mut last_blank = 0;
    let mut last_clause = 0;
    let mut after_clause_mark = false;
    let mut begun = false;
    for (at, cluster) in clusters(text) {
        if cluster.chars().all(char::is_whitespace) {
            if begun {
                counter.push_str(cluster);
                last_blank = at + cluster.len();
                if after_clause_mark {
                    last_clause = last_blank;
                }
            }
            continue;
        }
        counter.push_str(cluster);
        if begun && counter.total() > max_tokens {
            // Cutting in the second half only, no text is read more than twice.
            let half = at / 2;
            return Some(
                [last_clause, last_blank]
                    .into_iter()
                    .find(|&cut| cut > half)
                    .unwrap_or(at),
            );
        }
        begun = true;
        after_clause_mark = cluster.chars().next_back().is_some_and(is_clause_mark);
    }
    None
}

fn is_clause_mark(ch: char) -> bool {
    matches!(
        ch,
        ',' | ';' | ':' | ')' | ']' | '—' | '–' | '|' | '，' | '、' | '；' | '：' | '،' | '؛'
    )
}

/// The grapheme clusters of `text` with their offsets; oversized ones in slices of whole characters.
///
/// Looks no further than one slice ahead, so that a cluster of megabytes costs no more than other text.
fn clusters(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..)?;
        let window = &rest[..rest.floor_char_boundary(MAX_CLUSTER_BYTES)];
        let cluster = window.graphemes(true).next()?;
        let start = at;
        at += cluster.len();
        Some((start, cluster))
    })
}
