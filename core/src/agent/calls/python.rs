//! `[name(argument="value"), other()]`, read by a parser of its own and never evaluated.

use serde_json::{Map, Value};

use super::json::{self, Problem};

/// The calls of a list, and the offset after it.
pub(super) fn calls(text: &str) -> Result<(Vec<(String, Value)>, usize), Problem> {
    let mut at = skip(text, 0);
    expect(text, &mut at, '[')?;
    let mut calls = Vec::new();
    loop {
        at = skip(text, at);
        if text[at..].starts_with(']') {
            return Ok((calls, at + 1));
        }
        let name = identifier(text, &mut at)?;
        at = skip(text, at);
        expect(text, &mut at, '(')?;
        let mut arguments = Map::new();
        loop {
            at = skip(text, at);
            if text[at..].starts_with(')') {
                at += 1;
                break;
            }
            let key = identifier(text, &mut at)?;
            at = skip(text, at);
            expect(text, &mut at, '=')?;
            let (value, length) = json::value(&text[at..]).map_err(|problem| Problem {
                at: at + problem.at,
                ..problem
            })?;
            at += length;
            if arguments.insert(key, value).is_some() {
                return problem(text, at, "an argument occurs twice");
            }
            comma(text, &mut at, ')')?;
        }
        calls.push((name, Value::Object(arguments)));
        comma(text, &mut at, ']')?;
    }
}

/// Whether a text begins like such a list.
pub(super) fn looks_like(text: &str) -> bool {
    let Some(body) = text.strip_prefix('[') else {
        return false;
    };
    let body = body.trim_start();
    let end = body
        .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')))
        .unwrap_or(body.len());
    end > 0 && body[end..].starts_with('(')
}

fn skip(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start().len()
}

fn problem<T>(text: &str, at: usize, what: &'static str) -> Result<T, Problem> {
    Err(Problem {
        at,
        what,
        cut_off: at >= text.len(),
    })
}

fn expect(text: &str, at: &mut usize, c: char) -> Result<(), Problem> {
    if !text[*at..].starts_with(c) {
        return problem(text, *at, "not a list of calls");
    }
    *at += c.len_utf8();
    Ok(())
}

fn comma(text: &str, at: &mut usize, closing: char) -> Result<(), Problem> {
    *at = skip(text, *at);
    if text[*at..].starts_with(closing) {
        return Ok(());
    }
    expect(text, at, ',')
}

fn identifier(text: &str, at: &mut usize) -> Result<String, Problem> {
    let rest = &text[*at..];
    let end = rest
        .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')))
        .unwrap_or(rest.len());
    if end == 0 {
        return problem(text, *at, "a name is due");
    }
    *at += end;
    Ok(rest[..end].to_owned())
}
