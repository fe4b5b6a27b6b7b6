//! `evidence/1`: the items and texts of one trace in a file, so that a verifier without the database reaches L2.
//!
//! The file holds the keys of the cited sources, which are needed to recompute leaves. Who has a key can test guesses
//! about that source's other versions, so the file is as confidential as the texts in it. What was erased is listed as
//! such; a verifier takes the file's word for that and says `redacted`.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use super::store::{Evidence, Lookup, Replay, StoredItem};
use crate::canon::{self, CanonError};
use crate::hash::{Hash, Salt, SaltedText, Target};
use crate::receipt::{Receipt, Violation, require};
use crate::trace::Trace;

/// Layout of the file, the value of its member `v`.
pub const BUNDLE_VERSION: &str = "evidence/1";

/// Layout of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BundleVersion {
    /// The layout of this module.
    #[serde(rename = "evidence/1")]
    V1,
}

/// The items and texts of one trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// Layout.
    pub v: BundleVersion,
    /// Root of the trace.
    pub trace: Hash,
    /// Items of its evidence, by kind and id.
    pub items: Vec<BundleItem>,
    /// Texts of its commitments, by commitment.
    pub texts: Vec<BundleText>,
}

/// An item of the evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleItem {
    /// Kind.
    pub target: Target,
    /// Id.
    pub item: i64,
    /// What is stored; null if it was erased.
    pub stored: Option<StoredFields>,
}

/// A stored item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredFields {
    /// Its whole text.
    pub text: String,
    /// Key of its source, in hexadecimal.
    pub source_key: Salt,
    /// Stable name of its source.
    pub artifact: String,
    /// Id of its source version.
    pub version: i64,
    /// Content hash of that version.
    pub content: Hash,
    /// First byte of its span in the source text.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// The text of a commitment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleText {
    /// The commitment.
    pub commitment: Hash,
    /// Salt and text; null if the text was erased.
    pub stored: Option<SaltedText>,
}

impl Bundle {
    /// Collects from a store what the evidence and the commitments of a trace need. What the store does not have
    /// and has no record of is left out, so that a verifier finds it missing.
    ///
    /// # Errors
    /// A fault of the store.
    pub fn collect(trace: &Trace, store: &mut dyn Evidence) -> Result<Self, String> {
        let mut items = BTreeMap::new();
        for evidence in &trace.evidence {
            let Some(target) = trace.target(evidence) else {
                continue;
            };
            let stored = match store.item(target, evidence.item)? {
                Lookup::Missing => continue,
                Lookup::Erased => None,
                Lookup::Found(item) => Some(StoredFields {
                    text: item.text,
                    source_key: Salt(item.source_key),
                    artifact: item.artifact,
                    version: item.version,
                    content: item.content,
                    start: item.start,
                    end: item.end,
                }),
            };
            let key = (target == Target::Claim, evidence.item);
            items.insert(
                key,
                BundleItem {
                    target,
                    item: evidence.item,
                    stored,
                },
            );
        }
        let mut texts = BTreeMap::new();
        for commitment in trace.commitments() {
            let stored = match store.text(&commitment)? {
                Lookup::Missing => continue,
                Lookup::Erased => None,
                Lookup::Found(text) => Some(text),
            };
            texts.insert(commitment, BundleText { commitment, stored });
        }
        Ok(Self {
            v: BundleVersion::V1,
            trace: trace.roots.trace,
            items: items.into_values().collect(),
            texts: texts.into_values().collect(),
        })
    }

    /// The canonical text.
    ///
    /// # Errors
    /// Where a number is outside ±(2^53 - 1).
    pub fn to_text(&self) -> Result<String, CanonError> {
        canon::to_text(self)
    }

    /// Reads a file from its canonical text.
    ///
    /// # Errors
    /// A text that is not canonical or not of this layout.
    pub fn from_text(text: &str) -> Result<Self, CanonError> {
        canon::from_text(text)
    }

