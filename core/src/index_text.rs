//! What is indexed of an item besides its own text, `cortex-index/1`: the title and the date of its source.
//!
//! A sentence seldom repeats what its document is about or when it was said, and questions ask for both. The
//! words of title and date therefore count in every chunk and claim of the source, and stand before the text that
//! is embedded. Postings and vectors are kept as they were made, so a replay does not depend on this rule.

use std::collections::BTreeMap;

use crate::analyzer;

/// Name of this rule.
pub const NAME: &str = "cortex-index/1";

/// The terms of an item, those of its header included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    /// How often each term occurs.
    pub terms: BTreeMap<String, u32>,
    /// Terms in all, repeats counted.
    pub length: u32,
}

/// The terms of a source's title and date.
#[derive(Debug, Clone)]
pub struct Header(Words);

impl Header {
    /// None or blank: no terms.
    pub fn new(title: Option<&str>, dated: Option<&str>) -> Self {
        let mut header = Words {
            terms: BTreeMap::new(),
            length: 0,
        };
        for part in [title, dated].into_iter().flatten() {
            let (terms, length) = analyzer::term_counts(part);
            header.add(&terms, length);
        }
        Header(header)
    }

    /// The terms of a chunk or claim of the source. The header answers for every part of it, as the one over
    /// a served claim does.
    pub fn words(&self, text: &str) -> Words {
        let (terms, length) = analyzer::term_counts(text);
        let mut words = Words { terms, length };
        words.add(&self.0.terms, self.0.length);
        words
    }
}

impl Words {
    fn add(&mut self, terms: &BTreeMap<String, u32>, length: u32) {
        for (term, n) in terms {
            let count = self.terms.entry(term.clone()).or_default();
            *count = count.saturating_add(*n);
        }
        self.length = self.length.saturating_add(length);
    }
}

/// The text to embed for a claim or chunk: `[date] `, the title on the rest of that line, then the body.
///
/// They give a sentence the subject and the time that it only refers to. What is blank, or what the body begins
/// with already, is left out.
pub fn embedding_text(title: Option<&str>, dated: Option<&str>, body: &str) -> String {
    let body = body.trim();
    let told = |part: Option<&str>| {
        part.map(str::trim)
            .filter(|part| !part.is_empty() && !body.starts_with(part))
            .map(str::to_owned)
    };
    let mut text = String::new();
    if let Some(dated) = told(dated) {
        text.push_str(&format!("[{dated}] "));
    }
    if let Some(title) = told(title) {
        text.push_str(&title);
        text.push('\n');
    }
    text.push_str(body);
    text
}
