//! The rows, the questions, and the change: what there is to tell depends on where the rows are from.

use std::path::Path;

use serde::Deserialize;

use crate::error::{Failure, Outcome};

/// Largest file of rows that is read.
const LARGEST: u64 = 64 << 20;

/// One row of the table, as `tools/release_notes.py` wrote it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    #[serde(rename = "id")]
    _id: i32,
    #[serde(rename = "version")]
    _version: String,
    #[serde(rename = "released_on")]
    _released_on: Option<String>,
    #[serde(rename = "section")]
    _section: String,
    #[serde(rename = "body")]
    _body: String,
}

/// Where the rows are from.
#[derive(Deserialize)]
struct Source {
    kind: String,
    version: String,
}

/// A question, and words that its evidence must hold.
pub(super) struct Question {
    pub text: &'static str,
    pub answer: &'static str,
}

/// What the demo tells.
pub(super) struct Story {
    /// The rows, as a JSON array.
    pub json: String,
    /// How many.
    pub count: i64,
    /// Where they are from, for people.
    pub rows: String,
    /// Questions that they answer.
    pub questions: [Question; 3],
    /// In the row that answers the first question, this is replaced ...
    pub old: &'static str,
    /// ... by this.
    pub new: &'static str,
}

impl Story {
    /// Reads the rows, and their `SOURCE.json` beside them.
    pub fn read(path: &Path) -> Outcome<Self> {
        let text = read(path)?;
        let mut rows = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let row: &serde_json::value::RawValue = serde_json::from_str(line)
                .map_err(|error| wrong(path, &format!("line {}: {error}", number + 1)))?;
            serde_json::from_str::<Note>(line)
                .map_err(|error| wrong(path, &format!("line {}: {error}", number + 1)))?;
            rows.push(row);
        }
        let json = serde_json::to_string(&rows).map_err(|error| wrong(path, &error.to_string()))?;
        let about = path.with_file_name("SOURCE.json");
        let source: Source = serde_json::from_str(&read(&about)?)
            .map_err(|error| wrong(&about, &error.to_string()))?;
        let count = i64::try_from(rows.len()).map_err(|_| wrong(path, "too many rows"))?;
        let story = match source.kind.as_str() {
            "release notes" => Story {
                json,
                count,
                rows: "PostgreSQL's own release notes".to_owned(),
                questions: [
                    Question {
                        text: "How can log output be written as JSON?",
                        answer: "log_destination = jsonlog",
                    },
                    Question {
                        text: "Why was exclusive backup mode removed?",
                        answer: "could fail to start",
                    },
                    Question {
                        text: "Which compression methods can pg_basebackup use?",
                        answer: "compression",
                    },
                ],
                old: "log_destination = jsonlog",
                new: "log_destination = csvlog,jsonlog",
            },
            "catalogue" => Story {
                json,
                count,
                rows: format!("the function descriptions of PostgreSQL {}", source.version),
                questions: [
                    Question {
                        text: "How is the current query of a server process cancelled?",
                        answer: "cancel a server process",
                    },
                    Question {
                        text: "What is the encoding name of the current database?",
                        answer: "encoding name of current database",
                    },
                    Question {
                        text: "How is a logarithm with base m computed?",
                        answer: "logarithm base m of n",
                    },
                ],
                old: "cancel a server process' current query",
                new: "interrupt what a server process is running",
            },
            kind => {
                return Err(wrong(
                    &about,
                    &format!("rows of kind {kind:?} have no story"),
                ));
            }
        };
        Ok(story)
    }
}

fn read(path: &Path) -> Outcome<String> {
    let size = std::fs::metadata(path)
        .map_err(|error| {
            Failure::usage(format!(
                "the rows {} cannot be read: {error}",
                path.display()
            ))
            .hint("make them with: python3 tools/release_notes.py prepare")
        })?
        .len();
    if size > LARGEST {
        return Err(wrong(
            path,
            &format!("it has {size} bytes, the limit is {LARGEST}"),
        ));
    }
    std::fs::read_to_string(path).map_err(|error| wrong(path, &error.to_string()))
}

fn wrong(path: &Path, why: &str) -> Failure {
    Failure::usage(format!("{} cannot be used: {why}", path.display()))
        .hint("make it again with: python3 tools/release_notes.py prepare")
}
