//! Leaving out near-duplicates, `cortex-distinct/1`: of texts that say the same in almost the same words only the
//! first is kept.
//!
//! Two texts are alike if, normalised ([`analyzer::normalise`]), their sets of five characters in a row share at
//! least 92 of 100: `100 * shared >= 92 * either`. That is not enough where a small difference changes what is said:
//! texts with other numbers or other negations are never alike, however close. What differs in a name or a word
//! of a long text still can be; the caller sees which text stands for which.

use crate::analyzer;

/// Name of this rule.
pub const NAME: &str = "cortex-distinct/1";

/// Hundredths of all five-character runs that two alike texts share at least.
pub const MIN_SHARED_PERCENT: u64 = 92;

/// Characters in a run.
const RUN: usize = 5;

/// Words that turn a statement round. English, as the stop words are.
const NEGATIONS: [&str; 11] = [
    "no", "not", "never", "none", "neither", "nor", "without", "cannot", "nobody", "nothing",
    "hardly",
];

/// What a text is compared by. Make it once for each text.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Runs of five characters, 21 bits each, ascending, each once.
    runs: Vec<u128>,
    /// Words with a digit, ascending.
    numbers: Vec<String>,
    negations: usize,
}

impl Shape {
    /// The shape of `text`.
    pub fn of(text: &str) -> Self {
        let normal = analyzer::normalise(text);
        let characters: Vec<char> = normal.chars().collect();
        // A shorter text is one run.
        let mut runs: Vec<u128> = characters
            .windows(RUN.min(characters.len()).max(1))
            .map(|window| {
                window.iter().fold(0, |packed, &ch| {
                    (packed << 21) | (u128::from(u32::from(ch)) + 1)
                })
            })
            .collect();
        runs.sort_unstable();
        runs.dedup();
        let mut numbers: Vec<String> = Vec::new();
        let mut negations = 0;
        for word in normal.split_whitespace() {
            let word =
                word.trim_matches(|ch: char| !ch.is_alphanumeric() && ch != '-' && ch != '+');
            if word.contains(|ch: char| ch.is_numeric()) {
                numbers.push(word.to_owned());
            }
            let negated =
                NEGATIONS.contains(&word) || word.ends_with("n't") || word.ends_with("n’t");
            negations += usize::from(negated);
        }
        numbers.sort_unstable();
        Shape {
            runs,
            numbers,
            negations,
        }
    }

    /// Whether the two texts are alike.
    pub fn is_like(&self, other: &Self) -> bool {
        let (a, b) = (self.runs.len() as u64, other.runs.len() as u64);
        // The smaller set cannot share more than itself.
        if 100 * a.min(b) < MIN_SHARED_PERCENT * a.max(b)
            || self.negations != other.negations
            || self.numbers != other.numbers
        {
            return false;
        }
        let shared = shared(&self.runs, &other.runs);
        100 * shared >= MIN_SHARED_PERCENT * (a + b - shared)
    }
}

/// How many entries two ascending lists have in common.
fn shared(a: &[u128], b: &[u128]) -> u64 {
    let (mut i, mut j, mut shared) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        match x.cmp(y) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                i += 1;
                j += 1;
                shared += 1;
            }
        }
    }
    shared
}

/// The texts that are kept of a ranked list, added one by one.
#[derive(Debug, Default)]
pub struct Distinct {
    kept: Vec<Shape>,
}

impl Distinct {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps `text`, or gives the number (from 0) of the first kept text that it is like.
    pub fn add(&mut self, text: &str) -> Option<usize> {
        let shape = Shape::of(text);
        let like = self.kept.iter().position(|kept| kept.is_like(&shape));
        if like.is_none() {
            self.kept.push(shape);
        }
        like
    }
}
