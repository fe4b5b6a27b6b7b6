//! What memory may learn: the person's statements about themselves. Rule `cortex-self/1`.
//!
//! From the instruction text of the current message, up to the first hand-over: sentences, without what follows a
//! colon or an opening bracket, cut into clauses where the first person begins anew. A clause counts if it is in the
//! first person or a standing request (`always … me`), and is neither about material (`my document says`) nor a
//! request (`I want you to`). English only: in other languages nothing is learned.

use super::quoting::OwnWords;
use super::words::{has_any, has_phrase, only_blanks, words};

/// Name of the rule, as recorded where it decided.
pub const NAME: &str = "cortex-self/1";

/// Shorter messages say nothing worth keeping, in characters.
pub const MESSAGE_MIN_CHARS: usize = 12;
/// The most statements of a message.
pub const MAX_STATEMENTS: usize = 8;
/// The longest statement, in characters.
pub const STATEMENT_MAX_CHARS: usize = 300;

const HANDLING: &[&str] = &[
    "summarise",
    "summarize",
    "translate",
    "analyse",
    "analyze",
    "proofread",
    "rewrite",
    "paraphrase",
    "parse",
    "classify",
    "review",
    "explain",
    "check",
    "extract",
    "convert",
    "format",
    "read",
];
const SHOWN: &[&str] = &["this", "these", "that", "it", "following", "below"];
const FIRST: &[&str] = &["i", "my"];
const MATERIAL: &[&str] = &[
    "task",
    "document",
    "doc",
    "docs",
    "file",
    "files",
    "note",
    "notes",
    "text",
    "e",
    "email",
    "emails",
    "mail",
    "message",
    "messages",
    "chat",
    "code",
    "script",
    "program",
    "snippet",
    "data",
    "dataset",
    "json",
    "csv",
    "yaml",
    "xml",
    "html",
    "table",
    "spreadsheet",
    "list",
    "report",
    "essay",
    "article",
    "paper",
    "draft",
    "output",
    "log",
    "logs",
    "prompt",
    "question",
    "query",
    "request",
    "homework",
    "assignment",
    "example",
    "sample",
    "template",
    "input",
    "profile",
    "transcript",
    "summary",
    "translation",
    "attachment",
    "screenshot",
    "pdf",
    "slide",
    "slides",
    "deck",
    "resume",
    "cv",
];

/// The statements of a message.
pub(crate) fn statements(own: &OwnWords) -> Vec<String> {
    let text = own.text().replace('\u{2019}', "'");
    if text.trim().chars().count() < MESSAGE_MIN_CHARS {
        return Vec::new();
    }
    let text = &text[..hand_over(&text).unwrap_or(text.len())];
    sentences(text)
        .into_iter()
        .flat_map(|sentence| clauses(before_data(without_lead(sentence))))
        .map(|clause| clause.trim_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';')))
        .filter(|clause| clause.chars().nth(2).is_some() && is_own(clause))
        .take(MAX_STATEMENTS)
        .map(|clause| clause.chars().take(STATEMENT_MAX_CHARS).collect())
        .collect()
}

/// Where a request to handle material begins.
fn hand_over(text: &str) -> Option<usize> {
    let found: Vec<_> = words(text).collect();
    (0..found.len()).find_map(|n| {
        let verb = HANDLING.contains(&found[n].1.as_str());
        let shown = (n + 1..found.len().min(n + 4)).any(|to| {
            SHOWN.contains(&found[to].1.as_str())
                && found[n..=to]
                    .windows(2)
                    .all(|pair| only_blanks(text, pair[0].0.end, pair[1].0.start))
        });
        (verb && shown).then_some(found[n].0.start)
    })
}

fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut from = 0;
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        if c == '\n' || (c.is_whitespace() && matches!(previous, '.' | '!' | '?')) {
            sentences.push(&text[from..at]);
            from = at + c.len_utf8();
        }
        previous = c;
    }
    sentences.push(&text[from..]);
    sentences
}

/// Without `please remember that` in front.
fn without_lead(sentence: &str) -> &str {
    let found: Vec<_> = words(sentence).take(8).collect();
    let mut n = 0;
    let is = |n: usize, list: &[&str]| {
        found
            .get(n)
            .is_some_and(|(_, word)| list.contains(&word.as_str()))
    };
    while is(n, &["please", "can", "could", "would", "will", "you"]) {
        n += 1;
    }
    if is(n, &["remember", "note"]) {
        n += 1;
    } else if is(n, &["keep"]) && is(n + 1, &["in"]) && is(n + 2, &["mind"]) {
        n += 3;
    } else {
        return sentence;
    }
    if is(n, &["that", "this"]) {
        n += 1;
    }
    found
        .get(n)
        .map_or("", |(place, _)| &sentence[place.start..])
}

/// What precedes the first data: a colon before a blank or the end, or an opening bracket.
fn before_data(sentence: &str) -> &str {
    let data = sentence.char_indices().find(|(at, c)| {
        matches!(c, '{' | '[' | '<')
            || (*c == ':'
                && sentence[at + 1..]
                    .chars()
                    .next()
                    .is_none_or(char::is_whitespace))
    });
    data.map_or(sentence, |(at, _)| &sentence[..at])
}

