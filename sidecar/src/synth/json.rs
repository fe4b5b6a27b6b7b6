//! Claims from JSON, as tools and APIs return it, without a model: each record becomes statements of the form
//! `path: value; path: value`, each with what identifies the record.
//!
//! A path has no positions in it, since a claim may hold no number that its source does not have.

use cortex_core::extract;
use serde_json::value::RawValue;

use super::extractive;
use super::literal::Literal;
use super::{Built, Chunk, Claim, Source, Usage};

/// Name of this synthesizer, as recorded with its claims.
const NAME: &str = "cortex-json/1";
/// Objects that are looked for in a document that is cut.
const MOST_TRIES: usize = 10_000;
/// Where a claim is full, in characters; then the record goes on in another.
const FULL: usize = 300;
/// Beyond this a string is prose, which is taken sentence by sentence.
const PROSE: usize = 200;
/// Names of members that tell a record from others, the best first.
const IDENTITIES: [&str; 6] = ["name", "title", "id", "key", "symbol", "url"];

pub(super) fn build(source: &Source) -> Built {
    let mut claims = Vec::new();
    for version in source.chunks.chunk_by(|a, b| a.version_id == b.version_id) {
        let documents = documents(version);
        if documents.is_empty() {
            claims.extend(version.iter().flat_map(extractive::sentences));
        }
        for (value, chunks) in documents {
            let mut found = Vec::new();
            walk(&value, "", &[], &mut found);
            claims.extend(found.iter().map(|statement| statement.cite(chunks)));
        }
    }
    Built {
        claims,
        usage: Usage {
            model: NAME.to_owned(),
            ..Usage::default()
        },
    }
}

/// The JSON values of one version, each with the chunks that it stands in. Empty if it is not JSON.
fn documents(chunks: &[Chunk]) -> Vec<(Literal, &[Chunk])> {
    let each: Option<Vec<(Literal, &[Chunk])>> = chunks
        .chunks(1)
        .map(|one| Some((container(&one[0].body)?, one)))
        .collect();
    if let Some(each) = each {
        return each;
    }
    let bodies: Vec<&str> = chunks.iter().map(|chunk| chunk.body.as_str()).collect();
    // Chunks are cut at blanks where there are any.
    for between in [" ", ""] {
        if let Some(value) = container(&bodies.join(between)) {
            return vec![(value, chunks)];
        }
    }
    // One value a line.
    let lines: Option<Vec<(Literal, &[Chunk])>> = bodies
        .join("\n")
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| Some((container(line)?, chunks)))
        .collect();
    match lines {
        Some(lines) if !lines.is_empty() => lines,
        _ => whole_objects(&bodies.join(" "))
            .into_iter()
            .map(|value| (value, chunks))
            .collect(),
    }
}

/// The objects that lie whole in a part of a long document, if they are most of it: a build gets so many
/// chunks at once, and records that are cut at its ends stay readable as raw text.
fn whole_objects(text: &str) -> Vec<Literal> {
    let (mut found, mut at, mut covered) = (Vec::new(), 0, 0);
    for _ in 0..MOST_TRIES {
        let Some(start) = text[at..].find('{').map(|start| at + start) else {
            break;
        };
        let mut values =
            serde_json::Deserializer::from_str(&text[start..]).into_iter::<&RawValue>();
        let whole = match values.next() {
            Some(Ok(raw)) => container(raw.get()),
            _ => None,
        };
        match whole {
            Some(value) => {
                found.push(value);
                covered += values.byte_offset();
                at = start + values.byte_offset();
            }
            None => at = start + 1,
        }
    }
    if covered * 2 < text.len() {
        found.clear();
    }
    found
}

/// A list or an object. A text that happens to be a number or a quoted word is not a record of anything.
fn container(text: &str) -> Option<Literal> {
    Literal::parse(text).filter(|value| !matches!(value, Literal::Scalar(_)))
}

/// `path: value`.
#[derive(Clone, Debug)]
struct Leaf {
    path: String,
    value: String,
}

impl Leaf {
    fn new(path: &str, value: &str) -> Self {
        Leaf {
            path: path.to_owned(),
            value: value.to_owned(),
        }
    }

    fn text(&self) -> String {
        if self.path.is_empty() {
            self.value.clone()
        } else {
            format!("{}: {}", self.path, self.value)
        }
    }

    fn length(&self) -> usize {
        self.path.chars().count() + self.value.chars().count() + 4
    }
}

