//! `MODEL.json`: what the files of a model folder must be, and the space that follows from them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{EmbedError, EmbeddingSpace};

pub(super) const MANIFEST: &str = "MODEL.json";
pub(super) const WEIGHTS: &str = "model.safetensors.data";
pub(super) const TOKENIZER: &str = "tokenizer.json";
pub(super) const GRAPH: &str = "model.onnx";

/// The version of `MODEL.json` that `tools/model/prepare.py` writes.
const FORMAT: u32 = 1;

/// Far above any real description; keeps a wrong file from being read into memory.
const MAX_MANIFEST_BYTES: u64 = 64 << 10;

/// Vectors longer than this fit no index of the database (pgvector indexes `vector` up to 2,000 dimensions).
const MAX_DIMENSIONS: usize = 2000;

/// The longest input of any BERT encoder: the size of its table of positions.
const MAX_WORD_PIECES: usize = 512;

/// The BLAKE3 context under which a space's digest is derived.
const SPACE_CONTEXT: &str = "cortex embedding space v1";

/// The parts of `MODEL.json` that loading needs. Licence and origin stand there for people.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    name: String,
    revision: String,
    dimensions: usize,
    pub(super) max_word_pieces: usize,
    pooling: String,
    normalised: bool,
    prefix: String,
    pub(super) probe: Probe,
    files: Files,
}

/// A sentence and the beginning of its vector, from another runtime.
#[derive(Debug, Deserialize)]
pub(super) struct Probe {
    pub(super) text: String,
    pub(super) first_components: Vec<f32>,
}

#[derive(Debug, Deserialize)]
struct Files {
    #[serde(rename = "model.safetensors.data")]
    weights: PinnedFile,
    #[serde(rename = "tokenizer.json")]
    tokenizer: PinnedFile,
    #[serde(rename = "model.onnx")]
    graph: PinnedFile,
}

/// The checked content of a model folder.
pub(super) struct ModelFiles {
    pub(super) graph: Vec<u8>,
    pub(super) tokenizer: Vec<u8>,
    pub(super) weights: Vec<u8>,
}

#[derive(Debug, Deserialize)]
struct PinnedFile {
    bytes: u64,
    blake3: String,
}

impl Manifest {
    /// Reads `dir/MODEL.json` and refuses a model that this module could not embed with.
    pub(super) fn read(dir: &Path) -> Result<Manifest, EmbedError> {
        let path = dir.join(MANIFEST);
        let file = open(dir, MANIFEST)?;
        let mut text = String::new();
        file.take(MAX_MANIFEST_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(|source| unreadable(&path, source))?;
        if text.len() as u64 > MAX_MANIFEST_BYTES {
            let reason = format!("it is larger than {MAX_MANIFEST_BYTES} bytes");
            return Err(EmbedError::Manifest { path, reason });
        }
        let manifest: Manifest =
            serde_json::from_str(&text).map_err(|error| EmbedError::Manifest {
                path: path.clone(),
                reason: error.to_string(),
            })?;
        match manifest.fault() {
            Some(reason) => Err(EmbedError::Manifest { path, reason }),
            None => Ok(manifest),
        }
    }

    fn fault(&self) -> Option<String> {
        if self.format != FORMAT {
            return Some(format!(
                "its format is {}, this version reads {FORMAT}",
                self.format
            ));
        }
        if self.pooling != "mean" || !self.normalised {
            return Some(format!(
                "pooling {:?} with normalised = {} is not supported, only \"mean\" with true",
                self.pooling, self.normalised
            ));
        }
        if !(1..=MAX_DIMENSIONS).contains(&self.dimensions) {
            return Some(format!(
                "dimensions is {}, expected 1 to {MAX_DIMENSIONS}",
                self.dimensions
            ));
        }
        // Two of the word pieces are the marks of beginning and end.
        if !(3..=MAX_WORD_PIECES).contains(&self.max_word_pieces) {
            return Some(format!(
                "max_word_pieces is {}, expected 3 to {MAX_WORD_PIECES}",
                self.max_word_pieces
            ));
        }
        if self.probe.first_components.is_empty()
            || self.probe.first_components.len() > self.dimensions
        {
            return Some(
                "probe.first_components must hold between one and `dimensions` numbers".to_owned(),
            );
        }
        None
    }

    /// Reads the files of the model, each checked against its size and BLAKE3 digest.
    ///
    /// Whoever uses the model gets these bytes and opens no file again, so what was checked is what runs.
    pub(super) fn read_files(&self, dir: &Path) -> Result<ModelFiles, EmbedError> {
        Ok(ModelFiles {
            graph: self.files.graph.read(dir, GRAPH)?,
            tokenizer: self.files.tokenizer.read(dir, TOKENIZER)?,
            weights: self.files.weights.read(dir, WEIGHTS)?,
        })
    }

    /// The space of this model's vectors.
    ///
    /// The digest covers weights and tokenizer by their own digests and the settings that shape a vector, one `key value` line
    /// each. The graph is left out: it spells the same mathematics in another form, and the probe shows that it still does.
    pub(super) fn space(&self) -> EmbeddingSpace {
        let lines = format!(
            "weights {}\ntokenizer {}\ndimensions {}\nmax_word_pieces {}\npooling {}\nnormalised {}\nprefix {}\n",
            self.files.weights.blake3,
            self.files.tokenizer.blake3,
            self.dimensions,
            self.max_word_pieces,
            self.pooling,
            self.normalised,
            self.prefix
        );
        let digest = blake3::Hasher::new_derive_key(SPACE_CONTEXT)
            .update(lines.as_bytes())
            .finalize();
        EmbeddingSpace {
            model: self.name.clone(),
            revision: self.revision.clone(),
            digest: format!("b3:{}", digest.to_hex()),
            dimensions: self.dimensions,
            normalised: self.normalised,
            prefix: self.prefix.clone(),
        }
    }
}

impl PinnedFile {
    fn read(&self, dir: &Path, name: &'static str) -> Result<Vec<u8>, EmbedError> {
        let path = dir.join(name);
        let wrong = |reason: String| EmbedError::WrongFile {
            path: path.clone(),
            reason,
        };
        let file = open(dir, name)?;
        let size = file
            .metadata()
            .map_err(|source| unreadable(&path, source))?
            .len();
        if size != self.bytes {
            return Err(wrong(format!(
                "it has {size} bytes, expected {}",
                self.bytes
            )));
        }
        // The size is now that of a file that exists, so the manifest cannot make us reserve more than that.
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        file.take(size)
            .read_to_end(&mut content)
            .map_err(|source| unreadable(&path, source))?;
        let found = blake3::hash(&content).to_hex();
        if found.as_str() != self.blake3 {
            return Err(wrong(format!(
                "its BLAKE3 is {found}, expected {}",
                self.blake3
            )));
        }
        Ok(content)
    }
}

fn open(dir: &Path, name: &'static str) -> Result<File, EmbedError> {
    let path = dir.join(name);
    File::open(&path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => EmbedError::ModelMissing {
            dir: dir.to_owned(),
            file: name,
        },
        _ => unreadable(&path, source),
    })
}

fn unreadable(path: &Path, source: io::Error) -> EmbedError {
    EmbedError::Unreadable {
        path: PathBuf::from(path),
        source,
    }
}
