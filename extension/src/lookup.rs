//! Single rows of our own tables, fetched through an index without a statement: a trigger that fires for one row
//! spends most of its time on starting statements.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::rc::Rc;

use pgrx::datum::FromDatum;
use pgrx::pg_sys;

use crate::binding::{STORED, Stored};
use crate::error::Fault;
use crate::kept::{self, Now, Slot};

/// The relation of this name in schema `cortex`.
pub fn relation(name: &CStr) -> Option<pg_sys::Oid> {
    // SAFETY: system cache look-ups.
    let found = unsafe {
        let schema = pg_sys::get_namespace_oid(c"cortex".as_ptr(), true);
        pg_sys::get_relname_relid(name.as_ptr(), schema)
    };
    (found != pg_sys::InvalidOid).then_some(found)
}

/// Whether a change row is there and has no seq, as far as this transaction's own work goes: what it has just done
/// counts, what it has rolled back does not.
pub fn unsealed_change(id: i64) -> bool {
    const ID: i16 = 1;
    const SEQ: i32 = 6;
    let key = [(ID, pg_sys::F_INT8EQ, pg_sys::Datum::from(id))];
    let snapshot = &raw mut pg_sys::SnapshotSelfData;
    let mut unsealed = false;
    by_index(
        c"change",
        c"change_pkey",
        key,
        snapshot,
        |tuple, columns| {
            unsealed = column::<i64>(tuple, columns, SEQ).is_none();
            false
        },
    );
    unsealed
}

/// A binding's row as it was read, with what tells whether that is still the row.
struct Known {
    place: (pg_sys::BlockNumber, u16),
    made_by: pg_sys::TransactionId,
    stored: Rc<Stored>,
}

/// The binding as it is now. What a backend remembers of it holds as long as the row stays the same version; holds
/// are looked up each time.
pub fn binding(id: i32, now: &Now) -> Result<Option<Rc<Stored>>, Fault> {
    thread_local! {
        static KNOWN: RefCell<HashMap<i32, Known>> = RefCell::default();
        static FIND: Slot = const { Slot::new() };
    }
    let known = KNOWN.with_borrow(|known| {
        known
            .get(&id)
            .filter(|known| is_unchanged(id, known, now))
            .map(|known| known.stored.clone())
    });
    if let Some(stored) = known
        && !is_silent(id, now)
    {
        return Ok(Some(stored));
    }
    let sql = format!("SELECT {STORED}, b.ctid, b.xmin FROM cortex.binding b WHERE b.id = $1");
    let find = kept::kept(&FIND, &sql, &[pg_sys::INT4OID])?;
    let found = find.write_one(&[Some(pg_sys::Datum::from(id))], |row| {
        let place = row.datum(11).map(|datum| {
            // SAFETY: a tid, in the row's memory.
            place(unsafe { &*datum.cast_mut_ptr::<pg_sys::ItemPointerData>() })
        });
        let made_by = row.datum(12).map(|datum| datum.value() as u32);
        Ok((Stored::from_row(row)?, place, made_by))
    })?;
    let Some((stored, place, made_by)) = found else {
        KNOWN.with_borrow_mut(|known| known.remove(&id));
        return Ok(None);
    };
    let stored = Rc::new(stored);
    match (place, made_by) {
        // Not while it is silent: that ends without a new version of the row.
        (Some(place), Some(made_by)) if !stored.silent => {
            let known = Known {
                place,
                made_by: made_by.into(),
                stored: stored.clone(),
            };
            KNOWN.with_borrow_mut(|all| all.insert(id, known))
        }
        _ => KNOWN.with_borrow_mut(|all| all.remove(&id)),
    };
    Ok(Some(stored))
}

fn is_unchanged(id: i32, known: &Known, now: &Now) -> bool {
    let key = [(1, pg_sys::F_INT4EQ, pg_sys::Datum::from(id))];
    let mut same = false;
    by_index(c"binding", c"binding_pkey", key, now.0, |tuple, _| {
        // SAFETY: a live tuple of a heap; its raw xmin stays when it is frozen.
        unsafe {
            let made_by = (*(*tuple).t_data).t_choice.t_heap.t_xmin;
            same = place(&(*tuple).t_self) == known.place && made_by == known.made_by;
        }
        false
    });
    same
}

/// Whether a hold is open that keeps the triggers from doing anything.
fn is_silent(binding_id: i32, now: &Now) -> bool {
    const BINDING_ID: i16 = 2;
    const REASON: i32 = 3;
    const RELEASED_BY: i32 = 6;
    let key = [(
        BINDING_ID,
        pg_sys::F_INT4EQ,
        pg_sys::Datum::from(binding_id),
    )];
    let mut silent = false;
    by_index(c"hold", c"hold_open_idx", key, now.0, |tuple, columns| {
        let reason: Option<String> = column(tuple, columns, REASON);
        let open = column::<i64>(tuple, columns, RELEASED_BY).is_none();
        silent |= open && matches!(reason.as_deref(), Some("paused" | "unbound"));
        !silent
    });
    silent
}

