//! Trace files of any origin: verified, and changed to see that every change is noticed.
//!
//! What a file is, its content says, never its name:
//!
//! - an object with `cases` is a file of vectors;
//! - an object whose `v` is `evidence/1` is the evidence file of the trace, among those given, whose root it names;
//! - an object with a text `trace` is a case: its `evidence`, `question` and `question_salt` go with it;
//! - several lines, each of them JSON, are a case each;
//! - anything else is a trace.

use std::collections::HashMap;
use std::fmt;

use cortex_core::hash::Salt;
use cortex_core::verify::{Outcome, Report};
use serde_json::Value;

use crate::attack::{self, Attack, Expected, Repair};
use crate::mutate::{Random, mutated};
use crate::offline::{Given, check};
use crate::vectors;

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it must be.
    Passed(String),
    /// Not as it must be.
    Failed(String),
    /// Not verified in full, or accepted, for a reason that is part of the design.
    ByDesign(String),
}

/// A case with its verdict.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name: of the file, and of the case in it.
    pub name: String,
    /// What came of it.
    pub verdict: Verdict,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, told) = match &self.verdict {
            Verdict::Passed(told) => ("passed", told),
            Verdict::Failed(told) => ("FAILED", told),
            Verdict::ByDesign(told) => ("by design", told),
        };
        // What was found may hold anything.
        let shown = |text: &str| -> String {
            let chars = text.chars();
            chars
                .flat_map(|ch| match ch.is_control() {
                    true => ch.escape_default().collect::<Vec<char>>(),
                    false => vec![ch],
                })
                .collect()
        };
        write!(f, "{word} {}: {}", shown(&self.name), shown(told))
    }
}

/// How many cases of each kind there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// By design.
    pub by_design: usize,
}

impl Totals {
    /// Counts a case.
    pub fn count(&mut self, case: &Case) {
        match case.verdict {
            Verdict::Passed(_) => self.passed += 1,
            Verdict::Failed(_) => self.failed += 1,
            Verdict::ByDesign(_) => self.by_design += 1,
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed, by_design) = (self.passed, self.failed, self.by_design);
        write!(f, "{passed} passed, {failed} failed, {by_design} by design")
    }
}

/// A trace with what goes with it.
#[derive(Clone, Debug, Default)]
struct Subject {
    name: String,
    trace: Vec<u8>,
    evidence: Option<Vec<u8>>,
    question: Option<String>,
    salt: Option<Salt>,
}

impl Subject {
    fn report(&self, trace: &[u8], evidence: Option<&[u8]>) -> Report {
        check(
            trace,
            &Given {
                evidence,
                question: self.question.as_deref(),
                salt: self.salt,
            },
        )
    }

    fn own_report(&self) -> Report {
        self.report(&self.trace, self.evidence.as_deref())
    }
}

/// Files by their content.
#[derive(Default)]
struct Sorted {
    subjects: Vec<Subject>,
    /// Name and text.
    vectors: Vec<(String, String)>,
}

fn sort(files: Vec<(String, Vec<u8>)>) -> Sorted {
    let mut sorted = Sorted::default();
    let mut evidence: HashMap<String, Vec<u8>> = HashMap::new();
    for (name, mut bytes) in files {
        // A file from an editor ends with a line feed, which is not part of the text.
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(value) if value["cases"].is_array() => {
                let text = String::from_utf8_lossy(&bytes).into_owned() + "\n";
                sorted.vectors.push((name, text));
            }
            Ok(value) if value["v"] == "evidence/1" => {
                let root = value["trace"].as_str().unwrap_or_default();
                evidence.insert(root.into(), bytes);
            }
            Ok(value) if value["trace"].is_string() => sorted.subjects.push(case(name, &value)),
            Ok(_) => sorted.subjects.push(trace(name, bytes)),
            Err(_) => lines(name, bytes, &mut sorted.subjects),
        }
    }
    for subject in &mut sorted.subjects {
        let value = serde_json::from_slice::<Value>(&subject.trace).unwrap_or_default();
        let root = value["roots"]["trace"].as_str().unwrap_or_default();
        if subject.evidence.is_none() {
            subject.evidence = evidence.get(root).cloned();
        }
    }
    sorted
}

