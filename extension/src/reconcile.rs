//! Comparing all rows of a binding with its versions, at once or a page at a time, and releasing its holds.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use serde_json::{Value, json};

use crate::bind::wiring;
use crate::binding::{Binding, Stored, qualified};
use crate::db;
use crate::ddl::{Wired, quietly};
use crate::error::Fault;
use crate::hold;
use crate::kept::Access;
use crate::load;
use crate::lock::{self, Patience};
use crate::rights::{Owner, Rendering};
use crate::subxact::guarded;
use crate::touch::{self, Origin};
use crate::versions;

/// Compares everything in this transaction, under a lock that keeps writers out, and releases the holds.
/// Call it as [`Owner`] in READ COMMITTED.
pub fn now(binding_id: i32) -> Result<Value, Fault> {
    let _rendering = Rendering::pin()?;
    let stored = ready(binding_id, Patience::Caller)?;
    let (namespace_id, name) = (stored.namespace_id, stored.name.clone());
    let written = versions::touch(
        &Binding::resolve(stored)?,
        Origin::Everything,
        Access::Planned,
        None,
    )?;
    let released = hold::release(
        namespace_id,
        binding_id,
        &["paused", "fault", "needs_reconcile"],
    )?;
    cancel(binding_id)?;
    requeue(binding_id)?;
    Ok(
        json!({"binding": name, "versions_opened": written.opened, "versions_closed": written.closed, "holds_released": released}),
    )
}

/// Locks the table, so that every writer so far has ended, and puts columns and triggers right. From the end of
/// this transaction on, the triggers miss nothing.
fn ready(binding_id: i32, patience: Patience) -> Result<Stored, Fault> {
    let mut binding = wired(binding_id)?;
    lock::table(&qualified(binding.stored.relation)?, patience)?;
    binding = wired(binding_id)?; // as it is now that nobody can change it
    binding.follow_renames()?;
    let now = binding.compare()?;
    quietly(|| {
        wiring::remove(binding_id, &strangers(&binding)?)?;
        wiring::install(binding_id, binding.stored.relation)
    })?;
    binding.record(&now, true)?;
    Stored::by_id(binding_id)?.ok_or_else(|| missing(binding_id))
}

/// Tables that carry our triggers and are no part of the bound table any more.
fn strangers(binding: &Wired) -> Result<Vec<pgrx::pg_sys::Oid>, Fault> {
    let members = wiring::tree(binding.stored.relation)?;
    Ok(wiring::wired(binding.stored.id)?
        .into_iter()
        .filter(|table| !members.contains(table))
        .collect())
}

fn wired(binding_id: i32) -> Result<Wired, Fault> {
    Wired::where_("b.id = $1", &[binding_id.into()])?
        .into_iter()
        .next()
        .ok_or_else(|| missing(binding_id))
}

fn missing(binding_id: i32) -> Fault {
    Fault::state(format!("binding {binding_id} has no table"))
        .hint("Bind a table under its name with cortex_bind.")
}

/// Orders a `load` or `reconcile` job for the binding, or finds the one that is waiting.
pub fn order(namespace_id: i32, binding_id: i32, kind: &str) -> Result<i64, Fault> {
    let waiting = db::write_one(
        "SELECT id FROM cortex.job WHERE kind = $2 AND state = 'ready' AND payload = $1 LIMIT 1",
        &[
            pgrx::JsonB(json!({"binding": binding_id})).into(),
            kind.into(),
        ],
        |row| row.must(1),
    )?;
    if let Some(id) = waiting {
        return Ok(id);
    }
    db::write_one(
        "INSERT INTO cortex.job (namespace_id, kind, payload) VALUES ($1, $2, $3) RETURNING id",
        &[
            namespace_id.into(),
            kind.into(),
            pgrx::JsonB(json!({"binding": binding_id})).into(),
        ],
        |row| row.must(1),
    )?
    .ok_or_else(|| Fault::internal("a job was not made".into()))
}

/// Orders the chunking of what was left out while the binding was held.
pub fn requeue(binding_id: i32) -> Result<(), Fault> {
    db::execute("SELECT cortex._chunk_requeue($1)", &[binding_id.into()])?;
    Ok(())
}

/// Takes back jobs that a comparison of everything makes needless: reconcile jobs, and dead loads.
pub fn cancel(binding_id: i32) -> Result<(), Fault> {
    db::execute(
        "DELETE FROM cortex.job WHERE (kind = 'reconcile' AND state IN ('ready', 'dead') OR kind = 'load' AND state = 'dead') \
            AND (payload ->> 'binding')::pg_catalog.int4 = $1",
        &[binding_id.into()],
    )?;
    Ok(())
}

/// What one step of a reconcile job did.
pub struct Step {
    /// Rows or sources compared.
    pub rows: i32,
    /// The job's next payload; `None` when the binding is reconciled.
    pub next: Option<Value>,
}

#[pg_extern(sql = r#"
CREATE FUNCTION cortex._reconcile_batch(payload jsonb, batch integer) RETURNS TABLE ("rows" integer, next jsonb)
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn reconcile_batch(
    payload: pgrx::JsonB,
    batch_rows: i32,
) -> Result<TableIterator<'static, (name!(rows, i32), name!(next, Option<pgrx::JsonB>))>, ErrorReport>
{
    let _owner = Owner::enter()?;
    let _rendering = Rendering::pin()?;
    let step = batch(&payload.0, batch_rows)?;
    Ok(TableIterator::once((step.rows, step.next.map(pgrx::JsonB))))
}

