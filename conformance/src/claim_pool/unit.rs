//! A unit of the in-memory host.

use std::collections::{BTreeMap, BTreeSet};

use cortex_core::pool::candidates::cosine;
use serde_json::{Map, Value, json};

use super::case::{Chunk, SourceSpan, StoredUnit};
use super::peer;

/// A row of the pool: a claim that can be served.
#[derive(Debug, Clone)]
pub struct Row {
    /// Position in the unit's claims.
    pub index: usize,
    /// Trimmed text.
    pub text: String,
    /// Its vector as given.
    pub vector: Vec<f64>,
    /// Its vector at length 1 in single precision.
    pub direction: Vec<f32>,
}

/// Claims built from a source.
#[derive(Debug, Clone, Default)]
pub struct Unit {
    /// Id.
    pub id: String,
    /// Namespace.
    pub namespace: String,
    /// Question it was built for.
    pub query: String,
    /// Vector of that question; empty if not known.
    pub seed: Vec<f64>,
    /// What was understood.
    pub understanding: Map<String, Value>,
    /// Chunks it was built from.
    pub evidence: Vec<Chunk>,
    /// Chunks that were cited.
    pub spans: Vec<SourceSpan>,
    /// Vector of the whole; empty if not known.
    pub digest_vector: Vec<f64>,
    /// Claims that can be served.
    pub rows: Vec<Row>,
    /// Tokens of its last build.
    pub synth_tokens: u64,
    /// Whether its sources are as they were.
    pub fresh: bool,
    /// When it was last known to be fresh; `None` if the host's clock was not asked.
    pub epoch: Option<f64>,
    /// Metadata of its source.
    pub meta: BTreeMap<String, String>,
    /// Builds in a row that brought no claims, and when the last of them ended.
    pub failures: (u32, f64),
}

impl Unit {
    /// A unit as stored.
    pub fn load(stored: &StoredUnit) -> Self {
        let mut unit = Self {
            id: stored.id.clone(),
            namespace: stored.namespace.clone(),
            query: stored.query.clone(),
            seed: stored.query_embedding.clone(),
            understanding: stored.understanding.clone(),
            evidence: stored.evidence.clone(),
            spans: stored.provenance.source_spans.clone(),
            digest_vector: stored.understanding_embedding.clone(),
            synth_tokens: stored.synth_tokens,
            fresh: stored.status.as_deref().unwrap_or("fresh") == "fresh",
            epoch: Some(stored.freshness_epoch),
            meta: stored.source_meta.clone(),
            ..Self::default()
        };
        unit.set_rows(&stored.claim_embeddings);
        unit
    }

    /// Pairs the claims with their vectors by position; a claim without text or direction is no row.
    pub fn set_rows(&mut self, vectors: &[Vec<f64>]) {
        self.rows = self
            .claims()
            .iter()
            .zip(vectors)
            .enumerate()
            .filter_map(|(index, (claim, vector))| {
                let text = peer::claim_text(claim);
                let direction = direction(vector)?;
                (!text.is_empty()).then(|| Row {
                    index,
                    text,
                    vector: vector.clone(),
                    direction,
                })
            })
            .collect();
    }

    /// Its claims as they are kept.
    pub fn claims(&self) -> &[Value] {
        let claims = self.understanding.get("claims");
        claims.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Names of the sources it cites.
    pub fn artifacts(&self) -> BTreeSet<&str> {
        self.spans
            .iter()
            .map(|span| span.artifact_id.as_str())
            .collect()
    }

    /// Whether it has the source in its provenance.
    pub fn cites(&self, artifact: &str) -> bool {
        self.spans.iter().any(|span| span.artifact_id == artifact)
    }

    /// Entities, with case folded.
    pub fn entities(&self) -> BTreeSet<String> {
        let entities = self.understanding.get("entities").and_then(Value::as_array);
        entities
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_lowercase)
            .collect()
    }

    /// How well it fits a question as a whole.
    pub fn score(&self, query: &[f64]) -> f64 {
        let seed = cosine(query, &self.seed);
        match self.digest_vector.is_empty() {
            true => seed,
            false => 0.7 * cosine(query, &self.digest_vector) + 0.3 * seed,
        }
    }

    /// What an inspection shows.
    pub fn inspect(&self) -> Value {
        let flags: Vec<&str> = ["_synthesis_failed", "_citation_fallback", "_passthrough"]
            .into_iter()
            .filter(|flag| self.understanding.get(*flag) == Some(&Value::Bool(true)))
            .collect();
        json!({
            "namespace": self.namespace,
            "query": self.query,
            "status": if self.fresh { "fresh" } else { "dirty" },
            "claims": self.understanding.get("claims"),
            "flags": flags,
            "artifacts": self.artifacts(),
            "evidence": pairs(&self.evidence),
            "source_meta": self.meta,
            "synth_tokens": self.synth_tokens,
            "freshness_epoch": self.epoch.map_or(json!("wall clock"), |epoch| json!(epoch)),
            "residual_spans": [],
            "span_hits": 0,
            "lossy": false,
            "query_keys": [],
        })
    }
}

/// Chunks as the recordings show them.
pub fn pairs(chunks: &[Chunk]) -> Vec<Value> {
    chunks
        .iter()
        .map(|chunk| json!([chunk.artifact_id, chunk.text]))
        .collect()
}

/// A vector at length 1 in single precision; `None` if it has no direction.
pub fn direction(vector: &[f64]) -> Option<Vec<f32>> {
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    (length > 0.0).then(|| vector.iter().map(|x| (x / length) as f32).collect())
}
