//! Sources and their versions: what the change statement calls, and single sources that are not rows.

use std::cell::RefCell;
use std::collections::HashMap;
use std::thread::LocalKey;

use cortex_core::hash::{self, Key};
use pgrx::prelude::*;
use pgrx::{VariadicArray, pg_sys};

use crate::db;
use crate::error::{Fault, Outcome};
use crate::kept::{self, Slot};
use crate::lookup;

/// The keyed hash of a content: one text for each column, NULL apart from empty.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._content_hash(hash_key bytea, VARIADIC "values" text[]) RETURNS bytea
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn content_hash(hash_key: &[u8], values: VariadicArray<'_, &str>) -> Outcome<Vec<u8>> {
    let key = source_key(hash_key)?;
    let values: Vec<Option<&str>> = values.iter().collect();
    Ok(hash::content_hash(&key, &values).0.to_vec())
}

/// 32 bytes that nobody can guess.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._random_key() RETURNS bytea
    LANGUAGE c VOLATILE STRICT PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn make_key() -> Outcome<Vec<u8>> {
    Ok(random_key()?.to_vec())
}

/// The change row of this transaction in a namespace, made if there is none yet.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._change_id(namespace_id integer) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn change_of(namespace_id: i32) -> Outcome<i64> {
    Ok(change_id(namespace_id)?)
}

/// See [`change_of`]. Needs the rights of the schema's owner.
///
/// A backend remembers the row that it used last in each namespace, but the table decides: a savepoint that was rolled
/// back has taken the row with it, and `cortex_work()` numbers its own changes. Then the row is looked for. It is not
/// where this transaction remembers none: no other backend makes one for it.
pub fn change_id(namespace_id: i32) -> Result<i64, Fault> {
    thread_local! {
        static USED: RefCell<(u64, HashMap<i32, i64>)> = RefCell::default();
        static FIND: Slot = const { Slot::new() };
        static MAKE: Slot = const { Slot::new() };
    }
    // SAFETY: assigns the transaction's id if it has none; a row is about to be written anyway.
    let transaction = unsafe { pg_sys::GetTopFullTransactionId() }.value;
    let used = USED.with_borrow(|(of, ids)| {
        (*of == transaction)
            .then(|| ids.get(&namespace_id).copied())
            .flatten()
    });
    if let Some(id) = used
        && lookup::unsealed_change(id)
    {
        return Ok(id);
    }
    let arguments = [namespace_id.into_datum(), cluster().into_datum()];
    let find = || {
        let find = kept::kept(
            &FIND,
            "SELECT id FROM cortex.change \
             WHERE namespace_id = $1 AND xact = pg_catalog.pg_current_xact_id() AND cluster = $2 AND seq IS NULL",
            &[pg_sys::INT4OID, pg_sys::INT8OID],
        )?;
        find.write_one(&arguments, |row| row.must::<i64>(1))
    };
    let found = if used.is_some() { find()? } else { None };
    let id = match found {
        Some(id) => id,
        None => make_change(&MAKE, &arguments)?,
    };
    USED.with_borrow_mut(|(of, ids)| {
        if *of != transaction {
            ids.clear();
            *of = transaction;
        }
        ids.insert(namespace_id, id);
    });
    Ok(id)
}

fn make_change(
    slot: &'static LocalKey<Slot>,
    arguments: &[Option<pg_sys::Datum>],
) -> Result<i64, Fault> {
    let make = kept::kept(
        slot,
        "INSERT INTO cortex.change (namespace_id, xact, cluster, after_version) \
         VALUES ($1, pg_catalog.pg_current_xact_id(), $2, COALESCE( \
                pg_catalog.pg_sequence_last_value('cortex.source_version_id_seq'::pg_catalog.regclass), 0)) \
         RETURNING id",
        &[pg_sys::INT4OID, pg_sys::INT8OID],
    )?;
    make.write_one(arguments, |row| row.must::<i64>(1))?
        .ok_or_else(|| Fault::internal("a change row was not made".into()))
}

/// Identifies this cluster: transaction ids mean nothing in another.
pub fn cluster() -> i64 {
    // SAFETY: reads a value of the control file that the server keeps in shared memory.
    (unsafe { pg_sys::GetSystemIdentifier() }) as i64
}

