//! The tamper matrix: every single change to a trace or to its evidence file, with what a verifier must say.
//!
//! What is expected follows from the layout and the kind of change, not from running a verifier:
//!
//! - a member written twice does not parse, members in another order are not canonical;
//! - a name of an algorithm that is not known is a matter of the version;
//! - what is no trace any more, or breaks a rule of its structure, fails there;
//! - everything else changes a root: that of the part it lies in, or that of the trace.
//!
//! Recomputing the root of the trace alone (`Repair::Outer`) does not help a forger: the root of the part still tells.
//! Who recomputes all roots (`Repair::All`) has made another trace. Where that one keeps all rules, only the evidence,
//! a replay, a signature or the log can tell; the matrix marks such cases, as [`Expected::Forged`].

use cortex_core::canon::{self, Value};
use cortex_core::hash::{Context, structure_hash};
use cortex_core::trace::{Trace, rules};
use cortex_core::verify::{Bundle, Code, Outcome, Report};

use crate::tamper::{Tamper, pointers, tampered};

/// What a forger makes good after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing.
    None,
    /// The root of the trace, from the recorded roots of the parts.
    Outer,
    /// Every root.
    All,
}

impl Repair {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Outer, Self::All];

    /// As a case is named.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "as it is",
            Self::Outer => "with a fresh outer root",
            Self::All => "with fresh roots",
        }
    }
}

/// What verification must say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It fails at this step with this code and, where it is given, at this place.
    Fails(&'static str, Code, Option<String>),
    /// It is another trace that keeps all rules: whether it is accepted depends on what else is known.
    Forged,
    /// The file says that something was erased, and a verifier takes its word: not accepted as verified in full.
    Erased,
}

impl Expected {
    /// Whether a report is what was expected.
    ///
    /// # Errors
    /// What was expected and what was found.
    pub fn check(&self, report: &Report) -> Result<(), String> {
        let (step, code) = (report.failed_step.as_deref(), report.code);
        let as_expected = match self {
            Self::Fails(expected, expected_code, at) => {
                let at = at
                    .as_deref()
                    .is_none_or(|at| report.at.as_deref() == Some(at));
                step == Some(expected) && code == Some(*expected_code) && at
            }
            Self::Forged => true,
            Self::Erased => report.ok && report.outcome != Outcome::Failed,
        };
        match as_expected {
            true => Ok(()),
            false => Err(format!(
                "expected {self:?}, found {step:?} {code:?} at {:?}",
                report.at
            )),
        }
    }
}

/// One change.
#[derive(Clone, Debug)]
pub struct Attack {
    /// Where, as a JSON pointer.
    pub pointer: String,
    /// How.
    pub tamper: Tamper,
    /// What was made good afterwards.
    pub repair: Repair,
    /// The changed text.
    pub text: String,
    /// What a verifier must say.
    pub expected: Expected,
}

impl std::fmt::Display for Attack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = match self.pointer.as_str() {
            "" => "the whole",
            pointer => pointer,
        };
        write!(f, "{} {place} {}", self.tamper.name(), self.repair.name())
    }
}

/// Every single change to a sound trace, one after the other.
///
/// # Errors
/// A text that is no JSON.
pub fn on_trace(text: &str) -> Result<impl Iterator<Item = Attack>, String> {
    let document: serde_json::Value =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let places = pointers(&document);
    let all = places.into_iter().flat_map(move |pointer| {
        let mut made = Vec::new();
        for tamper in Tamper::ALL {
            let Some(changed) = tampered(&document, &pointer, tamper) else {
                continue;
            };
            for repair in Repair::ALL {
                made.extend(attack(&document, &pointer, tamper, repair, &changed));
            }
        }
        made
    });
    Ok(all)
}

fn attack(
    document: &serde_json::Value,
    pointer: &str,
    tamper: Tamper,
    repair: Repair,
    changed: &str,
) -> Option<Attack> {
    let made = |text: String, expected| Attack {
        pointer: pointer.into(),
        tamper,
        repair,
        text,
        expected,
    };
    let layout = expected_of_layout(document, pointer, tamper);
    let trace = canon::parse_canonical(changed.as_bytes()).ok();
    let trace = trace.and_then(|value| canon::from_value::<Trace>(value).ok());
    let in_structure = Expected::Fails("structure", Code::TStruct, None);
    let part = pointer.split('/').nth(1).unwrap_or_default();
    let of_part = matches!(
        part,
        "question" | "policy" | "principal" | "rounds" | "evidence" | "answer"
    );
    match repair {
        Repair::None => {
            let expected = layout.unwrap_or_else(|| match &trace {
                None => in_structure,
                Some(trace) if rules::structure(trace).is_err() => in_structure,
                Some(_) => {
                    let root = match part {
                        "roots" => pointer.replacen("/roots/", "", 1),
                        part if of_part => part.into(),
                        _ => "trace".into(),
                    };
                    let at = Some(format!("roots.{root}"));
                    Expected::Fails("roots", Code::TRoot, at)
                }
            });
            Some(made(changed.into(), expected))
        }
        // A root that is wrong in itself, or a part that no longer has the recorded root.
        Repair::Outer => {
            let within = of_part || (part == "roots" && pointer != "/roots/trace");
            let sound = layout.is_none() && within;
            let trace = trace.filter(|trace| sound && rules::structure(trace).is_ok())?;
            let text = with_outer_root(trace)?;
            let part = pointer.replacen("/roots/", "/", 1);
            let part = part.split('/').nth(1).unwrap_or_default();
            let at = Some(format!("roots.{part}"));
            Some(made(text, Expected::Fails("roots", Code::TRoot, at)))
        }
        Repair::All => {
            let mut trace = trace.filter(|_| layout.is_none() && part != "roots")?;
            rules::structure(&trace).ok()?;
            trace.roots = trace.compute_roots().ok()?;
            let text = trace.to_text().ok()?;
            let expected = if rules::binding(&trace).is_err() {
                Expected::Fails("binding", Code::TUnbound, None)
            } else if rules::budget(&trace).is_err() {
                Expected::Fails("budget", Code::TBudget, None)
            } else if rules::status(&trace).is_err() {
                Expected::Fails("status", Code::TStatus, None)
            } else {
                Expected::Forged
            };
            Some(made(text, expected))
        }
    }
}

