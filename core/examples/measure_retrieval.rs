//! Retrieval quality and speed of the lexical arm on a test set.
//!
//! `cargo run --release -p cortex-core --example measure_retrieval -- FOLDER...` where each folder holds
//! `corpus.jsonl` (`_id`, `title`, `text`) and `queries.jsonl` (`_id`, `text`, `gold`) or `claims_dev.jsonl`
//! (`_id`, `claim`, `cited_doc_ids`). Prints recall and nDCG (binary) at 10, and the time of each step.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Instant;

use cortex_core::analyzer;
use cortex_core::lexical::{self, Params, Posting, Stats};
use serde_json::Value;

/// A question with the ids of the documents that answer it.
type Question = (String, HashSet<String>);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folders: Vec<String> = std::env::args().skip(1).collect();
    if folders.is_empty() {
        return Err("name at least one folder with corpus.jsonl and queries.jsonl".into());
    }
    for folder in &folders {
        measure(Path::new(folder))?;
    }
    Ok(())
}

fn measure(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let corpus = read_lines(&folder.join("corpus.jsonl"))?;
    let texts: Vec<String> = corpus
        .iter()
        .map(|doc| format!("{}\n\n{}", text_of(doc, "title"), text_of(doc, "text")))
        .collect();
    let bytes: usize = texts.iter().map(String::len).sum();

    let started = Instant::now();
    let analyzed: Vec<_> = texts
        .iter()
        .map(|text| analyzer::term_counts(text))
        .collect();
    let analysis = started.elapsed();

    let mut postings: HashMap<&str, Vec<Posting>> = HashMap::new();
    for (item, (counts, len)) in (0_i64..).zip(&analyzed) {
        for (term, &tf) in counts {
            postings.entry(term).or_default().push(Posting {
                item,
                tf,
                len: *len,
            });
        }
    }
    let term_total: u64 = analyzed.iter().map(|(_, len)| u64::from(*len)).sum();
    let stats = Stats {
        items: texts.len() as u64,
        term_total,
    };

    let questions = questions(folder)?;
    let started = Instant::now();
    let mut recall = 0.0;
    let mut ndcg = 0.0;
    for (question, gold) in &questions {
        let terms = analyzer::query_terms(question);
        let lists: Vec<(&str, Vec<Posting>)> = terms
            .iter()
            .map(|term| {
                (
                    term.as_str(),
                    postings.get(term.as_str()).cloned().unwrap_or_default(),
                )
            })
            .collect();
        let ranked = lexical::rank(&lists, stats, Params::default())?;
        let top: Vec<&str> = ranked
            .iter()
            .take(10)
            .map(|&(item, _)| text_of(&corpus[item as usize], "_id"))
            .collect();
        let hits: Vec<usize> = (0..top.len())
            .filter(|&rank| gold.contains(top[rank]))
            .collect();
        recall += hits.len() as f64 / gold.len() as f64;
        let gain = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
        ndcg += hits.iter().map(|&rank| gain(rank)).sum::<f64>()
            / (0..gold.len().min(10)).map(gain).sum::<f64>();
    }
    let count = questions.len() as f64;
    println!(
        "{}: {} documents, {} questions: recall@10 {:.4} nDCG@10 {:.4}; analysis {:.1} MB/s ({:.0} ns a word), {:.0} us a question",
        folder.display(),
        texts.len(),
        questions.len(),
        recall / count,
        ndcg / count,
        bytes as f64 / 1e6 / analysis.as_secs_f64(),
        analysis.as_nanos() as f64 / term_total as f64,
        started.elapsed().as_micros() as f64 / count,
    );
    Ok(())
}

/// The questions with the ids of the documents that answer them; unanswerable ones are left out.
fn questions(folder: &Path) -> Result<Vec<Question>, Box<dyn std::error::Error>> {
    let claims = folder.join("claims_dev.jsonl");
    let (path, text, gold) = if claims.exists() {
        (claims, "claim", "cited_doc_ids")
    } else {
        (folder.join("queries.jsonl"), "text", "gold")
    };
    let ids = |question: &Value| -> HashSet<String> {
        question[gold]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let all = read_lines(&path)?;
    Ok(all
        .iter()
        .map(|question| (text_of(question, text).to_owned(), ids(question)))
        .filter(|(_, gold)| !gold.is_empty())
        .collect())
}

fn text_of<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or("")
}

fn read_lines(path: &Path) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?)
}
