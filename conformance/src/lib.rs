//! Golden vectors of Cortex and what checks them.
//!
//! A vector file lies under `<area>/v1/`, holds cases with an id and a description, and never
//! changes: a test compares its BLAKE3 digest with [`vectors::FROZEN`]. What must be large is given
//! by a rule and not stored. The files are written by [`vectors::generate`] and checked, from the
//! files alone, by [`vectors::check`].

pub mod asks;
pub mod attack;
pub mod claim_pool;
pub mod files;
pub mod fuzz;
pub mod library;
pub mod mutate;
pub mod offline;
#[cfg(feature = "ollama")]
pub mod ollama;
pub mod samples;
pub mod tamper;
pub mod unicode;
pub mod vectors;
