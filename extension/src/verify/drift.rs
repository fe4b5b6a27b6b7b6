//! `cortex_drift`: how today differs from a trace's state.

use std::collections::BTreeMap;

use cortex_core::receipt::Arm;
use cortex_core::trace::{Reason, Round, Trace, rules};
use cortex_core::verify::Lookup;
use pgrx::JsonB;
use pgrx::prelude::*;
use serde_json::{Value, json};

use super::{Store, query_vector, stored};
use crate::db;
use crate::error::{Fault, Outcome};
use crate::retrieve::{self, Question, When};
use crate::rights::Owner;
use crate::rules::Rules;

/// How today differs from a trace's state: what became of each piece of evidence, and how the same retrieval
/// would come out now. Drift is no failure: the trace stays what it was.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
fn cortex_drift(trace_id: i64) -> Outcome<JsonB> {
    let owner = Owner::enter()?;
    let (namespace, body) = stored(&owner, trace_id)?;
    let trace = Trace::from_text(&body).map_err(|error| {
        Fault::state(format!("trace {trace_id} cannot be read: {error}"))
            .hint("Run cortex_verify to see where it breaks.")
    })?;
    let mut standing = Vec::with_capacity(trace.evidence.len());
    let mut fates: BTreeMap<String, u32> = BTreeMap::new();
    let evidence: Vec<Value> = trace
        .evidence
        .iter()
        .map(|item| {
            let (now, by, at) = fate(item.version)?;
            standing.push(now == "unchanged");
            *fates.entry(now.clone()).or_default() += 1;
            Ok(
                json!({"n": item.n, "artifact_id": item.artifact, "version_id": item.version,
                      "now": now, "superseded_by": by, "since": at}),
            )
        })
        .collect::<Result<_, Fault>>()?;
    let present = retrieve::present(namespace.id)?;
    let store = Store::new(namespace);
    let mut rounds = Vec::new();
    for round in &trace.rounds {
        rounds.push(compare(&store, round)?);
    }
    let changed = standing.iter().filter(|stands| !**stands).count();
    let count = |fate: &str| fates.get(fate).copied().unwrap_or(0);
    let (status, reason) = rules::status_without(&trace, &standing);
    Ok(JsonB(json!({
        "trace_id": trace_id,
        "recorded_seq": trace.state.seq,
        "present_seq": present.state.seq,
        "evidence_changed": changed,
        "unchanged": count("unchanged"),
        "superseded": count("superseded"),
        "closed": count("deleted"),
        "held": count("held"),
        "redacted": count("erased"),
        "status_was": trace.answer.status.as_str(),
        "status_would_be": status.as_str(),
        "reason_would_be": reason.map(Reason::as_str),
        "evidence": evidence,
        "rounds": rounds,
    })))
}

/// What became of a source version.
fn fate(version: i64) -> Result<(String, Option<i64>, Option<String>), Fault> {
    let found = db::read_one(
        "SELECT CASE WHEN v.closed_by IS NULL AND EXISTS (SELECT FROM cortex.hold h WHERE h.binding_id = s.binding_id AND h.released_by IS NULL) THEN 'held' \
                     WHEN v.closed_by IS NULL THEN 'unchanged' WHEN n.id IS NULL THEN 'deleted' ELSE 'superseded' END, \
                n.id, c.made_at::text \
           FROM cortex.source_version v JOIN cortex.source s ON s.id = v.source_id \
           LEFT JOIN cortex.change c ON c.id = v.closed_by \
           LEFT JOIN cortex.source_version n ON n.source_id = v.source_id AND n.closed_by IS NULL AND n.id <> v.id \
          WHERE v.id = $1",
        &[version.into()],
        |row| {
            Ok((
                row.must::<String>(1)?,
                row.get::<i64>(2),
                row.get::<String>(3),
            ))
        },
    )?;
    Ok(found.unwrap_or(("unknown".into(), None, None)))
}

/// The round's retrieval run at the present state, against what it gave then.
fn compare(store: &Store, round: &Round) -> Result<Value, Fault> {
    let (receipt, selected) = (&round.receipt, &round.selected);
    let Lookup::Found(query) = store.committed(&round.query)? else {
        return Ok(json!({"retrieval": "not compared: the query was erased"}));
    };
    let vector = query_vector(receipt)?;
    let question = Question {
        namespace: &store.namespace,
        rules: Rules::of(receipt)?,
        target: receipt.target,
        query: &query.text,
        lexical: receipt.arms.contains(&Arm::Lexical),
        vector: vector.as_ref(),
        when: When::Now,
        barred: &receipt.barred,
        depth: receipt.params.depth,
        nominees: None,
    };
    let found = retrieve::search(&question)?;
    let now: Vec<i64> = found
        .ranked
        .iter()
        .take(receipt.considered())
        .map(|ranked| ranked.item)
        .collect();
    let then: Vec<i64> = receipt
        .candidates
        .iter()
        .map(|candidate| candidate.item)
        .collect();
    let kept = then.iter().filter(|item| now.contains(item)).count();
    let entered = now.iter().filter(|item| !then.contains(item)).count();
    let place = |list: &[i64], item: i64| list.iter().position(|other| *other == item);
    let moved: Vec<Value> = then
        .iter()
        .zip(1..)
        .filter_map(|(item, then)| {
            let now = place(&now, *item)? + 1;
            (now != then).then(|| json!({"item": item, "then": then, "now": now}))
        })
        .collect();
    // Above the last of what was selected and is still found; where nothing is, anything new is above it.
    let last = selected.iter().filter_map(|item| place(&now, *item)).max();
    let above = now.iter().take(last.unwrap_or(now.len()));
    let above = above.filter(|item| !then.contains(item)).count();
    Ok(json!({
        "candidates_then": then.len(),
        "still_found": kept,
        "left": then.len() - kept,
        "entered": entered,
        "same_order": now == then,
        "rank_changed": moved,
        "new_above": above,
    }))
}
