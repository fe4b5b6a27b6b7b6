//! Finds what tries to be a call in a text.

use serde_json::{Map, Value};

use super::json::{self, Problem};
use super::{Attempt, Channel, Fault, MAX_CALLS, Raw, Refused, Tool, python};

/// Attempts and what is left of the text.
pub(super) struct Found {
    pub(super) attempts: Vec<Attempt>,
    pub(super) text: String,
}

/// Marks with which templates end or separate; they are no text.
const TEMPLATE_MARKS: [&str; 12] = [
    "<|eom_id|>",
    "<|eot_id|>",
    "<|im_end|>",
    "<|im_start|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<|python_tag|>",
    "<|tool_call|>",
    "<|\"|>",
    "[TOOL_CALLS]",
];

pub(super) fn find(content: &str, cut_off: bool, tools: &[Tool]) -> Found {
    let text = content.trim();
    for mark in ["<tool_call>", "<function="] {
        if text.contains(mark) {
            return tagged(text, cut_off);
        }
    }
    let body = without_marks(text);
    let announced = body.len() < text.len()
        && (text.starts_with("[TOOL_CALLS]")
            || text.starts_with("<|python_tag|>")
            || text.starts_with("<|tool_call|>"));
    let body = body.trim();
    if python::looks_like(body) {
        return python_list(body, cut_off);
    }
    if body.starts_with(['{', '['])
        && let Some(found) = bare(body, announced, cut_off)
    {
        return found;
    }
    if announced || text.contains("<|\"|>") || names_call(body) {
        return broken(
            None,
            "this is no call that can be read; give JSON with name and arguments",
            cut_off,
        );
    }
    prose(body, cut_off, tools)
}

fn without_marks(text: &str) -> String {
    let mut text = text.to_owned();
    for mark in TEMPLATE_MARKS {
        if text.contains(mark) {
            text = text.replace(mark, "");
        }
    }
    text
}

/// `call:name{`, the form of one family of models.
fn names_call(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("call:") else {
        return false;
    };
    let end = rest
        .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')))
        .unwrap_or(rest.len());
    end > 0 && rest[end..].starts_with(['{', '('])
}

fn broken(name: Option<String>, reason: impl Into<String>, cut_off: bool) -> Found {
    Found {
        attempts: vec![refusal(name, reason, cut_off)],
        text: String::new(),
    }
}

fn refusal(name: Option<String>, reason: impl Into<String>, cut_off: bool) -> Attempt {
    let (fault, reason) = if cut_off {
        (
            Fault::CutOff,
            "the reply was cut off within the call; make it shorter".to_owned(),
        )
    } else {
        (Fault::Unreadable, reason.into())
    };
    Attempt::Broken(Refused {
        name,
        fault,
        reason,
    })
}

fn explain(problem: &Problem) -> String {
    format!(
        "the call is no JSON: {} at byte {}",
        problem.what, problem.at
    )
}

/// Name and arguments, if a value is a call: it has both and nothing that a call has not.
fn as_call(value: &Value) -> Option<(String, Option<Value>)> {
    let object = value.as_object()?;
    if let Some(function) = object
        .get("function")
        .filter(|function| function.is_object())
    {
        return as_call(function);
    }
    const ARGUMENTS: [&str; 5] = ["arguments", "parameters", "args", "params", "input"];
    let known = |key: &String| {
        ARGUMENTS.contains(&key.as_str())
            || matches!(
                key.as_str(),
                "name" | "tool" | "type" | "id" | "function" | "tool_name"
            )
    };
    if !object.keys().all(known) {
        return None;
    }
    let name = ["name", "tool", "tool_name", "function"]
        .iter()
        .find_map(|key| object.get(*key)?.as_str())?;
    let arguments = ARGUMENTS.iter().find_map(|key| object.get(*key))?;
    Some((name.to_owned(), Some(arguments.clone())))
}

fn call(name: String, arguments: Option<Value>, channel: Channel) -> Attempt {
    Attempt::Call(Raw {
        name,
        arguments,
        channel,
    })
}

/// All calls of one value: itself, or those of a list, or of `{"tool_calls": [...]}`.
fn calls_of(value: &Value) -> Option<Vec<(String, Option<Value>)>> {
    let list = value
        .as_array()
        .or_else(|| value.get("tool_calls").and_then(Value::as_array));
    match list {
        Some(items) if !items.is_empty() => items.iter().map(as_call).collect(),
        Some(_) => None,
        None => as_call(value).map(|call| vec![call]),
    }
}

