//! Vectors of verification against a store. A case carries the store's answers, so that no corpus and
//! no ranking is needed to run it.

use cortex_core::hash::{Hash, Salt, SaltedText, Target};
use cortex_core::receipt::{Candidate, Cut, Receipt, Stats};
use cortex_core::trace::Trace;
use cortex_core::verify::{
    Code, Evidence, Level, Lookup, Options, Outcome, Replay, Replayed, StoredItem, verify,
};
use serde::{Deserialize, Serialize};

use super::alone::{self, Expect};
use super::{Case, File, roots};
use crate::library::Library;

/// A trace that is verified against the answers of a store.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    id: String,
    description: String,
    trace: String,
    question: Option<String>,
    store: Answers,
    expect: Expect,
}

impl Case for Stored {
    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Result<(), String> {
        let options = Options {
            question: self.question.as_deref(),
            question_salt: None,
        };
        let mut store = Recorded(&self.store);
        let store: &mut dyn Evidence = &mut store;
        self.expect
            .check(verify(&self.trace, &options, Some(store)))
    }
}

/// All that a store was asked and answered.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answers {
    texts: Vec<Text>,
    items: Vec<Item>,
    replays: Vec<Run>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer<T> {
    Found(T),
    Erased,
    Missing,
    Pruned,
    Fault(String),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    commitment: Hash,
    answer: Answer<SaltedText>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    target: Target,
    item: i64,
    answer: Answer<ItemFound>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemFound {
    text: String,
    source_key: Salt,
    artifact: String,
    version: i64,
    content: Hash,
    start: u64,
    end: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    /// Root of the receipt.
    receipt: Hash,
    query: String,
    answer: Answer<RunFound>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunFound {
    candidates: Vec<Candidate>,
    stats: Stats,
    total_matched: u64,
}

/// A store that gives recorded answers.
struct Recorded<'a>(&'a Answers);

fn lookup<T>(answer: Option<Answer<T>>) -> Result<Lookup<T>, String> {
    match answer {
        Some(Answer::Found(value)) => Ok(Lookup::Found(value)),
        Some(Answer::Erased) => Ok(Lookup::Erased),
        Some(Answer::Missing) => Ok(Lookup::Missing),
        Some(Answer::Fault(fault)) => Err(fault),
        Some(Answer::Pruned) | None => Err("no such answer is recorded".into()),
    }
}

impl Evidence for Recorded<'_> {
    fn text(&mut self, commitment: &Hash) -> Result<Lookup<SaltedText>, String> {
        let mut texts = self.0.texts.iter();
        let found = texts.find(|text| text.commitment == *commitment);
        lookup(found.map(|text| text.answer.clone()))
    }

    fn item(&mut self, target: Target, id: i64) -> Result<Lookup<StoredItem>, String> {
        let mut items = self.0.items.iter();
        let found = items.find(|item| item.target == target && item.item == id);
        Ok(match lookup(found.map(|item| item.answer.clone()))? {
            Lookup::Erased => Lookup::Erased,
            Lookup::Missing => Lookup::Missing,
            Lookup::Found(item) => Lookup::Found(StoredItem {
                text: item.text,
                source_key: item.source_key.0,
                artifact: item.artifact,
                version: item.version,
                content: item.content,
                start: item.start,
                end: item.end,
            }),
        })
    }

    fn replay(&mut self, receipt: &Receipt, query: &str) -> Result<Replay, String> {
        let root = receipt.root().map_err(|error| error.to_string())?;
        let mut runs = self.0.replays.iter();
        let found = runs.find(|run| run.receipt == root && run.query == query);
        match found.map(|run| run.answer.clone()) {
            Some(Answer::Found(run)) => Ok(Replay::Done(Replayed {
                candidates: run.candidates,
                stats: run.stats,
                total_matched: run.total_matched,
            })),
            Some(Answer::Erased) => Ok(Replay::Erased),
            Some(Answer::Pruned) => Ok(Replay::Pruned),
            Some(Answer::Fault(fault)) => Err(fault),
            Some(Answer::Missing) | None => Err("no such answer is recorded".into()),
        }
    }
}

/// Passes questions on to a corpus and keeps its answers.
struct Recorder<'a> {
    library: &'a mut Library,
    answers: Answers,
}

fn kept<T, U>(answer: &Result<Lookup<T>, String>, keep: impl FnOnce(&T) -> U) -> Answer<U> {
    match answer {
        Ok(Lookup::Found(value)) => Answer::Found(keep(value)),
        Ok(Lookup::Erased) => Answer::Erased,
        Ok(Lookup::Missing) => Answer::Missing,
        Err(fault) => Answer::Fault(fault.clone()),
    }
}

