//! Claims without a language model, `cortex-extract/1`: the sentences of a chunk as exact spans.

use crate::analyzer;
use crate::chunker;
use crate::sentence;
use crate::tokens;

/// Name of this extraction as recorded with claims.
pub const NAME: &str = "cortex-extract/1";

/// Sentences with fewer words than this say nothing by themselves and are left out.
pub const MIN_WORDS: u32 = 3;

/// Sentences beyond this estimate are cut after a clause, so that a claim stays one statement.
pub const MAX_CLAIM_TOKENS: u32 = 96;

/// A claim as a byte span of the text it was taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

/// The claims of `text` (a chunk), in order and without overlap; a claim's text is exactly its span.
///
/// List and heading marks, blanks around sentences, sentences of punctuation only and sentences of fewer
/// than [`MIN_WORDS`] words are left out.
pub fn extract(text: &str) -> Vec<Claim> {
    sentence::sentences(text)
        .into_iter()
        .filter(|span| says_something(&text[span.start..span.end]))
        .flat_map(|span| clauses(text, span))
        .collect()
}

fn says_something(text: &str) -> bool {
    analyzer::has_words(text, MIN_WORDS)
}

/// A sentence as it is, or cut into clauses if it is too long.
fn clauses(text: &str, span: sentence::Span) -> Vec<Claim> {
    let whole = &text[span.start..span.end];
    if tokens::estimate(whole) <= MAX_CLAIM_TOKENS {
        return vec![Claim {
            start: span.start,
            end: span.end,
        }];
    }
    let mut starts = chunker::cut_points(whole, MAX_CLAIM_TOKENS);
    // A short remainder stays with the clause before it.
    if starts.len() > 1
        && starts
            .last()
            .is_some_and(|&last| !says_something(&whole[last..]))
    {
        starts.pop();
    }
    let ends = starts.iter().skip(1).copied().chain([whole.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(&from, to)| Claim {
            start: span.start + from,
            end: span.start + from + whole[from..to].trim_end().len(),
        })
        .filter(|claim| claim.start < claim.end)
        .collect()
}
