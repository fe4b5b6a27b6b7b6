//! See `cortex_conformance::fuzz::parser`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cortex_conformance::fuzz::parser(data));
