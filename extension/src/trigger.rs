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

use crate::binding::{Binding, STORED, Stored, qualified};
use crate::db::{self, Kept, Rows, Slot};
use crate::error::{Fault, Outcome};
use crate::hold;
use crate::subxact::guarded;
use crate::touch::{self, Origin};

/// Up to so many touched rows the kept plan is used, which looks everything up by index.
const FEW: i64 = 64;
/// So many plans a backend keeps: a table has up to three for each partition that is named in statements.
const KEPT_PLANS: usize = 512;
/// Names of the transition tables in `CREATE TRIGGER`.
pub const OLD: &str = "cortex_old";
/// See [`OLD`].
pub const NEW: &str = "cortex_new";

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
    let Some(stored) = stored(binding_id)? else {
        return Ok(()); // the binding was erased or not restored; its trigger has nothing to follow
    };
    if stored.silent {
        return Ok(());
    }
    let event = Event::of(data);
    match event {
        Event::Truncate => {
            let sql = touch::statement(&Binding::resolve(stored)?, Origin::Gone);
            Kept::prepare(&sql, &[], Rows::Many, None)?.write(&[], None, |_| Ok(()))?;
        }
        Event::Row { .. } => {
            let relation = relation_of(data);
            let (columns, arguments) = row_keys(data, &stored)?;
            let plan = kept_plan(data, stored, relation, event, &columns)?;
            plan.write(&arguments, None, |_| Ok(()))?;
        }
        Event::Statement { .. } if touched_rows(data) <= FEW => {
            let relation = relation_of(data);
            let plan = kept_plan(data, stored, relation, event, &[])?;
            plan.write(&[], Some(data), |_| Ok(()))?;
        }
        Event::Statement { .. } => {
            let sql = touch::statement(
                &Binding::resolve(stored)?,
                Origin::Transition(&event.tables()),
            );
            Kept::prepare(&sql, &[], Rows::Many, Some(data))?.write(&[], Some(data), |_| Ok(()))?;
        }
    }
    Ok(())
}

/// What fired.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Event {
    Truncate,
    Row { old: bool, new: bool },
    Statement { old: bool, new: bool },
}

impl Event {
    fn of(data: &pg_sys::TriggerData) -> Self {
        let kind = data.tg_event & pg_sys::TRIGGER_EVENT_OPMASK;
        let (old, new) = (
            kind != pg_sys::TRIGGER_EVENT_INSERT,
            kind != pg_sys::TRIGGER_EVENT_DELETE,
        );
        if kind == pg_sys::TRIGGER_EVENT_TRUNCATE {
            Event::Truncate
        } else if data.tg_event & pg_sys::TRIGGER_EVENT_ROW != 0 {
            Event::Row { old, new }
        } else {
            Event::Statement { old, new }
        }
    }

