//! Text analysis for lexical search, `cortex-text/1`: from text to terms.
//!
//! The steps, with Unicode 17 tables that are part of the definition:
//!
//! 1. **Folding.** Letters are decomposed (NFKD), accents removed and case folded. Marks that make another
//!    letter are kept: vowel signs of Indic scripts, Thai vowels and tones, the voicing of kana. See `fold`.
//! 2. **Words.** Runs of letters, digits and kept marks. `_`, `.`, `-` and apostrophes between them join a
//!    compound, as does a change from lower to upper case: `snake_case`, `camelCase`, `os.path`, `real-time`,
//!    `15.2`. A compound yields its parts and, at the position of the first, the whole.
//! 3. **Scripts without spaces** (Han, kana, Hangul, Thai, Lao, Khmer, Burmese, Yi): overlapping pairs of
//!    characters, a lone character by itself.
//! 4. **Stop words** of English are kept as tokens with their position but marked; matching ignores them.
//! 5. **Stemming** by the English Snowball rules of terms that consist of `a` to `z` only.
//!
//! Limits: a term is cut to [`MAX_TERM_BYTES`]; tokens beyond [`MAX_TOKENS`] and query terms beyond
//! [`MAX_QUERY_TERMS`] are dropped; compounds are looked for in stretches of 512 characters.

mod english;
mod fold;
mod stem;
mod words;

use std::collections::{BTreeMap, HashSet};

/// Name of the analyzer that new reads use.
pub const NAME: &str = Analyzer::CURRENT.name();

/// All names that a receipt may carry.
pub const NAMES: [&str; 1] = [Analyzer::V1.name()];

/// An analyzer by its name. What one gave, it gives for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Analyzer {
    /// `cortex-text/1`, the functions of this module.
    V1,
}

impl Analyzer {
    /// The analyzer of new reads and of what is indexed now.
    pub const CURRENT: Self = Self::V1;

    /// The analyzer of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::V1]
            .into_iter()
            .find(|analyzer| analyzer.name() == name)
    }

    /// Its name as recorded in receipts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "cortex-text/1",
        }
    }

    /// See [`query_terms`].
    pub fn query_terms(self, text: &str) -> Vec<String> {
        match self {
            Self::V1 => query_terms(text),
        }
    }

    /// See [`analyze`].
    pub fn analyze(self, text: &str) -> Vec<Token> {
        match self {
            Self::V1 => analyze(text),
        }
    }
}

/// Longest term in bytes; longer ones are cut at a character boundary.
pub const MAX_TERM_BYTES: usize = 64;

/// Most tokens that are taken from one text.
pub const MAX_TOKENS: usize = 1 << 20;

/// Most distinct terms that are taken from one query.
pub const MAX_QUERY_TERMS: usize = 1024;

/// A term with its place in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Folded and stemmed form.
    pub term: String,
    /// Byte offset of its first character in the text.
    pub start: usize,
    /// Byte offset after its last character.
    pub end: usize,
    /// Number of the word, from 0; the whole of a compound has the position of its first part.
    pub position: u32,
    /// A stop word: present for phrases, ignored for matching.
    pub stop: bool,
}

/// All tokens of `text` in order of position, the whole of a compound before its parts.
pub fn analyze(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    words::for_each(text, &mut |token| tokens.push(token.to_owned()));
    tokens
}

/// How often each term occurs in `text`, without stop words, and the length of the text in words.
///
/// The length counts positions that are not stop words, so the whole of a compound adds a term but no
/// length. It saturates with the limits of the module, far below `u32::MAX`.
pub fn term_counts(text: &str) -> (BTreeMap<String, u32>, u32) {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let mut length = 0;
    let mut counted_position = None;
    words::for_each(text, &mut |token| {
        if token.stop {
            return;
        }
        if counted_position != Some(token.position) {
            counted_position = Some(token.position);
            length += 1;
        }
        match counts.get_mut(token.term) {
            Some(count) => *count += 1,
            None => {
                counts.insert(token.term.to_owned(), 1);
            }
        }
    });
    (counts, length)
}

/// The distinct terms of a query in order of first occurrence, without stop words.
///
/// A query of stop words only has no terms and matches nothing.
pub fn query_terms(text: &str) -> Vec<String> {
    let mut seen: HashSet<String> = HashSet::new();
    let mut terms = Vec::new();
    words::for_each(text, &mut |token| {
        if !token.stop && terms.len() < MAX_QUERY_TERMS && seen.insert(token.term.to_owned()) {
            terms.push(token.term.to_owned());
        }
    });
    terms
}

/// Whether `text` has at least `count` words, stop words included; a compound counts each part.
///
/// Reads no further than it must.
pub fn has_words(text: &str, count: u32) -> bool {
    let mut found = 0;
    words::for_each_until(text, count, &mut |token| found = token.position + 1);
    found >= count
}

/// The form under which two texts say the same in the same words: compatibility characters and case
/// folded, runs of white space made single blanks, ends trimmed. Accents and punctuation still count.
pub fn normalise(text: &str) -> String {
    let folded = fold::compatibility_fold(text);
    let mut normal = String::with_capacity(folded.len());
    for word in folded.split_whitespace() {
        if !normal.is_empty() {
            normal.push(' ');
        }
        normal.push_str(word);
    }
    normal
}
