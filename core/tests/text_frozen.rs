//! What a named algorithm once gave, it gives for ever: replay of old traces rests on it. If one of these
//! fails, the algorithm needs a new name beside the old one, not a new digest here.

mod common;

use cortex_core::analyzer::{self, Analyzer};
use cortex_core::chunker::{self, ChunkOptions};
use cortex_core::distinct::{self, Distinct};
use cortex_core::fusion::{self, Fusion};
use cortex_core::lexical::{self, Params, Posting, Stats};
use cortex_core::phrase::Phrases;
use cortex_core::pool::pack::{self, Claim, Estimate};
use cortex_core::{extract, index_text, tokens, vector};
use serde::Serialize;

/// Digest of what `algorithm` gives for each text of the corpus.
fn digest<T: Serialize>(algorithm: impl Fn(&str) -> T) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in corpus() {
        hasher.update(&serde_json::to_vec(&algorithm(&text)).expect("plain data"));
    }
    hasher.finalize().to_hex().as_str()[..32].to_owned()
}

/// Naughty strings, one document of all of them, and prose by rule: numbers choose words and punctuation.
fn corpus() -> Vec<String> {
    const WORDS: [&str; 24] = [
        "The",
        "relational",
        "user_id",
        "getUserName",
        "running",
        "PostgreSQL",
        "15.2",
        "e.g.",
        "don't",
        "état",
        "東京都",
        "database",
        "Straße",
        "happily",
        "1,000",
        "nationalization",
        "Dr.",
        "CPUs",
        "가나다",
        "ข้อมูล",
        "x;",
        "(see",
        "above),",
        "of",
    ];
    const ENDS: [&str; 8] = [" ", " ", " ", " ", ". ", "? ", "\n", "\r\n\r\n"];
    let mut texts = common::naughty_strings();
    texts.push(texts.join("\n"));
    let mut state = 1_u64;
    let mut prose = String::new();
    for _ in 0..4_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        prose.push_str(WORDS[(state >> 33) as usize % WORDS.len()]);
        prose.push_str(ENDS[(state >> 45) as usize % ENDS.len()]);
    }
    texts.push(prose);
    texts
}

#[test]
fn names_are_those_that_were_recorded() {
    assert_eq!(
        [
            tokens::NAME,
            analyzer::NAME,
            chunker::NAME,
            extract::NAME,
            lexical::NAME,
            fusion::NAME,
            vector::NAME,
            pack::NAME,
            index_text::NAME,
            distinct::NAME,
        ],
        [
            "estimate/1",
            "cortex-text/1",
            "cortex-chunk/1",
            "cortex-extract/1",
            "cortex-bm25/2",
            "cortex-rrf/2",
            "cortex-quant/1",
            "cortex-pack/2",
            "cortex-index/1",
            "cortex-distinct/1",
        ]
    );
    assert_eq!(lexical::NAMES, ["cortex-bm25/1", "cortex-bm25/2"]);
    assert_eq!(
        fusion::NAMES,
        ["cortex-rrf/1", "cortex-rrf/2", "cortex-rerank/1"]
    );
    assert_eq!(analyzer::NAMES, ["cortex-text/1"]);
}

#[test]
fn token_estimates() {
    assert_eq!(digest(tokens::estimate), "6b89a846ab842790dd2f490ecd30dd21");
}

#[test]
fn terms_with_positions() {
    let shown = |text: &str| {
        let tokens = analyzer::analyze(text);
        let fields: Vec<_> = tokens
            .into_iter()
            .map(|token| {
                (
                    token.term,
                    token.start,
                    token.end,
                    token.position,
                    token.stop,
                )
            })
            .collect();
        fields
    };
    assert_eq!(digest(shown), "ae08c2791abcf0805018e6c808595e23");
    assert_eq!(
        digest(analyzer::normalise),
        "01b8b50f49177d2286a5140b494b7249"
    );
}

