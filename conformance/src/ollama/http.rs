//! The routes.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::fault::Fault;
use super::script::{Prepared, Reply, Script, ScriptError};
use super::wire::{Dialect, Said, pieces};

/// What [`Fault::Drip`] waits between two pieces.
const DRIP: Duration = Duration::from_millis(50);
/// Longest request that is read.
const LARGEST_REQUEST: usize = 64 << 20;

/// What the handlers share.
pub(super) struct State {
    script: Script,
    rules: Mutex<Vec<Prepared>>,
    requests: Mutex<Vec<Value>>,
}

impl State {
    pub fn new(mut script: Script) -> Result<Self, ScriptError> {
        let rules = Prepared::all(std::mem::take(&mut script.rules))?;
        Ok(State {
            script,
            rules: Mutex::new(rules),
            requests: Mutex::default(),
        })
    }

    pub fn requests(&self) -> Vec<Value> {
        lock(&self.requests).clone()
    }

    fn reply_to(&self, message: &str) -> (Reply, String) {
        lock(&self.rules)
            .iter_mut()
            .find_map(|rule| rule.fits(message))
            .unwrap_or_else(|| {
                let reply = self.script.otherwise.clone();
                let words = reply.words();
                (reply, words)
            })
    }

    fn has(&self, model: &str) -> bool {
        self.script.models.is_empty() || self.script.models.iter().any(|known| known == model)
    }

    fn models(&self) -> Vec<String> {
        match self.script.models.as_slice() {
            [] => vec!["scripted:latest".to_owned()],
            models => models.to_vec(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type At = Shared<Arc<State>>;

pub(super) fn router(state: Arc<State>) -> Router {
    let ollama = |state: At, headers: HeaderMap, body: Json<Value>| {
        chat(Dialect::Ollama, state, headers, body)
    };
    let openai = |state: At, headers: HeaderMap, body: Json<Value>| {
        chat(Dialect::OpenAi, state, headers, body)
    };
    Router::new()
        .route("/", get(|| async { "Ollama is running" }))
        .route(
            "/api/version",
            get(|| async { Json(json!({"version": "0.0.0-scripted"})) }),
        )
        .route("/api/tags", get(tags))
        .route("/api/show", post(show))
        .route("/api/chat", post(ollama))
        .route("/v1/models", get(models))
        .route("/v1/chat/completions", post(openai))
        .layer(axum::extract::DefaultBodyLimit::max(LARGEST_REQUEST))
        .with_state(state)
}

async fn tags(Shared(state): At) -> Json<Value> {
    let models: Vec<Value> = state
        .models()
        .into_iter()
        .map(|name| json!({"name": name, "model": name, "size": 1, "digest": "", "details": {"family": "scripted"}}))
        .collect();
    Json(json!({"models": models}))
}

async fn models(Shared(state): At) -> Json<Value> {
    let models: Vec<Value> = state
        .models()
        .into_iter()
        .map(|id| json!({"id": id, "object": "model", "owned_by": "script"}))
        .collect();
    Json(json!({"object": "list", "data": models}))
}

async fn show(Shared(state): At, Json(asked): Json<Value>) -> Response {
    let name = asked["model"].as_str().unwrap_or_default();
    if !state.has(name) {
        return error(
            Dialect::Ollama,
            StatusCode::NOT_FOUND,
            &format!("model '{name}' not found"),
        );
    }
    Json(json!({
        "details": {"family": "scripted"}, "capabilities": ["completion", "tools"],
        "model_info": {"general.architecture": "scripted", "scripted.context_length": 8192},
    }))
    .into_response()
}

fn error(dialect: Dialect, status: StatusCode, message: &str) -> Response {
    let body = match dialect {
        Dialect::Ollama => json!({"error": message}),
        Dialect::OpenAi => json!({"error": {"message": message, "code": status.as_u16()}}),
    };
    (status, Json(body)).into_response()
}

async fn chat(dialect: Dialect, state: At, headers: HeaderMap, body: Json<Value>) -> Response {
    let (Shared(state), Json(asked)) = (state, body);
    lock(&state.requests).push(asked.clone());
    if let Some(key) = &state.script.api_key {
        let given = headers.get(header::AUTHORIZATION);
        if given.and_then(|given| given.to_str().ok()) != Some(&format!("Bearer {key}")) {
            return error(dialect, StatusCode::UNAUTHORIZED, "Invalid API Key");
        }
    }
    if state.script.refuses_schema && asked.get("response_format").is_some() {
        return error(
            dialect,
            StatusCode::BAD_REQUEST,
            "response_format is not supported",
        );
    }
    let model = asked["model"].as_str().unwrap_or_default();
    if !state.has(model) {
        return error(
            dialect,
            StatusCode::NOT_FOUND,
            &format!("model '{model}' not found"),
        );
    }
    let messages: Vec<&str> = asked["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|message| message["content"].as_str())
        .collect();
    let (reply, words) = state.reply_to(messages.last().unwrap_or(&""));
    tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
    let words = reply
        .fault
        .map_or(words.clone(), |fault| fault.spoil(&words));
    let read: usize = messages.iter().map(|message| message.len()).sum();
    let said = Said {
        model: model.to_owned(),
        completion_tokens: guess(words.len()),
        words,
        tool_calls: reply.tool_calls,
        prompt_tokens: match (reply.prompt_tokens, reply.fault) {
            (Some(count), _) => count,
            (None, Some(Fault::CutPrompt)) => 10,
            (None, _) => guess(read),
        },
        cut: reply.fault == Some(Fault::Truncated),
    };
    // Ollama streams unless it is told not to; the others the other way round.
    let stream = asked["stream"]
        .as_bool()
        .unwrap_or(dialect == Dialect::Ollama);
    send(dialect, &said, stream, reply.fault).await
}

/// A quarter of the bytes: the count that most people guess.
fn guess(bytes: usize) -> u64 {
    bytes as u64 / 4 + 1
}

async fn send(dialect: Dialect, said: &Said, stream: bool, fault: Option<Fault>) -> Response {
    match fault {
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::ServerError) => {
            return error(
                dialect,
                StatusCode::INTERNAL_SERVER_ERROR,
                "the model runner has stopped",
            );
        }
        Some(Fault::NotJson) => return "<html>a proxy was here</html>".into_response(),
        _ => {}
    }
    let kind = match (stream, dialect) {
        (false, _) => "application/json",
        (true, Dialect::Ollama) => "application/x-ndjson",
        (true, Dialect::OpenAi) => "text/event-stream",
    };
    let parts: Vec<String> = if stream {
        said.stream(dialect)
    } else {
        pieces(&said.body(dialect))
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    let (sender, receiver) = mpsc::channel::<io::Result<String>>(4);
    tokio::spawn(async move {
        let half = parts.len() / 2;
        for (index, part) in parts.into_iter().enumerate() {
            if fault == Some(Fault::HangUp) && index >= half {
                let _ = sender.send(Err(io::Error::other("hung up"))).await;
                return;
            }
            if fault == Some(Fault::Drip) {
                tokio::time::sleep(DRIP).await;
            }
            if sender.send(Ok(part)).await.is_err() {
                // The client left.
                return;
            }
        }
    });
    (
        [(header::CONTENT_TYPE, kind)],
        Body::from_stream(ReceiverStream::new(receiver)),
    )
        .into_response()
}
