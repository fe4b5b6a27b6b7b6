//! Fences, inline code and quotation marks.

use super::super::words::is_word;
use super::index::{Index, Run};
use super::{Form, Skip};

/// A fence or inline code that begins at `at` with the mark `c`.
pub(super) fn fence(text: &str, index: &Index, at: usize, c: char) -> Option<Skip> {
    let opening = index.run_at(c, at);
    if opening.len >= 3 {
        return Skip::to(Form::Fence, fence_end(text, index, opening, c));
    }
    if c == '~' {
        return None;
    }
    let closing = index
        .runs_from(c, opening.end())
        .find(|run| run.len == opening.len);
    // Without a partner it is an accent, and so are all of its length that follow.
    let closing = closing?;
    Skip::quoted(
        text,
        Form::InlineCode,
        opening.end()..closing.start,
        closing.end(),
    )
}

fn fence_end(text: &str, index: &Index, opening: Run, c: char) -> usize {
    let first_line = index.next_break(opening.end()).unwrap_or(text.len());
    let opens_line = blank_before(text, opening.start);
    for run in index
        .runs_from(c, opening.end())
        .filter(|run| run.len >= opening.len)
    {
        let same_line = run.start < first_line;
        // A fence within a line ends at the same marks wherever they are; one of lines where they begin or end one.
        if !opens_line || same_line || closes_line(text, run) {
            return run.end();
        }
    }
    text.len()
}

/// The run ends a line, or begins one and is not followed by the name of a language.
fn closes_line(text: &str, run: Run) -> bool {
    let after = &text[run.end()..];
    if !blank_before(text, run.start) {
        return after
            .chars()
            .find(|c| *c == '\n' || !c.is_whitespace())
            .is_none_or(|c| c == '\n');
    }
    after.chars().next().is_none_or(char::is_whitespace)
}

fn blank_before(text: &str, at: usize) -> bool {
    let before = text[..at].trim_end_matches([' ', '\t']);
    before.is_empty() || before.ends_with('\n')
}

/// Pairs of marks: opening, closing ones, and whether an unclosed one goes to the end of the message.
const PAIRS: &[(char, &[char], bool)] = &[
    ('\u{201c}', &['\u{201d}'], true),
    ('\u{201e}', &['\u{201c}', '\u{201d}'], true),
    ('\u{ab}', &['\u{bb}'], true),
    ('\u{bb}', &['\u{ab}'], false),
    ('\u{2039}', &['\u{203a}'], true),
    ('\u{300c}', &['\u{300d}'], true),
    ('\u{300e}', &['\u{300f}'], true),
    ('\u{ff02}', &['\u{ff02}'], true),
    ('\u{301d}', &['\u{301e}', '\u{301f}'], true),
    // A closing mark where none is open: Swedish and Finnish quote with it on both sides.
    ('\u{201d}', &['\u{201d}'], false),
];

/// A quotation that begins at `at` with the mark `c`.
pub(super) fn quotation(text: &str, index: &Index, at: usize, c: char) -> Option<Skip> {
    match c {
        '"' | '\'' if index.run_at(c, at).len >= 3 => {
            let opening = index.run_at(c, at);
            let closing = index.runs_from(c, opening.end()).find(|run| run.len >= 3);
            Skip::to(Form::Fence, closing.map_or(text.len(), Run::end))
        }
        '"' => double(text, at),
        '\'' => single(text, index, at, '\''),
        '\u{2018}' => single(text, index, at, '\u{2019}'),
        '\u{201a}' => single(text, index, at, '\u{2018}'),
        _ => {
            let (_, closings, to_end) = PAIRS.iter().find(|(opening, _, _)| *opening == c)?;
            paired(text, index, at, c, closings, *to_end)
        }
    }
}

/// Straight double marks. A mark that can only open another quotation nests; a backslash takes a mark's meaning.
fn double(text: &str, at: usize) -> Option<Skip> {
    let before = text[..at].chars().next_back();
    let after = text[at + 1..].chars().next();
    // 27" is a size.
    let size = before.is_some_and(|c| c.is_ascii_digit())
        && after.is_none_or(|c| c.is_whitespace() || matches!(c, ',' | '.' | ')'));
    if size {
        return None;
    }
    let mut depth = 1usize;
    let mut previous = '"';
    let mut escaped = false;
    let mut chars = text[at + 1..].char_indices().peekable();
    while let Some((offset, c)) = chars.next() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == '"' {
            let next = chars.peek().map(|(_, c)| *c);
            let opens = (previous.is_whitespace() || matches!(previous, '(' | '[' | '{'))
                && next.is_some_and(|c| !c.is_whitespace() && is_word(c));
            depth = if opens { depth + 1 } else { depth - 1 };
            if depth == 0 {
                let end = at + 1 + offset;
                return Skip::quoted(text, Form::Quote, at + 1..end, end + 1);
            }
        }
        previous = c;
    }
    Skip::to(Form::Quote, text.len())
}

/// Single marks, which are apostrophes as well: the opening one follows no word, the closing one precedes none.
fn single(text: &str, index: &Index, at: usize, closing: char) -> Option<Skip> {
    let before = text[..at].chars().next_back();
    if before.is_some_and(is_word) {
        return None;
    }
    let inside = at + text[at..].chars().next().map_or(1, char::len_utf8);
    // Straight ones stay on their line, unless the quotation stands as a block of its own.
    let lead = text[..at].trim_end_matches([' ', '\t']);
    let block = lead.is_empty() || lead.ends_with(['\n', ':']);
    let close = index.closing_single(closing, inside)?;
    if closing == '\'' && !block && index.next_break(inside).is_some_and(|at| at < close) {
        return None;
    }
    Skip::quoted(text, Form::Quote, inside..close, close + closing.len_utf8())
}

fn paired(
    text: &str,
    index: &Index,
    at: usize,
    opening: char,
    closings: &[char],
    to_end: bool,
) -> Option<Skip> {
    let inside = at + opening.len_utf8();
    let next_closing = |from: usize| {
        closings
            .iter()
            .filter_map(|c| index.marks_from(*c, from).first().map(|at| (*at, *c)))
            .min()
    };
    let nests = !closings.contains(&opening) && to_end && opening != '\u{201e}';
    let mut depth = 1usize;
    let mut from = inside;
    loop {
        let Some((close, c)) = next_closing(from) else {
            // All that follow find none either, so this looks once.
            return if to_end {
                Skip::to(Form::Quote, text.len())
            } else {
                None
            };
        };
        if nests {
            let openings = index.marks_from(opening, from);
            depth += openings.partition_point(|&at| at < close);
        }
        depth -= 1;
        let end = close + c.len_utf8();
        if depth == 0 {
            return Skip::quoted(text, Form::Quote, inside..close, end);
        }
        from = end;
    }
}
