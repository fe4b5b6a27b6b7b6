//! Hashes: BLAKE3-256 in derive-key mode, one context string per structure.
//!
//! The context keeps equal bytes in different roles apart, so a digest of one structure can never
//! stand in for another. A layout never changes under its context: a new layout takes a new
//! context with a new version. Written form: `b3:` and 64 lower-case hexadecimal digits.
//!
//! *Keyed* digests hash the 32-byte key in front of the bytes. A plain digest of a short text
//! confirms a guess of the text; a keyed one does so only for who holds the key, and erasing the
//! key makes it mute.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::canon::{self, CanonError};

/// A secret of a source or a namespace under which its digests are made.
pub type Key = [u8; 32];

/// The role of the bytes that are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Context {
    /// Content of a source version: key of the source, canonical array of the column texts.
    Content,
    /// Equality of contents within a namespace: key of the namespace, the same array.
    Equality,
    /// Text of a chunk or claim: key of the source, the text.
    Text,
    /// A [`Leaf`]: the identity of a chunk or claim with its text.
    Leaf,
    /// A commitment to free text: salt, the text.
    Commitment,
    /// A salt that is derived and not drawn: key of the namespace, the text.
    Salt,
    /// The question of a trace: the canonical string of its commitment.
    Question,
    /// The policy of a trace.
    Policy,
    /// The principal of a trace.
    Principal,
    /// A retrieval receipt.
    Receipt,
    /// One round: its members, the receipt replaced by its root.
    Round,
    /// The rounds of a trace: the array of the round hashes.
    Rounds,
    /// One evidence item.
    EvidenceItem,
    /// The evidence of a trace: the array of the item hashes.
    Evidence,
    /// The answer of a trace.
    Answer,
    /// A trace: its head and all its other roots.
    Trace,
}

impl Context {
    /// Every context, in the order of the documentation.
    pub const ALL: [Self; 16] = [
        Self::Content,
        Self::Equality,
        Self::Text,
        Self::Leaf,
        Self::Commitment,
        Self::Salt,
        Self::Question,
        Self::Policy,
        Self::Principal,
        Self::Receipt,
        Self::Round,
        Self::Rounds,
        Self::EvidenceItem,
        Self::Evidence,
        Self::Answer,
        Self::Trace,
    ];

    /// The context string of BLAKE3's derive-key mode.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Content => "cortex content v1",
            Self::Equality => "cortex equality v1",
            Self::Text => "cortex text v1",
            Self::Leaf => "cortex leaf v1",
            Self::Commitment => "cortex commitment v1",
            Self::Salt => "cortex salt v1",
            Self::Question => "cortex question v1",
            Self::Policy => "cortex policy v1",
            Self::Principal => "cortex principal v1",
            Self::Receipt => "cortex receipt v1",
            Self::Round => "cortex round v1",
            Self::Rounds => "cortex rounds v1",
            Self::EvidenceItem => "cortex evidence item v1",
            Self::Evidence => "cortex evidence v1",
            Self::Answer => "cortex answer v1",
            Self::Trace => "cortex trace v1",
        }
    }

    /// The context with this string.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|context| context.as_str() == name)
    }
}

/// A digest in one of the [`Context`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

/// Hashes bytes in a context.
pub fn digest(context: Context, bytes: &[u8]) -> Hash {
    Hash(blake3::derive_key(context.as_str(), bytes))
}

/// Hashes a 32-byte key or salt and the bytes after it, in a context.
pub fn keyed_digest(context: Context, key: &Key, bytes: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new_derive_key(context.as_str());
    hasher.update(key);
    hasher.update(bytes);
    Hash(*hasher.finalize().as_bytes())
}

/// Hashes the canonical text of a structure in a context.
///
/// # Errors
/// Where the structure has no canonical text (see [`canon::to_text`]).
pub fn structure_hash<T: Serialize + ?Sized>(
    context: Context,
    structure: &T,
) -> Result<Hash, CanonError> {
    Ok(digest(context, canon::to_text(structure)?.as_bytes()))
}

/// Names the content of a source version: the texts of the bound columns in binding order, NULL
/// as `None`.
pub fn content_hash(source_key: &Key, values: &[Option<&str>]) -> Hash {
    let array = canon::text_array(values);
    keyed_digest(Context::Content, source_key, array.as_bytes())
}

