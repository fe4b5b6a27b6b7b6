//! Quoted phrases of a query: conditions that every candidate meets, part of ranker `cortex-bm25/2`.
//!
//! `"acute renal failure"`, in straight or curly double quotes, asks for texts that hold these words in a row. Words
//! are compared as the analyzer gives them, so case, accents and English endings do not count; stop words do, and so
//! does their place. The parts of a compound are words of their own: `"real time"` is found in `real-time`.
//!
//! A quote opens where no letter or digit stands before it, and closes at the next quote that no letter or digit
//! follows: `5" and 3" pipes` has no phrase. A quote without its partner, and a phrase without any word, ask for
//! nothing.
//!
//! The text that counts is the item's own; its title does not. Whoever has the items' texts and the query can
//! therefore check that the rule was kept.

use thiserror::Error;

use crate::analyzer::Analyzer;

/// Most phrases in one query.
pub const MAX_PHRASES: usize = 16;

/// Most words of one phrase.
pub const MAX_WORDS: usize = 64;

/// Most candidates of one retrieval whose text is read for the phrases: the best by rank of those that hold all
/// their words. What comes after them is left out of the list, and counted among what matched.
pub const MAX_CHECKED: usize = 2_000;

/// Why the phrases of a query cannot be held.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PhraseError {
    /// Too many phrases.
    #[error("the query has {found} quoted phrases, at most {MAX_PHRASES} are held; quote fewer")]
    TooMany {
        /// How many there are.
        found: usize,
    },
    /// A phrase that is too long.
    #[error("a quoted phrase has {found} words, at most {MAX_WORDS} are held; quote less of it")]
    TooLong {
        /// How many words it has.
        found: usize,
    },
}

/// The phrases of one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phrases {
    analyzer: Analyzer,
    runs: Vec<Vec<String>>,
    terms: Vec<String>,
}

impl Phrases {
    /// Reads the phrases of `query`.
    ///
    /// # Errors
    /// [`PhraseError`]: more than would be held is refused, not cut.
    pub fn of(query: &str, analyzer: Analyzer) -> Result<Self, PhraseError> {
        let mut phrases = Phrases {
            analyzer,
            runs: Vec::new(),
            terms: Vec::new(),
        };
        for quoted in quoted(query) {
            let words = words(quoted, analyzer);
            if words.is_empty() {
                continue;
            }
            if words.len() > MAX_WORDS {
                return Err(PhraseError::TooLong { found: words.len() });
            }
            for word in &words {
                if !word.stop && !phrases.terms.contains(&word.term) {
                    phrases.terms.push(word.term.clone());
                }
            }
            let run: Vec<String> = words.into_iter().map(|word| word.term).collect();
            if !phrases.runs.contains(&run) {
                phrases.runs.push(run);
            }
        }
        match phrases.runs.len() {
            found if found > MAX_PHRASES => Err(PhraseError::TooMany { found }),
            _ => Ok(phrases),
        }
    }

    /// No phrase, no condition.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The words of all phrases that the lexical index knows, each once: without stop words.
    pub fn terms(&self) -> &[String] {
        &self.terms
    }

    /// Whether `text` holds every phrase as a run of words without a gap.
    pub fn held_by(&self, text: &str) -> bool {
        if self.runs.is_empty() {
            return true;
        }
        let words = words(text, self.analyzer);
        self.runs.iter().all(|run| {
            words.windows(run.len()).any(|window| {
                window
                    .iter()
                    .zip(run)
                    .all(|(word, term)| word.term == *term)
            })
        })
    }
}

struct Word {
    term: String,
    stop: bool,
}

/// One word for each position of the text.
fn words(text: &str, analyzer: Analyzer) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut last = None;
    for token in analyzer.analyze(text) {
        let word = Word {
            term: token.term,
            stop: token.stop,
        };
        // The whole of a compound comes before its first part, at the same position: parts are the words.
        if last == Some(token.position) {
            words.pop();
        }
        last = Some(token.position);
        words.push(word);
    }
    words
}

/// The stretches of `query` between quotes.
fn quoted(query: &str) -> Vec<&str> {
    let mut stretches = Vec::new();
    let mut open: Option<usize> = None;
    let mut before: Option<char> = None;
    let mut characters = query.char_indices().peekable();
    while let Some((at, ch)) = characters.next() {
        if is_quote(ch) {
            let after = characters.peek().map(|&(_, next)| next);
            match open {
                Some(start) if !after.is_some_and(char::is_alphanumeric) => {
                    stretches.push(&query[start..at]);
                    open = None;
                }
                None if !before.is_some_and(char::is_alphanumeric) => {
                    open = Some(at + ch.len_utf8());
                }
                _ => {}
            }
        }
        before = Some(ch);
    }
    stretches
}

/// Double quotes, straight and curly.
fn is_quote(ch: char) -> bool {
    matches!(ch, '"' | '“' | '”' | '„' | '‟' | '＂')
}
