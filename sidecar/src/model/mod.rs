//! Language models behind a server: one question, one reply.
//!
//! Nothing is sent anywhere but to the server that the settings name. What a model says is a suggestion;
//! [`crate::synth`] reads it and the database decides what of it is kept.

mod client;
mod ollama;
mod openai;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use cortex_core::tokens;
use serde::Serialize;
use serde_json::Value;

use crate::config::{self, Provider};
use crate::error::{Failure, Kind, Outcome};
use client::Client;

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The rules of the conversation.
    System,
    /// Us.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Clone, Debug, Serialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Message {
            role,
            content: content.into(),
        }
    }
}

/// What a model is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// JSON Schema of the reply, for servers that can hold a model to it.
    pub schema: Option<Value>,
    /// Tokens of the longest reply.
    pub reply_tokens: u32,
    /// 0 for the likeliest reply, more for variety.
    pub temperature: f32,
}

impl Request {
    /// Estimated tokens of the messages.
    pub fn estimate(&self) -> u32 {
        self.messages
            .iter()
            .map(|message| tokens::estimate(&message.content))
            .fold(0, u32::saturating_add)
    }
}

/// What a model replied.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its words.
    pub text: String,
    /// Tokens that the server says it read.
    pub prompt_tokens: Option<u32>,
    /// Tokens that the server says the model wrote.
    pub completion_tokens: Option<u32>,
    /// Whether the reply was ended by its length and not by the model.
    pub cut: bool,
}

/// A reply that is still to come.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Outcome<T>> + Send + 'a>>;

/// A language model that answers. Dropping what it returns ends the request.
pub trait LanguageModel: Send + Sync {
    /// Its name, as recorded with what it wrote.
    fn name(&self) -> &str;

    /// Tokens that prompt and reply may have together.
    fn context_tokens(&self) -> u32;

    /// Tokens of the longest reply that it should be asked for.
    fn reply_tokens(&self) -> u32;

    /// Asks it. The failure's code says what a caller would do differently: `model_unreachable`,
    /// `model_unavailable` (no such model, a wrong key, too busy), `model_timed_out`, `model_broke_off` (the
    /// connection ended before the reply), `model_refused` (the server said no to this request), `model_reply`
    /// (not what the interface promises, too large, or a prompt that the server cut).
    fn ask<'a>(&'a self, request: &'a Request) -> Pending<'a, Reply>;

    /// The models that the server has.
    fn list(&self) -> Pending<'_, Vec<String>>;
}

/// The model of the settings, if they name one. Connects on first use.
///
/// # Errors
/// A TLS library that cannot be started.
pub fn open(settings: &config::LanguageModel) -> Outcome<Option<Arc<dyn LanguageModel>>> {
    Ok(match settings.provider {
        Provider::None => None,
        Provider::Ollama => Some(Arc::new(ollama::Ollama::new(Client::new(settings)?))),
        Provider::OpenAi => Some(Arc::new(openai::OpenAi::new(Client::new(settings)?))),
    })
}

/// Whether a server that lists `listed` has the model `wanted`; Ollama leaves out the tag `latest`.
pub fn is_listed(listed: &[String], wanted: &str) -> bool {
    let latest = format!("{wanted}:latest");
    listed.iter().any(|name| name == wanted || *name == latest)
}

/// Bytes of visible text that no tokenizer in use packs into one token on average, whatever the language.
const DENSEST_BYTES_PER_TOKEN: usize = 6;

/// Refuses a reply to less than what was sent. Servers cut the head off a prompt that they find too long,
/// instructions first, and answer the rest as if nothing had happened.
fn check_whole(request: &Request, reply: Reply) -> Outcome<Reply> {
    let Some(read) = reply.prompt_tokens else {
        return Ok(reply);
    };
    let visible: usize = request
        .messages
        .iter()
        .flat_map(|message| message.content.split_whitespace())
        .map(str::len)
        .sum();
    let least = u32::try_from(visible / DENSEST_BYTES_PER_TOKEN).unwrap_or(u32::MAX);
    if read >= least {
        return Ok(reply);
    }
    Err(unusable(format!(
        "the server read {read} tokens of a prompt that has at least {least}: it cuts prompts"
    ))
    .hint("lower language_model.context_tokens to what the server gives the model"))
}

/// A reply that breaks the interface's promises.
fn unusable(message: impl Into<String>) -> Failure {
    Failure::new(Kind::System, "model_reply", message)
}

/// A count of tokens in a server's reply.
fn count(value: &Value, pointer: &str) -> Option<u32> {
    value
        .pointer(pointer)
        .and_then(Value::as_u64)
        .and_then(|count| u32::try_from(count).ok())
}

/// The names in a list of models.
fn names(body: &Value, list: &str, member: &str) -> Vec<String> {
    body.get(list)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|model| model.get(member)?.as_str())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(prompt_tokens: Option<u32>) -> Reply {
        Reply {
            text: "yes".to_owned(),
            prompt_tokens,
            completion_tokens: None,
            cut: false,
        }
    }

    #[test]
    fn a_prompt_that_was_cut_is_noticed_and_a_dense_one_is_not() {
        let request = Request {
            messages: vec![Message::new(Role::User, "kestrels hover ".repeat(400))],
            schema: None,
            reply_tokens: 10,
            temperature: 0.0,
        };
        // 5,200 visible bytes: at least 866 tokens.
        assert!(check_whole(&request, reply(Some(866))).is_ok());
        let failure = check_whole(&request, reply(Some(865))).unwrap_err();
        assert_eq!(failure.code, "model_reply");
        assert!(check_whole(&request, reply(None)).is_ok());
    }

    #[test]
    fn ollama_lists_a_model_without_a_tag_as_latest() {
        let listed = vec!["qwen2.5:7b".to_owned(), "mistral:latest".to_owned()];
        assert!(is_listed(&listed, "qwen2.5:7b"));
        assert!(is_listed(&listed, "mistral"));
        assert!(!is_listed(&listed, "qwen2.5"));
    }
}
