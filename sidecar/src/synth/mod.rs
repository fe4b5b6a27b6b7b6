//! From the chunks of one source to claims: extractive, from JSON, or by a language model.
//!
//! What comes out is what was said, not what is so: the database checks each claim against the chunks that
//! it cites before it keeps any (`cortex_build_commit`). A build that fails loses nothing, since the raw
//! chunks stay readable.

mod extractive;
mod json;
mod language;
mod literal;
mod prompt;
pub mod reply;
mod settings;

use std::collections::HashSet;

use serde::Serialize;

use crate::error::Failure;
use crate::model::LanguageModel;
pub use settings::{Depth, Settings, Synthesizer};

/// A chunk of the source, as the build job hands it out.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Chunk {
    /// Its id, which claims cite.
    pub chunk_id: i64,
    /// Version of the source that it is a part of.
    pub version_id: i64,
    /// Its place in the version.
    pub ordinal: i64,
    /// Its text.
    pub body: String,
}

/// What is to be made into claims.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Title for people, if it has one.
    pub title: Option<String>,
    /// Publisher, table or folder, if known.
    pub origin: Option<String>,
    /// Date, if known.
    pub dated: Option<String>,
    /// All its chunks, in order.
    pub chunks: Vec<Chunk>,
}

/// A claim with the chunks that it was drawn from, as `cortex_build_commit` takes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// The statement.
    pub claim: String,
    /// Ids of the cited chunks.
    pub chunks: Vec<i64>,
}

/// What a build cost and what was thrown away before the database saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Who wrote the claims.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Tokens that were read.
    pub prompt_tokens: u64,
    /// Tokens that were written.
    pub completion_tokens: u64,
    /// Who counted: `server`, or the name of our estimate where the server did not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tokenizer: String,
    /// Requests to the model.
    pub calls: u64,
    /// Entries that are no claim: null, blank, or not text.
    pub rejected: u64,
    /// Replies of which only the whole objects could be used.
    pub salvaged: u64,
    /// Claims beyond the most that one source may have.
    pub left_out: u64,
}

/// The outcome of a build.
#[derive(Clone, Debug, Default)]
pub struct Built {
    /// The claims in the order of the source.
    pub claims: Vec<Claim>,
    /// What it cost.
    pub usage: Usage,
}

/// A build that came to nothing, with what it cost all the same.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Why.
    pub failure: Failure,
    /// What it cost.
    pub usage: Usage,
}

/// Most claims that `cortex_build_commit` takes at once.
pub const MOST_CLAIMS: usize = 1_000;

/// Makes claims of a source as the settings say, at most [`MOST_CLAIMS`].
///
/// # Errors
/// No model where one is asked for; a model that fails, or whose words cannot be read as claims.
pub async fn build(
    source: &Source,
    settings: &Settings,
    model: Option<&dyn LanguageModel>,
) -> Result<Built, Fault> {
    let mut built = match (settings.synthesizer, model) {
        (Synthesizer::Extractive, _) => extractive::build(source),
        (Synthesizer::Json, _) => json::build(source),
        (Synthesizer::Model, Some(model)) => language::build(source, settings, model).await?,
        (Synthesizer::Model, None) => {
            return Err(Fault {
                failure: Failure::new(
                    crate::error::Kind::System,
                    "no_language_model",
                    "the namespace's claims are to be written by a language model, and this worker has none",
                )
                .hint("set language_model.provider and language_model.name, or the namespace's setting synthesis.synthesizer to \"extractive\""),
                usage: Usage::default(),
            });
        }
    };
    built.usage.left_out = cap(&mut built.claims);
    Ok(built)
}

/// Takes off what is too much, repetitions first. Returns how many claims were left out.
fn cap(claims: &mut Vec<Claim>) -> u64 {
    let all = claims.len();
    if all > MOST_CLAIMS {
        let mut seen = HashSet::new();
        claims.retain(|claim| seen.insert(claim.claim.clone()));
        claims.truncate(MOST_CLAIMS);
    }
    (all - claims.len()) as u64
}
