//! Integer BM25 and reciprocal rank fusion.

use std::collections::BTreeMap;

use cortex_core::fusion::{self, Fusion};
use cortex_core::lexical::{
    self, MAX_TERMS, Params, Posting, RankError, Ranker, SCORE_UNIT, Stats, rank,
};
use proptest::prelude::*;

const NAMES: [&str; 6] = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"];

/// The formula in floating point.
fn bm25(terms: &[(&str, Vec<Posting>)], stats: Stats, params: Params) -> BTreeMap<i64, f64> {
    let (k1, b) = (
        f64::from(params.k1_milli) / 1e3,
        f64::from(params.b_milli) / 1e3,
    );
    let average = stats.term_total as f64 / stats.items as f64;
    let mut scores = BTreeMap::new();
    for (_, postings) in terms {
        let holding = postings.len() as f64;
        let idf = (1.0 + (stats.items as f64 - holding + 0.5) / (holding + 0.5)).ln();
        for posting in postings {
            let tf = f64::from(posting.tf);
            let norm = k1 * (1.0 - b + b * f64::from(posting.len) / average);
            *scores.entry(posting.item).or_insert(0.0) += idf * tf / (tf + norm);
        }
    }
    scores
}

fn postings() -> impl Strategy<Value = Vec<Posting>> {
    let tf = prop_oneof![4 => 1_u32..8, 1 => 1_u32..1_000_000];
    let len = prop_oneof![4 => 1_u32..300, 1 => 1_u32..10_000_000];
    prop::collection::btree_map(-40_i64..40, (tf, len), 0..40).prop_map(|map| {
        map.into_iter()
            .map(|(item, (tf, len))| Posting { item, tf, len })
            .collect()
    })
}

fn query() -> impl Strategy<Value = Vec<(&'static str, Vec<Posting>)>> {
    prop::collection::vec(postings(), 1..=NAMES.len())
        .prop_map(|lists| NAMES.into_iter().zip(lists).collect())
}

proptest! {
    #[test]
    fn it_agrees_with_floating_point(
        terms in query(),
        more_items in 0_u64..100_000_000,
        average in 1_u64..5_000,
        k1_milli in 0_u32..=10_000,
        b_milli in 0_u32..=1_000,
    ) {
        let items = 80 + more_items;
        let stats = Stats { items, term_total: items * average };
        let params = Params { k1_milli, b_milli };
        let exact = bm25(&terms, stats, params);
        let ranked = rank(&terms, stats, params).expect("parameters are in range");
        prop_assert_eq!(ranked.len(), exact.len());
        let mut before = f64::INFINITY;
        for &(item, score) in &ranked {
            let found = score as f64 / SCORE_UNIT as f64;
            let error = (found - exact[&item]).abs();
            // A share is cut at 2^-30, and six terms have a logarithm below 20 each.
            prop_assert!(error <= 1e-6 * exact[&item] + 1.2e-7, "item {item}: {found} is not {}", exact[&item]);
            // Same order but for near ties.
            prop_assert!(exact[&item] <= before * (1.0 + 2e-6) + 2.4e-7);
            before = exact[&item];
        }
    }

    #[test]
    fn the_order_is_by_score_then_item(terms in query()) {
        let ranked = rank(&terms, Stats { items: 100, term_total: 5_000 }, Params::default()).expect("in range");
        prop_assert!(ranked.windows(2).all(|pair| pair[0].1 > pair[1].1 || (pair[0].1 == pair[1].1 && pair[0].0 < pair[1].0)));
        prop_assert!(ranked.iter().all(|&(_, score)| (0..1 << 53).contains(&score)));
    }

    #[test]
    fn neither_order_of_terms_nor_of_postings_matters(terms in query(), seed in any::<u64>()) {
        let stats = Stats { items: 100, term_total: 5_000 };
        let mut shuffled = terms.clone();
        let pivot = (seed % shuffled.len() as u64) as usize;
        shuffled.rotate_left(pivot);
        for (_, postings) in &mut shuffled {
            postings.reverse();
        }
        prop_assert_eq!(rank(&terms, stats, Params::default()), rank(&shuffled, stats, Params::default()));
    }

    #[test]
    fn a_repeated_term_counts_once(terms in query()) {
        let stats = Stats { items: 100, term_total: 5_000 };
        let mut repeated = terms.clone();
        repeated.push(terms[0].clone());
        prop_assert_eq!(rank(&terms, stats, Params::default()), rank(&repeated, stats, Params::default()));
    }

    #[test]
    fn any_statistics_in_range_give_scores_in_range(
        terms in query(),
        items in 0_u64..=1 << 52,
        term_total in 0_u64..=1 << 52,
        tf in any::<u32>(),
        len in any::<u32>(),
    ) {
        let mut terms = terms;
        terms.push(("eta", vec![Posting { item: i64::MIN, tf, len }, Posting { item: i64::MAX, tf: 1, len: 0 }]));
        let ranked = rank(&terms, Stats { items, term_total }, Params::default()).expect("in range");
        prop_assert!(ranked.iter().all(|&(_, score)| (0..1 << 53).contains(&score)));
    }

    #[test]
    fn fusion_is_the_sum_of_reciprocal_ranks(
        lists in prop::collection::vec(prop::collection::vec(0_i64..30, 0..40), 0..5),
        (fusion, offset) in prop_oneof![Just((Fusion::V1, 60)), Just((Fusion::V2, 10))],
    ) {
        let mut expected: BTreeMap<i64, i64> = BTreeMap::new();
        for list in &lists {
            for (index, &item) in list.iter().enumerate() {
                if !list[..index].contains(&item) {
                    *expected.entry(item).or_default() += 1_000_000_000 / (offset + 1 + index as i64);
                }
            }
        }
        let mut expected: Vec<(i64, i64)> = expected.into_iter().collect();
        expected.sort_by_key(|&(item, score)| (-score, item));
        let borrowed: Vec<&[i64]> = lists.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(fusion.fuse(&borrowed), expected);
    }
}

