//! Vectors of verification with an evidence file: sound traces, files that do not belong, and answers whose checks
//! say what the texts do not give. The roots of a forged trace are those of what it says.

use cortex_core::family;
use cortex_core::trace::{Check, Numbers, Policy, Trace};
use cortex_core::verify::{Bundle, Code, Level, Outcome};
use serde::{Deserialize, Serialize};

use super::alone::Expect;
use super::{Case, File, roots};
use crate::library::Library;
use crate::offline::{Given, check};
use crate::samples;

/// A trace with its evidence file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Offline {
    id: String,
    description: String,
    trace: String,
    evidence: String,
    question: Option<String>,
    expect: Expect,
}

impl Case for Offline {
    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Result<(), String> {
        self.expect.check(check(
            self.trace.as_bytes(),
            &Given {
                evidence: Some(self.evidence.as_bytes()),
                question: self.question.as_deref(),
                salt: None,
            },
        ))
    }
}

/// A change to a trace and its corpus.
type Forge = fn(&mut Trace, &mut Library);

fn forged(id: &str, forge: Forge) -> (String, String) {
    let sound = roots::by_id(id).expect("a sound trace");
    let (mut trace, mut library) = (sound.trace.clone(), sound.library.clone());
    forge(&mut trace, &mut library);
    trace.roots = trace.compute_roots().expect("small numbers");
    let evidence = samples::evidence(&mut library, &trace);
    (trace.to_text().expect("small numbers"), evidence)
}

fn passed(level: Level) -> Expect {
    Expect::passed(Outcome::Verified, level)
}

fn redacted() -> Expect {
    Expect::passed(Outcome::Redacted, Level::L0)
}

fn failed(step: &str, code: Code, at: &str) -> Expect {
    let level = (step != "question").then_some(Level::L0);
    Expect::failed(level, step, code, at)
}

pub(super) fn traces() -> File<Offline> {
    let mut cases = Vec::new();
    let mut add = |id: &str, description: &str, texts: (String, String), expect| {
        let (trace, evidence) = texts;
        cases.push(Offline {
            id: id.into(),
            description: description.into(),
            trace,
            evidence,
            question: None,
            expect,
        });
    };
    for sample in samples::all() {
        let erased = sample.id.ends_with("erased");
        let expect = if erased {
            redacted()
        } else {
            passed(Level::L2)
        };
        let description = if erased {
            "an erasure that the file admits"
        } else {
            "as recorded"
        };
        add(
            &sample.id,
            description,
            (sample.trace.clone(), sample.evidence.clone()),
            expect,
        );
    }
    for (of, id, description, forge, step, code, at) in forgeries() {
        add(id, description, forged(of, forge), failed(step, code, at));
    }
    for (id, description, change, code, at) in files() {
        let (trace, evidence) = forged("partly-supported", |_, _| {});
        let mut bundle = Bundle::from_text(&evidence).expect("a file of ours");
        change(&mut bundle);
        let evidence = bundle.to_text().expect("small numbers");
        add(
            id,
            description,
            (trace, evidence),
            failed("evidence", code, &format!("evidence file: {at}")),
        );
    }
    for (id, description, edit, code, at) in texts() {
        let (trace, evidence) = forged("partly-supported", |_, _| {});
        add(
            id,
            description,
            (trace, edit(&evidence)),
            failed("evidence", code, &format!("evidence file: {at}")),
        );
    }
    let (trace, evidence) = forged("answered", |_, _| {});
    let mut ask = |id: &str, description: &str, question: &str, expect| {
        cases.push(Offline {
            id: id.into(),
            description: description.into(),
            trace: trace.clone(),
            evidence: evidence.clone(),
            question: Some(question.into()),
            expect,
        });
    };
    let asked = "what did vacuum read on pages";
    ask(
        "question",
        "the question that was asked",
        asked,
        passed(Level::L2),
    );
    let other = failed("question", Code::TQuestion, "question");
    ask(
        "other-question",
        "another question",
        "what did vacuum write",
        other,
    );
    File {
        comment: "Traces verified with an evidence file and no store. A forged trace has the roots of what it says, and \
                  a file made for it."
            .into(),
        version: 1,
        cases,
    }
}

