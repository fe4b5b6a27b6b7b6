//! Claims that a model made: the checks and the storage behind `cortex_build_commit`.

use cortex_core::hash::Target;
use cortex_core::index_text::{Header, Words};
use cortex_core::nearest;
use cortex_core::pool::{backoff, sift};
use pgrx::JsonB;
use pgrx::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::ask::JsonText;
use crate::chunk::{insert_postings, leaf, new_ids};
use crate::db;
use crate::error::{Fault, Outcome, given};
use crate::put;
use crate::sources::change_id;

/// Which claims of a model are taken in, and how many are left out why; see [`cortex_core::pool::sift`].
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._sift_claims(claims jsonb, chunk_ids bigint[], bodies text[], title text, held text[]) RETURNS jsonb
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn sift_claims(
    claims: Option<JsonText>,
    chunk_ids: Option<Vec<Option<i64>>>,
    bodies: Option<Vec<Option<String>>>,
    title: Option<&str>,
    held: Option<Vec<Option<String>>>,
) -> Outcome<JsonB> {
    let claims: Vec<Value> = serde_json::from_str(&given(claims, "claims")?.0)
        .map_err(|error| Fault::argument(format!("claims cannot be read: {error}")))?;
    let ids = chunk_ids.unwrap_or_default();
    let bodies = bodies.unwrap_or_default();
    let chunks: Vec<(i64, &str)> = ids
        .into_iter()
        .zip(&bodies)
        .filter_map(|(id, body)| Some((id?, body.as_deref()?)))
        .collect();
    let held = held.unwrap_or_default();
    let held: Vec<&str> = held.iter().flatten().map(String::as_str).collect();
    let sifted = serde_json::to_value(sift::sift(&claims, &chunks, title, &held));
    let sifted = sifted.map_err(|error| Fault::internal(format!("sifted claims: {error}")))?;
    Ok(JsonB(sifted))
}

/// Seconds that a build waits after so many failures in a row.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._build_backoff(failures integer) RETURNS integer
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn build_backoff(failures: i32) -> i32 {
    backoff::seconds(failures.max(0).unsigned_abs()) as i32
}

/// The known word nearest to a mistyped one.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._nearest(word text, known text[]) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn nearest_word(word: &str, known: Vec<Option<String>>) -> Option<String> {
    let known: Vec<&str> = known.iter().flatten().map(String::as_str).collect();
    nearest::nearest(word, &known).map(str::to_owned)
}

/// A claim to store, with the chunks of the version that it was drawn from.
#[derive(Deserialize)]
struct Drawn {
    claim: String,
    chunks: Vec<i64>,
}

/// Adds claims (`[{"claim", "chunks"}]`) to a unit of one source version, with leaves and postings, and records what
/// the build added and cost. Answers with the ids of the claims, in order.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._add_claims(namespace_id integer, unit_id bigint, version_id bigint, claims jsonb, model text,
                                   prompt_tokens bigint, completion_tokens bigint) RETURNS bigint[]
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn add_claims(
    namespace_id: Option<i32>,
    unit_id: Option<i64>,
    version_id: Option<i64>,
    claims: Option<JsonB>,
    model: Option<&str>,
    prompt_tokens: Option<i64>,
    completion_tokens: Option<i64>,
) -> Outcome<Vec<i64>> {
    let namespace_id = given(namespace_id, "namespace_id")?;
    let unit_id = given(unit_id, "unit_id")?;
    let version_id = given(version_id, "version_id")?;
    let drawn: Vec<Drawn> = serde_json::from_value(given(claims, "claims")?.0)
        .map_err(|error| Fault::internal(format!("claims to add: {error}")))?;
    let change = change_id(namespace_id)?;
    let claims = placed(version_id, drawn)?;
    let (title, dated) = db::write_one(
        "SELECT d.title, d.dated FROM cortex.document d WHERE d.version_id = $1",
        &[version_id.into()],
        |row| Ok((row.get::<String>(1), row.get::<String>(2))),
    )?
    .unwrap_or_default();
    let header = Header::new(title.as_deref(), dated.as_deref());
    let words: Vec<Words> = claims
        .iter()
        .map(|claim| header.words(&claim.body))
        .collect();
    let ids = new_ids(claims.len())?;
    let length: i64 = words.iter().map(|words| i64::from(words.length)).sum();
    if !ids.is_empty() {
        insert(namespace_id, change, unit_id, version_id, &ids, &claims)?;
        insert_postings(namespace_id, change, version_id, (&[], &[]), (&ids, &words))?;
    }
    db::execute(
        "INSERT INTO cortex.unit_addition (namespace_id, unit_id, version_id, claim_count, claim_terms, model, \
                                           prompt_tokens, completion_tokens, added_by) \
         VALUES ($1, $2, $3, $4, $5, $6, coalesce($7, 0), coalesce($8, 0), $9)",
        &[
            namespace_id.into(),
            unit_id.into(),
            version_id.into(),
            (ids.len() as i32).into(),
            length.into(),
            model.into(),
            prompt_tokens.into(),
            completion_tokens.into(),
            change.into(),
        ],
    )?;
    Ok(ids)
}

