//! Canonical JSON: the one byte form of every structure that is hashed.
//!
//! The form is RFC 8785 restricted to what every language reads alike: objects with ASCII keys,
//! arrays, strings, booleans, null and integers within ±(2^53 - 1). There are no floats. Keys are
//! sorted by byte, which for ASCII keys is the UTF-16 order of the RFC; no white space is written;
//! only the quotation mark, the backslash and the control characters below U+0020 are escaped.
//!
//! Reading is strict on purpose. Two readers that disagree on a text (on a repeated key, on `1.0`
//! against `1`) would verify two different things, so such texts are refused and not repaired.
//!
//! * [`Value::parse`] reads any JSON text of the restricted kind, white space allowed.
//! * [`parse_canonical`] also demands that the text is its own canonical form.
//! * [`to_text`] and [`from_text`] do the same for typed structures.

mod encode;
mod parse;
mod write;

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use encode::{text_array, write_string};

/// Longest text that is read, in bytes (8 MiB).
pub const MAX_BYTES: usize = 8 << 20;
/// Most containers that may be open at once.
pub const MAX_DEPTH: usize = 32;
/// Most values in one text. It bounds the memory that a text of [`MAX_BYTES`] can ask for; the
/// largest trace within its own limits stays below it.
pub const MAX_VALUES: usize = 1 << 18;
/// Largest magnitude of an integer: every double up to it is exact, so JavaScript reads it alike.
pub const MAX_INTEGER: i64 = (1 << 53) - 1;

/// A JSON value of the restricted kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer, within ±[`MAX_INTEGER`] when it was parsed.
    Integer(i64),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object; the map's order is the canonical order of its keys.
    Object(BTreeMap<String, Value>),
}

/// What is wrong with a text or with a value that should become one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}, at byte {at}")]
pub struct CanonError {
    /// Byte offset in the input. For a value that is being written it is the length of the output
    /// so far; for a typed structure it is 0 and the kind names the field.
    pub at: usize,
    /// The rule that was broken.
    pub kind: CanonErrorKind,
}

/// The rules a text can break.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CanonErrorKind {
    /// Longer than [`MAX_BYTES`].
    #[error("the text has {0} bytes, more than the limit of {MAX_BYTES}")]
    TooLarge(usize),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than the limit of {MAX_DEPTH}")]
    TooDeep,
    /// More values than [`MAX_VALUES`].
    #[error("more values than the limit of {MAX_VALUES}")]
    TooManyValues,
    /// Not UTF-8.
    #[error("not valid UTF-8")]
    InvalidUtf8,
    /// The text ends inside a value.
    #[error("the text ends where {0} is expected")]
    UnexpectedEnd(&'static str),
    /// A byte that no JSON text has here.
    #[error("found {found:?} where {expected} is expected")]
    Unexpected {
        /// What could stand here.
        expected: &'static str,
        /// The character that stands here.
        found: char,
    },
    /// The same key twice in one object.
    #[error("the key {0:?} appears twice in one object")]
    DuplicateKey(String),
    /// A key outside ASCII.
    #[error("the key {0:?} is not ASCII")]
    NonAsciiKey(String),
    /// A number with a fraction, or a float handed over by a caller.
    #[error("floats are not allowed; scale the value to an integer")]
    Float,
    /// A number with an exponent.
    #[error("exponents are not allowed; write the integer out")]
    Exponent,
    /// `-0`
    #[error("minus zero is not allowed; write 0")]
    NegativeZero,
    /// `01`
    #[error("leading zeros are not allowed")]
    LeadingZero,
    /// Beyond ±[`MAX_INTEGER`].
    #[error("the integer is outside ±(2^53 - 1)")]
    OutOfRange,
    /// Half of a surrogate pair.
    #[error("a surrogate escape without its pair")]
    LoneSurrogate,
    /// An escape that JSON does not have.
    #[error("an invalid escape in a string")]
    BadEscape,
    /// A control character that is not escaped.
    #[error("an unescaped control character in a string")]
    ControlCharacter,
    /// Something after the value.
    #[error("bytes after the end of the value")]
    TrailingBytes,
    /// Well formed, but not the canonical form; the offset is that of the first difference.
    #[error("not in canonical form")]
    NotCanonical,
    /// Canonical, but not the structure that was asked for.
    #[error("{path}: {message}")]
    Shape {
        /// Path of the field, as in `rounds[0].receipt.k`.
        path: String,
        /// What does not fit.
        message: String,
    },
}

