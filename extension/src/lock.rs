//! Waiting for locks on tables and rows of the user's, but not for long.

use pgrx::{PgSqlErrorCode, pg_sys};

use crate::db;
use crate::error::Fault;
use crate::rights;
use crate::subxact::guarded;

/// Who waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Somebody who called a function: five seconds, unless the session has a limit of its own.
    Caller,
    /// A worker, which can come back later: half of `deadlock_timeout`, so that in a deadlock with a user's
    /// transaction it is the worker that gives way.
    Worker,
}

impl Patience {
    /// Milliseconds.
    fn limit(self) -> i32 {
        // SAFETY: reads settings of this session.
        let (own, deadlock) = unsafe { (pg_sys::LockTimeout, pg_sys::DeadlockTimeout) };
        match self {
            Patience::Caller if own > 0 => own,
            Patience::Caller => 5_000,
            Patience::Worker if own > 0 => own.min(deadlock / 2).max(1),
            Patience::Worker => (deadlock / 2).max(1),
        }
    }
}

/// Locks a table and its partitions against writers until the transaction ends, when those who have written to
/// it have ended.
pub fn table(qualified: &str, patience: Patience) -> Result<(), Fault> {
    within(patience, || {
        db::execute(
            &format!("LOCK TABLE {qualified} IN SHARE ROW EXCLUSIVE MODE"),
            &[],
        )
        .map(drop)
    })
}

/// Runs work that takes locks, waiting for each as long as `patience` allows.
pub fn within<T>(patience: Patience, work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    let waited = guarded(|| {
        rights::set_local("lock_timeout", &patience.limit().to_string())?;
        work()
    });
    waited.map_err(|fault| match fault.code() {
        PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE => {
            Fault::lock("the table is in use: a lock on it was not to be had in time".into())
                .detail("Transactions that have written to it hold it until they end.")
                .hint("Try again, or SET lock_timeout to wait longer.")
        }
        _ => fault,
    })
}
