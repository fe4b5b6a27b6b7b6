//! What a command prints: lines for people, or JSON.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::error::{Failure, Kind, Outcome};

/// Standard output in the form that was asked for. What cannot be written (a closed pipe) is let go.
pub struct Output {
    json: bool,
    /// The output has told of the failure; nothing is to be added.
    said: bool,
}

impl Output {
    /// Output as JSON, or for people.
    pub fn new(json: bool) -> Self {
        Output { json, said: false }
    }

    /// Whether JSON was asked for.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether somebody watches.
    pub fn is_terminal(&self) -> bool {
        !self.json && io::stdout().is_terminal()
    }

    /// One JSON object on a line of its own, in JSON mode only.
    pub fn object(&mut self, value: &impl Serialize) {
        if !self.json {
            return;
        }
        match serde_json::to_string(value) {
            Ok(text) => self.write(&text),
            Err(error) => self.write(&format!(
                "{{\"error\":\"the answer cannot be written as JSON: {error}\"}}"
            )),
        }
    }

    /// JSON that is text already, in JSON mode only.
    pub fn raw(&mut self, json: &str) {
        if self.json {
            self.write(json);
        }
    }

    /// A line for people.
    pub fn line(&mut self, text: impl AsRef<str>) {
        if !self.json {
            self.write(text.as_ref());
        }
    }

    /// Text as it is, in either mode.
    pub fn text(&mut self, text: &str) {
        // The reader may have left, as `head` does.
        let _ = io::stdout().write_all(text.as_bytes());
    }

    /// A failed command: to stderr for people, as the last object in JSON mode.
    pub fn failure(&mut self, failure: &Failure) {
        if self.said {
            return;
        }
        if self.json {
            self.object(failure);
        } else {
            let _ = writeln!(io::stderr(), "cortex: {failure}");
        }
    }

    /// The output has told of a failure; it is not to be told again.
    pub fn said(&mut self) {
        self.said = true;
    }

    /// Ends a command whose output already says that a check did not pass.
    pub fn not_passed(&mut self) -> Outcome<()> {
        self.said = true;
        Err(Failure::new(
            Kind::CheckFailed,
            "not_passed",
            "a check did not pass",
        ))
    }

    fn write(&mut self, text: &str) {
        let _ = writeln!(io::stdout(), "{text}");
    }
}
