//! Speed of the text and vector algorithms, each the best of many short rounds (so that other work on the
//! machine disturbs little).
//!
//! `cargo run --release -p cortex-core --example measure_speed -- FILE` with a text file of a few hundred
//! kilobytes or more.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cortex_core::chunker::{self, ChunkOptions};
use cortex_core::lexical::{self, Params, Posting, Stats};
use cortex_core::{analyzer, extract, sentence, tokens, vector};

const ROUNDS: usize = 300;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("name a text file")?;
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let text = &text[..text.floor_char_boundary(60_000)];
    let words = analyzer::term_counts(text).1;
    println!(
        "{} bytes, {words} words that are not stop words",
        text.len()
    );

    let chunks = chunker::chunk(text, &ChunkOptions::default());
    let pieces: Vec<&str> = chunks
        .iter()
        .map(|chunk| &text[chunk.start..chunk.end])
        .collect();
    per_byte("analyzer::analyze, whole", text.len(), || {
        analyzer::analyze(text).len()
    });
    per_byte("analyzer::term_counts, by chunk", text.len(), || {
        pieces
            .iter()
            .map(|piece| analyzer::term_counts(piece).0.len())
            .sum()
    });
    per_byte("tokens::estimate", text.len(), || {
        tokens::estimate(text) as usize
    });
    per_byte("sentence::sentences", text.len(), || {
        sentence::sentences(text).len()
    });
    per_byte("chunker::chunk", text.len(), || {
        chunker::chunk(text, &ChunkOptions::default()).len()
    });
    per_byte("extract::extract, by chunk", text.len(), || {
        pieces
            .iter()
            .map(|piece| extract::extract(piece).len())
            .sum()
    });
    let unbroken = "x".repeat(text.len());
    per_byte("chunker::chunk, one word", text.len(), || {
        chunker::chunk(&unbroken, &ChunkOptions::default()).len()
    });

    let stored: Vec<f32> = (0..384)
        .map(|i| ((i * 7919) % 997) as f32 / 997.0 - 0.5)
        .collect();
    let query = vector::quantise(&stored)?;
    let dots = best(|| {
        (0..1_000)
            .map(|_| vector::dot(black_box(&stored), &query).unwrap_or(0))
            .sum::<i64>() as usize
    });
    println!(
        "{:40} {:8.0} ns a row",
        "vector::dot, 384 dimensions",
        dots.as_nanos() as f64 / 1e3
    );
    let twice = best(|| {
        (0..1_000)
            .map(|_| vector::dot_quantised(black_box(&query), &query).unwrap_or(0))
            .sum::<i64>() as usize
    });
    println!(
        "{:40} {:8.0} ns a row",
        "vector::dot_quantised, 384 dimensions",
        twice.as_nanos() as f64 / 1e3
    );

    let terms: Vec<(&str, Vec<Posting>)> = ["one", "two", "three"]
        .iter()
        .zip([3_i64, 5, 7])
        .map(|(&term, step)| {
            let items = (0..20_000_i64).map(|i| Posting {
                item: i * step,
                tf: 1 + (i % 5) as u32,
                len: 50 + (i % 97) as u32,
            });
            (term, items.collect())
        })
        .collect();
    let stats = Stats {
        items: 200_000,
        term_total: 20_000_000,
    };
    let ranking =
        best(|| lexical::rank(&terms, stats, Params::default()).map_or(0, |ranked| ranked.len()));
    println!(
        "{:40} {:8.0} ns a posting",
        "lexical::rank, 3 lists of 20,000",
        ranking.as_nanos() as f64 / 60_000.0
    );
    Ok(())
}

fn per_byte(name: &str, bytes: usize, work: impl FnMut() -> usize) {
    let time = best(work);
    println!(
        "{name:40} {:8.1} MB/s",
        bytes as f64 / 1e6 / time.as_secs_f64()
    );
}

fn best(mut work: impl FnMut() -> usize) -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            black_box(work());
            started.elapsed()
        })
        .min()
        .unwrap_or_default()
}
