//! `cortex_source_list`: what a namespace holds besides rows.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::db;
use crate::error::{Fault, given};
use crate::rights::{self, Owner};

/// Most sources that one call lists.
const MAX_SOURCES: i32 = 10_000;

/// Sources with a current version whose id starts with `prefix` and lies behind `after`, by id in byte order. Rows of
/// bound tables are not listed: what may be known of them follows from the table's own rights.
///
/// `state` is `fresh`, `building` until the text is chunked, or `failed`, where `note` says why there are no chunks.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
#[expect(clippy::type_complexity, reason = "the columns of the result")]
fn cortex_source_list(
    prefix: default!(Option<&str>, "''"),
    namespace: default!(Option<&str>, "'default'"),
    after: default!(Option<&str>, "''"),
    max_sources: default!(Option<i32>, 1000),
) -> Result<
    TableIterator<
        'static,
        (
            name!(artifact_id, String),
            name!(version_id, i64),
            name!(state, String),
            name!(title, Option<String>),
            name!(origin, Option<String>),
            name!(dated, Option<String>),
            name!(chunks, Option<i32>),
            name!(claims, Option<i32>),
            name!(note, Option<String>),
            name!(changed_at, Option<TimestampWithTimeZone>),
        ),
    >,
    ErrorReport,
> {
    let prefix = given(prefix, "prefix")?;
    let after = given(after, "after")?;
    let max_sources = given(max_sources, "max_sources")?;
    if !(1..=MAX_SOURCES).contains(&max_sources) {
        return Err(Fault::argument(format!(
            "max_sources = {max_sources} is outside 1 to {MAX_SOURCES}"
        ))
        .hint("List the next ones with after => the last id of this page.")
        .into());
    }
    let owner = Owner::enter()?;
    let namespace = rights::readable(given(namespace, "namespace")?, owner.caller())?;
    let rows = db::read(
        "SELECT s.artifact_id, v.id, \
                CASE WHEN d.version_id IS NULL THEN 'building' WHEN d.note IS NOT NULL THEN 'failed' ELSE 'fresh' END, \
                d.title, d.origin, d.dated, d.chunk_count, d.claim_count, d.note, c.made_at \
           FROM cortex.source s JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL \
           LEFT JOIN cortex.document d ON d.version_id = v.id \
           LEFT JOIN cortex.change c ON c.id = v.opened_by \
          WHERE s.namespace_id = $1 AND s.binding_id IS NULL \
            AND s.artifact_id >= $2 AND pg_catalog.starts_with(s.artifact_id, $2) AND s.artifact_id > $3 \
          ORDER BY s.artifact_id LIMIT $4",
        &[
            namespace.id.into(),
            prefix.into(),
            after.into(),
            i64::from(max_sources).into(),
        ],
        |row| {
            Ok((
                row.must::<String>(1)?,
                row.must::<i64>(2)?,
                row.must::<String>(3)?,
                row.get::<String>(4),
                row.get::<String>(5),
                row.get::<String>(6),
                row.get::<i32>(7),
                row.get::<i32>(8),
                row.get::<String>(9),
                row.get::<TimestampWithTimeZone>(10),
            ))
        },
    )?;
    Ok(TableIterator::new(rows))
}