fn trace(name: String, trace: Vec<u8>) -> Subject {
    Subject {
        name,
        trace,
        ..Subject::default()
    }
}

fn case(name: String, value: &Value) -> Subject {
    let text = |member: &str| value[member].as_str();
    let salt = text("question_salt").and_then(|salt| salt.parse().ok());
    let evidence = text("evidence").map(|text| text.as_bytes().to_vec());
    // A question can only be checked with its salt.
    let can_ask = salt.is_some() || evidence.is_some();
    Subject {
        name,
        trace: text("trace").unwrap_or_default().as_bytes().to_vec(),
        evidence,
        question: text("question").filter(|_| can_ask).map(String::from),
        salt,
    }
}

/// Several lines of JSON; anything else is one trace, which will not parse.
fn lines(name: String, bytes: Vec<u8>, subjects: &mut Vec<Subject>) {
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let values: Option<Vec<Value>> = lines
        .iter()
        .map(|line| serde_json::from_slice(line).ok())
        .collect();
    let Some(values) = values.filter(|values| values.len() > 1) else {
        subjects.push(trace(name, bytes));
        return;
    };
    for (i, (value, line)) in values.iter().zip(lines).enumerate() {
        let name = format!("{name} line {}", i + 1);
        subjects.push(match value["trace"].is_string() {
            true => case(name, value),
            false => trace(name, line.to_vec()),
        });
    }
}

/// Verifies the traces of files, each given as its name and its bytes.
pub fn verify(files: Vec<(String, Vec<u8>)>, each: &mut dyn FnMut(Case)) {
    let sorted = sort(files);
    for (name, text) in &sorted.vectors {
        match vectors::check_any(text) {
            Err(error) => each(Case {
                name: name.clone(),
                verdict: Verdict::Failed(error),
            }),
            Ok(cases) => {
                for (id, result) in cases {
                    let verdict = match result {
                        Ok(()) => Verdict::Passed("as the vector says".into()),
                        Err(error) => Verdict::Failed(error),
                    };
                    let name = format!("{name} {id}");
                    each(Case { name, verdict });
                }
            }
        }
    }
    for subject in &sorted.subjects {
        let report = subject.own_report();
        let verdict = match report.outcome {
            Outcome::Verified => Verdict::Passed(format!("verified, level {}", level(&report))),
            Outcome::Redacted | Outcome::Pruned => Verdict::ByDesign(format!(
                "verified as far as the texts were not erased, level {}",
                level(&report)
            )),
            Outcome::Failed => Verdict::Failed(failure(&report)),
        };
        each(Case {
            name: subject.name.clone(),
            verdict,
        });
    }
}

fn level(report: &Report) -> String {
    let level = report
        .level
        .and_then(|level| serde_json::to_value(level).ok());
    level
        .and_then(|level| level.as_str().map(String::from))
        .unwrap_or_else(|| "none".into())
}

fn failure(report: &Report) -> String {
    let text = |member: &Option<String>| member.clone().unwrap_or_default();
    let code = report.code.and_then(|code| serde_json::to_value(code).ok());
    format!(
        "step {} {} at {}: expected {}, found {}",
        text(&report.failed_step),
        code.as_ref().and_then(Value::as_str).unwrap_or_default(),
        text(&report.at),
        text(&report.expected),
        text(&report.found)
    )
}

/// How traces are changed.
#[derive(Clone, Copy, Debug)]
pub struct Tampering {
    /// Random changes of each trace beside the matrix.
    pub random: usize,
    /// Seed of the random changes.
    pub seed: u64,
    /// Whether changes with all roots recomputed, which make another trace, are tried as well.
    pub forge: bool,
}

impl Default for Tampering {
    fn default() -> Self {
        Self {
            random: 1_000,
            seed: 1,
            forge: false,
        }
    }
}

