//! Pure algorithms of Cortex. No I/O, no clock, no Postgres, no async: the same input gives the same
//! bytes on every machine, which is what lets a trace be replayed.

pub mod agent;
pub mod analyzer;
pub mod canon;
pub mod chunker;
pub mod distinct;
pub mod dossier;
pub mod excerpt;
pub mod explain;
pub mod extract;
pub mod family;
pub mod fusion;
pub mod ground;
pub mod hash;
pub mod index_text;
pub mod lexical;
pub mod nearest;
pub mod packed;
pub mod phrase;
pub mod pool;
pub mod posting;
pub mod quote;
pub mod receipt;
pub mod sentence;
pub mod tokens;
pub mod trace;
pub mod vector;
pub mod verify;
