//! Stop words and stemming of English.

use std::borrow::Cow;
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

static STEMMER: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// Words too common to tell texts apart, sorted.
const STOP_WORDS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it",
    "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these",
    "they", "this", "to", "was", "will", "with",
];

/// Whether a folded word is an English stop word.
pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// Whether a word after an apostrophe only abbreviates another: it's, I'd, you'll, we're, I've, I'm, don't.
pub(super) fn is_clitic(word: &str) -> bool {
    matches!(word, "s" | "t" | "d" | "m" | "ll" | "re" | "ve")
}

/// The stem of a folded term; only terms of `a` to `z` are changed.
pub(super) fn stem(term: &str) -> Cow<'_, str> {
    if term.bytes().all(|byte| byte.is_ascii_lowercase()) {
        STEMMER.stem(term)
    } else {
        Cow::Borrowed(term)
    }
}
