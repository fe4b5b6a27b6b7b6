//! Sources that are not rows: handed over whole, chunked at once.

use cortex_core::hash::{Hash, content_hash};
use pgrx::JsonB;
use pgrx::prelude::*;
use serde_json::json;

use crate::chunk::{self, MAX_TEXT, Made, Version, key32};
use crate::db;
use crate::error::{Fault, Outcome, given};
use crate::rows::{Document, Rows};
use crate::sources;

/// Longest artifact id, in bytes: within what an index entry can hold.
const MAX_ARTIFACT: usize = 2_000;

/// Stores a source's text as its current version and makes its chunks reachable in the same commit. The same
/// content again changes nothing and says so.
#[pg_extern(volatile, security_definer, requires = ["tables"])]
#[search_path(pg_catalog, pg_temp)]
fn cortex_source_put(
    artifact_id: Option<&str>,
    body: Option<&str>,
    title: default!(Option<&str>, "NULL"),
    origin: default!(Option<&str>, "NULL"),
    dated: default!(Option<&str>, "NULL"),
    namespace: default!(Option<&str>, "'default'"),
) -> Outcome<JsonB> {
    let artifact_id = given(artifact_id, "artifact_id")?;
    let body = given(body, "body")?;
    let namespace = given(namespace, "namespace")?;
    check_artifact(artifact_id)?;
    if body.len() > MAX_TEXT {
        return Err(Fault::limit(format!(
            "the text has {} bytes, the limit is {MAX_TEXT}",
            body.len()
        ))
        .hint("Split it into several sources.")
        .into());
    }
    let namespace_id = namespace_id("SELECT cortex._namespace($1)", namespace)?;
    let content = [Some(body), title, origin, dated];
    let (version_id, changed) = sources::open_version(namespace_id, artifact_id, &content)?;
    let mut made = Made::default();
    if changed {
        let version = version(version_id)?;
        let document = Document {
            text: body.into(),
            title: title.map(Into::into),
            dated: dated.map(Into::into),
        };
        chunk::store(namespace_id, &version, document, origin, &mut made)?;
        made.queue_embedding(namespace_id)?;
    }
    Ok(JsonB(json!({
        "artifact_id": artifact_id,
        "version_id": version_id,
        "changed": changed,
        "items": made.count(),
    })))
}

/// Says that a source changed outside: its version is no longer served from this commit on. With the new
/// text, a version whose content is the same stays.
#[pg_extern(volatile, security_definer, requires = ["tables"])]
#[search_path(pg_catalog, pg_temp)]
fn cortex_source_changed(
    artifact_id: Option<&str>,
    body: default!(Option<&str>, "NULL"),
    namespace: default!(Option<&str>, "'default'"),
) -> Outcome<JsonB> {
    let artifact_id = given(artifact_id, "artifact_id")?;
    let namespace = given(namespace, "namespace")?;
    let namespace_id = namespace_id("SELECT cortex._namespace_must($1)", namespace)?;
    check_artifact(artifact_id)?;
    if let Some(body) = body
        && is_current(namespace_id, artifact_id, body)?
    {
        return Ok(JsonB(
            json!({"artifact_id": artifact_id, "closed": 0, "unchanged": true}),
        ));
    }
    close(namespace_id, artifact_id)
}

/// Says that a source is gone: none of its claims is served from this commit on.
#[pg_extern(volatile, security_definer, requires = ["tables"])]
#[search_path(pg_catalog, pg_temp)]
fn cortex_source_deleted(
    artifact_id: Option<&str>,
    namespace: default!(Option<&str>, "'default'"),
) -> Outcome<JsonB> {
    let artifact_id = given(artifact_id, "artifact_id")?;
    let namespace = given(namespace, "namespace")?;
    let namespace_id = namespace_id("SELECT cortex._namespace_must($1)", namespace)?;
    check_artifact(artifact_id)?;
    close(namespace_id, artifact_id)
}

fn close(namespace_id: i32, artifact_id: &str) -> Outcome<JsonB> {
    if !known(namespace_id, artifact_id)? {
        return Err(Fault::unknown(format!(
            "there is no source \"{artifact_id}\" in this namespace"
        ))
        .hint("Artifact ids are compared byte by byte; cortex_has_source tells.")
        .into());
    }
    let closed = sources::close_source(namespace_id, artifact_id)?.is_some();
    Ok(JsonB(
        json!({"artifact_id": artifact_id, "closed": i32::from(closed), "unchanged": false}),
    ))
}

