//! The trigger of bound tables.
//!
//! One function serves statement triggers (with transition tables), row triggers (replica role only, so that
//! a logical replication apply worker is followed) and TRUNCATE. Its argument is the binding's id.
//!
//! A user's write never fails for reasons of ours: the work runs in a subtransaction, and if it fails, a
//! hold closes the binding until it is reconciled.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::rc::Rc;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{PgTrigger, pg_sys};

use crate::binding::{Binding, Stored, qualified};
use crate::error::{Fault, Outcome};
use crate::hold;
use crate::kept::{Access, Kept, Now};
use crate::keys::{self, Keys};
use crate::lookup;
use crate::subxact::guarded;
use crate::touch::{self, Origin};
use crate::versions;

/// Up to so many keys are looked up by index without asking how large the tables are.
const FEW: i64 = 64;
/// One key in so many rows of the table: beyond, scanning is faster than looking up. A look-up takes about 5 us,
/// a scanned and hashed row 0.4 us.
const LOOKED_UP: i64 = 16;
/// Rows of `cortex.source` on a page, about.
const SOURCES_PER_PAGE: i64 = 64;
/// So many plans a backend keeps.
const KEPT_PLANS: usize = 256;

#[pg_trigger(sql = r#"
CREATE FUNCTION cortex._touch() RETURNS trigger LANGUAGE c SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET "TimeZone" = 'UTC' SET "DateStyle" = 'ISO, YMD' SET "IntervalStyle" = 'iso_8601'
    SET extra_float_digits = 1 SET bytea_output = 'hex'
    AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn touched<'a>(
    trigger: &'a PgTrigger<'a>,
) -> Result<Option<PgHeapTuple<'a, AllocatedByRust>>, ErrorReport> {
    if let Err(report) = follow(trigger.trigger_data()) {
        report.report(PgLogLevel::ERROR);
    }
    Ok(None)
}

fn follow(data: &pg_sys::TriggerData) -> Outcome<()> {
    if has_no_rows(data) {
        return Ok(());
    }
    let binding_id = binding_id(data)?;
    match guarded(|| touch(data, binding_id)) {
        Ok(()) => Ok(()),
        Err(failure) if failure.concerns_the_caller() => Err(failure.into()),
        Err(failure) => close(binding_id, failure),
    }
}

/// Closes the binding until it is reconciled. If even that is impossible, the user's statement fails with
/// the first error, since committing it would leave outdated content in service.
fn close(binding_id: i32, failure: Fault) -> Outcome<()> {
    match guarded(|| hold::open_fault(binding_id, failure.message())) {
        Ok(None) => Ok(()),
        Ok(Some(name)) => {
            pgrx::warning!(
                "cortex could not follow this change of \"{name}\" and holds its claims back until \
                 cortex_reconcile has run: {}",
                failure.message()
            );
            Ok(())
        }
        Err(second) if second.concerns_the_caller() => Err(second.into()),
        Err(_) => Err(failure.into()),
    }
}

fn touch(data: &pg_sys::TriggerData, binding_id: i32) -> Result<(), Fault> {
    let now = Now::take();
    let Some(stored) = lookup::binding(binding_id, &now)? else {
        return Ok(()); // the binding was erased or not restored; its trigger has nothing to follow
    };
    if stored.silent {
        return Ok(());
    }
    let resolve = || Binding::resolve(Stored::clone(&stored));
    if data.tg_event & pg_sys::TRIGGER_EVENT_OPMASK == pg_sys::TRIGGER_EVENT_TRUNCATE {
        may_truncate(data)?;
        return versions::touch(&resolve()?, Origin::Gone, Access::Planned, None).map(drop);
    }
    let keys = Keys::of(data, &stored)?;
    if keys.count() == 0 {
        Ok(())
    } else if keys.count() <= FEW || keys.count() <= source_count() / LOOKED_UP {
        let plan = kept_plan(&stored, &keys)?;
        if let (Some(row), Some(key)) = (&plan.row, keys.only())
            && versions::follow_one(&stored, row, &key, &now)?
        {
            return Ok(());
        }
        versions::follow(&stored, &plan.query, Some(&keys), &now).map(drop)
    } else {
        let keys_name = keys::NAME.to_string_lossy();
        let origin = Origin::Keys(&keys_name);
        versions::touch(&resolve()?, origin, Access::Scan, Some(&keys)).map(drop)
    }
}

