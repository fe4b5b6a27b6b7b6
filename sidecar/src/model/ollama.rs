//! Ollama's own interface. Unlike its OpenAI-compatible one it takes the size of the context.

use serde_json::{Value, json};

use super::client::Client;
use super::{LanguageModel, Pending, Reply, Request, check_whole, count, unusable};

pub(super) struct Ollama {
    client: Client,
}

impl Ollama {
    pub fn new(client: Client) -> Self {
        Ollama { client }
    }
}

impl LanguageModel for Ollama {
    fn name(&self) -> &str {
        &self.client.model
    }

    fn context_tokens(&self) -> u32 {
        self.client.context_tokens
    }

    fn reply_tokens(&self) -> u32 {
        self.client.reply_tokens
    }

    fn ask<'a>(&'a self, request: &'a Request) -> Pending<'a, Reply> {
        Box::pin(async move {
            let mut body = json!({
                "model": self.client.model,
                "messages": request.messages,
                "stream": false,
                "options": {
                    "temperature": request.temperature,
                    // The same with every request: another size makes the server load the model anew.
                    "num_ctx": self.client.context_tokens,
                    "num_predict": request.reply_tokens,
                },
            });
            if let Some(schema) = &request.schema {
                body["format"] = schema.clone();
            }
            let answer = self.client.post("/api/chat", &body).await?;
            if !answer.status.is_success() || answer.body.get("error").is_some() {
                return Err(self.client.refused(&answer));
            }
            let Some(text) = answer
                .body
                .pointer("/message/content")
                .and_then(Value::as_str)
            else {
                return Err(unusable("the reply has no message.content, as Ollama's have")
                    .hint("for a server with /v1/chat/completions set language_model.provider to \"openai\""));
            };
            let reply = Reply {
                text: text.to_owned(),
                prompt_tokens: count(&answer.body, "/prompt_eval_count"),
                completion_tokens: count(&answer.body, "/eval_count"),
                cut: answer.body.get("done_reason").and_then(Value::as_str) == Some("length"),
            };
            check_whole(request, reply)
        })
    }

    fn list(&self) -> Pending<'_, Vec<String>> {
        Box::pin(async move {
            let answer = self.client.get("/api/tags").await?;
            if !answer.status.is_success() {
                return Err(self.client.refused(&answer));
            }
            Ok(super::names(&answer.body, "models", "name"))
        })
    }
}
