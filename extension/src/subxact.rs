//! Work whose failure must not be the user's.

use std::panic::AssertUnwindSafe;

use pgrx::pg_sys::panic::{CaughtError, ErrorReport};
use pgrx::{PgSqlErrorCode, PgTryBuilder, pg_sys};

use crate::error::{Fault, Outcome};

/// Why guarded work failed: an error of the server, a panic, or a fault of ours.
pub struct Failure {
    code: PgSqlErrorCode,
    message: String,
}

impl Failure {
    /// What was wrong, for the record.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the user's own transaction has to hear of it: it may be tried again, was cancelled, waited
    /// too long for a lock, or the server is going down.
    pub fn concerns_the_caller(&self) -> bool {
        const CLASS: i32 = (1 << 12) - 1; // two characters of six bits
        let class = |code: PgSqlErrorCode| code as i32 & CLASS;
        matches!(
            self.code,
            PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE
                | PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED
                | PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE
        ) || class(self.code) == class(PgSqlErrorCode::ERRCODE_OPERATOR_INTERVENTION)
    }

    /// Raises it after all.
    pub fn raise<T>(self) -> Outcome<T> {
        Err(ErrorReport::new(self.code, self.message, pgrx::function_name!()))
    }
}

impl From<CaughtError> for Failure {
    fn from(caught: CaughtError) -> Self {
        let (CaughtError::PostgresError(report)
        | CaughtError::ErrorReport(report)
        | CaughtError::RustPanic { ereport: report, .. }) = caught;
        Failure { code: report.sql_error_code(), message: report.message().to_owned() }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Failure { code: fault.code(), message: fault.message().to_owned() }
    }
}

/// Runs `work` in a subtransaction, which is rolled back if it fails. A subtransaction that writes nothing
/// takes no transaction id.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Failure> {
    // SAFETY: the pattern of the server's own procedural languages: memory context and resource owner are put
    // back after the subtransaction has ended either way.
    unsafe {
        let (context, owner) = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let result = PgTryBuilder::new(AssertUnwindSafe(|| work().map_err(Failure::from)))
            .catch_others(|caught| Err(Failure::from(caught)))
            .catch_rust_panic(|caught| Err(Failure::from(caught)))
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
