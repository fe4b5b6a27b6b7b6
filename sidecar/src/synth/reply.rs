//! Reading what a language model replied. Small models put words around their JSON, fence it, leave the
//! wrapper out, stop in the middle; none of that may lose whole claims or let half ones in.

use std::fmt;

use serde_json::{Deserializer, Map, Value};

/// Most entries that are taken from one reply. A model that writes more is repeating itself.
const MOST_ENTRIES: usize = 2_000;
/// Places in a reply where JSON is looked for.
const MOST_TRIES: usize = 200;

/// One claim as the model said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The statement, trimmed.
    pub claim: String,
    /// Numbers of the cited parts, as far as they were readable; 0 for one that was not.
    pub chunks: Vec<u64>,
}

/// A reply that could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// What was said.
    pub claims: Vec<Said>,
    /// Entries that are null, blank or not text.
    pub rejected: usize,
    /// Whether the JSON was broken and only its whole entries were taken.
    pub salvaged: bool,
}

/// Why a reply could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Nothing, or thoughts alone.
    Empty,
    /// No JSON, or JSON of another kind.
    NoClaims,
    /// A list in which no entry is a claim.
    OnlyBlanks,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Unreadable::Empty => "the reply is empty",
            Unreadable::NoClaims => "the reply is not the JSON object with a list of claims",
            Unreadable::OnlyBlanks => "every claim of the reply is null, blank or not text",
        })
    }
}

/// Reads a reply.
///
/// # Errors
/// A reply without a readable claim that does not say that there is none.
pub fn read(reply: &str) -> Result<Read, Unreadable> {
    let text = without_thoughts(reply).trim();
    if text.is_empty() {
        return Err(Unreadable::Empty);
    }
    if let Some(entries) = whole(text) {
        return sort(entries, false);
    }
    match salvage(text) {
        entries if entries.is_empty() => Err(Unreadable::NoClaims),
        entries => sort(entries, true),
    }
}

/// What follows the model's thinking. Thinking that never ends leaves nothing.
fn without_thoughts(reply: &str) -> &str {
    const END: &str = "</think>";
    match reply.rfind(END) {
        Some(at) => &reply[at + END.len()..],
        None if reply.trim_start().starts_with("<think>") => "",
        None => reply,
    }
}

/// The entries of the first value in `text` that is a list of claims, wherever it stands.
fn whole(text: &str) -> Option<Vec<Value>> {
    let mut places = text.match_indices(['{', '[']).take(MOST_TRIES);
    let first = places.clone().next().map(|(at, _)| at);
    places.find_map(|(at, _)| {
        let (value, _) = first_value(&text[at..])?;
        // A claim by itself is the whole only if it is the first: else it may be the first of a broken list.
        entries(value, Some(at) == first)
    })
}

/// The JSON value at the start of `text`, and how many bytes it has.
fn first_value(text: &str) -> Option<(Value, usize)> {
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    Some((value, values.byte_offset()))
}

/// The entries of a list of claims: in its wrapper, without one, or, where it may be so, a claim by itself.
fn entries(value: Value, may_be_alone: bool) -> Option<Vec<Value>> {
    match value {
        Value::Object(mut members) => match members.remove("claims") {
            Some(Value::Array(entries)) => Some(entries),
            Some(_) => None,
            None if may_be_alone && statement(&members).is_some() => {
                Some(vec![Value::Object(members)])
            }
            None => None,
        },
        Value::Array(entries) if entries.iter().any(is_claim) => Some(entries),
        _ => None,
    }
}

fn is_claim(entry: &Value) -> bool {
    entry.as_object().and_then(statement).is_some()
}

fn statement(entry: &Map<String, Value>) -> Option<&Value> {
    entry.get("claim").or_else(|| entry.get("text"))
}

/// The whole entries of a list that is broken or never ends.
fn salvage(text: &str) -> Vec<Value> {
    let list = match text.find("\"claims\"") {
        Some(at) => &text[at..],
        None => text,
    };
    let Some(mut at) = list.find('[').map(|at| at + 1) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut failures = 0;
    while failures < MOST_TRIES && found.len() < MOST_ENTRIES {
        let rest = &list[at..];
        let Some(start) = rest.find('{') else {
            break;
        };
        match first_value(&rest[start..]) {
            Some((value, length)) => {
                if is_claim(&value) {
                    found.push(value);
                }
                at += start + length;
            }
            None => {
                failures += 1;
                at += start + 1;
            }
        }
    }
    found
}

