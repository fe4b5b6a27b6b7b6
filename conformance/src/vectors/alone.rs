//! Vectors of verification without a store: sound traces, and traces that break one rule each. The
//! roots of a broken trace are those of what it says, so that the rule itself has to find it.

use cortex_core::canon::MAX_DEPTH;
use cortex_core::hash::{Hash, Salt};
use cortex_core::trace::{Policy, Trace};
use cortex_core::verify::{Code, Level, Options, Outcome, Report, verify};
use serde::{Deserialize, Serialize};

use super::{Case, File, broken, roots, same};

/// What a verification must say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    pub outcome: Outcome,
    pub level: Option<Level>,
    pub failed_step: Option<String>,
    pub code: Option<Code>,
    #[serde(rename = "where")]
    pub at: Option<String>,
}

impl Expect {
    pub fn passed(outcome: Outcome, level: Level) -> Self {
        Self {
            outcome,
            level: Some(level),
            failed_step: None,
            code: None,
            at: None,
        }
    }

    pub fn failed(level: Option<Level>, step: &str, code: Code, at: &str) -> Self {
        Self {
            outcome: Outcome::Failed,
            level,
            failed_step: Some(step.into()),
            code: Some(code),
            at: Some(at.into()),
        }
    }

    pub fn check(&self, report: Report) -> Result<(), String> {
        let found = Self {
            outcome: report.outcome,
            level: report.level,
            failed_step: report.failed_step,
            code: report.code,
            at: report.at,
        };
        same("report", self, &found)
    }
}

/// A text that is verified alone.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Alone {
    id: String,
    description: String,
    trace: String,
    question: Option<String>,
    question_salt: Option<Salt>,
    expect: Expect,
}

impl Case for Alone {
    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Result<(), String> {
        let options = Options {
            question: self.question.as_deref(),
            question_salt: self.question_salt,
            exhaustive: false,
        };
        self.expect.check(verify(&self.trace, &options, None))
    }
}

/// The sound trace with this id, changed, with fresh roots.
pub(super) fn forged(id: &str, change: impl FnOnce(&mut Trace)) -> String {
    let mut trace = roots::by_id(id).expect("a sound trace").trace.clone();
    change(&mut trace);
    trace.roots = trace.compute_roots().expect("small numbers");
    trace.to_text().expect("small numbers")
}

fn sound(id: &str) -> String {
    forged(id, |_| {})
}

pub(super) fn traces() -> File<Alone> {
    let case = |id: &str, description: &str, trace: String, expect: Expect| Alone {
        id: id.into(),
        description: description.into(),
        trace,
        question: None,
        question_salt: None,
        expect,
    };
    let mut cases: Vec<Alone> = Vec::new();
    for sound in roots::SOUND.iter() {
        let expect = Expect::passed(Outcome::Verified, Level::L0);
        let text = sound.trace.to_text().expect("a sound trace has a text");
        cases.push(case(sound.id, sound.description, text, expect));
    }
    cases.extend(
        texts()
            .into_iter()
            .map(|(id, description, text, step, code, at)| {
                case(id, description, text, Expect::failed(None, step, code, at))
            }),
    );
    cases.extend(questions());
    for (id, description, change) in at_the_caps() {
        let expect = Expect::passed(Outcome::Verified, Level::L0);
        cases.push(case(id, description, forged("lexical", change), expect));
    }
    for (of, id, description, change, step, code, at) in broken::broken() {
        let expect = Expect::failed(None, step, code, at);
        cases.push(case(id, description, forged(of, change), expect));
    }
    cases.extend(wrong_roots());
    File {
        comment: "Texts verified without a store, with the result, the level reached and the first \
                  step that fails. Where a trace breaks a rule, its roots are those of what it says."
            .into(),
        version: 1,
        cases,
    }
}

type Text = (
    &'static str,
    &'static str,
    String,
    &'static str,
    Code,
    &'static str,
);

