//! Cutting a stretch of text that is too long in one piece.

use unicode_segmentation::UnicodeSegmentation;

use crate::tokens::Counter;

/// Grapheme clusters beyond this size are cut between characters.
const MAX_CLUSTER_BYTES: usize = 256;

/// Where the pieces of `text` start, from 0, so that each has at most `max_tokens` (not counting white space
/// around it) and something visible, unless it is a single cluster.
///
/// A cut comes where white space ends in the second half of the piece: the last that follows a strong mark
/// (semicolon, colon, dash, middle dot), else a weak one (comma, closing bracket), else any; else between
/// clusters. Takes time linear in the text.
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
    // Ends of the last white space after no mark, a weak and a strong one.
    let mut cuts = [0; 3];
    let mut strength = 0;
    let mut begun = false;
    for (at, cluster) in clusters(text) {
        if cluster.chars().all(char::is_whitespace) {
            if begun {
                counter.push_str(cluster);
                cuts[..=strength].fill(at + cluster.len());
            }
            continue;
        }
        counter.push_str(cluster);
        if begun && counter.total() > max_tokens {
            // Cutting in the second half only, no text is read more than twice.
            let half = at / 2;
            return Some(cuts.into_iter().rev().find(|&cut| cut > half).unwrap_or(at));
        }
        begun = true;
        strength = cluster.chars().next_back().map_or(0, mark_strength);
    }
    None
}

/// How well a text can be cut after white space that follows this character: 2 strong, 1 weak, 0 not a mark.
fn mark_strength(ch: char) -> usize {
    match ch {
        ';' | ':' | '—' | '–' | '·' | '•' | '|' | '；' | '：' | '؛' => 2,
        ',' | ')' | ']' | '，' | '、' | '،' | '）' => 1,
        _ => 0,
    }
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
