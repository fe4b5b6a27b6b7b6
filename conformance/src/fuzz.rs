//! What a fuzzer runs on any bytes: `fuzz/fuzz_targets` calls these, and so does a test with a few thousand inputs.

use cortex_core::canon::{Value, parse_canonical};
use cortex_core::trace::Trace;
use cortex_core::verify::Report;

use crate::mutate::{Random, mutated};
use crate::offline::{Given, check, read};
use crate::samples;

/// Reads bytes as canonical JSON. What is read is written, and reads again as the same.
///
/// # Panics
/// Where that does not hold.
pub fn parser(data: &[u8]) {
    let Ok(value) = Value::parse(data) else {
        assert!(parse_canonical(data).is_err(), "canonical, but not JSON");
        return;
    };
    let text = value.encode().expect("a value that was read");
    assert_eq!(Value::parse(text.as_bytes()).as_ref(), Ok(&value), "{text}");
    assert_eq!(
        parse_canonical(text.as_bytes()).as_ref(),
        Ok(&value),
        "{text}"
    );
    assert_eq!(
        parse_canonical(data).is_ok(),
        data == text.as_bytes(),
        "{text}"
    );
}

/// Verifies bytes as a trace. What verifies is a trace with the roots that it says.
///
/// # Panics
/// Where that does not hold.
pub fn verifier(data: &[u8]) {
    let report = check(data, &Given::default());
    sound(&report);
    if report.ok {
        let text = std::str::from_utf8(data).expect("a trace is a text");
        let trace = Trace::from_text(text).expect("a trace");
        assert_eq!(trace.compute_roots().as_ref(), Ok(&trace.roots));
    }
}

/// Verifies a sound trace with bytes as its evidence file.
///
/// # Panics
/// Where a file is accepted that is not of this trace.
pub fn evidence(data: &[u8]) {
    let samples = samples::all();
    let sample = &samples[data.first().map_or(0, |byte| usize::from(*byte)) % samples.len()];
    let file = data.get(1..).unwrap_or_default();
    let given = Given {
        evidence: Some(file),
        ..Given::default()
    };
    let report = check(sample.trace.as_bytes(), &given);
    sound(&report);
    if report.ok {
        let bundle = read(file).expect("a file that was accepted");
        let trace = Trace::from_text(&sample.trace).expect("a sound trace");
        assert!(bundle.check(&trace).is_ok());
    }
}

/// Changes a sound trace as the bytes say, recomputes its roots where that can be done, and verifies it: a fuzzer
/// reaches the later steps.
pub fn changed(data: &[u8]) {
    let mut seed = [0; 8];
    for (byte, given) in seed.iter_mut().zip(data) {
        *byte = *given;
    }
    let mut random = Random::new(u64::from_le_bytes(seed));
    let samples = samples::all();
    let sample = &samples[random.below(samples.len())];
    let change = mutated(&sample.trace, &mut random);
    let given = Given {
        evidence: Some(sample.evidence.as_bytes()),
        question: Some(&sample.question),
        salt: None,
    };
    let report = check(&change.bytes, &given);
    sound(&report);
    let same = change.bytes == sample.trace.as_bytes();
    assert!(same || !report.ok, "the file of another trace was accepted");
}

fn sound(report: &Report) {
    assert_eq!(report.ok, report.code.is_none());
    assert_eq!(report.ok, report.failed_step.is_none());
    assert_eq!(
        report.steps.iter().any(|step| step.code.is_some()),
        !report.ok
    );
}
