//! Replays recorded cases of the claim pool of a peer on an in-memory host.
//!
//! A case *passes* if Cortex's algorithms give what was recorded: order, scores (to 1e-5), token counts, payload,
//! decisions, calls of the model and of retrieval, and events in their order. It is different *by design* if
//! all of this holds:
//!
//! 1. the peer's documented rules, replayed on the same input, give exactly what was recorded;
//! 2. so do Cortex's with a few named differences undone, none of which is idle;
//! 3. every read of the replay by Cortex's rules keeps the rules for whose sake it differs: the budget, the
//!    headers, the prefix, the reserved share, nothing stale, nothing crowded out, nothing hidden, nothing
//!    forgotten, no foreign source, no claim without its own vector ([`judge`]).
//!
//! Everything else *fails*. No rule looks at the name of a case. What is not compared: the number of calls of the
//! embedder, which Cortex batches in its own way; the wording of a reranker's fault;
//! the order of related units of equal score, which the peer takes from an unordered set; and, in a replay by Cortex's
//! rules, which units Python's generator would have drawn.

mod build;
mod case;
mod compare;
mod digest;
mod hooks;
mod host;
mod judge;
mod peer;
mod policy;
mod read;
mod serve;
mod stats;
mod unit;

use serde_json::Value;
use thiserror::Error;

use case::{Case, File};
use host::{Host, Summation};
use policy::{Difference, Policy};

/// Scenarios whose features are built.
pub const BUILT: [&str; 15] = [
    "S01", "S02", "S03", "S04", "S05", "S06", "S07", "S08", "S09", "S10", "S13", "S17", "S20",
    "S21", "S22",
];

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As recorded.
    Passed,
    /// Better than recorded, for these reasons.
    ByDesign(Vec<&'static str>),
    /// Neither, and what differs first.
    Failed(String),
}

/// A judged case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// Scenario and name.
    pub case: String,
    /// What became of it.
    pub verdict: Verdict,
}

impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.verdict {
            Verdict::Passed => write!(f, "{} passed", self.case),
            Verdict::ByDesign(reasons) => {
                write!(f, "{} by design: {}", self.case, reasons.join("; "))
            }
            Verdict::Failed(reason) => write!(f, "{} failed: {reason}", self.case),
        }
    }
}

/// Why a file cannot be run at all.
#[derive(Debug, Error)]
#[error("not a file of claim pool cases: {0}")]
pub struct NotCases(#[from] serde_json::Error);

/// Runs all cases of a file, in order.
///
/// Errors: [`NotCases`] if the text is not JSON of that shape. A single case that cannot be read fails.
pub fn run(text: &str) -> Result<Vec<Judged>, NotCases> {
    let file: File = serde_json::from_str(text)?;
    let cases = file.scenarios.into_iter().flat_map(|scenario| {
        let cases = scenario.cases.into_iter();
        cases.map(move |case| judge(&scenario.id, case))
    });
    Ok(cases.collect())
}

/// Judges one case of a scenario.
pub fn judge(scenario: &str, case: Value) -> Judged {
    let name = case.get("name").and_then(Value::as_str);
    let name = format!("{scenario}/{}", name.unwrap_or("(no name)"));
    let verdict = match BUILT.contains(&scenario) {
        false => Verdict::Failed("not built yet".into()),
        true => match serde_json::from_value::<Case>(case) {
            Ok(case) => judge_case(&case),
            Err(error) => Verdict::Failed(format!("cannot be read: {error}")),
        },
    };
    Judged {
        case: name,
        verdict,
    }
}

fn judge_case(case: &Case) -> Verdict {
    let ours = Policy::ours();
    let difference = attempt(case, &ours).err();
    if let Some(broken) = violation(case, &ours) {
        return Verdict::Failed(broken);
    }
    let Some(difference) = difference else {
        return Verdict::Passed;
    };
    let mut unexplained = None;
    let explained = Policy::peers_everything()
        .into_iter()
        .find(|peer| match attempt(case, peer) {
            Ok(()) => true,
            Err(other) => {
                unexplained.get_or_insert(other);
                false
            }
        });
    let Some(peer) = explained else {
        let unexplained = unexplained.unwrap_or_default();
        return Verdict::Failed(format!(
            "{difference}; the peer's documented rules do not explain it: {unexplained}"
        ));
    };
    let mut needed = peer.peers().clone();
    for difference in Difference::ALL {
        let mut fewer = needed.clone();
        if fewer.remove(&difference) && attempt(case, &Policy::with_peers(fewer.clone())).is_ok() {
            needed = fewer;
        }
    }
    Verdict::ByDesign(needed.into_iter().map(Difference::reason).collect())
}

/// Replays a case; the error says what differs from the recording.
fn attempt(case: &Case, policy: &Policy) -> Result<(), String> {
    let mut first = None;
    for summation in Summation::ALL {
        match replay(case, policy, summation) {
            Ok(()) => return Ok(()),
            Err(difference) => first.get_or_insert(difference),
        };
    }
    Err(first.unwrap_or_default())
}

fn replay(case: &Case, policy: &Policy, summation: Summation) -> Result<(), String> {
    let mut host = Host::new(case, policy, summation)?;
    for (number, op) in (1..).zip(&case.ops) {
        let output = host
            .run(op)
            .map_err(|error| format!("operation {number}: {error}"))?;
        compare::operation(&op.recorded, &output)
            .map_err(|difference| format!("operation {number} ({}): {difference}", op.op))?;
    }
    Ok(())
}

/// The first of Cortex's rules that a whole replay breaks.
fn violation(case: &Case, policy: &Policy) -> Option<String> {
    let mut host = match Host::new(case, policy, Summation::Double) {
        Ok(host) => host,
        Err(error) => return Some(error),
    };
    host.judged = true;
    for op in &case.ops {
        if let Err(error) = host.run(op) {
            return Some(error);
        }
    }
    let broken = host.violations.into_iter().next();
    broken.map(|rule| format!("a rule is broken: {rule}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checks must notice what they are there for: a replay by the peer's rules breaks one wherever a case
    /// differs by design, but where only the sample of noise differs, of which one is as good as another.
    #[test]
    fn the_checks_notice_the_peers_ways() {
        let text = include_str!("../../claim-pool/v1/recorded.json");
        let file: File = serde_json::from_str(text).expect("the file has cases");
        let mut noticed = 0;
        for case in file
            .scenarios
            .into_iter()
            .flat_map(|scenario| scenario.cases)
        {
            let name = case["name"].clone();
            let case: Case = serde_json::from_value(case).expect("a case");
            let Verdict::ByDesign(reasons) = judge_case(&case) else {
                continue;
            };
            if reasons == [Difference::NoiseSample.reason()] {
                continue;
            }
            let [peer, _] = Policy::peers_everything();
            assert!(violation(&case, &peer).is_some(), "{name}: {reasons:?}");
            noticed += 1;
        }
        assert!(noticed > 20);
    }
}
