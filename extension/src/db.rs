//! SQL from inside a backend.
//!
//! pgrx's own client switches to a fresh snapshot once the transaction has an id. A read of ours must see
//! one snapshot from end to end, also inside a transaction that has written, and must never assign a
//! transaction id (it runs on a hot standby). So the access is said by the caller: [`read`] uses the
//! calling query's snapshot, [`write()`] sees everything up to now.

use std::cell::OnceCell;
use std::ffi::{CString, c_char};
use std::rc::Rc;
use std::thread::LocalKey;

use pgrx::datum::{DatumWithOid, FromDatum};
use pgrx::pg_sys;

use crate::error::Fault;
use crate::keys::Keys;
use crate::rights;

/// One row of a result, valid while the statement's memory lives.
pub struct Row {
    tuple: pg_sys::HeapTuple,
    desc: pg_sys::TupleDesc,
}

impl Row {
    /// Column `n` (from 1); NULL is `None`. `T` must own its value: the row's memory goes when the
    /// statement ends.
    pub fn get<T: FromDatum>(&self, n: i32) -> Option<T> {
        let mut null = false;
        // SAFETY: the tuple and its descriptor are those of SPI_tuptable, alive until SPI_finish, which
        // runs after the last row was handed out.
        unsafe {
            let datum = pg_sys::SPI_getbinval(self.tuple, self.desc, n, &mut null);
            T::from_polymorphic_datum(datum, null, pg_sys::SPI_gettypeid(self.desc, n))
        }
    }

    /// Column `n`, which the statement cannot leave NULL.
    pub fn must<T: FromDatum>(&self, n: i32) -> Result<T, Fault> {
        self.get(n)
            .ok_or_else(|| Fault::internal(format!("column {n} of an internal statement is NULL")))
    }
}

/// Runs `sql` read-only in the snapshot of the calling query.
pub fn read<T>(
    sql: &str,
    args: &[DatumWithOid],
    each: impl FnMut(&Row) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    run(sql, args, true, each)
}

/// Runs `sql` with everything visible that this transaction and committed others have done.
pub fn write<T>(
    sql: &str,
    args: &[DatumWithOid],
    each: impl FnMut(&Row) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    run(sql, args, false, each)
}

/// Runs a statement for its effect and returns how many rows it processed.
pub fn execute(sql: &str, args: &[DatumWithOid]) -> Result<u64, Fault> {
    connected(sql, args, false, |processed, _| Ok(processed))
}

/// At most one row of a read-only statement.
pub fn read_one<T>(
    sql: &str,
    args: &[DatumWithOid],
    each: impl FnMut(&Row) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    Ok(read(sql, args, each)?.into_iter().next())
}

/// At most one row of a statement that may write.
pub fn write_one<T>(
    sql: &str,
    args: &[DatumWithOid],
    each: impl FnMut(&Row) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    Ok(write(sql, args, each)?.into_iter().next())
}

fn run<T>(
    sql: &str,
    args: &[DatumWithOid],
    read_only: bool,
    each: impl FnMut(&Row) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    // SAFETY: the table is the one SPI filled for this statement.
    connected(sql, args, read_only, |_, table| unsafe {
        rows(table, each)
    })
}

/// The rows of a result.
///
/// # Safety
/// `table` is null or the table of the statement that ran last, its connection still open.
unsafe fn rows<T>(
    table: *mut pg_sys::SPITupleTable,
    mut each: impl FnMut(&Row) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    if table.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: SPI filled the table for this statement; it holds `numvals` tuples.
    let (rows, desc, count) =
        unsafe { ((*table).vals, (*table).tupdesc, (*table).numvals as usize) };
    let mut out = Vec::with_capacity(count);
    for i in 0..count {
        if i % 4096 == 0 {
            pgrx::check_for_interrupts!();
        }
        // SAFETY: i < numvals.
        let row = Row {
            tuple: unsafe { *rows.add(i) },
            desc,
        };
        out.push(each(&row)?);
    }
    Ok(out)
}