    fn tables(self) -> Vec<&'static str> {
        match self {
            Event::Statement { old, new } => [(old, OLD), (new, NEW)]
                .iter()
                .filter(|t| t.0)
                .map(|t| t.1)
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// The binding as committed now, whatever the transaction's isolation level.
fn stored(binding_id: i32) -> Result<Option<Stored>, Fault> {
    thread_local! {
        static FIND: Slot = const { Slot::new() };
    }
    let sql = format!("SELECT {STORED} FROM cortex.binding b WHERE b.id = $1");
    db::kept(&FIND, &sql, &[pg_sys::INT4OID])?
        .write_one(&[binding_id.into_datum()], Stored::from_row)
}

#[derive(PartialEq, Eq, Hash)]
struct PlanKey {
    binding_id: i32,
    /// The table that the statement named: transition tables have its row type.
    relation: pg_sys::Oid,
    event: Event,
}

struct Plan {
    stored: Stored,
    table: String,
    columns: Vec<pg_sys::Oid>,
    kept: Rc<Kept>,
}

/// The plan for few rows, made anew when the binding, the table's name or the key's types have changed.
fn kept_plan(
    data: &pg_sys::TriggerData,
    stored: Stored,
    relation: pg_sys::Oid,
    event: Event,
    columns: &[pg_sys::Oid],
) -> Result<Rc<Kept>, Fault> {
    thread_local! {
        static PLANS: RefCell<HashMap<PlanKey, Plan>> = RefCell::new(HashMap::new());
    }
    let key = PlanKey {
        binding_id: stored.id,
        relation,
        event,
    };
    let table = qualified(stored.relation)?;
    let found = PLANS.with_borrow(|plans| {
        plans
            .get(&key)
            .filter(|plan| plan.stored == stored && plan.table == table && plan.columns == columns)
            .map(|plan| plan.kept.clone())
    });
    if let Some(kept) = found {
        return Ok(kept);
    }
    let binding = Binding::resolve(stored)?;
    let kept = Rc::new(match event {
        Event::Row { old, new } => {
            let sql = touch::statement(
                &binding,
                Origin::Parameters(usize::from(old) + usize::from(new)),
            );
            Kept::prepare(&sql, columns, Rows::Few, None)?
        }
        _ => {
            let sql = touch::statement(&binding, Origin::Transition(&event.tables()));
            Kept::prepare(&sql, &[], Rows::Few, Some(data))?
        }
    });
    let plan = Plan {
        stored: binding.stored,
        table,
        columns: columns.to_vec(),
        kept: kept.clone(),
    };
    PLANS.with_borrow_mut(|plans| {
        if plans.len() >= KEPT_PLANS {
            plans.clear();
        }
        plans.insert(key, plan);
    });
    Ok(kept)
}

fn has_no_rows(data: &pg_sys::TriggerData) -> bool {
    matches!(Event::of(data), Event::Statement { .. }) && touched_rows(data) == 0
}

/// Rows of the transition tables together.
fn touched_rows(data: &pg_sys::TriggerData) -> i64 {
    let count = |store: *mut pg_sys::Tuplestorestate| {
        if store.is_null() {
            0
        } else {
            // SAFETY: the trigger's own tuple store.
            unsafe { pg_sys::tuplestore_tuple_count(store) }
        }
    };
    count(data.tg_oldtable) + count(data.tg_newtable)
}

/// Types and values of the key in the row trigger's old and new row, by the column names of the table that
/// fired: a partition may number its columns otherwise.
fn row_keys(
    data: &pg_sys::TriggerData,
    stored: &Stored,
) -> Result<(Vec<pg_sys::Oid>, Vec<Option<pg_sys::Datum>>), Fault> {
    let (mut types, mut values) = (Vec::new(), Vec::new());
    // An UPDATE has its old row in tg_trigtuple and its new one in tg_newtuple; else there is one row.
    for tuple in [data.tg_trigtuple, data.tg_newtuple]
        .into_iter()
        .filter(|tuple| !tuple.is_null())
    {
        for name in &stored.key_columns {
            let c_name = std::ffi::CString::new(name.as_str())
                .map_err(|_| Fault::internal("a column name holds a NUL byte".into()))?;
            // SAFETY: tuple and descriptor belong to the relation of this trigger call.
            unsafe {
                let descriptor = (*data.tg_relation).rd_att;
                let number = pg_sys::SPI_fnumber(descriptor, c_name.as_ptr());
                if number <= 0 {
                    return Err(Fault::state(format!("the bound column \"{name}\" is gone")));
                }
                let mut null = false;
                let datum = pg_sys::SPI_getbinval(tuple, descriptor, number, &mut null);
                types.push(pg_sys::getBaseType(pg_sys::SPI_gettypeid(
                    descriptor, number,
                )));
                values.push((!null).then_some(datum));
            }
        }
    }
    Ok((types, values))
}

fn relation_of(data: &pg_sys::TriggerData) -> pg_sys::Oid {
    // SAFETY: the server passes an open relation.
    unsafe { (*data.tg_relation).rd_id }
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
