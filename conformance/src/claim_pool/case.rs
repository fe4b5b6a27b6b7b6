//! A recorded case: the inputs as types, the recorded outputs as JSON.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::{Map, Value};

/// A file of recordings.
#[derive(Debug, Deserialize)]
pub struct File {
    /// Groups of cases.
    pub scenarios: Vec<Scenario>,
}

/// Cases about one matter.
#[derive(Debug, Deserialize)]
pub struct Scenario {
    /// Name of the group.
    pub id: String,
    /// Its cases, read one by one so that one that cannot be read does not hide the others.
    pub cases: Vec<Value>,
}

/// One cache and what was done with it.
#[derive(Debug, Deserialize)]
pub struct Case {
    /// Constructor arguments that differ from the defaults.
    pub config: Map<String, Value>,
    /// Units it starts with.
    #[serde(default)]
    pub initial_units: Vec<StoredUnit>,
    /// What retrieval answers.
    pub retriever: Retriever,
    /// What the model answers.
    pub synthesizer: Synthesizer,
    /// Vectors by text.
    #[serde(default)]
    pub embeddings: HashMap<String, Vec<f64>>,
    /// What was done, in order.
    pub ops: Vec<Op>,
}

/// A chunk of a source.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Chunk {
    /// Name of the source; may be empty.
    #[serde(default)]
    pub artifact_id: String,
    /// Text.
    pub text: String,
    /// Version label; may be empty.
    #[serde(default)]
    pub version: String,
    /// Metadata.
    #[serde(default)]
    pub meta: Option<BTreeMap<String, String>>,
}

/// Answers of retrieval.
#[derive(Debug, Clone, Deserialize)]
pub struct Retriever {
    /// By the query.
    #[serde(default)]
    pub by_query: HashMap<String, Vec<Chunk>>,
    /// For all other queries.
    #[serde(default)]
    pub default: Vec<Chunk>,
}

/// Answers of the model.
#[derive(Debug, Clone, Deserialize)]
pub struct Synthesizer {
    /// Claims by chunk text; a text that is not listed is its own claim.
    #[serde(default)]
    pub claims_by_chunk_text: HashMap<String, Vec<Value>>,
    /// Positions of the chunks it says it used; null for all.
    #[serde(default)]
    pub used: Option<Vec<i64>>,
    /// `true`, `false` for a malformed answer, a text for an exception.
    #[serde(default)]
    pub ok: Value,
    /// The whole answer whatever the chunks, without usage.
    #[serde(default)]
    pub fixed_understanding: Option<Map<String, Value>>,
}

/// A stored unit.
#[derive(Debug, Clone, Deserialize)]
pub struct StoredUnit {
    /// Id.
    pub id: String,
    /// Namespace.
    #[serde(default)]
    pub namespace: String,
    /// Question it was built for.
    #[serde(default)]
    pub query: String,
    /// Vector of that question; empty if not known.
    #[serde(default)]
    pub query_embedding: Vec<f64>,
    /// What was understood.
    #[serde(default)]
    pub understanding: Map<String, Value>,
    /// Chunks it was built from.
    #[serde(default)]
    pub evidence: Vec<Chunk>,
    /// Which chunks were cited.
    #[serde(default)]
    pub provenance: Provenance,
    /// Vector of the whole.
    #[serde(default)]
    pub understanding_embedding: Vec<f64>,
    /// Vectors of the claims.
    #[serde(default)]
    pub claim_embeddings: Vec<Vec<f64>>,
    /// Tokens of its last build.
    #[serde(default)]
    pub synth_tokens: u64,
    /// `fresh` or `dirty`.
    #[serde(default)]
    pub status: Option<String>,
    /// When it was last known to be fresh.
    #[serde(default)]
    pub freshness_epoch: f64,
    /// Metadata of its source.
    #[serde(default)]
    pub source_meta: BTreeMap<String, String>,
}

/// Cited chunks.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Provenance {
    /// One entry for each.
    #[serde(default)]
    pub source_spans: Vec<SourceSpan>,
}

/// A cited chunk.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SourceSpan {
    /// Name of the source.
    pub artifact_id: String,
    /// Version label; may be empty.
    #[serde(default)]
    pub version: String,
    /// First 16 hexadecimal digits of the SHA-256 of the text.
    #[serde(default)]
    pub content_hash: String,
}

/// Something that was done, and what came of it.
#[derive(Debug, Deserialize)]
pub struct Op {
    /// Its name.
    pub op: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Map<String, Value>,
    /// Everything that was recorded of it.
    #[serde(flatten)]
    pub recorded: Map<String, Value>,
}