/// A text of nothing but JSON calls, with blanks, commas or semicolons between. `None` if it is something else.
fn bare(text: &str, announced: bool, cut_off: bool) -> Option<Found> {
    let mut attempts = Vec::new();
    let mut at = 0;
    while !text[at..].trim().is_empty() {
        match json::value(&text[at..]) {
            Ok((value, length)) => {
                let calls = calls_of(&value)?;
                attempts.extend(
                    calls
                        .into_iter()
                        .map(|(name, arguments)| call(name, arguments, Channel::Text)),
                );
                at += length;
                at = text.len()
                    - text[at..]
                        .trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ';' | ','))
                        .len();
            }
            // After whole calls, prose is prose.
            Err(_) if !attempts.is_empty() && !text[at..].starts_with(['{', '[']) => {
                return Some(Found {
                    attempts,
                    text: text[at..].to_owned(),
                });
            }
            Err(problem) => {
                if !(announced || !attempts.is_empty() || tries_to_call(text)) {
                    return None;
                }
                attempts.push(refusal(None, explain(&problem), cut_off || problem.cut_off));
                break;
            }
        }
    }
    Some(Found {
        attempts,
        text: String::new(),
    })
}

/// Whether a text that is no JSON has the two keys of a call.
fn tries_to_call(text: &str) -> bool {
    let has =
        |word: &str| text.contains(&format!("\"{word}\"")) || text.contains(&format!("'{word}'"));
    has("name")
        && ["arguments", "parameters", "args"]
            .iter()
            .any(|word| has(word))
}

fn python_list(text: &str, cut_off: bool) -> Found {
    match python::calls(text) {
        Ok((calls, end)) if text[end..].trim().is_empty() => Found {
            attempts: calls
                .into_iter()
                .map(|(name, arguments)| call(name, Some(arguments), Channel::Text))
                .collect(),
            text: String::new(),
        },
        Ok(_) => broken(None, "text follows the list of calls", cut_off),
        Err(problem) => broken(None, explain(&problem), cut_off || problem.cut_off),
    }
}

/// `<tool_call>` and `<function=name>`, with prose around.
fn tagged(text: &str, cut_off: bool) -> Found {
    let mut found = Found {
        attempts: Vec::new(),
        text: String::new(),
    };
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let next = ["<tool_call>", "<function="]
            .iter()
            .filter_map(|mark| Some((rest.find(mark)?, *mark)))
            .min();
        let Some((start, mark)) = next else {
            found.text.push_str(rest);
            break;
        };
        found.text.push_str(&rest[..start]);
        at += start;
        if mark == "<tool_call>" {
            let body = at + mark.len();
            let inside = text[body..].trim_start();
            if inside.starts_with("<function=") {
                at = text.len() - inside.len();
                continue;
            }
            match json::value(&text[body..]) {
                Ok((value, length)) => {
                    match calls_of(&value) {
                        Some(calls) => found.attempts.extend(
                            calls
                                .into_iter()
                                .map(|(name, arguments)| call(name, arguments, Channel::Text)),
                        ),
                        None => found.attempts.push(refusal(
                            None,
                            "the call lacks name or arguments",
                            false,
                        )),
                    }
                    at = body + length;
                }
                Err(problem) => {
                    found.attempts.push(refusal(
                        None,
                        explain(&problem),
                        cut_off || problem.cut_off,
                    ));
                    // Go on behind its end; without one all that follows belongs to it.
                    at = text[body..]
                        .find("</tool_call>")
                        .map_or(text.len(), |end| body + end);
                }
            }
        } else {
            at = function(text, at, cut_off, &mut found.attempts);
        }
        if found.attempts.len() > MAX_CALLS * 16 {
            break;
        }
    }
    found.text = without_marks(
        &found
            .text
            .replace("</tool_call>", "")
            .replace("</function>", ""),
    )
    .trim()
    .to_owned();
    found
}

