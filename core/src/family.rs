//! Independent source families, rule `cortex-family/1`: mirrors and copies count once.
//!
//! Two pieces of evidence are of one family if they are of the same artifact, if their source versions have
//! equal content (by the equality digest of the namespace), or if their items' texts are equal in the form of
//! [`crate::quote`]; and if a third piece joins them.

use std::collections::HashMap;

use crate::hash::Hash;
use crate::quote;

/// Name of the rule, as recorded in traces.
pub const NAME: &str = "cortex-family/1";

/// What decides the family of one piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Stable name of its source.
    pub artifact: String,
    /// Equality digest of the source version, where it is known.
    pub equality: Option<Hash>,
    /// The whole text of the item, where it is known.
    pub text: Option<String>,
}

/// For each member the number (from 1) of the first member of its family.
pub fn families(members: &[Member]) -> Vec<u32> {
    #[derive(PartialEq, Eq, Hash)]
    enum Mark<'a> {
        Artifact(&'a str),
        Equality(Hash),
        Text(String),
    }
    let mut first: HashMap<Mark, usize> = HashMap::new();
    let mut family: Vec<usize> = (0..members.len()).collect();
    for (i, member) in members.iter().enumerate() {
        let text = member.text.as_deref().map(quote::normalise);
        let marks = [
            Some(Mark::Artifact(&member.artifact)),
            member.equality.map(Mark::Equality),
            text.filter(|text| !text.is_empty()).map(Mark::Text),
        ];
        for mark in marks.into_iter().flatten() {
            let other = *first.entry(mark).or_insert(i);
            let (a, b) = (family[i], family[other]);
            let (low, high) = (a.min(b), a.max(b));
            for of in &mut family {
                if *of == high {
                    *of = low;
                }
            }
        }
    }
    family.into_iter().map(|first| first as u32 + 1).collect()
}

/// How many families are in a list made by [`families`].
pub fn count(families: &[u32]) -> u32 {
    let firsts = (1..).zip(families).filter(|(n, family)| n == *family);
    firsts.count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(artifact: &str, equality: Option<u8>, text: Option<&str>) -> Member {
        Member {
            artifact: artifact.into(),
            equality: equality.map(|byte| Hash([byte; 32])),
            text: text.map(String::from),
        }
    }

    #[test]
    fn copies_count_once() {
        let families = families(&[
            member("a", Some(1), Some("one")),
            member("b", Some(2), Some("two")),
            member("c", Some(1), Some("three")),
            member("d", Some(3), Some(" two ")),
            member("a", Some(4), Some("four")),
            member("e", None, None),
            member("f", None, Some("")),
            member("g", None, Some("")),
        ]);
        assert_eq!(families, [1, 2, 1, 2, 1, 6, 7, 8]);
        assert_eq!(count(&families), 5);
        assert_eq!(count(&[]), 0);
    }

    #[test]
    fn a_third_piece_joins_two() {
        let apart = [
            member("a", Some(1), Some("one")),
            member("b", Some(2), Some("two")),
        ];
        assert_eq!(families(&apart), [1, 2]);
        let joined = [&apart[..], &[member("c", Some(2), Some("one"))]].concat();
        assert_eq!(families(&joined), [1, 1, 1]);
    }
}
