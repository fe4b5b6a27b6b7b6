//! Tool calls as small models make them: read, put right where only one thing can be meant, refused with a reason
//! otherwise. Rule `cortex-calls/1`.
//!
//! A server hands over structured calls, or the model writes them as text: bare JSON, one or several, in
//! `<tool_call>`, after `[TOOL_CALLS]` or `<|python_tag|>`, as `<function=name>` with JSON or parameters, as a
//! Python list of calls, in a fence. Thoughts are taken out first ([`super::think`]) and never hold a call. Nothing
//! is evaluated, no name is guessed, and nothing that was cut off is completed.
//!
//! A call in a fence or line of its own *among prose* may be an example. There, tools that change nothing are
//! called, others are refused.

use serde_json::{Map, Value};

use super::think;

mod find;
mod json;
mod python;
mod schema;

/// Name of the rule, as recorded where it decided.
pub const NAME: &str = "cortex-calls/1";

/// The most calls read from one reply; what follows is counted.
pub const MAX_CALLS: usize = 16;

/// The longest reply that is searched for calls, in bytes.
pub const REPLY_MAX_BYTES: usize = 1 << 20;

/// How often arguments may be wrapped in text.
const MAX_UNWRAPS: usize = 3;

/// A tool that is on offer.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name, matched exactly.
    pub name: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// It neither changes anything nor sends anything out: a fetch does send.
    pub reads_only: bool,
}

/// How a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// By the server, as a call.
    Structured,
    /// As a text that is nothing but calls.
    Text,
    /// Within prose.
    Prose,
}

/// A call that may be made as far as its form goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The tool.
    pub name: String,
    /// Arguments that fit its schema.
    pub arguments: Map<String, Value>,
    /// How it came.
    pub channel: Channel,
    /// What was put right.
    pub repairs: Vec<&'static str>,
}

impl Call {
    /// Equal for calls that do the same: tool and arguments with sorted keys.
    pub fn signature(&self) -> String {
        // Maps of serde_json without `preserve_order` are sorted; do not rest on that.
        fn sorted(value: &Value, out: &mut String) {
            match value {
                Value::Object(object) => {
                    let mut keys: Vec<&String> = object.keys().collect();
                    keys.sort();
                    out.push('{');
                    for key in keys {
                        out.push_str(&Value::String(key.clone()).to_string());
                        out.push(':');
                        sorted(&object[key], out);
                        out.push(',');
                    }
                    out.push('}');
                }
                Value::Array(items) => {
                    out.push('[');
                    for item in items {
                        sorted(item, out);
                        out.push(',');
                    }
                    out.push(']');
                }
                scalar => out.push_str(&scalar.to_string()),
            }
        }
        let mut out = format!("{}:", Value::String(self.name.clone()));
        sorted(&Value::Object(self.arguments.clone()), &mut out);
        out
    }
}

/// Why a call is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There is no such tool.
    UnknownTool,
    /// The text is no call that can be read.
    Unreadable,
    /// The reply ended within it.
    CutOff,
    /// The arguments do not fit.
    Arguments,
    /// A tool with effects, called within prose.
    InProse,
}

/// A call that is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The tool it named, if any.
    pub name: Option<String>,
    /// The kind of fault.
    pub fault: Fault,
    /// What to tell the model.
    pub reason: String,
}

/// What a model server handed over.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// The text.
    pub content: String,
    /// Structured calls: name and arguments as they came, `None` where they were left out.
    pub calls: Vec<(String, Option<Value>)>,
    /// The server stopped at a limit (`done_reason` or `finish_reason` is `length`).
    pub cut_off: bool,
}

impl Reply {
    /// Reads a message as Ollama and servers of OpenAI's shape send it. Thoughts in fields of their own are left out.
    pub fn of(message: &Value, cut_off: bool) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let calls = message.get("tool_calls").and_then(Value::as_array);
        Self {
            content: message.get("content").map(text).unwrap_or_default(),
            calls: calls
                .into_iter()
                .flatten()
                .map(|call| {
                    let call = call.get("function").unwrap_or(call);
                    (
                        call.get("name").map(text).unwrap_or_default(),
                        call.get("arguments").cloned(),
                    )
                })
                .collect(),
            cut_off,
        }
    }
}

/// A reply, read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// Calls to make, in order.
    pub calls: Vec<Call>,
    /// Calls not to make, in order.
    pub refused: Vec<Refused>,
    /// What of the text is meant for people.
    pub text: String,
    /// Calls beyond [`MAX_CALLS`] that were not read.
    pub beyond: usize,
}