/// TRUNCATE removes rows that an older snapshot cannot see, so what its transaction reads of the table afterwards
/// fits no state that ever was. It is let through in replica role, since an apply worker would try the same again
/// and again.
fn may_truncate(data: &pg_sys::TriggerData) -> Result<(), Fault> {
    // SAFETY: backend variables; the server passes an open relation.
    let (level, role, relation) = unsafe {
        (
            pg_sys::XactIsoLevel as u32,
            pg_sys::SessionReplicationRole as u32,
            (*data.tg_relation).rd_id,
        )
    };
    let level = match level {
        _ if role == pg_sys::SESSION_REPLICATION_ROLE_REPLICA => return Ok(()),
        pg_sys::XACT_REPEATABLE_READ => "REPEATABLE READ",
        pg_sys::XACT_SERIALIZABLE => "SERIALIZABLE",
        _ => return Ok(()),
    };
    Err(Fault::retry(format!(
        "TRUNCATE of {}, which cortex follows, is refused in a {level} transaction",
        qualified(relation)?
    ))
    .hint("Run TRUNCATE in a READ COMMITTED transaction, or DELETE the rows."))
}

/// Queries that look keys up by index, kept for as long as what they were made from stays.
struct Plan {
    stored: Rc<Stored>,
    table: String,
    types: Vec<pg_sys::Oid>,
    /// For some keys.
    query: Kept,
    /// For one key, where equal keys have one artifact id.
    row: Option<Kept>,
}

/// The binding's plan, made anew when the binding, the table's name or the key's types have changed.
fn kept_plan(stored: &Rc<Stored>, keys: &Keys) -> Result<Rc<Plan>, Fault> {
    thread_local! {
        static PLANS: RefCell<HashMap<i32, Rc<Plan>>> = RefCell::default();
    }
    let table = qualified(stored.relation)?;
    let found = PLANS.with_borrow(|plans| {
        plans
            .get(&stored.id)
            .filter(|plan| {
                plan.stored == *stored && plan.table == table && plan.types == keys.types()
            })
            .cloned()
    });
    if let Some(plan) = found {
        return Ok(plan);
    }
    let binding = Binding::resolve(Stored::clone(stored))?;
    let query = touch::query(&binding, Origin::Keys(&keys::NAME.to_string_lossy()));
    let row = binding
        .exact_key()
        .then(|| Kept::prepare(&touch::row(&binding), keys.types(), Access::Index, None))
        .transpose()?;
    let plan = Rc::new(Plan {
        stored: stored.clone(),
        table,
        types: keys.types().to_vec(),
        query: Kept::prepare(&query, &[], Access::Index, Some(keys))?,
        row,
    });
    PLANS.with_borrow_mut(|plans| {
        if plans.len() >= KEPT_PLANS {
            plans.clear();
        }
        plans.insert(stored.id, plan.clone());
    });
    Ok(plan)
}

/// About how many sources there are, from the size of their table: statistics may not have come yet.
fn source_count() -> i64 {
    let Some(table) = lookup::relation(c"source") else {
        return 0;
    };
    // SAFETY: the relation is closed before anything can fail, its lock kept to the end of the transaction as for any
    // table that was read.
    let pages = unsafe {
        let relation = pg_sys::relation_open(table, pg_sys::AccessShareLock as i32);
        let pages =
            pg_sys::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM);
        pg_sys::relation_close(relation, pg_sys::NoLock as i32);
        pages
    };
    i64::from(pages) * SOURCES_PER_PAGE
}

/// Whether a statement has touched nothing.
fn has_no_rows(data: &pg_sys::TriggerData) -> bool {
    let event = data.tg_event;
    let empty = |store: *mut pg_sys::Tuplestorestate| {
        // SAFETY: the trigger's own tuple store.
        store.is_null() || unsafe { pg_sys::tuplestore_tuple_count(store) } == 0
    };
    event & pg_sys::TRIGGER_EVENT_OPMASK != pg_sys::TRIGGER_EVENT_TRUNCATE
        && event & pg_sys::TRIGGER_EVENT_ROW == 0
        && empty(data.tg_oldtable)
        && empty(data.tg_newtable)
}

/// The trigger's argument.
fn binding_id(data: &pg_sys::TriggerData) -> Outcome<i32> {
    // SAFETY: the server passes the trigger's definition; tgargs holds tgnargs strings.
    let argument = unsafe {
        let trigger = &*data.tg_trigger;
        if trigger.tgnargs == 1 {
            CStr::from_ptr(*trigger.tgargs).to_str().ok()
        } else {
            None
        }
    };
    let id = argument.and_then(|text| text.parse().ok());
    Ok(id.ok_or_else(|| Fault::argument("a trigger of cortex takes the id of a binding".into()))?)
}
