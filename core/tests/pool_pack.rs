//! Packing of candidates and the raw floor: never over the budget, and a prefix of what more would serve.

use cortex_core::pool::floor::{self, CUT_MARK, Chunk, RESERVED_SHARE};
use cortex_core::pool::pack::{Claim, Estimate, Meter, NextNeeds, pack};
use cortex_core::tokens::estimate;
use proptest::prelude::*;

fn claim<'a>(group: u8, header: Option<&'a str>, text: &'a str) -> Claim<'a, u8> {
    Claim {
        group,
        header,
        text,
        place: None,
    }
}

#[test]
fn groups_stand_in_order_of_first_appearance() {
    let claims = [
        claim(2, Some("[two]"), "a"),
        claim(1, None, "b\nsecond line"),
        claim(2, Some("[ignored]"), "c"),
        claim(3, Some(" "), " \n"),
        claim(1, None, "d"),
    ];
    let packed = pack(&claims, 1_000, &Estimate);
    assert_eq!(packed.payload, "[two]\n- a\n- c\n\n- b\n  second line\n- d");
    assert_eq!(packed.served, [0, 1, 2, 4]);
    assert_eq!(packed.tokens, u64::from(estimate(&packed.payload)));
    assert_eq!(packed.next_needs, None);
}

#[test]
fn a_first_claim_that_does_not_fit_is_reported_and_not_sent() {
    let text = "word ".repeat(50);
    let claims = [claim(1, Some("[head]"), &text), claim(1, None, "small")];
    let whole = pack(&claims[..1], 1_000, &Estimate);
    let below = pack(&claims, whole.tokens - 1, &Estimate);
    assert_eq!((below.payload.as_str(), below.tokens), ("", 0));
    let needs = NextNeeds {
        claim: 0,
        budget_tokens: whole.tokens,
    };
    assert_eq!(below.next_needs, Some(needs));
    let enough = pack(&claims, whole.tokens, &Estimate);
    assert_eq!(enough.served, [0]);
    assert!(enough.payload.starts_with("[head]\n- word"));
    assert_eq!(pack(&claims, 0, &Estimate).served, [0_usize; 0]);
}

#[test]
fn the_floor_has_at_least_one_chunk_cut_if_need_be() {
    let long = "alpha beta gamma ".repeat(40);
    let chunks = [Chunk {
        source: "file:a",
        text: &long,
        place: None,
    }];
    let claims = [claim(1, None, &long), claim(1, None, &long)];
    let served = floor::serve(&claims, &chunks, 100, RESERVED_SHARE, &Estimate);
    assert_eq!(served.claims.served, [0_usize; 0]);
    let [entry] = &served.raw[..] else {
        panic!("one chunk: {:?}", served.raw);
    };
    assert!(entry.text.starts_with("[source: file:a]\nalpha beta"));
    assert!(entry.text.ends_with(CUT_MARK));
    assert!(entry.tokens <= 25 && entry.tokens > 15, "{}", entry.tokens);
    // The boundary: whole when it fits, cut when one token is missing.
    let whole = Estimate.raw("[source: file:a]", &long);
    let at = |budget| floor::serve::<u8>(&[], &chunks, budget, RESERVED_SHARE, &Estimate).raw;
    assert_eq!(at(whole)[0].held_bytes, long.len());
    assert!(at(whole - 1)[0].held_bytes < long.len());
    assert_eq!(at(4), []);
}

#[test]
fn each_side_gets_what_the_other_does_not_need() {
    let texts: Vec<String> = (0..30)
        .map(|n| format!("chunk number {n} says so"))
        .collect();
    let chunks: Vec<Chunk> = texts
        .iter()
        .map(|text| Chunk {
            source: "s",
            text,
            place: None,
        })
        .collect();
    let few = [claim(1, None, "one claim")];
    let many: Vec<Claim<u8>> = texts.iter().map(|text| claim(1, None, text)).collect();
    let raw_heavy = floor::serve(&few, &chunks, 200, RESERVED_SHARE, &Estimate);
    assert!(raw_heavy.tokens() > 180);
    let claim_heavy = floor::serve(&many, &chunks[..1], 200, RESERVED_SHARE, &Estimate);
    assert!(claim_heavy.tokens() > 180 && claim_heavy.raw.len() == 1);
    let both = floor::serve(&many, &chunks, 200, RESERVED_SHARE, &Estimate);
    assert!(both.claims.tokens <= 150 && both.tokens() - both.claims.tokens <= 50);
}