#[test]
fn recorded_scores_do_not_move() {
    let posting = |item, tf, len| Posting { item, tf, len };
    let terms = [
        (
            "apple",
            vec![posting(1, 1, 10), posting(2, 3, 40), posting(7, 2, 25)],
        ),
        ("pear", vec![posting(2, 1, 40), posting(9, 1, 10)]),
    ];
    let ranked = rank(
        &terms,
        Stats {
            items: 1_000,
            term_total: 25_000,
        },
        Params::default(),
    );
    // By the formula: 5.76677233, 3.60991810, 3.53499488, 3.40722398.
    assert_eq!(
        ranked,
        Ok(vec![
            (2, 5_766_772_400),
            (9, 3_609_918_300),
            (7, 3_534_994_959),
            (1, 3_407_224_170)
        ])
    );
}

#[test]
fn empty_lists_and_zero_frequencies_rank_nothing() {
    let stats = Stats {
        items: 0,
        term_total: 0,
    };
    assert_eq!(rank(&[], stats, Params::default()), Ok(vec![]));
    assert_eq!(rank(&[("a", vec![])], stats, Params::default()), Ok(vec![]));
    let ignored = Posting {
        item: 1,
        tf: 0,
        len: 5,
    };
    assert_eq!(
        rank(&[("a", vec![ignored])], stats, Params::default()),
        Ok(vec![])
    );
}

#[test]
fn statistics_behind_the_postings_do_not_turn_scores_negative() {
    let postings: Vec<Posting> = (0..10)
        .map(|item| Posting {
            item,
            tf: 1,
            len: 5,
        })
        .collect();
    let ranked = rank(
        &[("a", postings)],
        Stats {
            items: 2,
            term_total: 10,
        },
        Params::default(),
    )
    .expect("in range");
    assert_eq!(ranked.len(), 10);
    assert!(ranked.iter().all(|&(_, score)| score > 0));
}

#[test]
fn parameters_out_of_range_are_errors() {
    let stats = Stats {
        items: 1,
        term_total: 1,
    };
    assert!(
        rank(
            &[],
            stats,
            Params {
                k1_milli: 10_000,
                b_milli: 1_000
            }
        )
        .is_ok()
    );
    for params in [
        Params {
            k1_milli: 10_001,
            b_milli: 0,
        },
        Params {
            k1_milli: 0,
            b_milli: 1_001,
        },
    ] {
        let Params { k1_milli, b_milli } = params;
        assert_eq!(
            rank(&[], stats, params),
            Err(RankError::Params { k1_milli, b_milli })
        );
    }
    let items = (1 << 52) + 1;
    assert_eq!(
        rank(
            &[],
            Stats {
                items,
                term_total: 0
            },
            Params::default()
        ),
        Err(RankError::Stats {
            items,
            term_total: 0
        })
    );
    let names: Vec<String> = (0..=MAX_TERMS).map(|number| number.to_string()).collect();
    let terms: Vec<(&str, Vec<Posting>)> =
        names.iter().map(|name| (name.as_str(), vec![])).collect();
    assert_eq!(
        rank(&terms, stats, Params::default()),
        Err(RankError::TooManyTerms {
            found: MAX_TERMS + 1
        })
    );
    assert!(rank(&terms[1..], stats, Params::default()).is_ok());
}

#[test]
fn fusion_breaks_ties_by_item() {
    let v1 = |lists: &[&[i64]]| Fusion::V1.fuse(lists);
    assert_eq!(
        v1(&[&[5], &[3]]),
        [(3, fusion::SCALE / 61), (5, fusion::SCALE / 61)]
    );
    assert_eq!(v1(&[]), []);
    assert_eq!(v1(&[&[], &[]]), []);
    assert_eq!(v1(&[&[1, 2], &[2, 1]]), [(1, 32_522_474), (2, 32_522_474)]);
    let of_two = fusion::SCALE / 11 + fusion::SCALE / 12;
    assert_eq!(
        Fusion::V2.fuse(&[&[1, 2], &[2, 1]]),
        [(1, of_two), (2, of_two)]
    );
}

#[test]
fn one_first_place_against_two_middling_ones() {
    // 7 is first in one list only; 1 is at places 30 and 30.
    let mut a: Vec<i64> = (100..129).collect();
    a.push(1);
    let mut b: Vec<i64> = vec![7];
    b.extend(200..228);
    b.push(1);
    let place = |fusion: Fusion, item| {
        let fused = fusion.fuse(&[&a, &b]);
        fused.iter().position(|&(found, _)| found == item)
    };
    assert!(place(Fusion::V1, 1) < place(Fusion::V1, 7));
    assert!(place(Fusion::V2, 7) < place(Fusion::V2, 1));
}

#[test]
fn names_lead_back_to_their_algorithms() {
    for name in fusion::NAMES {
        assert_eq!(Fusion::named(name).map(Fusion::name), Some(name));
    }
    for name in lexical::NAMES {
        assert_eq!(Ranker::named(name).map(Ranker::name), Some(name));
    }
    assert_eq!(Fusion::named("cortex-rrf/3"), None);
    assert_eq!(Ranker::named("cortex-bm25/3"), None);
    assert_eq!(Ranker::named("CORTEX-BM25/1"), None);
}