/// Changes the traces of files in every way and verifies what comes out. A trace that does not verify as it is fails.
pub fn tamper(files: Vec<(String, Vec<u8>)>, how: Tampering, each: &mut dyn FnMut(Case)) {
    let mut sorted = sort(files);
    for (name, text) in &sorted.vectors {
        let file: Value = serde_json::from_str(text).unwrap_or_default();
        for value in file["cases"].as_array().into_iter().flatten() {
            if value["trace"].is_string() {
                let id = value["id"].as_str().unwrap_or_default();
                let subject = case(format!("{name} {id}"), value);
                // The other cases of a file of vectors are broken on purpose.
                if subject.own_report().ok {
                    sorted.subjects.push(subject);
                }
            }
        }
    }
    for subject in &sorted.subjects {
        let report = subject.own_report();
        let text = std::str::from_utf8(&subject.trace);
        let (Ok(text), true) = (text, report.ok) else {
            each(Case {
                name: subject.name.clone(),
                verdict: Verdict::Failed(format!("not a sound trace: {}", failure(&report))),
            });
            continue;
        };
        attack_trace(subject, text, how, each);
        let evidence = subject.evidence.as_deref();
        if let Some(evidence) = evidence.and_then(|evidence| std::str::from_utf8(evidence).ok()) {
            attack_evidence(subject, evidence, how, each);
        }
    }
}

fn attack_trace(subject: &Subject, text: &str, how: Tampering, each: &mut dyn FnMut(Case)) {
    let own = subject.evidence.as_deref();
    let Ok(attacks) = attack::on_trace(text) else {
        return;
    };
    for attack in attacks.filter(|attack| how.forge || attack.repair != Repair::All) {
        let rebound = match (attack.repair, own) {
            (Repair::All, Some(own)) => {
                attack::rebound(&String::from_utf8_lossy(own), &attack.text)
            }
            _ => None,
        };
        let evidence = rebound.as_deref().map(str::as_bytes).or(own);
        let report = subject.report(attack.text.as_bytes(), evidence);
        each(judged(&subject.name, &attack, &report));
    }
    let mut random = Random::new(how.seed);
    for n in 0..how.random {
        let change = mutated(text, &mut random);
        if change.bytes == subject.trace || change.forged {
            continue;
        }
        let report = subject.report(&change.bytes, own);
        each(random_case(&subject.name, n, "trace", &report, false));
    }
}

fn attack_evidence(subject: &Subject, evidence: &str, how: Tampering, each: &mut dyn FnMut(Case)) {
    let Ok(attacks) = attack::on_evidence(evidence) else {
        return;
    };
    let name = format!("{}, evidence file", subject.name);
    for attack in attacks {
        let report = subject.report(&subject.trace, Some(attack.text.as_bytes()));
        each(judged(&name, &attack, &report));
    }
    let mut random = Random::new(how.seed);
    for n in 0..how.random {
        let change = mutated(evidence, &mut random);
        if change.bytes == evidence.as_bytes() {
            continue;
        }
        let report = subject.report(&subject.trace, Some(&change.bytes));
        each(random_case(
            &name,
            n,
            "evidence file",
            &report,
            change.erased,
        ));
    }
}

fn judged(name: &str, attack: &Attack, report: &Report) -> Case {
    let verdict = match attack.expected.check(report) {
        Err(error) => Verdict::Failed(error),
        Ok(()) => match attack.expected {
            Expected::Erased => {
                Verdict::ByDesign("the file admits an erasure, and nothing else is accepted".into())
            }
            Expected::Forged if report.ok => Verdict::ByDesign(format!(
                "another trace that keeps all rules, level {}; replay, a signature or the log tells",
                level(report)
            )),
            _ => Verdict::Passed(failure(report)),
        },
    };
    let name = format!("{name}: {attack}");
    Case { name, verdict }
}

fn random_case(name: &str, n: usize, of: &str, report: &Report, erased: bool) -> Case {
    let verdict = match (report.ok, erased) {
        (false, _) => Verdict::Passed(failure(report)),
        (true, true) => Verdict::ByDesign("the file admits an erasure".into()),
        (true, false) => Verdict::Failed(format!("accepted, level {}", level(report))),
    };
    let name = format!("{name}: random change {n} of the {of}");
    Case { name, verdict }
}
