//! An open ask: what it holds, and how it is kept between the calls of the protocol.

use cortex_core::receipt::{Receipt, State};
use cortex_core::trace::{Mode, Origin, Policy};
use pgrx::pg_sys;
use serde::{Deserialize, Serialize};

use super::given::{Call, Told};
use crate::db;
use crate::error::Fault;
use crate::rights::{self, Namespace};

/// An ask. In memory while `cortex_ask` runs, in `cortex.ask` and `cortex.ask_round` between the calls of the protocol.
#[derive(Serialize, Deserialize)]
pub struct Ask {
    pub question: String,
    pub mode: Mode,
    pub policy: Policy,
    pub state: State,
    /// Space of every round's vectors.
    pub space: Option<i32>,
    /// The question's vector, quantised.
    pub components: Option<Vec<i16>>,
    pub planned: Vec<String>,
    pub told: Option<Told>,
    /// Refinements that wait for their round.
    pub waiting: Vec<Waiting>,
    /// Rounds that were run; kept in rows of their own.
    #[serde(skip)]
    pub rounds: Vec<AskRound>,
}

/// A refinement that waits for its round.
#[derive(Clone, Serialize, Deserialize)]
pub struct Waiting {
    pub query: String,
    pub gap: String,
    pub parent: u32,
    pub components: Option<Vec<i16>>,
    pub model: Option<Call>,
}

/// A round that was run.
#[derive(Clone, Serialize, Deserialize)]
pub struct AskRound {
    pub origin: Origin,
    pub query: String,
    pub parent: Option<u32>,
    pub gap: Option<String>,
    pub refined_by: Option<Call>,
    pub receipt: Receipt,
    pub shown: Vec<Shown>,
    pub selected: Option<Vec<i64>>,
    pub selected_by: Option<Call>,
}

/// An item as a round showed it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Shown {
    pub item: i64,
    pub artifact_id: String,
    pub version_id: i64,
    pub title: Option<String>,
    pub origin: Option<String>,
    pub dated: Option<String>,
    pub score: i64,
    /// Span of the excerpt in the source text.
    pub start: i32,
    pub end: i32,
}

/// An ask of a table, locked until the transaction ends.
pub struct Kept {
    pub id: i64,
    pub namespace: Namespace,
    pub ask: Ask,
}

impl Ask {
    /// Distinct items that were selected so far.
    pub fn selected(&self) -> Vec<i64> {
        let mut all = Vec::new();
        for item in self
            .rounds
            .iter()
            .flat_map(|round| round.selected.iter().flatten())
        {
            if !all.contains(item) {
                all.push(*item);
            }
        }
        all
    }

    /// Whether some round selected nothing new.
    pub fn stalled(&self) -> bool {
        let mut seen = Vec::new();
        self.rounds.iter().any(|round| {
            let Some(selected) = &round.selected else {
                return false;
            };
            let fresh: Vec<i64> = selected
                .iter()
                .copied()
                .filter(|item| !seen.contains(item))
                .collect();
            seen.extend(&fresh);
            fresh.is_empty()
        })
    }

    /// Planned sub-questions that no round has asked yet.
    pub fn planned_left(&self) -> &[String] {
        let mut rounds = self.rounds.iter();
        let asked = rounds
            .by_ref()
            .filter(|round| round.origin == Origin::Planned)
            .count();
        self.planned.get(asked..).unwrap_or_default()
    }

    /// Rounds that may still be run.
    pub fn rounds_left(&self) -> usize {
        (self.policy.max_rounds as usize).saturating_sub(self.rounds.len())
    }

    /// Queries that wait for a round, whether or not there will be one for each.
    pub fn queries_waiting(&self) -> usize {
        let initial = usize::from(self.rounds.is_empty());
        initial + self.waiting.len() + self.planned_left().len()
    }

    /// The round that waits for its selection.
    pub fn unselected(&self) -> Option<usize> {
        let last = self.rounds.len().checked_sub(1)?;
        self.rounds[last].selected.is_none().then_some(last)
    }
}

fn text<T: Serialize>(value: &T) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|error| Fault::internal(format!("an ask: {error}")))
}

fn value<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text)
        .map_err(|error| Fault::internal(format!("a stored ask cannot be read: {error}")))
}

/// Stores a new ask. Call it as the owner.
pub fn insert(namespace: &Namespace, caller: pg_sys::Oid, ask: &Ask) -> Result<i64, Fault> {
    let made = db::write_one(
        "INSERT INTO cortex.ask (namespace_id, asked_by, mode, body) \
         VALUES ($1, (SELECT r.rolname FROM pg_catalog.pg_roles r WHERE r.oid = $2), $3, $4) RETURNING id",
        &[
            namespace.id.into(),
            caller.into(),
            ask.mode.as_str().into(),
            text(ask)?.into(),
        ],
        |row| row.must::<i64>(1),
    )?;
    made.ok_or_else(|| Fault::internal("an ask got no number".into()))
}

/// The caller's ask of that number. Call it as the owner.
pub fn load(id: i64, caller: pg_sys::Oid) -> Result<Kept, Fault> {
    let unknown = || {
        Fault::unknown(format!("you have no open ask {id}"))
            .hint("cortex_ask_open starts one; view cortex.asks lists yours. One left open for a day is removed.")
    };
    let found = db::write_one(
        "SELECT n.name, a.body FROM cortex.ask a JOIN cortex.namespace n ON n.id = a.namespace_id \
          WHERE a.id = $1 AND a.asked_by = (SELECT r.rolname FROM pg_catalog.pg_roles r WHERE r.oid = $2) FOR UPDATE OF a",
        &[id.into(), caller.into()],
        |row| Ok((row.must::<String>(1)?, row.must::<String>(2)?)),
    )?;
    let (name, body) = found.ok_or_else(unknown)?;
    let namespace = rights::readable(&name, caller).map_err(|_| unknown())?;
    let mut ask: Ask = value(&body)?;
    let rounds = db::write(
        "SELECT r.body FROM cortex.ask_round r WHERE r.ask_id = $1 ORDER BY r.i",
        &[id.into()],
        |row| row.must::<String>(1),
    )?;
    ask.rounds = rounds
        .iter()
        .map(|body| value(body))
        .collect::<Result<_, _>>()?;
    Ok(Kept { id, namespace, ask })
}

impl Kept {
    /// Stores what changed of the ask itself.
    pub fn save(&self) -> Result<(), Fault> {
        db::execute(
            "UPDATE cortex.ask SET body = $2 WHERE id = $1",
            &[self.id.into(), text(&self.ask)?.into()],
        )?;
        Ok(())
    }

    /// Stores the last round.
    pub fn save_round(&self) -> Result<(), Fault> {
        let Some(last) = self.ask.rounds.last() else {
            return Ok(());
        };
        db::execute(
            "INSERT INTO cortex.ask_round (ask_id, i, body) VALUES ($1, $2, $3) \
             ON CONFLICT ON CONSTRAINT ask_round_pkey DO UPDATE SET body = EXCLUDED.body",
            &[
                self.id.into(),
                (self.ask.rounds.len() as i32 - 1).into(),
                text(last)?.into(),
            ],
        )?;
        Ok(())
    }

    /// Removes the ask and all its texts.
    pub fn remove(&self) -> Result<(), Fault> {
        db::execute(
            "DELETE FROM cortex.ask_round WHERE ask_id = $1",
            &[self.id.into()],
        )?;
        db::execute("DELETE FROM cortex.ask WHERE id = $1", &[self.id.into()])?;
        Ok(())
    }
}