/// A claim with the spans that it was drawn from: chunk, first byte, byte after the last.
struct Placed {
    body: String,
    spans: Vec<(i64, i32, i32)>,
}

fn placed(version_id: i64, drawn: Vec<Drawn>) -> Result<Vec<Placed>, Fault> {
    let spans = db::write(
        "SELECT c.id, c.start_byte, c.end_byte FROM cortex.chunk c WHERE c.version_id = $1",
        &[version_id.into()],
        |row| {
            Ok((
                row.must::<i64>(1)?,
                (row.must::<i32>(2)?, row.must::<i32>(3)?),
            ))
        },
    )?;
    let spans: std::collections::HashMap<i64, (i32, i32)> = spans.into_iter().collect();
    let place = |drawn: Drawn| {
        let found = drawn.chunks.iter().map(|id| match spans.get(id) {
            Some((start, end)) => Ok((*id, *start, *end)),
            None => Err(Fault::internal(format!(
                "version {version_id} has no chunk {id}"
            ))),
        });
        Ok(Placed {
            spans: found.collect::<Result<_, Fault>>()?,
            body: drawn.claim,
        })
    };
    drawn.into_iter().map(place).collect()
}

fn insert(
    namespace_id: i32,
    change: i64,
    unit_id: i64,
    version_id: i64,
    ids: &[i64],
    claims: &[Placed],
) -> Result<(), Fault> {
    let version = put::version(version_id)?;
    let mut leaves = Vec::with_capacity(claims.len());
    for (id, claim) in ids.iter().zip(claims) {
        let Some((_, start, end)) = claim.spans.first() else {
            return Err(Fault::internal("a claim to add cites no chunk".into()));
        };
        let span = (*start as u64, *end as u64);
        leaves.push(leaf(Target::Claim, *id, &version, span, &claim.body)?);
    }
    // Arrays in a column of rows are not rectangular: one row for each span, put together again by claim.
    let mut of = Vec::new();
    let (mut chunks, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for (n, claim) in (1i32..).zip(claims) {
        for (chunk, start, end) in &claim.spans {
            of.push(n);
            chunks.push(*chunk);
            starts.push(*start);
            ends.push(*end);
        }
    }
    db::execute(
        "INSERT INTO cortex.claim (id, namespace_id, unit_id, ordinal, body, leaf, version_ids, chunk_ids, \
                                   start_bytes, end_bytes, added_by) \
         SELECT u.id, $1, $2, held.last + u.n::int4, u.body, u.leaf, s.versions, s.chunks, s.starts, s.ends, $4 \
           FROM ROWS FROM (unnest($5::int8[]), unnest($6::text[]), unnest($7::bytea[])) WITH ORDINALITY AS u(id, body, leaf, n) \
           JOIN (SELECT p.claim, pg_catalog.array_agg($3::int8) AS versions, pg_catalog.array_agg(p.chunk ORDER BY p.n) AS chunks, \
                        pg_catalog.array_agg(p.s ORDER BY p.n) AS starts, pg_catalog.array_agg(p.e ORDER BY p.n) AS ends \
                   FROM ROWS FROM (unnest($8::int4[]), unnest($9::int8[]), unnest($10::int4[]), unnest($11::int4[])) \
                        WITH ORDINALITY AS p(claim, chunk, s, e, n) GROUP BY p.claim) s ON s.claim = u.n \
          CROSS JOIN (SELECT coalesce(max(c.ordinal), 0) AS last FROM cortex.claim c WHERE c.unit_id = $2) held",
        &[
            namespace_id.into(),
            unit_id.into(),
            version_id.into(),
            change.into(),
            ids.to_vec().into(),
            claims
                .iter()
                .map(|claim| claim.body.clone())
                .collect::<Vec<_>>()
                .into(),
            leaves.into(),
            of.into(),
            chunks.into(),
            starts.into(),
            ends.into(),
        ],
    )?;
    Ok(())
}
