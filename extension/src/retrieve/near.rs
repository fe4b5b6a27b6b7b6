//! The vector arm: exactly by one-byte copies, or in large scopes by the space's HNSW index where that was measured
//! to find the nearest.

use std::cmp::Reverse;

use cortex_core::hash::Target;
use cortex_core::receipt::{Nominator, Stats};
use cortex_core::{packed, vector as quant};
use pgrx::JsonB;
use pgrx::prelude::*;
use serde_json::json;

use super::{NEAR_DEPTH, QueryVector, Question, Scope, VectorArm, When};
use crate::db;
use crate::error::{Fault, Outcome, given};
use crate::kept::{self, Access};
use crate::lookup;
use crate::rights::{self, Namespace, Owner};
use crate::vector::{self, VectorRef};

/// Most candidates that an approximate index nominates; beyond, the scope is scanned.
const MAX_NOMINEES: u32 = 1_000;
/// Nominees whose exact scores are looked up one by one, however small their scope.
const FEW_NOMINEES: usize = 2_000;
/// An index is asked where in this share of reads it found all of the nearest [`TOP`].
const LEAST_RECALL: f64 = 0.995;
/// A scope that is less of its space than this is scanned: the index would mostly find what lies outside.
const LEAST_SHARE: f64 = 0.1;
/// Values of `hnsw.ef_search` that are measured: the first that finds enough is used.
const EFS: [u32; 4] = [100, 200, 400, 800];
/// How many of the nearest the index must find when it is measured.
const TOP: usize = 40;
/// Stored vectors that stand for questions when the index is measured.
const PROBES: usize = 64;