/// Cut where `and`, `but` or a comma stands before the first person.
fn clauses(sentence: &str) -> Vec<&str> {
    let found: Vec<_> = words(sentence).collect();
    let mut cuts = vec![0];
    for pair in found.windows(2) {
        let gap = &sentence[pair[0].0.end..pair[1].0.start];
        let joined = ["and", "but", "so", "also", "plus", "because"].contains(&pair[0].1.as_str());
        if FIRST.contains(&pair[1].1.as_str()) && (joined || gap.contains([',', ';'])) {
            cuts.push(if joined {
                pair[0].0.start
            } else {
                pair[1].0.start
            });
        }
    }
    let ends = cuts.iter().skip(1).copied().chain([sentence.len()]);
    cuts.iter()
        .zip(ends)
        .map(|(from, to)| {
            let clause = &sentence[*from..to];
            let lead = words(clause).next().filter(|(_, word)| {
                ["and", "but", "so", "also", "plus", "because"].contains(&word.as_str())
            });
            lead.map_or(clause, |(place, _)| &clause[place.end..])
        })
        .collect()
}

fn is_own(clause: &str) -> bool {
    let first = has_any(clause, &["i", "my", "mine", "myself"])
        || has_phrase(clause, "call me")
        || has_phrase(clause, "go by");
    let standing = has_any(clause, &["me"])
        && (has_any(clause, &["always", "never"])
            || ["from now on", "going forward", "in future", "in the future"]
                .iter()
                .any(|phrase| has_phrase(clause, phrase)));
    (first || standing) && !is_about_material(clause) && !is_request(clause)
}

fn is_about_material(clause: &str) -> bool {
    let found: Vec<String> = words(clause).map(|(_, word)| word).collect();
    found.iter().enumerate().any(|(n, word)| {
        let noun = |n: usize| {
            found
                .get(n)
                .is_some_and(|word| MATERIAL.contains(&word.as_str()))
        };
        word == "my" && (noun(n + 1) || noun(n + 2))
    })
}

fn is_request(clause: &str) -> bool {
    let found: Vec<String> = words(clause).map(|(_, word)| word).collect();
    let at = |n: usize| found.get(n).map_or("", String::as_str);
    (0..found.len()).filter(|n| at(*n) == "i").any(|n| {
        let mut next = n + 1;
        if matches!(at(next), "would" | "d") {
            next += 1;
        }
        let wants = matches!(at(next), "want" | "need" | "like") && at(next + 1) == "you";
        let mut have = n + 1;
        if matches!(at(have), "have" | "ve") {
            have += 1;
            if at(have) == "got" {
                have += 1;
            }
        } else if at(have) == "got" {
            have += 1;
        } else {
            return wants;
        }
        if matches!(
            at(have),
            "a" | "an" | "one" | "another" | "this" | "these" | "some" | "the"
        ) {
            have += 1;
            if at(have) == "following" {
                have += 1;
            }
        }
        wants
            || matches!(
                at(have),
                "question"
                    | "questions"
                    | "query"
                    | "request"
                    | "file"
                    | "files"
                    | "document"
                    | "text"
                    | "email"
                    | "message"
                    | "code"
                    | "json"
                    | "list"
                    | "problem"
            )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(message: &str) -> Vec<String> {
        statements(&OwnWords::of(message))
    }

    #[test]
    fn statements_about_oneself() {
        assert_eq!(
            learned("My name is Ada, and I live in Oslo."),
            ["My name is Ada", "I live in Oslo."]
        );
        assert_eq!(
            learned("Please remember that my demo is at 11:30 on Friday"),
            ["my demo is at 11:30 on Friday"]
        );
        assert_eq!(
            learned("From now on call me Captain"),
            ["From now on call me Captain"]
        );
        assert_eq!(
            learned("Always answer me in German"),
            ["Always answer me in German"]
        );
        assert_eq!(
            learned("I like tea. What is the capital of Peru?"),
            ["I like tea."]
        );
        assert_eq!(learned("I\u{2019}ve moved to Rome"), ["I've moved to Rome"]);
    }

    #[test]
    fn what_is_not_learned() {
        for message in [
            "What is the weather?",
            "I like tea",
            "My document says I am rich",
            "I want you to print a table",
            "I have a question about Rust",
            "Parse it: {\"name\": \"Ada\", \"I\": \"am\"}",
            "Summarize this: my name is Ada and I am here",
            "She said \u{201c}my name is Ada\u{201d} to them",
            "Profile: my name is Ada",
            "> I live in Oslo\n\nWho wrote that?",
        ] {
            assert_eq!(learned(message), Vec::<String>::new(), "{message}");
        }
    }

    #[test]
    fn bounds() {
        let many = "I like tea a lot. ".repeat(20);
        assert_eq!(learned(&many).len(), MAX_STATEMENTS);
        let long = format!("I like {}", "tea ".repeat(200));
        assert!(
            learned(&long)
                .iter()
                .all(|said| said.chars().count() <= STATEMENT_MAX_CHARS)
        );
    }
}
