//! SQL from inside a backend.
//!
//! pgrx's own client switches to a fresh snapshot once the transaction has an id. A read of ours must see
//! one snapshot from end to end, also inside a transaction that has written, and must never assign a
//! transaction id (it runs on a hot standby). So the access is said by the caller: [`read`] uses the
//! calling query's snapshot, [`write()`] sees everything up to now.

use std::ffi::{CString, c_char};

use pgrx::datum::{DatumWithOid, FromDatum};
use pgrx::pg_sys;

use crate::error::Fault;
use crate::keys::Keys;

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

    /// Column `n` as it lies in the row; NULL is `None`.
    pub fn datum(&self, n: i32) -> Option<pg_sys::Datum> {
        let mut null = false;
        // SAFETY: as in `get`.
        let datum = unsafe { pg_sys::SPI_getbinval(self.tuple, self.desc, n, &mut null) };
        (!null).then_some(datum)
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
pub unsafe fn rows<T>(
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

/// The snapshot of a statement that must see every commit so far. READ COMMITTED takes a new one by itself
/// (null). REPEATABLE READ and SERIALIZABLE would look with the transaction's old one, which shows neither a
/// binding nor a version that a load made after it: the change would be missed. Foreign keys look the same way.
pub fn latest() -> pg_sys::Snapshot {
    // SAFETY: a backend variable; the snapshot is copied by the executor before anything can replace it.
    unsafe {
        if pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 {
            pg_sys::GetLatestSnapshot()
        } else {
            std::ptr::null_mut()
        }
    }
}

/// Opens an SPI connection in which `keys` can be read.
///
/// # Safety
/// Must be paired with SPI_finish on every path that returns, while `keys` lives.
pub unsafe fn connect(keys: Option<&Keys>) -> Result<(), Fault> {
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
