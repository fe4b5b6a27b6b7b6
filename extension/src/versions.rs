//! Writing what a touch found: closes versions and opens others, both under the transaction's change row.
//!
//! Nothing else is written. A batch's versions are closed before any is opened, so that the index of current versions
//! never sees two of a source. Values go from the query into the writing statements as they lie in memory.

use std::cell::RefCell;
use std::rc::Rc;

use cortex_core::hash::Hash;
use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::binding::{Binding, Stored};
use crate::error::Fault;
use crate::kept::{self, Access, Kept, Now, Slot, Table};
use crate::keys::Keys;
use crate::lookup;
use crate::rows;
use crate::sources::change_id;
use crate::touch::{self, Origin};

/// Up to so many keys, their rows are fetched at once.
const FEW: i64 = 64;
/// Else so many rows at a time. They hold keys and hashes, no content.
const BATCH: i64 = 10_000;
/// Most columns of a key, as a constraint of `cortex.binding` says.
const KEY_COLUMNS: usize = 8;

/// Columns of a touch's query.
struct Found;

impl Found {
    /// Where the current version lies, if there is one.
    const VERSION_PLACE: i32 = 1;
    /// A new one if the source is not known yet.
    const SOURCE_ID: i32 = 2;
    /// NULL if the row is gone.
    const NEW_HASH: i32 = 3;
    /// NULL if the source is known, as are the next ones.
    const HASH_KEY: i32 = 4;
    const ARTIFACT: i32 = 5;
    /// The first column of the key, as text; the others follow.
    const KEY: i32 = 6;
}

/// How many versions were written.
#[derive(Default)]
pub struct Written {
    /// New ones.
    pub opened: u64,
    /// Those that were current.
    pub closed: u64,
}

/// Finds what differs by a statement that is used once, and writes it.
pub fn touch(
    binding: &Binding,
    origin: Origin,
    access: Access,
    keys: Option<&Keys>,
) -> Result<Written, Fault> {
    let now = Now::take();
    let query = Kept::prepare(&touch::query(binding, origin), &[], access, keys)?;
    follow(&binding.stored, &query, keys, &now)
}

/// Runs a touch's query and writes what it found.
pub fn follow(
    stored: &Stored,
    query: &Kept,
    keys: Option<&Keys>,
    now: &Now,
) -> Result<Written, Fault> {
    if keys.is_some_and(|keys| keys.count() <= FEW) {
        return query.few(&[], keys, now, |table| write(stored, table, now));
    }
    let mut all = Written::default();
    query.many(keys, now, BATCH, |table| {
        let written = write(stored, table, now)?;
        all.opened += written.opened;
        all.closed += written.closed;
        Ok(())
    })?;
    Ok(all)
}

/// Follows a change of one row whose source is known, given the query [`touch::row`] and the key. Answers false if it
/// is not known; then nothing was done.
pub fn follow_one(
    stored: &Stored,
    row: &Kept,
    key: &[Option<pg_sys::Datum>],
    now: &Now,
) -> Result<bool, Fault> {
    row.few(key, None, now, |table| {
        let artifact = table
            .datum(0, 1)
            .ok_or_else(|| Fault::internal("a key has no artifact id".into()))?;
        let Some((source, hash_key)) = lookup::source(stored.namespace_id, artifact, now) else {
            return Ok(false);
        };
        let new = match table.datum(0, 2) {
            Some(_) => Some(content_hash(&hash_key, table, stored)?),
            None => None,
        };
        let old = lookup::current_version(source, now);
        if old.as_ref().map(|(_, hash)| hash) == new.as_ref() {
            return Ok(true);
        }
        let change = change_id(stored.namespace_id)?;
        if let Some((mut place, _)) = old {
            close(change, &mut [(&raw mut place).into()], now)?;
        }
        if let Some(hash) = new.into_datum() {
            open(change, &mut [source.into()], &mut [hash], now)?;
        }
        Ok(true)
    })
}

