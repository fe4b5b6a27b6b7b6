//! Errors as the user sees them: what was wrong, with the value, and what to do.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgSqlErrorCode, function_name};

/// A failed call: SQLSTATE, message, and where they help, detail and hint.
#[derive(Debug)]
pub struct Fault {
    code: PgSqlErrorCode,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
}

impl Fault {
    fn new(code: PgSqlErrorCode, message: String) -> Self {
        Fault {
            code,
            message,
            detail: None,
            hint: None,
        }
    }

    /// An error of the server or a panic, as it was caught.
    pub fn caught(
        code: PgSqlErrorCode,
        message: String,
        detail: Option<String>,
        hint: Option<String>,
    ) -> Self {
        Fault {
            code,
            message,
            detail,
            hint,
        }
    }

    /// 22023: an argument that no state of the database could make right.
    pub fn argument(message: String) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, message)
    }

    /// 55000: right in itself, but not in the present state.
    pub fn state(message: String) -> Self {
        Self::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            message,
        )
    }

    /// 42704: something named that does not exist (or that the caller may not know of).
    pub fn unknown(message: String) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT, message)
    }

    /// 42703: a column that does not exist.
    pub fn undefined_column(message: String) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN, message)
    }

    /// 55P03: a lock was not to be had in time.
    pub fn lock(message: String) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE, message)
    }

    /// 25001: not possible in a transaction like this one.
    pub fn transaction(message: String) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_ACTIVE_SQL_TRANSACTION, message)
    }

    /// 42710: something that exists already.
    pub fn duplicate(message: String) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_DUPLICATE_OBJECT, message)
    }

    /// 42501: the caller lacks a right.
    pub fn privilege(message: String) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
    }

    /// 54000: over a limit of ours.
    pub fn limit(message: String) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message)
    }

    /// 40001: the statement may be tried again.
    pub fn retry(message: String) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE, message)
    }

    /// 0A000: promised for later.
    pub fn unsupported(message: String) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED, message)
    }

    /// XX000: a fault of ours.
    pub fn internal(message: String) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, message)
    }

    /// Adds the detail line.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds the hint line: what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The SQLSTATE.
    pub fn code(&self) -> PgSqlErrorCode {
        self.code
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

    /// Whether the server ran out of disk, memory or connections: a reason to try again, not one of the data's.
    pub fn lacks_resources(&self) -> bool {
        const CLASS: i32 = (1 << 12) - 1;
        self.code as i32 & CLASS == PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES as i32 & CLASS
    }

    /// Message and hint on one line, for records that a person reads later.
    pub fn sentence(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}. {hint}", self.message),
            None => self.message.clone(),
        }
    }

    /// The message alone, for records of a fault.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<Fault> for ErrorReport {
    fn from(fault: Fault) -> Self {
        let mut report = ErrorReport::new(fault.code, fault.message, function_name!());
        if let Some(detail) = fault.detail {
            report = report.set_detail(detail);
        }
        if let Some(hint) = fault.hint {
            report = report.set_hint(hint);
        }
        report
    }
}

/// An argument that may not be NULL, of a function that is not STRICT because others may. 22004 if it is.
pub fn given<T>(value: Option<T>, name: &str) -> Result<T, Fault> {
    value.ok_or_else(|| {
        Fault::new(
            PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            format!("{name} is NULL"),
        )
    })
}

/// What every SQL function returns.
pub type Outcome<T> = Result<T, ErrorReport>;
