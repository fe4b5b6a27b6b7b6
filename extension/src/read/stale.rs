//! What a read leaves out because its source changed and the new content is not reachable yet: told, so that no fact
//! disappears in silence.

use std::collections::{BTreeMap, HashSet};

use cortex_core::pool;
use cortex_core::pool::terms::Terms;
use serde_json::{Value, json};

use crate::db;
use crate::error::Fault;
use crate::kept::{self, Access};
use crate::retrieve::QueryVector;
use crate::rights::{Namespace, Owner};
use crate::rows::Rows;

/// Most owners that are named.
const MAX_NAMED: usize = 8;
/// Most changed sources whose former claims are looked at.
const MAX_SOURCES: i64 = 200;
/// Most of their claims.
const MAX_CLAIMS: i64 = 2_000;
/// Most chunks without a vector that are looked at for changed sources; `pending` counts all of them.
const MAX_WAITING: i64 = 5_000;

/// Why a source is named that is chunked and has no vector yet.
const NOT_EMBEDDED: &str = "not embedded";

struct Former {
    artifact_id: String,
    binding_id: Option<i32>,
    key: Vec<String>,
    similarity: f64,
    reason: String,
}

/// Sources that answered this question before they changed, best first, and bindings on hold. Rows that the caller
/// cannot see are not named. Call it as the owner.
pub fn masked(
    owner: &Owner,
    namespace: &Namespace,
    terms: &Terms,
    vector: Option<&QueryVector>,
    least: f64,
) -> Result<Value, Fault> {
    let mut named = held(owner, namespace)?;
    let mut former = former(namespace, terms, vector)?;
    former.retain(|owner| owner.similarity >= least);
    former.sort_by(|a, b| {
        b.similarity
            .total_cmp(&a.similarity)
            .then_with(|| a.artifact_id.cmp(&b.artifact_id))
    });
    for source in former {
        if named.len() >= MAX_NAMED {
            break;
        }
        if source.may_be_named(owner)? {
            named.push(json!({
                "artifact_id": source.artifact_id,
                "reason": source.reason,
                "match_score": source.similarity,
            }));
        }
    }
    Ok(Value::Array(named))
}

/// Without the sources that wait for a vector only and are in the read all the same. Where words and vectors are asked,
/// what only words find stands far down, so it may or may not be.
pub fn unless_shown(named: Value, shown: &HashSet<&str>) -> Value {
    let Value::Array(mut named) = named else {
        return named;
    };
    named.retain(|source| {
        let artifact = source["artifact_id"].as_str();
        source["reason"] != NOT_EMBEDDED || artifact.is_none_or(|name| !shown.contains(name))
    });
    Value::Array(named)
}

impl Former {
    fn may_be_named(&self, owner: &Owner) -> Result<bool, Fault> {
        let Some(binding) = self.binding_id else {
            return Ok(true);
        };
        let table = Rows::open(binding)?;
        if !table.selectable_by(owner.caller())? {
            return Ok(false);
        }
        let live = owner.as_caller(|| table.live(std::slice::from_ref(&self.key)))?;
        Ok(live.iter().any(Option::is_some))
    }
}

/// Bindings on hold whose table the caller may SELECT from: none of their claims is served.
fn held(owner: &Owner, namespace: &Namespace) -> Result<Vec<Value>, Fault> {
    kept::read(
        Access::Index,
        "SELECT DISTINCT ON (b.name) b.name, h.reason \
           FROM cortex.binding b JOIN cortex.hold h ON h.binding_id = b.id AND h.released_by IS NULL \
          WHERE b.namespace_id = $1 AND h.reason <> 'unbound' \
            AND pg_catalog.has_table_privilege($2, b.relation, 'SELECT') \
          ORDER BY b.name, h.id LIMIT 4",
        &[namespace.id.into(), owner.caller().into()],
        |row| {
            Ok(json!({
                "binding": row.must::<String>(1)?,
                "reason": format!("held: {}", row.must::<String>(2)?),
            }))
        },
    )
}

