//! The known word that a mistyped one was meant to be, for error messages.

/// The word of `known` that takes the fewest changes of single characters to get from `word`, the first of equals.
/// One that `word` begins, or that begins `word`, goes before all others. `None` where `known` is empty.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known.iter().copied().min_by_key(|candidate| {
        let cut = !word.is_empty() && (candidate.starts_with(word) || word.starts_with(candidate));
        (!cut, distance(word, candidate))
    })
}

/// Insertions, deletions and replacements between two words.
fn distance(a: &str, b: &str) -> usize {
    // Nobody mistypes more than this, and the cost is the product of the lengths.
    let a: Vec<char> = a.chars().take(100).collect();
    let b: Vec<char> = b.chars().take(100).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_single_changes() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("gate", "gate"), 0);
    }

    #[test]
    fn names_the_word_that_was_meant() {
        let known = ["gate", "builder", "build_when"];
        assert_eq!(nearest("biulder", &known), Some("builder"));
        assert_eq!(nearest("build", &known), Some("builder"));
        let known = ["mode", "budget_tokens"];
        assert_eq!(nearest("budget", &known), Some("budget_tokens"));
        assert_eq!(nearest("modes", &known), Some("mode"));
        assert_eq!(nearest("", &known), Some("mode"));
        assert_eq!(nearest("x", &[]), None);
    }
}
