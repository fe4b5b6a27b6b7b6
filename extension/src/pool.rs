//! The pool's functions for readers: they check who calls, then run as the owner.

use std::collections::{BTreeMap, HashSet};

use pgrx::JsonB;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::ask::JsonText;
use crate::chunk::key32;
use crate::db;
use crate::error::{Fault, Outcome, given};
use crate::rights::{self, Owner};
use crate::rows::{self, Rows};
use crate::vector::{self, VectorRef};

/// Most events one call returns.
const MAX_EVENTS: i32 = 10_000;

/// Asks for the builds that a read wanted. The same want again queues nothing, and says so.
#[pg_extern(volatile, requires = ["tables"])]
fn cortex_build_want(
    wanted: Option<JsonText>,
    namespace: default!(Option<&str>, "'default'"),
    query_embedding: default!(Option<VectorRef>, "NULL"),
) -> Outcome<JsonB> {
    let wanted = given(wanted, "wanted")?;
    let namespace = given(namespace, "namespace")?;
    let owner = Owner::enter()?;
    let namespace = rights::readable(namespace, owner.caller())?;
    let embedding = match query_embedding {
        None => None,
        Some(vector) => {
            let dims = db::write_one(
                "SELECT s.dims FROM cortex.space s WHERE s.id = $1",
                &[namespace.space.into()],
                |row| row.must::<i32>(1),
            )?
            .ok_or_else(|| {
                Fault::state(format!(
                    "namespace \"{}\" has no embedding space",
                    namespace.name
                ))
                .hint("Start the sidecar's worker, or call cortex_space_use.")
            })?;
            vector::quantise(&vector, dims)?;
            Some(vector.as_slice().to_vec())
        }
    };
    let told = db::write_one(
        "SELECT cortex._build_want($1, $2::jsonb, $3)",
        &[namespace.id.into(), wanted.0.into(), embedding.into()],
        |row| row.must::<JsonB>(1),
    )?;
    Ok(told.ok_or_else(|| Fault::internal("a want was not answered".into()))?)
}

/// The events of a namespace with a number above `after`, oldest first.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
fn cortex_events(
    namespace: default!(Option<&str>, "'default'"),
    after: default!(Option<i64>, 0),
    max_events: default!(Option<i32>, 100),
) -> Result<
    TableIterator<
        'static,
        (
            name!(event_id, i64),
            name!(kind, String),
            name!(made_at, TimestampWithTimeZone),
            name!(detail, JsonB),
        ),
    >,
    ErrorReport,
> {
    let namespace = given(namespace, "namespace")?;
    let after = given(after, "after")?;
    let max_events = given(max_events, "max_events")?;
    if !(1..=MAX_EVENTS).contains(&max_events) {
        return Err(Fault::argument(format!(
            "max_events = {max_events} is outside 1 to {MAX_EVENTS}"
        ))
        .into());
    }
    let owner = Owner::enter()?;
    let namespace = rights::readable(namespace, owner.caller())?;
    let events = db::read(
        "SELECT e.id, e.kind, e.made_at, e.detail FROM cortex.event e \
          WHERE e.namespace_id = $1 AND e.id > $2 ORDER BY e.id LIMIT $3",
        &[
            namespace.id.into(),
            after.into(),
            i64::from(max_events).into(),
        ],
        |row| {
            Ok((
                row.must::<i64>(1)?,
                row.must::<String>(2)?,
                row.must::<TimestampWithTimeZone>(3)?,
                row.must::<JsonB>(4)?,
            ))
        },
    )?;
    Ok(TableIterator::new(events))
}

/// What the pool of a namespace holds and has done.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
fn cortex_stats(namespace: default!(Option<&str>, "'default'")) -> Outcome<JsonB> {
    let namespace = given(namespace, "namespace")?;
    let owner = Owner::enter()?;
    let namespace = rights::readable(namespace, owner.caller())?;
    let told = db::read_one("SELECT cortex._stats($1)", &[namespace.id.into()], |row| {
        row.must::<JsonB>(1)
    })?;
    Ok(told.ok_or_else(|| Fault::internal("the statistics have no row".into()))?)
}

/// A chunk or claim with what its read-time check needs; a claim of several versions is several of them.
struct Evidence {
    shown: Shown,
    binding: Option<i32>,
    key: Vec<String>,
    hash_key: [u8; 32],
    content: Vec<u8>,
}

/// Id, source, version, place in the unit or text, span, text.
type Shown = (i64, String, i64, i32, i32, i32, String);

