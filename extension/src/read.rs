//! `cortex_search` and `cortex_read`: reads that only read.

use cortex_core::hash::{Context, Target, structure_hash};
use cortex_core::pack::{PackItem, Packed, pack};
use cortex_core::receipt::Receipt;
use cortex_core::tokens;
use pgrx::JsonB;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use serde_json::{Value, json};

use crate::db;
use crate::error::{Fault, Outcome, given};
use crate::rights::{self, Owner};
use crate::serve::{self, Item, Request, Served};
use crate::vector::VectorRef;

/// Most chunks one search returns.
const MAX_K: i32 = 1_000;
/// Largest budget of a read, in tokens.
const MAX_BUDGET: i32 = 1_000_000;

/// The best `k` chunks for a query that the caller may see, best first. Without `query_embedding` the lexical
/// arm answers alone. Every row carries the receipt of the retrieval.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
#[expect(clippy::type_complexity, reason = "the columns of the result")]
fn cortex_search(
    query: Option<&str>,
    query_embedding: default!(Option<VectorRef>, "NULL"),
    k: default!(Option<i32>, 10),
    namespace: default!(Option<&str>, "'default'"),
    mode: default!(Option<&str>, "'auto'"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(rank, i32),
            name!(item_id, i64),
            name!(artifact_id, String),
            name!(version_id, i64),
            name!(start_byte, i32),
            name!(end_byte, i32),
            name!(score, i64),
            name!(title, Option<String>),
            name!(origin, Option<String>),
            name!(dated, Option<String>),
            name!(body, String),
            name!(receipt, Option<String>),
        ),
    >,
    ErrorReport,
> {
    let query = given(query, "query")?;
    let k = given(k, "k")?;
    let namespace = given(namespace, "namespace")?;
    let mode = given(mode, "mode")?;
    if !(1..=MAX_K).contains(&k) {
        return Err(Fault::argument(format!("k = {k} is outside 1 to {MAX_K}")).into());
    }
    let request = Request {
        query,
        embedding: query_embedding.as_ref(),
        namespace,
        mode,
        target: Target::Chunk,
    };
    let served = serve::serve(&request, |shown| shown.len() >= k as usize)?;
    let receipt = served.receipt_text()?;
    let rows = served.items.into_iter().zip(1..).map(move |(item, rank)| {
        (
            rank,
            item.ranked.item,
            item.artifact_id,
            item.version_id,
            item.start_byte,
            item.end_byte,
            item.ranked.score,
            item.title,
            item.origin,
            item.dated,
            item.body,
            receipt.clone(),
        )
    });
    Ok(TableIterator::new(rows))
}

/// One context of ranked, fresh claims under `budget_tokens`, each under the header of its source.
///
/// `claims` lists what the payload holds, with provenance; `pending` counts sources not yet reachable and
/// `wanted` says what would make them so; `next_needs` is the budget that would serve one claim more.
/// `uncommitted` says that the calling transaction has changed the namespace: nobody else can replay what it sees.
/// `receipt` is NULL while more changes wait for a number than a state may list.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
#[expect(clippy::type_complexity, reason = "the columns of the result")]
fn cortex_read(
    query: Option<&str>,
    query_embedding: default!(Option<VectorRef>, "NULL"),
    budget_tokens: default!(Option<i32>, 1000),
    namespace: default!(Option<&str>, "'default'"),
    mode: default!(Option<&str>, "'auto'"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(payload, String),
            name!(tokens, i32),
            name!(claims, JsonB),
            name!(arms, String),
            name!(pending, i64),
            name!(wanted, JsonB),
            name!(next_needs, Option<i32>),
            name!(receipt, Option<String>),
            name!(uncommitted, bool),
        ),
    >,
    ErrorReport,
> {
    let query = given(query, "query")?;
    let budget_tokens = given(budget_tokens, "budget_tokens")?;
    let namespace = given(namespace, "namespace")?;
    let mode = given(mode, "mode")?;
    if !(1..=MAX_BUDGET).contains(&budget_tokens) {
        return Err(Fault::argument(format!(
            "budget_tokens = {budget_tokens} is outside 1 to {MAX_BUDGET}"
        ))
        .hint("A claim with its header needs about 40 tokens.")
        .into());
    }
    let budget = budget_tokens as u32;
    let request = Request {
        query,
        embedding: query_embedding.as_ref(),
        namespace,
        mode,
        target: Target::Claim,
    };
    // Packing stops at the first claim that does not fit, and the walk with it. The sum is a cheap lower bound
    // that keeps the packing from being tried after every claim.
    let served = serve::serve(&request, |shown| {
        let least: u64 = shown
            .iter()
            .map(|item| u64::from(tokens::estimate(&item.body)))
            .sum();
        least > u64::from(budget)
            && packed(shown, budget).is_ok_and(|packed| packed.next_needs.is_some())
    })?;
    let packed = packed(&served.items, budget)?;
    let claims: Vec<Value> = packed
        .served
        .iter()
        .filter_map(|id| served.items.iter().find(|item| item.ranked.item == *id))
        .map(claim_json)
        .collect();
    let wanted = wanted(served.namespace.id)?;
    let pending = wanted.iter().map(|(_, count)| count).sum();
    let wanted = wanted
        .into_iter()
        .map(|(kind, count)| json!({"kind": kind, "count": count}))
        .collect();
    Ok(TableIterator::once((
        packed.payload,
        packed.tokens as i32,
        JsonB(Value::Array(claims)),
        arms(&served),
        pending,
        JsonB(Value::Array(wanted)),
        packed.next_needs.map(|next| next.budget_tokens as i32),
        served.receipt_text()?,
        served.present.uncommitted,
    )))
}

fn packed(items: &[Item], budget: u32) -> Result<Packed, Fault> {
    let items: Vec<PackItem> = items
        .iter()
        .map(|item| PackItem {
            item: item.ranked.item,
            source: &item.artifact_id,
            title: item.title.as_deref().unwrap_or(""),
            origin: item.origin.as_deref().unwrap_or(""),
            date: item.dated.as_deref().unwrap_or(""),
            text: &item.body,
        })
        .collect();
    pack(&items, budget).map_err(|error| Fault::argument(error.to_string()))
}

fn claim_json(item: &Item) -> Value {
    json!({
        "claim_id": item.ranked.item,
        "artifact_id": item.artifact_id,
        "version_id": item.version_id,
        "start_byte": item.start_byte,
        "end_byte": item.end_byte,
        "score": item.ranked.score,
        "body": item.body,
    })
}

fn arms(served: &Served) -> String {
    serve::arms_text(&served.arms)
}

/// Sources that wait to become reachable, by the kind of work that makes them so.
fn wanted(namespace: i32) -> Result<Vec<(String, i64)>, Fault> {
    let _owner = Owner::enter()?;
    db::read(
        "SELECT j.kind, sum(greatest(coalesce(j.total, 0) - j.progress, 1))::int8 FROM cortex.job j \
          WHERE j.namespace_id = $1 AND j.state <> 'dead' GROUP BY j.kind ORDER BY j.kind",
        &[namespace.into()],
        |row| Ok((row.must::<String>(1)?, row.must::<i64>(2)?)),
    )
}

/// Records a read by its receipt; the same receipt twice is recorded once. Returns its number.
#[pg_extern(volatile, requires = ["tables"])]
fn cortex_read_log(receipt: &str) -> Outcome<i64> {
    let parsed = Receipt::from_text(receipt).map_err(|error| {
        Fault::argument(format!("not a receipt: {error}"))
            .hint("Pass the receipt column of cortex_read or cortex_search.")
    })?;
    let root = structure_hash(Context::Receipt, &parsed)
        .map_err(|error| Fault::argument(error.to_string()))?;
    let owner = Owner::enter()?;
    let namespace = rights::readable(&parsed.namespace, owner.caller())?;
    let id = db::write_one(
        "WITH made AS ( \
             INSERT INTO cortex.read_log (namespace_id, root, receipt, read_by) \
             VALUES ($1, $2, $3, (SELECT r.rolname FROM pg_catalog.pg_roles r WHERE r.oid = $4)) \
             ON CONFLICT ON CONSTRAINT read_log_root_key DO NOTHING RETURNING id) \
         SELECT id FROM made UNION ALL \
         SELECT id FROM cortex.read_log WHERE namespace_id = $1 AND root = $2 LIMIT 1",
        &[
            namespace.id.into(),
            root.0.to_vec().into(),
            receipt.into(),
            owner.caller().into(),
        ],
        |row| row.must::<i64>(1),
    )?;
    Ok(id.ok_or_else(|| {
        Fault::retry("the same receipt is being recorded by another session".into())
    })?)
}