/// Whether a source is known, current or not.
fn known(namespace_id: i32, artifact_id: &str) -> Result<bool, Fault> {
    let found = db::write_one(
        "SELECT EXISTS (SELECT FROM cortex.source s WHERE s.namespace_id = $1 AND s.artifact_id = $2)",
        &[namespace_id.into(), artifact_id.into()],
        |row| row.must::<bool>(1),
    )?;
    Ok(found.unwrap_or(false))
}

/// Whether a source has a current version in a namespace that the caller may read. Of a row this is told only to who
/// can see the row.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
fn cortex_has_source(artifact_id: &str, namespace: default!(&str, "'default'")) -> Outcome<bool> {
    let owner = crate::rights::Owner::enter()?;
    let namespace = crate::rights::readable(namespace, owner.caller())?;
    let found = db::read_one(
        "SELECT s.binding_id, s.key FROM cortex.source s \
           JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL \
          WHERE s.namespace_id = $1 AND s.artifact_id = $2",
        &[namespace.id.into(), artifact_id.into()],
        |row| Ok((row.get::<i32>(1), row.get::<Vec<String>>(2))),
    )?;
    let Some((binding, key)) = found else {
        return Ok(false);
    };
    let (Some(binding), Some(key)) = (binding, key) else {
        return Ok(true);
    };
    let table = Rows::open(binding)?;
    if !table.selectable_by(owner.caller())? {
        return Ok(false);
    }
    let live = owner.as_caller(|| table.live(&[key]))?;
    Ok(live.iter().any(Option::is_some))
}

fn check_artifact(artifact_id: &str) -> Result<(), Fault> {
    if artifact_id.is_empty() || artifact_id.len() > MAX_ARTIFACT {
        return Err(Fault::argument(format!(
            "an artifact id of {} bytes is outside 1 to {MAX_ARTIFACT}",
            artifact_id.len()
        )));
    }
    if artifact_id.starts_with("row:") {
        return Err(Fault::argument(format!(
            "\"{artifact_id}\": ids that start with row: belong to bound tables"
        ))
        .hint("Change the row itself, or choose another id."));
    }
    Ok(())
}

fn namespace_id(sql: &str, namespace: &str) -> Result<i32, Fault> {
    let id = db::write_one(sql, &[namespace.into()], |row| row.must::<i32>(1))?;
    id.ok_or_else(|| Fault::internal("a namespace has no id".into()))
}

/// A source version with what its leaves are bound to.
pub fn version(id: i64) -> Result<Version, Fault> {
    let version = db::write_one(
        "SELECT v.id, v.source_id, s.artifact_id, s.hash_key, v.content_hash \
           FROM cortex.source_version v JOIN cortex.source s ON s.id = v.source_id WHERE v.id = $1",
        &[id.into()],
        |row| {
            Ok(Version {
                id: row.must(1)?,
                source_id: row.must(2)?,
                artifact_id: row.must(3)?,
                hash_key: key32(row.must::<Vec<u8>>(4)?)?,
                content: Hash(key32(row.must::<Vec<u8>>(5)?)?),
            })
        },
    )?;
    version.ok_or_else(|| Fault::internal(format!("version {id} has no row")))
}

/// Whether `body`, under the present title, origin and date, is the content of the source's current version.
fn is_current(namespace_id: i32, artifact_id: &str, body: &str) -> Result<bool, Fault> {
    let same = db::write_one(
        "SELECT s.hash_key, v.content_hash, d.title, d.origin, d.dated \
           FROM cortex.source s JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL \
           JOIN cortex.document d ON d.version_id = v.id WHERE s.namespace_id = $1 AND s.artifact_id = $2",
        &[namespace_id.into(), artifact_id.into()],
        |row| {
            let key = key32(row.must::<Vec<u8>>(1)?)?;
            let header: Vec<Option<String>> = (3..=5).map(|n| row.get(n)).collect();
            let content: Vec<Option<&str>> = std::iter::once(Some(body))
                .chain(header.iter().map(Option::as_deref))
                .collect();
            Ok(content_hash(&key, &content).0.to_vec() == row.must::<Vec<u8>>(2)?)
        },
    )?;
    Ok(same.unwrap_or(false))
}
