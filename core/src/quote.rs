//! Finding a quote in a text, rule `cortex-quote/1`.
//!
//! Both are normalised, then the quote must occur byte for byte:
//!
//! - canonical decomposition (NFD), so that composed and combining accents are equal;
//! - `‘ ’ ‚ ‛ ′` become `'`, `“ ” „ ‟ ″` become `"`, `‐ ‑ ‒ – — ― −` become `-`, `…` becomes `...`;
//! - soft hyphen, zero-width space and byte order mark (U+00AD, U+200B, U+FEFF) are left out;
//! - each run of white space becomes one space, none at the ends.
//!
//! Case counts, and so does every other character. A match begins and ends between characters (never between
//! a letter and its accent), and not within a run of ASCII letters and digits: `5 million` does not occur in
//! `15 million`. The first match that may stand is taken; after 100 that may not, there is none.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

/// Matches that are tried before a quote counts as absent, so that a hostile text cannot cost more.
const MAX_TRIES: usize = 100;

/// Name of the rule, as recorded in traces.
pub const NAME: &str = "cortex-quote/1";

/// A text in the form that is compared. Empty where nothing visible is in it.
pub fn normalise(text: &str) -> String {
    Normal::of(text).text
}

/// Byte range of the first occurrence of `quote` in `text`; `None` where it does not occur, or has nothing
/// visible in it.
pub fn locate(text: &str, quote: &str) -> Option<Range<usize>> {
    Normal::of(text).locate(quote)
}

/// A normalised text that knows where its parts come from.
#[derive(Clone, Debug)]
pub struct Normal {
    text: String,
    /// For each unit (a character with its accents, or a run of white space): its first byte in `text`, and
    /// its range in the text that it came from.
    units: Vec<(usize, Range<usize>)>,
}

impl Normal {
    /// Normalises a text.
    pub fn of(source: &str) -> Self {
        let mut normal = Normal {
            text: String::with_capacity(source.len()),
            units: Vec::with_capacity(source.len()),
        };
        if source.is_ascii() {
            normal.push_ascii(source);
            return normal;
        }
        // A blank is written when something follows it.
        let mut blank: Option<Range<usize>> = None;
        let mut folded = String::new();
        for (start, end) in clusters(source) {
            let part = &source[start..end];
            if part.chars().all(char::is_whitespace) {
                blank = Some(blank.map_or(start, |blank| blank.start)..end);
                continue;
            }
            folded.clear();
            for ch in part.nfd() {
                fold(ch, &mut folded);
            }
            if folded.is_empty() {
                continue;
            }
            if let Some(blank) = blank.take()
                && !normal.text.is_empty()
            {
                normal.push(" ", blank);
            }
            normal.push(&folded, start..end);
        }
        normal
    }

    /// The same for a text in which every character stands for itself.
    fn push_ascii(&mut self, source: &str) {
        let mut blank: Option<Range<usize>> = None;
        for (at, ch) in source.char_indices() {
            if ch.is_whitespace() {
                blank = Some(blank.map_or(at, |blank| blank.start)..at + 1);
                continue;
            }
            if let Some(blank) = blank.take()
                && !self.text.is_empty()
            {
                self.push(" ", blank);
            }
            self.units.push((self.text.len(), at..at + 1));
            self.text.push(ch);
        }
    }

    fn push(&mut self, folded: &str, from: Range<usize>) {
        self.units.push((self.text.len(), from));
        self.text.push_str(folded);
    }

    /// As [`locate`], for several quotes of one text.
    pub fn locate(&self, quote: &str) -> Option<Range<usize>> {
        let wanted = normalise(quote);
        if wanted.is_empty() {
            return None;
        }
        let mut at = 0;
        for _ in 0..MAX_TRIES {
            let found = self.text.get(at..)?.find(&wanted)?;
            let (start, end) = (at + found, at + found + wanted.len());
            if let (Some(first), Some(last)) = (self.unit_from(start), self.unit_to(end))
                && !self.within_word(start)
                && !self.within_word(end)
            {
                return Some(first.start..last.end);
            }
            at = start + self.text[start..].chars().next().map_or(1, char::len_utf8);
        }
        None
    }

    /// Where the unit that begins at `at` came from.
    fn unit_from(&self, at: usize) -> Option<Range<usize>> {
        let unit = self.units.binary_search_by_key(&at, |(start, _)| *start);
        unit.ok().map(|i| self.units[i].1.clone())
    }

    /// Where the unit that ends at `at` came from.
    fn unit_to(&self, at: usize) -> Option<Range<usize>> {
        if at == self.text.len() {
            return self.units.last().map(|(_, from)| from.clone());
        }
        let next = self.units.binary_search_by_key(&at, |(start, _)| *start);
        let before = next.ok()?.checked_sub(1)?;
        Some(self.units[before].1.clone())
    }

