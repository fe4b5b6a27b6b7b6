//! `cortex_search`, which only reads, and `cortex_read_log`, which records a read.

use std::cell::RefCell;

use cortex_core::hash::{Context, Target, structure_hash};
use cortex_core::receipt::Receipt;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::ask::JsonText;
use crate::db;
use crate::error::{Fault, Outcome, given};
use crate::rights::{self, Owner};
use crate::serve::{self, Request, Unlike};
use crate::vector::VectorRef;

/// Most chunks one search returns.
const MAX_K: i32 = 1_000;

/// The best `k` chunks for a query that the caller may see, best first. Without `query_embedding` the lexical
/// arm answers alone. Quoted phrases of the query are conditions that every chunk meets. With
/// `leave_out_repeats`, a chunk that says almost the same as one before it gives its place to the next. Every row
/// carries the receipt of the retrieval, in which repeats are listed too.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
#[expect(clippy::type_complexity, reason = "the columns of the result")]
fn cortex_search(
    query: Option<&str>,
    query_embedding: default!(Option<VectorRef>, "NULL"),
    k: default!(Option<i32>, 10),
    namespace: default!(Option<&str>, "'default'"),
    mode: default!(Option<&str>, "'auto'"),
    leave_out_repeats: default!(Option<bool>, "false"),
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
    let leave_out_repeats = given(leave_out_repeats, "leave_out_repeats")?;
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
    let unlike = RefCell::new(Unlike::default());
    let served = serve::serve(&request, |shown| {
        let enough = shown.len() >= k as usize;
        enough && (!leave_out_repeats || unlike.borrow_mut().count(shown) >= k as usize)
    })?;
    let receipt = served.receipt_text()?;
    let mut items = served.items;
    if leave_out_repeats {
        items = unlike.into_inner().of(items);
        items.truncate(k as usize);
    }
    let rows = items.into_iter().zip(1..).map(move |(item, rank)| {
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

/// Records a read by its receipt; the same receipt twice is recorded once. Returns its number. With the read's
/// `details`, its events and counters are recorded too, once for each receipt.
#[pg_extern(volatile, requires = ["tables"])]
fn cortex_read_log(
    receipt: Option<&str>,
    details: default!(Option<JsonText>, "NULL"),
) -> Outcome<i64> {
    let receipt = given(receipt, "receipt")?;
    let parsed = Receipt::from_text(receipt).map_err(|error| {
        Fault::argument(format!("not a receipt: {error}"))
            .hint("Pass the receipt column of cortex_read or cortex_search.")
    })?;
    let root = structure_hash(Context::Receipt, &parsed)
        .map_err(|error| Fault::argument(error.to_string()))?;
    let owner = Owner::enter()?;
    let namespace = rights::readable(&parsed.namespace, owner.caller())?;
    let logged = db::write_one(
        "WITH made AS ( \
             INSERT INTO cortex.read_log (namespace_id, root, receipt, read_by) \
             VALUES ($1, $2, $3, (SELECT r.rolname FROM pg_catalog.pg_roles r WHERE r.oid = $4)) \
             ON CONFLICT ON CONSTRAINT read_log_root_key DO NOTHING RETURNING id) \
         SELECT id, true FROM made UNION ALL \
         SELECT id, false FROM cortex.read_log WHERE namespace_id = $1 AND root = $2 LIMIT 1",
        &[
            namespace.id.into(),
            root.0.to_vec().into(),
            receipt.into(),
            owner.caller().into(),
        ],
        |row| Ok((row.must::<i64>(1)?, row.must::<bool>(2)?)),
    )?;
    let (id, is_new) = logged.ok_or_else(|| {
        Fault::retry("the same receipt is being recorded by another session".into())
    })?;
    if let Some(details) = details {
        db::execute(
            "SELECT cortex._read_logged($1, $2, $3, $4::pg_catalog.jsonb)",
            &[
                namespace.id.into(),
                id.into(),
                is_new.into(),
                details.0.into(),
            ],
        )?;
    }
    Ok(id)
}
