//! Recognising text that did not change, for whole documents and chunk by chunk.
//!
//! A unit is built from chunks, but a change notice brings the whole document. Hashes of single chunks alone
//! would call every such notice a change; the hash of the whole alone could not tell which part is new.

use std::collections::HashSet;
use std::hash::Hash;

/// What is known of a source version. `H` is any hash; hashes compared must be made the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known<H> {
    /// Hash of the whole text, if it was ever seen whole.
    pub whole: Option<H>,
    /// Hashes of its chunks, in order.
    pub chunks: Vec<H>,
}

/// What a text is to a known version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recognised {
    /// The same.
    Unchanged,
    /// Another version; which of the known chunks occur in it, by position.
    Changed {
        /// Positions of known chunks that are still there.
        kept: Vec<usize>,
    },
}

/// Compares a text, given as the hash of the whole and the hashes of its chunks, with what is known: the
/// same if the hash of the whole is, or, where the whole was never seen, if the chunks are the same in the
/// same order.
pub fn recognise<H: Eq + Hash>(known: &Known<H>, whole: &H, chunks: &[H]) -> Recognised {
    let same = match &known.whole {
        Some(known) => known == whole,
        None => !chunks.is_empty() && known.chunks == chunks,
    };
    if same {
        return Recognised::Unchanged;
    }
    let now: HashSet<&H> = chunks.iter().collect();
    let kept = (0..known.chunks.len())
        .filter(|&at| now.contains(&known.chunks[at]))
        .collect();
    Recognised::Changed { kept }
}

/// Whether `text` is exactly the given chunks in order, with nothing but white space around them: how a whole
/// document is recognised where only its chunks are known and not how it was cut. `false` without chunks.
pub fn consists_of(text: &str, chunks: &[&str]) -> bool {
    let mut rest = text.trim_start();
    for chunk in chunks {
        match rest.strip_prefix(chunk.trim()) {
            Some(after) => rest = after.trim_start(),
            None => return false,
        }
    }
    !chunks.is_empty() && rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_decides_where_it_is_known() {
        let known = Known {
            whole: Some("w"),
            chunks: vec!["a", "b"],
        };
        assert_eq!(recognise(&known, &"w", &["x"]), Recognised::Unchanged);
        let changed = recognise(&known, &"v", &["b", "c"]);
        assert_eq!(changed, Recognised::Changed { kept: vec![1] });
    }

    #[test]
    fn chunks_decide_where_the_whole_was_never_seen() {
        let known = Known {
            whole: None,
            chunks: vec!["a", "b"],
        };
        assert_eq!(recognise(&known, &"w", &["a", "b"]), Recognised::Unchanged);
        let turned = recognise(&known, &"w", &["b", "a"]);
        assert_eq!(turned, Recognised::Changed { kept: vec![0, 1] });
        let nothing: Known<&str> = Known {
            whole: None,
            chunks: vec![],
        };
        assert_ne!(recognise(&nothing, &"w", &[]), Recognised::Unchanged);
    }

    #[test]
    fn a_document_is_its_chunks_and_nothing_else() {
        assert!(consists_of(" one\n\ntwo ", &["one", "two"]));
        assert!(!consists_of("one two three", &["one", "two"]));
        assert!(!consists_of("two one", &["one", "two"]));
        assert!(!consists_of("one", &["one", "two"]));
        assert!(!consists_of("", &[]));
    }
}