impl Scope<'_> {
    pub(super) fn vector(&self, query: &QueryVector, stats: &Stats) -> Result<VectorArm, Fault> {
        if let Some(nominees) = self.question.nominees {
            let ranked = self.rescore(query, nominees)?;
            return Ok(VectorArm {
                ranked,
                nominator: Nominator::Approximate,
                nominees: nominees.to_vec(),
                matched: nominees.len() as u64,
            });
        }
        let large = stats.items > self.question.namespace.exact_items
            && self.question.depth <= MAX_NOMINEES
            && matches!(self.question.when, When::Now);
        if large
            && let Some(ef) = self.index_finds(query, stats)?
            && let Some(nominated) = self.nominate(query, ef)?
        {
            return Ok(nominated);
        }
        self.exact(query, stats)
    }

    /// The `hnsw.ef_search` with which the space's index was measured to find the nearest; `None` where it does not, or
    /// this scope is too little of the space for it.
    fn index_finds(&self, query: &QueryVector, stats: &Stats) -> Result<Option<u32>, Fault> {
        let sql = "SELECT coalesce(s.index_recall, 0), coalesce(s.index_ef, 0), greatest(c.reltuples, 0)::float8 FROM cortex.space s \
                     LEFT JOIN pg_catalog.pg_class c ON c.oid = pg_catalog.to_regclass('cortex.emb_' || s.id) WHERE s.id = $1";
        let found = kept::read_one(Access::Index, sql, &[query.space.into()], |row| {
            let rows = row.get::<f64>(3).unwrap_or(0.0);
            Ok((row.must::<f64>(1)?, row.must::<i32>(2)?, rows))
        })?;
        let Some((recall, ef, rows)) = found else {
            return Ok(None);
        };
        let share = if rows > 0.0 {
            stats.items as f64 / rows
        } else {
            1.0
        };
        let finds = recall >= LEAST_RECALL && share > LEAST_SHARE;
        Ok(finds.then_some(ef.max(0).unsigned_abs()))
    }

    /// The nearest items of the whole scope. One-byte copies nominate all that can be among them, visible or not;
    /// exact scores of the visible ones decide. Where too few are visible, more are nominated.
    fn exact(&self, query: &QueryVector, stats: &Stats) -> Result<VectorArm, Fault> {
        let depth = self.question.depth as usize;
        let mut wanted = depth + depth / 4;
        let mut ranked = loop {
            let mut scan = packed::Scan::new(&query.components, wanted);
            lookup::blocks(
                query.space,
                self.question.namespace.id,
                self.letter().as_bytes()[0],
                |block| {
                    vector::scan_block(&mut scan, block).map_err(|error| {
                        Fault::internal(format!("space {} is damaged: {error}", query.space))
                    })
                },
            )?;
            let found = scan.end();
            // Beyond, looking up one by one costs more than going through all.
            if found.items.len() > FEW_NOMINEES && found.items.len() > found.seen / 16 {
                break self.whole(query)?;
            }
            let ranked = self.rescore(query, &found.items)?;
            let sure = match found.bar {
                Some(bar) => ranked.partition_point(|&(_, score)| score >= bar),
                None => depth,
            };
            if sure >= depth {
                break ranked;
            }
            wanted *= 4;
        };
        // The same at every state with the same visible items, however many more were nominated.
        let matched = if ranked.len() < depth {
            ranked.len() as u64
        } else {
            stats.items.max(depth as u64)
        };
        ranked.truncate(depth);
        Ok(VectorArm {
            ranked,
            nominator: Nominator::Exact,
            nominees: Vec::new(),
            matched,
        })
    }

    /// [`Scope::exact`] without copies.
    fn whole(&self, query: &QueryVector) -> Result<Vec<(i64, i64)>, Fault> {
        let (join, visible) = self.visible("e");
        let sql = format!(
            "WITH scored AS MATERIALIZED ( \
                 SELECT e.item_id, cortex._vector_score(e.embedding, $5) AS score \
                   FROM cortex.emb_{} e {join} \
                  WHERE e.namespace_id = $1 AND e.target = '{}' AND {visible}) \
             SELECT s.item_id, s.score FROM scored s WHERE s.score IS NOT NULL \
              ORDER BY s.score DESC, s.item_id LIMIT $6",
            query.space,
            self.letter()
        );
        let mut args = self.args();
        args.push(quant::to_le_bytes(&query.components).into());
        args.push(i64::from(self.question.depth).into());
        db::read(&sql, &args, |row| {
            Ok((row.must::<i64>(1)?, row.must::<i64>(2)?))
        })
    }

    pub(super) fn rescore(
        &self,
        query: &QueryVector,
        nominees: &[i64],
    ) -> Result<Vec<(i64, i64)>, Fault> {
        let (join, visible) = self.visible("e");
        let sql = format!(
            "SELECT scored.item_id, scored.score FROM ( \
                 SELECT e.item_id, cortex._vector_score(e.embedding, $5) AS score FROM cortex.emb_{} e {join} \
                  WHERE e.item_id = ANY ($6) AND e.namespace_id = $1 AND e.target = '{}' AND {visible}) scored \
              WHERE scored.score IS NOT NULL ORDER BY scored.score DESC, scored.item_id",
            query.space,
            self.letter()
        );
        let mut args = self.args();
        args.push(quant::to_le_bytes(&query.components).into());
        args.push(nominees.to_vec().into());
        kept::read(Access::Index, &sql, &args, |row| {
            Ok((row.must::<i64>(1)?, row.must::<i64>(2)?))
        })
    }

    /// The nearest items by the space's HNSW index; `None` where it cannot fill the scope: a filter never loses rows.
    fn nominate(&self, query: &QueryVector, ef: u32) -> Result<Option<VectorArm>, Fault> {
        let nominated = self.by_index(query, ef)?;
        if nominated.len() < self.question.depth as usize {
            return Ok(None);
        }
        let nominees: Vec<i64> = nominated.iter().map(|(item, _)| *item).collect();
        let mut ranked: Vec<(i64, i64)> = nominated
            .into_iter()
            .filter_map(|(item, score)| Some((item, score?)))
            .collect();
        ranked.sort_unstable_by_key(|&(item, score)| (Reverse(score), item));
        Ok(Some(VectorArm {
            ranked,
            nominator: Nominator::Approximate,
            matched: nominees.len() as u64,
            nominees,
        }))
    }

    /// What the index gives, in its order, with scores. Freshness and namespace lie inside the iterative scan; a
    /// tie-break in ORDER BY, a missing cast or a parameter in the index predicate would lose the index.
    fn by_index(&self, query: &QueryVector, ef: u32) -> Result<Vec<(i64, Option<i64>)>, Fault> {
        let Some((schema, dims)) = kept::read_one(
            Access::Index,
            "SELECT pg_catalog.quote_ident(n.nspname), s.dims FROM cortex.space s, pg_catalog.pg_extension e \
               JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector' AND s.id = $1",
            &[query.space.into()],
            |row| Ok((row.must::<String>(1)?, row.must::<i32>(2)?)),
        )?
        else {
            return Err(Fault::state(format!(
                "embedding space {} does not exist",
                query.space
            )));
        };
        let depth = self.question.depth;
        rights::set_local("hnsw.iterative_scan", "relaxed_order")?;
        rights::set_local(
            "hnsw.ef_search",
            &ef.max(depth).min(MAX_NOMINEES).to_string(),
        )?;
        rights::set_local("enable_sort", "off")?;
        let components: Vec<f32> = query.components.iter().map(|&c| f32::from(c)).collect();
        let (join, visible) = self.visible("e");
        let sql = format!(
            "SELECT e.item_id, cortex._vector_score(e.embedding, $7) FROM cortex.emb_{} e {join} \
              WHERE e.target = '{}' AND e.namespace_id = $1 AND {visible} \
              ORDER BY e.embedding OPERATOR({schema}.<=>) $6::float4[]::{schema}.vector({dims}) LIMIT $5",
            query.space,
            self.letter(),
        );
        let mut args = self.args();
        args.push(i64::from(depth).into());
        args.push(components.into());
        args.push(quant::to_le_bytes(&query.components).into());
        kept::read(Access::Index, &sql, &args, |row| {
            Ok((row.must::<i64>(1)?, row.get::<i64>(2)))
        })
    }
}

