//! What a verification says.

use serde::{Deserialize, Serialize};

use super::Stopped;

/// Longest `expected` or `found` of a report, in characters; a hostile trace may hold megabytes.
const MAX_SHOWN: usize = 300;

/// How far a trace was verified. Each level includes the ones before it, except that no level
/// claims the signature or the log while those steps are not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Self-consistent: its own rules hold and every root recomputes.
    L0,
    /// Signed. Not available yet.
    L1,
    /// Evidence-bound: the stored items and quotes are those that the trace names.
    L2,
    /// Logged. Not available yet.
    L3,
    /// Replayed, with an approximate index's nominees taken as recorded in at least one round.
    #[serde(rename = "L4-nominated")]
    L4Nominated,
    /// Replayed: each retrieval at the recorded state gives the same candidates and scores.
    L4,
}

/// The result of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Recorded, bound and as far as the level says replayable. Never: true.
    Verified,
    /// As verified, as far as the texts were not erased.
    Redacted,
    /// As verified, as far as the history was not pruned.
    Pruned,
    /// A step failed.
    Failed,
}

/// What became of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// The check holds.
    Passed,
    /// The check does not hold.
    Failed,
    /// The text that the check needs was erased.
    Redacted,
    /// The history that the check needs was pruned.
    Pruned,
    /// This version has no such check.
    NotAvailable,
    /// Not run: an earlier step failed, or nothing was given to check against.
    Skipped,
}

/// Why a step failed. Codes are stable: a code never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// Not JSON of the restricted kind.
    TParse,
    /// Not in canonical form.
    TNoncanon,
    /// Larger than what is read.
    TLimit,
    /// A layout or an algorithm that this version does not know.
    TVersion,
    /// Not a well-formed trace, or parts that contradict each other.
    TStruct,
    /// A root that does not recompute.
    TRoot,
    /// The verifier's own question is not the one committed to.
    TQuestion,
    /// Something used that was not retrieved.
    TUnbound,
    /// A budget of the policy exceeded.
    TBudget,
    /// A status that does not follow from the evidence.
    TStatus,
    /// A stored item or quote that is not the one named.
    TEvidence,
    /// A statement whose checks give something else.
    TAnswer,
    /// A replay that gives something else.
    TReplay,
    /// More or fewer candidates withheld than recorded.
    TVisibility,
    /// The store that holds the evidence failed.
    TFault,
}

/// One step of the ladder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Position in the ladder, from 1; parts of one step share it.
    pub step: u8,
    /// Name of the step.
    pub name: String,
    /// What became of it.
    pub outcome: StepOutcome,
    /// Why it failed; null otherwise.
    pub code: Option<Code>,
    /// Path of the part that was checked, as in `rounds[0]`; empty for the whole trace.
    #[serde(rename = "where")]
    pub at: String,
    /// What had to be found.
    pub expected: String,
    /// What was found.
    pub found: String,
}

/// The whole report. The five members after `outcome` repeat the step that failed; they are null
/// where none did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Whether no step failed. `redacted` and `pruned` are not failures.
    pub ok: bool,
    /// Highest level reached; null below L0.
    pub level: Option<Level>,
    /// Result.
    pub outcome: Outcome,
    /// Name of the step that failed.
    pub failed_step: Option<String>,
    /// Why it failed.
    pub code: Option<Code>,
    /// Path of the part where it failed.
    #[serde(rename = "where")]
    pub at: Option<String>,
    /// What had to be found there.
    pub expected: Option<String>,
    /// What was found.
    pub found: Option<String>,
    /// What the index did not nominate, found by scanning exactly; null unless that was asked for. To have
    /// missed something is no failure.
    pub missed: Option<Vec<Missed>>,
    /// All steps in their order.
    pub steps: Vec<Step>,
}

/// What an approximate index missed in one round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// Position of the round.
    pub round: u32,
    /// Items that a scan finds among as many best ones as were considered, and the round did not.
    pub items: Vec<i64>,
}

/// A check that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub code: Code,
    pub at: String,
    pub expected: String,
    pub found: String,
}