/// The chunks behind a unit that are still current, in the order of the text, as far as the caller may see their
/// row: a primary-key look-up under the caller's own rights, as reads do.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
#[expect(clippy::type_complexity, reason = "the columns of the result")]
fn cortex_drill(
    unit_id: Option<i64>,
    namespace: default!(Option<&str>, "'default'"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(chunk_id, i64),
            name!(artifact_id, String),
            name!(version_id, i64),
            name!(ordinal, i32),
            name!(start_byte, i32),
            name!(end_byte, i32),
            name!(body, String),
        ),
    >,
    ErrorReport,
> {
    let shown = behind(
        unit_id,
        namespace,
        "SELECT c.id, s.artifact_id, v.id, c.ordinal, c.start_byte, c.end_byte, c.body, \
                s.binding_id, s.key, s.hash_key, v.content_hash \
           FROM (SELECT k.chunk_id AS id FROM cortex.unit_chunk k WHERE k.unit_id = $1 \
                 UNION \
                 SELECT pg_catalog.unnest(l.chunk_ids) FROM cortex.claim l WHERE l.unit_id = $1) wanted \
           JOIN cortex.chunk c ON c.id = wanted.id \
           JOIN cortex.unit u ON u.id = $1 AND u.evicted_by IS NULL \
           JOIN cortex.source_version v ON v.id = c.version_id AND v.closed_by IS NULL \
           JOIN cortex.source s ON s.id = v.source_id \
          WHERE NOT EXISTS (SELECT FROM cortex.hold h WHERE h.binding_id = s.binding_id AND h.released_by IS NULL) \
          ORDER BY c.version_id, c.ordinal",
    )?;
    Ok(TableIterator::new(shown))
}

/// The claims of a unit that may be served, in their order, with the first span they were drawn from; checked as
/// cortex_drill checks chunks, for each version behind a claim.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
#[expect(clippy::type_complexity, reason = "the columns of the result")]
fn cortex_unit_claims(
    unit_id: Option<i64>,
    namespace: default!(Option<&str>, "'default'"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(claim_id, i64),
            name!(artifact_id, String),
            name!(version_id, i64),
            name!(ordinal, i32),
            name!(start_byte, i32),
            name!(end_byte, i32),
            name!(body, String),
        ),
    >,
    ErrorReport,
> {
    let shown = behind(
        unit_id,
        namespace,
        "SELECT c.id, s.artifact_id, v.id, c.ordinal, c.start_bytes[f.n], c.end_bytes[f.n], c.body, \
                s.binding_id, s.key, s.hash_key, v.content_hash \
           FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id AND u.evicted_by IS NULL \
          CROSS JOIN LATERAL pg_catalog.unnest(c.version_ids) WITH ORDINALITY f (version_id, n) \
           JOIN cortex.source_version v ON v.id = f.version_id \
           JOIN cortex.source s ON s.id = v.source_id \
          WHERE c.unit_id = $1 \
            AND NOT EXISTS (SELECT FROM cortex.source_version o JOIN cortex.source w ON w.id = o.source_id \
                             WHERE o.id = ANY (c.version_ids) AND (o.closed_by IS NOT NULL OR EXISTS ( \
                                   SELECT FROM cortex.hold h WHERE h.binding_id = w.binding_id AND h.released_by IS NULL))) \
          ORDER BY c.ordinal, c.id, f.n",
    )?;
    Ok(TableIterator::new(shown))
}

/// What `sql` finds behind a unit, as far as the caller may see every row that an item rests on.
fn behind(
    unit_id: Option<i64>,
    namespace: Option<&str>,
    sql: &str,
) -> Result<Vec<Shown>, ErrorReport> {
    let unit_id = given(unit_id, "unit_id")?;
    let namespace = given(namespace, "namespace")?;
    let owner = Owner::enter()?;
    let namespace = rights::readable(namespace, owner.caller())?;
    let known = db::read_one(
        "SELECT u.id FROM cortex.unit u WHERE u.id = $1 AND u.namespace_id = $2",
        &[unit_id.into(), namespace.id.into()],
        |row| row.must::<i64>(1),
    )?;
    if known.is_none() {
        return Err(Fault::unknown(format!(
            "there is no unit {unit_id} in namespace \"{}\"",
            namespace.name
        ))
        .hint("View cortex.units lists them.")
        .into());
    }
    let found = db::read(sql, &[unit_id.into()], |row| {
        Ok(Evidence {
            shown: (
                row.must(1)?,
                row.must(2)?,
                row.must(3)?,
                row.must(4)?,
                row.must(5)?,
                row.must(6)?,
                row.must(7)?,
            ),
            binding: row.get(8),
            key: row.get::<Vec<String>>(9).unwrap_or_default(),
            hash_key: key32(row.must::<Vec<u8>>(10)?)?,
            content: row.must(11)?,
        })
    })?;
    let hidden = hidden(&owner, &found)?;
    let dropped: HashSet<i64> = found
        .iter()
        .filter(|evidence| hidden.contains(&evidence.shown.2))
        .map(|evidence| evidence.shown.0)
        .collect();
    let mut told = HashSet::new();
    Ok(found
        .into_iter()
        .map(|evidence| evidence.shown)
        .filter(|shown| !dropped.contains(&shown.0) && told.insert(shown.0))
        .collect())
}

/// Versions of rows that the caller may not see, or that are no longer what the version says.
fn hidden(owner: &Owner, found: &[Evidence]) -> Result<HashSet<i64>, Fault> {
    let mut rows: BTreeMap<i32, BTreeMap<i64, &Evidence>> = BTreeMap::new();
    for evidence in found {
        if let Some(binding) = evidence.binding {
            rows.entry(binding)
                .or_default()
                .insert(evidence.shown.2, evidence);
        }
    }
    let mut hidden = HashSet::new();
    for (binding, versions) in rows {
        let table = Rows::open(binding)?;
        if !table.selectable_by(owner.caller())? {
            hidden.extend(versions.keys());
            continue;
        }
        let keys: Vec<Vec<String>> = versions.values().map(|e| e.key.clone()).collect();
        let live = owner.as_caller(|| table.live(&keys))?;
        for ((version, evidence), values) in versions.iter().zip(live) {
            let same = values
                .is_some_and(|v| rows::hash(&evidence.hash_key, &v).0[..] == evidence.content);
            if !same {
                hidden.insert(*version);
            }
        }
    }
    Ok(hidden)
}