impl CanonErrorKind {
    /// Stable name of the rule, as golden vectors use it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TooLarge(_) => "too_large",
            Self::TooDeep => "too_deep",
            Self::TooManyValues => "too_many_values",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::UnexpectedEnd(_) => "unexpected_end",
            Self::Unexpected { .. } => "unexpected",
            Self::DuplicateKey(_) => "duplicate_key",
            Self::NonAsciiKey(_) => "non_ascii_key",
            Self::Float => "float",
            Self::Exponent => "exponent",
            Self::NegativeZero => "negative_zero",
            Self::LeadingZero => "leading_zero",
            Self::OutOfRange => "out_of_range",
            Self::LoneSurrogate => "lone_surrogate",
            Self::BadEscape => "bad_escape",
            Self::ControlCharacter => "control_character",
            Self::TrailingBytes => "trailing_bytes",
            Self::NotCanonical => "not_canonical",
            Self::Shape { .. } => "shape",
        }
    }

    /// Whether the text broke a size limit rather than the grammar.
    pub fn is_limit(&self) -> bool {
        matches!(
            self,
            Self::TooLarge(_) | Self::TooDeep | Self::TooManyValues
        )
    }
}

impl Value {
    /// Reads a JSON text of the restricted kind; white space between tokens is allowed.
    ///
    /// # Errors
    /// [`CanonError`] with the byte offset of the first violation.
    pub fn parse(input: &[u8]) -> Result<Self, CanonError> {
        parse::parse(input)
    }

    /// The canonical text.
    ///
    /// # Errors
    /// [`CanonErrorKind::OutOfRange`] and [`CanonErrorKind::NonAsciiKey`] for a value built by hand;
    /// a parsed value always has a text.
    pub fn encode(&self) -> Result<String, CanonError> {
        let mut out = String::new();
        encode::write_value(&mut out, self)?;
        Ok(out)
    }

    /// The member of an object; `None` for other values and for absent keys.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Self::Object(members) => members.get(key),
            _ => None,
        }
    }
}

/// Reads a text that must be its own canonical form.
///
/// # Errors
/// As [`Value::parse`], and [`CanonErrorKind::NotCanonical`] at the first byte that differs from
/// the canonical form.
pub fn parse_canonical(input: &[u8]) -> Result<Value, CanonError> {
    let value = Value::parse(input)?;
    require_equal(input, value.encode()?.as_bytes())?;
    Ok(value)
}

/// Fails where a text is longer than what can be read again.
///
/// # Errors
/// [`CanonErrorKind::TooLarge`] beyond [`MAX_BYTES`].
pub fn check_size(text: &[u8]) -> Result<(), CanonError> {
    if text.len() <= MAX_BYTES {
        return Ok(());
    }
    Err(CanonError {
        at: MAX_BYTES,
        kind: CanonErrorKind::TooLarge(text.len()),
    })
}

/// The canonical text of a structure.
///
/// # Errors
/// Where the structure holds a float, an integer out of range or a key outside ASCII.
pub fn to_text<T: Serialize + ?Sized>(structure: &T) -> Result<String, CanonError> {
    let mut text = String::new();
    write::write(&mut text, structure)?;
    Ok(text)
}

/// Reads a structure from its canonical text.
///
/// # Errors
/// As [`parse_canonical`] and [`from_value`].
pub fn from_text<T: DeserializeOwned + Serialize>(text: &str) -> Result<T, CanonError> {
    from_value(parse_canonical(text.as_bytes())?)
}

/// Reads a structure from a value that was parsed.
///
/// Deserialising alone would let a text pass that lacks a nullable member, so the structure is
/// written again and must give the same value.
///
/// # Errors
/// [`CanonErrorKind::Shape`] with the path of the field that does not fit.
pub fn from_value<T: DeserializeOwned + Serialize>(value: Value) -> Result<T, CanonError> {
    let text = value.encode()?;
    from_canonical(value, &text)
}

