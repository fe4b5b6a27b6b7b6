//! One-byte copies of vectors, packed into blocks of about a page, from which a scan nominates.
//!
//! An exact scan of float vectors reads four bytes a component; this reads one, in a row, and loses nothing: each
//! copy carries how far it may be from the vector that it stands for, so the scan knows bounds of every score and
//! nominates all items that can be among the best. Exact scores ([`crate::vector`]) then decide between them.
//!
//! A block, all numbers least byte first:
//!
//! | bytes | what |
//! |---|---|
//! | 2 | layout, [`LAYOUT`] |
//! | 2 | `n`, how many vectors |
//! | 4 | `d`, their dimensions |
//! | 8 `n` | item ids |
//! | 4 `n` | scale `s`, a float |
//! | 4 `n` | error `e`, a float |
//! | `n d` | components `c`, signed bytes |
//!
//! Component `i` of the vector, quantised as `cortex-quant/1` does, is about `s c[i]`; `e` is at least the
//! Euclidean length of the difference. So for a quantised query `q` the exact score differs from `s (q . c)` by no
//! more than `|q| e` (Cauchy and Schwarz).

use crate::vector::{self, VectorError};

/// Layout of a block.
pub const LAYOUT: u16 = 1;
/// Bytes of a block that PostgreSQL keeps in one page beside the row's other columns, with room for its headers.
pub const BLOCK_BYTES: usize = 8_040;

const HEADER: usize = 8;
const BESIDES: usize = 8 + 4 + 4;

/// How many vectors of `dims` dimensions fit into a block; at least one.
pub fn capacity(dims: usize) -> usize {
    ((BLOCK_BYTES - HEADER) / (BESIDES + dims)).max(1)
}

/// Bytes that are no block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no block of packed vectors: {found}")]
pub struct NoBlock {
    /// What is wrong with them.
    pub found: String,
}

/// Packs vectors of equal size into one block.
///
/// # Errors
/// A vector that cannot be quantised, or one whose size differs from the first's; a count of 0 or beyond 65,535 cannot
/// be told from the sizes and is [`VectorError::UnsupportedSize`].
pub fn pack(vectors: &[(i64, &[f32])]) -> Result<Vec<u8>, VectorError> {
    let count = u16::try_from(vectors.len()).unwrap_or(0);
    let dims = vectors.first().map_or(0, |(_, values)| values.len());
    if count == 0 {
        return Err(VectorError::UnsupportedSize {
            found: vectors.len(),
        });
    }
    let mut scales = Vec::with_capacity(4 * vectors.len());
    let mut errors = Vec::with_capacity(4 * vectors.len());
    let mut codes = Vec::with_capacity(dims * vectors.len());
    for (_, values) in vectors {
        let components = vector::quantise_for(values, dims)?;
        let largest = components.iter().map(|c| c.unsigned_abs()).max();
        let scale = f32::from(largest.unwrap_or(1).max(1)) / 127.0;
        let mut rest = 0.0_f64;
        for &component in &components {
            let code = (f32::from(component) / scale).round().clamp(-127.0, 127.0);
            codes.push(code as i8 as u8);
            let away = f64::from(component) - f64::from(scale) * f64::from(code);
            rest += away * away;
        }
        scales.extend(scale.to_le_bytes());
        // Rounded up twice: by the cast and for the sum above.
        errors.extend((rest.sqrt() as f32).next_up().next_up().to_le_bytes());
    }
    let mut block = Vec::with_capacity(HEADER + vectors.len() * (BESIDES + dims));
    block.extend(LAYOUT.to_le_bytes());
    block.extend(count.to_le_bytes());
    block.extend((dims as u32).to_le_bytes());
    for (item, _) in vectors {
        block.extend(item.to_le_bytes());
    }
    block.extend(scales);
    block.extend(errors);
    block.extend(codes);
    Ok(block)
}

/// The items of a block.
///
/// # Errors
/// Bytes that are no block.
pub fn items(block: &[u8]) -> Result<Vec<i64>, NoBlock> {
    let block = Block::read(block)?;
    Ok(block
        .items
        .iter()
        .map(|id| i64::from_le_bytes(*id))
        .collect())
}

/// The parts of a block.
struct Block<'a> {
    items: &'a [[u8; 8]],
    scales: &'a [[u8; 4]],
    errors: &'a [[u8; 4]],
    codes: &'a [u8],
    dims: usize,
}

impl<'a> Block<'a> {
    #[inline(always)]
    fn read(bytes: &'a [u8]) -> Result<Self, NoBlock> {
        let wrong = |found: String| NoBlock { found };
        let Some((head, rest)) = bytes.split_at_checked(HEADER) else {
            return Err(wrong(format!("{} bytes", bytes.len())));
        };
        let layout = u16::from_le_bytes([head[0], head[1]]);
        let count = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let dims = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if layout != LAYOUT {
            return Err(wrong(format!("layout {layout}, known is {LAYOUT}")));
        }
        if dims > vector::MAX_DIMS || rest.len() != count * (BESIDES + dims) {
            return Err(wrong(format!(
                "{} bytes for {count} vectors of {dims} dimensions",
                rest.len()
            )));
        }
        let (items, rest) = rest.split_at(8 * count);
        let (scales, rest) = rest.split_at(4 * count);
        let (errors, codes) = rest.split_at(4 * count);
        Ok(Block {
            items: items.as_chunks::<8>().0,
            scales: scales.as_chunks::<4>().0,
            errors: errors.as_chunks::<4>().0,
            codes,
            dims,
        })
    }
}