/// Sources whose current version is not chunked, or for a read by vector not embedded, with the best of the claims of
/// the version before.
fn former(
    namespace: &Namespace,
    terms: &Terms,
    vector: Option<&QueryVector>,
) -> Result<Vec<Former>, Fault> {
    let space = vector.map(|query| query.space);
    // Mostly nothing waits, and then there is nothing to look for.
    let waits = kept::read_one(
        Access::Index,
        "SELECT EXISTS (SELECT FROM cortex.change c WHERE c.namespace_id = $1 AND c.seq IS NULL) \
             OR EXISTS (SELECT FROM cortex.job j WHERE j.namespace_id = $1 \
                           AND (j.kind = 'chunk' OR j.kind = 'embed' AND (j.payload ->> 'space')::int4 = $2))",
        &[namespace.id.into(), space.into()],
        |row| row.must::<bool>(1),
    )?;
    if waits != Some(true) {
        return Ok(Vec::new());
    }
    let (score, join, embedded) = match vector {
        Some(query) => (
            "cortex._vector_score(e.embedding, $4)",
            format!("LEFT JOIN cortex.emb_{} e ON e.item_id = k.id", query.space),
            // A version that was replaced before it was embedded has nothing to compare.
            format!(
                "AND EXISTS (SELECT FROM cortex.emb_{} e WHERE e.version_id = o.id \
                               AND e.namespace_id = $1 AND e.target = 'c')",
                query.space
            ),
        ),
        None => (
            "NULL::int8 + 0 * pg_catalog.octet_length($4)",
            String::new(),
            String::new(),
        ),
    };
    let unembedded = space.map_or(String::new(), |space| {
        format!(
            "UNION \
             SELECT v.source_id, '{NOT_EMBEDDED}' FROM ( \
                 SELECT DISTINCT i.version_id FROM ( \
                     SELECT c.version_id FROM cortex.job j JOIN cortex.chunk c \
                         ON c.id BETWEEN (j.payload ->> 'from')::int8 AND (j.payload ->> 'to')::int8 AND c.namespace_id = $1 \
                      WHERE j.namespace_id = $1 AND j.kind = 'embed' AND (j.payload ->> 'space')::int4 = {space} \
                        AND NOT EXISTS (SELECT FROM cortex.emb_{space} e WHERE e.item_id = c.id) LIMIT {MAX_WAITING}) i) w \
               JOIN cortex.source_version v ON v.id = w.version_id AND v.closed_by IS NULL \
              WHERE EXISTS (SELECT FROM cortex.source_version o WHERE o.source_id = v.source_id AND o.closed_by IS NOT NULL)"
        )
    });
    let components = vector.map_or(Vec::new(), |query| {
        cortex_core::vector::to_le_bytes(&query.components)
    });
    let sql = format!(
        "WITH changed AS MATERIALIZED ( \
             SELECT w.source_id, 'changed' AS reason FROM ( \
                 SELECT v.id, v.source_id FROM cortex.source_version v \
                  WHERE v.id > (SELECT min(c.after_version) FROM cortex.change c WHERE c.namespace_id = $1 AND c.seq IS NULL) \
                    AND v.opened_by IN (SELECT c.id FROM cortex.change c WHERE c.namespace_id = $1 AND c.seq IS NULL) \
                    AND v.closed_by IS NULL \
                 UNION ALL \
                 SELECT v.id, v.source_id FROM cortex.job j JOIN cortex.source_version v \
                     ON v.id BETWEEN (j.payload ->> 'from')::int8 AND (j.payload ->> 'to')::int8 \
                    AND v.opened_by = (j.payload ->> 'change')::int8 AND v.closed_by IS NULL \
                  WHERE j.namespace_id = $1 AND j.kind = 'chunk') w \
              WHERE NOT EXISTS (SELECT FROM cortex.document d WHERE d.version_id = w.id) {unembedded} LIMIT $2 \
         ) \
         SELECT s.artifact_id, s.binding_id, s.key, k.body, {score}, changed.reason \
           FROM changed JOIN cortex.source s ON s.id = changed.source_id \
           JOIN LATERAL (SELECT o.id FROM cortex.source_version o JOIN cortex.document d ON d.version_id = o.id \
                          WHERE o.source_id = s.id AND o.closed_by IS NOT NULL {embedded} ORDER BY o.id DESC LIMIT 1) old ON true \
           JOIN cortex.claim k ON k.version_ids @> ARRAY[old.id] {join} LIMIT $3"
    );
    let rows = db::read(
        &sql,
        &[
            namespace.id.into(),
            MAX_SOURCES.into(),
            MAX_CLAIMS.into(),
            components.into(),
        ],
        |row| {
            let similarity = match (vector, row.get::<i64>(5)) {
                (Some(_), Some(score)) => pool::similarity(score),
                (Some(_), None) => 0.0,
                (None, _) => terms.coverage(&[&row.must::<String>(4)?]),
            };
            Ok(Former {
                artifact_id: row.must(1)?,
                binding_id: row.get(2),
                key: row.get::<Vec<String>>(3).unwrap_or_default(),
                similarity,
                reason: row.must(6)?,
            })
        },
    )?;
    let mut best: BTreeMap<String, Former> = BTreeMap::new();
    for row in rows {
        match best.get_mut(&row.artifact_id) {
            Some(known) => known.similarity = known.similarity.max(row.similarity),
            None => {
                best.insert(row.artifact_id.clone(), row);
            }
        }
    }
    Ok(best.into_values().collect())
}