/// What the layout alone says about a change: repeated and reordered members, and names of algorithms.
fn expected_of_layout(
    document: &serde_json::Value,
    pointer: &str,
    tamper: Tamper,
) -> Option<Expected> {
    let parent = pointer.rsplit_once('/').map(|(parent, _)| parent);
    let member = parent
        .and_then(|parent| document.pointer(parent))
        .is_some_and(serde_json::Value::is_object);
    match tamper {
        Tamper::Duplicate if member => Some(Expected::Fails("parse", Code::TParse, None)),
        Tamper::Reorder if member => Some(Expected::Fails("parse", Code::TNoncanon, None)),
        Tamper::Flip if names_an_algorithm(pointer) => {
            let is_text = document
                .pointer(pointer)
                .is_some_and(serde_json::Value::is_string);
            is_text.then_some(Expected::Fails("version", Code::TVersion, None))
        }
        _ => None,
    }
}

fn names_an_algorithm(pointer: &str) -> bool {
    let parts: Vec<&str> = pointer.split('/').skip(1).collect();
    matches!(
        parts[..],
        ["v" | "analyzer" | "ranker" | "chunker"]
            | ["rules", "excerpt" | "quote" | "ground" | "family"]
            | ["rounds", _, "receipt", "fusion"]
            | ["rounds", _, "receipt", "space", "quantiser"]
    )
}

/// The text of a trace whose own root is recomputed from the roots that it records for its parts.
fn with_outer_root(mut trace: Trace) -> Option<String> {
    let Ok(Value::Object(mut head)) = Value::parse(trace.to_text().ok()?.as_bytes()) else {
        return None;
    };
    for part in [
        "question",
        "policy",
        "principal",
        "rounds",
        "evidence",
        "answer",
    ] {
        head.remove(part);
    }
    if let Some(Value::Object(roots)) = head.get_mut("roots") {
        roots.remove("trace");
    }
    let head = serde_json::Value::from(Value::Object(head));
    trace.roots.trace = structure_hash(Context::Trace, &head).ok()?;
    trace.to_text().ok()
}

/// Every single change to the evidence file of a trace.
///
/// # Errors
/// A text that is no JSON.
pub fn on_evidence(text: &str) -> Result<impl Iterator<Item = Attack>, String> {
    let document: serde_json::Value =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let places = pointers(&document);
    let all = places.into_iter().flat_map(move |pointer| {
        let changes = Tamper::ALL.into_iter().filter_map(|tamper| {
            let text = tampered(&document, &pointer, tamper)?;
            let expected = expected_of_evidence(&document, &pointer, tamper, &text);
            Some(Attack {
                pointer: pointer.clone(),
                tamper,
                repair: Repair::None,
                text,
                expected,
            })
        });
        changes.collect::<Vec<_>>()
    });
    Ok(all)
}

fn expected_of_evidence(
    document: &serde_json::Value,
    pointer: &str,
    tamper: Tamper,
    changed: &str,
) -> Expected {
    let layout = expected_of_layout(document, pointer, tamper);
    if let Some(Expected::Fails(_, code, at)) = layout {
        return Expected::Fails("evidence", code, at);
    }
    if Bundle::from_text(changed).is_err() {
        return Expected::Fails("evidence", Code::TStruct, None);
    }
    let erased = pointer.ends_with("/stored") && tamper == Tamper::Flip;
    match erased
        && document
            .pointer(pointer)
            .is_some_and(serde_json::Value::is_object)
    {
        true => Expected::Erased,
        false => Expected::Fails("evidence", Code::TEvidence, None),
    }
}

/// The file of a forged trace: the one of the sound trace, with the new root.
pub fn rebound(evidence: &str, trace: &str) -> Option<String> {
    let mut bundle = Bundle::from_text(evidence).ok()?;
    bundle.trace = Trace::from_text(trace).ok()?.roots.trace;
    bundle.to_text().ok()
}
