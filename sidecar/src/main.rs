//! The `cortex` binary.
fn main() {}
