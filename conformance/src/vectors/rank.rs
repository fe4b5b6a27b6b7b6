//! Vectors of ranking and fusion, each by the name of its algorithm.

use cortex_core::fusion::Fusion;
use cortex_core::lexical::{self, Params, Posting, Stats};
use serde::{Deserialize, Serialize};

use super::{Case, File, same};

/// A ranking and what it gives: items with their scores, best first, or the reason why there is none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ranked {
    id: String,
    description: String,
    /// Name of the algorithm.
    algorithm: String,
    input: Input,
    gives: Result<Vec<(i64, i64)>, String>,
}

/// Item, occurrences, length of the item.
type Entry = (i64, u32, u32);
/// A term and its postings.
type Term<'a> = (&'a str, &'a [Entry]);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Input {
    Rank {
        /// Each term with its postings: (item, occurrences, length of the item).
        terms: Vec<(String, Vec<Entry>)>,
        items: u64,
        term_total: u64,
        k1_milli: u32,
        b_milli: u32,
    },
    /// So many terms, each of them once in item 1, which has 10 terms; 10 items with 100 terms; usual parameters.
    RankMany { count: usize },
    /// Lists of items, each best first.
    Fuse { lists: Vec<Vec<i64>> },
}

impl Input {
    /// Runs a named algorithm; an old name keeps its rule for ever.
    fn run(&self, algorithm: &str) -> Result<Vec<(i64, i64)>, String> {
        match (self, algorithm) {
            (
                Self::Rank {
                    terms,
                    items,
                    term_total,
                    k1_milli,
                    b_milli,
                },
                "cortex-bm25/1" | "cortex-bm25/2",
            ) => {
                let postings = |list: &[Entry]| {
                    let list = list.iter();
                    list.map(|(item, tf, len)| Posting {
                        item: *item,
                        tf: *tf,
                        len: *len,
                    })
                    .collect::<Vec<_>>()
                };
                let terms: Vec<(&str, Vec<Posting>)> = terms
                    .iter()
                    .map(|(term, list)| (term.as_str(), postings(list)))
                    .collect();
                let stats = Stats {
                    items: *items,
                    term_total: *term_total,
                };
                let params = Params {
                    k1_milli: *k1_milli,
                    b_milli: *b_milli,
                };
                lexical::rank(&terms, stats, params).map_err(|error| error.to_string())
            }
            (Self::RankMany { count }, "cortex-bm25/1" | "cortex-bm25/2") => {
                let terms: Vec<String> = (0..*count).map(|n| format!("t{n}")).collect();
                let posting = Posting {
                    item: 1,
                    tf: 1,
                    len: 10,
                };
                let terms: Vec<(&str, Vec<Posting>)> = terms
                    .iter()
                    .map(|term| (term.as_str(), vec![posting]))
                    .collect();
                let stats = Stats {
                    items: 10,
                    term_total: 100,
                };
                let params = Params {
                    k1_milli: 1_200,
                    b_milli: 750,
                };
                lexical::rank(&terms, stats, params).map_err(|error| error.to_string())
            }
            (Self::Fuse { lists }, name) => {
                let fusion = Fusion::named(name).ok_or(format!("unknown algorithm {name:?}"))?;
                let lists: Vec<&[i64]> = lists.iter().map(Vec::as_slice).collect();
                Ok(fusion.fuse(&lists))
            }
            _ => Err(format!("unknown algorithm {algorithm:?}")),
        }
    }
}

impl Case for Ranked {
    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Result<(), String> {
        same("result", &self.gives, &self.input.run(&self.algorithm))
    }
}

