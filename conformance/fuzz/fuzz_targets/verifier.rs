//! See `cortex_conformance::fuzz::verifier`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cortex_conformance::fuzz::verifier(data));
