//! Packing under a budget.

mod common;

use std::collections::{HashMap, HashSet};

use cortex_core::pack::{
    Collapsed, HEADER_FIELD_MAX_CHARS, NextNeeds, PackError, PackItem, Packed, pack,
};
use cortex_core::tokens::estimate;
use proptest::prelude::*;

/// An owned claim, since generated text must live somewhere.
#[derive(Debug, Clone)]
struct Claim {
    source: String,
    title: String,
    origin: String,
    date: String,
    text: String,
}

fn offered(claims: &[Claim]) -> Vec<PackItem<'_>> {
    (1..)
        .zip(claims)
        .map(|(item, claim)| PackItem {
            item,
            source: &claim.source,
            title: &claim.title,
            origin: &claim.origin,
            date: &claim.date,
            text: &claim.text,
        })
        .collect()
}

/// Text that tries to look like structure.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = [
        "\n",
        "\r\n",
        "\r",
        "\u{2028}",
        "\u{85}",
        "\n\n",
        "- ",
        "[forged | header]",
        "[",
        "]",
        "|",
        " ",
        "\t",
        "# ",
        "```",
        "word",
        "Another sentence.",
        "日本",
        "\u{0}",
        "\u{B}",
        "e\u{301}",
        "   ",
        "- claim",
        "\n- claim",
        "\n[x | y]\n- z",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..8)
        .prop_map(|parts| parts.concat())
}

fn claims() -> impl Strategy<Value = Vec<Claim>> {
    let claim = (
        "[abc]",
        hostile(),
        "[a-z ]{0,12}",
        "(2024-01-0[1-9])?",
        prop_oneof![hostile(), any::<String>()],
    )
        .prop_map(|(source, title, origin, date, text)| Claim {
            source,
            title,
            origin,
            date,
            text,
        });
    prop::collection::vec(claim, 0..24)
}

/// Reads a payload by its grammar: groups of a header and claims, each claim with its lines.
fn parse(payload: &str) -> Vec<(String, Vec<String>)> {
    if payload.is_empty() {
        return Vec::new();
    }
    let read_group = |group: &str| {
        let mut lines = group.split('\n');
        let header = lines.next().expect("a group has a first line").to_owned();
        assert!(
            header.starts_with('[') && header.ends_with(']'),
            "not a header: {header:?}"
        );
        assert_eq!(
            header.matches(['[', ']']).count(),
            2,
            "a header in a header: {header:?}"
        );
        let mut claims: Vec<String> = Vec::new();
        for line in lines {
            match line.strip_prefix("- ") {
                Some(first) => claims.push(first.to_owned()),
                None => {
                    let rest = line
                        .strip_prefix("  ")
                        .unwrap_or_else(|| panic!("neither claim nor continuation: {line:?}"));
                    let claim = claims.last_mut().expect("a continuation follows a claim");
                    claim.push('\n');
                    claim.push_str(rest);
                }
            }
        }
        (header, claims)
    };
    payload.split("\n\n").map(read_group).collect()
}

/// The visible words of a text, which packing must keep in order.
fn visible(text: &str) -> String {
    text.chars()
        .filter(|ch| !ch.is_whitespace() && !ch.is_control())
        .collect()
}

proptest! {
    #[test]
    fn inv_08_the_budget_is_never_exceeded(claims in claims(), budget in 1_u32..300) {
        let packed = pack(&offered(&claims), budget).expect("the budget is not 0");
        prop_assert_eq!(packed.tokens, estimate(&packed.payload));
        prop_assert!(packed.tokens <= budget);
    }

    #[test]
    fn inv_08_what_is_served_is_a_prefix_of_what_a_larger_budget_serves(
        claims in claims(),
        small in 1_u32..200,
        more in 0_u32..200,
    ) {
        let items = offered(&claims);
        let less = pack(&items, small).expect("the budget is not 0");
        let larger = pack(&items, small + more).expect("the budget is not 0");
        prop_assert!(larger.served.starts_with(&less.served));
    }

    #[test]
    fn the_budget_that_the_next_claim_needs_is_exact(claims in claims(), budget in 1_u32..100) {
        let items = offered(&claims);
        let packed = pack(&items, budget).expect("the budget is not 0");
        if let Some(NextNeeds { item, budget_tokens }) = packed.next_needs {
            prop_assert!(budget_tokens > budget);
            let enough = pack(&items, budget_tokens).expect("the budget is not 0");
            prop_assert_eq!(enough.served.get(packed.served.len()), Some(&item));
            let short = pack(&items, budget_tokens - 1).expect("a claim needs more than one token");
            prop_assert_eq!(short.served, packed.served);
        } else {
            let all = pack(&items, u32::MAX).expect("the budget is not 0");
            prop_assert_eq!(packed, all);
        }
    }

    #[test]
    fn inv_14_text_keeps_its_place(claims in claims(), budget in 1_u32..400) {
        let items = offered(&claims);
        let packed = pack(&items, budget).expect("the budget is not 0");
        let groups = parse(&packed.payload);
        // Every served claim is found where its source puts it, with all its visible text, and nothing else is.
        let mut expected: Vec<(&str, Vec<String>)> = Vec::new();
        for &item in &packed.served {
            let claim = &items[(item - 1) as usize];
            let text = visible(claim.text);
            match expected.iter_mut().find(|(source, _)| *source == claim.source) {
                Some((_, texts)) => texts.push(text),
                None => expected.push((claim.source, vec![text])),
            }
        }
        let found: Vec<Vec<String>> =
            groups.iter().map(|(_, claims)| claims.iter().map(|claim| visible(claim)).collect()).collect();
        let expected: Vec<Vec<String>> = expected.into_iter().map(|(_, texts)| texts).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn every_claim_is_served_collapsed_blank_or_beyond(claims in claims(), budget in 1_u32..200) {
        let items = offered(&claims);
        let packed = pack(&items, budget).expect("the budget is not 0");
        let end = packed.next_needs.map_or(items.len(), |next| (next.item - 1) as usize);
        let collapsed: HashMap<i64, i64> = packed.collapsed.iter().map(|pair| (pair.item, pair.into)).collect();
        let served: HashSet<i64> = packed.served.iter().copied().collect();
        for item in &items[..end] {
            match collapsed.get(&item.item) {
                Some(into) => {
                    prop_assert!(served.contains(into) && !served.contains(&item.item));
                    prop_assert_eq!(items[(*into - 1) as usize].source, item.source);
                }
                None => prop_assert_eq!(served.contains(&item.item), !visible(item.text).is_empty()),
            }
        }
    }
}

fn item<'a>(item: i64, source: &'a str, title: &'a str, text: &'a str) -> PackItem<'a> {
    PackItem {
        item,
        source,
        title,
        origin: "notes",
        date: "2023-05-11",
        text,
    }
}

