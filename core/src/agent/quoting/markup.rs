//! Tags, comments and brackets.

use std::collections::HashMap;

use super::index::Index;
use super::{Form, Skip};

/// The longest tag that is looked at, in bytes.
const TAG_MAX_BYTES: usize = 4_096;

/// Elements that have no content.
const VOID: [&str; 8] = ["br", "hr", "img", "input", "meta", "link", "wbr", "source"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Open,
    Close,
    Alone,
}

struct Tag {
    start: usize,
    end: usize,
    name: String,
    kind: Kind,
}

/// Where each element, tag or comment ends, by where it begins.
pub(super) fn elements(text: &str) -> HashMap<usize, usize> {
    let tags = tags(text);
    let mut ends: HashMap<usize, usize> = tags.iter().map(|tag| (tag.start, tag.end)).collect();
    let mut open: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut last_close: HashMap<&str, usize> = HashMap::new();
    let mut closed: HashMap<usize, usize> = HashMap::new();
    for tag in &tags {
        match tag.kind {
            Kind::Open => open.entry(&tag.name).or_default().push(tag.start),
            Kind::Close => {
                last_close.insert(&tag.name, tag.end);
                if let Some(start) = open.get_mut(tag.name.as_str()).and_then(Vec::pop) {
                    closed.insert(start, tag.end);
                }
            }
            Kind::Alone => {}
        }
    }
    for tag in tags.iter().filter(|tag| tag.kind == Kind::Open) {
        let board = tag.name.starts_with('[');
        // An element whose own end is missing goes on to the last end of its name: rather too far than not far enough.
        let end = closed.get(&tag.start).copied().or_else(|| {
            last_close
                .get(tag.name.as_str())
                .copied()
                .filter(|end| *end > tag.start)
        });
        match end {
            Some(end) => {
                ends.insert(tag.start, end);
            }
            // A word in brackets is nothing special.
            None if board => {
                ends.remove(&tag.start);
            }
            None if begins_line(text, tag.start) => {
                ends.insert(tag.start, text.len());
            }
            None => {}
        }
    }
    ends
}

fn begins_line(text: &str, at: usize) -> bool {
    let before = text[..at].trim_end_matches([' ', '\t']);
    before.is_empty() || before.ends_with('\n')
}

fn tags(text: &str) -> Vec<Tag> {
    let mut tags = Vec::new();
    for (start, c) in text.char_indices() {
        let rest = &text[start + c.len_utf8()..];
        let (open, close, prefix) = match c {
            '<' => ('<', '>', ""),
            '[' => ('[', ']', "["),
            _ => continue,
        };
        let (body, closing) = match rest.strip_prefix('/') {
            Some(body) => (body, true),
            None => (rest, false),
        };
        let length = name_length(body);
        if length == 0 {
            continue;
        }
        let name = &body[..length];
        let tail = &body[length..];
        // An address in angle brackets is no tag.
        let address = tail.starts_with("//") || name.contains('@');
        let separated = tail.starts_with(|c: char| {
            c == close || c == '/' || c.is_whitespace() || (c == '=' && open == '[')
        });
        if address || !separated {
            continue;
        }
        let Some(inner) = tag_end(tail, open, close) else {
            continue;
        };
        let end = text.len() - tail.len() + inner;
        let name = format!("{prefix}{}", name.to_lowercase());
        let kind = if closing {
            Kind::Close
        } else if tail[..inner - 1].ends_with('/') || VOID.contains(&name.as_str()) {
            Kind::Alone
        } else {
            Kind::Open
        };
        tags.push(Tag {
            start,
            end,
            name,
            kind,
        });
    }
    tags
}

fn name_length(body: &str) -> usize {
    if !body.starts_with(char::is_alphabetic) {
        return 0;
    }
    let name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '.' | '-');
    let length = body
        .char_indices()
        .take(64)
        .find(|(_, c)| !name(*c))
        .map_or(0, |(at, _)| at);
    body[..length].trim_end_matches(':').len()
}

/// After the mark that closes a tag, with what is quoted in its attributes passed over.
fn tag_end(tail: &str, open: char, close: char) -> Option<usize> {
    let mut quoted: Option<char> = None;
    let mut previous = ' ';
    for (at, c) in tail.char_indices() {
        if at > TAG_MAX_BYTES {
            return None;
        }
        match quoted {
            Some(mark) if c == mark => quoted = None,
            Some(_) => {}
            None if matches!(c, '"' | '\'') && previous == '=' => quoted = Some(c),
            None if c == close => return Some(at + c.len_utf8()),
            None if c == open => return None,
            None => {}
        }
        previous = c;
    }
    None
}

/// What begins at an opening angle bracket.
pub(super) fn element(text: &str, index: &Index, at: usize) -> Option<Skip> {
    let rest = &text[at..];
    // Marks of a chat template: nobody writes them, a pasted prompt has them.
    if rest.starts_with("<|") {
        return Skip::to(Form::Mail, text.len());
    }
    for (opening, closing) in [
        ("<!--", "-->"),
        ("<![CDATA[", "]]>"),
        ("<?xml", "?>"),
        ("<!DOCTYPE", ">"),
    ] {
        if let Some(body) = rest.strip_prefix(opening) {
            let end = body
                .find(closing)
                .map(|n| at + opening.len() + n + closing.len());
            return Skip::to(Form::Element, end.unwrap_or(text.len()));
        }
    }
    let end = *index.elements.get(&at)?;
    Skip::to(Form::Element, end)
}

/// What begins at a bracket or brace.
pub(super) fn brackets(text: &str, index: &Index, at: usize) -> Option<Skip> {
    if let Some(end) = index.elements.get(&at) {
        return Skip::to(Form::Element, *end);
    }
    if index.leads_to_string.get(&at) == Some(&true) {
        return Skip::to(Form::Json, json_end(text, at));
    }
    let end = *index.brackets.get(&at)?;
    if index.has_double(at, end) {
        Skip::to(Form::Json, end)
    } else {
        None
    }
}

/// After the JSON value that begins at `at`, brackets inside strings not counted; the end if it is not closed.
fn json_end(text: &str, at: usize) -> usize {
    let mut depth = 0usize;
    let mut string = false;
    let mut escaped = false;
    for (offset, byte) in text.as_bytes()[at..].iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if string => escaped = true,
            b'"' => string = !string,
            b'[' | b'{' if !string => depth += 1,
            b']' | b'}' if !string => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + offset + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}
