//! Library behind the `cortex` binary.

pub mod embed;