/// The keyed hash of the values that a row of [`touch::row`] carries.
fn content_hash(hash_key: &[u8], table: &Table, stored: &Stored) -> Result<Vec<u8>, Fault> {
    let key = hash_key
        .try_into()
        .map_err(|_| Fault::internal("a hash key has not 32 bytes".into()))?;
    let values: Vec<Option<String>> = (0..stored.value_columns().count())
        .map(|n| {
            let datum = table.datum(0, n as i32 + 3)?;
            // SAFETY: a text, in the table's memory.
            unsafe { String::from_datum(datum, false) }
        })
        .collect();
    let hash: Hash = rows::hash(key, &values);
    Ok(hash.0.to_vec())
}

fn write(stored: &Stored, found: &Table, now: &Now) -> Result<Written, Fault> {
    if found.len() == 0 {
        return Ok(Written::default());
    }
    let change = change_id(stored.namespace_id)?;
    let mut places = Vec::new();
    let (mut sources, mut hashes) = (Vec::new(), Vec::new());
    let mut unknown = Vec::new();
    for row in 0..found.len() {
        places.extend(found.datum(row, Found::VERSION_PLACE));
        let Some(hash) = found.datum(row, Found::NEW_HASH) else {
            continue;
        };
        let source = found
            .datum(row, Found::SOURCE_ID)
            .ok_or_else(|| Fault::internal("a source has no id".into()))?;
        if found.datum(row, Found::HASH_KEY).is_some() {
            unknown.push((row, source));
        }
        sources.push(source);
        hashes.push(hash);
    }
    let closed = close(change, &mut places, now)?;
    make(stored, found, &unknown, now)?;
    let opened = open(change, &mut sources, &mut hashes, now)?;
    Ok(Written { opened, closed })
}

/// Closes the versions at these places. Of a table without statistics the planner takes `closed_by IS NULL` for one
/// row in 200 and would go through all of the open versions, so the condition hides what it asks.
fn close(change: i64, places: &mut [pg_sys::Datum], now: &Now) -> Result<u64, Fault> {
    thread_local! {
        static ONE: Slot = const { Slot::new() };
        static MANY: Slot = const { Slot::new() };
    }
    let change = change.into_datum();
    match places {
        [] => Ok(0),
        [place] => kept::kept(
            &ONE,
            "UPDATE cortex.source_version v SET closed_by = $1 \
              WHERE v.ctid = $2 AND CASE WHEN v.closed_by IS NULL THEN true END",
            &[pg_sys::INT8OID, pg_sys::TIDOID],
        )?
        .execute(&[change, Some(*place)], now),
        places => kept::kept(
            &MANY,
            "UPDATE cortex.source_version v SET closed_by = $1 \
              WHERE v.ctid = ANY ($2) AND CASE WHEN v.closed_by IS NULL THEN true END",
            &[pg_sys::INT8OID, pg_sys::TIDARRAYOID],
        )?
        .execute(&[change, Some(array(places, pg_sys::TIDOID))], now),
    }
}

