//! Vectors of the roots of sound traces.

use std::sync::LazyLock;

use cortex_core::hash::Hash;
use cortex_core::receipt::{Arm, Nominator};
use cortex_core::trace::{EvidenceItem, Roots, Round, Trace, Visible};
use serde::{Deserialize, Serialize};

use super::{Case, File, same};
use crate::asks;
use crate::library::{Library, Search};

/// A trace with all its hashes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rooted {
    id: String,
    description: String,
    trace: String,
    receipts: Vec<Hash>,
    rounds: Vec<Hash>,
    evidence: Vec<Hash>,
    roots: Roots,
}

impl Rooted {
    fn new(id: &str, description: &str, text: String) -> Result<Self, String> {
        let said = |error: cortex_core::canon::CanonError| error.to_string();
        let trace = Trace::from_text(&text).map_err(said)?;
        let receipts = trace.rounds.iter().map(|round| round.receipt.root());
        let rounds = trace.rounds.iter().map(Round::hash);
        let evidence = trace.evidence.iter().map(EvidenceItem::hash);
        Ok(Self {
            id: id.into(),
            description: description.into(),
            receipts: receipts.collect::<Result<_, _>>().map_err(said)?,
            rounds: rounds.collect::<Result<_, _>>().map_err(said)?,
            evidence: evidence.collect::<Result<_, _>>().map_err(said)?,
            roots: trace.compute_roots().map_err(said)?,
            trace: text,
        })
    }
}

impl Case for Rooted {
    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Result<(), String> {
        let found = Self::new("", "", self.trace.clone())?;
        same("receipt roots", &self.receipts, &found.receipts)?;
        same("round hashes", &self.rounds, &found.rounds)?;
        same("evidence hashes", &self.evidence, &found.evidence)?;
        same("roots", &self.roots, &found.roots)
    }
}

/// A sound trace with the corpus that can replay it.
#[derive(Clone)]
pub(super) struct Sound {
    pub id: &'static str,
    pub description: &'static str,
    pub library: Library,
    pub trace: Trace,
}

/// All sound traces.
pub(super) static SOUND: LazyLock<Vec<Sound>> = LazyLock::new(sound);

/// The sound trace with this id.
pub(super) fn by_id(id: &str) -> Result<&'static Sound, String> {
    let mut all = SOUND.iter();
    let found = all.find(|sound| sound.id == id);
    found.ok_or_else(|| format!("unknown trace {id:?}"))
}

fn sound() -> Vec<Sound> {
    let mut all = Vec::new();
    let both = [Arm::Lexical, Arm::Vector];
    let mut ask = |id, description, quoted, search: Search<'_>| {
        let mut library = Library::default();
        let trace = library.ask(&search, quoted);
        all.push(Sound {
            id,
            description,
            library,
            trace,
        });
    };
    let lexical = Search {
        k: 3,
        ..Search::default()
    };
    ask(
        "lexical",
        "one lexical round, cut at k, two quotes",
        2,
        lexical.clone(),
    );
    let vector = Search {
        arms: &[Arm::Vector],
        nominator: Nominator::Exact,
        ..lexical.clone()
    };
    ask("vector", "one round by exact vector search", 1, vector);
    let nominated = Search {
        query: "is vacuum fast",
        arms: &both,
        nominator: Nominator::Approximate,
        ..lexical.clone()
    };
    ask(
        "nominated",
        "both arms, the vector arm from an approximate index",
        2,
        nominated,
    );
    let masked = Search {
        visible: Visible::Checked,
        ..Search::default()
    };
    ask(
        "masked",
        "a caller from whom two candidates are withheld",
        2,
        masked,
    );
    let nothing = Search {
        query: "zebra",
        ..lexical
    };
    ask("nothing", "a question that nothing matches", 1, nothing);
    let mut library = Library::default();
    let trace = library.ask_in_rounds();
    all.push(Sound {
        id: "rounds",
        description: "three rounds: initial, planned, and a refinement that stalls",
        library,
        trace,
    });
    for (id, description, ask) in asks::all() {
        let mut library = Library::with_copies();
        let trace = library.answer(&ask);
        all.push(Sound {
            id,
            description,
            library,
            trace,
        });
    }
    all
}

pub(super) fn traces() -> File<Rooted> {
    let cases = SOUND.iter().map(|sound| {
        let text = sound.trace.to_text().expect("a sound trace has a text");
        Rooted::new(sound.id, sound.description, text).expect("a sound trace has roots")
    });
    File {
        comment:
            "Sound traces in canonical form, with the hash of every receipt, round and evidence \
                  item and all roots."
                .into(),
        version: 1,
        cases: cases.collect(),
    }
}