#[test]
fn chunk_spans() {
    let spans = |text: &str| {
        let chunks = chunker::chunk(text, &ChunkOptions::default());
        chunks
            .into_iter()
            .map(|chunk| (chunk.start, chunk.end, chunk.tokens))
            .collect::<Vec<_>>()
    };
    assert_eq!(digest(spans), "0b0a22643d6ce6036fb070f3996e041b");
}

#[test]
fn claim_spans() {
    let spans = |text: &str| {
        extract::extract(text)
            .into_iter()
            .map(|claim| (claim.start, claim.end))
            .collect::<Vec<_>>()
    };
    assert_eq!(digest(spans), "fbd7cf1fd1e8c679d57cf495b97e2ec1");
}

#[test]
fn scores_and_their_fusion() {
    let texts = corpus();
    let counted: Vec<_> = texts
        .iter()
        .map(|text| analyzer::term_counts(text))
        .collect();
    let stats = Stats {
        items: texts.len() as u64,
        term_total: counted.iter().map(|(_, length)| u64::from(*length)).sum(),
    };
    let postings = |term: &str| -> Vec<Posting> {
        let holding = (0_i64..).zip(&counted).filter_map(|(item, (counts, len))| {
            counts.get(term).map(|&tf| Posting {
                item,
                tf,
                len: *len,
            })
        });
        holding.collect()
    };
    let ranking = |query: &str| {
        let terms = analyzer::query_terms(query);
        let lists: Vec<_> = terms
            .iter()
            .map(|term| (term.as_str(), postings(term)))
            .collect();
        lexical::rank(&lists, stats, Params::default()).expect("the statistics are in range")
    };
    assert_eq!(digest(ranking), "d3924c9b5046661ed108e5d008720504");
    let fused = |fusion: Fusion| {
        digest(|query: &str| {
            let ids: Vec<i64> = ranking(query).into_iter().map(|(item, _)| item).collect();
            fusion.fuse(&[&ids, &[3, 1, 2]])
        })
    };
    assert_eq!(fused(Fusion::V1), "39fbbe9b7b008ee18e3cf3902d3683cf");
    assert_eq!(fused(Fusion::V2), "fb49a4c4d89221ffd02e33f9f425a159");
}

#[test]
fn phrases_and_near_duplicates() {
    let texts = corpus();
    let text = texts.join(" ");
    let held = |query: &str| {
        let phrases = Phrases::of(&format!("\"{query}\" {query}"), Analyzer::V1);
        phrases
            .map(|phrases| (phrases.terms().to_vec(), phrases.held_by(&text)))
            .ok()
    };
    assert_eq!(digest(held), "8840e4d30b27f0fd5e74239130f9499f");
    let mut kept = Distinct::new();
    let alike: Vec<Option<usize>> = texts.iter().map(|text| kept.add(text)).collect();
    assert_eq!(digest(|_| &alike), "dc692bf302ed1500e751043a6be49838");
}

#[test]
fn quantised_vectors() {
    let quantised = |text: &str| {
        let values: Vec<f32> = text.bytes().map(|byte| f32::from(byte) - 96.5).collect();
        vector::quantise(&values).ok()
    };
    assert_eq!(digest(quantised), "333b80ddfb20d692cf01b429c83df554");
}

#[test]
fn packed_contexts() {
    let packed = |text: &str| {
        let header = format!("[{}]", cortex_core::pool::header::field(text));
        let claims: Vec<Claim<'_, bool>> = text
            .split(['.', '\n'])
            .enumerate()
            .map(|(n, text)| Claim {
                group: n % 3 == 0,
                header: (n % 2 == 0).then_some(header.as_str()),
                text,
                place: None,
            })
            .collect();
        let packed = pack::pack(&claims, 120, &Estimate);
        (
            packed.payload,
            packed.tokens,
            packed.served,
            packed
                .next_needs
                .map(|next| (next.claim, next.budget_tokens)),
        )
    };
    assert_eq!(digest(packed), "433f748622c86edca5f0606d6c443afa");
}
