//! Grouping lines into blocks.

use super::Span;

/// What a block of lines is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// Lines of running text, or one line that stands alone.
    Paragraph,
    /// A list item with its continuation lines.
    Item,
    /// A heading marked with `#`.
    Heading,
}

/// A group of lines.
pub(super) struct Block {
    pub kind: BlockKind,
    /// Start of its mark, or of its text if it has none.
    pub start: usize,
    /// The text without marks of list or heading and without surrounding blanks.
    pub content: Span,
}

/// The blocks of `text`; every character that is not white space lies in one.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut fenced = false;
    let mut open = false;
    for line in lines(text) {
        let content = &text[line.start..line.end];
        let trimmed = content.trim_start();
        let trimmed_at = line.end - trimmed.len();
        let end = line.start + content.trim_end().len();
        if trimmed.is_empty() {
            open = false;
            continue;
        }
        let is_fence = trimmed.starts_with("```") || trimmed.starts_with("~~~");
        let (kind, mark) = if fenced || is_fence {
            (BlockKind::Paragraph, 0)
        } else {
            mark_of(trimmed)
        };
        let is_rule = is_rule(trimmed.trim_end());
        let stands_alone =
            fenced || is_fence || is_rule || kind == BlockKind::Heading || trimmed.starts_with('|');
        fenced ^= is_fence;
        match found.last_mut() {
            Some(block) if open && mark == 0 && !stands_alone => {
                if block.content.start == block.content.end {
                    // A mark with nothing behind it on its line.
                    block.content.start = trimmed_at;
                }
                block.content.end = end;
            }
            _ => found.push(Block {
                kind,
                start: trimmed_at,
                content: Span {
                    start: (trimmed_at + mark).min(end),
                    end,
                },
            }),
        }
        open = !stands_alone;
    }
    found
}

/// The lines of `text` without their breaks. LF, CR, CRLF, form feed, vertical tab, NEL and the Unicode
/// line and paragraph separators break lines.
fn lines(text: &str) -> impl Iterator<Item = Span> {
    let mut start = 0;
    let mut after_cr = false;
    text.split_inclusive([
        '\n', '\r', '\u{B}', '\u{C}', '\u{85}', '\u{2028}', '\u{2029}',
    ])
    .filter_map(move |line| {
        let span = Span {
            start,
            end: start + line.len(),
        };
        start = span.end;
        // The LF of CRLF is no line of its own.
        let is_second_half = after_cr && line == "\n";
        after_cr = line.ends_with('\r');
        (!is_second_half).then_some(span)
    })
}

/// Kind of the block that a line with this text (no leading blanks) opens, and the length of its mark.
fn mark_of(line: &str) -> (BlockKind, usize) {
    let heading = line.bytes().take_while(|&byte| byte == b'#').count();
    if (1..=6).contains(&heading) && line[heading..].starts_with(char::is_whitespace) {
        return (BlockKind::Heading, heading + blanks(&line[heading..]));
    }
    let bullet = match line.chars().next() {
        Some(ch @ ('-' | '*' | '+' | '•' | '‣' | '◦' | '▪' | '·' | '–')) => {
            ch.len_utf8()
        }
        _ => numbering(line),
    };
    if bullet > 0 && line[bullet..].starts_with(char::is_whitespace) {
        return (BlockKind::Item, bullet + blanks(&line[bullet..]));
    }
    (BlockKind::Paragraph, 0)
}

/// A line of three or more equal characters that underlines a heading or parts sections.
fn is_rule(line: &str) -> bool {
    let bytes = line.as_bytes();
    bytes.len() >= 3
        && bytes
            .first()
            .is_some_and(|first| b"-=*_~".contains(first) && bytes.iter().all(|byte| byte == first))
}

/// Length of `12.`, `12)` or `(12)`; 0 if the line does not begin so.
fn numbering(line: &str) -> usize {
    let open = usize::from(line.starts_with('('));
    let digits = line[open..].bytes().take_while(u8::is_ascii_digit).count();
    let closed = match line.as_bytes().get(open + digits) {
        Some(b')') => true,
        Some(b'.') => open == 0,
        _ => false,
    };
    if (1..=3).contains(&digits) && closed {
        open + digits + 1
    } else {
        0
    }
}

fn blanks(text: &str) -> usize {
    text.len() - text.trim_start().len()
}
