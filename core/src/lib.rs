//! Pure algorithms of Cortex. No I/O, no clock, no Postgres, no async: the same input gives the same
//! bytes on every machine, which is what lets a trace be replayed.

pub mod agent;
pub mod analyzer;
pub mod canon;
pub mod chunker;
pub mod excerpt;
pub mod extract;
pub mod fusion;
pub mod ground;
pub mod hash;
pub mod lexical;
pub mod nearest;
pub mod packed;
pub mod pool;
pub mod posting;
pub mod receipt;
pub mod sentence;
pub mod tokens;
pub mod trace;
pub mod vector;
pub mod verify;
