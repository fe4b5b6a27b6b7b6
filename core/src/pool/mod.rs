//! The claim pool: which claims a read serves, and when it must say that it does not know.
//!
//! A read ranks all fresh claims of a namespace, collapses the rephrasings of one source
//! ([`candidates`]), lets an optional reranker change the order ([`rerank`]), and packs what fits under
//! the headers of the sources ([`header`], [`pack`]). Whether the pool is good enough is decided by the
//! similarity of the best claim ([`gate`], [`decide`]) or by the question having been asked before
//! ([`reuse`]). If it is not, the retrieved chunks say which sources a build would help ([`classify`]),
//! and the reader gets a share of raw text meanwhile ([`floor`]).
//!
//! A build adds to what is held of a source ([`merge`]) after its claims were checked against the chunks
//! they cite ([`ground`]); text that came back unchanged is recognised ([`recognise`]), and a build that
//! fails waits before it is tried again ([`backoff`]).
//!
//! # Numbers
//!
//! Similarities are `f64`. From quantised vectors they are one integer inner product divided by
//! [`crate::vector::UNIT_DOT`], a single correctly rounded operation, so they and every decision taken on
//! them are the same on each machine. NaN never arises from them; where one is given, it ranks last and
//! passes no threshold.

pub mod backoff;
pub mod candidates;
pub mod classify;
pub mod decide;
pub mod floor;
pub mod gate;
pub mod ground;
pub mod header;
pub mod merge;
pub mod pack;
pub mod recognise;
pub mod rerank;
pub mod reuse;