/// Measures how often the index of a namespace's space finds all of the nearest, with stored vectors as questions,
/// evenly taken by their ids. Reads of scopes larger than the setting `exact_items` ask an index that finds them in at
/// least 99.5 % and scan the others. An embed job that ends measures by itself once a large space has doubled.
#[pg_extern(volatile, requires = ["tables"])]
fn cortex_index_measure(namespace: Option<&str>) -> Outcome<JsonB> {
    let name = given(namespace, "namespace")?;
    let _owner = Owner::enter()?;
    let namespace = rights::any(name)?;
    let Some(space) = namespace.space else {
        return Ok(JsonB(json!({"space": null, "probes": 0, "recall": null})));
    };
    let mut probes: Vec<(Target, QueryVector)> = Vec::new();
    for target in [Target::Claim, Target::Chunk] {
        let stored = stored_probes(space, namespace.id, target)?;
        probes.extend(
            stored
                .into_iter()
                .map(|components| (target, QueryVector { space, components })),
        );
    }
    let mut measured = None;
    for ef in EFS {
        let mut found = 0;
        for (target, query) in &probes {
            found += usize::from(index_finds_all(&namespace, *target, query, ef)?);
        }
        let recall = (!probes.is_empty()).then(|| found as f64 / probes.len() as f64);
        measured = recall.map(|recall| (recall, ef));
        if recall.is_none_or(|recall| recall >= LEAST_RECALL) {
            break;
        }
    }
    let (recall, ef) = measured.unzip();
    db::execute(
        "UPDATE cortex.space s SET index_recall = $2, index_ef = $3, index_items = cortex._space_items(s.id, s.dims) WHERE s.id = $1",
        &[space.into(), recall.into(), ef.map(u32::cast_signed).into()],
    )?;
    let good = recall.is_some_and(|recall| recall >= LEAST_RECALL);
    Ok(JsonB(
        json!({"space": space, "probes": probes.len(), "recall": recall, "ef_search": ef, "asked_above": namespace.exact_items, "good": good}),
    ))
}

/// Whether the index gives exactly the nearest [`TOP`] that a scan gives.
fn index_finds_all(
    namespace: &Namespace,
    target: Target,
    query: &QueryVector,
    ef: u32,
) -> Result<bool, Fault> {
    let question = Question {
        namespace,
        target,
        query: "",
        lexical: false,
        vector: None,
        when: When::Now,
        barred: &[],
        depth: NEAR_DEPTH,
        nominees: None,
        rerank: false,
    };
    let scope = Scope::load(&question)?;
    let top = |arm: VectorArm| -> Vec<i64> {
        arm.ranked.iter().take(TOP).map(|(item, _)| *item).collect()
    };
    let exact = top(scope.exact(query, &scope.stats()?)?);
    Ok(scope
        .nominate(query, ef)?
        .is_some_and(|arm| top(arm) == exact))
}

/// Up to [`PROBES`] vectors of a kind of item, evenly by id, quantised as questions are.
fn stored_probes(space: i32, namespace_id: i32, target: Target) -> Result<Vec<Vec<i16>>, Fault> {
    let letter = match target {
        Target::Chunk => "k",
        Target::Claim => "c",
    };
    let sql = format!(
        "SELECT e.embedding FROM ( \
             SELECT DISTINCT (SELECT e.item_id FROM cortex.emb_{space} e JOIN cortex.source_version v ON v.id = e.version_id \
                               WHERE e.item_id >= b.low + (b.high - b.low) * g / $2 AND e.namespace_id = $1 AND e.target = '{letter}' \
                                 AND v.closed_by IS NULL ORDER BY e.item_id LIMIT 1) AS id \
               FROM (SELECT min(e.item_id) AS low, max(e.item_id) AS high FROM cortex.emb_{space} e \
                      WHERE e.namespace_id = $1 AND e.target = '{letter}') b, generate_series(0, $2 - 1) g) probe \
           JOIN cortex.emb_{space} e ON e.item_id = probe.id ORDER BY e.item_id"
    );
    let vectors = db::read(
        &sql,
        &[namespace_id.into(), (PROBES as i64).into()],
        |row| {
            let vector = row.must::<VectorRef>(1)?;
            Ok(quant::quantise(vector.as_slice()).ok())
        },
    )?;
    Ok(vectors.into_iter().flatten().collect())
}
