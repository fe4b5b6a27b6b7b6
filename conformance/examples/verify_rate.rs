//! How many traces a second are verified offline up to level L2, on one core: `bench/evidence/verify.sh` runs it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cortex_conformance::offline::{Given, check};
use cortex_conformance::samples;
use cortex_core::verify::Level;

/// Pieces of evidence of the trace.
const EVIDENCE: usize = 12;
/// Verifications a second that are asked for.
const BOUND: f64 = 2_000.0;
/// Runs, of which the median counts, and how long each is.
const RUNS: usize = 5;
const RUN: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let sample = samples::large(EVIDENCE);
    let given = Given {
        evidence: Some(sample.evidence.as_bytes()),
        question: Some(&sample.question),
        salt: None,
    };
    println!(
        "a trace of {EVIDENCE} pieces of evidence, {} bytes, with an evidence file of {} bytes",
        sample.trace.len(),
        sample.evidence.len()
    );
    assert_eq!(
        check(sample.trace.as_bytes(), &given).level,
        Some(Level::L2)
    );
    let mut rates: Vec<f64> = (0..RUNS).map(|_| rate(&sample.trace, &given)).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[RUNS / 2];
    let held = median >= BOUND;
    let alone: f64 = rate(&sample.trace, &Given::default());
    println!("verified to L0 alone: {alone:.0} a second of one core");
    println!(
        "verified to L2: {median:.0} a second of one core (runs {:.0} to {:.0}), at least {BOUND:.0}: {}",
        rates[0],
        rates[RUNS - 1],
        if held { "held" } else { "MISSED" }
    );
    match held {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Time that this process ran on a core, where the system tells; otherwise the time that went by. Other programs on
/// the same machine do not count against it.
fn busy(began: Instant) -> Duration {
    let told = std::fs::read_to_string("/proc/self/schedstat").ok();
    let first = told.as_deref().and_then(|told| told.split(' ').next());
    let busy = first.and_then(|nanoseconds| nanoseconds.parse().ok());
    busy.map_or_else(|| began.elapsed(), Duration::from_nanos)
}

fn rate(trace: &str, given: &Given<'_>) -> f64 {
    let began = Instant::now();
    let before = busy(began);
    let mut done = 0;
    while began.elapsed() < RUN {
        let report = check(trace.as_bytes(), given);
        assert!(report.level >= Some(Level::L0) && report.ok, "{report:?}");
        done += 1;
    }
    f64::from(done) / (busy(began) - before).as_secs_f64()
}
