//! Throughput of the in-process embedder, for `bench/embed/run.sh`.
//!
//! Usage: `embed_bench MODEL_DIR SENTENCES_FILE THREADS`. Loads once, embeds all lines of the file to warm up and writes `ready`. Then
//! each line on standard input is one piece of work, and the answer is the seconds it took: `bulk` embeds all sentences in one call,
//! a number embeds that many of them one by one.

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
        let request = request?;
        let start = Instant::now();
        if request == "bulk" {
            embedder.embed(&sentences)?;
        } else {
            let count: usize = request.parse()?;
            for sentence in sentences.iter().take(count) {
                embedder.embed(std::slice::from_ref(sentence))?;
            }
        }
        writeln!(out, "{}", start.elapsed().as_secs_f64())?;
        out.flush()?;
    }
    Ok(())
}