impl Evidence for Recorder<'_> {
    fn text(&mut self, commitment: &Hash) -> Result<Lookup<SaltedText>, String> {
        let answer = self.library.text(commitment);
        self.answers.texts.push(Text {
            commitment: *commitment,
            answer: kept(&answer, SaltedText::clone),
        });
        answer
    }

    fn item(&mut self, target: Target, id: i64) -> Result<Lookup<StoredItem>, String> {
        let answer = self.library.item(target, id);
        self.answers.items.push(Item {
            target,
            item: id,
            answer: kept(&answer, |item| ItemFound {
                text: item.text.clone(),
                source_key: Salt(item.source_key),
                artifact: item.artifact.clone(),
                version: item.version,
                content: item.content,
                start: item.start,
                end: item.end,
            }),
        });
        answer
    }

    fn replay(&mut self, receipt: &Receipt, query: &str) -> Result<Replay, String> {
        let answer = self.library.replay(receipt, query);
        self.answers.replays.push(Run {
            receipt: receipt.root().map_err(|error| error.to_string())?,
            query: query.into(),
            answer: match &answer {
                Ok(Replay::Done(run)) => Answer::Found(RunFound {
                    candidates: run.candidates.clone(),
                    stats: run.stats.clone(),
                    total_matched: run.total_matched,
                }),
                Ok(Replay::Pruned) => Answer::Pruned,
                Ok(Replay::Erased) => Answer::Erased,
                Err(fault) => Answer::Fault(fault.clone()),
            },
        });
        answer
    }
}

type Change = fn(&mut Library, &Trace);

struct Plan {
    of: &'static str,
    id: &'static str,
    description: &'static str,
    question: Option<&'static str>,
    change: Change,
    /// What a forger makes of the trace before recomputing its roots.
    forge: fn(&mut Trace),
    expect: Expect,
}

pub(super) fn traces() -> File<Stored> {
    let cases = plans().into_iter().map(|plan| {
        let sound = roots::by_id(plan.of).expect("a sound trace");
        let mut library = sound.library.clone();
        (plan.change)(&mut library, &sound.trace);
        let mut recorder = Recorder {
            library: &mut library,
            answers: Answers::default(),
        };
        let trace = alone::forged(plan.of, plan.forge);
        let options = Options {
            question: plan.question,
            question_salt: None,
        };
        verify(&trace, &options, Some(&mut recorder));
        Stored {
            id: plan.id.into(),
            description: plan.description.into(),
            trace,
            question: plan.question.map(String::from),
            store: recorder.answers,
            expect: plan.expect,
        }
    });
    File {
        comment: "Traces verified against a store, with all that the store is asked and answers. A forged \
                  trace has the roots of what it says."
            .into(),
        version: 1,
        cases: cases.collect(),
    }
}

