//! Vectors of verification against a store. A case carries the store's answers, so that no corpus and
//! no ranking is needed to run it.

use cortex_core::hash::{Hash, Salt, SaltedText, Target};
use cortex_core::receipt::{Candidate, Receipt, Stats};
use cortex_core::verify::{
    Evidence, Lookup, Missed, Options, Replay, Replayed, StoredItem, verify,
};
use serde::{Deserialize, Serialize};

use super::alone::{self, Expect};
use super::{Case, File, plans, roots, same};
use crate::library::Library;

/// A trace that is verified against the answers of a store.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    id: String,
    description: String,
    trace: String,
    question: Option<String>,
    exhaustive: bool,
    store: Answers,
    missed: Option<Vec<Missed>>,
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
            exhaustive: self.exhaustive,
        };
        let mut store = Recorded(&self.store);
        let store: &mut dyn Evidence = &mut store;
        let report = verify(&self.trace, &options, Some(store));
        same("missed", &self.missed, &report.missed)?;
        self.expect.check(report)
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
    equality: Option<Hash>,
    start: u64,
    end: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    /// Root of the receipt.
    receipt: Hash,
    query: String,
    /// Whether the whole scope was scanned.
    scan: bool,
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
                equality: item.equality,
                start: item.start,
                end: item.end,
            }),
        })
    }

    fn replay(&mut self, receipt: &Receipt, query: &str) -> Result<Replay, String> {
        self.run(receipt, query, false)
    }

    fn scan(&mut self, receipt: &Receipt, query: &str) -> Result<Replay, String> {
        self.run(receipt, query, true)
    }
}

impl Recorded<'_> {
    fn run(&self, receipt: &Receipt, query: &str, scan: bool) -> Result<Replay, String> {
        let root = receipt.root().map_err(|error| error.to_string())?;
        let mut runs = self.0.replays.iter();
        let found = runs.find(|run| run.receipt == root && run.query == query && run.scan == scan);
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
                equality: item.equality,
                start: item.start,
                end: item.end,
            }),
        });
        answer
    }

    fn replay(&mut self, receipt: &Receipt, query: &str) -> Result<Replay, String> {
        let answer = self.library.replay(receipt, query);
        self.ran(receipt, query, false, answer)
    }

    fn scan(&mut self, receipt: &Receipt, query: &str) -> Result<Replay, String> {
        let answer = self.library.scan(receipt, query);
        self.ran(receipt, query, true, answer)
    }
}

impl Recorder<'_> {
    fn ran(
        &mut self,
        receipt: &Receipt,
        query: &str,
        scan: bool,
        answer: Result<Replay, String>,
    ) -> Result<Replay, String> {
        self.answers.replays.push(Run {
            receipt: receipt.root().map_err(|error| error.to_string())?,
            query: query.into(),
            scan,
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

pub(super) fn traces() -> File<Stored> {
    let cases = plans::plans().into_iter().map(|plan| {
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
            exhaustive: plan.exhaustive,
        };
        let report = verify(&trace, &options, Some(&mut recorder));
        Stored {
            id: plan.id.into(),
            description: plan.description.into(),
            trace,
            question: plan.question.map(String::from),
            exhaustive: plan.exhaustive,
            missed: report.missed,
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
