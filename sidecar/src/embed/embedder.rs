//! The in-process embedder: checks, word pieces, batches, vectors.

use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

use super::encoder::{Encoder, normalise};
use super::lanes::Lanes;
use super::manifest::{Manifest, Probe};
use super::word_pieces::{Encoded, WordPieces};
use super::{EmbedError, EmbeddingProvider, EmbeddingSpace, Embeddings, batch};

/// Longest text that is looked at. A model reads about 1,000 characters of it; who sends a million has forgotten to chunk.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// Most texts in one call, which bounds the result to 25 MB at 384 dimensions.
pub const MAX_TEXTS: usize = 16_384;

/// Most text in one call.
pub const MAX_TOTAL_BYTES: usize = 64 << 20;

/// Texts that one thread splits into word pieces before it looks for more.
const TEXTS_PER_SPLIT: usize = 64;

/// How far a component of the probe may be from its known value. Runtimes differ by 1e-6; a wrong file or a miscompiled kernel by
/// more than 1e-2.
const PROBE_TOLERANCE: f32 = 1e-4;

/// How far the length of a vector may be from one, given that its components are rounded to single precision.
const LENGTH_TOLERANCE: f64 = 1e-5;

/// A sentence encoder that runs in this process on the CPU. Loading takes about 100 ms and 250 MB; share one among threads.
pub struct Embedder {
    space: EmbeddingSpace,
    word_pieces: WordPieces,
    encoder: Encoder,
    lanes: Lanes,
}

impl Embedder {
    /// Loads the model in `dir`, as made by `tools/model/prepare.py`, to run on all cores.
    ///
    /// Checks every file against the digests in `MODEL.json`, and the vector of a probe sentence against its known value.
    pub fn load(dir: &Path) -> Result<Embedder, EmbedError> {
        let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Embedder::load_with_threads(dir, cores)
    }

    /// Like [`Embedder::load`], to run on `threads` threads.
    pub fn load_with_threads(dir: &Path, threads: NonZeroUsize) -> Result<Embedder, EmbedError> {
        let manifest = Manifest::read(dir)?;
        let files = manifest.read_files(dir)?;
        let space = manifest.space();
        let embedder = Embedder {
            word_pieces: WordPieces::load(dir, &files.tokenizer, manifest.max_word_pieces)?,
            encoder: Encoder::load(dir, files.graph, files.weights, space.dimensions)?,
            lanes: Lanes::new(threads),
            space,
        };
        embedder.check_probe(&manifest.probe)?;
        Ok(embedder)
    }

    fn check_probe(&self, probe: &Probe) -> Result<(), EmbedError> {
        let failed = |reason: String| EmbedError::Probe { reason };
        let result = self
            .embed(std::slice::from_ref(&probe.text))
            .map_err(|error| failed(error.to_string()))?;
        let vector = result
            .vectors
            .first()
            .ok_or_else(|| failed("it returned no vector".to_owned()))?;
        let length = vector
            .iter()
            .map(|&component| f64::from(component).powi(2))
            .sum::<f64>()
            .sqrt();
        if vector.len() != self.space.dimensions || (length - 1.0).abs() > LENGTH_TOLERANCE {
            return Err(failed(format!(
                "the vector of {:?} has {} dimensions and length {length}, expected {} and 1",
                probe.text,
                vector.len(),
                self.space.dimensions
            )));
        }
        for (position, (found, expected)) in vector.iter().zip(&probe.first_components).enumerate()
        {
            if (found - expected).abs() > PROBE_TOLERANCE {
                return Err(failed(format!(
                    "component {position} of {:?} is {found}, expected {expected}",
                    probe.text
                )));
            }
        }
        Ok(())
    }

    fn split(&self, texts: &[String]) -> Result<Vec<Encoded>, EmbedError> {
        let parts: Vec<&[String]> = texts.chunks(TEXTS_PER_SPLIT).collect();
        let encoded = self.lanes.run(parts.len(), |part, _| {
            let first = part * TEXTS_PER_SPLIT;
            parts[part]
                .iter()
                .enumerate()
                .map(|(offset, text)| self.split_one(text, first + offset))
                .collect::<Result<Vec<_>, _>>()
        })?;
        Ok(encoded.into_iter().flatten().collect())
    }

    fn split_one(&self, text: &str, index: usize) -> Result<Encoded, EmbedError> {
        if text.trim().is_empty() {
            return Err(EmbedError::EmptyText { index });
        }
        if self.space.prefix.is_empty() {
            self.word_pieces.encode(text, index)
        } else {
            self.word_pieces
                .encode(&format!("{}{text}", self.space.prefix), index)
        }
    }
}

impl EmbeddingProvider for Embedder {
    fn space(&self) -> &EmbeddingSpace {
        &self.space
    }

    fn embed(&self, texts: &[String]) -> Result<Embeddings, EmbedError> {
        check_size(texts)?;
        let encoded = self.split(texts)?;
        let lengths: Vec<usize> = encoded.iter().map(|text| text.ids.len()).collect();
        let batches = batch::plan(&lengths, self.lanes.count());
        let sums = self.lanes.run(batches.len(), |job, pool| {
            let batch = &batches[job];
            let sentences: Vec<&[i32]> = batch
                .texts
                .iter()
                .map(|&text| encoded[text].ids.as_slice())
                .collect();
            self.encoder.token_sums(&sentences, batch.width, pool)
        })?;

        let mut vectors = vec![Vec::new(); texts.len()];
        for (index, mut vector) in batches
            .iter()
            .zip(sums)
            .flat_map(|(batch, sums)| batch.texts.iter().copied().zip(sums))
        {
            normalise(&mut vector).ok_or_else(|| EmbedError::BadVector {
                index,
                reason: "it is all zero or holds a component that is not a number".to_owned(),
            })?;
            vectors[index] = vector;
        }
        let truncated = encoded
            .iter()
            .enumerate()
            .filter(|(_, text)| text.truncated)
            .map(|(index, _)| index)
            .collect();
        Ok(Embeddings { vectors, truncated })
    }
}

fn check_size(texts: &[String]) -> Result<(), EmbedError> {
    if texts.len() > MAX_TEXTS {
        return Err(EmbedError::CallTooLarge {
            unit: "texts",
            found: texts.len(),
            limit: MAX_TEXTS,
        });
    }
    if let Some((index, text)) = texts
        .iter()
        .enumerate()
        .find(|(_, text)| text.len() > MAX_TEXT_BYTES)
    {
        return Err(EmbedError::TextTooLong {
            index,
            bytes: text.len(),
            limit: MAX_TEXT_BYTES,
        });
    }
    let total: usize = texts.iter().map(String::len).sum();
    if total > MAX_TOTAL_BYTES {
        return Err(EmbedError::CallTooLarge {
            unit: "bytes",
            found: total,
            limit: MAX_TOTAL_BYTES,
        });
    }
    Ok(())
}