type Forgery = (
    &'static str,
    &'static str,
    &'static str,
    Forge,
    &'static str,
    Code,
    &'static str,
);

fn forgeries() -> Vec<Forgery> {
    let answer = |id, description, forge: Forge, at| -> Forgery {
        (
            "partly-supported",
            id,
            description,
            forge,
            "answer",
            Code::TAnswer,
            at,
        )
    };
    let item = |id, description, forge: Forge, at| -> Forgery {
        (
            "partly-supported",
            id,
            description,
            forge,
            "evidence",
            Code::TEvidence,
            at,
        )
    };
    let lexical = |id, description, forge: Forge, at| -> Forgery {
        (
            "lexical",
            id,
            description,
            forge,
            "evidence",
            Code::TEvidence,
            at,
        )
    };
    vec![
        item(
            "other-text",
            "an item that says something else",
            |_, l| edit(l, |text| *text = text.replace("skips", "reads_")),
            "evidence[0].leaf",
        ),
        item(
            "longer-text",
            "an item with a word more",
            |_, l| edit(l, |text| text.push_str(" Truly.")),
            "evidence[0].leaf",
        ),
        item(
            "other-content",
            "another content than the item's",
            |t, _| t.evidence[0].content = t.evidence[1].content,
            "evidence[0].content",
        ),
        lexical(
            "other-span",
            "a quote from one byte later",
            |t, _| t.evidence[0].span.start += 1,
            "evidence[0].quote",
        ),
        lexical(
            "span-beyond",
            "a span beyond the item",
            |t, _| t.evidence[0].span.end += 1,
            "evidence[0].span",
        ),
        item(
            "other-quote",
            "the quote of another item",
            |t, _| t.evidence[0].quote = t.evidence[1].quote,
            "evidence[0].quote",
        ),
        item(
            "long-quote",
            "a quote longer than the policy allows",
            |t, _| t.policy.excerpt_chars = 30,
            "evidence[0].quote",
        ),
        (
            "compared",
            "mirror-counted",
            "two copies as two families",
            |t, _| {
                let copies: Vec<usize> = (0..t.evidence.len())
                    .filter(|i| t.evidence[*i].family != *i as u32 + 1)
                    .collect();
                let copy = copies.into_iter().find(|i| {
                    let artifact = &t.evidence[*i].artifact;
                    t.evidence[..*i]
                        .iter()
                        .all(|item| item.artifact != *artifact)
                });
                let copy = copy.expect("a copy under another name");
                t.evidence[copy].family = copy as u32 + 1;
                let families: Vec<u32> = t.evidence.iter().map(|item| item.family).collect();
                t.answer.families = family::count(&families);
            },
            "families",
            Code::TEvidence,
            "evidence[1].family",
        ),
        (
            "answered",
            "number-denied",
            "a number that is there",
            |t, _| t.answer.statements[1].numbers = Numbers::None,
            "answer",
            Code::TAnswer,
            "answer.statements[1].numbers",
        ),
        answer(
            "quote-invented",
            "an absent quote that claims to be there",
            |t, _| {
                t.answer.statements[3].citations[0].check = Check::Supported;
                restate(t);
            },
            "answer.statements[3].citations[0].check",
        ),
        answer(
            "quote-moved",
            "a quote at another place",
            |t, _| t.answer.statements[0].citations[0].span.start -= 1,
            "answer.statements[0].citations[0].span",
        ),
        answer(
            "other-of-absent",
            "an absent quote that claims to be elsewhere",
            |t, _| {
                let citation = &mut t.answer.statements[3].citations[0];
                citation.check = Check::Misattributed;
                citation.other = Some(2);
            },
            "answer.statements[3].citations[0].check",
        ),
        answer(
            "other-elsewhere",
            "a misattributed quote at another evidence than it is",
            |t, _| {
                let citation = &mut t.answer.statements[2].citations[0];
                citation.other = citation.other.map(|n| if n == 3 { 4 } else { 3 });
            },
            "answer.statements[2].citations[0].other",
        ),
        (
            "partly-supported",
            "prose-lost",
            "prose without a record of its erasure",
            |t, l| drop(l.texts.remove(&t.answer.prose.expect("prose"))),
            "evidence",
            Code::TEvidence,
            "evidence file: texts",
        ),
    ]
}

