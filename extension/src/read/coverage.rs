//! How well the best claim covers a question.

use cortex_core::pool;
use cortex_core::pool::terms::Terms;

use crate::serve::Item;

/// Claims at the top of the list that are asked. The vector arm's best stands among the first of a fused list: what
/// comes before it has a better place in both arms together.
const LOOKED_AT: usize = 64;

/// How many claims must be there for [`best`] to find the best: by vector alone the first is.
pub fn looked_at(mode: &str) -> usize {
    if mode == "vector" { 1 } else { LOOKED_AT }
}

/// The greatest cosine of the first claims, or without vectors the greatest coverage of the question's terms.
/// `None` if there are no claims.
pub fn best(items: &[Item], terms: &Terms, by_vector: bool) -> Option<f64> {
    let items = &items[..items.len().min(LOOKED_AT)];
    if by_vector {
        return items.iter().map(similarity).max_by(f64::total_cmp);
    }
    items
        .iter()
        .map(|item| terms.coverage(&[item.title.as_deref().unwrap_or(""), &item.body]))
        .max_by(f64::total_cmp)
}

/// The cosine of an item to the question; 0 where the vector arm did not find it.
pub fn similarity(item: &Item) -> f64 {
    // Quantised, a vector's product with itself may come out a little over one.
    pool::similarity(item.ranked.vector).min(1.0)
}