/// Id and hash key of a source.
pub fn source(namespace_id: i32, artifact: pg_sys::Datum, now: &Now) -> Option<(i64, Vec<u8>)> {
    const ID: i32 = 1;
    const NAMESPACE_ID: i16 = 2;
    const ARTIFACT_ID: i16 = 3;
    const HASH_KEY: i32 = 6;
    let key = [
        (
            NAMESPACE_ID,
            pg_sys::F_INT4EQ,
            pg_sys::Datum::from(namespace_id),
        ),
        (ARTIFACT_ID, pg_sys::F_TEXTEQ, artifact),
    ];
    let mut found = None;
    by_index(
        c"source",
        c"source_artifact_key",
        key,
        now.0,
        |tuple, columns| {
            found = column(tuple, columns, ID).zip(column(tuple, columns, HASH_KEY));
            false
        },
    );
    found
}

/// Place and content hash of the current version of a source.
pub fn current_version(source_id: i64, now: &Now) -> Option<(pg_sys::ItemPointerData, Vec<u8>)> {
    const SOURCE_ID: i16 = 2;
    const CONTENT_HASH: i32 = 3;
    const CLOSED_BY: i32 = 5;
    let key = [(SOURCE_ID, pg_sys::F_INT8EQ, pg_sys::Datum::from(source_id))];
    let mut found = None;
    let index = c"source_version_current_key";
    by_index(c"source_version", index, key, now.0, |tuple, columns| {
        if column::<i64>(tuple, columns, CLOSED_BY).is_none() {
            // SAFETY: a live tuple of a heap.
            let place = unsafe { (*tuple).t_self };
            found = column(tuple, columns, CONTENT_HASH).map(|hash| (place, hash));
        }
        found.is_none()
    });
    found
}

/// The blocks of one-byte copies in a table `pack_..` for a kind of item of a namespace, in the snapshot of the calling
/// query, until `each` fails.
pub fn blocks(
    table: &str,
    namespace_id: i32,
    target: u8,
    mut each: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    const NAMESPACE_ID: i16 = 1;
    const TARGET: i16 = 2;
    const BLOCK: i32 = 3;
    let name = |text: String| {
        CString::new(text).map_err(|_| Fault::internal("a name holds a NUL byte".into()))
    };
    let (table, index) = (name(table.to_owned())?, name(format!("{table}_scope_idx"))?);
    if relation(&table).is_none() {
        return Err(Fault::state(format!(
            "table cortex.{} does not exist",
            table.to_string_lossy()
        )));
    }
    let key = [
        (
            NAMESPACE_ID,
            pg_sys::F_INT4EQ,
            pg_sys::Datum::from(namespace_id),
        ),
        (TARGET, pg_sys::F_CHAREQ, pg_sys::Datum::from(target)),
    ];
    // SAFETY: a statement is running, so there is one.
    let snapshot = unsafe { pg_sys::GetActiveSnapshot() };
    let mut result = Ok(());
    by_index(&table, &index, key, snapshot, |tuple, columns| {
        pgrx::check_for_interrupts!();
        let mut null = false;
        // SAFETY: a live tuple with its descriptor. The column is stored plain, so detoasting gives the value in
        // its page, which stays pinned until the next row.
        result = unsafe {
            let datum = pg_sys::SPI_getbinval(tuple, columns, BLOCK, &mut null);
            let value = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
            each(pgrx::varlena_to_byte_slice(value))
        };
        result.is_ok()
    });
    result
}

/// A column, numbered as in `sql/00_tables.sql`; NULL is `None`.
fn column<T: FromDatum>(
    tuple: pg_sys::HeapTuple,
    columns: pg_sys::TupleDesc,
    number: i32,
) -> Option<T> {
    let mut null = false;
    // SAFETY: a live tuple with its descriptor; `T` owns its value.
    unsafe {
        let datum = pg_sys::SPI_getbinval(tuple, columns, number, &mut null);
        T::from_datum(datum, null)
    }
}

fn place(tid: &pg_sys::ItemPointerData) -> (pg_sys::BlockNumber, u16) {
    pgrx::itemptr::item_pointer_get_both(*tid)
}

/// Goes through the rows whose columns (number, equality, value) are equal to these values, until `each` answers false.
fn by_index<const N: usize>(
    table: &CStr,
    index: &CStr,
    columns: [(i16, u32, pg_sys::Datum); N],
    snapshot: pg_sys::Snapshot,
    mut each: impl FnMut(pg_sys::HeapTuple, pg_sys::TupleDesc) -> bool,
) {
    let Some(table) = relation(table) else { return };
    let index = relation(index);
    // SAFETY: the server's interface for catalogs, which works on any heap; it compares texts in collation "C", as our
    // indexes do. Relation and scan are closed again, the lock stays as for any table that was read; an ERROR leaves
    // them to the abort.
    unsafe {
        let relation = pg_sys::relation_open(table, pg_sys::AccessShareLock as i32);
        let mut keys = columns.map(|(number, equal, value)| {
            let mut key = pg_sys::ScanKeyData::default();
            pg_sys::ScanKeyInit(
                &mut key,
                number,
                pg_sys::BTEqualStrategyNumber as u16,
                pg_sys::Oid::from(equal),
                value,
            );
            key
        });
        let scan = pg_sys::systable_beginscan(
            relation,
            index.unwrap_or(pg_sys::InvalidOid),
            index.is_some(),
            snapshot,
            N as i32,
            keys.as_mut_ptr(),
        );
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() || !each(tuple, (*relation).rd_att) {
                break;
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::relation_close(relation, pg_sys::NoLock as i32);
    }
}
