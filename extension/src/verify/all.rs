//! `cortex_verify_all`: an audit of many traces.

use cortex_core::verify::Report;
use pgrx::JsonB;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use serde::Serialize;

use super::{report, run};
use crate::db;
use crate::error::{Fault, Outcome};
use crate::rights::{self, Owner};

/// Traces whose texts are in memory together.
const AT_ONCE: i64 = 50;

type Audited = (
    i64,
    bool,
    Option<String>,
    String,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
);

/// Verifies every trace of a namespace (or of all) that was recorded at or after `since`: those of the caller, or all of
/// them for a worker. One row a trace; the last five columns are NULL where nothing failed.
// Written out, because `where` is no name in Rust.
#[pg_extern(requires = ["tables"], sql = r#"
CREATE FUNCTION cortex_verify_all(namespace text DEFAULT NULL, since timestamptz DEFAULT NULL)
    RETURNS TABLE (trace_id bigint, ok boolean, level text, outcome text, failed_step text, code text, "where" text, expected text, found text)
    LANGUAGE c STABLE PARALLEL RESTRICTED AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
#[expect(clippy::type_complexity, reason = "the columns of the result")]
fn cortex_verify_all(
    namespace: default!(Option<&str>, "NULL"),
    since: default!(Option<TimestampWithTimeZone>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(trace_id, i64),
            name!(ok, bool),
            name!(level, Option<String>),
            name!(outcome, String),
            name!(failed_step, Option<String>),
            name!(code, Option<String>),
            name!(place, Option<String>),
            name!(expected, Option<String>),
            name!(found, Option<String>),
        ),
    >,
    ErrorReport,
> {
    let owner = Owner::enter()?;
    let all = is_worker(&owner)?;
    if let Some(name) = namespace
        && !all
    {
        rights::readable(name, owner.caller())?;
    }
    let mut rows: Vec<Audited> = Vec::new();
    let mut after = i64::MIN;
    loop {
        let page = page(&owner, all, namespace, since, after, AT_ONCE)?;
        let Some((last, _, _)) = page.last() else {
            break;
        };
        after = *last;
        for (id, namespace, body) in page {
            pgrx::check_for_interrupts!();
            let namespace = rights::any(&namespace)?;
            rows.push(audited(id, run(&body, None, false, Some(namespace))?));
        }
    }
    Ok(TableIterator::new(rows))
}

/// The report on one trace for an audit, whoever asked. Internal: whoever calls it has checked what the caller may see.
#[pg_extern(stable, parallel_restricted, requires = ["tables"], sql = r#"
CREATE FUNCTION cortex._verify_trace(trace_id bigint) RETURNS jsonb
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn verify_trace(trace_id: i64) -> Outcome<JsonB> {
    let owner = Owner::enter()?;
    let found = page(&owner, true, None, None, trace_id.saturating_sub(1), 1)?;
    let Some((_, namespace, body)) = found.into_iter().find(|(id, _, _)| *id == trace_id) else {
        return Err(Fault::unknown(format!("there is no trace {trace_id}")).into());
    };
    Ok(report(&body, None, false, Some(rights::any(&namespace)?))?)
}

/// Whether the caller is trusted with every namespace: a superuser, or who may run the sealer.
fn is_worker(owner: &Owner) -> Result<bool, Fault> {
    let found = db::read_one(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_depend d ON d.objid = p.oid AND d.deptype = 'e' \
                          JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid AND e.extname = 'cortex' \
                         WHERE p.proname = 'cortex_seal' AND pg_catalog.has_function_privilege($1, p.oid, 'execute'))",
        &[owner.caller().into()],
        |row| row.must::<bool>(1),
    )?;
    Ok(found.unwrap_or(false))
}

fn page(
    owner: &Owner,
    all: bool,
    namespace: Option<&str>,
    since: Option<TimestampWithTimeZone>,
    after: i64,
    most: i64,
) -> Result<Vec<(i64, String, String)>, Fault> {
    db::read(
        "SELECT t.id, n.name, t.body FROM cortex.trace t JOIN cortex.namespace n ON n.id = t.namespace_id \
          WHERE t.id > $1 AND ($2::text IS NULL OR n.name = $2) AND ($3::timestamptz IS NULL OR t.created_at >= $3) \
            AND ($4 OR (EXISTS (SELECT FROM pg_catalog.pg_roles a WHERE a.rolname = t.asked_by AND pg_catalog.pg_has_role($5, a.oid, 'usage')) \
                        AND EXISTS (SELECT FROM cortex.namespace_grant g WHERE g.namespace_id = n.id AND pg_catalog.pg_has_role($5, g.role, 'usage')))) \
          ORDER BY t.id LIMIT $6",
        &[
            after.into(),
            namespace.into(),
            since.into(),
            all.into(),
            owner.caller().into(),
            most.into(),
        ],
        |row| {
            Ok((
                row.must::<i64>(1)?,
                row.must::<String>(2)?,
                row.must::<String>(3)?,
            ))
        },
    )
}

fn audited(id: i64, report: Report) -> Audited {
    (
        id,
        report.ok,
        report.level.and_then(word),
        word(report.outcome).unwrap_or_default(),
        report.failed_step,
        report.code.and_then(word),
        report.at,
        report.expected,
        report.found,
    )
}

/// A value that is written as one word.
fn word<T: Serialize>(value: T) -> Option<String> {
    let value = serde_json::to_value(value).ok()?;
    value.as_str().map(String::from)
}