/// One step of a reconcile job, whose payload carries where it stands:
/// `{"binding"}`, then `{"binding", "hold", "after"}` over the rows, then `{"binding", "hold", "source"}` over the
/// sources. Steps are transactions of their own; a step done twice changes nothing.
///
/// The first one waits for the writers so far (see [`ready`]) and puts one hold in the place of those that are
/// open, so that a fault of a later writer makes a hold of its own, which stays.
///
/// Call it as [`Owner`] with [`Rendering`] pinned, in READ COMMITTED.
pub fn batch(payload: &Value, limit: i32) -> Result<Step, Fault> {
    let binding_id = payload["binding"]
        .as_i64()
        .and_then(|id| i32::try_from(id).ok())
        .ok_or_else(|| Fault::argument("a reconcile job needs {\"binding\": id}".into()))?;
    let done = Ok(Step {
        rows: 0,
        next: None,
    });
    let Some(stored) = Stored::by_id(binding_id)? else {
        return done;
    };
    if stored.silent {
        return done; // resuming or binding again compares everything
    }
    let Some(hold_id) = payload["hold"].as_i64() else {
        let stored = ready(binding_id, Patience::Worker)?;
        hold::release(
            stored.namespace_id,
            binding_id,
            &["fault", "needs_reconcile"],
        )?;
        let hold_id = hold::open(
            stored.namespace_id,
            binding_id,
            "needs_reconcile",
            Some("the rows are being compared"),
        )?;
        let next = json!({"binding": binding_id, "hold": hold_id, "after": null});
        return Ok(Step {
            rows: 0,
            next: Some(next),
        });
    };
    if let Some(source) = payload["source"].as_i64() {
        return sources(stored, hold_id, source, limit);
    }
    let after = payload["after"].as_array().map(|key| {
        key.iter()
            .map(|text| text.as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    });
    let limit = limit.clamp(1, load::MOST_ROWS);
    let page = load::batch(binding_id, after.as_deref(), limit)?;
    let next = match page.last {
        Some(last) if page.rows == limit => {
            json!({"binding": binding_id, "hold": hold_id, "after": last})
        }
        _ => json!({"binding": binding_id, "hold": hold_id, "source": 0}),
    };
    Ok(Step {
        rows: page.rows,
        next: Some(next),
    })
}

/// Closes versions of sources whose rows are gone, among the next `limit` sources; at the end releases the hold.
fn sources(stored: Stored, hold_id: i64, after: i64, limit: i32) -> Result<Step, Fault> {
    let limit = limit.clamp(1, load::MOST_ROWS);
    let (binding_id, namespace_id) = (stored.id, stored.namespace_id);
    let page = db::write(
        "SELECT s.id, s.artifact_id, s.key FROM cortex.source s \
           JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL \
          WHERE s.binding_id = $1 AND s.id > $2 ORDER BY s.id LIMIT $3",
        &[binding_id.into(), after.into(), limit.into()],
        |row| {
            Ok(Known {
                id: row.must(1)?,
                artifact: row.must(2)?,
                key: row.must(3)?,
            })
        },
    )?;
    let Some(last) = page.last().map(|known| known.id) else {
        hold::release_one(namespace_id, hold_id)?;
        requeue(binding_id)?;
        return Ok(Step {
            rows: 0,
            next: None,
        });
    };
    let binding = Binding::resolve(stored)?;
    match guarded(|| gone(&binding, &page)) {
        Ok(gone) if gone.is_empty() => {}
        // A row of the same key that another transaction is inserting would find the version current and keep
        // it; wait for such transactions, then look again.
        Ok(_) => {
            lock::table(&qualified(binding.stored.relation)?, Patience::Worker)?;
            let gone = gone(&binding, &page)?;
            db::execute(
                "UPDATE cortex.source_version SET closed_by = (SELECT cortex._change_id($1)) \
                  WHERE source_id = ANY ($2) AND closed_by IS NULL",
                &[namespace_id.into(), gone.into()],
            )?;
        }
        Err(fault) if fault.concerns_the_caller() => return Err(fault),
        // Keys of old sources need not be values of the key's present type. Compare artifact ids instead, all at
        // once, since each comparison reads the whole table.
        Err(_) => {
            lock::table(&qualified(binding.stored.relation)?, Patience::Worker)?;
            versions::touch(&binding, Origin::Gone, Access::Planned, None)?;
        }
    }
    let next = json!({"binding": binding_id, "hold": hold_id, "source": last});
    Ok(Step {
        rows: page.len() as i32,
        next: Some(next),
    })
}

/// A source that has a current version.
struct Known {
    id: i64,
    artifact: String,
    key: Vec<String>,
}

/// Those of the sources that no row of the table has the artifact id of.
fn gone(binding: &Binding, page: &[Known]) -> Result<Vec<i64>, Fault> {
    let keys: Vec<Vec<String>> = page.iter().map(|known| known.key.clone()).collect();
    let sql = touch::rows(binding, &binding.keys(&keys)?);
    let present: std::collections::HashSet<String> = db::write(&sql, &[], |row| row.must(1))?
        .into_iter()
        .collect();
    Ok(page
        .iter()
        .filter(|known| !present.contains(&known.artifact))
        .map(|known| known.id)
        .collect())
}