/// Tells whether two contents of one namespace are equal, whatever their sources. It is erased
/// together with the text.
pub fn equality_digest(namespace_key: &Key, values: &[Option<&str>]) -> Hash {
    let array = canon::text_array(values);
    keyed_digest(Context::Equality, namespace_key, array.as_bytes())
}

/// Names the text of a chunk or claim.
pub fn text_hash(source_key: &Key, text: &str) -> Hash {
    keyed_digest(Context::Text, source_key, text.as_bytes())
}

/// Commits to a text without showing it: who has salt and text can check the commitment, who has
/// neither learns nothing from it.
pub fn commit(salt: &Salt, text: &str) -> Hash {
    keyed_digest(Context::Commitment, &salt.0, text.as_bytes())
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("b3:")?;
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a hash or a salt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not {expected}: {found:?}")]
pub struct ParseHashError {
    /// The form that is expected.
    pub expected: &'static str,
    /// The text that was given, cut to 80 characters.
    pub found: String,
}

impl FromStr for Hash {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        let bytes = text.strip_prefix("b3:").and_then(read_hex);
        bytes.map(Self).ok_or_else(|| ParseHashError {
            expected: "b3: and 64 lower-case hexadecimal digits",
            found: text.chars().take(80).collect(),
        })
    }
}

/// 32 bytes that keep a commitment from confirming guesses. Written as 64 lower-case hexadecimal
/// digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt(pub [u8; 32]);

impl Salt {
    /// The salt of a text within a namespace, for callers that must give the same bytes for the
    /// same call and therefore draw nothing at random. Who holds the namespace's key can test
    /// guesses of the text; nobody else can.
    pub fn derived(namespace_key: &Key, text: &str) -> Self {
        Self(keyed_digest(Context::Salt, namespace_key, text.as_bytes()).0)
    }
}

impl fmt::Display for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Salt {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        read_hex(text).map(Self).ok_or_else(|| ParseHashError {
            expected: "64 lower-case hexadecimal digits",
            found: text.chars().take(80).collect(),
        })
    }
}

/// A text with the salt of its commitment, as stored beside a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaltedText {
    /// The salt of the commitment.
    pub salt: Salt,
    /// The text that is committed to.
    pub text: String,
}

impl SaltedText {
    /// The commitment to this text under this salt.
    pub fn commitment(&self) -> Hash {
        commit(&self.salt, &self.text)
    }
}

/// What a retrieved item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A span of one source version.
    Chunk,
    /// One statement of the claim pool.
    Claim,
}

/// The identity of a chunk or claim together with its text: what a trace pins down of an item
/// without showing it. Anyone with the item's row and its source's key can recompute the hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf<'a> {
    /// Chunk or claim.
    pub kind: Target,
    /// Id of the chunk or claim.
    pub item: i64,
    /// Stable name of the source.
    pub artifact: &'a str,
    /// Id of the source version.
    pub version: i64,
    /// Content hash of the source version.
    pub content: Hash,
    /// First byte of the item's span in the source text.
    pub start: u64,
    /// One past the last byte of the span.
    pub end: u64,
}

impl Leaf<'_> {
    /// The leaf hash over the item's identity and its text.
    ///
    /// # Errors
    /// Where an id or an offset is outside ±(2^53 - 1).
    pub fn hash(&self, source_key: &Key, text: &str) -> Result<Hash, CanonError> {
        #[derive(Serialize)]
        struct Preimage<'a> {
            v: &'static str,
            kind: Target,
            item: i64,
            artifact: &'a str,
            version: i64,
            content: Hash,
            start: u64,
            end: u64,
            text: Hash,
        }
        structure_hash(
            Context::Leaf,
            &Preimage {
                v: "leaf/1",
                kind: self.kind,
                item: self.item,
                artifact: self.artifact,
                version: self.version,
                content: self.content,
                start: self.start,
                end: self.end,
                text: text_hash(source_key, text),
            },
        )
    }
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8; 32]) -> fmt::Result {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 64];
    for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
    }
    f.write_str(std::str::from_utf8(&digits).unwrap_or_default())
}

fn read_hex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let pairs: &[[u8; 2]; 32] = pairs.try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// Serialises a type as its text form and reads it back through `FromStr`.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}
serde_as_text!(Hash);
serde_as_text!(Salt);