/// Leaves that make one claim.
#[derive(Debug)]
struct Statement {
    leaves: Vec<Leaf>,
}

impl Statement {
    /// With the chunks that hold a value of it; with all where none does, as for strings with escapes.
    fn cite(&self, chunks: &[Chunk]) -> Claim {
        let holds = |chunk: &&Chunk| {
            self.leaves
                .iter()
                .any(|leaf| chunk.body.contains(leaf.value.as_str()))
        };
        let mut cited: Vec<i64> = chunks
            .iter()
            .filter(holds)
            .map(|chunk| chunk.chunk_id)
            .collect();
        if cited.is_empty() {
            cited = chunks.iter().map(|chunk| chunk.chunk_id).collect();
        }
        let leaves: Vec<String> = self.leaves.iter().map(Leaf::text).collect();
        Claim {
            claim: leaves.join("; "),
            chunks: cited,
        }
    }
}

/// Adds the statements of a value. `about` says which record it belongs to.
fn walk(value: &Literal, path: &str, about: &[Leaf], found: &mut Vec<Statement>) {
    match value {
        Literal::Scalar(_) => state(leaves(path, value), about, found),
        Literal::List(items) => {
            let scalars: Vec<&str> = items.iter().filter_map(Literal::scalar).collect();
            state(series(path, &scalars), about, found);
            for item in items {
                if !matches!(item, Literal::Scalar(_)) {
                    walk(item, path, about, found);
                }
            }
        }
        Literal::Members(members) => {
            let identity =
                identity(members).map(|(name, value)| Leaf::new(&below(path, name), value));
            let mut about = about.to_vec();
            about.extend(identity.clone());
            let rest = members
                .iter()
                .filter(|(name, value)| {
                    let is_identity = identity.as_ref().is_some_and(|leaf| {
                        leaf.path == below(path, name)
                            && Some(leaf.value.as_str()) == value.scalar()
                    });
                    !is_identity && matches!(value, Literal::Scalar(_))
                })
                .flat_map(|(name, value)| leaves(&below(path, name), value))
                .collect();
            let before = found.len();
            state(rest, &about, found);
            for (name, value) in members {
                if !matches!(value, Literal::Scalar(_)) {
                    walk(value, &below(path, name), &about, found);
                }
            }
            // A record of which nothing is known but what it is.
            if found.len() == before && identity.is_some() {
                found.push(Statement { leaves: about });
            }
        }
    }
}

