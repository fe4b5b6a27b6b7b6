//! The line above the claims of a source: what a reader needs to know of where they come from.
//!
//! The first rung that has something to say wins:
//!
//! 1. the answer of the namespace's header function, if it has one; a blank answer means no header
//! 2. `[title | origin | date]`, of the fields that are not blank
//! 3. `## ` and the question the unit was built for
//! 4. `[source: name]`
//!
//! A header is one line. White space and control characters become single blanks, and within the brackets
//! `[`, `]` and `|` become `(`, `)` and `/`, so that no field can pose as another or end the header.

/// Fields and the answers of header functions beyond this many characters are cut and end with an ellipsis.
pub const FIELD_MAX_CHARS: usize = 160;

/// Questions are cut to this many characters.
pub const QUESTION_MAX_CHARS: usize = 60;

/// What is known of a source; blank fields are not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeaderParts<'a> {
    /// What the header function said, if the namespace has one. A function that failed said nothing: blank.
    pub custom: Option<&'a str>,
    /// Title.
    pub title: &'a str,
    /// Where it comes from (publisher, table, folder).
    pub origin: &'a str,
    /// Its date as it is to be shown.
    pub date: &'a str,
    /// The question that its unit was built for.
    pub question: &'a str,
    /// Its name, the last resort.
    pub source: &'a str,
}

/// The header of a source by the ladder of this module; `None` if it has none.
pub fn header(parts: &HeaderParts<'_>) -> Option<String> {
    if let Some(custom) = parts.custom {
        return Some(line(custom, FIELD_MAX_CHARS)).filter(|line| !line.is_empty());
    }
    let fields: Vec<String> = [parts.title, parts.origin, parts.date]
        .into_iter()
        .map(field)
        .filter(|field| !field.is_empty())
        .collect();
    if !fields.is_empty() {
        return Some(format!("[{}]", fields.join(" | ")));
    }
    let question: String = single_line(parts.question)
        .chars()
        .take(QUESTION_MAX_CHARS)
        .collect();
    if !question.is_empty() {
        return Some(format!("## {question}"));
    }
    Some(format!("[source: {}]", field(parts.source)))
}

/// A field as one line without the characters that structure a header, cut to [`FIELD_MAX_CHARS`].
pub fn field(text: &str) -> String {
    line(text, FIELD_MAX_CHARS)
        .chars()
        .map(|ch| match ch {
            '[' => '(',
            ']' => ')',
            '|' => '/',
            other => other,
        })
        .collect()
}

/// One line of at most `max_chars` characters and an ellipsis where more was said.
fn line(text: &str, max_chars: usize) -> String {
    let whole = single_line(text);
    match whole.char_indices().nth(max_chars) {
        None => whole,
        Some((end, _)) => format!("{}…", whole[..end].trim_end()),
    }
}

/// Words separated by single blanks.
fn single_line(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|ch: char| ch.is_whitespace() || ch.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> HeaderParts<'static> {
        HeaderParts {
            custom: None,
            title: "Title",
            origin: "Origin",
            date: "2024-01-02",
            question: "what is it",
            source: "file:a.md",
        }
    }

    #[test]
    fn the_first_rung_that_speaks_wins() {
        let mut parts = parts();
        let mut rungs = vec![header(&parts)];
        (parts.title, parts.date) = (" ", "");
        rungs.push(header(&parts));
        parts.origin = "\n";
        rungs.push(header(&parts));
        parts.question = "";
        rungs.push(header(&parts));
        parts.custom = Some(" own\nheader ");
        rungs.push(header(&parts));
        parts.custom = Some(" ");
        rungs.push(header(&parts));
        let rungs: Vec<Option<&str>> = rungs.iter().map(Option::as_deref).collect();
        assert_eq!(
            rungs,
            [
                Some("[Title | Origin | 2024-01-02]"),
                Some("[Origin]"),
                Some("## what is it"),
                Some("[source: file:a.md]"),
                Some("own header"),
                None,
            ]
        );
    }

    #[test]
    fn no_field_leaves_its_place() {
        let forged = HeaderParts {
            title: "a] \n- b | [c",
            ..HeaderParts::default()
        };
        assert_eq!(header(&forged).as_deref(), Some("[a) - b / (c]"));
    }

    #[test]
    fn long_fields_and_questions_are_cut() {
        let exact = "x".repeat(FIELD_MAX_CHARS);
        assert_eq!(field(&exact), exact);
        assert_eq!(field(&format!("{exact}y")), format!("{exact}…"));
        let question = "é".repeat(QUESTION_MAX_CHARS + 1);
        let asked = HeaderParts {
            question: &question,
            ..HeaderParts::default()
        };
        let expected = format!("## {}", "é".repeat(QUESTION_MAX_CHARS));
        assert_eq!(header(&asked), Some(expected));
    }
}
