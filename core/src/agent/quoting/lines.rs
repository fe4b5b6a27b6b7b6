//! Forms that are made of lines.

use super::{Form, Skip};

/// The form that the line beginning at `at` begins.
pub(super) fn at_line_start(text: &str, at: usize) -> Option<Skip> {
    let line = line_at(text, at);
    if is_block_quote(line) {
        return Skip::to(Form::BlockQuote, at + line.len());
    }
    if is_indented(line) && !line.trim().is_empty() && after_blank_line(text, at) {
        return Skip::to(Form::IndentedCode, indented_end(text, at, is_indented));
    }
    if is_forward_marker(line) || is_mail_start(text, at, line) {
        return Skip::to(Form::Mail, text.len());
    }
    if let Some(decoration) = marker(line, BEGINNINGS) {
        return Skip::to(Form::Document, document_end(text, at, decoration));
    }
    None
}

/// The indented lines below a line that ends in `: |` or `: >`, whose mark is at `at`.
pub(super) fn block_scalar(text: &str, at: usize) -> Option<Skip> {
    let before = text[..at].trim_end_matches([' ', '\t']);
    if before.len() == at || !before.ends_with(':') {
        return None;
    }
    let tail = text[at + 1..].trim_start_matches(|c: char| matches!(c, '+' | '-' | '1'..='9'));
    let tail = tail.trim_start_matches([' ', '\t', '\r']);
    if !tail.starts_with('\n') {
        return None;
    }
    let first = text.len() - tail.len() + 1;
    let end = indented_end(text, first, |line| line.starts_with([' ', '\t']));
    if end <= first {
        return None;
    }
    Skip::to(Form::BlockScalar, end)
}

/// The line that begins at `at`, without its line break. Only `\n` ends a line: any other break within material
/// would otherwise make a line of the person's out of its rest.
fn line_at(text: &str, at: usize) -> &str {
    let rest = text.get(at..).unwrap_or("");
    &rest[..rest.find('\n').unwrap_or(rest.len())]
}

fn is_block_quote(line: &str) -> bool {
    let body = line.trim_start_matches([' ', '\t']);
    line.len() - body.len() <= 3 && body.starts_with('>')
}

fn is_indented(line: &str) -> bool {
    line.starts_with('\t') || line.starts_with("    ")
}

fn after_blank_line(text: &str, at: usize) -> bool {
    let Some(before) = text[..at].strip_suffix('\n') else {
        return true;
    };
    let from = before.rfind('\n').map_or(0, |n| n + 1);
    before[from..].trim().is_empty()
}

/// The end of the lines from `at` on that are indented, blank ones between them included.
fn indented_end(text: &str, at: usize, indented: impl Fn(&str) -> bool) -> usize {
    let mut end = at;
    let mut next = at;
    while next < text.len() {
        let line = line_at(text, next);
        let after = next + line.len();
        if !line.trim().is_empty() {
            if !indented(line) {
                break;
            }
            end = after;
        }
        next = after + 1;
    }
    end
}

/// Lines that mail programs put above a forwarded or answered mail, without dashes and colon.
const FORWARDS: [&str; 12] = [
    "original message",
    "forwarded message",
    "begin forwarded message",
    "urspr\u{fc}ngliche nachricht",
    "weitergeleitete nachricht",
    "message d'origine",
    "message transf\u{e9}r\u{e9}",
    "mensaje original",
    "mensaje reenviado",
    "messaggio originale",
    "messaggio inoltrato",
    "doorgestuurd bericht",
];

/// First and last word of the line above an answered mail.
const ANSWERS: [(&str, &str); 6] = [
    ("on ", "wrote:"),
    ("am ", ":"),
    ("le ", "a \u{e9}crit :"),
    ("le ", "a \u{e9}crit:"),
    ("el ", "escribi\u{f3}:"),
    ("il ", "ha scritto:"),
];

fn is_forward_marker(line: &str) -> bool {
    let trimmed = line.trim();
    // No mail program writes a longer one.
    if trimmed.is_empty() || trimmed.chars().nth(300).is_some() {
        return false;
    }
    let lower = trimmed.to_lowercase();
    let bare = lower.trim_matches(|c: char| matches!(c, '-' | '_' | '=' | '*' | ':' | ' '));
    if FORWARDS.contains(&bare) {
        return true;
    }
    ANSWERS.iter().any(|(first, last)| {
        lower.starts_with(first)
            && lower.ends_with(last)
            && (*first != "am " || lower.contains("schrieb"))
    })
}

/// Keys of mail headers and speakers of transcripts, lower case.
const HEADERS: [&str; 43] = [
    "from",
    "to",
    "cc",
    "bcc",
    "subject",
    "date",
    "sent",
    "reply-to",
    "received",
    "received date",
    "message-id",
    "email_from",
    "content-type",
    "mime-version",
    "content",
    "von",
    "an",
    "betreff",
    "gesendet",
    "datum",
    "de",
    "\u{e0}",
    "objet",
    "envoy\u{e9}",
    "asunto",
    "fecha",
    "para",
    "enviado",
    "da",
    "a",
    "oggetto",
    "inviato",
    "data",
    "user",
    "human",
    "assistant",
    "system",
    "ai",
    "bot",
    "tool",
    "model",
    "developer",
    "function",
];

/// Two header lines one after the other.
fn is_mail_start(text: &str, at: usize, line: &str) -> bool {
    if !is_header(line) {
        return false;
    }
    // Some exports put all headers into one line.
    if line.split('|').skip(1).any(is_header) {
        return true;
    }
    let rest = text.get(at + line.len()..).unwrap_or("");
    is_header(line_at(rest.trim_start(), 0))
}

fn is_header(line: &str) -> bool {
    let line = line.trim_start_matches([' ', '\t', '*', '_', '#', '[']);
    let Some(colon) = line.bytes().take(40).position(|b| b == b':') else {
        return false;
    };
    let key = line[..colon]
        .trim_end_matches(['*', '_', ']', ' '])
        .to_lowercase();
    HEADERS.contains(&key.as_str())
}

const BEGINNINGS: &[&str] = &["begin", "start", "anfang", "d\u{e9}but", "inicio", "inizio"];
const ENDINGS: &[&str] = &["end", "stop", "ende", "fin", "fine"];

/// The decoration of a marker line: three or more of one mark in front of a line that holds one of `words`.
fn marker(line: &str, words: &[&str]) -> Option<char> {
    let line = line.trim();
    let first = line.chars().next()?;
    if !matches!(first, '-' | '=' | '*' | '_' | '~' | '+' | '<' | '>')
        || line.chars().nth(200).is_some()
    {
        return None;
    }
    let decorated = line.chars().take_while(|c| *c == first).count() >= 3;
    (decorated && super::super::words::has_any(line, words)).then_some(first)
}

/// After the line that ends the document, or the end of the message.
fn document_end(text: &str, at: usize, decoration: char) -> usize {
    let mut next = at + line_at(text, at).len() + 1;
    while next < text.len() {
        let line = line_at(text, next);
        if marker(line, ENDINGS) == Some(decoration) {
            return next + line.len();
        }
        next += line.len() + 1;
    }
    text.len()
}
