//! Text to vectors, inside this process.
//!
//! [`Embedder`] runs a BERT sentence encoder (all-MiniLM-L6-v2 by default) from a folder that `tools/model/prepare.py` has made.
//! [`EmbeddingProvider`] is the seam for providers that run elsewhere; callers should ask for it and not for the type.
//!
//! Every vector belongs to one [`EmbeddingSpace`]. Vectors of different spaces must never be compared, even when their lengths
//! are equal; the space's `digest` tells spaces apart.

mod batch;
mod embedder;
mod encoder;
mod error;
mod lanes;
mod manifest;
mod word_pieces;

pub use embedder::{Embedder, MAX_TEXT_BYTES, MAX_TEXTS, MAX_TOTAL_BYTES};
pub use error::EmbedError;

use serde::Serialize;

/// What produces vectors. Blocking: call it from a thread that may wait, not from an async task.
pub trait EmbeddingProvider: Send + Sync {
    /// The space that every vector of this provider belongs to.
    fn space(&self) -> &EmbeddingSpace;

    /// Embeds `texts`, which must not be empty strings. Vector `i` of the result belongs to text `i`.
    ///
    /// All or nothing: an error about one text names its index and no vector is returned.
    fn embed(&self, texts: &[String]) -> Result<Embeddings, EmbedError>;
}

/// The result of one call: one vector for each text, and which texts were cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    /// One vector for each text in the order given, each of [`EmbeddingSpace::dimensions`] finite components, not all zero, and of
    /// length one where the space is normalised.
    pub vectors: Vec<Vec<f32>>,
    /// Indexes, ascending, of the texts that were longer than the model reads. Their vectors stand for the beginning of the text.
    pub truncated: Vec<usize>,
}

/// The identity of a set of comparable vectors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EmbeddingSpace {
    /// The model's public name, such as `sentence-transformers/all-MiniLM-L6-v2`.
    pub model: String,
    /// The release of the model or of the package it came in.
    pub revision: String,
    /// `b3:` and 64 hex digits over everything that decides the vectors: weights, tokenizer and the settings below.
    pub digest: String,
    /// Components in a vector.
    pub dimensions: usize,
    /// Whether every vector has length one.
    pub normalised: bool,
    /// Text that is put before every input. Empty for models that want none.
    pub prefix: String,
}