    /// Checks that this is the file of a trace: it names its root, lists in ascending order exactly the items and texts
    /// that the trace names, and each text is the one committed to.
    ///
    /// # Errors
    /// The first of these that does not hold.
    pub fn check(&self, trace: &Trace) -> Result<(), Violation> {
        let at = |name: String| format!("evidence file: {name}");
        let root = trace.roots.trace;
        require(self.trace == root, at("trace".into()), root, self.trace)?;
        let named = trace.evidence.iter();
        let named =
            named.filter_map(|item| Some((trace.target(item)? == Target::Claim, item.item)));
        let named: HashSet<(bool, i64)> = named.collect();
        let mut before = None;
        for (i, item) in self.items.iter().enumerate() {
            let key = (item.target == Target::Claim, item.item);
            let at = at(format!("items[{i}]"));
            let ascends = before.is_none_or(|before| before < key);
            require(ascends, at.clone(), "ascending kinds and ids", item.item)?;
            let known = named.contains(&key);
            require(known, at, "an item of the evidence", item.item)?;
            before = Some(key);
        }
        let complete = |listed: usize, named: usize, name: &str| {
            let expected = format!("{named}, as many as the trace names");
            require(listed == named, at(name.into()), expected, listed)
        };
        complete(self.items.len(), named.len(), "items")?;
        let named: HashSet<Hash> = trace.commitments().into_iter().collect();
        let mut before = None;
        for (i, text) in self.texts.iter().enumerate() {
            let key = text.commitment;
            let at = at(format!("texts[{i}]"));
            let ascends = before.is_none_or(|before| before < key);
            require(ascends, at.clone(), "ascending commitments", key)?;
            let known = named.contains(&key);
            require(known, at.clone(), "a commitment of the trace", key)?;
            if let Some(stored) = &text.stored {
                let found = stored.commitment();
                require(found == key, at, key, found)?;
            }
            before = Some(key);
        }
        complete(self.texts.len(), named.len(), "texts")
    }

    /// The texts that are here, by commitment.
    pub fn texts(&self) -> BTreeMap<Hash, &str> {
        let texts = self.texts.iter();
        texts
            .filter_map(|text| Some((text.commitment, text.stored.as_ref()?.text.as_str())))
            .collect()
    }
}

impl Evidence for Bundle {
    fn text(&mut self, commitment: &Hash) -> Result<Lookup<SaltedText>, String> {
        let mut texts = self.texts.iter();
        Ok(match texts.find(|text| text.commitment == *commitment) {
            None => Lookup::Missing,
            Some(BundleText { stored: None, .. }) => Lookup::Erased,
            Some(BundleText {
                stored: Some(text), ..
            }) => Lookup::Found(text.clone()),
        })
    }

    fn item(&mut self, target: Target, id: i64) -> Result<Lookup<StoredItem>, String> {
        let mut items = self.items.iter();
        let found = items.find(|item| item.target == target && item.item == id);
        Ok(match found {
            None => Lookup::Missing,
            Some(BundleItem { stored: None, .. }) => Lookup::Erased,
            Some(BundleItem {
                stored: Some(stored),
                ..
            }) => Lookup::Found(StoredItem {
                text: stored.text.clone(),
                source_key: stored.source_key.0,
                artifact: stored.artifact.clone(),
                version: stored.version,
                content: stored.content,
                equality: None,
                start: stored.start,
                end: stored.end,
            }),
        })
    }

    fn replay(&mut self, _: &Receipt, _: &str) -> Result<Replay, String> {
        Err("a file of texts cannot replay".into())
    }

    fn scan(&mut self, _: &Receipt, _: &str) -> Result<Replay, String> {
        Err("a file of texts cannot replay".into())
    }

    fn can_replay(&self) -> bool {
        false
    }

    fn bind(&mut self, trace: &Trace) -> Result<(), Violation> {
        self.check(trace)
    }
}
