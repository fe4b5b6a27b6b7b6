//! The raw floor beside claims that are the sentences of the chunks: no text twice, nothing lost.

use cortex_core::pool::floor::{self, CUT_MARK, Chunk, RESERVED_SHARE, Raw};
use cortex_core::pool::pack::{Claim, Estimate, Meter, Place};
use proptest::prelude::*;

/// A source version with its sentences as spans; a chunk holds so many of them.
struct Version {
    id: i64,
    text: String,
    sentences: Vec<(usize, usize)>,
}

impl Version {
    fn new(id: i64, sentences: &[String]) -> Self {
        let (mut text, mut spans) = (String::new(), Vec::new());
        for sentence in sentences {
            if !text.is_empty() {
                text.push(' ');
            }
            spans.push((text.len(), text.len() + sentence.len()));
            text.push_str(sentence);
        }
        let sentences = spans;
        Self {
            id,
            text,
            sentences,
        }
    }

    /// `count` sentences that begin with different words.
    fn of(id: i64, count: usize) -> Self {
        let sentences: Vec<String> = (0..count)
            .map(|n| format!("Item {n} of source {id} holds the value {}.", 7 * n + 1))
            .collect();
        Self::new(id, &sentences)
    }

    fn claim(&self, at: usize) -> Claim<'_, i64> {
        let (start, end) = self.sentences[at];
        Claim {
            group: self.id,
            header: None,
            text: &self.text[start..end],
            place: Some(self.place(start, end)),
        }
    }

    fn chunk(&self, from: usize, to: usize) -> Chunk<'_> {
        let (start, end) = (self.sentences[from].0, self.sentences[to - 1].1);
        Chunk {
            source: "",
            text: &self.text[start..end],
            place: Some(self.place(start, end)),
        }
    }

    fn place(&self, start: usize, end: usize) -> Place {
        Place {
            version: self.id,
            start,
            end,
        }
    }
}

fn texts(raw: &[Raw]) -> Vec<&str> {
    raw.iter().map(|entry| entry.text.as_str()).collect()
}

#[test]
fn what_claims_say_already_is_not_sent_raw_again() {
    let versions: Vec<Version> = (0..12).map(|id| Version::of(id, 1)).collect();
    let claims: Vec<Claim<i64>> = versions.iter().map(|version| version.claim(0)).collect();
    // Raw text in the order of the claims: it is what comes after the claims that the reader has not seen.
    let chunks: Vec<Chunk> = versions.iter().map(|version| version.chunk(0, 1)).collect();
    let served = floor::serve(&claims, &chunks, 150, RESERVED_SHARE, &Estimate);
    assert!(served.tokens() > 110, "{}", served.tokens());
    assert!(!served.raw.is_empty());
    for entry in &served.raw {
        let text = entry.text.trim_end_matches(CUT_MARK);
        assert!(!served.claims.payload.contains(text), "{text} is said");
    }
    // A budget that holds everything holds it once.
    let all = floor::serve(&claims, &chunks, 10_000, RESERVED_SHARE, &Estimate);
    assert_eq!(all.claims.served.len() + all.raw.len(), 12);
    assert_eq!(all.claims.next_needs, None);
}

#[test]
fn a_chunk_is_shortened_by_what_claims_say_of_its_ends() {
    let (first, other) = (Version::of(1, 1), Version::of(2, 5));
    let chunks = [first.chunk(0, 1), other.chunk(0, 5)];
    let claims = [other.claim(0), other.claim(4), other.claim(2)];
    let served = floor::serve(&claims, &chunks, 400, 0.5, &Estimate);
    let rest = "Item 1 of source 2 holds the value 8. Item 2 of source 2 holds the value 15. Item 3 of source 2 holds the value 22.";
    assert_eq!(texts(&served.raw), [first.text.as_str(), rest]);
    let entry = &served.raw[1];
    assert_eq!(entry.start_byte, other.sentences[1].0);
    assert_eq!(entry.held_bytes, rest.len());
    assert_eq!(entry.tokens, Estimate.raw("", rest));
    assert!(served.tokens() <= 400);
}

#[test]
fn only_the_same_words_at_the_same_place_of_the_same_version_cover() {
    let (now, before) = (Version::of(1, 2), Version::of(1, 2));
    let lead = Version::of(9, 1);
    let chunks = [lead.chunk(0, 1), now.chunk(0, 2)];
    let whole = texts(&floor::serve::<i64>(&[], &chunks, 400, 0.5, &Estimate).raw).len();
    assert_eq!(whole, 2);
    let served = |claims: &[Claim<i64>]| {
        let served = floor::serve(claims, &chunks, 400, 0.5, &Estimate);
        assert_eq!(served.claims.served.len(), claims.len());
        served
            .raw
            .iter()
            .map(|entry| entry.held_bytes)
            .sum::<usize>()
    };
    let all = lead.text.len() + now.text.len();
    assert_eq!(served(&[now.claim(0), now.claim(1)]), lead.text.len());
    let mut elsewhere = before.claim(0);
    elsewhere.place = Some(Place {
        version: 2,
        ..elsewhere.place.unwrap()
    });
    assert_eq!(
        served(&[elsewhere, before.claim(1)]),
        lead.text.len() + now.sentences[0].1
    );
    let rephrased = Claim {
        text: "Value 1 is what item 0 of it holds.",
        ..now.claim(0)
    };
    let nowhere = Claim {
        place: None,
        ..now.claim(1)
    };
    assert_eq!(served(&[rephrased, nowhere]), all);
    let shifted = Claim {
        place: Some(now.place(now.sentences[0].0 + 1, now.sentences[0].1 + 1)),
        ..now.claim(0)
    };
    assert_eq!(served(&[shifted]), all);
}

