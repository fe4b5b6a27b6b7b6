//! Exact, reproducible vector comparison, `cortex-quant/1`.
//!
//! A vector is scaled to length 1 and its components are rounded to sixteen-bit integers. The inner
//! product of two quantised vectors is an integer, so a recorded score can be recomputed bit for bit on
//! another machine, which no sum of floats in hardware order allows.
//!
//! The definition, all in IEEE 754 double precision with rounding to nearest:
//!
//! 1. `s` = sum of squares of the components. Component `i` is added to lane `i mod 8`; lanes are then
//!    added as `((l0+l1)+(l2+l3)) + ((l4+l5)+(l6+l7))`. The order is part of the definition; eight lanes
//!    let processors work on them side by side.
//! 2. `f = 32767 / sqrt(s)`.
//! 3. Component `i` becomes `x[i] * f` rounded to the nearest integer, halves away from zero.
//!
//! The inner product of two such vectors is about `32767² · cos`; [`UNIT_DOT`] is the value for equal
//! directions.

use thiserror::Error;

/// Name of this quantisation as recorded in receipts.
pub const NAME: &str = "cortex-quant/1";

/// Largest number of dimensions accepted, the limit of pgvector's `vector` type.
pub const MAX_DIMS: usize = 16_000;

/// Inner product of a quantised vector with itself, up to rounding of its components.
pub const UNIT_DOT: i64 = 32_767 * 32_767;

const COMPONENT_MAX: f64 = 32_767.0;
const LANES: usize = 8;

/// Why a vector cannot be stored or compared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VectorError {
    /// The vector has no components or more than [`MAX_DIMS`].
    #[error("vector has {found} dimensions, between 1 and {MAX_DIMS} are supported")]
    UnsupportedSize {
        /// Number of components given.
        found: usize,
    },
    /// The vector does not have the size of the embedding space or of the vector it is compared with.
    #[error(
        "vector has {found} dimensions, this embedding space has {expected}; use the model of this space"
    )]
    WrongSize {
        /// Number of components wanted.
        expected: usize,
        /// Number of components given.
        found: usize,
    },
    /// A component is NaN or infinite.
    #[error(
        "vector of {dims} dimensions has a component at index {index} that is not a finite number"
    )]
    NotFinite {
        /// Position of the first such component, from 0.
        index: usize,
        /// Number of components given.
        dims: usize,
    },
    /// All components are zero, so the vector has no direction.
    #[error(
        "vector of {dims} dimensions is zero and has no direction to compare; check what the model returned"
    )]
    Zero {
        /// Number of components given.
        dims: usize,
    },
    /// Stored bytes are not a whole number of sixteen-bit components.
    #[error(
        "quantised vector has {found} bytes, an even number is needed (two for each dimension)"
    )]
    OddBytes {
        /// Number of bytes given.
        found: usize,
    },
    /// Stored bytes hold a component that quantisation never produces.
    #[error(
        "quantised vector has the value -32768 at index {index}, components lie between -32767 and 32767"
    )]
    OutOfRange {
        /// Position of the component, from 0.
        index: usize,
    },
}

/// Quantises a vector of any supported size.
///
/// Errors: [`VectorError::UnsupportedSize`], [`VectorError::NotFinite`], [`VectorError::Zero`].
pub fn quantise(values: &[f32]) -> Result<Vec<i16>, VectorError> {
    let scale = scale_of(values)?;
    // In range by construction: |x| <= sqrt(sum of squares), so |x * scale| is at most 32767 and a rounding error.
    Ok(values
        .iter()
        .map(|&value| round_half_away(f64::from(value) * scale) as i16)
        .collect())
}

/// Quantises a vector that must have `dims` components, the size of its embedding space.
///
/// Errors: those of [`quantise`], and [`VectorError::WrongSize`] naming both sizes.
pub fn quantise_for(values: &[f32], dims: usize) -> Result<Vec<i16>, VectorError> {
    if values.len() != dims {
        return Err(VectorError::WrongSize {
            expected: dims,
            found: values.len(),
        });
    }
    quantise(values)
}

