//! What a question that the pool does not cover finds in the sources themselves: raw text for the reader, and what a
//! build would have to look at.

use std::collections::HashMap;

use cortex_core::hash::Target;
use cortex_core::pool;
use cortex_core::pool::classify::{self, Class, Owner as UnitState};
use cortex_core::pool::floor::CHUNKS_MAX;
use cortex_core::tokens;
use serde_json::{Value, json};

use super::coverage;
use crate::error::Fault;
use crate::kept::{self, Access};
use crate::serve::{self, Item, Request, Served};

/// Chunks by which sources are judged, as many as a plain retrieval would hand over.
const TOP_K: usize = 6;

/// Retrieves chunks until `raw_tokens` are filled, at least those by which sources are judged.
pub fn chunks(request: &Request, raw_tokens: u64) -> Result<Served, Fault> {
    let request = Request {
        target: Target::Chunk,
        ..*request
    };
    serve::serve(&request, |shown| {
        let filled: u64 = shown
            .iter()
            .map(|item| u64::from(tokens::estimate(&item.body)))
            .sum();
        shown.len() >= CHUNKS_MAX || (shown.len() >= TOP_K && filled >= raw_tokens)
    })
}

struct Known {
    source: i64,
    covered: bool,
    fresh_units: bool,
    stale_units: bool,
}

/// The builds that would help, at most three, as `cortex_build_want` takes them.
pub fn wanted(found: &[Item]) -> Result<Vec<Value>, Fault> {
    let top = &found[..found.len().min(TOP_K)];
    let known = known(top)?;
    let mut sources: Vec<(i64, Vec<&Item>)> = Vec::new();
    for item in top {
        let Some(of) = known.get(&item.ranked.item) else {
            continue;
        };
        match sources.iter_mut().find(|(source, _)| *source == of.source) {
            Some((_, items)) => items.push(item),
            None => sources.push((of.source, vec![item])),
        }
    }
    let classes: Vec<Class> = sources
        .iter()
        .map(|(_, items)| class(items, &known))
        .collect();
    let needing: Vec<usize> = (0..sources.len())
        .filter(|&at| classes[at] != Class::Contained)
        .collect();
    let best = |at: usize| {
        let items = sources[at].1.iter();
        items
            .map(|item| coverage::similarity(item))
            .fold(0.0, f64::max)
    };
    Ok(classify::choose(&needing, best)
        .into_iter()
        .filter_map(|at| {
            let (source, items) = &sources[at];
            let first = items.first()?;
            Some(json!({
                "class": classes[at].name(),
                "artifact_id": first.artifact_id,
                "source_id": source,
                "version_id": first.version_id,
                "chunk_ids": items.iter().map(|item| item.ranked.item).collect::<Vec<_>>(),
                "score": best(at),
            }))
        })
        .collect())
}

fn class(items: &[&Item], known: &HashMap<i64, Known>) -> Class {
    let of: Vec<&Known> = items
        .iter()
        .filter_map(|item| known.get(&item.ranked.item))
        .collect();
    let mut units = Vec::new();
    if of.iter().any(|known| known.fresh_units) {
        units.push(UnitState {
            fresh: true,
            holds_all: of.iter().all(|known| known.covered),
        });
    }
    if of.iter().any(|known| known.stale_units) && units.is_empty() {
        units.push(UnitState {
            fresh: false,
            holds_all: false,
        });
    }
    classify::classify(true, &units).class
}

/// What builds have made of the sources of chunks so far.
fn known(items: &[Item]) -> Result<HashMap<i64, Known>, Fault> {
    let ids: Vec<i64> = items.iter().map(|item| item.ranked.item).collect();
    let rows = kept::read(
        Access::Index,
        "SELECT c.id, v.source_id, cortex._covered(c.id), \
                EXISTS (SELECT FROM cortex.unit u JOIN cortex.unit_chunk k ON k.unit_id = u.id \
                         WHERE u.source_id = v.source_id AND u.purpose = 'model' AND u.evicted_by IS NULL AND k.version_id = v.id), \
                EXISTS (SELECT FROM cortex.unit u WHERE u.source_id = v.source_id AND u.purpose = 'model' AND u.evicted_by IS NULL) \
           FROM cortex.chunk c JOIN cortex.source_version v ON v.id = c.version_id WHERE c.id = ANY ($1)",
        &[ids.into()],
        |row| {
            Ok((
                row.must::<i64>(1)?,
                Known {
                    source: row.must(2)?,
                    covered: row.must(3)?,
                    fresh_units: row.must(4)?,
                    stale_units: row.must(5)?,
                },
            ))
        },
    )?;
    Ok(rows.into_iter().collect())
}

/// Whether this question was built before: known questions are at least as similar as `threshold`, and none of them has
/// a part that is stale or never was built. Call it as the owner.
pub fn reused(
    namespace: i32,
    space: i32,
    components: &[i16],
    threshold: f64,
) -> Result<bool, Fault> {
    use cortex_core::pool::reuse::{self, Seed};
    let seeds = kept::read(
        Access::Index,
        "SELECT near.score, cortex._question_built(near.id) FROM ( \
             SELECT q.id, cortex._vector_score(q.embedding, $3) AS score FROM cortex.question q \
              WHERE q.namespace_id = $1 AND q.space_id = $2 ORDER BY 2 DESC NULLS LAST, q.id LIMIT 16) near \
          WHERE near.score IS NOT NULL",
        &[
            namespace.into(),
            space.into(),
            cortex_core::vector::to_le_bytes(components).into(),
        ],
        |row| {
            Ok(Seed {
                similarity: pool::similarity(row.must::<i64>(1)?),
                fresh: row.must(2)?,
            })
        },
    )?;
    Ok(reuse::find(&seeds, threshold).serves())
}