fn plans() -> Vec<Plan> {
    let plan = |of, id, description, change, expect| Plan {
        of,
        id,
        description,
        question: None,
        change,
        forge: |_| {},
        expect,
    };
    let forged = |of, id, description, forge, expect| Plan {
        forge,
        ..plan(of, id, description, |_, _| {}, expect)
    };
    let passed = |level| Expect::passed(Outcome::Verified, level);
    let asked = |id, description, question, change: Change, expect| Plan {
        question: Some(question),
        ..plan("lexical", id, description, change, expect)
    };
    let failed = |level, step, code, at| Expect::failed(Some(level), step, code, at);
    let evidence = |at| failed(Level::L0, "evidence", Code::TEvidence, at);
    let replay = |at| failed(Level::L2, "replay", Code::TReplay, at);
    let redacted = |level| Expect::passed(Outcome::Redacted, level);
    vec![
        plan(
            "lexical",
            "lexical",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "vector",
            "vector",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "nominated",
            "nominated",
            "as recorded",
            |_, _| {},
            passed(Level::L4Nominated),
        ),
        plan(
            "masked",
            "masked",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "nothing",
            "nothing",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "rounds",
            "rounds",
            "as recorded",
            |_, _| {},
            passed(Level::L4),
        ),
        plan(
            "lexical",
            "later",
            "after later changes",
            |library, _| {
                library.seq = 108;
                library
                    .items
                    .iter_mut()
                    .for_each(|item| item.closed = Some(108));
            },
            passed(Level::L4),
        ),
        asked(
            "question",
            "the right question",
            "how fast is vacuum",
            |_, _| {},
            passed(Level::L4),
        ),
        asked(
            "question-other",
            "another question",
            "how slow is vacuum",
            |_, _| {},
            Expect::failed(None, "question", Code::TQuestion, "question"),
        ),
        asked(
            "question-erased",
            "the question was erased",
            "how fast is vacuum",
            |library, trace| {
                library.behaviour.erased_texts.insert(trace.question);
            },
            redacted(Level::L2),
        ),
        plan(
            "lexical",
            "changed-item",
            "a letter of a quoted chunk changed",
            |library, trace| {
                change_text(library, trace.evidence[0].item, |text| {
                    text.replace('a', "o")
                })
            },
            evidence("evidence[0].leaf"),
        ),
        plan(
            "lexical",
            "moved-item",
            "a quoted chunk moved to another version",
            |library, trace| {
                let id = trace.evidence[0].item;
                let items = library.items.iter_mut();
                items
                    .filter(|item| item.id == id)
                    .for_each(|item| item.version += 1);
            },
            evidence("evidence[0].leaf"),
        ),
        plan(
            "lexical",
            "changed-quote",
            "a letter of a quote's stored text changed",
            |library, trace| {
                let quote = library.texts.get_mut(&trace.evidence[0].quote);
                quote.expect("the quote's text").text.push('.');
            },
            evidence("evidence[0].quote"),
        ),
        plan(
            "lexical",
            "lost-item",
            "a quoted chunk is gone without a record of erasure",
            |library, trace| {
                library.behaviour.lost_items.insert(trace.evidence[1].item);
            },
            evidence("evidence[1]"),
        ),
        plan(
            "lexical",
            "lost-quote",
            "a quote's text is gone without a record of erasure",
            |library, trace| {
                library.behaviour.lost_texts.insert(trace.evidence[1].quote);
            },
            evidence("evidence[1].quote"),
        ),
        plan(
            "lexical",
            "erased-item",
            "a quoted chunk was erased",
            |library, trace| {
                library
                    .behaviour
                    .erased_items
                    .insert(trace.evidence[0].item);
            },
            redacted(Level::L0),
        ),
        plan(
            "lexical",
            "erased-quote",
            "a quote's text was erased",
            |library, trace| {
                library
                    .behaviour
                    .erased_texts
                    .insert(trace.evidence[0].quote);
            },
            redacted(Level::L0),
        ),
        plan(
            "lexical",
            "erased-query",
            "the query was erased",
            |library, trace| {
                library.behaviour.erased_texts.insert(trace.rounds[0].query);
            },
            redacted(Level::L2),
        ),
        plan(
            "lexical",
            "changed-candidate",
            "a candidate that is not quoted changed, but not its words",
            |library, trace| {
                let id = trace.rounds[0].receipt.candidates[2].item;
                change_text(library, id, |text| text.to_uppercase());
            },
            replay("rounds[0].receipt.candidates[2].leaf"),
        ),
        plan(
            "lexical",
            "better-item",
            "the store holds an item that should have been found",
            |library, _| {
                let mut item = library.items[0].clone();
                (item.id, item.artifact) = (5, "file:new.md".into());
                library.items.push(item);
            },
            replay("rounds[0].receipt.stats.items"),
        ),
        plan(
            "masked",
            "fewer-masked",
            "one of the withheld candidates does not match any more",
            |library, _| change_text(library, 18, |text| text.replace("fast", "slow")),
            replay("rounds[0].receipt.candidates[2].score"),
        ),
        forged(
            "lexical",
            "forged-content",
            "evidence that names another content",
            |trace| trace.evidence[0].content = Hash([0; 32]),
            evidence("evidence[0].content"),
        ),
        forged(
            "lexical",
            "forged-span",
            "a quote one byte off",
            |trace| trace.evidence[0].span.start += 1,
            evidence("evidence[0].quote"),
        ),
        forged(
            "lexical",
            "forged-span-outside",
            "a span that reaches beyond its chunk",
            |trace| trace.evidence[0].span.end += 1,
            evidence("evidence[0].span"),
        ),
        forged(
            "lexical",
            "forged-excerpt",
            "a quote of more characters than allowed, though not of more bytes than they could have",
            |trace| trace.policy.excerpt_chars = 18,
            evidence("evidence[0].quote"),
        ),
        forged(
            "lexical",
            "forged-state",
            "the whole trace moved to an earlier state",
            |trace| {
                trace.state.seq = 105;
                trace.rounds[0].receipt.state.seq = 105;
            },
            replay("rounds[0].receipt.stats.items"),
        ),
        forged(
            "lexical",
            "forged-omission",
            "the last candidate left out",
            |trace| trace.rounds[0].receipt.candidates.truncate(2),
            replay("rounds[0].receipt.candidates"),
        ),
        forged(
            "masked",
            "forged-withholding",
            "a visible candidate left out and not counted as withheld",
            |trace| {
                let receipt = &mut trace.rounds[0].receipt;
                receipt.candidates.remove(2);
                receipt.cut = Cut::Cap;
            },
            failed(
                Level::L2,
                "visibility",
                Code::TVisibility,
                "rounds[0].receipt.masked",
            ),
        ),
        plan(
            "lexical",
            "pruned",
            "the history was pruned",
            |library, _| library.behaviour.pruned_below = 107,
            Expect::passed(Outcome::Pruned, Level::L2),
        ),
        plan(
            "lexical",
            "fault",
            "the store cannot be read",
            |library, _| library.behaviour.broken = true,
            failed(Level::L0, "evidence", Code::TFault, "evidence[0].quote"),
        ),
    ]
}

fn change_text(library: &mut Library, id: i64, change: impl Fn(&str) -> String) {
    for item in library.items.iter_mut().filter(|item| item.id == id) {
        item.text = change(&item.text);
    }
}
