//! Sentences of a text as byte spans.
//!
//! First the lines are grouped into blocks: paragraphs, list items, headings, table rows, lines of fenced
//! code. Blank lines separate paragraphs; a single line break inside one is just a blank. Then each block
//! is cut after sentence-ending punctuation, unless what stands before or after it says otherwise
//! (abbreviations, initials, decimals and versions, a lower-case continuation after a quotation).

mod abbreviations;
mod blocks;
mod letters;

pub(crate) use blocks::BlockKind;

use abbreviations::Abbreviation;
use letters::{is_alphabetic, is_alphanumeric, is_lowercase};

/// A range of bytes of a text, on character boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

/// A sentence and its place in the layout of the text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sentence {
    /// The sentence without list or heading marks and surrounding blanks. Empty if its block has marks only.
    pub span: Span,
    /// Start of the block's mark if this is its first sentence, else start of the sentence.
    pub from: usize,
    pub kind: BlockKind,
    pub opens_block: bool,
}

/// The sentences of `text` in order, without surrounding blanks, list marks and heading marks.
///
/// Every visible character that is not such a mark lies in exactly one span.
pub fn sentences(text: &str) -> Vec<Span> {
    layout(text)
        .into_iter()
        .map(|sentence| sentence.span)
        .filter(|span| span.start < span.end)
        .collect()
}

/// The sentences of `text` with their layout; blocks of marks only appear with an empty span.
pub(crate) fn layout(text: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    for block in blocks::blocks(text) {
        let content = &text[block.content.start..block.content.end];
        let mut opens_block = true;
        let mut at = 0;
        while at < content.len() || opens_block {
            let end = sentence_end(content, at);
            let trimmed = content[at..end].trim_end();
            let span = Span {
                start: block.content.start + at,
                end: block.content.start + at + trimmed.len(),
            };
            let from = if opens_block { block.start } else { span.start };
            found.push(Sentence {
                span,
                from,
                kind: block.kind,
                opens_block,
            });
            opens_block = false;
            at = end + leading_blanks(&content[end..]);
        }
    }
    found
}

fn leading_blanks(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// The end of the sentence that begins at `start`, after its punctuation and closing quotes.
fn sentence_end(text: &str, start: usize) -> usize {
    let mut rest = text[start..].char_indices().peekable();
    while let Some((offset, ch)) = rest.next() {
        if !is_terminator(ch) {
            continue;
        }
        let mark_at = start + offset;
        let mut ends_unspaced = is_unspaced_terminator(ch);
        let mut end = mark_at + ch.len_utf8();
        let mut marks = 1;
        while let Some((_, next)) = rest.next_if(|&(_, next)| is_terminator(next)) {
            ends_unspaced |= is_unspaced_terminator(next);
            end += next.len_utf8();
            marks += 1;
        }
        while let Some((_, next)) = rest.next_if(|&(_, next)| is_closer(next)) {
            end += next.len_utf8();
        }
        let following = &text[end..];
        if following.is_empty() || ends_unspaced {
            return end;
        }
        if !following.starts_with(char::is_whitespace) {
            continue;
        }
        let next_word = following.trim_start();
        // Dots between blanks stand for words left out.
        let omits = marks > 1 && ch == '.' && text[..mark_at].ends_with(char::is_whitespace);
        if omits
            || continues(next_word)
            || (ch == '.' && marks == 1 && is_abbreviation(&text[start..mark_at], next_word))
        {
            continue;
        }
        return end;
    }
    text.len()
}

/// Whether the text after the punctuation goes on with the same sentence.
fn continues(next: &str) -> bool {
    next.chars()
        .next()
        .is_some_and(|ch| is_lowercase(ch) || matches!(ch, ',' | ';' | ':'))
}

fn is_abbreviation(before: &str, next: &str) -> bool {
    match abbreviations::kind_of(last_word(before)) {
        None => false,
        Some(Abbreviation::BeforeName) => true,
        Some(Abbreviation::BeforeNumber) => {
            next.starts_with(|ch: char| ch.is_ascii_digit() || matches!(ch, '(' | '#'))
        }
        Some(Abbreviation::Anywhere) => !abbreviations::starts_sentence(first_word(next)),
    }
}

/// The letters and dots that `text` ends with, at most as many as an abbreviation can have.
fn last_word(text: &str) -> &str {
    let length: usize = text
        .chars()
        .rev()
        .take(abbreviations::MAX_CHARS + 1)
        .take_while(|&ch| is_alphanumeric(ch) || ch == '.')
        .map(char::len_utf8)
        .sum();
    &text[text.len() - length..]
}

fn first_word(text: &str) -> &str {
    let end = text
        .find(|ch: char| !is_alphabetic(ch))
        .unwrap_or(text.len());
    &text[..end]
}

/// Characters that can end a sentence.
fn is_terminator(ch: char) -> bool {
    matches!(
        ch,
        '.' | '!' | '?' | '…' | '؟' | '۔' | '।' | '॥' | '።' | '‼' | '⁇' | '⁈' | '⁉'
    ) || is_unspaced_terminator(ch)
}

/// Those of scripts that put no blank after them.
fn is_unspaced_terminator(ch: char) -> bool {
    matches!(ch, '。' | '！' | '？' | '｡' | '．')
}

/// Quotes and brackets that belong to the sentence they close.
fn is_closer(ch: char) -> bool {
    matches!(
        ch,
        '"' | '\''
            | ')'
            | ']'
            | '}'
            | '”'
            | '’'
            | '»'
            | '›'
            | '」'
            | '』'
            | '】'
            | '）'
            | '〉'
            | '》'
            | '*'
            | '_'
    )
}
