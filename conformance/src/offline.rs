//! Verification without a database: of a trace alone, or with the evidence file that was exported along with it.

use cortex_core::canon::{self, CanonError, CanonErrorKind, Value};
use cortex_core::hash::Salt;
use cortex_core::verify::{
    BUNDLE_VERSION, Bundle, Code, Evidence, Options, Outcome, Report, StepOutcome, verify,
};

/// What a verifier is given besides the trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// The evidence file.
    pub evidence: Option<&'a [u8]>,
    /// The question that the verifier believes was asked.
    pub question: Option<&'a str>,
    /// The salt of its commitment; the evidence file has it too.
    pub salt: Option<Salt>,
}

/// Verifies the bytes of a trace. An evidence file that cannot be read is no error either: the step `evidence` fails.
pub fn check(trace: &[u8], given: &Given<'_>) -> Report {
    let options = Options {
        question: given.question,
        question_salt: given.salt,
        exhaustive: false,
    };
    let Some(file) = given.evidence else {
        return verify(trace, &options, None);
    };
    match read(file) {
        Ok(mut bundle) => {
            let store: &mut dyn Evidence = &mut bundle;
            verify(trace, &options, Some(store))
        }
        Err(fault) => fail(verify(trace, &options, None), fault),
    }
}

/// Why an evidence file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Code of the step `evidence`.
    pub code: Code,
    /// Where in the file.
    pub at: String,
    /// What had to stand there.
    pub expected: String,
    /// What does.
    pub found: String,
}

/// Reads an evidence file.
///
/// # Errors
/// A file that is not canonical JSON, of another version, or not of the layout.
pub fn read(file: &[u8]) -> Result<Bundle, Unreadable> {
    let unreadable = |code, at: String, expected: &str, found: String| Unreadable {
        code,
        at: format!("evidence file: {at}"),
        expected: expected.into(),
        found,
    };
    let value = canon::parse_canonical(file).map_err(|CanonError { at, kind }| {
        let code = match kind {
            CanonErrorKind::NotCanonical => Code::TNoncanon,
            ref kind if kind.is_limit() => Code::TLimit,
            _ => Code::TParse,
        };
        unreadable(
            code,
            format!("byte {at}"),
            "canonical JSON",
            kind.to_string(),
        )
    })?;
    if let Some(Value::String(version)) = value.get("v")
        && version != BUNDLE_VERSION
    {
        let found = version.clone();
        return Err(unreadable(
            Code::TVersion,
            "v".into(),
            BUNDLE_VERSION,
            found,
        ));
    }
    // Only texts in UTF-8 parse.
    let text = std::str::from_utf8(file).unwrap_or_default();
    canon::from_canonical(value, text).map_err(|error| {
        let (at, found) = match error.kind {
            CanonErrorKind::Shape { path, message } => (path, message),
            kind => (String::new(), kind.to_string()),
        };
        unreadable(Code::TStruct, at, "the layout evidence/1", found)
    })
}

/// The report on a trace whose evidence file cannot be used.
fn fail(mut report: Report, fault: Unreadable) -> Report {
    if !report.ok {
        return report;
    }
    for step in &mut report.steps {
        if step.name == "evidence" {
            step.outcome = StepOutcome::Failed;
            step.code = Some(fault.code);
            step.at.clone_from(&fault.at);
            step.expected.clone_from(&fault.expected);
            step.found.clone_from(&fault.found);
        } else if step.outcome == StepOutcome::Skipped && step.name != "question" {
            step.found = "an earlier step failed".into();
        }
    }
    Report {
        ok: false,
        outcome: Outcome::Failed,
        failed_step: Some("evidence".into()),
        code: Some(fault.code),
        at: Some(fault.at),
        expected: Some(fault.expected),
        found: Some(fault.found),
        ..report
    }
}
