//! The cases of JSONTestSuite, read as canonical JSON.
//!
//! The inputs are the suite's (`json/v1/ORIGIN.md`) and stay as they are; what becomes of each is written anew.

use cortex_core::canon::Value;
use serde::{Deserialize, Serialize};

use super::canon::{Piece, bytes};
use super::{Case, EMBEDDED, File, same};

/// Rules by which a text is refused that JSON allows: the restrictions of canonical JSON.
const STATED: [&str; 8] = [
    "float",
    "exponent",
    "negative_zero",
    "out_of_range",
    "non_ascii_key",
    "duplicate_key",
    "lone_surrogate",
    "too_deep",
];

/// What the suite wants to become of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Wanted {
    Accept,
    Refuse,
    Either,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Suite {
    id: String,
    description: String,
    suite: Wanted,
    input: Vec<Piece>,
    /// The rule that it breaks; null where it is read.
    error: Option<String>,
    /// Its canonical form; null where it is refused.
    canonical: Option<String>,
}

impl Suite {
    fn run(&self) -> Result<(Option<String>, Option<String>), String> {
        Ok(match Value::parse(&bytes(&self.input)?) {
            Ok(value) => {
                let text = value.encode().map_err(|error| error.to_string())?;
                (None, Some(text))
            }
            Err(error) => (Some(error.kind.name().into()), None),
        })
    }
}

impl Case for Suite {
    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Result<(), String> {
        let (error, canonical) = self.run()?;
        same("error", &self.error, &error)?;
        same("canonical form", &self.canonical, &canonical)?;
        match (self.suite, error.as_deref()) {
            (Wanted::Refuse, None) => Err("was read, and must be refused".into()),
            (Wanted::Accept, Some(rule)) if !STATED.contains(&rule) => {
                Err(format!("is JSON, and was refused as {rule}"))
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn cases() -> File<Suite> {
    let (_, text) = EMBEDDED
        .iter()
        .find(|(path, _)| *path == super::SUITE)
        .expect("the suite is built in");
    let mut file: File<Suite> = serde_json::from_str(text).expect("the suite's layout");
    file.comment = "JSONTestSuite (see ORIGIN.md), read as JSON of the restricted kind. suite says what it wants: \
                    what it wants refused is refused; what it wants read is read, or refused by one of the \
                    restrictions (float, exponent, negative_zero, out_of_range, non_ascii_key, duplicate_key, \
                    lone_surrogate, too_deep). An input is the concatenation of its pieces."
        .into();
    for case in &mut file.cases {
        (case.error, case.canonical) = case.run().expect("an input that can be made");
    }
    file
}