#[test]
fn the_payload_reads_as_documented() {
    let items = [
        item(1, "a", "PostgreSQL 15.3", "First claim."),
        item(2, "b", "another", "Third claim."),
        item(
            3,
            "a",
            "PostgreSQL 15.3",
            "Second claim,\nwhose text has a second line.",
        ),
    ];
    let packed = pack(&items, 1_000).expect("the budget is not 0");
    assert_eq!(
        packed.payload,
        "[PostgreSQL 15.3 | notes | 2023-05-11]\n- First claim.\n- Second claim,\n  whose text has a second line.\n\n\
         [another | notes | 2023-05-11]\n- Third claim."
    );
    assert_eq!(packed.served, [1, 2, 3]);
    assert_eq!(packed.tokens, estimate(&packed.payload));
    assert_eq!(packed.next_needs, None);
}

#[test]
fn inv_08_a_budget_just_large_enough_serves_and_one_less_does_not() {
    let items = [item(1, "a", "title", "A claim that counts.")];
    let size = pack(&items, 1_000).expect("the budget is not 0").tokens;
    assert_eq!(pack(&items, size).expect("the budget is not 0").served, [1]);
    let short = pack(&items, size - 1).expect("the budget is not 0");
    assert_eq!(
        short,
        Packed {
            payload: String::new(),
            tokens: 0,
            served: vec![],
            collapsed: vec![],
            next_needs: Some(NextNeeds {
                item: 1,
                budget_tokens: size
            }),
        }
    );
}

#[test]
fn inv_08_packing_stops_at_the_first_claim_that_does_not_fit() {
    let long = "many words ".repeat(40);
    let items = [
        item(1, "a", "t", "Short one."),
        item(2, "a", "t", &long),
        item(3, "a", "t", "Short two."),
    ];
    let packed = pack(&items, 40).expect("the budget is not 0");
    assert_eq!(packed.served, [1]);
    assert_eq!(packed.next_needs.map(|next| next.item), Some(2));
}

#[test]
fn rephrasings_collapse_within_their_source_only() {
    let items = [
        item(1, "a", "t", "The  same\nTEXT."),
        item(2, "a", "t", " the same text. "),
        item(3, "b", "t", "the same text."),
        item(4, "a", "t", "the same text!"),
    ];
    let packed = pack(&items, 1_000).expect("the budget is not 0");
    assert_eq!(packed.served, [1, 3, 4]);
    assert_eq!(packed.collapsed, [Collapsed { item: 2, into: 1 }]);
}

#[test]
fn a_source_without_any_field_is_named_by_its_key() {
    let bare = PackItem {
        item: 1,
        source: "row:notes:[7]",
        title: " ",
        origin: "",
        date: "\n",
        text: "Some text.",
    };
    assert_eq!(
        pack(&[bare], 100).expect("the budget is not 0").payload,
        "[row:notes:(7)]\n- Some text."
    );
}

#[test]
fn header_fields_are_cut_with_a_mark() {
    let fits = "x".repeat(HEADER_FIELD_MAX_CHARS);
    let longer = "x".repeat(HEADER_FIELD_MAX_CHARS + 1);
    let header = |title: &str| {
        let bare = PackItem {
            item: 1,
            source: "s",
            title,
            origin: "",
            date: "",
            text: "Some text.",
        };
        pack(&[bare], 1_000)
            .expect("the budget is not 0")
            .payload
            .lines()
            .next()
            .map(str::to_owned)
    };
    assert_eq!(header(&fits), Some(format!("[{fits}]")));
    assert_eq!(header(&longer), Some(format!("[{fits}…]")));
}

#[test]
fn blank_claims_and_no_claims_give_an_empty_payload() {
    for items in [vec![], vec![item(1, "a", "t", " \n\u{B}\u{0} ")]] {
        let packed = pack(&items, 10).expect("the budget is not 0");
        assert_eq!(
            (packed.payload.as_str(), packed.tokens, packed.served.len()),
            ("", 0, 0)
        );
        assert_eq!(packed.next_needs, None);
    }
}

#[test]
fn a_budget_of_zero_is_an_error() {
    assert_eq!(pack(&[], 0), Err(PackError::ZeroBudget));
}

#[test]
fn naughty_strings_keep_their_place() {
    for text in common::naughty_strings() {
        let packed = pack(
            &[item(1, &text, &text, &text), item(2, "b", "t", "The end.")],
            u32::MAX,
        )
        .expect("budget");
        let groups = parse(&packed.payload);
        assert_eq!(groups.len(), packed.served.len().min(2), "{text:?}");
    }
}