fn below(path: &str, name: &str) -> String {
    let name = name.trim();
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// The member that tells this record from its neighbours.
fn identity(members: &[(String, Literal)]) -> Option<(&str, &str)> {
    IDENTITIES.iter().find_map(|wanted| {
        members
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .and_then(|(name, value)| Some((name.as_str(), value.scalar()?)))
            .filter(|(_, value)| value.chars().count() <= PROSE)
    })
}

/// A scalar as leaves: one, or one a sentence.
fn leaves(path: &str, value: &Literal) -> Vec<Leaf> {
    let Some(text) = value.scalar() else {
        return Vec::new();
    };
    if text.chars().count() <= PROSE {
        return vec![Leaf::new(path, text)];
    }
    extract::extract(text)
        .into_iter()
        .map(|span| Leaf::new(path, &text[span.start..span.end]))
        .collect()
}

/// Scalars of one list, as many to a leaf as there is room for.
fn series(path: &str, scalars: &[&str]) -> Vec<Leaf> {
    let mut all: Vec<Leaf> = Vec::new();
    for text in scalars {
        match all.last_mut() {
            Some(leaf) if leaf.length() + text.chars().count() <= PROSE => {
                leaf.value.push_str(", ");
                leaf.value.push_str(text);
            }
            _ => all.extend(leaves(path, &Literal::Scalar((*text).to_owned()))),
        }
    }
    all
}

/// Adds leaves as statements, each with what it is about.
fn state(leaves: Vec<Leaf>, about: &[Leaf], found: &mut Vec<Statement>) {
    let head: usize = about.iter().map(Leaf::length).sum();
    let mut open: Option<(usize, Vec<Leaf>)> = None;
    for leaf in leaves {
        let length = leaf.length();
        match &mut open {
            Some((used, leaves)) if *used + length <= FULL => {
                *used += length;
                leaves.push(leaf);
            }
            _ => {
                let full = open.replace((head + length, [about, &[leaf]].concat()));
                found.extend(full.map(|(_, leaves)| Statement { leaves }));
            }
        }
    }
    found.extend(open.map(|(_, leaves)| Statement { leaves }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(bodies: &[&str]) -> Source {
        let chunks = bodies
            .iter()
            .zip(1..)
            .map(|(body, id)| Chunk {
                chunk_id: id,
                version_id: 1,
                ordinal: id,
                body: (*body).to_owned(),
            })
            .collect();
        Source {
            chunks,
            ..Source::default()
        }
    }

    fn claims(bodies: &[&str]) -> Vec<String> {
        build(&source(bodies))
            .claims
            .into_iter()
            .map(|claim| claim.claim)
            .collect()
    }

    #[test]
    fn records_become_statements_that_say_what_they_are_about() {
        let reply = r#"{"city": "Bern", "weather": {"temp_c": 3.50, "wind": null, "open": true},
            "stations": [{"altitude_m": 553, "name": "Zollikofen", "sensors": [{"id": "A7", "value": 1e3}]}, {"name": "Empty"}],
            "tags": ["alpine", 12, ""]}"#;
        assert_eq!(
            claims(&[reply]),
            [
                "city: Bern",
                "weather.temp_c: 3.50; weather.open: true",
                "stations.name: Zollikofen; stations.altitude_m: 553",
                "stations.name: Zollikofen; stations.sensors.id: A7; stations.sensors.value: 1e3",
                "stations.name: Empty",
                "tags: alpine, 12",
            ]
        );
    }

    #[test]
    fn json_that_was_cut_into_chunks_is_joined_and_cited_by_place() {
        let built = build(&source(&[
            r#"[{"name": "Ann", "age": 31},"#,
            r#"{"name": "Ben", "age": 47}]"#,
        ]));
        let expected = [("name: Ann; age: 31", 1), ("name: Ben; age: 47", 2)];
        for (claim, (text, chunk)) in built.claims.iter().zip(expected) {
            assert_eq!(
                (claim.claim.as_str(), claim.chunks.as_slice()),
                (text, &[chunk][..])
            );
        }
        assert_eq!(built.claims.len(), 2);
        // One object a line.
        assert_eq!(claims(&["{\"a\": 1}\n{\"a\": 2}"]), ["a: 1", "a: 2"]);
    }

    #[test]
    fn a_document_that_is_cut_gives_its_whole_records_and_prose_with_braces_none() {
        let records: Vec<String> = (100..140)
            .map(|i| format!(r#"{{"id": "R{i}", "size": {i}, "in": {{"unit": "mm"}}}}"#))
            .collect();
        let text = format!(r#"{{"records": [{}]}}"#, records.join(", "));
        let found = claims(&[&text[..text.len() / 2], "and so on"]);
        assert!(
            found.contains(&"id: R100; size: 100".to_owned()),
            "{found:?}"
        );
        assert!(
            found.contains(&"id: R100; in.unit: mm".to_owned()),
            "{found:?}"
        );
        assert!(
            found.len() > 30 && found.iter().all(|claim| claim.starts_with("id: R1")),
            "{found:?}"
        );
        let prose =
            "The function returns {\"ok\": true} when the kestrel has hovered above the field.";
        assert_eq!(claims(&[prose]), [prose]);
    }

    #[test]
    fn what_is_not_json_is_taken_by_its_sentences() {
        for body in [
            "The kestrel hovered above the field.",
            "42",
            "\"quoted\"",
            "{\"cut\": ",
            "",
        ] {
            let found = claims(&[body]);
            let expected: &[&str] = if body.starts_with("The") {
                &[body]
            } else {
                &[]
            };
            assert_eq!(found, expected, "{body}");
        }
    }

    #[test]
    fn long_texts_long_lists_and_many_members_are_bounded() {
        let prose = "The kestrel hovered above the field. ".repeat(20);
        let numbers: Vec<u32> = (1_000..1_300).collect();
        let members: serde_json::Map<String, serde_json::Value> = (0..100)
            .map(|i| (format!("member_{i}"), i.into()))
            .collect();
        let document =
            serde_json::json!({"id": "X9", "note": prose, "numbers": numbers, "all": members});
        let found = claims(&[&document.to_string()]);
        assert!(found.len() > 10, "{found:?}");
        for claim in &found {
            assert!(claim.chars().count() <= FULL + PROSE, "{claim}");
            assert!(claim.starts_with("id: X9; "), "{claim}");
        }
        for number in [1_000, 1_299] {
            assert!(
                found
                    .iter()
                    .any(|claim| claim.contains(&number.to_string()))
            );
        }
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        build(&source(&[&deep]));
    }
}
