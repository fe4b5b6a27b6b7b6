//! Pure algorithms of Cortex. No I/O, no clock, no Postgres, no async: the same input gives the same
//! bytes on every machine, which is what lets a trace be replayed.

pub mod canon;
pub mod hash;
pub mod receipt;
pub mod trace;
pub mod verify;
