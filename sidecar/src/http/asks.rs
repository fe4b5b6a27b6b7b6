//! The ask protocol over REST. A host drives it with its own model; each call here is one SQL function.

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::App;
use super::body::{JsonBody, Segment};
use super::reply::RawJson;
use crate::db::reader::{AskOptions, Question};
use crate::db::traces::{Refinement, Told};
use crate::error::Outcome;

/// An ask to open.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenIn {
    question: String,
    ask_mode: Option<String>,
    policy: Option<Map<String, Value>>,
    namespace: Option<String>,
    sub_questions: Option<Vec<String>>,
    /// Arms: auto, lexical, vector or hybrid.
    mode: Option<String>,
}

/// The next round.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoundIn {
    /// Words of the query to embed for it.
    embed: Option<String>,
}

/// A selection.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SelectIn {
    round: i32,
    item_ids: Option<Vec<i64>>,
    model: Option<Value>,
}

/// A refinement.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefineIn {
    query: String,
    gap: String,
    /// Whether to embed the query.
    #[serde(default)]
    embed: bool,
    model: Option<Value>,
}

/// An answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerIn {
    prose: Option<String>,
    statements: Option<Value>,
    citations: Option<Value>,
    model: Option<Value>,
}

pub(super) async fn open(
    State(app): State<App>,
    JsonBody(asked): JsonBody<OpenIn>,
) -> Outcome<RawJson> {
    let arms = asked.mode.unwrap_or_else(|| "auto".to_owned());
    let vector = match arms.as_str() {
        "lexical" => None,
        _ => app.encoder.question(&asked.question).await?,
    };
    let mut question = Question {
        text: asked.question,
        vector,
        namespace: app.namespace(asked.namespace),
        mode: arms,
    };
    // A vector belongs to one space, and PostgreSQL can only see whether its length fits. A search tells.
    if question.vector.is_some() && !app.db.search(&question, 1).await?.by_vector {
        question.vector = None;
    }
    let options = AskOptions {
        mode: asked.ask_mode.unwrap_or_else(|| AskOptions::default().mode),
        policy: asked.policy.unwrap_or_default(),
        sub_questions: asked.sub_questions,
    };
    app.db.open_ask(&question, &options).await.map(RawJson)
}

pub(super) async fn round(
    State(app): State<App>,
    Segment(id): Segment<i64>,
    JsonBody(asked): JsonBody<RoundIn>,
) -> Outcome<RawJson> {
    let vector = match asked.embed {
        Some(words) => app.encoder.question(&words).await?,
        None => None,
    };
    let vector = vector.map(|vector| vector.text);
    app.db.ask_round(id, vector).await.map(RawJson)
}

pub(super) async fn select(
    State(app): State<App>,
    Segment(id): Segment<i64>,
    JsonBody(asked): JsonBody<SelectIn>,
) -> Outcome<RawJson> {
    let told = app
        .db
        .ask_select(id, asked.round, asked.item_ids, asked.model);
    told.await.map(RawJson)
}

pub(super) async fn refine(
    State(app): State<App>,
    Segment(id): Segment<i64>,
    JsonBody(asked): JsonBody<RefineIn>,
) -> Outcome<RawJson> {
    let vector = match asked.embed {
        true => app.encoder.question(&asked.query).await?,
        false => None,
    };
    let refinement = Refinement {
        query: asked.query,
        gap: asked.gap,
        vector: vector.map(|vector| vector.text),
        model: asked.model,
    };
    app.db.ask_refine(id, refinement).await.map(RawJson)
}

pub(super) async fn answer(
    State(app): State<App>,
    Segment(id): Segment<i64>,
    JsonBody(asked): JsonBody<AnswerIn>,
) -> Outcome<RawJson> {
    let told = Told {
        prose: asked.prose,
        statements: asked.statements,
        citations: asked.citations,
        model: asked.model,
    };
    app.db.ask_answer(id, told).await.map(RawJson)
}

pub(super) async fn close(State(app): State<App>, Segment(id): Segment<i64>) -> Outcome<RawJson> {
    app.db.ask_close(id).await.map(RawJson)
}

pub(super) async fn abandon(
    State(app): State<App>,
    Segment(id): Segment<i64>,
) -> Outcome<StatusCode> {
    app.db.ask_abandon(id).await?;
    Ok(StatusCode::NO_CONTENT)
}