/// Inner product of `stored`, quantised on the fly without allocating, with the quantised `query`.
///
/// Equal to the sum of products of `quantise(stored)` and `query`. Errors: those of [`quantise`] for
/// `stored`, and [`VectorError::WrongSize`] if the sizes differ (expected: the query's).
///
/// It and what it calls are inlined into the caller, so that one who has asked the processor for wider vector
/// instructions has it compiled for them. The result is the same: every step is exact or in a fixed order.
#[inline(always)]
pub fn dot(stored: &[f32], query: &[i16]) -> Result<i64, VectorError> {
    if stored.len() != query.len() {
        return Err(VectorError::WrongSize {
            expected: query.len(),
            found: stored.len(),
        });
    }
    let scale = scale_of(stored)?;
    // Every term and partial sum is an integer below 2^53 (2^30 for each of at most 2^14 components), so
    // double precision is exact here and the order of the sum does not matter.
    let mut lanes = [0.0_f64; LANES];
    let (stored_blocks, stored_rest) = stored.as_chunks::<LANES>();
    let (query_blocks, query_rest) = query.as_chunks::<LANES>();
    for (values, weights) in stored_blocks.iter().zip(query_blocks) {
        for lane in 0..LANES {
            lanes[lane] +=
                round_half_away(f64::from(values[lane]) * scale) * f64::from(weights[lane]);
        }
    }
    for (lane, (&value, &weight)) in lanes.iter_mut().zip(stored_rest.iter().zip(query_rest)) {
        *lane += round_half_away(f64::from(value) * scale) * f64::from(weight);
    }
    Ok(sum_lanes(lanes) as i64)
}

/// Inner product of two quantised vectors of equal size.
///
/// Errors: [`VectorError::WrongSize`] if the sizes differ (expected: the second's).
pub fn dot_quantised(a: &[i16], b: &[i16]) -> Result<i64, VectorError> {
    if a.len() != b.len() {
        return Err(VectorError::WrongSize {
            expected: b.len(),
            found: a.len(),
        });
    }
    Ok(a.iter()
        .zip(b)
        .map(|(&x, &y)| i64::from(x) * i64::from(y))
        .sum())
}

/// The components as little-endian bytes, two for each dimension.
pub fn to_le_bytes(components: &[i16]) -> Vec<u8> {
    components
        .iter()
        .flat_map(|component| component.to_le_bytes())
        .collect()
}

/// Reads what [`to_le_bytes`] wrote.
///
/// Errors: [`VectorError::OddBytes`], [`VectorError::UnsupportedSize`], [`VectorError::OutOfRange`].
pub fn from_le_bytes(bytes: &[u8]) -> Result<Vec<i16>, VectorError> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(VectorError::OddBytes { found: bytes.len() });
    }
    check_size(pairs.len())?;
    let components: Vec<i16> = pairs.iter().map(|&pair| i16::from_le_bytes(pair)).collect();
    match components
        .iter()
        .position(|&component| component == i16::MIN)
    {
        Some(index) => Err(VectorError::OutOfRange { index }),
        None => Ok(components),
    }
}

#[inline(always)]
fn check_size(found: usize) -> Result<(), VectorError> {
    if (1..=MAX_DIMS).contains(&found) {
        Ok(())
    } else {
        Err(VectorError::UnsupportedSize { found })
    }
}

/// The factor that brings `values` to length 32767.
#[inline(always)]
fn scale_of(values: &[f32]) -> Result<f64, VectorError> {
    check_size(values.len())?;
    let mut lanes = [0.0_f64; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for lane in 0..LANES {
            lanes[lane] += f64::from(block[lane]) * f64::from(block[lane]);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(value) * f64::from(value);
    }
    let squares = sum_lanes(lanes);
    // The square of a finite f32 lies between 2^-298 and 2^256: neither overflow nor underflow, so the sum
    // is finite exactly if all components are, and zero exactly if all are zero.
    if !squares.is_finite() {
        let index = values
            .iter()
            .position(|value| !value.is_finite())
            .unwrap_or(0);
        return Err(VectorError::NotFinite {
            index,
            dims: values.len(),
        });
    }
    if squares == 0.0 {
        return Err(VectorError::Zero { dims: values.len() });
    }
    Ok(COMPONENT_MAX / squares.sqrt())
}

#[inline(always)]
fn sum_lanes(lanes: [f64; LANES]) -> f64 {
    ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]))
        + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))
}

/// Rounds to the nearest integer, halves away from zero, for |value| < 2^51.
///
/// Adding and subtracting 1.5 * 2^52 rounds halves to even; the difference tells a half that went towards
/// zero. Unlike `f64::round` this is plain arithmetic that compilers turn into vector instructions on every target.
#[inline(always)]
fn round_half_away(value: f64) -> f64 {
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    let even = (value + SHIFT) - SHIFT;
    let rest = value - even;
    let up = if rest == 0.5 && value > 0.0 { 1.0 } else { 0.0 };
    let down = if rest == -0.5 && value < 0.0 {
        1.0
    } else {
        0.0
    };
    even + up - down
}
