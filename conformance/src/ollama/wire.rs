//! Replies as the two interfaces write them.

use serde_json::{Value, json};

/// A reply with everything that is written about it.
pub(super) struct Said {
    pub model: String,
    pub words: String,
    pub tool_calls: Option<Value>,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Whether its length ended it.
    pub cut: bool,
}

/// Which interface was asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Ollama,
    OpenAi,
}

/// A time like any other.
const MADE_AT: &str = "2000-01-01T00:00:00Z";
/// Bytes of one piece of a stream.
const PIECE: usize = 12;

impl Said {
    /// The whole reply as one body.
    pub fn body(&self, dialect: Dialect) -> String {
        match dialect {
            Dialect::Ollama => self
                .ollama_end(&self.words, self.tool_calls.as_ref())
                .to_string(),
            Dialect::OpenAi => {
                let message = self.message(&self.words, self.tool_calls.as_ref());
                json!({
                    "id": "chatcmpl-scripted", "object": "chat.completion", "created": 946_684_800, "model": self.model,
                    "choices": [{"index": 0, "message": message, "finish_reason": self.reason()}],
                    "usage": self.usage(),
                })
                .to_string()
            }
        }
    }

    /// The reply as the lines or events of a stream.
    pub fn stream(&self, dialect: Dialect) -> Vec<String> {
        let pieces = pieces(&self.words);
        match dialect {
            Dialect::Ollama => pieces
                .iter()
                .map(|piece| {
                    json!({"model": self.model, "created_at": MADE_AT, "done": false,
                        "message": self.message(piece, None)})
                })
                .chain([self.ollama_end("", self.tool_calls.as_ref())])
                .map(|line| format!("{line}\n"))
                .collect(),
            Dialect::OpenAi => {
                let chunk = |delta: Value, reason: Value| {
                    json!({
                        "id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 946_684_800,
                        "model": self.model, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
                    })
                };
                let mut events = vec![chunk(
                    json!({"role": "assistant", "content": null}),
                    Value::Null,
                )];
                events.extend(
                    pieces
                        .iter()
                        .map(|piece| chunk(json!({"content": piece}), Value::Null)),
                );
                let mut last = json!({});
                if let Some(calls) = &self.tool_calls {
                    last["tool_calls"] = calls.clone();
                }
                events.push(chunk(last, json!(self.reason())));
                events.push(json!({"object": "chat.completion.chunk", "model": self.model, "choices": [], "usage": self.usage()}));
                events
                    .into_iter()
                    .map(|event| format!("data: {event}\n\n"))
                    .chain(["data: [DONE]\n\n".to_owned()])
                    .collect()
            }
        }
    }

    fn ollama_end(&self, words: &str, calls: Option<&Value>) -> Value {
        json!({
            "model": self.model, "created_at": MADE_AT, "message": self.message(words, calls), "done": true,
            "done_reason": self.reason(), "total_duration": 1_000_000, "load_duration": 1,
            "prompt_eval_count": self.prompt_tokens, "eval_count": self.completion_tokens,
        })
    }

    fn message(&self, words: &str, calls: Option<&Value>) -> Value {
        let mut message = json!({"role": "assistant", "content": words});
        if let Some(calls) = calls {
            message["tool_calls"] = calls.clone();
        }
        message
    }

    fn reason(&self) -> &'static str {
        if self.cut { "length" } else { "stop" }
    }

    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        })
    }
}

/// A text in pieces, none of which breaks a character.
pub(super) fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rest.ceil_char_boundary(PIECE));
        pieces.push(piece);
        rest = more;
    }
    pieces
}