#[test]
fn the_same_chunk_counts_once() {
    let chunk = Chunk {
        source: "s",
        text: "t",
        place: None,
    };
    let other = Chunk {
        source: "",
        text: "t",
        place: None,
    };
    let served = floor::serve::<u8>(&[], &[chunk, chunk, other], 100, 0.5, &Estimate);
    let texts: Vec<&str> = served.raw.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts, ["[source: s]\nt", "t"]);
}

type Offered = (Vec<(u8, String)>, Vec<(u8, String)>);

fn offered() -> impl Strategy<Value = Offered> {
    let text = "[a-zA-Z0-9 .,\n\u{e9}\u{4e2d}-]{0,60}";
    (
        prop::collection::vec((0_u8..4, text), 0..12),
        prop::collection::vec((0_u8..3, text), 0..6),
    )
}

proptest! {
    #[test]
    fn never_over_the_budget_and_a_prefix_of_more(
        (claims, chunks) in offered(),
        budget in 0_u64..300,
        more in 0_u64..80,
        share in 0.0_f64..1.0
    ) {
        let headers = [None, Some("[one | 2024]"), Some("## a question"), Some("[source: three]")];
        let sources = ["", "file:one.md", "row:t:[2]"];
        let claims: Vec<Claim<u8>> = claims
            .iter()
            .map(|(group, text)| claim(*group, headers[usize::from(*group)], text))
            .collect();
        let chunks: Vec<Chunk> = chunks
            .iter()
            .map(|(source, text)| Chunk { source: sources[usize::from(*source)], text, place: None })
            .collect();
        let less = floor::serve(&claims, &chunks, budget, share, &Estimate);
        let greater = floor::serve(&claims, &chunks, budget + more, share, &Estimate);
        for (served, budget) in [(&less, budget), (&greater, budget + more)] {
            prop_assert!(served.tokens() <= budget);
            prop_assert_eq!(served.claims.tokens, u64::from(estimate(&served.claims.payload)));
            for entry in &served.raw {
                prop_assert!(u64::from(estimate(&entry.text)) + 2 <= entry.tokens);
            }
            // Every group that is served has its header.
            for &at in &served.claims.served {
                if let Some(header) = claims[at].header {
                    prop_assert!(served.claims.payload.contains(header));
                }
            }
        }
        prop_assert!(greater.claims.served.starts_with(&less.claims.served));
        prop_assert!(greater.raw.len() >= less.raw.len());
        for (small, large) in less.raw.iter().zip(&greater.raw) {
            prop_assert_eq!(small.chunk, large.chunk);
            prop_assert!(small.held_bytes <= large.held_bytes);
        }
        if let Some(needs) = less.claims.next_needs {
            prop_assert!(needs.budget_tokens > budget);
            let at = |budget| {
                floor::serve(&claims, &chunks, budget, share, &Estimate)
                    .claims
                    .served
            };
            let enough = at(needs.budget_tokens);
            prop_assert_eq!(enough.last(), Some(&needs.claim));
            prop_assert!(!at(needs.budget_tokens - 1).contains(&needs.claim));
        }
        // The claim that did not fit is served by the budget that it is said to need.
        let alone = pack(&claims, budget, &Estimate);
        if let Some(needs) = alone.next_needs {
            prop_assert!(needs.budget_tokens > budget);
            let enough = pack(&claims, needs.budget_tokens, &Estimate);
            prop_assert_eq!(enough.served.last(), Some(&needs.claim));
            prop_assert_eq!(enough.tokens, needs.budget_tokens);
        }
    }

    #[test]
    fn the_floor_holds_what_plain_retrieval_would_fit(
        (claims, chunks) in offered(),
        budget in 0_u64..300,
        share in 0.0_f64..0.9
    ) {
        let claims: Vec<Claim<u8>> = claims.iter().map(|(g, text)| claim(*g, None, text)).collect();
        let chunks: Vec<Chunk> = chunks.iter().map(|(_, text)| Chunk { source: "", text, place: None }).collect();
        let served = floor::serve(&claims, &chunks, budget, share, &Estimate);
        let mut left = floor::reserve(budget, share);
        let mut seen: Vec<Chunk> = Vec::new();
        for chunk in &chunks {
            if chunk.text.trim().is_empty() || seen.contains(chunk) {
                continue;
            }
            seen.push(*chunk);
            match left.checked_sub(Estimate.raw("", chunk.text)) {
                Some(rest) => left = rest,
                None => break,
            }
            prop_assert!(served.raw.iter().any(|entry| entry.text == chunk.text));
        }
    }
}
