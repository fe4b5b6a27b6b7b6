//! Prepared statements that a backend keeps, with one plan each.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::rc::Rc;
use std::thread::LocalKey;

use pgrx::datum::DatumWithOid;
use pgrx::pg_sys;

use crate::db::{self, Row};
use crate::error::Fault;
use crate::keys::Keys;

/// A prepared statement with one plan that does not depend on its arguments.
pub struct Kept {
    plan: pg_sys::SPIPlanPtr,
    arguments: usize,
    access: Access,
}

/// How a statement gets at its rows. We know how many there are, the planner of a kept plan does not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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

/// What the planner may use while a statement is planned; dropping the value puts it back.
///
/// These are the planner's own variables, set without a trip through the parameter machinery, which would cost a
/// one-row statement more than the planning it avoids. Only the planner reads them, and it runs none but our
/// statements meanwhile. An ERROR unwinds through here as well.
struct Planner {
    before: [bool; 8],
}

impl Planner {
    fn pin(access: Access) -> Self {
        // SAFETY: variables of this backend, which has one thread.
        unsafe {
            let planner = Planner {
                before: [
                    pg_sys::enable_seqscan,
                    pg_sys::enable_bitmapscan,
                    pg_sys::enable_hashjoin,
                    pg_sys::enable_mergejoin,
                    pg_sys::enable_material,
                    pg_sys::enable_nestloop,
                    pg_sys::enable_hashagg,
                    pg_sys::jit_enabled,
                ],
            };
            match access {
                // Of tables without statistics the planner would else fetch all rows of a namespace by bitmap and
                // go through them once for each key.
                Access::Index => {
                    pg_sys::enable_seqscan = false;
                    pg_sys::enable_bitmapscan = false;
                    pg_sys::enable_hashjoin = false;
                    pg_sys::enable_mergejoin = false;
                    pg_sys::enable_material = false;
                    // Keys made unique by sorting are looked up in their order, which is mostly that of the pages.
                    pg_sys::enable_hashagg = false;
                    // A plan that must do what is switched off looks dear enough to be compiled.
                    pg_sys::jit_enabled = false;
                }
                Access::Scan => pg_sys::enable_nestloop = false,
                Access::Planned => {}
            }
            planner
        }
    }
}

impl Drop for Planner {
    fn drop(&mut self) {
        // SAFETY: as in `pin`.
        unsafe {
            [
                pg_sys::enable_seqscan,
                pg_sys::enable_bitmapscan,
                pg_sys::enable_hashjoin,
                pg_sys::enable_mergejoin,
                pg_sys::enable_material,
                pg_sys::enable_nestloop,
                pg_sys::enable_hashagg,
                pg_sys::jit_enabled,
            ] = self.before;
        }
    }
}

/// A registered snapshot with all that is committed or done by this transaction when it is taken, at every isolation
/// level: REPEATABLE READ and SERIALIZABLE would look with the transaction's old one (see [`db::latest`]).
pub struct Now(pub pg_sys::Snapshot);

impl Now {
    /// Takes the snapshot.
    pub fn take() -> Self {
        // SAFETY: plain calls of the server's own interface. What the calling statement has done so far is made
        // visible first, as SPI does before each statement that may write.
        unsafe {
            pg_sys::CommandCounterIncrement();
            Now(pg_sys::RegisterSnapshot(pg_sys::GetLatestSnapshot()))
        }
    }
}

impl Drop for Now {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: registered in `take`; after a panic the abort releases it.
            unsafe { pg_sys::UnregisterSnapshot(self.0) }
        }
    }
}

/// Rows of a result as they lie in SPI's memory, for work on datums that need not be copied.
pub struct Table(*mut pg_sys::SPITupleTable);