fn connected<R>(
    sql: &str,
    args: &[DatumWithOid],
    read_only: bool,
    finish: impl FnOnce(u64, *mut pg_sys::SPITupleTable) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let sql =
        CString::new(sql).map_err(|_| Fault::internal("a statement holds a NUL byte".into()))?;
    let mut types: Vec<pg_sys::Oid> = args.iter().map(DatumWithOid::oid).collect();
    let mut datums: Vec<pg_sys::Datum> = args
        .iter()
        .map(|arg| {
            arg.datum()
                .map_or(pg_sys::Datum::from(0usize), |datum| datum.sans_lifetime())
        })
        .collect();
    let nulls: Vec<c_char> = args
        .iter()
        .map(|arg| if arg.datum().is_some() { b' ' } else { b'n' } as c_char)
        .collect();
    // SAFETY: arrays of equal length outlive the call. An ERROR unwinds past SPI_finish, and the
    // (sub)transaction's abort then closes the connection, as for any C caller.
    unsafe {
        connect(None)?;
        let snapshot = if read_only {
            std::ptr::null_mut()
        } else {
            latest()
        };
        let code = if snapshot.is_null() {
            pg_sys::SPI_execute_with_args(
                sql.as_ptr(),
                args.len() as i32,
                types.as_mut_ptr(),
                datums.as_mut_ptr(),
                nulls.as_ptr(),
                read_only,
                0,
            )
        } else {
            let plan = pg_sys::SPI_prepare(sql.as_ptr(), args.len() as i32, types.as_mut_ptr());
            if plan.is_null() {
                pg_sys::SPI_finish();
                return Err(Fault::internal(
                    "SPI could not prepare an internal statement".into(),
                ));
            }
            let no_check = std::ptr::null_mut();
            pg_sys::SPI_execute_snapshot(
                plan,
                datums.as_mut_ptr(),
                nulls.as_ptr(),
                snapshot,
                no_check,
                false,
                true,
                0,
            )
        };
        let result = if code < 0 {
            Err(Fault::internal(format!(
                "SPI answered {code} to an internal statement"
            )))
        } else {
            finish(pg_sys::SPI_processed, pg_sys::SPI_tuptable)
        };
        pg_sys::SPI_finish();
        result
    }
}

/// A prepared statement with one plan that does not depend on its arguments.
pub struct Kept {
    plan: pg_sys::SPIPlanPtr,
    arguments: usize,
    access: Access,
}

/// How a statement gets at its rows. We know how many there are, the planner of a kept plan does not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// By index, whatever the statistics say: right for any number of rows that is small beside the tables. A plan
    /// made so stays good while tables grow, and no scan of a whole table makes every other SERIALIZABLE
    /// transaction a suspect.
    Index,
    /// By scans and hashes: for a good part of the table.
    Scan,
    /// As the planner thinks best.
    Planned,
}

/// Settings in force while the statement is planned and run; dropping the value puts them back.
struct Planner {
    nest: i32,
}

impl Planner {
    fn pin(access: Access) -> Result<Self, Fault> {
        // SAFETY: the server's own way to set parameters for a while.
        let planner = Planner {
            nest: unsafe { pg_sys::NewGUCNestLevel() },
        };
        let off: &[&str] = match access {
            // Of tables without statistics the planner would else fetch all rows of a namespace by bitmap and go
            // through them once for each key.
            Access::Index => &[
                "enable_seqscan",
                "enable_bitmapscan",
                "enable_hashjoin",
                "enable_mergejoin",
                "enable_material",
                // A plan that must do what is switched off looks dear enough to be compiled.
                "jit",
            ],
            Access::Scan => &["enable_nestloop"],
            Access::Planned => &[],
        };
        for name in off {
            rights::set_local(name, "off")?;
        }
        Ok(planner)
    }
}

impl Drop for Planner {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: undoes exactly what `pin` did; after a panic the abort does.
            unsafe { pg_sys::AtEOXact_GUC(false, self.nest) }
        }
    }
}

impl Kept {
    /// Parses `sql`. `keys` says what [`crate::keys::NAME`] is in it.
    pub fn prepare(
        sql: &str,
        types: &[pg_sys::Oid],
        access: Access,
        keys: Option<&Keys>,
    ) -> Result<Self, Fault> {
        let sql = CString::new(sql)
            .map_err(|_| Fault::internal("a statement holds a NUL byte".into()))?;
        let mut types = types.to_vec();
        // SAFETY: the strings and arrays outlive the calls; SPI_keepplan moves the plan out of the
        // connection's memory.
        unsafe {
            connect(keys)?;
            let plan = pg_sys::SPI_prepare_cursor(
                sql.as_ptr(),
                types.len() as i32,
                types.as_mut_ptr(),
                pg_sys::CURSOR_OPT_GENERIC_PLAN as i32,
            );
            let kept = if plan.is_null() {
                -1
            } else {
                pg_sys::SPI_keepplan(plan)
            };
            pg_sys::SPI_finish();
            if kept != 0 {
                return Err(Fault::internal(
                    "SPI could not prepare an internal statement".into(),
                ));
            }
            Ok(Kept {
                plan,
                arguments: types.len(),
                access,
            })
        }
    }

