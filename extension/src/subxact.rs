//! Work whose failure must not be the user's.

use std::panic::AssertUnwindSafe;

use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgTryBuilder, pg_sys};

use crate::error::Fault;

/// Runs `work` in a subtransaction, which is rolled back if it fails, be it by a fault of ours, an error of
/// the server or a panic. A subtransaction that writes nothing takes no transaction id.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // SAFETY: the pattern of the server's own procedural languages: memory context and resource owner are put
    // back after the subtransaction has ended either way.
    unsafe {
        let (context, owner) = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let result = PgTryBuilder::new(AssertUnwindSafe(work))
            .catch_others(|caught| Err(of(caught)))
            .catch_rust_panic(|caught| Err(of(caught)))
            .execute();
        pg_sys::MemoryContextSwitchTo(context);
        if result.is_ok() {
            pg_sys::ReleaseCurrentSubTransaction();
        } else {
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
        }
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::CurrentResourceOwner = owner;
        result
    }
}

fn of(caught: CaughtError) -> Fault {
    let (CaughtError::PostgresError(report)
    | CaughtError::ErrorReport(report)
    | CaughtError::RustPanic {
        ereport: report, ..
    }) = caught;
    Fault::caught(
        report.sql_error_code(),
        report.message().to_owned(),
        report.detail().map(str::to_owned),
        report.hint().map(str::to_owned),
    )
}
