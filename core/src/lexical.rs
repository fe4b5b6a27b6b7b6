//! Lexical ranking: BM25 in integer arithmetic.
//!
//! `cortex-bm25/1` and `cortex-bm25/2` score alike. `/2` also holds quoted phrases of the query as conditions on
//! every candidate of every arm (see [`crate::phrase`]).
//!
//! For a query term that occurs in `n` of `N` items, an item that holds it `tf` times, and an item length
//! of `len` terms where items have `avg` terms on average, the term adds
//!
//! ```text
//! ln(1 + (N - n + 0.5) / (n + 0.5)) * tf / (tf + k1 * (1 - b + b * len / avg))
//! ```
//!
//! the form Lucene uses. No float takes part: the logarithm is computed bit by bit in fixed point, the
//! fraction with integer division, and each term's share is rounded down to a whole number of
//! [`SCORE_UNIT`]ths before it is added. Ids and scores are therefore equal on every machine.
//!
//! Fixed-point steps, all rounding down:
//!
//! 1. `idf` (Q32) `= (log2(2N + 2) - log2(2n + 1)) * ln 2`, which is the logarithm above rewritten; log2 in
//!    Q32 by repeated squaring, ln 2 as the Q32 constant 2977044471.
//! 2. `slope` (Q48) `= k1 * b * N / total`, `base` (Q24) `= k1 * (1 - b)`, parameters in thousandths.
//! 3. For each posting `norm` (Q24) `= base + slope * len / 2^24`, `denominator = tf * 2^24 + norm`;
//!    numerator and denominator are shifted right together until the numerator fits 34 bits.
//! 4. `share` (Q30) `= numerator * 2^30 / denominator`; the score grows by `idf * share * SCORE_UNIT / 2^62`.

use thiserror::Error;

/// Name of the ranker that new reads use.
pub const NAME: &str = Ranker::CURRENT.name();

/// All names that a receipt may carry.
pub const NAMES: [&str; 2] = [Ranker::V1.name(), Ranker::V2.name()];

/// A ranker by its name. What one gave, it gives for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranker {
    /// `cortex-bm25/1`.
    V1,
    /// `cortex-bm25/2`.
    V2,
}

impl Ranker {
    /// The ranker of new reads.
    pub const CURRENT: Self = Self::V2;

    /// The ranker of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::V1, Self::V2]
            .into_iter()
            .find(|ranker| ranker.name() == name)
    }

    /// Its name as recorded in receipts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "cortex-bm25/1",
            Self::V2 => "cortex-bm25/2",
        }
    }

    /// The parameters that it ranks with.
    pub const fn params(self) -> Params {
        match self {
            Self::V1 | Self::V2 => Params {
                k1_milli: 1_200,
                b_milli: 750,
            },
        }
    }

    /// Whether quoted phrases are conditions. To `cortex-bm25/1` quotes mean nothing.
    pub const fn holds_phrases(self) -> bool {
        matches!(self, Self::V2)
    }
}

/// Scores are in this fraction of the unit of the formula: 12_500_000_000 stands for 12.5.
pub const SCORE_UNIT: i64 = 1_000_000_000;

/// Query terms after this many distinct ones are an error, so that a score stays below 2^53.
pub const MAX_TERMS: usize = 4096;

/// Largest number of items or terms that statistics may state.
const MAX_COUNT: u64 = 1 << 52;
const LN_2_Q32: u128 = 2_977_044_471;

/// One occurrence list entry: an item that holds the term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posting {
    /// Id of the item; each item occurs at most once in the list of a term.
    pub item: i64,
    /// How often the term occurs in the item; entries with 0 are ignored.
    pub tf: u32,
    /// Length of the item in terms, as [`crate::analyzer::term_counts`] returns it.
    pub len: u32,
}

/// Size of the searched collection at the state of the read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Number of visible items.
    pub items: u64,
    /// Sum of their lengths in terms.
    pub term_total: u64,
}

/// Parameters of the formula in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// Saturation of the term frequency, at most 10_000 (10.0).
    pub k1_milli: u32,
    /// Weight of the length, at most 1_000 (1.0).
    pub b_milli: u32,
}

impl Default for Params {
    fn default() -> Self {
        Ranker::CURRENT.params()
    }
}

/// Why a ranking cannot be computed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RankError {
    /// A parameter is outside its range.
    #[error(
        "k1 {k1_milli} or b {b_milli} (thousandths) is out of range: k1 is at most 10000, b at most 1000"
    )]
    Params {
        /// The k1 given.
        k1_milli: u32,
        /// The b given.
        b_milli: u32,
    },
    /// The statistics state more than 2^52 items or terms.
    #[error(
        "statistics of {items} items with {term_total} terms are beyond 2^52, they must be wrong"
    )]
    Stats {
        /// The number of items given.
        items: u64,
        /// The number of terms given.
        term_total: u64,
    },
    /// The query has too many distinct terms.
    #[error("query has {found} distinct terms, at most {MAX_TERMS} are ranked; shorten the query")]
    TooManyTerms {
        /// The number of distinct terms given.
        found: usize,
    },
}

