//! Questions and texts to vectors, where a model is at hand.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use crate::config;
use crate::db::reader::Vector;
use crate::db::vector_text;
use crate::embed::{Embedder, EmbeddingProvider, EmbeddingSpace, Embeddings, MAX_TEXT_BYTES};
use crate::error::{Failure, Kind, Outcome};

/// The embedding model of this process, or the reason why there is none. Cheap to clone.
#[derive(Clone)]
pub struct Encoder {
    model: Result<Arc<dyn EmbeddingProvider>, String>,
}

impl Encoder {
    /// Loads the model of the settings. Without one, retrieval is lexical and embed jobs wait: that is a
    /// state to show, not an error. Takes about 100 ms.
    pub fn load(settings: &config::Model) -> Self {
        let model = match settings.dir() {
            None => Err("embedding is switched off (model.dir is empty)".to_owned()),
            Some(dir) => load(dir, settings.threads).map_err(|error| error.message),
        };
        Encoder { model }
    }

    /// An encoder that embeds nothing, for the reason given.
    pub fn absent(reason: impl Into<String>) -> Self {
        Encoder {
            model: Err(reason.into()),
        }
    }

    /// An encoder that uses the given provider.
    pub fn with(model: Arc<dyn EmbeddingProvider>) -> Self {
        Encoder { model: Ok(model) }
    }

    /// The space of its vectors.
    ///
    /// # Errors
    /// The reason why there is no model.
    pub fn space(&self) -> Result<&EmbeddingSpace, &str> {
        self.model
            .as_ref()
            .map(|model| model.space())
            .map_err(String::as_str)
    }

    /// The vectors of texts; see [`Encoder::embeddings`].
    ///
    /// # Errors
    /// No model, or what the model says about a text.
    pub async fn embed(&self, texts: Vec<String>) -> Outcome<Vec<Vec<f32>>> {
        Ok(self.embeddings(texts).await?.vectors)
    }

    /// Embeds texts on a thread that may block, and says which of them were longer than the model reads.
    ///
    /// # Errors
    /// No model, or what the model says about a text.
    pub async fn embeddings(&self, texts: Vec<String>) -> Outcome<Embeddings> {
        let model = self
            .model
            .clone()
            .map_err(|reason| Failure::new(Kind::System, "no_model", reason))?;
        let result = tokio::task::spawn_blocking(move || model.embed(&texts))
            .await
            .map_err(|error| Failure::internal(format!("embedding stopped: {error}")))?;
        result.map_err(|error| Failure::new(Kind::Usage, "cannot_embed", error.to_string()))
    }

    /// The vector of a question. None where the lexical arm alone can answer: no model here, or nothing in
    /// the question that a model could read. What cannot be embedded is for the SQL function to judge.
    ///
    /// # Errors
    /// A model that fails.
    pub async fn question(&self, text: &str) -> Outcome<Option<Vector>> {
        let Ok(space) = self.space() else {
            return Ok(None);
        };
        if text.trim().is_empty() || text.len() > MAX_TEXT_BYTES {
            return Ok(None);
        }
        match self.embed(vec![text.to_owned()]).await {
            Ok(vectors) => Ok(vectors.first().map(|vector| Vector {
                text: vector_text(vector),
                space: space.digest.clone(),
            })),
            Err(failure) if failure.code == "cannot_embed" => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

fn load(dir: &Path, threads: usize) -> Outcome<Arc<dyn EmbeddingProvider>> {
    let loaded = match NonZeroUsize::new(threads) {
        None => Embedder::load(dir),
        Some(threads) => Embedder::load_with_threads(dir, threads),
    };
    loaded
        .map(|model| Arc::new(model) as Arc<dyn EmbeddingProvider>)
        .map_err(|error| Failure::new(Kind::System, "no_model", error.to_string()))
}
