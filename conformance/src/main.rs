//! Runner of the golden vectors.
fn main() {}