/// Inner product of a quantised query and packed components.
#[inline(always)]
fn dot(query: &[i16], codes: &[u8]) -> i32 {
    // No partial sum leaves 32 bits: by Cauchy and Schwarz none is above 32767 * 127 * sqrt(16000). Wrapping, so that
    // no check stands between the compiler and the instruction that multiplies and adds pairs.
    query
        .iter()
        .zip(codes)
        .map(|(&weight, &value)| i32::from(weight).wrapping_mul(i32::from(value as i8)))
        .fold(0, i32::wrapping_add)
}

/// An item with bounds of its score.
#[derive(Clone, Copy)]
struct Bounded {
    item: i64,
    least: f64,
    most: f64,
}

/// Collects, block by block, the items that can be among the best `wanted`.
pub struct Scan<'q> {
    query: &'q [i16],
    length: f64,
    wanted: usize,
    found: Vec<Bounded>,
    /// `wanted` items score at least this; whoever cannot reach it is let go.
    bar: f64,
    seen: usize,
    /// How many must be found before the bar is looked at again.
    patience: usize,
}

/// What a scan nominates.
#[derive(Clone, Debug, PartialEq)]
pub struct Nominated {
    /// Items that can be among the best, in no order that means anything.
    pub items: Vec<i64>,
    /// Every other item scores less, and as many as were wanted score at least this; `None` if there is no other.
    pub bar: Option<i64>,
    /// Vectors that were looked at.
    pub seen: usize,
}

impl<'q> Scan<'q> {
    /// A scan for the best `wanted` (at least 1) by a quantised query.
    pub fn new(query: &'q [i16], wanted: usize) -> Self {
        let squares: f64 = query.iter().map(|&q| f64::from(q) * f64::from(q)).sum();
        Scan {
            query,
            length: squares.sqrt(),
            wanted: wanted.max(1),
            found: Vec::new(),
            bar: f64::NEG_INFINITY,
            seen: 0,
            patience: 4 * wanted.max(1) + 1_024,
        }
    }

    /// Looks at one block. Inlined into the caller, so that one who has asked the processor for wider vector
    /// instructions has it compiled for them; the result is the same.
    ///
    /// # Errors
    /// Bytes that are no block, or one of other dimensions than the query's.
    #[inline(always)]
    pub fn block(&mut self, bytes: &[u8]) -> Result<(), NoBlock> {
        let block = Block::read(bytes)?;
        if block.dims != self.query.len() {
            let found = format!(
                "{} dimensions, the query has {}",
                block.dims,
                self.query.len()
            );
            return Err(NoBlock { found });
        }
        let rows = block.codes.chunks_exact(block.dims.max(1));
        for (i, codes) in rows.enumerate() {
            let scale = f64::from(f32::from_le_bytes(block.scales[i]));
            let error = f64::from(f32::from_le_bytes(block.errors[i]));
            if !(scale.is_finite() && error.is_finite()) {
                let found = format!("scale {scale} with error {error}");
                return Err(NoBlock { found });
            }
            let about = scale * f64::from(dot(self.query, codes));
            // One more for the roundings of this line, which are far below a millionth of a score.
            let off = self.length * error + 1.0;
            if about + off >= self.bar {
                self.found.push(Bounded {
                    item: i64::from_le_bytes(block.items[i]),
                    least: about - off,
                    most: about + off,
                });
            }
        }
        self.seen += block.items.len();
        if self.found.len() >= self.patience {
            self.raise();
            // Items that are all but equally near cannot be told apart here: looking again after each block would cost
            // as much as there are of them, every time.
            self.patience = self.patience.max(2 * self.found.len());
        }
        Ok(())
    }

    /// Raises the bar to what `wanted` items reach and lets go who cannot.
    fn raise(&mut self) {
        if self.found.len() > self.wanted {
            let place = self.wanted - 1;
            let order = |a: &Bounded, b: &Bounded| b.least.total_cmp(&a.least);
            let (_, last, _) = self.found.select_nth_unstable_by(place, order);
            self.bar = self.bar.max(last.least);
        }
        let bar = self.bar;
        self.found.retain(|found| found.most >= bar);
    }

