//! Traces over REST: what the SQL functions return, byte for byte.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::App;
use super::body::{Parameters, Segment, TextBody};
use super::reply::RawJson;
use crate::error::Outcome;

/// What the verifier believes was asked, and how far to look.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct How {
    question: Option<String>,
    #[serde(default)]
    exhaustive: bool,
}

/// Which traces to go through.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    namespace: Option<String>,
    since: Option<String>,
}

/// `?format=`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Form {
    format: Option<String>,
}

pub(super) async fn get(State(app): State<App>, Segment(id): Segment<i64>) -> Outcome<RawJson> {
    app.db.trace(id).await.map(RawJson)
}

pub(super) async fn verify_stored(
    State(app): State<App>,
    Segment(id): Segment<i64>,
    Parameters(how): Parameters<How>,
) -> Outcome<RawJson> {
    let report = app
        .db
        .verify_stored(id, how.question.as_deref(), how.exhaustive);
    report.await.map(RawJson)
}

pub(super) async fn verify_text(
    State(app): State<App>,
    Parameters(how): Parameters<How>,
    TextBody(trace): TextBody,
) -> Outcome<RawJson> {
    let report = app
        .db
        .verify_text(&trace, how.question.as_deref(), how.exhaustive);
    report.await.map(RawJson)
}

pub(super) async fn verify_all(
    State(app): State<App>,
    Parameters(which): Parameters<Which>,
) -> Outcome<RawJson> {
    let found = app.db.verify_all(which.namespace, which.since);
    found.await.map(RawJson)
}

pub(super) async fn drift(State(app): State<App>, Segment(id): Segment<i64>) -> Outcome<RawJson> {
    app.db.drift(id).await.map(RawJson)
}

pub(super) async fn explain(
    State(app): State<App>,
    Segment(id): Segment<i64>,
) -> Outcome<Response> {
    Ok(text("text/plain; charset=utf-8", app.db.explain(id).await?))
}

pub(super) async fn dossier(
    State(app): State<App>,
    Segment(id): Segment<i64>,
    Parameters(form): Parameters<Form>,
) -> Outcome<Response> {
    let format = form.format.unwrap_or_else(|| "json".to_owned());
    let document = app.db.dossier(id, &format).await?;
    Ok(match format.as_str() {
        "html" => text("text/html; charset=utf-8", document),
        "markdown" => text("text/markdown; charset=utf-8", document),
        _ => RawJson(document).into_response(),
    })
}

pub(super) async fn evidence(
    State(app): State<App>,
    Segment(id): Segment<i64>,
) -> Outcome<RawJson> {
    app.db.trace_evidence(id).await.map(RawJson)
}

/// A document. Its texts are escaped, and no browser may guess otherwise.
fn text(kind: &'static str, body: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'"),
    ];
    (headers, body).into_response()
}
