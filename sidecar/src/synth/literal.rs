//! JSON whose members keep their order and whose numbers keep their digits, as they are quoted in claims.

use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Containers within containers that are opened; what lies deeper is a text.
const DEEPEST: usize = 32;

/// A value as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    /// Numbers, true, false, null: as they stand there. Strings without quotes and escapes.
    Scalar(String),
    /// A list.
    List(Vec<Literal>),
    /// Members in their order.
    Members(Vec<(String, Literal)>),
}

impl Literal {
    /// Reads one JSON value that fills `text`.
    pub fn parse(text: &str) -> Option<Self> {
        let raw: &RawValue = serde_json::from_str(text).ok()?;
        open(raw.get(), 0)
    }

    /// The text of a scalar that says something.
    pub fn scalar(&self) -> Option<&str> {
        match self {
            Literal::Scalar(text) if !text.is_empty() && text != "null" => Some(text),
            _ => None,
        }
    }
}

fn open(text: &str, depth: usize) -> Option<Literal> {
    let text = text.trim();
    match text.as_bytes().first()? {
        b'{' | b'[' if depth >= DEEPEST => Some(Literal::Scalar(text.to_owned())),
        b'{' => {
            let members = serde_json::Deserializer::from_str(text)
                .deserialize_map(Members)
                .ok()?;
            members
                .into_iter()
                .map(|(name, value)| Some((name, open(value.get(), depth + 1)?)))
                .collect::<Option<Vec<_>>>()
                .map(Literal::Members)
        }
        b'[' => {
            let items = serde_json::Deserializer::from_str(text)
                .deserialize_seq(Items)
                .ok()?;
            items
                .into_iter()
                .map(|value| open(value.get(), depth + 1))
                .collect::<Option<Vec<_>>>()
                .map(Literal::List)
        }
        b'"' => {
            let string: String = serde_json::from_str(text).ok()?;
            let words: Vec<&str> = string.split_whitespace().collect();
            Some(Literal::Scalar(words.join(" ")))
        }
        _ => Some(Literal::Scalar(text.to_owned())),
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

struct Items;

impl<'de> Visitor<'de> for Items {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(items)
    }
}