impl Reading {
    /// There is neither a call nor an answer: the model must be asked again, once.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.refused.is_empty() && self.text.trim().is_empty()
    }

    /// The note to the model about what was refused, `None` if nothing was. At most about 2,000 characters.
    pub fn feedback(&self) -> Option<String> {
        if self.refused.is_empty() && self.beyond == 0 {
            return None;
        }
        let mut lines: Vec<String> = self
            .refused
            .iter()
            .take(5)
            .map(|refused| {
                let name = refused.name.as_deref().unwrap_or("a call");
                format!("{}: {}", shown(name, 60), shown(&refused.reason, 300))
            })
            .collect();
        if self.refused.len() > 5 {
            lines.push(format!(
                "{} more calls were refused",
                self.refused.len() - 5
            ));
        }
        if self.beyond > 0 {
            lines.push(format!(
                "{} calls beyond the first {MAX_CALLS} were not read",
                self.beyond
            ));
        }
        Some(lines.join("\n"))
    }
}

fn shown(text: &str, limit: usize) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(limit)
        .collect()
}

/// A call before it is held against the tools.
struct Raw {
    name: String,
    arguments: Option<Value>,
    channel: Channel,
}

/// Something in a text that tries to be a call.
enum Attempt {
    Call(Raw),
    Broken(Refused),
}

/// Reads a reply against the tools on offer.
pub fn read(reply: &Reply, tools: &[Tool]) -> Reading {
    let mut reading = Reading::default();
    let content = think::strip(&reply.content);
    let mut attempts: Vec<Attempt> = reply
        .calls
        .iter()
        .map(|(name, arguments)| {
            Attempt::Call(Raw {
                name: name.clone(),
                arguments: arguments.clone(),
                channel: Channel::Structured,
            })
        })
        .collect();
    if content.len() <= REPLY_MAX_BYTES {
        let found = find::find(&content, reply.cut_off, tools);
        // Beside structured calls, a call in the text is the same once more; it is neither made nor shown.
        if attempts.is_empty() {
            attempts = found.attempts;
        }
        reading.text = found.text;
    } else {
        reading.text = content;
    }
    reading.beyond = attempts.len().saturating_sub(MAX_CALLS);
    for attempt in attempts.into_iter().take(MAX_CALLS) {
        match attempt {
            Attempt::Call(raw) => match fit(raw, tools) {
                Ok(call) => reading.calls.push(call),
                Err(refused) => reading.refused.push(refused),
            },
            Attempt::Broken(refused) => reading.refused.push(refused),
        }
    }
    reading
}

/// Whether a text that begins like `start`, without thoughts, may turn out to be a call: a stream holds it back
/// until this says no or the text has ended. Blank starts may.
pub fn may_become_call(start: &str) -> bool {
    const STARTS: [&str; 8] = [
        "{",
        "[",
        "<tool_call>",
        "<function=",
        "<|",
        "```",
        "call:",
        "[TOOL_CALLS]",
    ];
    let start = start.trim_start();
    STARTS
        .iter()
        .any(|call| start.starts_with(call) || call.starts_with(start))
}

fn fit(raw: Raw, tools: &[Tool]) -> Result<Call, Refused> {
    let refuse = |fault, reason: String| Refused {
        name: Some(shown(&raw.name, 60)),
        fault,
        reason,
    };
    let Some(tool) = tools.iter().find(|tool| tool.name == raw.name) else {
        let known: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        return Err(refuse(
            Fault::UnknownTool,
            format!("there is no such tool; on offer: {known}"),
        ));
    };
    if raw.channel == Channel::Prose && !tool.reads_only {
        return Err(refuse(
            Fault::InProse,
            "a tool with effects is not called from an example in a text; make the call itself"
                .to_owned(),
        ));
    }
    let (arguments, unwrapped) =
        object(raw.arguments).map_err(|reason| refuse(Fault::Arguments, reason))?;
    let (arguments, mut repairs) = schema::fit(&tool.parameters, arguments)
        .map_err(|reason| refuse(Fault::Arguments, reason))?;
    if unwrapped {
        repairs.insert(0, "arguments from text");
    }
    Ok(Call {
        name: raw.name,
        arguments,
        channel: raw.channel,
        repairs,
    })
}

/// Arguments as an object, and whether they were text.
fn object(arguments: Option<Value>) -> Result<(Map<String, Value>, bool), String> {
    let mut value = arguments.unwrap_or(Value::Null);
    for unwrapped in 0..=MAX_UNWRAPS {
        match value {
            Value::Object(object) => return Ok((object, unwrapped > 0)),
            Value::Null => return Ok((Map::new(), unwrapped > 0)),
            Value::String(text) if text.trim().is_empty() => return Ok((Map::new(), true)),
            Value::String(text) => {
                value = json::whole(&text).map_err(|problem| {
                    format!(
                        "the arguments are no JSON object: {} at byte {}",
                        problem.what, problem.at
                    )
                })?;
            }
            Value::Array(_) => {
                return Err(
                    "the arguments are a list; they must be an object with names".to_owned(),
                );
            }
            Value::Bool(_) | Value::Number(_) => {
                return Err(
                    "the arguments are a single value; they must be an object with names"
                        .to_owned(),
                );
            }
        }
    }
    Err("the arguments are text within text".to_owned())
}

#[cfg(test)]
mod tests;
