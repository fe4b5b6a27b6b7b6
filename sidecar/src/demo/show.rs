//! What the demo shows: lines for people, narrow and without colours; or one JSON object a step.

use std::time::Instant;

use serde_json::json;

use crate::cli::Output;
use crate::error::Failure;

/// Columns that a line may take, so that it fits the narrowest common terminal.
const WIDTH: usize = 78;
/// Most lines of one quote.
const QUOTE_LINES: usize = 6;

/// The display of the demo.
pub(super) struct Show<'a> {
    out: &'a mut Output,
    number: usize,
    began: Instant,
}

impl<'a> Show<'a> {
    pub fn new(out: &'a mut Output) -> Self {
        Show {
            out,
            number: 0,
            began: Instant::now(),
        }
    }

    pub fn title(&mut self, text: &str) {
        self.out.line(text);
    }

    /// Whether a progress bar would be seen.
    pub fn is_watched(&self) -> bool {
        self.out.is_terminal()
    }

    /// A step begins.
    pub fn begin(&mut self, what: &str) {
        self.number += 1;
        self.began = Instant::now();
        self.out.line("");
        self.out.line(format!("{} {what}", self.number));
    }

    /// A line within a step, whatever its length: SQL and commands are copied whole.
    pub fn line(&mut self, text: &str) {
        self.out.line(format!("    {text}").trim_end());
    }

    /// A sentence within a step, wrapped.
    pub fn say(&mut self, text: &str) {
        for line in wrap(text, WIDTH - 4) {
            self.line(&line);
        }
    }

    /// A quote, marked and wrapped, cut after a few lines.
    pub fn quote(&mut self, text: &str) {
        let lines: Vec<String> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .flat_map(|line| wrap(line, WIDTH - 6))
            .collect();
        for line in lines.iter().take(QUOTE_LINES) {
            self.line(&format!("| {line}"));
        }
        if lines.len() > QUOTE_LINES {
            self.line("| ...");
        }
    }

    /// The step held.
    pub fn done(&mut self, step: &'static str, detail: &str) {
        let took = self.began.elapsed();
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.out
            .object(&json!({"step": step, "ok": true, "ms": ms, "detail": detail}));
        let time = format!("{:.2} s", took.as_secs_f64());
        let room = WIDTH.saturating_sub(4 + time.len());
        let detail = format!("{detail:room$}");
        self.out.line(format!("  \u{2713} {detail}{time}"));
    }

    /// The step did not hold. The failure is shown here, and given back for the exit code.
    pub fn end(&mut self, step: &'static str, outcome: Result<(), Failure>) -> Failure {
        let failure = outcome
            .err()
            .unwrap_or_else(|| Failure::internal("a step ended without a failure"));
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.out
            .object(&json!({"step": step, "ok": false, "ms": ms, "detail": failure.to_string()}));
        self.out.line(format!("  \u{2717} {failure}"));
        self.out.said();
        failure
    }
}

/// Breaks a line between words. A word longer than the width stays whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn lines_break_between_words_only() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one two three", 6), ["one", "two", "three"]);
        assert_eq!(wrap("unbreakable", 3), ["unbreakable"]);
        assert_eq!(wrap("  ", 3), Vec::<String>::new());
        assert_eq!(wrap("äöü äöü", 7), ["äöü äöü"]);
    }
}
