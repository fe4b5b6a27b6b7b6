//! Which claims of a model are taken in.
//!
//! A claim is a text, or an object with a text under `claim` or `text` and the ids of the chunks it was drawn from under
//! `chunks`; without ids it speaks for all chunks of its build. Names and numbers may come from the title as well as from
//! the cited chunks: a claim that stands alone names its subject, which a text often leaves to its title, and the title
//! heads the claim when it is served.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::Value;

use super::merge::{BUILT_MAX, CLAIMS_MAX};
use crate::analyzer;
use crate::ground::{self, Refusal};

/// A claim that is taken in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Admitted {
    /// Its place among the claims given, from 1.
    pub n: usize,
    /// Its text, trimmed.
    pub claim: String,
    /// The chunks it cites, each once, in the order it names them.
    pub chunks: Vec<i64>,
}

/// How many claims were left out, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// No text, or no letter or digit in it.
    pub blank: usize,
    /// A name or number that neither the cited chunks nor the title hold.
    pub ungrounded: usize,
    /// Ids of chunks that were not handed out. These are ids, not claims: a claim that cites known ones as well stays,
    /// with those.
    pub unknown_chunk: usize,
    /// More than [`ground::CLAIM_MAX_CHARS`] characters.
    pub too_long: usize,
    /// The unit says it already, or the same build does.
    pub repeated: usize,
    /// Beyond what a build ([`BUILT_MAX`]) or a unit ([`CLAIMS_MAX`]) may hold.
    pub no_room: usize,
}

/// What became of a model's claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sifted {
    /// Those taken in, in their order.
    pub admitted: Vec<Admitted>,
    /// Those left out.
    pub dropped: Dropped,
}

/// Sifts what a model drew from `chunks` (id and text) of a source with this title; `held` are the claims that the unit
/// holds so far.
pub fn sift(
    claims: &[Value],
    chunks: &[(i64, &str)],
    title: Option<&str>,
    held: &[&str],
) -> Sifted {
    let mut sifted = Sifted::default();
    let dropped = &mut sifted.dropped;
    let mut said: HashSet<String> = held.iter().map(|text| analyzer::normalise(text)).collect();
    for (claim, n) in claims.iter().zip(1..) {
        let text = match ground::admissible(text_of(claim)) {
            Ok(text) => text,
            Err(Refusal::Blank) => {
                dropped.blank += 1;
                continue;
            }
            Err(Refusal::TooLong) => {
                dropped.too_long += 1;
                continue;
            }
        };
        let cited = cited(claim, chunks, &mut dropped.unknown_chunk);
        if cited.is_empty() {
            continue;
        }
        let normal = analyzer::normalise(text);
        if said.contains(&normal) {
            dropped.repeated += 1;
            continue;
        }
        let mut evidence = vec![title.unwrap_or_default()];
        let texts = chunks.iter().filter(|(id, _)| cited.contains(id));
        evidence.extend(texts.map(|(_, text)| *text));
        if !ground::missing(text, &evidence).is_empty() {
            dropped.ungrounded += 1;
            continue;
        }
        let built = sifted.admitted.len();
        if built >= BUILT_MAX || held.len() + built >= CLAIMS_MAX {
            dropped.no_room += 1;
            continue;
        }
        said.insert(normal);
        sifted.admitted.push(Admitted {
            n,
            claim: text.to_owned(),
            chunks: cited,
        });
    }
    sifted
}

/// The text of a claim as models write it.
pub fn text_of(claim: &Value) -> Option<&str> {
    match claim {
        Value::Object(fields) => {
            let field = |name| fields.get(name).and_then(Value::as_str);
            field("claim").or_else(|| field("text"))
        }
        other => other.as_str(),
    }
}