    /// Runs the statement with all that is committed or done by this transaction, at every isolation level
    /// (see [`latest`]). Arguments are datums of the prepared types; `None` is NULL.
    pub fn write<T>(
        &self,
        arguments: &[Option<pg_sys::Datum>],
        keys: Option<&Keys>,
        each: impl FnMut(&Row) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        if arguments.len() != self.arguments {
            return Err(Fault::internal(format!(
                "{} arguments for {}",
                arguments.len(),
                self.arguments
            )));
        }
        let mut datums: Vec<pg_sys::Datum> = arguments
            .iter()
            .map(|a| a.unwrap_or(pg_sys::Datum::from(0usize)))
            .collect();
        let nulls: Vec<c_char> = arguments
            .iter()
            .map(|a| if a.is_some() { b' ' } else { b'n' } as c_char)
            .collect();
        let _planner = Planner::pin(self.access)?;
        // SAFETY: as in `connected`; the plan lives as long as `self`.
        unsafe {
            connect(keys)?;
            let code = pg_sys::SPI_execute_snapshot(
                self.plan,
                datums.as_mut_ptr(),
                nulls.as_ptr(),
                latest(),
                std::ptr::null_mut(),
                false,
                true,
                0,
            );
            let result = if code < 0 {
                Err(Fault::internal(format!(
                    "SPI answered {code} to an internal statement"
                )))
            } else {
                rows(pg_sys::SPI_tuptable, each)
            };
            pg_sys::SPI_finish();
            result
        }
    }
}

impl Kept {
    /// At most one row of the statement.
    pub fn write_one<T>(
        &self,
        arguments: &[Option<pg_sys::Datum>],
        each: impl FnMut(&Row) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        Ok(self.write(arguments, None, each)?.into_iter().next())
    }
}

/// Where a backend keeps one prepared statement.
pub type Slot = OnceCell<Rc<Kept>>;

/// The statement of a slot, for few rows, prepared when first asked for.
pub fn kept(
    slot: &'static LocalKey<Slot>,
    sql: &str,
    types: &[pg_sys::Oid],
) -> Result<Rc<Kept>, Fault> {
    if let Some(kept) = slot.with(|slot| slot.get().cloned()) {
        return Ok(kept);
    }
    let made = Rc::new(Kept::prepare(sql, types, Access::Index, None)?);
    Ok(slot.with(|slot| slot.get_or_init(|| made).clone()))
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: a kept plan belongs to us alone.
        unsafe {
            pg_sys::SPI_freeplan(self.plan);
        }
    }
}

/// The snapshot of a statement that must see every commit so far. READ COMMITTED takes a new one by itself
/// (null). REPEATABLE READ and SERIALIZABLE would look with the transaction's old one, which shows neither a
/// binding nor a version that a load made after it: the change would be missed. Foreign keys look the same way.
fn latest() -> pg_sys::Snapshot {
    // SAFETY: a backend variable; the snapshot is copied by the executor before anything can replace it.
    unsafe {
        if pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 {
            pg_sys::GetLatestSnapshot()
        } else {
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// Must be paired with SPI_finish on every path that returns, while `keys` lives.
unsafe fn connect(keys: Option<&Keys>) -> Result<(), Fault> {
    // SAFETY: an SPI connection is open where the keys are registered.
    unsafe {
        if pg_sys::SPI_connect() != pg_sys::SPI_OK_CONNECT as i32 {
            return Err(Fault::internal("SPI_connect failed".into()));
        }
        pg_sys::SPI_tuptable = std::ptr::null_mut();
        if let Some(keys) = keys
            && let Err(fault) = keys.register()
        {
            pg_sys::SPI_finish();
            return Err(fault);
        }
        Ok(())
    }
}
