//! What hosts and their models hand in: model calls, statements and citations. All of it is outside input, so it has
//! limits, and unknown members are errors.

use cortex_core::trace::answer::{MAX_CITATIONS, MAX_STATEMENT_CHARS, MAX_STATEMENTS};
use cortex_core::trace::rules::MAX_MODEL;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::JsonText;
use crate::error::Fault;

/// Longest input or output of a model call, in bytes.
const MAX_CALL: usize = 128 << 10;
/// Longest options of a model call, in bytes.
const MAX_OPTIONS: usize = 16 << 10;
/// Longest prose, in bytes.
pub const MAX_PROSE: usize = 64 << 10;

/// A model call with its texts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    pub name: String,
    pub digest: Option<String>,
    pub options: Option<String>,
    pub input: String,
    pub output: String,
}

/// Statements with their citations and the prose they are parts of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    pub prose: Option<String>,
    pub model: Option<Call>,
    pub statements: Vec<Stated>,
}

/// One statement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stated {
    pub text: String,
    pub citations: Vec<Cited>,
}

/// One citation: number of the evidence, and the quote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cited {
    pub n: u32,
    pub quote: Option<String>,
}

/// A citation as it is handed in.
pub struct RawCitation {
    /// Statement, from 0.
    pub statement: usize,
    /// Names an item that was shown, or
    pub item: Option<i64>,
    /// a piece of evidence by its number.
    pub n: Option<i64>,
    pub quote: Option<String>,
}

fn parse(text: &JsonText, what: &str) -> Result<Value, Fault> {
    serde_json::from_str(&text.0)
        .map_err(|error| Fault::argument(format!("{what} cannot be read: {error}")))
}

/// The `model` argument.
pub fn call(given: Option<&JsonText>) -> Result<Option<Call>, Fault> {
    let Some(given) = given else { return Ok(None) };
    let value = parse(given, "model")?;
    let Value::Object(fields) = value else {
        return Err(Fault::argument("model must be a JSON object".into())
            .hint("{\"name\", \"digest\", \"options\", \"input\", \"output\"}; digest and options may be absent."));
    };
    let known = ["name", "digest", "options", "input", "output"];
    if let Some(unknown) = fields.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(
            Fault::argument(format!("unknown member '{unknown}' of model"))
                .hint(format!("Members are {}.", known.join(", "))),
        );
    }
    let text = |name: &str, most: usize| -> Result<Option<String>, Fault> {
        match fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() <= most => Ok(Some(text.clone())),
            Some(Value::String(text)) => Err(Fault::limit(format!(
                "model.{name} has {} bytes, the limit is {most}",
                text.len()
            ))),
            Some(other) => Err(Fault::argument(format!(
                "model.{name} = {other} is not a text"
            ))),
        }
    };
    let must = |name: &str, most: usize| {
        text(name, most)?.ok_or_else(|| Fault::argument(format!("model.{name} is missing")))
    };
    let name = must("name", MAX_MODEL)?;
    let digest = text("digest", MAX_MODEL)?;
    if name.is_empty() || digest.as_deref() == Some("") {
        return Err(Fault::argument(
            "model.name or model.digest is empty".into(),
        ));
    }
    let options = match fields.get("options") {
        None | Some(Value::Null) => None,
        Some(options) => Some(options.to_string()),
    };
    if let Some(options) = options
        .as_ref()
        .filter(|options| options.len() > MAX_OPTIONS)
    {
        return Err(Fault::limit(format!(
            "model.options has {} bytes, the limit is {MAX_OPTIONS}",
            options.len()
        )));
    }
    Ok(Some(Call {
        name,
        digest,
        options,
        input: must("input", MAX_CALL)?,
        output: must("output", MAX_CALL)?,
    }))
}

/// The `statements` argument: an array of texts.
pub fn statements(given: Option<&JsonText>) -> Result<Vec<String>, Fault> {
    let Some(given) = given else {
        return Ok(Vec::new());
    };
    let Value::Array(items) = parse(given, "statements")? else {
        return Err(Fault::argument(
            "statements must be a JSON array of texts".into(),
        ));
    };
    if items.len() > MAX_STATEMENTS {
        return Err(Fault::limit(format!(
            "{} statements, the limit is {MAX_STATEMENTS}",
            items.len()
        )));
    }
    let texts = items.into_iter().zip(1..).map(|(item, n)| match item {
        Value::String(text) => short(text, &format!("statement {n}")),
        other => Err(Fault::argument(format!(
            "statement {n} is {other}, not a text"
        ))),
    });
    texts.collect()
}

fn short(text: String, what: &str) -> Result<String, Fault> {
    if text.trim().is_empty() {
        return Err(Fault::argument(format!("{what} is blank")));
    }
    if text.chars().nth(MAX_STATEMENT_CHARS).is_some() {
        return Err(Fault::limit(format!(
            "{what} has more than {MAX_STATEMENT_CHARS} characters"
        )));
    }
    Ok(text)
}

/// The `citations` argument: `{"statement", "item" or "n", "quote"}` each.
pub fn citations(given: Option<&JsonText>, statements: usize) -> Result<Vec<RawCitation>, Fault> {
    let Some(given) = given else {
        return Ok(Vec::new());
    };
    let Value::Array(items) = parse(given, "citations")? else {
        return Err(Fault::argument(
            "citations must be a JSON array of objects".into(),
        ));
    };
    if items.len() > MAX_CITATIONS {
        return Err(Fault::limit(format!(
            "{} citations, the limit is {MAX_CITATIONS}",
            items.len()
        )));
    }
    let read = |(value, at): (Value, usize)| -> Result<RawCitation, Fault> {
        let what = format!("citation {at}");
        let wrong = |why: String| {
            Fault::argument(format!("{what}: {why}")).hint(
                "{\"statement\": 1, \"item\": id or \"n\": number, \"quote\": text or absent}",
            )
        };
        let Value::Object(mut fields) = value else {
            return Err(wrong(format!("{value} is not an object")));
        };
        let mut number = |name: &str| match fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value
                .as_i64()
                .map(Some)
                .ok_or_else(|| wrong(format!("{name} = {value} is not an integer"))),
        };
        let (statement, item, n) = (number("statement")?, number("item")?, number("n")?);
        let quote = match fields.remove("quote") {
            None | Some(Value::Null) => None,
            Some(Value::String(quote)) => Some(short(quote, &format!("the quote of {what}"))?),
            Some(other) => return Err(wrong(format!("quote = {other} is not a text"))),
        };
        if let Some(unknown) = fields.keys().next() {
            return Err(wrong(format!("unknown member '{unknown}'")));
        }
        let place = statement
            .and_then(|statement| usize::try_from(statement).ok()?.checked_sub(1))
            .filter(|place| *place < statements);
        let Some(place) = place else {
            let found = statement.map_or("missing".into(), |n| n.to_string());
            return Err(wrong(format!(
                "statement is {found}, there are {statements}"
            )));
        };
        if item.is_some() == n.is_some() {
            return Err(wrong("one of item and n names the evidence".into()));
        }
        Ok(RawCitation {
            statement: place,
            item,
            n,
            quote,
        })
    };
    items.into_iter().zip(1..).map(read).collect()
}
