//! The claim pool: which claims a read serves, and when it must say that it does not know.
//!
//! A read ranks all fresh claims of a namespace, collapses the rephrasings of one source
//! ([`candidates`]), lets an optional reranker change the order ([`rerank`]), and packs what fits under
//! the headers of the sources ([`header`], [`pack`]). Whether the pool is good enough is decided by the
//! similarity of the best claim ([`gate`], [`decide`]; without vectors [`terms`]) or by the question having been asked before
//! ([`reuse`]). If it is not, the retrieved chunks say which sources a build would help ([`classify`]),
//! and the reader gets a share of raw text meanwhile ([`floor`]).
//!
//! A build adds to what is held of a source ([`merge`]) after its claims were checked against the chunks
//! they cite ([`sift`], [`crate::ground`]), and a build that fails waits before it is tried again ([`backoff`]).
//!
//! # Numbers
//!
//! Similarities are `f64`. From quantised vectors they are one integer inner product and one division
//! ([`similarity`]), a single correctly rounded operation, so they and every decision taken on
//! them are the same on each machine. NaN never arises from them; where one is given, it ranks last and
//! passes no threshold.

use crate::vector;

pub mod backoff;
pub mod candidates;
pub mod classify;
pub mod decide;
pub mod floor;
pub mod gate;
pub mod header;
pub mod merge;
pub mod pack;
pub mod rerank;
pub mod reuse;
pub mod sift;
pub mod terms;

/// The cosine that an inner product of two quantised vectors stands for; beyond 1 by rounding at most.
pub fn similarity(dot: i64) -> f64 {
    dot as f64 / vector::UNIT_DOT as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_as_similar_to_itself_as_can_be() {
        let vector = vector::quantise(&[0.6, -0.8]).expect("a vector");
        let dot = vector::dot_quantised(&vector, &vector).expect("equal sizes");
        assert!((similarity(dot) - 1.0).abs() < 1e-4);
        assert_eq!(similarity(-vector::UNIT_DOT), -1.0);
    }
}
