//! `cortex_verify`: a trace against what the database holds.

pub mod all;
mod drift;
mod tell;

use cortex_core::hash::{Hash, Leaf, Salt, SaltedText, Target};
use cortex_core::receipt::{Arm, Candidate, Nominator, Receipt};
use cortex_core::trace::Trace;
use cortex_core::vector as quant;
use cortex_core::verify::{
    Evidence, Lookup, Options, Replay, Replayed, Report, StoredItem, verify,
};
use pgrx::prelude::*;
use pgrx::{JsonB, pg_sys};

use crate::chunk::key32;
use crate::db;
use crate::error::{Fault, Outcome, given};
use crate::retrieve::{self, QueryVector, Question, Ranked, When};
use crate::rights::{self, Namespace, Owner};
use crate::rules::Rules;
use crate::subxact;

/// Longest trace that is looked at, in bytes; core refuses the same.
const MAX_TRACE: usize = 8 << 20;

/// Verifies a stored trace: its roots, its evidence against the stored text, and its retrieval replayed at the
/// recorded state. *Verified* means recorded, bound and replayable; it never means true. Every step says what
/// was expected and what was found; bad data gives a report, not an error.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
fn cortex_verify(
    trace_id: Option<i64>,
    question: default!(Option<&str>, "NULL"),
    exhaustive: default!(Option<bool>, false),
) -> Outcome<JsonB> {
    let trace_id = given(trace_id, "trace_id")?;
    let exhaustive = given(exhaustive, "exhaustive")?;
    let owner = Owner::enter()?;
    let (namespace, body) = stored(&owner, trace_id)?;
    Ok(report(&body, question, exhaustive, Some(namespace))?)
}

/// Verifies the text of a trace, as stored or as handed on. Beyond its roots it is checked against this
/// database where the caller may read the namespace that it names.
#[pg_extern(stable, parallel_restricted, name = "cortex_verify", requires = ["tables"])]
fn cortex_verify_text(
    trace: Option<&str>,
    question: default!(Option<&str>, "NULL"),
    exhaustive: default!(Option<bool>, false),
) -> Outcome<JsonB> {
    let trace = given(trace, "trace")?;
    let exhaustive = given(exhaustive, "exhaustive")?;
    let owner = Owner::enter()?;
    let named = if trace.len() <= MAX_TRACE {
        Trace::from_text(trace).ok().map(|trace| trace.namespace)
    } else {
        None
    };
    let namespace = named.and_then(|name| rights::readable(&name, owner.caller()).ok());
    Ok(report(trace, question, exhaustive, namespace)?)
}

/// The canonical text of a stored trace: what `cortex_verify(text)` and the verifiers outside take.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
fn cortex_trace(trace_id: i64) -> Outcome<String> {
    let owner = Owner::enter()?;
    Ok(stored(&owner, trace_id)?.1)
}

fn stored(owner: &Owner, trace_id: i64) -> Result<(Namespace, String), Fault> {
    let unknown = || {
        Fault::unknown(format!("there is no trace {trace_id} that you may read"))
            .hint("List yours in view cortex.traces.")
    };
    // A trace names the rows it used, so it is its asker's: another role may not see them.
    let found = db::read_one(
        "SELECT n.name, t.body FROM cortex.trace t JOIN cortex.namespace n ON n.id = t.namespace_id \
          WHERE t.id = $1 AND EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = $2 \
                AND (r.rolsuper OR EXISTS (SELECT FROM pg_catalog.pg_roles a WHERE a.rolname = t.asked_by \
                                              AND pg_catalog.pg_has_role(r.oid, a.oid, 'usage'))))",
        &[trace_id.into(), owner.caller().into()],
        |row| Ok((row.must::<String>(1)?, row.must::<String>(2)?)),
    )?;
    let (name, body) = found.ok_or_else(unknown)?;
    let namespace = rights::readable(&name, owner.caller()).map_err(|_| unknown())?;
    Ok((namespace, body))
}

fn report(
    body: &str,
    question: Option<&str>,
    exhaustive: bool,
    namespace: Option<Namespace>,
) -> Result<JsonB, Fault> {
    let report = run(body, question, exhaustive, namespace)?;
    let value = serde_json::to_value(&report)
        .map_err(|error| Fault::internal(format!("report: {error}")))?;
    Ok(JsonB(value))
}