impl Failure {
    pub fn new(
        code: Code,
        at: impl Into<String>,
        expected: impl ToString,
        found: impl ToString,
    ) -> Self {
        Self {
            code,
            at: at.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }
}

/// What a check that did not fail gives.
pub(super) struct Checked {
    pub outcome: StepOutcome,
    pub at: String,
    pub expected: String,
    pub found: String,
}

impl Checked {
    pub fn new(
        outcome: StepOutcome,
        at: impl Into<String>,
        expected: impl ToString,
        found: impl ToString,
    ) -> Self {
        Self {
            outcome,
            at: at.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    pub fn passed(expected: impl ToString, found: impl ToString) -> Self {
        Self::new(StepOutcome::Passed, "", expected, found)
    }

    pub fn not_available() -> Self {
        Self::new(StepOutcome::NotAvailable, "", "", "not available yet")
    }

    /// The same for one part of the trace.
    pub fn at(mut self, at: impl Into<String>) -> Self {
        self.at = at.into();
        self
    }
}

/// Collects the steps. A step is named by its position in the ladder and its name.
#[derive(Default)]
pub(super) struct Ladder {
    steps: Vec<Step>,
    level: Option<Level>,
    pub missed: Option<Vec<Missed>>,
}

impl Ladder {
    /// Records the result of a step and hands on what it gives to later ones.
    pub fn step<T, U>(
        &mut self,
        step: (u8, &str),
        result: Result<T, Failure>,
        split: impl FnOnce(T) -> (Checked, U),
    ) -> Result<U, Stopped> {
        match result {
            Ok(value) => {
                let (checked, rest) = split(value);
                self.push(step, None, checked);
                Ok(rest)
            }
            Err(failure) => {
                let outcome = StepOutcome::Failed;
                let Failure {
                    code,
                    at,
                    expected,
                    found,
                } = failure;
                self.push(
                    step,
                    Some(code),
                    Checked {
                        outcome,
                        at,
                        expected,
                        found,
                    },
                );
                Err(Stopped)
            }
        }
    }

    /// Records the result of a step that gives nothing but its outcome.
    pub fn check(
        &mut self,
        step: (u8, &str),
        result: Result<Checked, Failure>,
    ) -> Result<StepOutcome, Stopped> {
        self.step(step, result, |checked| {
            let outcome = checked.outcome;
            (checked, outcome)
        })
    }

    /// Records that a step was not run.
    pub fn skip(&mut self, step: (u8, &str), why: &str) {
        self.push(step, None, Checked::new(StepOutcome::Skipped, "", "", why));
    }

    /// Records all steps of the ladder that are not recorded yet as not run.
    pub fn skip_missing(&mut self, ladder: &[(u8, &str)], why: &str) {
        for step in ladder {
            if !self.steps.iter().any(|known| known.name == step.1) {
                self.skip(*step, why);
            }
        }
        // Stable, so that parts of one step keep their order.
        let place = |name: &str| ladder.iter().position(|step| step.1 == name);
        self.steps.sort_by_key(|step| place(&step.name));
    }

    fn push(&mut self, (step, name): (u8, &str), code: Option<Code>, checked: Checked) {
        self.steps.push(Step {
            step,
            name: name.into(),
            outcome: checked.outcome,
            code,
            at: shortened(checked.at),
            expected: shortened(checked.expected),
            found: shortened(checked.found),
        });
    }

    pub fn reach(&mut self, level: Level) {
        self.level = self.level.max(Some(level));
    }

    pub fn reached(&self, level: Level) -> bool {
        self.level >= Some(level)
    }

    pub fn close(self) -> Report {
        let has = |outcome| self.steps.iter().any(|step| step.outcome == outcome);
        let outcome = if has(StepOutcome::Failed) {
            Outcome::Failed
        } else if has(StepOutcome::Redacted) {
            Outcome::Redacted
        } else if has(StepOutcome::Pruned) {
            Outcome::Pruned
        } else {
            Outcome::Verified
        };
        let failed = |step: &&Step| step.outcome == StepOutcome::Failed;
        let failed = self.steps.iter().find(failed).cloned();
        Report {
            ok: failed.is_none(),
            level: self.level,
            outcome,
            failed_step: failed.as_ref().map(|step| step.name.clone()),
            code: failed.as_ref().and_then(|step| step.code),
            at: failed.as_ref().map(|step| step.at.clone()),
            expected: failed.as_ref().map(|step| step.expected.clone()),
            found: failed.map(|step| step.found),
            missed: self.missed,
            steps: self.steps,
        }
    }
}

/// Cuts a text to [`MAX_SHOWN`] characters. NUL, which a hostile trace may hold and no text of PostgreSQL can, is shown as
/// its sign.
fn shortened(text: String) -> String {
    let mut text = match text.contains('\0') {
        true => text.replace('\0', "\u{2400}"),
        false => text,
    };
    if let Some((at, _)) = text.char_indices().nth(MAX_SHOWN) {
        text.truncate(at);
        text.push('…');
    }
    text
}
