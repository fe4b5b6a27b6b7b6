//! What can go wrong with a model folder, with a text, and with a vector.

use std::io;
use std::path::PathBuf;

/// Why texts were not embedded. Each message says what was found and what to do.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The folder holds no model.
    #[error("there is no embedding model in {dir} ({file} is missing): run `python3 tools/model/prepare.py {dir}`", dir = dir.display())]
    ModelMissing {
        /// The folder that was asked for.
        dir: PathBuf,
        /// The first file that is not there.
        file: &'static str,
    },
    /// A file of the model could not be read.
    #[error("{path} could not be read: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// `MODEL.json` is not a description that this version understands.
    #[error("{path} does not describe a usable model: {reason}. Run `tools/model/prepare.py` on its folder again", path = path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file is not the one that `MODEL.json` names.
    #[error("{path} is damaged or was replaced: {reason}. Run `tools/model/prepare.py` on its folder again", path = path.display())]
    WrongFile {
        /// The file.
        path: PathBuf,
        /// Found and expected size or digest.
        reason: String,
    },
    /// A file has the right digest, and the tokenizer or the engine cannot use it.
    #[error("{path} cannot be used: {reason}", path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the tokenizer or the engine said.
        reason: String,
    },
    /// The model loads and computes something else than it is known to compute.
    #[error(
        "the embedding model fails its self-test: {reason}. Its vectors would not be comparable with stored ones"
    )]
    Probe {
        /// Found and expected value.
        reason: String,
    },
    /// A text without anything to embed: empty, white space, or control characters.
    #[error("text {index} has no content to embed; leave such texts out")]
    EmptyText {
        /// Position in the call.
        index: usize,
    },
    /// One text is over the limit.
    #[error("text {index} has {bytes} bytes, the limit is {limit}; split it into chunks first")]
    TextTooLong {
        /// Position in the call.
        index: usize,
        /// Its size.
        bytes: usize,
        /// [`MAX_TEXT_BYTES`](super::MAX_TEXT_BYTES).
        limit: usize,
    },
    /// The call as a whole is over a limit.
    #[error("{found} {unit} in one call, the limit is {limit}; send them in several calls")]
    CallTooLarge {
        /// What was counted, `texts` or `bytes`.
        unit: &'static str,
        /// How many there were.
        found: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// The tokenizer refused a text.
    #[error("text {index} could not be split into word pieces: {reason}")]
    Tokenize {
        /// Position in the call.
        index: usize,
        /// What the tokenizer said.
        reason: String,
    },
    /// The engine failed in the middle of a call.
    #[error("the embedding model failed to run: {reason}")]
    Run {
        /// What the engine said.
        reason: String,
    },
    /// The model returned something that is not a vector of its space.
    #[error("the embedding model returned an unusable vector for text {index}: {reason}")]
    BadVector {
        /// Position in the call.
        index: usize,
        /// Found and expected.
        reason: String,
    },
}