    /// Ends the scan.
    pub fn end(mut self) -> Nominated {
        self.raise();
        let all = self.found.len() == self.seen;
        Nominated {
            // Whoever was let go scores below the bar, and scores are integers.
            bar: (!all).then_some(self.bar.ceil() as i64),
            items: self.found.iter().map(|found| found.item).collect(),
            seen: self.seen,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::vector::quantise;

    fn nominate(vectors: &[Vec<f32>], query: &[i16], wanted: usize, block: usize) -> Nominated {
        let mut scan = Scan::new(query, wanted);
        let numbered: Vec<(i64, &[f32])> =
            (10_i64..).zip(vectors.iter().map(Vec::as_slice)).collect();
        for part in numbered.chunks(block) {
            scan.block(&pack(part).unwrap()).unwrap();
        }
        scan.end()
    }

    fn vectors(dims: usize, most: usize) -> impl Strategy<Value = Vec<Vec<f32>>> {
        let component = prop_oneof![
            4 => -1.0_f32..1.0,
            1 => Just(0.0_f32),
            1 => -1e-3_f32..1e-3,
            1 => prop::sample::select(vec![30.0_f32, -30.0, 1e-20, 1e20]),
        ];
        let vector = prop::collection::vec(component, dims)
            .prop_filter("not zero", |values| values.iter().any(|&v| v != 0.0));
        prop::collection::vec(vector, 1..most)
    }

    proptest! {
        #[test]
        fn whoever_is_left_out_scores_below_the_bar(
            (stored, asked) in (1_usize..70).prop_flat_map(|dims| (vectors(dims, 300), vectors(dims, 2))),
            wanted in 1_usize..40,
            block in 1_usize..30,
        ) {
            let query = quantise(&asked[0]).unwrap();
            let found = nominate(&stored, &query, wanted, block);
            prop_assert_eq!(found.seen, stored.len());
            let mut scored: Vec<(i64, i64)> = stored.iter().zip(10_i64..)
                .map(|(values, item)| (vector::dot(values, &query).unwrap(), item)).collect();
            scored.sort_unstable_by_key(|&(score, item)| (std::cmp::Reverse(score), item));
            match found.bar {
                Some(bar) => {
                    let out = scored.iter().filter(|(_, item)| !found.items.contains(item));
                    for (score, item) in out {
                        prop_assert!(*score < bar, "item {} scores {}, the bar is {}", item, score, bar);
                    }
                    let reach = scored.iter().filter(|(score, _)| *score >= bar).count();
                    prop_assert!(reach >= wanted.min(stored.len()));
                }
                None => prop_assert_eq!(found.items.len(), stored.len()),
            }
            for (_, item) in scored.iter().take(wanted) {
                prop_assert!(found.items.contains(item));
            }
        }

        #[test]
        fn bytes_that_are_no_block_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut scan = Scan::new(&[1, 2, 3], 5);
            // A header that fits by chance is possible, a panic is not.
            let _ = scan.block(&bytes);
        }
    }

    #[test]
    fn a_cut_block_is_refused_and_a_whole_one_is_not() {
        let values = [0.5_f32; 3];
        let block = pack(&[(1, &values), (2, &values)]).unwrap();
        let query = quantise(&values).unwrap();
        assert!(Scan::new(&query, 1).block(&block).is_ok());
        assert!(
            Scan::new(&query, 1)
                .block(&block[..block.len() - 1])
                .is_err()
        );
        assert!(Scan::new(&query[..2], 1).block(&block).is_err());
        let mut other = block.clone();
        other[0] = 2;
        let error = Scan::new(&query, 1).block(&other).unwrap_err();
        assert_eq!(error.found, "layout 2, known is 1");
    }

    #[test]
    fn a_page_holds_twenty_of_384() {
        assert_eq!(capacity(384), 20);
        let values = vec![0.1_f32; 384];
        let vectors: Vec<(i64, &[f32])> = (0..20).map(|id| (id, values.as_slice())).collect();
        assert!(pack(&vectors).unwrap().len() <= BLOCK_BYTES);
        assert_eq!(capacity(16_000), 1);
    }

    #[test]
    fn equal_vectors_are_all_nominated_and_looked_at_a_few_times() {
        let values = [0.3_f32, -0.7, 0.2];
        let vectors: Vec<(i64, &[f32])> = (0..20).map(|id| (id, values.as_slice())).collect();
        let block = pack(&vectors).unwrap();
        assert_eq!(items(&block).unwrap(), (0..20).collect::<Vec<i64>>());
        let query = quantise(&values).unwrap();
        let mut scan = Scan::new(&query, 1);
        let mut looks = 0;
        for _ in 0..5_000 {
            let before = scan.patience;
            scan.block(&block).unwrap();
            looks += usize::from(scan.patience != before);
        }
        assert!(looks < 10, "{looks} looks");
        assert_eq!(scan.end().items.len(), 100_000);
    }

    #[test]
    fn a_close_bound_leaves_few() {
        // Unit vectors of 64 dimensions from a fixed generator: bounds that were far off would nominate all.
        let mut seed = 7_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let stored: Vec<Vec<f32>> = (0..4_000)
            .map(|_| (0..64).map(|_| next()).collect())
            .collect();
        let query = quantise(&stored[0]).unwrap();
        let found = nominate(&stored, &query, 40, 20);
        assert!(found.items.len() < 120, "{} nominated", found.items.len());
    }
}
