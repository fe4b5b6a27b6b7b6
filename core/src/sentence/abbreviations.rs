//! English abbreviations that end with a dot.

use super::letters::{is_alphabetic, is_uppercase};

/// Longest entry, in characters.
pub(super) const MAX_CHARS: usize = 12;

/// What an abbreviation says about the words after its dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Abbreviation {
    /// A title or connective: the sentence always goes on.
    BeforeName,
    /// The sentence goes on if a number follows: "No. 5", but "He said no. Then".
    BeforeNumber,
    /// May end a sentence too: "the firm Acme Inc. was", "of Acme Inc. The". It does if a word follows that
    /// usually starts one.
    Anywhere,
}

const BEFORE_NAME: &[&str] = &[
    "approx", "capt", "cf", "col", "dr", "e.g", "eg", "gen", "gov", "hon", "i.e", "ie", "lt",
    "maj", "messrs", "mr", "mrs", "ms", "mt", "pres", "prof", "rep", "resp", "rev", "sen", "sgt",
    "viz", "vs",
];

const BEFORE_NUMBER: &[&str] = &[
    "apr", "art", "aug", "ca", "ch", "chap", "dec", "eq", "eqs", "feb", "fig", "figs", "jan",
    "jul", "jun", "mar", "no", "nos", "nov", "nr", "oct", "p", "para", "pp", "sec", "sect", "sep",
    "sept", "tab", "v", "ver", "vol",
];

const ANYWHERE: &[&str] = &[
    "al", "ave", "bros", "co", "corp", "dept", "ed", "eds", "est", "etc", "inc", "jr", "ltd",
    "ph.d", "phd", "sr", "st", "univ",
];

/// Words that usually begin a sentence, so that a dot before them ends one.
const STARTERS: &[&str] = &[
    "A", "After", "All", "Also", "An", "And", "Another", "As", "At", "Because", "Before", "Both",
    "But", "By", "Each", "Every", "For", "From", "He", "Her", "Here", "His", "How", "However", "I",
    "If", "In", "Is", "It", "Its", "Many", "More", "Most", "My", "No", "Not", "Now", "On", "One",
    "Our", "She", "Since", "So", "Some", "Such", "That", "The", "Their", "Then", "There", "These",
    "They", "This", "Those", "To", "Two", "Under", "Until", "Use", "Was", "We", "What", "When",
    "Where", "Which", "While", "Who", "Why", "With", "You", "Your",
];

/// Whether and how the word before a dot (without it) is an abbreviation.
pub(super) fn kind_of(word: &str) -> Option<Abbreviation> {
    if word.is_empty() || word.chars().count() > MAX_CHARS {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    let listed = |list: &[&str]| list.binary_search(&lower.as_str()).is_ok();
    if listed(BEFORE_NAME) {
        Some(Abbreviation::BeforeName)
    } else if listed(BEFORE_NUMBER) && !is_initial(word) {
        Some(Abbreviation::BeforeNumber)
    } else if listed(ANYWHERE) || is_initial(word) || is_dotted(word) {
        Some(Abbreviation::Anywhere)
    } else {
        None
    }
}

/// Whether a word usually begins a sentence.
pub(super) fn starts_sentence(word: &str) -> bool {
    STARTERS.binary_search(&word).is_ok()
}

/// A single capital: "J. Smith".
fn is_initial(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(is_uppercase) && chars.next().is_none()
}

/// Letters with dots between: "U.S", "p.m".
fn is_dotted(word: &str) -> bool {
    word.contains('.')
        && word
            .split('.')
            .all(|part| part.chars().count() == 1 && part.chars().all(is_alphabetic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_and_short_enough() {
        for list in [BEFORE_NAME, BEFORE_NUMBER, ANYWHERE, STARTERS] {
            assert!(list.is_sorted());
            assert!(list.iter().all(|entry| entry.chars().count() <= MAX_CHARS));
        }
    }
}