/// `<function=name>` at `at`, with JSON or parameters; where to go on.
fn function(text: &str, at: usize, cut_off: bool, attempts: &mut Vec<Attempt>) -> usize {
    let head = at + "<function=".len();
    let Some(end) = text[head..]
        .find(['>', '\n', '<'])
        .filter(|end| text[head + end..].starts_with('>'))
    else {
        attempts.push(refusal(
            None,
            "the name of the function does not end",
            cut_off,
        ));
        return head;
    };
    let name = text[head..head + end].trim().trim_matches('"').to_owned();
    let mut body = head + end + 1;
    let inside = text[body..].trim_start();
    if inside.starts_with('{') {
        return match json::value(&text[body..]) {
            Ok((value, length)) => {
                attempts.push(call(name, Some(value), Channel::Text));
                body + length
            }
            Err(problem) => {
                attempts.push(refusal(
                    Some(name),
                    explain(&problem),
                    cut_off || problem.cut_off,
                ));
                text[body..]
                    .find("</function>")
                    .map_or(text.len(), |end| body + end)
            }
        };
    }
    let mut arguments = Map::new();
    loop {
        let rest = text[body..].trim_start();
        body = text.len() - rest.len();
        if rest.starts_with("</function>") {
            attempts.push(call(name, Some(Value::Object(arguments)), Channel::Text));
            return body + "</function>".len();
        }
        let Some((key, value, length)) = parameter(rest) else {
            let cut = cut_off || !rest.contains("</function>");
            attempts.push(refusal(
                Some(name),
                "a parameter of the call does not end",
                cut,
            ));
            return rest
                .find("</function>")
                .map_or(text.len(), |end| body + end);
        };
        if arguments.insert(key, Value::String(value)).is_some() {
            attempts.push(refusal(Some(name), "a parameter occurs twice", cut_off));
            return rest
                .find("</function>")
                .map_or(text.len(), |end| body + end);
        }
        body += length;
    }
}

/// `<parameter=key>value</parameter>`: the value without the line breaks that set it off.
fn parameter(text: &str) -> Option<(String, String, usize)> {
    let head = text.strip_prefix("<parameter=")?;
    let end = head.find('>')?;
    let key = head[..end].trim().trim_matches('"');
    if key.is_empty() || key.contains('\n') {
        return None;
    }
    let body = &head[end + 1..];
    let close = body.find("</parameter>")?;
    let value = body[..close].strip_prefix('\n').unwrap_or(&body[..close]);
    let value = value.strip_suffix('\n').unwrap_or(value);
    let length = text.len() - body.len() + close + "</parameter>".len();
    Some((key.to_owned(), value.to_owned(), length))
}

/// Fences and lines that hold a call, with or without prose around. Only of tools on offer: any other JSON is text.
fn prose(text: &str, cut_off: bool, tools: &[Tool]) -> Found {
    let mut attempts = Vec::new();
    let mut fence: Option<String> = None;
    let mut outside = String::new();
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        match &mut fence {
            None if bare.starts_with("```") && !bare[3..].contains('`') => {
                fence = Some(String::new())
            }
            None => {
                let one = if bare.starts_with('{') && bare.ends_with('}') {
                    on_offer(bare, tools)
                } else {
                    None
                };
                if let Some(found) = one {
                    attempts.extend(found);
                } else {
                    outside.push_str(line);
                }
            }
            Some(body) if bare == "```" => {
                let body = std::mem::take(body);
                fence = None;
                match on_offer(&body, tools) {
                    Some(found) => attempts.extend(found),
                    None => outside.push_str("code"),
                }
            }
            Some(body) => {
                body.push_str(line);
            }
        }
    }
    if let Some(body) = fence {
        match on_offer(&body, tools) {
            Some(found) => attempts.extend(found),
            None if tries_to_call(&body) && outside.trim().is_empty() => {
                attempts.push(refusal(None, "the call in the fence is no JSON", cut_off))
            }
            None => outside.push_str("code"),
        }
    }
    if attempts.is_empty() {
        // Nothing was taken: the text stays as it is, fences with their languages included.
        return Found {
            attempts,
            text: text.to_owned(),
        };
    }
    let channel = if outside.trim().is_empty() {
        Channel::Text
    } else {
        Channel::Prose
    };
    for attempt in &mut attempts {
        if let Attempt::Call(raw) = attempt {
            raw.channel = channel;
        }
    }
    let text = if channel == Channel::Text {
        String::new()
    } else {
        text.to_owned()
    };
    Found { attempts, text }
}

/// The calls that a piece of text is, if it is nothing else and all tools are on offer.
fn on_offer(text: &str, tools: &[Tool]) -> Option<Vec<Attempt>> {
    let calls = calls_of(&json::whole(text).ok()?)?;
    let known = calls
        .iter()
        .all(|(name, _)| tools.iter().any(|tool| tool.name == *name));
    known.then(|| {
        calls
            .into_iter()
            .map(|(name, arguments)| call(name, arguments, Channel::Prose))
            .collect()
    })
}
