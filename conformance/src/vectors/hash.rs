//! Vectors of hashes.

use cortex_core::hash::{
    Context, Hash, Leaf, Salt, Target, commit, content_hash, digest, equality_digest, text_hash,
};
use serde::{Deserialize, Serialize};

use super::{Case, File, same};

/// Lengths around the edges of BLAKE3's blocks (64 bytes) and chunks (1024 bytes).
const LENGTHS: [usize; 10] = [0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 2049];

/// Bytes made by rule, hashed in a context.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Digest {
    id: String,
    description: String,
    context: String,
    length: usize,
    hash: Hash,
}

impl Case for Digest {
    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Result<(), String> {
        let context = Context::from_name(&self.context);
        let context = context.ok_or_else(|| format!("unknown context {:?}", self.context))?;
        same("hash", &self.hash, &digest(context, &by_rule(self.length)))
    }
}

fn by_rule(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

pub(super) fn digests() -> File<Digest> {
    let case = |context: Context, length| Digest {
        id: format!("{}-{length}", context.as_str().replace(' ', "-")),
        description: format!("{length} bytes in the context {:?}", context.as_str()),
        context: context.as_str().into(),
        length,
        hash: digest(context, &by_rule(length)),
    };
    let of_context = |context| LENGTHS.map(|length| case(context, length));
    File {
        comment: "BLAKE3 in derive-key mode, 32 bytes of output. Byte i of an input is i mod 251."
            .into(),
        version: 1,
        cases: Context::ALL.into_iter().flat_map(of_context).collect(),
    }
}

/// A digest with a layout of its own, or a text that must not be read as a hash.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Structure {
    id: String,
    description: String,
    of: Of,
    /// Null where there must be none.
    hash: Option<Hash>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Of {
    Content {
        key: Salt,
        values: Vec<Option<String>>,
    },
    Equality {
        key: Salt,
        values: Vec<Option<String>>,
    },
    Text {
        key: Salt,
        text: String,
    },
    Commitment {
        salt: Salt,
        text: String,
    },
    DerivedSalt {
        key: Salt,
        text: String,
    },
    Leaf(Box<LeafInput>),
    WrittenForm(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeafInput {
    kind: Target,
    item: i64,
    artifact: String,
    version: i64,
    content: Hash,
    start: u64,
    end: u64,
    key: Salt,
    text: String,
}

fn texts(values: &[Option<String>]) -> Vec<Option<&str>> {
    values.iter().map(Option::as_deref).collect()
}

impl Of {
    fn hash(&self) -> Option<Hash> {
        match self {
            Self::Content { key, values } => Some(content_hash(&key.0, &texts(values))),
            Self::Equality { key, values } => Some(equality_digest(&key.0, &texts(values))),
            Self::Text { key, text } => Some(text_hash(&key.0, text)),
            Self::Commitment { salt, text } => Some(commit(salt, text)),
            Self::DerivedSalt { key, text } => Some(Hash(Salt::derived(&key.0, text).0)),
            Self::Leaf(input) => {
                let leaf = Leaf {
                    kind: input.kind,
                    item: input.item,
                    artifact: &input.artifact,
                    version: input.version,
                    content: input.content,
                    start: input.start,
                    end: input.end,
                };
                leaf.hash(&input.key.0, &input.text).ok()
            }
            Self::WrittenForm(text) => text.parse().ok(),
        }
    }
}

impl Case for Structure {
    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Result<(), String> {
        same("hash", &self.hash, &self.of.hash())
    }
}

pub(super) fn structures() -> File<Structure> {
    let case = |id: &str, description: &str, of: Of| Structure {
        id: id.into(),
        description: description.into(),
        hash: of.hash(),
        of,
    };
    let key = Salt([0x11; 32]);
    let other = Salt([0x22; 32]);
    let content = |values: &[Option<&str>]| Of::Content {
        key,
        values: values.iter().map(|value| value.map(String::from)).collect(),
    };
    let text = |key, text: &str| Of::Text {
        key,
        text: text.into(),
    };
    let leaf = LeafInput {
        kind: Target::Chunk,
        item: 7,
        artifact: "row:release_note:{\"id\":1}".into(),
        version: 3,
        content: Hash([0x33; 32]),
        start: 0,
        end: 12,
        key,
        text: "Größe zählt.".into(),
    };
    let leaf_with = |change: &dyn Fn(&mut LeafInput)| {
        let mut changed = leaf.clone();
        change(&mut changed);
        Of::Leaf(Box::new(changed))
    };
    let digits = "0123456789abcdef".repeat(4);
    let written = |text: String| Of::WrittenForm(text);
    let cases = vec![
        case("content-none", "no columns", content(&[])),
        case("content-null", "one column that is NULL", content(&[None])),
        case(
            "content-empty",
            "one column that is empty, which is not NULL",
            content(&[Some("")]),
        ),
        case(
            "content-word-null",
            "the text null, which is not NULL",
            content(&[Some("null")]),
        ),
        case("content-one", "one column", content(&[Some("a,b")])),
        case(
            "content-two",
            "two columns with the same letters",
            content(&[Some("a"), Some("b")]),
        ),
        case(
            "content-escapes",
            "characters that canonical JSON escapes",
            content(&[Some("\"\\\n\u{1}"), Some("é😀")]),
        ),
        case(
            "equality",
            "the same columns in the other context",
            Of::Equality {
                key,
                values: vec![Some("a,b".into())],
            },
        ),
        case("text", "a text under a key", text(key, "Größe zählt.")),
        case(
            "text-other-key",
            "the same text under another key",
            text(other, "Größe zählt."),
        ),
        case("text-empty", "the empty text", text(key, "")),
        case(
            "commitment",
            "a text under a salt",
            Of::Commitment {
                salt: key,
                text: "how fast is vacuum".into(),
            },
        ),
        case(
            "commitment-empty",
            "the empty text under a salt",
            Of::Commitment {
                salt: key,
                text: String::new(),
            },
        ),
        case(
            "derived-salt",
            "the salt of a text within a namespace; written here as a hash",
            Of::DerivedSalt {
                key,
                text: "how fast is vacuum".into(),
            },
        ),
        case("leaf", "a chunk", leaf_with(&|_| {})),
        case(
            "leaf-claim",
            "a claim",
            leaf_with(&|leaf| leaf.kind = Target::Claim),
        ),
        case(
            "leaf-span",
            "another span",
            leaf_with(&|leaf| leaf.end = 13),
        ),
        case(
            "leaf-largest",
            "an id of 2^53 - 1",
            leaf_with(&|leaf| leaf.item = (1 << 53) - 1),
        ),
        case(
            "leaf-too-large",
            "an id of 2^53 has no leaf",
            leaf_with(&|leaf| leaf.item = 1 << 53),
        ),
        case(
            "written",
            "the written form",
            written(format!("b3:{digits}")),
        ),
        case(
            "written-bare",
            "without the prefix",
            written(digits.clone()),
        ),
        case(
            "written-upper",
            "in upper case",
            written(format!("b3:{}", digits.to_uppercase())),
        ),
        case(
            "written-short",
            "a digit too few",
            written(format!("b3:{}", &digits[1..])),
        ),
        case(
            "written-long",
            "a digit too many",
            written(format!("b3:{digits}0")),
        ),
        case(
            "written-space",
            "a space after it",
            written(format!("b3:{digits} ")),
        ),
        case(
            "written-other",
            "another algorithm",
            written(format!("sha256:{digits}")),
        ),
    ];
    File {
        comment:
            "Keyed digests, commitments and leaves; keys and salts are 64 hexadecimal digits. \
                  Content and equality hash the canonical array of the texts, null for NULL. Where \
                  the hash is null, there must be none."
                .into(),
        version: 1,
        cases,
    }
}
