//! The ways in which small models and their servers go wrong.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A fault. Those of the model change its words; those of the server, how they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Words before and after the JSON.
    ProseAround,
    /// Words in place of the JSON.
    ProseOnly,
    /// The JSON in a code fence.
    Fenced,
    /// Thoughts in front, with JSON of their own in them.
    Thinking,
    /// The reply ends in its middle, as when its length is used up.
    Truncated,
    /// The list of claims without the object around it.
    NoWrapper,
    /// Claims that are null.
    NullClaims,
    /// Claims of blanks.
    BlankClaims,
    /// A claim with a number that no source has.
    InventedNumber,
    /// Each claim twenty times.
    Repeated,
    /// Citations of parts that were never shown.
    WrongChunks,
    /// A claim of 20,000 characters.
    LongClaim,
    /// No words at all.
    Empty,
    /// The prompt was cut: the count of its tokens gives it away.
    CutPrompt,
    /// The server never answers.
    Hang,
    /// The server answers 500.
    ServerError,
    /// The server closes the connection in the middle.
    HangUp,
    /// The server sends a few bytes at a time.
    Drip,
    /// The server answers with something else than JSON.
    NotJson,
}

impl Fault {
    /// The model's words with this fault in them.
    pub(super) fn spoil(self, words: &str) -> String {
        match self {
            Fault::ProseAround => {
                format!("Of course! Here is what I found:\n\n{words}\n\nShall I look for more?")
            }
            Fault::ProseOnly => "The text is about several things, among them birds.".to_owned(),
            Fault::Fenced => format!("```json\n{words}\n```"),
            Fault::Thinking => format!(
                "<think>\nPerhaps {{\"claims\": [{{\"claim\": \"a guess\"}}]}}? No.\n</think>\n{words}"
            ),
            Fault::Truncated => {
                let end = words.floor_char_boundary(words.len() * 7 / 10);
                words[..end].to_owned()
            }
            Fault::NoWrapper => change(words, |claims| json!(claims)),
            Fault::NullClaims => with(words, &[Value::Null, json!({"claim": null, "chunks": [1]})]),
            Fault::BlankClaims => with(words, &[json!({"claim": "  ", "chunks": [1]}), json!("")]),
            Fault::InventedNumber => with(
                words,
                &[json!({"claim": "There are 987654321 of them.", "chunks": [1]})],
            ),
            Fault::Repeated => change(words, |claims| {
                let all: Vec<&Value> = std::iter::repeat_n(&claims, 20).flatten().collect();
                json!({"claims": all})
            }),
            Fault::WrongChunks => change(words, |mut claims| {
                for claim in &mut claims {
                    claim["chunks"] = json!([999]);
                }
                json!({"claims": claims})
            }),
            Fault::LongClaim => {
                let long = "word ".repeat(4_000);
                with(words, &[json!({"claim": long, "chunks": [1]})])
            }
            Fault::Empty => String::new(),
            Fault::CutPrompt
            | Fault::Hang
            | Fault::ServerError
            | Fault::HangUp
            | Fault::Drip
            | Fault::NotJson => words.to_owned(),
        }
    }
}

/// Replaces the list of claims. Words that hold none stay as they are.
fn change(words: &str, make: impl FnOnce(Vec<Value>) -> Value) -> String {
    let claims = serde_json::from_str::<Value>(words)
        .ok()
        .and_then(|value| value.get("claims")?.as_array().cloned());
    match claims {
        Some(claims) => make(claims).to_string(),
        None => words.to_owned(),
    }
}

/// Adds entries to the list of claims.
fn with(words: &str, entries: &[Value]) -> String {
    change(words, |mut claims| {
        claims.extend_from_slice(entries);
        json!({"claims": claims})
    })
}
