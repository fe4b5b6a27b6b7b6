//! Running both verifiers on the same input.

// Each test uses a part of this.
#![allow(dead_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use cortex_conformance::offline::{self, Given};
use cortex_core::hash::Salt;
use cortex_core::verify::Report;
use serde_json::{Value, json};

/// What both verifiers are given.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Name in messages.
    pub label: String,
    pub trace: Vec<u8>,
    pub evidence: Option<Vec<u8>>,
    pub question: Option<String>,
    pub salt: Option<Salt>,
}

impl Input {
    pub fn new(label: impl Into<String>, trace: impl Into<Vec<u8>>) -> Self {
        Self {
            label: label.into(),
            trace: trace.into(),
            ..Self::default()
        }
    }

    pub fn with_evidence(mut self, evidence: impl Into<Vec<u8>>) -> Self {
        self.evidence = Some(evidence.into());
        self
    }

    pub fn report(&self) -> Report {
        offline::check(
            &self.trace,
            &Given {
                evidence: self.evidence.as_deref(),
                question: self.question.as_deref(),
                salt: self.salt,
            },
        )
    }

    fn line(&self) -> String {
        let hex = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        json!({
            "trace_hex": hex(&self.trace),
            "evidence_hex": self.evidence.as_deref().map(hex),
            "question": self.question,
            "salt": self.salt.map(|salt| salt.to_string()),
        })
        .to_string()
    }
}

/// The folder of the Python verifier.
pub fn python_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python")
}

/// The Python of the tests.
pub fn python() -> Command {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let mut command = Command::new(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Fails with a hint where Python or its package is missing, and where a program broke down.
pub fn sound(output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !errors.contains("blake3 is missing"),
        "{errors}\n(make test installs it; else set PYTHON)"
    );
    assert!(!errors.contains("Traceback"), "{errors}");
}

/// The reports of the Python verifier.
pub fn python_reports(inputs: &[Input]) -> Vec<Value> {
    let mut child = python()
        .arg(python_folder().join("verify.py"))
        .arg("--batch")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a Python 3; set PYTHON");
    let mut stdin = child.stdin.take().unwrap();
    let lines: Vec<String> = inputs.iter().map(Input::line).collect();
    let writer = std::thread::spawn(move || {
        for line in lines {
            // A verifier that broke down reads no further; its own message is shown below.
            if writeln!(stdin, "{line}").is_err() {
                return;
            }
        }
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    sound(&output);
    assert!(output.status.success(), "{:?}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let reports: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(reports.len(), inputs.len(), "a report each");
    reports
}

/// What has to be equal of two reports: everything but the wording.
fn essence(report: &Value) -> Value {
    // How a value misses its layout is told at different depths.
    let at = match report["code"].as_str() {
        Some("T_STRUCT") => Value::Null,
        _ => report["where"].clone(),
    };
    let steps = report["steps"].as_array().unwrap().iter();
    let steps: Vec<Value> = steps
        .map(|step| json!([step["name"], step["outcome"], step["code"]]))
        .collect();
    json!({
        "ok": report["ok"],
        "level": report["level"],
        "outcome": report["outcome"],
        "failed_step": report["failed_step"],
        "code": report["code"],
        "where": at,
        "steps": steps,
    })
}

/// Runs both verifiers and fails where they differ. Returns the reports of the first.
pub fn agree(inputs: &[Input]) -> Vec<Report> {
    let reports: Vec<Report> = inputs.iter().map(Input::report).collect();
    let mut differ = Vec::new();
    for ((input, report), other) in inputs.iter().zip(&reports).zip(python_reports(inputs)) {
        let report = serde_json::to_value(report).unwrap();
        if essence(&report) != essence(&other) {
            let trace = String::from_utf8_lossy(&input.trace).into_owned();
            let evidence = input.evidence.as_deref().map(String::from_utf8_lossy);
            differ.push(format!(
                "{}\n  first:  {}\n  second: {}\n  {trace}\n  {evidence:?}",
                input.label,
                essence(&report),
                essence(&other)
            ));
        }
    }
    let shown: Vec<&String> = differ.iter().take(3).collect();
    assert!(
        differ.is_empty(),
        "{} of {} differ:\n{shown:#?}",
        differ.len(),
        inputs.len()
    );
    reports
}
