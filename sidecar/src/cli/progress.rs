//! A bar for long work: on a terminal only, and on stderr, so that output stays clean.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const WIDTH: usize = 24;
const EVERY: Duration = Duration::from_millis(80);

/// One line that is drawn again and again. Dropping it clears the line.
pub struct Progress {
    label: String,
    drawn: Option<Instant>,
    visible: bool,
}

impl Progress {
    /// A bar with a label, shown if `wanted` and stderr is a terminal.
    pub fn new(label: impl Into<String>, wanted: bool) -> Self {
        Progress {
            label: label.into(),
            drawn: None,
            visible: wanted && io::stderr().is_terminal(),
        }
    }

    /// Shows `done` of `total`; of an unknown total, the count alone.
    pub fn show(&mut self, done: u64, total: Option<u64>, note: &str) {
        if !self.visible || self.drawn.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        self.drawn = Some(Instant::now());
        let bar = match total {
            Some(total) if total > 0 => {
                let full = usize::try_from(done.min(total) * WIDTH as u64 / total).unwrap_or(WIDTH);
                format!(
                    "[{}{}] {done}/{total}",
                    "=".repeat(full),
                    " ".repeat(WIDTH - full)
                )
            }
            _ if done > 0 => format!("{done}"),
            _ => String::new(),
        };
        let _ = write!(io::stderr(), "\r\x1b[2K  {}: {bar} {note}", self.label);
        let _ = io::stderr().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[2K");
            let _ = io::stderr().flush();
        }
    }
}
