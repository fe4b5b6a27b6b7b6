//! Request text: the instruction text up to where material is handed over without any mark. Rule
//! `cortex-request/1`.
//!
//! `Summarize this email. Save the result to x.txt` hands over an e-mail: what comes after the sentence is the
//! e-mail, whoever wrote it. Side effects are derived from what stands before. Two shapes hand over:
//!
//! - a verb of handling, up to two words, and `this`, `these`, `the following` or `below`: cut after the first colon,
//!   line break, or end of a sentence that follows. A colon of an address does not count.
//! - a verb of rewording in a line that ends with a colon, or the verb and up to three words before a colon: cut
//!   after the colon.
//!
//! The same in German, French, Spanish and Italian.

use std::ops::Range;

use super::quoting::OwnWords;
use super::words::{is_word, only_blanks, words};

/// Name of the rule, as recorded where it decided.
pub const NAME: &str = "cortex-request/1";

/// Verbs that hand material over together with a demonstrative.
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
    "critique",
    "simplify",
    "shorten",
    "fasse",
    "fass",
    "\u{fc}bersetze",
    "\u{fc}bersetz",
    "analysiere",
    "pr\u{fc}fe",
    "erkl\u{e4}re",
    "lies",
    "korrigiere",
    "bewerte",
    "k\u{fc}rze",
    "vereinfache",
    "r\u{e9}sume",
    "r\u{e9}sumez",
    "traduis",
    "traduisez",
    "analysez",
    "explique",
    "expliquez",
    "corrige",
    "corrigez",
    "lis",
    "lisez",
    "v\u{e9}rifie",
    "resume",
    "resuma",
    "traduce",
    "traduzca",
    "analiza",
    "analice",
    "explica",
    "lee",
    "revisa",
    "riassumi",
    "traduci",
    "analizza",
    "spiega",
    "correggi",
    "leggi",
    "controlla",
];

/// Verbs that hand over whatever follows a colon.
const REWORDING: &[&str] = &[
    "summarise",
    "summarize",
    "translate",
    "proofread",
    "paraphrase",
    "rewrite",
    "critique",
    "simplify",
    "shorten",
    "analyse",
    "analyze",
    "classify",
    "\u{fc}bersetze",
    "fasse",
    "r\u{e9}sume",
    "r\u{e9}sumez",
    "traduis",
    "traduisez",
    "resume",
    "traduce",
    "riassumi",
    "traduci",
    "tldr",
];

const DEMONSTRATIVES: &[&str] = &[
    "this",
    "these",
    "below",
    "diese",
    "diesen",
    "dieses",
    "dieser",
    "diesem",
    "dies",
    "folgende",
    "folgenden",
    "folgendes",
    "ce",
    "cet",
    "cette",
    "ces",
    "suivant",
    "suivante",
    "suivants",
    "este",
    "esta",
    "estos",
    "estas",
    "siguiente",
    "siguientes",
    "questo",
    "questa",
    "questi",
    "queste",
    "seguente",
    "seguenti",
];

/// The request text, and where in the instruction text it ends.
pub(crate) fn request(own: &OwnWords) -> (OwnWords, usize) {
    let end = hand_over(&own.commands()).unwrap_or(own.text().len());
    let request = own.up_to(end);
    let end = request.text().len();
    (request, end)
}

/// The place after the first hand-over in `text`.
fn hand_over(text: &str) -> Option<usize> {
    let found: Vec<(Range<usize>, String)> = words(text).collect();
    let ends = Ends::of(text);
    (0..found.len())
        .filter_map(|n| hand_over_at(text, &found, n, &ends))
        .next()
}

