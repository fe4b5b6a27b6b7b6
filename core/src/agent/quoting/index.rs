//! Where marks stand in a message, found once, so that no form has to look for its end again and again.

use std::collections::HashMap;

use super::super::words::is_word;
use super::markup;

/// A run of one character.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Run {
    pub(super) fn end(self) -> usize {
        self.start + self.len
    }
}

/// The marks of a message.
pub(super) struct Index {
    /// Runs of backticks, tildes and straight quotation marks.
    runs: HashMap<char, Vec<Run>>,
    /// Places of quotation marks that are not ASCII.
    marks: HashMap<char, Vec<usize>>,
    /// Those of the single marks that no word follows.
    single: HashMap<char, Vec<usize>>,
    /// Line breaks.
    breaks: Vec<usize>,
    /// The end of the element, tag or comment that begins at a place.
    pub(super) elements: HashMap<usize, usize>,
    /// The bracket that closes the one at a place, whatever stands between.
    pub(super) brackets: HashMap<usize, usize>,
    /// Places of straight double quotation marks.
    double: Vec<usize>,
    /// For each place of an opening bracket: whether brackets and blanks alone lead from it to a quotation mark.
    pub(super) leads_to_string: HashMap<usize, bool>,
}

impl Index {
    pub(super) fn of(text: &str) -> Self {
        let mut runs: HashMap<char, Vec<Run>> = HashMap::new();
        let mut marks: HashMap<char, Vec<usize>> = HashMap::new();
        let mut brackets = HashMap::new();
        let mut open: Vec<(usize, char)> = Vec::new();
        let mut double = Vec::new();
        let mut single: HashMap<char, Vec<usize>> = HashMap::new();
        let mut breaks = Vec::new();
        for (at, c) in text.char_indices() {
            if matches!(c, '\'' | '\u{2019}' | '\u{2018}')
                && !text[at + c.len_utf8()..]
                    .chars()
                    .next()
                    .is_some_and(is_word)
            {
                single.entry(c).or_default().push(at);
            }
            match c {
                '\n' => breaks.push(at),
                '`' | '~' | '"' | '\'' => {
                    let runs = runs.entry(c).or_default();
                    match runs.last_mut() {
                        Some(run) if run.end() == at => run.len += 1,
                        _ => runs.push(Run { start: at, len: 1 }),
                    }
                    if c == '"' {
                        double.push(at);
                    }
                }
                '[' | '{' => open.push((at, c)),
                ']' | '}' => {
                    let opening = if c == ']' { '[' } else { '{' };
                    if open.last().is_some_and(|(_, c)| *c == opening)
                        && let Some((start, _)) = open.pop()
                    {
                        brackets.insert(start, at + 1);
                    }
                }
                c if !c.is_ascii() => marks.entry(c).or_default().push(at),
                _ => {}
            }
        }
        let mut leads_to_string = HashMap::new();
        let mut leads = false;
        for (at, c) in text.char_indices().rev() {
            match c {
                '[' | '{' => {
                    leads_to_string.insert(at, leads);
                }
                '"' => leads = true,
                c if c.is_whitespace() => {}
                _ => leads = false,
            }
        }
        Self {
            runs,
            marks,
            single,
            breaks,
            elements: markup::elements(text),
            brackets,
            double,
            leads_to_string,
        }
    }

    /// The run of `c` that begins at `at`; a run entered in its middle counts from there.
    pub(super) fn run_at(&self, c: char, at: usize) -> Run {
        let run = self.runs_from(c, at).next();
        match run {
            Some(run) if run.start == at => run,
            // In the middle of a run: what is left of it.
            _ => {
                let runs = self.runs.get(&c).map_or(&[][..], Vec::as_slice);
                let before = runs.partition_point(|run| run.start <= at);
                let end = before.checked_sub(1).map_or(at + 1, |n| runs[n].end());
                Run {
                    start: at,
                    len: end.saturating_sub(at).max(1),
                }
            }
        }
    }

    /// The runs of `c` that begin at `from` or later.
    pub(super) fn runs_from(&self, c: char, from: usize) -> impl Iterator<Item = Run> + '_ {
        let runs = self.runs.get(&c).map_or(&[][..], Vec::as_slice);
        let first = runs.partition_point(|run| run.start < from);
        runs[first..].iter().copied()
    }

    /// The places of the mark `c` at `from` or later.
    pub(super) fn marks_from(&self, c: char, from: usize) -> &[usize] {
        let marks = self.marks.get(&c).map_or(&[][..], Vec::as_slice);
        &marks[marks.partition_point(|&at| at < from)..]
    }

    /// Whether a straight double quotation mark stands in `from..to`.
    pub(super) fn has_double(&self, from: usize, to: usize) -> bool {
        let first = self.double.partition_point(|&at| at < from);
        self.double.get(first).is_some_and(|&at| at < to)
    }

    /// The next place at `from` or later where a single mark can close.
    pub(super) fn closing_single(&self, mark: char, from: usize) -> Option<usize> {
        let places = self.single.get(&mark)?;
        places.get(places.partition_point(|&at| at < from)).copied()
    }

    /// The next line break at `from` or later.
    pub(super) fn next_break(&self, from: usize) -> Option<usize> {
        self.breaks
            .get(self.breaks.partition_point(|&at| at < from))
            .copied()
    }
}