#[test]
fn a_claim_that_was_sent_raw_is_not_said_again() {
    let versions: Vec<Version> = (0..6).map(|id| Version::of(id, 1)).collect();
    // The raw side finds first what the claims come to last.
    let chunks: Vec<Chunk> = versions
        .iter()
        .rev()
        .map(|version| version.chunk(0, 1))
        .collect();
    let claims: Vec<Claim<i64>> = versions.iter().map(|version| version.claim(0)).collect();
    let served = floor::serve(&claims, &chunks, 10_000, 0.5, &Estimate);
    assert_eq!(served.claims.served.len() + served.raw.len(), 6);
    assert!(served.raw.len() >= 2 && served.claims.served.len() >= 2);
    for entry in &served.raw {
        assert!(!served.claims.payload.contains(&entry.text));
    }
}

#[test]
fn a_reserve_too_small_for_a_sensible_cut_holds_whole_chunks_only() {
    let long = Version::of(1, 9);
    let short = Version::new(2, &["Two words.".to_owned()]);
    let at =
        |chunk, budget| floor::serve::<i64>(&[long.claim(0)], &[chunk], budget, 0.25, &Estimate);
    // One claim of twelve tokens comes before; the rest of the text is cut at 24 tokens of reserve.
    assert_eq!(at(long.chunk(1, 9), 13).raw, []);
    assert!(!at(long.chunk(1, 9), 96).raw.is_empty());
    assert_eq!(texts(&at(short.chunk(0, 1), 40).raw), ["Two words."]);
}

type Drawn = (
    Vec<Vec<String>>,
    Vec<(usize, usize)>,
    Vec<(usize, usize, usize)>,
);

/// Versions, claims as (version, sentence), chunks as (version, first sentence, how many).
fn drawn() -> impl Strategy<Value = Drawn> {
    let sentence = "[A-Z][a-z]{0,7}( [a-z\u{e9}0-9]{1,8}){0,9}[.!\u{3002}]";
    (
        prop::collection::vec(prop::collection::vec(sentence, 1..5), 1..5),
        prop::collection::vec((0_usize..5, 0_usize..5), 0..14),
        prop::collection::vec((0_usize..5, 0_usize..5, 1_usize..4), 0..8),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn within_the_budget_a_prefix_of_more_and_nothing_lost(
        (versions, claims, chunks) in drawn(),
        budget in 0_u64..260,
        more in 0_u64..120,
        share in 0.0_f64..0.9
    ) {
        let versions: Vec<Version> = (0..).zip(&versions).map(|(id, texts)| Version::new(id, texts)).collect();
        let of = |at: usize| &versions[at % versions.len()];
        let claims: Vec<Claim<i64>> = claims
            .iter()
            .map(|&(version, at)| of(version).claim(at % of(version).sentences.len()))
            .collect();
        let chunks: Vec<Chunk> = chunks
            .iter()
            .map(|&(version, from, count)| {
                let from = from % of(version).sentences.len();
                of(version).chunk(from, (from + count).min(of(version).sentences.len()))
            })
            .collect();
        let at = |budget| floor::serve(&claims, &chunks, budget, share, &Estimate);
        let (less, greater) = (at(budget), at(budget + more));
        prop_assert!(less.tokens() <= budget && greater.tokens() <= budget + more);
        prop_assert!(greater.claims.served.starts_with(&less.claims.served));
        prop_assert!(greater.raw.len() >= less.raw.len());
        for (small, large) in less.raw.iter().zip(&greater.raw) {
            prop_assert_eq!((small.chunk, small.start_byte), (large.chunk, large.start_byte));
            prop_assert!(small.held_bytes <= large.held_bytes);
        }
        if let Some(needs) = less.claims.next_needs {
            prop_assert!(needs.budget_tokens > budget);
            let enough = at(needs.budget_tokens).claims.served;
            prop_assert!(enough.contains(&needs.claim));
            prop_assert_eq!(&at(needs.budget_tokens - 1).claims.served, &less.claims.served);
        }
        // What plain retrieval would fit into the reserve is in the read, raw or as claims.
        let carried = |version: i64, (start, end): (usize, usize), text: &str| {
            less.claims.served.iter().any(|&at| {
                claims[at].place.is_some_and(|of| (of.version, of.start, of.end) == (version, start, end))
            }) || less.raw.iter().any(|entry| {
                chunks[entry.chunk].place.is_some_and(|of| {
                    let from = of.start + entry.start_byte;
                    of.version == version && from <= start && end <= from + entry.held_bytes
                }) || entry.text.contains(text)
            })
        };
        let mut left = floor::reserve(budget, share);
        let mut seen = Vec::new();
        for chunk in &chunks {
            if seen.contains(&chunk.text) {
                continue;
            }
            seen.push(chunk.text);
            match left.checked_sub(Estimate.raw("", chunk.text)) {
                Some(rest) => left = rest,
                None => break,
            }
            let place = chunk.place.unwrap();
            let version = &versions[place.version as usize];
            for &(start, end) in &version.sentences {
                if place.start <= start && end <= place.end {
                    prop_assert!(carried(version.id, (start, end), &version.text[start..end]));
                }
            }
        }
    }
}
