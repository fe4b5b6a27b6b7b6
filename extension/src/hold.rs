//! Holds: while one is open, no version of its binding is current.

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::db;
use crate::error::Fault;
use crate::kept::{Access, Kept};
use crate::reconcile;
use crate::sources::change_id;

/// Records that a trigger could not follow a change, once until the binding is reconciled, and orders that.
/// Answers with the binding's name if this is news. All calls of this module need the rights of the schema's owner.
///
/// Relying on a hold that is open already is safe: faults are released under a lock that waits for every
/// transaction that has written to the table.
pub fn open_fault(binding_id: i32, message: &str) -> Result<Option<String>, Fault> {
    let insert = Kept::prepare(
        "INSERT INTO cortex.hold (binding_id, reason, detail, opened_by) \
         SELECT b.id, 'fault', $2, cortex._change_id(b.namespace_id) FROM cortex.binding b \
          WHERE b.id = $1 AND NOT EXISTS (SELECT FROM cortex.hold h WHERE h.binding_id = b.id \
                                          AND h.reason = 'fault' AND h.released_by IS NULL) \
         RETURNING (SELECT b.name FROM cortex.binding b WHERE b.id = $1), \
                   (SELECT b.namespace_id FROM cortex.binding b WHERE b.id = $1)",
        &[pg_sys::INT4OID, pg_sys::TEXTOID],
        Access::Index,
        None,
    )?;
    let opened = insert.write_one(&[binding_id.into_datum(), message.into_datum()], |row| {
        Ok((row.must::<String>(1)?, row.must::<i32>(2)?))
    })?;
    let Some((name, namespace_id)) = opened else {
        return Ok(None);
    };
    reconcile::order(namespace_id, binding_id, "reconcile")?;
    Ok(Some(name))
}

/// Opens a hold and answers with its id.
pub fn open(
    namespace_id: i32,
    binding_id: i32,
    reason: &str,
    detail: Option<&str>,
) -> Result<i64, Fault> {
    let change = change_id(namespace_id)?;
    db::write_one(
        "INSERT INTO cortex.hold (binding_id, reason, detail, opened_by) VALUES ($1, $2, $3, $4) RETURNING id",
        &[binding_id.into(), reason.into(), detail.into(), change.into()],
        |row| row.must(1),
    )?
    .ok_or_else(|| Fault::internal("a hold was not made".into()))
}

/// Releases the open holds of these reasons and answers how many there were.
pub fn release(namespace_id: i32, binding_id: i32, reasons: &[&str]) -> Result<u64, Fault> {
    let reasons: Vec<String> = reasons.iter().map(|reason| (*reason).to_owned()).collect();
    db::execute(
        "UPDATE cortex.hold SET released_by = (SELECT cortex._change_id($1)) \
          WHERE binding_id = $2 AND released_by IS NULL AND reason = ANY ($3)",
        &[namespace_id.into(), binding_id.into(), reasons.into()],
    )
}

/// Releases one hold, unless it is released already.
pub fn release_one(namespace_id: i32, hold_id: i64) -> Result<bool, Fault> {
    let released = db::execute(
        "UPDATE cortex.hold SET released_by = (SELECT cortex._change_id($1)) WHERE id = $2 AND released_by IS NULL",
        &[namespace_id.into(), hold_id.into()],
    )?;
    Ok(released > 0)
}

/// Whether a hold of this reason is open.
pub fn is_open(binding_id: i32, reason: &str) -> Result<bool, Fault> {
    let open = db::write_one(
        "SELECT EXISTS (SELECT FROM cortex.hold WHERE binding_id = $1 AND reason = $2 AND released_by IS NULL)",
        &[binding_id.into(), reason.into()],
        |row| row.must(1),
    )?;
    Ok(open.unwrap_or(false))
}