/// Takes the claims and counts the rest.
fn sort(entries: Vec<Value>, salvaged: bool) -> Result<Read, Unreadable> {
    let some = !entries.is_empty();
    let mut read = Read {
        salvaged,
        ..Read::default()
    };
    for entry in entries.into_iter().take(MOST_ENTRIES) {
        match said(&entry) {
            Some(said) => read.claims.push(said),
            None => read.rejected += 1,
        }
    }
    if some && read.claims.is_empty() {
        return Err(Unreadable::OnlyBlanks);
    }
    Ok(read)
}

/// A claim, unless it is null, blank or not text.
fn said(entry: &Value) -> Option<Said> {
    let (claim, chunks) = match entry {
        Value::String(claim) => (claim.as_str(), Vec::new()),
        Value::Object(members) => {
            let cited = members.get("chunks").or_else(|| members.get("chunk"));
            (statement(members)?.as_str()?, numbers(cited))
        }
        _ => return None,
    };
    let claim = claim.trim();
    // Models that were told not to invent write the word instead.
    if claim.is_empty() || claim.eq_ignore_ascii_case("null") {
        return None;
    }
    Some(Said {
        claim: claim.to_owned(),
        chunks,
    })
}

/// Cited numbers, also where they came as text (`"Part 2"`) or alone.
fn numbers(cited: Option<&Value>) -> Vec<u64> {
    match cited {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(list)) => list.iter().map(number).collect(),
        Some(one) => vec![number(one)],
    }
}

