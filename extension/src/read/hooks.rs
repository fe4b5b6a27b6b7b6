//! Functions that a namespace brings along: they run with the caller's rights, in a subtransaction, for so long and no
//! longer. Whatever goes wrong in one is a reason to do without it, never a failed read.

use pgrx::datum::DatumWithOid;
use pgrx::{JsonB, pg_sys};
use serde_json::json;

use crate::db;
use crate::error::Fault;
use crate::rights::Owner;
use crate::serve::Item;
use crate::subxact;

/// Longest answer of a header function that is looked at, in bytes.
const MAX_HEADER: usize = 4 << 10;

/// Scores of a reranker, `None` for what is not a number; or why there are none.
pub fn rerank(
    owner: &Owner,
    function: &str,
    timeout_ms: i32,
    query: &str,
    texts: &[&str],
) -> Result<Result<Vec<Option<f64>>, String>, Fault> {
    let arguments: [DatumWithOid; 2] = [
        query.into(),
        texts
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
            .into(),
    ];
    called(owner, function, "text, text[]", timeout_ms, |name| {
        let sql = format!("SELECT {name}($1, $2)::pg_catalog.float8[]");
        let found = db::read_one(&sql, &arguments, |row| Ok(row.get::<Vec<Option<f64>>>(1)))?;
        found
            .flatten()
            .ok_or_else(|| Fault::argument("it returned NULL".into()))
    })
}

/// What a header function says over a source; or why it says nothing.
pub fn header(
    owner: &Owner,
    function: &str,
    timeout_ms: i32,
    item: &Item,
) -> Result<Result<String, String>, Fault> {
    let about = json!({
        "artifact_id": item.artifact_id,
        "title": item.title,
        "origin": item.origin,
        "date": item.dated,
    });
    called(owner, function, "jsonb", timeout_ms, |name| {
        let sql = format!("SELECT {name}($1)::pg_catalog.text");
        let found = db::read_one(&sql, &[JsonB(about.clone()).into()], |row| {
            Ok(row.get::<String>(1))
        })?;
        let mut text = found.flatten().unwrap_or_default();
        if text.len() > MAX_HEADER {
            let mut end = MAX_HEADER;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
        Ok(text)
    })
}

/// Calls a function of the user's. The outer error is one that concerns the caller (a cancelled statement), the inner
/// one the function's own.
fn called<T>(
    owner: &Owner,
    function: &str,
    signature: &str,
    timeout_ms: i32,
    call: impl FnOnce(&str) -> Result<T, Fault>,
) -> Result<Result<T, String>, Fault> {
    // SAFETY: a look at a variable of this backend.
    #[cfg(any(feature = "pg14", feature = "pg15", feature = "pg16"))]
    if unsafe { pg_sys::IsInParallelMode() } {
        // Its faults are caught in a subtransaction, which these versions do not begin there.
        return Ok(Err("it is not called in a parallel plan".into()));
    }
    let deadline = Deadline::set(timeout_ms);
    let outcome = owner.as_caller(|| {
        Ok(subxact::guarded(|| {
            // By the catalog's own name, so that nothing of the setting's text becomes SQL.
            let resolved = db::read_one(
                "SELECT pg_catalog.format('%I.%I', n.nspname, p.proname) \
                   FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
                  WHERE p.oid = pg_catalog.to_regprocedure($1 || '(' || $2 || ')')",
                &[bare(function).into(), signature.into()],
                |row| row.must::<String>(1),
            )?;
            let name = resolved.ok_or_else(|| {
                Fault::unknown(format!("function {}({signature}) does not exist", bare(function)))
            })?;
            call(&name)
        }))
    })?;
    let ours = deadline.is_some_and(Deadline::restore);
    match outcome {
        Ok(value) => Ok(Ok(value)),
        Err(_) if ours => Ok(Err(format!("it took longer than {timeout_ms} ms"))),
        Err(fault) if fault.concerns_the_caller() => Err(fault),
        Err(fault) => Ok(Err(fault.message().to_owned())),
    }
}

/// `name(arguments)` and `name` alone both name the function.
fn bare(function: &str) -> &str {
    function.split('(').next().unwrap_or(function).trim()
}

/// The server's statement timeout, brought forward for one call.
struct Deadline {
    before: Option<pg_sys::TimestampTz>,
    ours: pg_sys::TimestampTz,
}

/// `STATEMENT_TIMEOUT` of enum `TimeoutId` in the server's utils/timeout.h, the same in 14 to 18; pgrx does not bind
/// that header.
const STATEMENT_TIMEOUT: std::ffi::c_uint = 3;

unsafe extern "C" {
    fn enable_timeout_at(id: std::ffi::c_uint, at: pg_sys::TimestampTz);
    fn disable_timeout(id: std::ffi::c_uint, keep_indicator: bool);
    fn get_timeout_active(id: std::ffi::c_uint) -> bool;
    fn get_timeout_indicator(id: std::ffi::c_uint, reset_indicator: bool) -> bool;
    fn get_timeout_finish_time(id: std::ffi::c_uint) -> pg_sys::TimestampTz;
}

impl Deadline {
    /// `None` if the statement ends sooner anyway.
    fn set(timeout_ms: i32) -> Option<Self> {
        // SAFETY: the server's own timers; this one is registered in every backend and raises at the next check for
        // interrupts, as a statement timeout does.
        unsafe {
            let ours = pg_sys::GetCurrentTimestamp() + i64::from(timeout_ms.max(1)) * 1_000;
            let before = get_timeout_active(STATEMENT_TIMEOUT)
                .then(|| get_timeout_finish_time(STATEMENT_TIMEOUT));
            if before.is_some_and(|before| before <= ours) {
                return None;
            }
            enable_timeout_at(STATEMENT_TIMEOUT, ours);
            Some(Deadline { before, ours })
        }
    }

    /// Puts the statement's own deadline back. Answers whether ours had passed.
    ///
    /// A function that ended just as its time ran out was not cancelled: the cancel still waits for the next check for
    /// interrupts, which would be one of the caller's statement. The indicator tells that it was our timer that asked
    /// for it, and it is taken back. A user's own cancel of the same moment goes with it, since the server keeps one
    /// flag for both; it does not tell them apart either.
    fn restore(self) -> bool {
        // SAFETY: as in `set`. Both flags are the backend's own, and are read by it alone.
        unsafe {
            disable_timeout(STATEMENT_TIMEOUT, true);
            if get_timeout_indicator(STATEMENT_TIMEOUT, true) {
                pg_sys::QueryCancelPending = 0;
            }
            if let Some(before) = self.before {
                enable_timeout_at(STATEMENT_TIMEOUT, before);
            }
            pg_sys::GetCurrentTimestamp() >= self.ours
        }
    }
}
