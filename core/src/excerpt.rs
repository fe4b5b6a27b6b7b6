//! The part of a chunk that is quoted, rule `cortex-excerpt/1`: the run of whole sentences that says most about the
//! query.

use std::collections::HashSet;
use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use crate::{analyzer, extract};

/// Name of the rule, as recorded in traces.
pub const NAME: &str = "cortex-excerpt/1";

/// Byte range of at most `max_chars` characters of `text` to quote for `query`: it starts with the sentence
/// that holds most distinct query terms (the first of equals) and goes on with the sentences after it while
/// they fit. A sentence that alone is too long is cut between grapheme clusters; a text without sentences
/// is quoted from its start. Empty only for an empty text or budget.
pub fn excerpt(text: &str, query: &str, max_chars: usize) -> Range<usize> {
    let sentences = extract::extract(text);
    let wanted: HashSet<String> = analyzer::query_terms(query).into_iter().collect();
    let hits = |part: &str| {
        analyzer::term_counts(part)
            .0
            .keys()
            .filter(|term| wanted.contains(*term))
            .count()
    };
    let mut best: Option<(usize, usize)> = None;
    for (n, sentence) in sentences.iter().enumerate() {
        let hits = hits(&text[sentence.start..sentence.end]);
        if best.is_none_or(|(most, _)| hits > most) {
            best = Some((hits, n));
        }
    }
    let Some((_, first)) = best else {
        return fit(text, 0..text.len(), max_chars);
    };
    let start = sentences[first].start;
    let mut end = sentences[first].end;
    for next in &sentences[first + 1..] {
        if text[start..next.end].chars().count() > max_chars {
            break;
        }
        end = next.end;
    }
    fit(text, start..end, max_chars)
}

/// Cuts a range to `max_chars` characters, between grapheme clusters where one fits at all.
fn fit(text: &str, range: Range<usize>, max_chars: usize) -> Range<usize> {
    let part = &text[range.clone()];
    let Some((limit, _)) = part.char_indices().nth(max_chars) else {
        return range;
    };
    let whole = part
        .grapheme_indices(true)
        .map(|(at, grapheme)| at + grapheme.len())
        .take_while(|end| *end <= limit);
    range.start..range.start + whole.last().unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn starts_with_the_sentence_that_answers() {
        let text = "The planner was changed in many ways. Parallel vacuum of indexes is now possible. It is off by default.";
        let range = excerpt(text, "parallel vacuum indexes", 500);
        assert_eq!(
            &text[range],
            "Parallel vacuum of indexes is now possible. It is off by default."
        );
    }

    #[test]
    fn stays_within_the_limit() {
        let text = "Parallel vacuum of indexes is now possible. It is off by default.";
        assert_eq!(
            &text[excerpt(text, "vacuum", 43)],
            "Parallel vacuum of indexes is now possible."
        );
        assert_eq!(
            &text[excerpt(text, "vacuum", 42)],
            "Parallel vacuum of indexes is now possible"
        );
        assert_eq!(excerpt("", "vacuum", 10), 0..0);
    }

    #[test]
    fn cuts_between_grapheme_clusters() {
        let text = "e\u{301}e\u{301}e\u{301}";
        assert_eq!(excerpt(text, "x", 3), 0..3);
    }

    proptest! {
        #[test]
        fn any_text_gives_a_span_of_it(text in "\\PC{0,200}", query in "\\PC{0,20}", limit in 0usize..80) {
            let range = excerpt(&text, &query, limit);
            let part = text.get(range);
            prop_assert!(part.is_some_and(|part| part.chars().count() <= limit));
        }
    }
}
