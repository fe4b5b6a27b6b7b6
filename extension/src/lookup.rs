//! Single rows of our own tables, fetched through an index without a statement: a trigger that fires for one row
//! spends most of its time on starting statements.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::rc::Rc;

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

/// Whether the row with this id in a table of ours is there, as far as this transaction's own work goes: what it has
/// just inserted is, what it has rolled back is not.
pub fn own_row(table: &CStr, index: &CStr, id: i64) -> bool {
    let snapshot = &raw mut pg_sys::SnapshotSelfData;
    let key = (pg_sys::F_INT8EQ, pg_sys::Datum::from(id));
    let mut there = false;
    by_index(table, index, 1, key, snapshot, |_, _| {
        there = true;
        false
    });
    there
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
    if let (Some(place), Some(made_by)) = (place, made_by) {
        let known = Known {
            place,
            made_by: made_by.into(),
            stored: stored.clone(),
        };
        KNOWN.with_borrow_mut(|all| all.insert(id, known));
    }
    Ok(Some(stored))
}

fn is_unchanged(id: i32, known: &Known, now: &Now) -> bool {
    let key = (pg_sys::F_INT4EQ, pg_sys::Datum::from(id));
    let mut same = false;
    by_index(c"binding", c"binding_pkey", 1, key, now.0, |tuple, _| {
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
    let key = (pg_sys::F_INT4EQ, pg_sys::Datum::from(binding_id));
    let mut silent = false;
    by_index(
        c"hold",
        c"hold_open_idx",
        BINDING_ID,
        key,
        now.0,
        |tuple, columns| {
            // SAFETY: a live tuple with its descriptor.
            unsafe {
                let mut released = false;
                pg_sys::SPI_getbinval(tuple, columns, RELEASED_BY, &mut released);
                let released = !released;
                let reason = pg_sys::SPI_getvalue(tuple, columns, REASON);
                let reason = (!reason.is_null()).then(|| CStr::from_ptr(reason));
                silent |= !released && (reason == Some(c"paused") || reason == Some(c"unbound"));
            }
            !silent
        },
    );
    silent
}

fn place(tid: &pg_sys::ItemPointerData) -> (pg_sys::BlockNumber, u16) {
    pgrx::itemptr::item_pointer_get_both(*tid)
}

/// Goes through the rows whose column `attribute` is equal to a value, until `each` answers false.
fn by_index(
    table: &CStr,
    index: &CStr,
    attribute: i16,
    (equal, value): (u32, pg_sys::Datum),
    snapshot: pg_sys::Snapshot,
    mut each: impl FnMut(pg_sys::HeapTuple, pg_sys::TupleDesc) -> bool,
) {
    let Some(table) = relation(table) else { return };
    let index = relation(index);
    // SAFETY: the server's interface for catalogs, which works on any heap. Relation and scan are closed again, the
    // lock stays as for any table that was read; an ERROR leaves them to the abort.
    unsafe {
        let relation = pg_sys::relation_open(table, pg_sys::AccessShareLock as i32);
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &mut key,
            attribute,
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::Oid::from(equal),
            value,
        );
        let scan = pg_sys::systable_beginscan(
            relation,
            index.unwrap_or(pg_sys::InvalidOid),
            index.is_some(),
            snapshot,
            1,
            &mut key,
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