    fn within_word(&self, at: usize) -> bool {
        let bytes = self.text.as_bytes();
        let word = |i: Option<usize>| {
            i.and_then(|i| bytes.get(i))
                .is_some_and(u8::is_ascii_alphanumeric)
        };
        word(at.checked_sub(1)) && word(Some(at))
    }
}

/// Each character with the combining marks after it. Where a character decomposes into one that combines with the
/// character before, they are one cluster too.
fn clusters(source: &str) -> Vec<(usize, usize)> {
    let mut clusters: Vec<(usize, usize)> = Vec::new();
    for (at, ch) in source.char_indices() {
        let end = at + ch.len_utf8();
        // No character below the first combining accent decomposes into one that combines first.
        let combines = ch >= '\u{300}' && {
            let mut first = None;
            decompose_canonical(ch, |part| first = first.or(Some(part)));
            first.is_some_and(|first| canonical_combining_class(first) != 0)
        };
        match clusters.last_mut() {
            Some(last) if combines => last.1 = end,
            _ => clusters.push((at, end)),
        }
    }
    clusters
}

fn fold(ch: char, out: &mut String) {
    match ch {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => out.push('\''),
        '\u{201c}'..='\u{201f}' | '\u{2033}' => out.push('"'),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => out.push('-'),
        '\u{2026}' => out.push_str("..."),
        '\u{ad}' | '\u{200b}' | '\u{feff}' => {}
        ch if ch.is_whitespace() => out.push(' '),
        ch => out.push(ch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found<'a>(text: &'a str, quote: &str) -> Option<&'a str> {
        locate(text, quote).map(|range| &text[range])
    }

    #[test]
    fn a_quote_is_found_as_it_stands_in_the_text() {
        let text = "It took  15 million\n\tyears – “so far”.";
        assert_eq!(found(text, "15 million years"), Some("15 million\n\tyears"));
        assert_eq!(
            found(text, "years - \"so far\"."),
            Some("years – “so far”.")
        );
        assert_eq!(found(text, " years "), Some("years"));
        assert_eq!(found(text, "5 million"), None, "within a number");
        assert_eq!(found(text, "15 mill"), None, "within a word");
        assert_eq!(found(text, "It Took"), None, "case counts");
        assert_eq!(found(text, ""), None);
        assert_eq!(found(text, " \u{ad}\u{200b}"), None);
        assert_eq!(found("", "a"), None);
    }

    #[test]
    fn accents_are_equal_in_either_form_and_never_cut() {
        let composed = "caf\u{e9} noir";
        let combining = "cafe\u{301} noir";
        assert_eq!(found(composed, combining), Some(composed));
        assert_eq!(found(combining, composed), Some(combining));
        assert_eq!(found(combining, "cafe"), None);
        assert_eq!(found(combining, "caf\u{e9}"), Some("cafe\u{301}"));
        assert_eq!(
            found("\u{1112}\u{1161}\u{11ab}", "\u{d55c}"),
            Some("\u{1112}\u{1161}\u{11ab}")
        );
        assert_eq!(
            found("a\u{323}\u{307}", "a\u{307}\u{323}"),
            Some("a\u{323}\u{307}")
        );
    }

    #[test]
    fn the_first_match_that_may_stand_is_taken() {
        assert_eq!(locate("a5 a 5 a", "a"), Some(3..4));
        assert_eq!(locate("soft\u{ad}ware", "software"), Some(0..10));
        assert_eq!(locate("wait… then", "wait... then"), Some(0..12));
        assert_eq!(locate("wait… then", "wait.."), None, "within one character");
        assert_eq!(locate("漢字かな", "字か"), Some(3..9));
        let tries = |n| format!("{}a", "ab ".repeat(n));
        assert_eq!(locate(&tries(99), "a"), Some(297..298));
        assert_eq!(locate(&tries(100), "a"), None);
    }

    proptest! {
        #[test]
        fn what_is_copied_is_found(text in "\\PC{0,60}", a in 0usize..60, b in 0usize..60) {
            let normal = normalise(&text);
            prop_assert_eq!(normalise(&normal), normal.clone(), "once is enough");
            if !normal.is_empty() {
                prop_assert!(locate(&text, &text).is_some());
            }
            let (a, b) = (text.floor_char_boundary(a.min(b)), text.floor_char_boundary(a.max(b)));
            if let Some(range) = locate(&text, &text[a..b]) {
                prop_assert_eq!(normalise(&text[range]), normalise(&text[a..b]));
            }
        }

        #[test]
        fn a_match_is_a_range_of_the_text(text in "[a-c \u{301}\u{e9}…5]{0,30}", quote in "[a-c \u{301}\u{e9}.5]{0,5}") {
            if let Some(range) = locate(&text, &quote) {
                prop_assert!(text.get(range.clone()).is_some());
                prop_assert_eq!(normalise(&text[range]), normalise(&quote));
            }
        }
    }
}
