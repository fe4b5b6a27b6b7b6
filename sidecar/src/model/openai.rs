//! `/v1/chat/completions`, as many servers speak it.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::client::Client;
use super::{LanguageModel, Pending, Reply, Request, check_whole, count, unusable};

pub(super) struct OpenAi {
    client: Client,
    /// The server refused a schema once; not all of them know it.
    no_schema: AtomicBool,
}

impl OpenAi {
    pub fn new(mut client: Client) -> Self {
        // People write the address with and without it.
        client.set_base("/v1");
        OpenAi {
            client,
            no_schema: AtomicBool::new(false),
        }
    }

    fn body(&self, request: &Request, with_schema: bool) -> Value {
        let mut body = json!({
            "model": self.client.model,
            "messages": request.messages,
            "stream": false,
            "temperature": request.temperature,
            "max_tokens": request.reply_tokens,
        });
        if let Some(schema) = request.schema.as_ref().filter(|_| with_schema) {
            body["response_format"] = json!({
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": true, "schema": schema},
            });
        }
        body
    }
}

impl LanguageModel for OpenAi {
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
            let path = "/v1/chat/completions";
            let with_schema = request.schema.is_some() && !self.no_schema.load(Ordering::Relaxed);
            let body = self.body(request, with_schema);
            let mut answer = self.client.post(path, &body).await?;
            if with_schema && matches!(answer.status.as_u16(), 400 | 422) {
                // The schema, or something else: what it says without one tells.
                let body = self.body(request, false);
                answer = self.client.post(path, &body).await?;
                if answer.status.is_success() {
                    self.no_schema.store(true, Ordering::Relaxed);
                }
            }
            if !answer.status.is_success() {
                return Err(self.client.refused(&answer));
            }
            let choice = answer.body.pointer("/choices/0");
            let text = choice
                .and_then(|choice| choice.pointer("/message/content"))
                .and_then(Value::as_str);
            let Some(text) = text else {
                return Err(unusable(
                    "the reply has no choices[0].message.content, as an OpenAI-compatible server's have",
                )
                .hint("check language_model.provider and language_model.url"));
            };
            let finish = choice.and_then(|choice| choice.get("finish_reason"));
            let reply = Reply {
                text: text.to_owned(),
                prompt_tokens: count(&answer.body, "/usage/prompt_tokens"),
                completion_tokens: count(&answer.body, "/usage/completion_tokens"),
                cut: finish.and_then(Value::as_str) == Some("length"),
            };
            check_whole(request, reply)
        })
    }

    fn list(&self) -> Pending<'_, Vec<String>> {
        Box::pin(async move {
            let answer = self.client.get("/v1/models").await?;
            if !answer.status.is_success() {
                return Err(self.client.refused(&answer));
            }
            Ok(super::names(&answer.body, "data", "id"))
        })
    }
}
