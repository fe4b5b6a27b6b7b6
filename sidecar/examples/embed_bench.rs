//! Throughput of the in-process embedder, for `bench/embed/run.sh`.
//!
//! Usage: `embed_bench MODEL_DIR SENTENCES_FILE THREADS`. Loads once, embeds a warm-up, writes `ready`, then embeds all lines of the
//! file each time a line comes in on standard input, and writes the seconds it took.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Instant;

use cortex_sidecar::embed::{Embedder, EmbeddingProvider};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model_dir, sentences_file, threads] = arguments.as_slice() else {
        return Err("usage: embed_bench MODEL_DIR SENTENCES_FILE THREADS".into());
    };
    let sentences: Vec<String> = std::fs::read_to_string(sentences_file)?
        .lines()
        .map(str::to_owned)
        .collect();
    let embedder = Embedder::load_with_threads(Path::new(model_dir), threads.parse()?)?;
    embedder.embed(&sentences)?;

    let mut out = io::stdout();
    writeln!(out, "ready")?;
    out.flush()?;
    for request in io::stdin().lock().lines() {
        request?;
        let start = Instant::now();
        let result = embedder.embed(&sentences)?;
        let seconds = start.elapsed().as_secs_f64();
        assert_eq!(result.vectors.len(), sentences.len());
        writeln!(out, "{seconds}")?;
        out.flush()?;
    }
    Ok(())
}