/// Ranks all items that hold at least one query term: `(item, score)` by score descending, then item.
///
/// `terms` pairs each query term with the items that hold it and are visible to this read; the number of
/// postings is the document frequency. A term given twice counts once, with its first list. Statistics that
/// lag behind the postings are read as if they covered them, so the logarithm never turns negative.
///
/// Errors: [`RankError`].
pub fn rank(
    terms: &[(&str, Vec<Posting>)],
    stats: Stats,
    params: Params,
) -> Result<Vec<(i64, i64)>, RankError> {
    check(stats, params)?;
    let mut distinct: Vec<&(&str, Vec<Posting>)> = Vec::with_capacity(terms.len());
    let mut seen = std::collections::HashSet::new();
    distinct.extend(terms.iter().filter(|(term, _)| seen.insert(*term)));
    if distinct.len() > MAX_TERMS {
        return Err(RankError::TooManyTerms {
            found: distinct.len(),
        });
    }

    let norm = LengthNorm::new(stats, params);
    let mut shares: Vec<(i64, i64)> =
        Vec::with_capacity(distinct.iter().map(|(_, postings)| postings.len()).sum());
    for (_, postings) in distinct {
        let idf = idf_q32(stats.items, postings.len() as u64);
        shares.extend(
            postings
                .iter()
                .filter(|posting| posting.tf > 0)
                .map(|posting| (posting.item, norm.share(idf, posting))),
        );
    }
    Ok(sum_and_order(shares))
}

fn check(stats: Stats, params: Params) -> Result<(), RankError> {
    let Params { k1_milli, b_milli } = params;
    if k1_milli > 10_000 || b_milli > 1_000 {
        return Err(RankError::Params { k1_milli, b_milli });
    }
    let Stats { items, term_total } = stats;
    if items > MAX_COUNT || term_total > MAX_COUNT {
        return Err(RankError::Stats { items, term_total });
    }
    Ok(())
}

/// Adds up the shares of each item and orders items by (score descending, item ascending).
fn sum_and_order(mut shares: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    // Lists usually arrive ordered by item, and the stable sort merges ordered runs.
    shares.sort_by_key(|&(item, _)| item);
    let mut ranked: Vec<(i64, i64)> = shares
        .chunk_by(|a, b| a.0 == b.0)
        .map(|of_item| (of_item[0].0, of_item.iter().map(|share| share.1).sum()))
        .collect();
    ranked.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    ranked
}

/// The part of the formula that depends on the collection and the parameters only.
struct LengthNorm {
    base_q24: u64,
    slope_q48: u128,
}

impl LengthNorm {
    fn new(stats: Stats, params: Params) -> Self {
        let (k1, b) = (u64::from(params.k1_milli), u64::from(params.b_milli));
        let base_q24 = ((k1 * (1_000 - b)) << 24) / 1_000_000;
        // Below 2^24 for the parameters, 2^52 for the items and 2^48 for the scale: fits 128 bits.
        let slope_q48 = match stats.term_total {
            0 => 0,
            total => {
                ((u128::from(k1 * b) * u128::from(stats.items)) << 48)
                    / (u128::from(total) * 1_000_000)
            }
        };
        Self {
            base_q24,
            slope_q48,
        }
    }

    /// What a term with this `idf` adds to the score of the posting's item, in [`SCORE_UNIT`]ths.
    fn share(&self, idf_q32: u64, posting: &Posting) -> i64 {
        // Lengths beyond 2^38 average lengths no longer change a score.
        let by_length =
            (self.slope_q48.saturating_mul(u128::from(posting.len)) >> 24).min(1 << 62) as u64;
        let numerator = u64::from(posting.tf) << 24;
        let denominator = numerator + self.base_q24 + by_length;
        let excess = (64 - numerator.leading_zeros()).saturating_sub(34);
        let share_q30 = ((numerator >> excess) << 30) / (denominator >> excess);
        let product = u128::from(idf_q32) * u128::from(share_q30) * SCORE_UNIT as u128;
        // idf is below 44, so the result is below 2^36.
        (product >> 62) as i64
    }
}

/// What a term weighs that `holding` of `items` items hold: `ln((2N + 2) / (2n + 1))`, the same on every machine.
pub fn weight(items: u64, holding: u64) -> f64 {
    // At most 52 bits of it are set, so the division is exact.
    idf_q32(items.min(MAX_COUNT), holding.min(MAX_COUNT)) as f64 / 4_294_967_296.0
}

/// `ln((2N + 2) / (2n + 1))` in Q32, with `N` at least `n`.
fn idf_q32(items: u64, holding: u64) -> u64 {
    let items = items.max(holding);
    let log2 = log2_q32(2 * items + 2) - log2_q32(2 * holding + 1);
    ((u128::from(log2) * LN_2_Q32) >> 32) as u64
}

/// Base-2 logarithm of a positive integer in Q32, rounded down up to the error of 32 squarings in Q63.
///
/// The classical method: the integer part is the position of the highest bit; squaring the mantissa doubles
/// the logarithm of it, and each overflow beyond 2 is the next bit of the fraction.
fn log2_q32(value: u64) -> u64 {
    let integer = u64::from(63 - value.leading_zeros());
    let mut mantissa_q63 = u128::from(value << value.leading_zeros());
    let mut result = integer << 32;
    for bit in (0..32).rev() {
        mantissa_q63 = (mantissa_q63 * mantissa_q63) >> 63;
        if mantissa_q63 >> 64 != 0 {
            mantissa_q63 >>= 1;
            result |= 1 << bit;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log2_agrees_with_floating_point() {
        for value in (1..2_000).chain([u64::MAX, u64::MAX - 1, 1 << 62, (1 << 53) - 1]) {
            let found = log2_q32(value) as f64 / 4_294_967_296.0;
            assert!(
                (found - (value as f64).log2()).abs() < 1e-8,
                "log2({value}) = {found}"
            );
        }
    }
}