pub(super) fn rankings() -> File<Ranked> {
    let case = |id: &str, description: &str, algorithm: &str, input: Input| Ranked {
        id: id.into(),
        description: description.into(),
        algorithm: algorithm.into(),
        gives: input.run(algorithm),
        input,
    };
    let rank = |terms: &[Term<'_>], items, term_total, k1_milli, b_milli| Input::Rank {
        terms: terms
            .iter()
            .map(|(term, list)| (term.to_string(), list.to_vec()))
            .collect(),
        items,
        term_total,
        k1_milli,
        b_milli,
    };
    let bm25 = |id, description, terms: &[Term<'_>]| {
        case(
            id,
            description,
            "cortex-bm25/1",
            rank(terms, 10, 100, 1_200, 750),
        )
    };
    let set = |id, description, items, term_total, k1, b| {
        let terms: &[Term<'_>] = &[("a", &[(1, 1, 10), (2, 3, 30)]), ("b", &[(2, 1, 30)])];
        case(
            id,
            description,
            "cortex-bm25/1",
            rank(terms, items, term_total, k1, b),
        )
    };
    let fuse = |id, description, algorithm, lists: &[&[i64]]| {
        let lists = lists.iter().map(|list| list.to_vec()).collect();
        case(id, description, algorithm, Input::Fuse { lists })
    };
    let many = |count| Input::RankMany { count };
    let long: Vec<i64> = (1..=1_000).collect();
    let cases = vec![
        bm25("no-terms", "no terms match nothing", &[]),
        bm25("no-postings", "a term that no item holds", &[("a", &[])]),
        bm25("one", "one term in one item", &[("a", &[(7, 1, 10)])]),
        bm25(
            "tie",
            "equal scores go by item, whatever the order of the lists",
            &[("a", &[(9, 1, 10), (3, 1, 10), (5, 1, 10)])],
        ),
        bm25(
            "tie-negative",
            "ids below 0 come first",
            &[("a", &[(3, 1, 10), (-3, 1, 10), (0, 1, 10)])],
        ),
        bm25(
            "tie-of-terms",
            "two terms of one item against two items of one",
            &[("a", &[(2, 1, 10)]), ("b", &[(1, 1, 10)])],
        ),
        bm25(
            "length",
            "the shorter of two items",
            &[("a", &[(1, 1, 20), (2, 1, 5)])],
        ),
        bm25(
            "frequency",
            "the item that holds it more often",
            &[("a", &[(1, 1, 10), (2, 4, 10)])],
        ),
        bm25(
            "rare",
            "the rarer term weighs more",
            &[
                ("a", &[(1, 1, 10), (2, 1, 10), (3, 1, 10)]),
                ("b", &[(4, 1, 10)]),
            ],
        ),
        bm25(
            "twice",
            "a term given twice counts once, with its first list",
            &[("a", &[(1, 1, 10)]), ("a", &[(2, 1, 10)])],
        ),
        bm25(
            "zero-tf",
            "an entry without occurrences is ignored",
            &[("a", &[(1, 0, 10), (2, 1, 10)])],
        ),
        bm25(
            "everywhere",
            "a term in every item still counts",
            &[(
                "a",
                &[
                    (1, 1, 10),
                    (2, 1, 10),
                    (3, 1, 10),
                    (4, 1, 10),
                    (5, 1, 10),
                    (6, 1, 10),
                    (7, 1, 10),
                    (8, 1, 10),
                    (9, 1, 10),
                    (10, 1, 10),
                ],
            )],
        ),
        bm25(
            "most",
            "the largest frequency and length",
            &[(
                "a",
                &[(1, u32::MAX, u32::MAX), (2, 1, u32::MAX), (3, u32::MAX, 1)],
            )],
        ),
        set("default", "the usual parameters", 10, 100, 1_200, 750),
        set("k1-0", "frequency does not count", 10, 100, 0, 750),
        set("b-0", "length does not count", 10, 100, 1_200, 0),
        set("b-1000", "length counts in full", 10, 100, 1_200, 1_000),
        set("k1-10000", "the largest k1", 10, 100, 10_000, 750),
        set("k1-10001", "beyond it", 10, 100, 10_001, 750),
        set("b-1001", "beyond the largest b", 10, 100, 1_200, 1_001),
        set("stats-0", "statistics that lag behind", 0, 0, 1_200, 750),
        set(
            "stats-most",
            "2^52 items and terms",
            1 << 52,
            1 << 52,
            1_200,
            750,
        ),
        set("stats-over", "one more", (1 << 52) + 1, 1 << 52, 1_200, 750),
        case(
            "terms-4096",
            "as many terms as are ranked",
            "cortex-bm25/1",
            many(4_096),
        ),
        case("terms-4097", "one more", "cortex-bm25/1", many(4_097)),
        fuse("fuse-none", "no lists", "cortex-rrf/1", &[]),
        fuse("fuse-empty", "empty lists", "cortex-rrf/1", &[&[], &[]]),
        fuse(
            "fuse-one",
            "one list keeps its order",
            "cortex-rrf/1",
            &[&[5, 3, 9]],
        ),
        fuse(
            "fuse-agree",
            "two lists that agree",
            "cortex-rrf/1",
            &[&[5, 3], &[5, 3]],
        ),
        fuse(
            "fuse-tie",
            "mirrored places are a tie, by item",
            "cortex-rrf/1",
            &[&[5, 3], &[3, 5]],
        ),
        fuse(
            "fuse-apart",
            "lists with nothing in common are a tie at each place",
            "cortex-rrf/1",
            &[&[9, 8], &[2, 7]],
        ),
        fuse(
            "fuse-twice",
            "an id twice in a list counts at its first place",
            "cortex-rrf/1",
            &[&[4, 4, 1]],
        ),
        fuse(
            "fuse-deep",
            "the thousandth place",
            "cortex-rrf/1",
            &[&long, &[1_000]],
        ),
        fuse(
            "fuse-2",
            "the second fusion: an offset of 10",
            "cortex-rrf/2",
            &[&[5, 3, 9], &[9, 5]],
        ),
        fuse(
            "fuse-2-deep",
            "places beyond the hundredth are of a further tier, however good both are",
            "cortex-rrf/2",
            &[&long, &[1_000, 101, 102]],
        ),
        case(
            "bm25-2",
            "the second ranker scores as the first; phrases are its condition",
            "cortex-bm25/2",
            many(7),
        ),
        fuse(
            "rerank",
            "the order of two arms over the same items",
            "cortex-rerank/1",
            &[&[1, 2, 3], &[3, 1, 2]],
        ),
    ];
    File {
        comment: "Rankings and fusions by name: items with their scores, best first, equal scores by ascending item; \
                  or the reason why there is none. A term's postings are item, occurrences, length of the item."
            .into(),
        version: 1,
        cases,
    }
}
