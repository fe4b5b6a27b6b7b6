//! The sentences of each chunk as claims, by the extraction that the database uses while chunking.

use cortex_core::extract;

use super::{Built, Chunk, Claim, Source, Usage};

pub(super) fn build(source: &Source) -> Built {
    Built {
        claims: source.chunks.iter().flat_map(sentences).collect(),
        usage: Usage {
            model: extract::NAME.to_owned(),
            ..Usage::default()
        },
    }
}

/// The claims of one chunk.
pub(super) fn sentences(chunk: &Chunk) -> Vec<Claim> {
    extract::extract(&chunk.body)
        .into_iter()
        .map(|span| Claim {
            claim: chunk.body[span.start..span.end].to_owned(),
            chunks: vec![chunk.chunk_id],
        })
        .collect()
}