/// The report on the text of a trace, against this database where a namespace is given.
fn run(
    body: &str,
    question: Option<&str>,
    exhaustive: bool,
    namespace: Option<Namespace>,
) -> Result<Report, Fault> {
    let options = Options {
        question,
        question_salt: None,
        exhaustive,
    };
    let mut store = namespace.map(Store::new);
    let report = verify(
        body,
        &options,
        store.as_mut().map(|store| store as &mut dyn Evidence),
    );
    match store.and_then(|store| store.interruption) {
        Some(interruption) => Err(interruption),
        None => Ok(report),
    }
}

/// This database as the verifier's store. What fails while it is asked becomes a failed step of the report, be it
/// an error of the server over a value that nobody should have been able to store.
struct Store {
    namespace: Namespace,
    /// A cancel or the like, which is no answer about the trace.
    interruption: Option<Fault>,
}

impl Evidence for Store {
    fn text(&mut self, commitment: &Hash) -> Result<Lookup<SaltedText>, String> {
        self.guarded(|store| store.committed(commitment))
    }

    fn item(&mut self, target: Target, id: i64) -> Result<Lookup<StoredItem>, String> {
        self.guarded(|store| {
            let found = stored_items(&store.namespace, target, &[id])?;
            Ok(found
                .into_iter()
                .next()
                .map_or(Lookup::Missing, |(_, kept)| Lookup::Found(kept.item)))
        })
    }

    fn replay(&mut self, receipt: &Receipt, query: &str) -> Result<Replay, String> {
        self.guarded(|store| store.rerun(receipt, query, false).map(Replay::Done))
    }

    fn scan(&mut self, receipt: &Receipt, query: &str) -> Result<Replay, String> {
        self.guarded(|store| store.rerun(receipt, query, true).map(Replay::Done))
    }
}

impl Store {
    fn new(namespace: Namespace) -> Self {
        Store {
            namespace,
            interruption: None,
        }
    }

    fn guarded<T>(&mut self, work: impl FnOnce(&Self) -> Result<T, Fault>) -> Result<T, String> {
        // A subtransaction cannot begin in parallel mode; there an error of the server goes through.
        // SAFETY: reads a backend variable.
        let result = match unsafe { pg_sys::IsInParallelMode() } {
            true => work(self),
            false => subxact::guarded(|| work(self)),
        };
        result.map_err(|fault| {
            let told = fault.message().to_owned();
            if fault.concerns_the_caller() {
                self.interruption = Some(fault);
            }
            told
        })
    }

    fn committed(&self, commitment: &Hash) -> Result<Lookup<SaltedText>, Fault> {
        let found = db::read_one(
            "SELECT salt, body FROM cortex.trace_text WHERE namespace_id = $1 AND commitment = $2",
            &[self.namespace.id.into(), commitment.0.to_vec().into()],
            |row| {
                Ok(SaltedText {
                    salt: Salt(key32(row.must::<Vec<u8>>(1)?)?),
                    text: row.must(2)?,
                })
            },
        )?;
        Ok(found.map_or(Lookup::Missing, Lookup::Found))
    }

    fn rerun(&self, receipt: &Receipt, query: &str, scan: bool) -> Result<Replayed, Fault> {
        let vector = query_vector(receipt)?;
        let question = Question {
            namespace: &self.namespace,
            rules: Rules::of(receipt)?,
            target: receipt.target,
            query,
            lexical: receipt.arms.contains(&Arm::Lexical),
            vector: vector.as_ref(),
            when: When::At(&receipt.state),
            barred: &receipt.barred,
            depth: receipt.params.depth,
            nominees: (receipt.nominator == Nominator::Approximate && !scan)
                .then_some(receipt.nominees.as_slice()),
        };
        let found = retrieve::search(&question)?;
        let considered = (receipt.params.k as usize).min(found.ranked.len());
        let top = &found.ranked[..considered];
        let ids: Vec<i64> = top.iter().map(|ranked| ranked.item).collect();
        let stored = stored_items(&self.namespace, receipt.target, &ids)?;
        let candidates: Result<Vec<Candidate>, Fault> = top
            .iter()
            .map(|ranked| recomputed(receipt, ranked, stored.get(&ranked.item)))
            .collect();
        Ok(Replayed {
            candidates: candidates?,
            stats: found.stats,
            total_matched: found.matched.max(considered as u64),
        })
    }
}