/// The known chunks that a claim cites, all where it names none. Ids that are no ids are as unknown as ids that were not
/// handed out.
fn cited(claim: &Value, chunks: &[(i64, &str)], unknown: &mut usize) -> Vec<i64> {
    let named = match claim.get("chunks") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(named)) => named,
        Some(one) => std::slice::from_ref(one),
    };
    if named.is_empty() {
        return chunks.iter().map(|(id, _)| *id).collect();
    }
    let mut cited = Vec::new();
    let mut seen = Vec::new();
    for value in named {
        // Models write numbers as texts, too.
        let id = value
            .as_i64()
            .or_else(|| value.as_str().and_then(|text| text.parse().ok()));
        if seen.contains(&id) {
            continue;
        }
        seen.push(id);
        match id.filter(|id| chunks.iter().any(|(known, _)| known == id)) {
            Some(id) => cited.push(id),
            None => *unknown += 1,
        }
    }
    cited
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const CHUNKS: [(i64, &str); 2] = [
        (7, "The pump has 4 valves and was made in Oslo."),
        (9, "It runs at 60 Hz."),
    ];

    fn of(claims: Value, held: &[&str]) -> Sifted {
        sift(
            claims.as_array().expect("an array"),
            &CHUNKS,
            Some("Pump P-7"),
            held,
        )
    }

    #[test]
    fn each_reason_is_counted_by_itself() {
        let long = "valve ".repeat(400);
        let sifted = of(
            json!([
                "The pump has 4 valves.",
                {"claim": "It runs at 60 Hz.", "chunks": [9, 9, "9"]},
                {"text": "It runs at 50 Hz.", "chunks": [9]},
                {"claim": "It was made in Oslo.", "chunks": [9]},
                {"claim": "It was made in Oslo.", "chunks": [7, 8, "x"]},
                {"claim": "It has valves.", "chunks": [1]},
                "  ", null, 5, {"claim": null}, "\u{200b}\u{7}...",
                long,
                "THE PUMP has  4 valves.",
                "Pump P-7 runs.",
                "A held claim.",
            ]),
            &["a held  claim."],
        );
        let kept: Vec<(usize, &[i64])> = (sifted.admitted.iter())
            .map(|claim| (claim.n, claim.chunks.as_slice()))
            .collect();
        assert_eq!(
            kept,
            [(1, &[7, 9][..]), (2, &[9]), (5, &[7]), (14, &[7, 9])]
        );
        let dropped = Dropped {
            blank: 5,
            ungrounded: 2,
            unknown_chunk: 3,
            too_long: 1,
            repeated: 2,
            no_room: 0,
        };
        assert_eq!(sifted.dropped, dropped);
    }

    #[test]
    fn the_longest_claim_is_taken_and_one_more_is_not() {
        let text = |chars: usize| "é".repeat(chars);
        let chunk = text(3_000);
        let chunks = [(1, chunk.as_str())];
        for (chars, too_long) in [
            (ground::CLAIM_MAX_CHARS, 0),
            (ground::CLAIM_MAX_CHARS + 1, 1),
        ] {
            let sifted = sift(&[json!(text(chars))], &chunks, None, &[]);
            assert_eq!(sifted.dropped.too_long, too_long);
            assert_eq!(sifted.admitted.len(), 1 - too_long);
        }
    }

    #[test]
    fn a_build_and_a_unit_hold_so_many_and_no_more() {
        let claims: Vec<Value> = (0..BUILT_MAX + 3)
            .map(|n| json!(format!("Valve {n}")))
            .collect();
        let chunk: String = (0..BUILT_MAX + 3).map(|n| format!("valve {n} ")).collect();
        let sifted = sift(&claims, &[(1, &chunk)], None, &[]);
        assert_eq!(
            (sifted.admitted.len(), sifted.dropped.no_room),
            (BUILT_MAX, 3)
        );
        let held: Vec<String> = (0..CLAIMS_MAX - 2).map(|n| format!("held {n}")).collect();
        let held: Vec<&str> = held.iter().map(String::as_str).collect();
        let sifted = sift(&claims[..4], &[(1, &chunk)], None, &held);
        assert_eq!((sifted.admitted.len(), sifted.dropped.no_room), (2, 2));
    }

    proptest! {
        #[test]
        fn whatever_a_model_writes_is_taken_or_counted(
            claims in prop::collection::vec(prop_oneof![
                "[a-z 0-9]{0,12}".prop_map(|text| json!(text)),
                ("[a-z]{0,6}", prop::collection::vec(0_i64..12, 0..4)).prop_map(|(text, ids)| json!({"claim": text, "chunks": ids})),
                Just(json!(null)), Just(json!([1])), Just(json!({"chunks": {"a": 1}})),
            ], 0..20)
        ) {
            let sifted = sift(&claims, &CHUNKS, None, &[]);
            let dropped = &sifted.dropped;
            // A claim whose every id is unknown is counted by its ids.
            let counted = sifted.admitted.len() + dropped.blank + dropped.ungrounded + dropped.too_long
                + dropped.repeated + dropped.no_room + dropped.unknown_chunk;
            prop_assert!(counted >= claims.len());
            for claim in &sifted.admitted {
                prop_assert!(!claim.chunks.is_empty());
                prop_assert!(claim.chunks.iter().all(|id| [7, 9].contains(id)));
            }
            // The same build again adds nothing.
            let held: Vec<&str> = sifted.admitted.iter().map(|claim| claim.claim.as_str()).collect();
            prop_assert!(sift(&claims, &CHUNKS, None, &held).admitted.is_empty());
        }
    }
}
