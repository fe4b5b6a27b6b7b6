//! Text to the model's word pieces.

use std::path::Path;

use tokenizers::Tokenizer;

use super::{EmbedError, manifest};

/// The model's tokenizer with its limit on the length of an input.
pub(super) struct WordPieces {
    tokenizer: Tokenizer,
    max_pieces: usize,
}

/// One text as the model reads it.
#[derive(Debug)]
pub(super) struct Encoded {
    /// Word pieces with the marks of beginning and end, at least three.
    pub(super) ids: Vec<i32>,
    /// Whether the text went on after the last piece.
    pub(super) truncated: bool,
}

impl WordPieces {
    /// Reads a tokenizer from the content of `dir/tokenizer.json`.
    pub(super) fn load(
        dir: &Path,
        content: &[u8],
        max_pieces: usize,
    ) -> Result<WordPieces, EmbedError> {
        let path = dir.join(manifest::TOKENIZER);
        let unusable = |reason: String| EmbedError::Unusable {
            path: path.clone(),
            reason,
        };
        let mut tokenizer =
            Tokenizer::from_bytes(content).map_err(|error| unusable(error.to_string()))?;
        // The published file pads to and cuts at 128 pieces. We do both ourselves, to pad to the batch and to count what is cut.
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|error| unusable(error.to_string()))?;
        Ok(WordPieces {
            tokenizer,
            max_pieces,
        })
    }

    /// Splits `text`, which is number `index` of the call, and cuts it to the limit; the end mark is kept.
    pub(super) fn encode(&self, text: &str, index: usize) -> Result<Encoded, EmbedError> {
        let refused = |reason: String| EmbedError::Tokenize { index, reason };
        let encoding = self
            .tokenizer
            .encode_fast(text, true)
            .map_err(|error| refused(error.to_string()))?;
        let ids = encoding
            .get_ids()
            .iter()
            .map(|&id| i32::try_from(id))
            .collect::<Result<Vec<i32>, _>>();
        let mut ids = ids.map_err(|_| refused("the tokenizer gave an id above 2^31".to_owned()))?;
        match ids.last().copied() {
            Some(end_mark) if ids.len() > 2 => {
                let truncated = ids.len() > self.max_pieces;
                if truncated {
                    ids.truncate(self.max_pieces - 1);
                    ids.push(end_mark);
                }
                Ok(Encoded { ids, truncated })
            }
            _ => Err(EmbedError::EmptyText { index }),
        }
    }
}