/// A replayed candidate. Its leaf is recomputed from the stored text, and the one kept beside the text must be
/// the same: where one of them is not what was recorded, that one is found.
fn recomputed(
    receipt: &Receipt,
    ranked: &Ranked,
    stored: Option<&Kept>,
) -> Result<Candidate, Fault> {
    let Some(Kept { item: stored, leaf }) = stored else {
        return Err(Fault::internal(format!(
            "item {} is in the index and not stored",
            ranked.item
        )));
    };
    let kept = Hash(key32(leaf.clone())?);
    let leaf = Leaf {
        kind: receipt.target,
        item: ranked.item,
        artifact: &stored.artifact,
        version: stored.version,
        content: stored.content,
        start: stored.start,
        end: stored.end,
    };
    let computed = leaf
        .hash(&stored.source_key, &stored.text)
        .map_err(|error| Fault::internal(error.to_string()))?;
    let recorded = receipt
        .candidates
        .iter()
        .find(|candidate| candidate.item == ranked.item)
        .map(|candidate| candidate.leaf);
    let leaf = if recorded == Some(computed) {
        kept
    } else {
        computed
    };
    Ok(Candidate {
        item: ranked.item,
        artifact: stored.artifact.clone(),
        version: stored.version,
        leaf,
        score: ranked.score,
        lexical_rank: ranked.lexical_rank,
        vector_rank: ranked.vector_rank,
        lexical: ranked.lexical,
        vector: ranked.vector,
    })
}

/// An item as it is stored, with the leaf that was kept beside it.
pub struct Kept {
    pub item: StoredItem,
    leaf: Vec<u8>,
}

/// Items of a namespace by id, whether their versions are current or not. Call it as the owner.
pub fn stored_items(
    namespace: &Namespace,
    target: Target,
    ids: &[i64],
) -> Result<std::collections::HashMap<i64, Kept>, Fault> {
    let sql = match target {
        Target::Chunk => {
            "SELECT i.id, i.body, s.hash_key, s.artifact_id, v.id, v.content_hash, i.start_byte, i.end_byte, i.leaf, d.equality \
               FROM cortex.chunk i JOIN cortex.source_version v ON v.id = i.version_id \
               LEFT JOIN cortex.document d ON d.version_id = v.id \
               JOIN cortex.source s ON s.id = v.source_id WHERE i.namespace_id = $1 AND i.id = ANY ($2)"
        }
        Target::Claim => {
            "SELECT i.id, i.body, s.hash_key, s.artifact_id, v.id, v.content_hash, i.start_bytes[1], i.end_bytes[1], i.leaf, d.equality \
               FROM cortex.claim i JOIN cortex.source_version v ON v.id = i.version_ids[1] \
               LEFT JOIN cortex.document d ON d.version_id = v.id \
               JOIN cortex.source s ON s.id = v.source_id WHERE i.namespace_id = $1 AND i.id = ANY ($2)"
        }
    };
    let rows = db::read(sql, &[namespace.id.into(), ids.to_vec().into()], |row| {
        let item = StoredItem {
            text: row.must(2)?,
            source_key: key32(row.must::<Vec<u8>>(3)?)?,
            artifact: row.must(4)?,
            version: row.must(5)?,
            content: Hash(key32(row.must::<Vec<u8>>(6)?)?),
            equality: match row.get::<Vec<u8>>(10) {
                Some(digest) => Some(Hash(key32(digest)?)),
                None => None,
            },
            start: row.must::<i32>(7)?.max(0) as u64,
            end: row.must::<i32>(8)?.max(0) as u64,
        };
        Ok((
            row.must::<i64>(1)?,
            Kept {
                item,
                leaf: row.must(9)?,
            },
        ))
    })?;
    Ok(rows.into_iter().collect())
}

fn query_vector(receipt: &Receipt) -> Result<Option<QueryVector>, Fault> {
    let (Some(space), Some(digits)) = (&receipt.space, &receipt.query_vector) else {
        return Ok(None);
    };
    let bytes: Option<Vec<u8>> = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    let components = bytes.and_then(|bytes| quant::from_le_bytes(&bytes).ok());
    let known = db::read_one(
        "SELECT s.id FROM cortex.space s WHERE s.id = $1 AND s.digest = $2 AND s.dims = $3",
        &[
            space.id.into(),
            space.digest.clone().into(),
            i64::from(space.dims).into(),
        ],
        |row| row.must::<i32>(1),
    )?;
    match (components, known) {
        (Some(components), Some(space)) => Ok(Some(QueryVector { space, components })),
        _ => Err(Fault::state(format!(
            "this database has no embedding space {} with digest {}",
            space.id, space.digest
        ))),
    }
}