fn number(cited: &Value) -> u64 {
    match cited {
        Value::Number(number) => number.as_u64().unwrap_or(0),
        Value::String(text) => {
            let digits: String = text
                .chars()
                .skip_while(|ch| !ch.is_ascii_digit())
                .take_while(char::is_ascii_digit)
                .collect();
            digits.parse().unwrap_or(0)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(claim: &str, chunks: &[u64]) -> Said {
        Said {
            claim: claim.to_owned(),
            chunks: chunks.to_vec(),
        }
    }

    const GOOD: &str = r#"{"claims": [{"claim": "A kestrel hovers.", "chunks": [1]}, {"claim": "It was 3 m up.", "chunks": [2, 1]}]}"#;

    fn good() -> Vec<Said> {
        vec![
            said("A kestrel hovers.", &[1]),
            said("It was 3 m up.", &[2, 1]),
        ]
    }

    #[test]
    fn words_fences_and_thoughts_around_the_object_do_no_harm() {
        for reply in [
            GOOD.to_owned(),
            format!(
                "Sure! Here are the claims you asked for:\n\n{GOOD}\n\nLet me know {{if}} you need more."
            ),
            format!("```json\n{GOOD}\n```"),
            format!("```\n{GOOD}"),
            format!("<think>The text [1] says {{\"claims\": [\"no\"]}}.</think>\n{GOOD}"),
            format!("Using {{braces}} and [lists], the result is {GOOD}"),
        ] {
            let read = read(&reply).unwrap_or_else(|error| panic!("{error}: {reply}"));
            assert_eq!(read.claims, good(), "{reply}");
            assert!(!read.salvaged, "{reply}");
        }
    }

    #[test]
    fn the_wrapper_may_be_missing() {
        let list = r#"[{"claim": "A kestrel hovers.", "chunks": [1]}, {"claim": "It was 3 m up.", "chunks": [2, 1]}]"#;
        assert_eq!(read(list).unwrap().claims, good());
        let one = r#"{"claim": "A kestrel hovers.", "chunks": 1}"#;
        assert_eq!(read(one).unwrap().claims, [said("A kestrel hovers.", &[1])]);
        let strings = r#"{"claims": ["A kestrel hovers.", {"text": "A heron stood."}]}"#;
        assert_eq!(
            read(strings).unwrap().claims,
            [said("A kestrel hovers.", &[]), said("A heron stood.", &[])]
        );
    }

    #[test]
    fn cut_at_any_byte_a_reply_gives_whole_claims_or_nothing() {
        let mut counts = [0; 3];
        for end in 0..=GOOD.len() {
            match read(&GOOD[..end]) {
                Ok(read) => {
                    assert_eq!(read.claims, good()[..read.claims.len()], "{}", &GOOD[..end]);
                    // Without the last brace the list is still whole.
                    assert_eq!(read.salvaged, end + 1 < GOOD.len());
                    counts[read.claims.len()] += 1;
                }
                Err(_) => counts[0] += 1,
            }
        }
        assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
        assert_eq!(read(GOOD).unwrap().claims.len(), 2);
    }

    #[test]
    fn one_broken_entry_costs_no_other() {
        let reply = r#"{"claims": [{"claim": "One is here.", "chunks": [1]}, {"claim": "Two "is" broken"}, {"claim": "Three is here.", "chunks": [1]},]}"#;
        let read = read(reply).unwrap();
        assert_eq!(
            read.claims,
            [said("One is here.", &[1]), said("Three is here.", &[1])]
        );
        assert!(read.salvaged);
    }

    #[test]
    fn nulls_and_blanks_are_counted_and_never_claims() {
        let reply = r#"{"claims": [null, {"claim": null, "chunks": [1]}, {"claim": "  "}, {"claim": 7}, {"chunks": [1]}, "", "null", [], {"claim": " Real. "}]}"#;
        let some = read(reply).unwrap();
        assert_eq!(some.claims, [said("Real.", &[])]);
        assert_eq!(some.rejected, 8);
        let reply = r#"{"claims": [null, {"claim": ""}]}"#;
        assert_eq!(read(reply), Err(Unreadable::OnlyBlanks));
    }

    #[test]
    fn no_claims_is_an_answer_and_prose_is_none() {
        assert_eq!(read(r#"{"claims": []}"#).unwrap(), Read::default());
        for (reply, expected) in [
            ("", Unreadable::Empty),
            (" \n ", Unreadable::Empty),
            ("<think>Let me see. {\"claims\": []}", Unreadable::Empty),
            (
                "The text says that a kestrel hovers [1].",
                Unreadable::NoClaims,
            ),
            (r#"{"summary": "A kestrel hovers."}"#, Unreadable::NoClaims),
            (r#"{"claims": "A kestrel hovers."}"#, Unreadable::NoClaims),
            ("[1, 2, 3]", Unreadable::NoClaims),
            ("[]", Unreadable::NoClaims),
            ("null", Unreadable::NoClaims),
            (r#"{"claims": [{"claim": "A kest"#, Unreadable::NoClaims),
        ] {
            assert_eq!(read(reply), Err(expected), "{reply}");
        }
    }

    #[test]
    fn citations_are_numbers_however_they_are_written() {
        let reply = r#"{"claims": [{"claim": "a b", "chunks": ["2", "Part 3", "[4]", 5, -1, 1.5, "none", null]}, {"claim": "c d", "chunk": 2}]}"#;
        let read = read(reply).unwrap();
        assert_eq!(read.claims[0].chunks, [2, 3, 4, 5, 0, 0, 0, 0]);
        assert_eq!(read.claims[1].chunks, [2]);
    }

    #[test]
    fn long_and_hostile_replies_end() {
        let long = "word ".repeat(4_000);
        let reply = format!(
            r#"{{"claims": [{{"claim": "{}", "chunks": [1]}}]}}"#,
            long.trim()
        );
        assert_eq!(read(&reply).unwrap().claims[0].claim.len(), 19_999);
        assert_eq!(read(&"{".repeat(100_000)), Err(Unreadable::NoClaims));
        assert_eq!(read(&"[".repeat(100_000)), Err(Unreadable::NoClaims));
        let many = r#"{"claim": "Again."},"#.repeat(3_000);
        assert_eq!(
            read(&format!("{{\"claims\": [{many}"))
                .unwrap()
                .claims
                .len(),
            MOST_ENTRIES
        );
    }
}