/// Makes `content` the current version of a source that is not a row, and makes the source if it is new.
/// Answers with the version and whether it is a new one: the same content twice changes nothing.
///
/// Callers at once for the same source wait for one another. Needs the rights of the schema's owner.
pub fn open_version(
    namespace_id: i32,
    artifact_id: &str,
    content: &[Option<&str>],
) -> Result<(i64, bool), Fault> {
    db::execute(
        "INSERT INTO cortex.source (namespace_id, artifact_id, hash_key) VALUES ($1, $2, $3) \
         ON CONFLICT ON CONSTRAINT source_artifact_key DO NOTHING",
        &[
            namespace_id.into(),
            artifact_id.into(),
            random_key()?.to_vec().into(),
        ],
    )?;
    let (source_id, key) = locked(namespace_id, artifact_id)?.ok_or_else(|| {
        Fault::retry(format!(
            "source \"{artifact_id}\" is being made by another transaction"
        ))
    })?;
    let new_hash = hash::content_hash(&source_key(&key)?, content).0.to_vec();
    let current = db::write_one(
        "SELECT id, content_hash FROM cortex.source_version WHERE source_id = $1 AND closed_by IS NULL",
        &[source_id.into()],
        |row| Ok((row.must::<i64>(1)?, row.must::<Vec<u8>>(2)?)),
    )?;
    if let Some((version_id, old_hash)) = current {
        if old_hash == new_hash {
            return Ok((version_id, false));
        }
        close_version(namespace_id, version_id)?;
    }
    let change = change_id(namespace_id)?;
    let opened = db::write_one(
        "INSERT INTO cortex.source_version (source_id, content_hash, opened_by) VALUES ($1, $2, $3) RETURNING id",
        &[source_id.into(), new_hash.into(), change.into()],
        |row| row.must::<i64>(1),
    )?;
    Ok((
        opened.ok_or_else(|| Fault::internal("a version row was not made".into()))?,
        true,
    ))
}

/// Closes the current version of a source. Answers with it; `None` if the source has none or does not exist.
pub fn close_source(namespace_id: i32, artifact_id: &str) -> Result<Option<i64>, Fault> {
    let Some((source_id, _)) = locked(namespace_id, artifact_id)? else {
        return Ok(None);
    };
    let current = db::write_one(
        "SELECT id FROM cortex.source_version WHERE source_id = $1 AND closed_by IS NULL",
        &[source_id.into()],
        |row| row.must::<i64>(1),
    )?;
    if let Some(version_id) = current {
        close_version(namespace_id, version_id)?;
    }
    Ok(current)
}

/// The source's id and hash key, its row locked so that its versions change one after another.
fn locked(namespace_id: i32, artifact_id: &str) -> Result<Option<(i64, Vec<u8>)>, Fault> {
    db::write_one(
        "SELECT id, hash_key FROM cortex.source WHERE namespace_id = $1 AND artifact_id = $2 FOR NO KEY UPDATE",
        &[namespace_id.into(), artifact_id.into()],
        |row| Ok((row.must(1)?, row.must(2)?)),
    )
}

fn close_version(namespace_id: i32, version_id: i64) -> Result<(), Fault> {
    let change = change_id(namespace_id)?;
    db::execute(
        "UPDATE cortex.source_version SET closed_by = $2 WHERE id = $1",
        &[version_id.into(), change.into()],
    )?;
    Ok(())
}

/// 32 bytes from the server's strong random source.
pub fn random_key() -> Result<Key, Fault> {
    let mut key = [0; 32];
    // SAFETY: the buffer is as long as said.
    if unsafe { pg_sys::pg_strong_random(key.as_mut_ptr().cast(), key.len()) } {
        Ok(key)
    } else {
        Err(Fault::internal(
            "the server has no source of random bytes".into(),
        ))
    }
}

fn source_key(bytes: &[u8]) -> Result<Key, Fault> {
    bytes.try_into().map_err(|_| {
        Fault::internal(format!(
            "a hash key has {} bytes instead of 32",
            bytes.len()
        ))
    })
}
