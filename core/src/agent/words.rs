//! Words of a text: whole words, lower case, letters and digits of any script.

use std::ops::Range;

/// A character that can be part of a word.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The words of `text` in lower case with the place of each in `text`.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (Range<usize>, String)> + '_ {
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (start, first) = rest.by_ref().find(|(_, c)| is_word(*c))?;
        let mut end = start + first.len_utf8();
        let mut word: String = first.to_lowercase().collect();
        while let Some((at, c)) = rest.next_if(|(_, c)| is_word(*c)) {
            end = at + c.len_utf8();
            word.extend(c.to_lowercase());
        }
        Some((start..end, word))
    })
}

/// Whether one of `wanted` (lower case, single words) occurs as a whole word.
pub(crate) fn has_any(text: &str, wanted: &[&str]) -> bool {
    words(text).any(|(_, word)| wanted.contains(&word.as_str()))
}

/// Whether the words of `phrase` (lower case, separated by single blanks) occur one after the other, with nothing
/// but blanks between them.
pub(crate) fn has_phrase(text: &str, phrase: &str) -> bool {
    let wanted: Vec<&str> = phrase.split(' ').collect();
    let found: Vec<(Range<usize>, String)> = words(text).collect();
    found.windows(wanted.len()).any(|window| {
        window
            .iter()
            .zip(&wanted)
            .all(|((_, word), wanted)| word == wanted)
            && window
                .windows(2)
                .all(|pair| only_blanks(text, pair[0].0.end, pair[1].0.start))
    })
}

/// Whether nothing but blanks stands between two places.
pub(crate) fn only_blanks(text: &str, from: usize, to: usize) -> bool {
    text.get(from..to)
        .is_some_and(|gap| gap.chars().all(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole() {
        assert!(has_any("Save it.", &["save"]));
        assert!(!has_any("a saver, unsaved", &["save"]));
        assert!(has_phrase("please STORE  it now", "store it"));
        assert!(!has_phrase("store. it", "store it"));
        assert!(!has_phrase("restore it", "store it"));
    }
}
