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
/// Most changed sources that are ranked by the question.
const MAX_CHANGED: i64 = 10_000;
/// Most of them whose former claims are looked at, the best ranked, where words decide.
const MAX_SOURCES: i64 = 200;
/// Most former claims that are looked at, those of the best ranked sources.
const MAX_CLAIMS: i64 = 5_000;
/// Most of one source, so that a long one does not hide the others.
const MAX_OF_ONE: i64 = 500;
/// Most chunks without a vector that are looked at for changed sources; `pending` counts all of them.
const MAX_WAITING: i64 = 5_000;

/// Why a source is named that is chunked and has no vector yet.
const NOT_EMBEDDED: &str = "not embedded";
/// Why a source is named that is not chunked yet.
const CHANGED: &str = "changed";

struct Former {
    artifact_id: String,
    binding_id: Option<i32>,
    key: Vec<String>,
    similarity: f64,
    /// What the question's terms in its lexical index weigh: tells owners apart that cover the question alike.
    weight: f64,
    reason: String,
}

/// Sources that answered this question before they changed, best first, and bindings on hold. Rows that the caller
/// cannot see are not named. If more wait than are looked at, a last entry says how many at least. Call it as the
/// owner.
pub fn masked(
    owner: &Owner,
    namespace: &Namespace,
    terms: &Terms,
    vector: Option<&QueryVector>,
    least: f64,
) -> Result<Value, Fault> {
    let mut named = held(owner, namespace)?;
    let (mut former, more) = former(namespace, terms, vector)?;
    former.retain(|owner| owner.similarity >= least);
    former.sort_by(|a, b| {
        b.similarity
            .total_cmp(&a.similarity)
            .then_with(|| b.weight.total_cmp(&a.weight))
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
    if more > 0 {
        named.push(json!({"more": more, "reason": CHANGED}));
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
/// the version before; and how many more wait that were not looked at. Those that are looked at are chosen by the
/// question: by its terms in the lexical index, or by the vectors of the former claims.
fn former(
    namespace: &Namespace,
    terms: &Terms,
    vector: Option<&QueryVector>,
) -> Result<(Vec<Former>, i64), Fault> {
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
        return Ok((Vec::new(), 0));
    }
    let changed = changed(space);
    let (sql, arguments) = match vector {
        Some(query) => (
            by_vector(&changed, query.space),
            vec![
                namespace.id.into(),
                MAX_CLAIMS.into(),
                cortex_core::vector::to_le_bytes(&query.components).into(),
            ],
        ),
        None => {
            let (names, weights): (Vec<String>, Vec<f64>) = terms
                .weights()
                .map(|(term, weight)| (term.to_owned(), weight))
                .unzip();
            (
                by_words(&changed),
                vec![
                    namespace.id.into(),
                    MAX_CLAIMS.into(),
                    names.into(),
                    weights.into(),
                ],
            )
        }
    };
    let mut waiting = 0;
    let rows = db::read(&sql, &arguments, |row| {
        waiting = row.must::<i64>(7)?;
        let Some(artifact_id) = row.get::<String>(1) else {
            return Ok(None);
        };
        let similarity = match (vector, row.get::<i64>(5)) {
            (Some(_), Some(score)) => pool::similarity(score),
            (Some(_), None) => 0.0,
            (None, _) => terms.coverage(&[&row.must::<String>(4)?]),
        };
        Ok(Some(Former {
            artifact_id,
            binding_id: row.get(2),
            key: row.get::<Vec<String>>(3).unwrap_or_default(),
            similarity,
            weight: row.get::<f64>(8).unwrap_or(0.0),
            reason: row.must(6)?,
        }))
    })?;
    let mut best: BTreeMap<String, Former> = BTreeMap::new();
    for row in rows.into_iter().flatten() {
        match best.get_mut(&row.artifact_id) {
            Some(known) => known.similarity = known.similarity.max(row.similarity),
            None => {
                best.insert(row.artifact_id.clone(), row);
            }
        }
    }
    let more = if waiting > MAX_CHANGED {
        not_looked_at(namespace)?
    } else {
        0
    };
    Ok((best.into_values().collect(), more))
}

/// How many changed sources are beyond those looked at, at least: changes without a number are not counted.
fn not_looked_at(namespace: &Namespace) -> Result<i64, Fault> {
    let queued = kept::read_one(
        Access::Index,
        "SELECT coalesce(sum(j.total - j.progress), 0)::int8 FROM cortex.job j \
          WHERE j.namespace_id = $1 AND j.kind = 'chunk' AND j.state <> 'dead'",
        &[namespace.id.into()],
        |row| row.must::<i64>(1),
    )?;
    Ok((queued.unwrap_or(0) - MAX_CHANGED).max(1))
}

/// The common head of both queries: the changed sources and the last version of each that had claims.
fn changed(space: Option<i32>) -> String {
    let (unembedded, embedded) = match space {
        Some(space) => (
            format!(
                "UNION \
                 SELECT v.source_id, '{NOT_EMBEDDED}' FROM ( \
                     SELECT DISTINCT i.version_id FROM ( \
                         SELECT c.version_id FROM cortex.job j JOIN cortex.chunk c \
                             ON c.id BETWEEN (j.payload ->> 'from')::int8 AND (j.payload ->> 'to')::int8 AND c.namespace_id = $1 \
                          WHERE j.namespace_id = $1 AND j.kind = 'embed' AND (j.payload ->> 'space')::int4 = {space} \
                            AND NOT EXISTS (SELECT FROM cortex.emb_{space} e WHERE e.item_id = c.id) LIMIT {MAX_WAITING}) i) w \
                   JOIN cortex.source_version v ON v.id = w.version_id AND v.closed_by IS NULL \
                  WHERE EXISTS (SELECT FROM cortex.unit o WHERE o.source_id = v.source_id AND o.version_id < v.id)"
            ),
            // A version that was replaced before it was embedded has nothing to compare.
            format!(
                "AND EXISTS (SELECT FROM cortex.claim k JOIN cortex.emb_{space} e ON e.item_id = k.id WHERE k.unit_id = u.id)"
            ),
        ),
        None => (String::new(), String::new()),
    };
    format!(
        "WITH changed AS MATERIALIZED ( \
             SELECT w.source_id, '{CHANGED}' AS reason FROM ( \
                 SELECT v.id, v.source_id FROM cortex.source_version v \
                  WHERE v.id > (SELECT min(c.after_version) FROM cortex.change c WHERE c.namespace_id = $1 AND c.seq IS NULL) \
                    AND v.opened_by IN (SELECT c.id FROM cortex.change c WHERE c.namespace_id = $1 AND c.seq IS NULL) \
                    AND v.closed_by IS NULL \
                 UNION ALL \
                 SELECT v.id, v.source_id FROM cortex.job j JOIN cortex.source_version v \
                     ON v.id BETWEEN (j.payload ->> 'from')::int8 AND (j.payload ->> 'to')::int8 \
                    AND v.opened_by = (j.payload ->> 'change')::int8 AND v.closed_by IS NULL \
                  WHERE j.namespace_id = $1 AND j.kind = 'chunk') w \
              WHERE NOT EXISTS (SELECT FROM cortex.document d WHERE d.version_id = w.id) {unembedded} \
              LIMIT {MAX_CHANGED} + 1 \
         ), old AS MATERIALIZED ( \
             SELECT c.source_id, c.reason, o.version_id FROM changed c JOIN LATERAL ( \
                 SELECT u.version_id FROM cortex.unit u \
                   JOIN cortex.source_version v ON v.id = u.version_id AND v.closed_by IS NOT NULL \
                  WHERE u.source_id = c.source_id {embedded} ORDER BY u.version_id DESC LIMIT 1) o ON true \
         )"
    )
}

/// What both queries give back; without any claim a row that only counts.
const COLUMNS: &str = "SELECT s.artifact_id, s.binding_id, s.key, k.body, k.score, k.reason, n.waiting, k.weight \
       FROM (SELECT count(*) AS waiting FROM changed) n";

/// Ranks every former claim by its vector.
fn by_vector(changed: &str, space: i32) -> String {
    format!(
        "{changed} {COLUMNS} LEFT JOIN ( \
             SELECT old.source_id, old.reason, NULL::text AS body, NULL::float8 AS weight, cortex._vector_score(e.embedding, $3) AS score \
               FROM old JOIN cortex.claim k ON k.version_ids @> ARRAY[old.version_id] \
               JOIN cortex.emb_{space} e ON e.item_id = k.id ORDER BY 5 DESC NULLS LAST, k.id LIMIT $2) k ON true \
           LEFT JOIN cortex.source s ON s.id = k.source_id"
    )
}

/// Ranks the former versions by the weight of the question's terms that the lexical index knows in them.
fn by_words(changed: &str) -> String {
    format!(
        "{changed}, held AS MATERIALIZED ( \
             SELECT p.version_id, sum(p.weight) AS weight FROM ( \
                 SELECT DISTINCT p.version_id, w.term, w.weight FROM unnest($3::text[], $4::float8[]) w (term, weight) \
                   JOIN cortex.posting p ON p.namespace_id = $1 AND p.term = w.term AND p.claim_hits IS NOT NULL \
                  WHERE p.version_id IN (SELECT o.version_id FROM old o)) p GROUP BY p.version_id \
         ), ranked AS MATERIALIZED ( \
             SELECT old.*, coalesce(h.weight, 0) AS weight FROM old LEFT JOIN held h ON h.version_id = old.version_id \
              ORDER BY 4 DESC, old.source_id LIMIT {MAX_SOURCES} \
         ) \
         {COLUMNS} LEFT JOIN ( \
             SELECT r.source_id, r.reason, c.body, r.weight, NULL::int8 AS score FROM ranked r JOIN LATERAL ( \
                 SELECT k.id, k.body FROM cortex.claim k WHERE k.version_ids @> ARRAY[r.version_id] \
                  ORDER BY k.id LIMIT {MAX_OF_ONE}) c ON true \
              ORDER BY r.weight DESC, r.source_id, c.id LIMIT $2) k ON true \
           LEFT JOIN cortex.source s ON s.id = k.source_id"
    )
}
