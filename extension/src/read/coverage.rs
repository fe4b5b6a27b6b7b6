//! How well the best claim covers a question.

use std::collections::BTreeSet;

use cortex_core::analyzer;
use cortex_core::pool;

use crate::serve::Item;

/// Claims at the top of the list that are asked. The vector arm's best stands among the first of a fused list: what
/// comes before it has a better place in both arms together.
const LOOKED_AT: usize = 64;

/// How many claims must be there for [`best`] to find the best: by vector alone the first is.
pub fn looked_at(mode: &str) -> usize {
    if mode == "vector" { 1 } else { LOOKED_AT }
}

/// The greatest cosine of the first claims, or without vectors the greatest share of the question's terms.
/// `None` if there are no claims.
pub fn best(items: &[Item], query: &str, by_vector: bool) -> Option<f64> {
    let items = &items[..items.len().min(LOOKED_AT)];
    if by_vector {
        return items.iter().map(similarity).max_by(f64::total_cmp);
    }
    let terms = analyzer::query_terms(query);
    items
        .iter()
        .map(|item| share_of_terms(&terms, &[item.title.as_deref().unwrap_or(""), &item.body]))
        .max_by(f64::total_cmp)
}

/// The cosine of an item to the question; 0 where the vector arm did not find it.
pub fn similarity(item: &Item) -> f64 {
    // Quantised, a vector's product with itself may come out a little over one.
    pool::similarity(item.ranked.vector).min(1.0)
}

/// Which part of the question's distinct terms occurs in the texts; 0 for a question without terms.
pub fn share_of_terms(terms: &[String], texts: &[&str]) -> f64 {
    let asked: BTreeSet<&str> = terms.iter().map(String::as_str).collect();
    if asked.is_empty() {
        return 0.0;
    }
    let mut held = BTreeSet::new();
    for text in texts {
        let (counts, _) = analyzer::term_counts(text);
        held.extend(counts.into_keys());
    }
    let found = asked.iter().filter(|term| held.contains(**term)).count();
    found as f64 / asked.len() as f64
}