/// Changes the text of the first item of the evidence.
fn edit(library: &mut Library, change: impl Fn(&mut String)) {
    let item = library
        .items
        .iter_mut()
        .find(|item| item.text.contains("skips"));
    change(&mut item.expect("an item that skips").text);
}

/// Support and status as they follow from changed checks.
fn restate(trace: &mut Trace) {
    for statement in &mut trace.answer.statements {
        statement.supported = statement.holds(trace.policy.quote);
    }
    let (status, reason) = cortex_core::trace::rules::expected_status(trace);
    trace.answer.status = status;
    trace.answer.reason = reason;
    assert!(trace.policy.max_rounds <= Policy::CAPS.max_rounds);
}

type Change = (
    &'static str,
    &'static str,
    fn(&mut Bundle),
    Code,
    &'static str,
);

fn files() -> Vec<Change> {
    let of = |id, description, change: fn(&mut Bundle), at| {
        (id, description, change, Code::TEvidence, at)
    };
    vec![
        of(
            "file-of-another",
            "the file of another trace",
            |b| b.trace = b.items[0].stored.as_ref().expect("an item").content,
            "trace",
        ),
        of(
            "file-item-twice",
            "an item twice",
            |b| b.items.insert(0, b.items[0].clone()),
            "items[1]",
        ),
        of(
            "file-items-reordered",
            "items in another order",
            |b| b.items.swap(0, 1),
            "items[1]",
        ),
        of(
            "file-item-missing",
            "an item less",
            |b| drop(b.items.remove(0)),
            "items",
        ),
        of(
            "file-item-foreign",
            "an item that the trace does not name",
            |b| b.items[0].item -= 1,
            "items[0]",
        ),
        of(
            "file-text-twice",
            "a text twice",
            |b| b.texts.insert(0, b.texts[0].clone()),
            "texts[1]",
        ),
        of(
            "file-texts-reordered",
            "texts in another order",
            |b| b.texts.swap(0, 1),
            "texts[1]",
        ),
        of(
            "file-text-missing",
            "a text less",
            |b| drop(b.texts.pop()),
            "texts",
        ),
        of(
            "file-text-changed",
            "another text under a commitment",
            |b| text(b).text.push('!'),
            "texts[0]",
        ),
        of(
            "file-salt-changed",
            "another salt under a commitment",
            |b| text(b).salt.0[0] ^= 1,
            "texts[0]",
        ),
        of(
            "file-text-foreign",
            "a commitment that the trace does not name",
            |b| b.texts[0].commitment.0[31] ^= 1,
            "texts[0]",
        ),
    ]
}

fn text(bundle: &mut Bundle) -> &mut cortex_core::hash::SaltedText {
    bundle.texts[0].stored.as_mut().expect("a text")
}

type Edit = (
    &'static str,
    &'static str,
    fn(&str) -> String,
    Code,
    &'static str,
);

fn texts() -> Vec<Edit> {
    vec![
        (
            "file-empty",
            "an empty file",
            |_| String::new(),
            Code::TParse,
            "byte 0",
        ),
        (
            "file-white-space",
            "a space after the first brace",
            |t| t.replacen('{', "{ ", 1),
            Code::TNoncanon,
            "byte 1",
        ),
        (
            "file-deep",
            "deeper than the limit",
            |_| "[".repeat(33),
            Code::TLimit,
            "byte 32",
        ),
        (
            "file-version",
            "a layout that is not known",
            |t| t.replacen("evidence/1", "evidence/2", 1),
            Code::TVersion,
            "v",
        ),
        (
            "file-member",
            "a member that the layout does not have",
            |t| t.replacen("{\"items\"", "{\"a\":0,\"items\"", 1),
            Code::TStruct,
            "a",
        ),
    ]
}