/// Makes the sources that were not known.
fn make(
    stored: &Stored,
    found: &Table,
    unknown: &[(usize, pg_sys::Datum)],
    now: &Now,
) -> Result<(), Fault> {
    thread_local! {
        static MAKE: RefCell<[Option<Rc<Kept>>; KEY_COLUMNS]> = const { RefCell::new([const { None }; KEY_COLUMNS]) };
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let columns = stored.key_columns.len();
    if !(1..=KEY_COLUMNS).contains(&columns) {
        return Err(Fault::internal(format!("a key of {columns} columns")));
    }
    let made = MAKE.with_borrow(|plans| plans[columns - 1].clone());
    let insert = match made {
        Some(kept) => kept,
        None => {
            let kept = Rc::new(prepare_make(columns)?);
            MAKE.with_borrow_mut(|plans| plans[columns - 1] = Some(kept.clone()));
            kept
        }
    };
    let column = |number: i32, kind: pg_sys::Oid| {
        let mut values: Vec<pg_sys::Datum> = unknown
            .iter()
            .filter_map(|(row, _)| found.datum(*row, number))
            .collect();
        if values.len() == unknown.len() {
            Ok(Some(array(&mut values, kind)))
        } else {
            Err(Fault::internal("a new source has no key".into()))
        }
    };
    let mut ids: Vec<pg_sys::Datum> = unknown.iter().map(|(_, id)| *id).collect();
    let mut arguments = vec![
        stored.namespace_id.into_datum(),
        stored.id.into_datum(),
        Some(array(&mut ids, pg_sys::INT8OID)),
        column(Found::ARTIFACT, pg_sys::TEXTOID)?,
        column(Found::HASH_KEY, pg_sys::BYTEAOID)?,
    ];
    for n in 0..columns {
        arguments.push(column(Found::KEY + n as i32, pg_sys::TEXTOID)?);
    }
    insert.execute(&arguments, now).map(drop)
}

fn prepare_make(columns: usize) -> Result<Kept, Fault> {
    let keys: Vec<String> = (1..=columns).map(|n| format!("k{n}")).collect();
    let arguments: Vec<String> = (3..=columns + 5)
        .map(|n| format!("pg_catalog.unnest(${n})"))
        .collect();
    let mut types = vec![
        pg_sys::INT4OID,
        pg_sys::INT4OID,
        pg_sys::INT8ARRAYOID,
        pg_sys::TEXTARRAYOID,
        pg_sys::BYTEAARRAYOID,
    ];
    types.resize(types.len() + columns, pg_sys::TEXTARRAYOID);
    Kept::prepare(
        &format!(
            "INSERT INTO cortex.source (id, namespace_id, artifact_id, binding_id, key, hash_key) \
             SELECT n.id, $1, n.artifact, $2, ARRAY[{keys}], n.hash_key \
               FROM ROWS FROM ({arguments}) n (id, artifact, hash_key, {keys})",
            keys = keys.join(", "),
            arguments = arguments.join(", "),
        ),
        &types,
        Access::Planned,
        None,
    )
}

/// Opens versions of these sources with these hashes.
fn open(
    change: i64,
    sources: &mut [pg_sys::Datum],
    hashes: &mut [pg_sys::Datum],
    now: &Now,
) -> Result<u64, Fault> {
    thread_local! {
        static ONE: Slot = const { Slot::new() };
        static MANY: Slot = const { Slot::new() };
    }
    let change = change.into_datum();
    match (sources, hashes) {
        ([], []) => Ok(0),
        ([source], [hash]) => kept::kept(
            &ONE,
            "INSERT INTO cortex.source_version (source_id, content_hash, opened_by) VALUES ($2, $3, $1)",
            &[pg_sys::INT8OID, pg_sys::INT8OID, pg_sys::BYTEAOID],
        )?
        .execute(&[change, Some(*source), Some(*hash)], now),
        (sources, hashes) => kept::kept(
            &MANY,
            "INSERT INTO cortex.source_version (source_id, content_hash, opened_by) \
             SELECT n.source_id, n.hash, $1 FROM ROWS FROM (pg_catalog.unnest($2), pg_catalog.unnest($3)) n (source_id, hash)",
            &[
                pg_sys::INT8OID,
                pg_sys::INT8ARRAYOID,
                pg_sys::BYTEAARRAYOID,
            ],
        )?
        .execute(
            &[
                change,
                Some(array(sources, pg_sys::INT8OID)),
                Some(array(hashes, pg_sys::BYTEAOID)),
            ],
            now,
        ),
    }
}

/// An array of values that are not NULL, in the present memory context.
fn array(values: &mut [pg_sys::Datum], kind: pg_sys::Oid) -> pg_sys::Datum {
    let (mut length, mut by_value, mut alignment) = (0, false, 0);
    // SAFETY: a catalog look-up; the values are of this type and live during the call, which copies them.
    unsafe {
        pg_sys::get_typlenbyvalalign(kind, &mut length, &mut by_value, &mut alignment);
        pg_sys::construct_array(
            values.as_mut_ptr(),
            values.len() as i32,
            kind,
            i32::from(length),
            by_value,
            alignment,
        )
        .into()
    }
}