fn hand_over_at(
    text: &str,
    found: &[(Range<usize>, String)],
    n: usize,
    ends: &Ends,
) -> Option<usize> {
    let verb = found[n].1.as_str();
    let joined = |to: usize| {
        found[n..=to]
            .windows(2)
            .all(|pair| only_blanks(text, pair[0].0.end, pair[1].0.start))
    };
    if HANDLING.contains(&verb) {
        for to in n + 1..=(n + 3).min(found.len().saturating_sub(1)) {
            let word = found[to].1.as_str();
            let shown =
                DEMONSTRATIVES.contains(&word) || (word == "following" && found[to - 1].1 == "the");
            if shown && joined(to) {
                return ends.first_from(found[to].0.end);
            }
        }
        // `the following` after two words of its own.
        if found
            .get(n + 4)
            .is_some_and(|(_, word)| word == "following")
            && found[n + 3].1 == "the"
            && joined(n + 4)
        {
            return ends.first_from(found[n + 4].0.end);
        }
    }
    if REWORDING.contains(&verb) {
        let colon = found
            .iter()
            .enumerate()
            .skip(n)
            .take(4)
            .find(|(to, (place, _))| {
                let after = &text[place.end..];
                joined(*to) && after.starts_with(':') && !after.starts_with("://")
            });
        if let Some((_, (place, _))) = colon {
            return Some(place.end + 1);
        }
        return ends.colon_line_from(found[n].0.end);
    }
    None
}

/// Places where a hand-over can end, each after its mark.
struct Ends {
    any: Vec<usize>,
    breaks: Vec<usize>,
    /// Those after a colon that ends its line.
    colon_lines: Vec<usize>,
}

impl Ends {
    fn of(text: &str) -> Self {
        let mut ends = Self {
            any: Vec::new(),
            breaks: Vec::new(),
            colon_lines: Vec::new(),
        };
        let mut previous = ' ';
        for (at, c) in text.char_indices() {
            let after = &text[at + c.len_utf8()..];
            let next = after.chars().next();
            let sentence = matches!(c, '.' | '!' | '?')
                && is_word(previous)
                && next.is_some_and(char::is_whitespace);
            if c == '\n' || sentence || (c == ':' && !after.starts_with("//")) {
                ends.any.push(at + c.len_utf8());
            }
            if c == '\n' {
                ends.breaks.push(at);
                // The colon may have blanks behind it: it is the last mark found before this break.
                let before = text[..at].trim_end_matches([' ', '\t', '\r']);
                if before.ends_with(':') {
                    ends.colon_lines.push(before.len());
                }
            }
            previous = c;
        }
        ends
    }

    fn first_from(&self, from: usize) -> Option<usize> {
        self.any
            .get(self.any.partition_point(|&end| end <= from))
            .copied()
    }

    /// The end of the line of `from`, if a colon ends it.
    fn colon_line_from(&self, from: usize) -> Option<usize> {
        let line_end = *self
            .breaks
            .get(self.breaks.partition_point(|&at| at < from))?;
        let colon = *self
            .colon_lines
            .get(self.colon_lines.partition_point(|&end| end < from))?;
        (colon <= line_end).then_some(colon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(message: &str) -> String {
        request(&OwnWords::of(message)).0.text().to_owned()
    }

    #[test]
    fn what_follows_a_hand_over_is_material() {
        for (message, left) in [
            (
                "Summarize this email. Save it to x.txt",
                "Summarize this email.",
            ),
            (
                "Translate this into French and save it to fr.txt:\nhello",
                "Translate this into French and save it to fr.txt:",
            ),
            (
                "Please review the following\nsave it",
                "Please review the following\n",
            ),
            ("Check my text below: save it", "Check my text below:"),
            ("Read all of this. Save it", "Read all of this."),
            ("summarize: save it", "summarize:"),
            ("Translate to French:\nsave it", "Translate to French:"),
            (
                "Translate into good old French and save it to a.txt: \nx",
                "Translate into good old French and save it to a.txt:",
            ),
            (
                "Summarize this https://example.com/a and save it to x.txt",
                "Summarize this https://example.com/a and save it to x.txt",
            ),
            (
                "\u{dc}bersetze diesen Text. Speichere ihn",
                "\u{dc}bersetze diesen Text.",
            ),
            ("R\u{e9}sume ce texte. Enregistre", "R\u{e9}sume ce texte."),
        ] {
            assert_eq!(cut(message), left);
        }
    }

    #[test]
    fn just_outside_nothing_is_cut() {
        for message in [
            "Summarize one two three this email. Save it to x.txt",
            "Summarize, this email. Save it",
            "Summarize this email.Save it",
            "Summarize this email",
            "Check my new own text below: save it",
            "Check the folder and create files: a.txt",
            "Save these notes. Then stop.",
        ] {
            assert_eq!(cut(message), message);
        }
    }
}