impl Table {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        // SAFETY: a table that SPI filled and that is not freed yet.
        unsafe { (*self.0).numvals as usize }
    }

    /// Column `column` (from 1) of row `row` (from 0), as long as the table lives; `None` is NULL.
    pub fn datum(&self, row: usize, column: i32) -> Option<pg_sys::Datum> {
        assert!(row < self.len());
        let mut null = false;
        // SAFETY: the row is there, and SPI answers NULL for a column that is not.
        unsafe {
            let tuple = *(*self.0).vals.add(row);
            let datum = pg_sys::SPI_getbinval(tuple, (*self.0).tupdesc, column, &mut null);
            (!null).then_some(datum)
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
            db::connect(keys)?;
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
    /// (see [`db::latest`]). Arguments are datums of the prepared types; `None` is NULL.
    pub fn write<T>(
        &self,
        arguments: &[Option<pg_sys::Datum>],
        keys: Option<&Keys>,
        each: impl FnMut(&Row) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let (mut datums, nulls) = self.bound(arguments)?;
        let _planner = Planner::pin(self.access);
        // SAFETY: as for a statement given as text; the plan lives as long as `self`.
        unsafe {
            db::connect(keys)?;
            let code = pg_sys::SPI_execute_snapshot(
                self.plan,
                datums.as_mut_ptr(),
                nulls.as_ptr(),
                db::latest(),
                std::ptr::null_mut(),
                false,
                true,
                0,
            );
            finished(code, each)
        }
    }
}

impl Kept {
    /// Runs the statement for its effect, in a snapshot taken before. Answers how many rows it processed.
    pub fn execute(&self, arguments: &[Option<pg_sys::Datum>], now: &Now) -> Result<u64, Fault> {
        let (mut datums, nulls) = bound(arguments);
        // SAFETY: as in `write`.
        unsafe {
            db::connect(None)?;
            let code = self.run(&mut datums, &nulls, now);
            let processed = pg_sys::SPI_processed;
            pg_sys::SPI_finish();
            code?;
            Ok(processed)
        }
    }

    /// Hands over all rows of a query at once.
    pub fn few<T>(
        &self,
        arguments: &[Option<pg_sys::Datum>],
        keys: Option<&Keys>,
        now: &Now,
        each: impl FnOnce(&Table) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (mut datums, nulls) = bound(arguments);
        // SAFETY: as in `write`; the table lives until SPI_finish.
        unsafe {
            db::connect(keys)?;
            let result = self
                .run(&mut datums, &nulls, now)
                .and_then(|()| each(&Table(pg_sys::SPI_tuptable)));
            pg_sys::SPI_finish();
            result
        }
    }

    /// Hands over the rows of a query without arguments, so many at a time. What `each` writes is not seen by the
    /// query. Memory of `each` is freed when it returns.
    pub fn many(
        &self,
        keys: Option<&Keys>,
        now: &Now,
        rows: i64,
        mut each: impl FnMut(&Table) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        // SAFETY: the pattern of the server's own languages. An ERROR unwinds past the rest, and the
        // (sub)transaction's abort closes portal and connection and frees their memory. A portal that is opened
        // read-only takes the active snapshot.
        unsafe {
            db::connect(keys)?;
            let portal = {
                let _planner = Planner::pin(self.access);
                pg_sys::PushActiveSnapshot(now.0);
                let portal = pg_sys::SPI_cursor_open(
                    std::ptr::null(),
                    self.plan,
                    std::ptr::null_mut(),
                    std::ptr::null(),
                    true,
                );
                pg_sys::PopActiveSnapshot();
                portal
            };
            let memory = pg_sys::AllocSetContextCreateInternal(
                pg_sys::CurrentMemoryContext,
                c"cortex batch".as_ptr(),
                0,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            );
            let mut result = Ok(());
            while result.is_ok() {
                pgrx::check_for_interrupts!();
                pg_sys::SPI_cursor_fetch(portal, true, rows as std::ffi::c_long);
                let table = pg_sys::SPI_tuptable;
                if pg_sys::SPI_processed == 0 {
                    break;
                }
                let outer = pg_sys::MemoryContextSwitchTo(memory);
                result = each(&Table(table));
                pg_sys::MemoryContextSwitchTo(outer);
                pg_sys::MemoryContextReset(memory);
                pg_sys::SPI_freetuptable(table);
            }
            pg_sys::SPI_cursor_close(portal);
            pg_sys::SPI_finish();
            result
        }
    }

    /// # Safety
    /// An SPI connection is open; the arrays are as long as the statement has arguments.
    unsafe fn run(
        &self,
        datums: &mut [pg_sys::Datum],
        nulls: &[c_char],
        now: &Now,
    ) -> Result<(), Fault> {
        if datums.len() != self.arguments {
            return Err(Fault::internal(format!(
                "{} arguments for {}",
                datums.len(),
                self.arguments
            )));
        }
        let _planner = Planner::pin(self.access);
        // SAFETY: as said.
        let code = unsafe {
            pg_sys::SPI_execute_snapshot(
                self.plan,
                datums.as_mut_ptr(),
                nulls.as_ptr(),
                now.0,
                std::ptr::null_mut(),
                false,
                true,
                0,
            )
        };
        if code < 0 {
            return Err(Fault::internal(format!(
                "SPI answered {code} to an internal statement"
            )));
        }
        Ok(())
    }

    /// At most one row of the statement.
    pub fn write_one<T>(
        &self,
        arguments: &[Option<pg_sys::Datum>],
        each: impl FnMut(&Row) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        Ok(self.write(arguments, None, each)?.into_iter().next())
    }
}

impl Kept {
    /// The arguments as SPI takes them, as many as were prepared for.
    fn bound(
        &self,
        arguments: &[Option<pg_sys::Datum>],
    ) -> Result<(Vec<pg_sys::Datum>, Vec<c_char>), Fault> {
        if arguments.len() != self.arguments {
            return Err(Fault::internal(format!(
                "{} arguments for {}",
                arguments.len(),
                self.arguments
            )));
        }
        Ok(bound(arguments))
    }

    /// Runs the statement read-only in the snapshot of the calling query, as [`db::read`] does.
    fn read<T>(
        &self,
        arguments: &[Option<pg_sys::Datum>],
        each: impl FnMut(&Row) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let (mut datums, nulls) = self.bound(arguments)?;
        let _planner = Planner::pin(self.access);
        // SAFETY: as in `write`. Read-only execution takes the active snapshot and advances no command counter.
        unsafe {
            db::connect(None)?;
            let code =
                pg_sys::SPI_execute_plan(self.plan, datums.as_mut_ptr(), nulls.as_ptr(), true, 0);
            finished(code, each)
        }
    }
}

/// Statements of reads that a backend keeps; more than all texts there are for a few spaces. Then it starts anew.
const MAX_READS: usize = 200;

thread_local! {
    static READS: RefCell<HashMap<(Access, String), Rc<Kept>>> = RefCell::default();
}

/// Like [`db::read`], with a plan that this backend keeps: parsing and planning cost a small statement more than
/// running it. For statements of which there are few texts, and whose good plan does not depend on the arguments.
pub fn read<T>(
    access: Access,
    sql: &str,
    args: &[DatumWithOid],
    each: impl FnMut(&Row) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let key = (access, sql.to_owned());
    let known = READS.with_borrow(|reads| reads.get(&key).cloned());
    let kept = match known {
        Some(kept) => kept,
        None => {
            let types: Vec<pg_sys::Oid> = args.iter().map(DatumWithOid::oid).collect();
            let made = Rc::new(Kept::prepare(sql, &types, access, None)?);
            READS.with_borrow_mut(|reads| {
                if reads.len() >= MAX_READS {
                    reads.clear();
                }
                reads.insert(key, made.clone());
            });
            made
        }
    };
    let arguments: Vec<Option<pg_sys::Datum>> = args
        .iter()
        .map(|arg| arg.datum().map(|datum| datum.sans_lifetime()))
        .collect();
    kept.read(&arguments, each)
}

/// At most one row of such a statement.
pub fn read_one<T>(
    access: Access,
    sql: &str,
    args: &[DatumWithOid],
    each: impl FnMut(&Row) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    Ok(read(access, sql, args, each)?.into_iter().next())
}

/// Rows of the statement that ran last, whose code SPI gave, and the end of its connection.
///
/// # Safety
/// An SPI connection is open, and the statement was its last.
unsafe fn finished<T>(
    code: i32,
    each: impl FnMut(&Row) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    // SAFETY: as promised; the rows are copied before the connection ends.
    unsafe {
        let result = if code < 0 {
            Err(Fault::internal(format!(
                "SPI answered {code} to an internal statement"
            )))
        } else {
            db::rows(pg_sys::SPI_tuptable, each)
        };
        pg_sys::SPI_finish();
        result
    }
}

/// Arguments as SPI takes them.
fn bound(arguments: &[Option<pg_sys::Datum>]) -> (Vec<pg_sys::Datum>, Vec<c_char>) {
    arguments
        .iter()
        .map(|argument| match argument {
            Some(datum) => (*datum, b' ' as c_char),
            None => (pg_sys::Datum::from(0usize), b'n' as c_char),
        })
        .unzip()
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