/// Texts that are no trace.
fn texts() -> Vec<Text> {
    let edited = |from: &str, to: &str| {
        let text = sound("lexical");
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    };
    vec![
        (
            "empty",
            "no text",
            String::new(),
            "parse",
            Code::TParse,
            "byte 0",
        ),
        (
            "duplicate-key",
            "a member twice",
            edited(
                "{\"analyzer\"",
                "{\"analyzer\":\"cortex-text/1\",\"analyzer\"",
            ),
            "parse",
            Code::TParse,
            "byte 28",
        ),
        (
            "white-space",
            "a space after the first brace",
            edited("{", "{ "),
            "parse",
            Code::TNoncanon,
            "byte 1",
        ),
        (
            "too-deep",
            "deeper than the limit",
            "[".repeat(MAX_DEPTH + 1),
            "parse",
            Code::TLimit,
            "byte 32",
        ),
        (
            "next-version",
            "a layout that is not known",
            edited("\"v\":\"trace/1\"", "\"v\":\"trace/2\""),
            "version",
            Code::TVersion,
            "v",
        ),
        (
            "unknown-analyzer",
            "an analyzer that is not known",
            edited("cortex-text/1", "cortex-text/999"),
            "version",
            Code::TVersion,
            "analyzer",
        ),
        (
            "unknown-fusion",
            "a fusion that is not known",
            edited("cortex-rrf/1", "cortex-rrf/999"),
            "version",
            Code::TVersion,
            "rounds[0].receipt.fusion",
        ),
        (
            "other-engine",
            "a program of another name",
            edited("\"engine\":\"cortex/", "\"engine\":\"other/"),
            "version",
            Code::TVersion,
            "engine",
        ),
        (
            "no-object",
            "an array",
            "[]".into(),
            "structure",
            Code::TStruct,
            ".",
        ),
        (
            "unknown-rule",
            "a rule of quotes that is not known",
            edited("cortex-quote/1", "cortex-quote/999"),
            "version",
            Code::TVersion,
            "rules.quote",
        ),
        (
            "reason-in-prose",
            "a reason that is no code",
            edited("\"reason\":null", "\"reason\":\"Sorry!\""),
            "structure",
            Code::TStruct,
            "answer.reason",
        ),
        (
            "missing-null",
            "a nullable member left out",
            edited("\"reason\":null,", ""),
            "structure",
            Code::TStruct,
            "answer.reason",
        ),
        (
            "missing-reserved",
            "a reserved member left out",
            edited("\"log\":null,", ""),
            "structure",
            Code::TStruct,
            ".",
        ),
        (
            "unknown-member",
            "a member that the layout does not have",
            edited("{\"analyzer\"", "{\"a\":0,\"analyzer\""),
            "structure",
            Code::TStruct,
            "a",
        ),
        (
            "reserved-member",
            "a value in a reserved member",
            edited("\"log\":null", "\"log\":0"),
            "structure",
            Code::TStruct,
            "log",
        ),
        (
            "unknown-mode",
            "a mode that the layout does not have",
            edited("find_relevant", "find_anything"),
            "structure",
            Code::TStruct,
            "mode",
        ),
    ]
}

fn questions() -> Vec<Alone> {
    let question = "how fast is vacuum";
    let lexical = roots::by_id("lexical").expect("a sound trace");
    let salt = lexical.library.texts.get(&lexical.trace.question);
    let salt = salt.expect("the question's text").salt;
    let case = |id: &str, description: &str, question: &str, salt, expect| Alone {
        id: id.into(),
        description: description.into(),
        trace: sound("lexical"),
        question: Some(question.into()),
        question_salt: Some(salt),
        expect,
    };
    let wrong = || Expect::failed(None, "question", Code::TQuestion, "question");
    let right = Expect::passed(Outcome::Verified, Level::L0);
    vec![
        case(
            "question",
            "the question that was asked",
            question,
            salt,
            right,
        ),
        case(
            "question-other",
            "one letter differs",
            "how fast is Vacuum",
            salt,
            wrong(),
        ),
        case("question-empty", "an empty question", "", salt, wrong()),
        case(
            "question-salt",
            "another salt",
            question,
            Salt([0; 32]),
            wrong(),
        ),
    ]
}

pub(super) type Change = fn(&mut Trace);

/// Changes that stay just inside a rule.
fn at_the_caps() -> Vec<(&'static str, &'static str, Change)> {
    vec![
        ("policy-caps", "every budget at its cap", |trace| {
            trace.policy = Policy {
                retrieval: trace.policy.retrieval,
                ..Policy::CAPS
            }
        }),
        ("policy-ones", "budgets that just suffice", |trace| {
            trace.policy = Policy {
                max_rounds: 1,
                max_candidates: 3,
                max_evidence: 2,
                excerpt_chars: 9,
                ..Policy::default()
            };
        }),
        ("extra-ascending", "unsealed changes in order", |trace| {
            trace.state.extra = vec![107, 109];
            trace.rounds[0].receipt.state.extra = vec![107, 109];
        }),
    ]
}

/// Each root in turn replaced by zeros.
fn wrong_roots() -> Vec<Alone> {
    let zero = Hash([0; 32]);
    let wrong: [(&str, Change); 7] = [
        ("question", |t| t.roots.question = Hash([0; 32])),
        ("policy", |t| t.roots.policy = Hash([0; 32])),
        ("principal", |t| t.roots.principal = Hash([0; 32])),
        ("rounds", |t| t.roots.rounds = Hash([0; 32])),
        ("evidence", |t| t.roots.evidence = Hash([0; 32])),
        ("answer", |t| t.roots.answer = Hash([0; 32])),
        ("trace", |t| t.roots.trace = Hash([0; 32])),
    ];
    let case = |(name, change): (&str, Change)| {
        let mut trace = roots::by_id("lexical")
            .expect("a sound trace")
            .trace
            .clone();
        change(&mut trace);
        Alone {
            id: format!("root-{name}"),
            description: format!("the {name} root is {zero}"),
            trace: trace.to_text().expect("small numbers"),
            question: None,
            question_salt: None,
            expect: Expect::failed(None, "roots", Code::TRoot, &format!("roots.{name}")),
        }
    };
    wrong.into_iter().map(case).collect()
}