/// As [`from_value`], for a value whose canonical text is at hand, as after [`parse_canonical`].
///
/// # Errors
/// As [`from_value`].
pub fn from_canonical<T: DeserializeOwned + Serialize>(
    value: Value,
    text: &str,
) -> Result<T, CanonError> {
    let structure: T = match serde_json::from_str(text) {
        Ok(structure) => structure,
        Err(_) => return Err(explained::<T>(text)),
    };
    let again = to_text(&structure)?;
    if again == text {
        return Ok(structure);
    }
    let path = first_difference(&value, &Value::parse(again.as_bytes())?);
    Err(misfit(
        path.unwrap_or_default().trim_start_matches('.'),
        "a required member is missing or has another form",
    ))
}

/// Why a text does not fit a structure, with the path. To keep track of the path costs, so it is done where it is needed.
fn explained<T: DeserializeOwned>(text: &str) -> CanonError {
    let mut reader = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Ok(_) => misfit("", "reads once and not again"),
        Err(error) => {
            let message = error.inner().to_string();
            // The place is told by the path.
            let place = message.rfind(" at line ").unwrap_or(message.len());
            misfit(&error.path().to_string(), &message[..place])
        }
    }
}

/// A structure that does not fit at `path`, which is empty for the whole of it.
fn misfit(path: &str, message: impl ToString) -> CanonError {
    CanonError {
        at: 0,
        kind: CanonErrorKind::Shape {
            path: if path.is_empty() { "." } else { path }.into(),
            message: message.to_string(),
        },
    }
}

fn require_equal(input: &[u8], canonical: &[u8]) -> Result<(), CanonError> {
    if input == canonical {
        return Ok(());
    }
    let at = input
        .iter()
        .zip(canonical)
        .position(|(a, b)| a != b)
        .unwrap_or_else(|| input.len().min(canonical.len()));
    Err(CanonError {
        at,
        kind: CanonErrorKind::NotCanonical,
    })
}

/// Path of the first place where two values differ.
fn first_difference(a: &Value, b: &Value) -> Option<String> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let odd = a.keys().find(|key| !b.contains_key(*key));
            if let Some(key) = odd.or_else(|| b.keys().find(|key| !a.contains_key(*key))) {
                return Some(format!(".{key}"));
            }
            a.iter()
                .zip(b.values())
                .find_map(|((key, a), b)| Some(format!(".{key}{}", first_difference(a, b)?)))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => (a.iter().zip(b).enumerate())
            .find_map(|(i, (a, b))| Some(format!("[{i}]{}", first_difference(a, b)?))),
        _ if a == b => None,
        _ => Some(String::new()),
    }
}

impl TryFrom<serde_json::Value> for Value {
    type Error = CanonError;

    fn try_from(json: serde_json::Value) -> Result<Self, CanonError> {
        Ok(match json {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(value),
            serde_json::Value::Number(number) => Self::Integer(integer(&number)?),
            serde_json::Value::String(text) => Self::String(text),
            serde_json::Value::Array(items) => {
                let items = items.into_iter().map(Self::try_from);
                Self::Array(items.collect::<Result<_, _>>()?)
            }
            serde_json::Value::Object(members) => {
                let members = members
                    .into_iter()
                    .map(|(key, value)| Ok((key, Self::try_from(value)?)));
                Self::Object(members.collect::<Result<_, CanonError>>()?)
            }
        })
    }
}

fn integer(number: &serde_json::Number) -> Result<i64, CanonError> {
    let kind = match number.as_i64() {
        Some(value) if value.unsigned_abs() <= MAX_INTEGER.unsigned_abs() => return Ok(value),
        None if number.is_f64() => CanonErrorKind::Float,
        _ => CanonErrorKind::OutOfRange,
    };
    Err(CanonError { at: 0, kind })
}

impl From<Value> for serde_json::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => value.into(),
            Value::Integer(value) => value.into(),
            Value::String(text) => text.into(),
            Value::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            Value::Object(members) => {
                let members = members.into_iter();
                Self::Object(members.map(|(key, value)| (key, value.into())).collect())
            }
        }
    }
}
