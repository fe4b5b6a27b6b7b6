//! One function a route. Each asks the database and passes its answer on.

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::App;
use super::body::{JsonBody, Parameters, Segment};
use super::reply::RawJson;
use crate::db::reader::{AskOptions, Question, ReadOptions, Source};
use crate::error::{Failure, Outcome};

/// What search, read and ask take.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuestionIn {
    question: String,
    namespace: Option<String>,
    mode: Option<String>,
    k: Option<i32>,
    budget_tokens: Option<i32>,
    strategy: Option<String>,
    profile: Option<String>,
    policy: Option<Map<String, Value>>,
    ask_mode: Option<String>,
    sub_questions: Option<Vec<String>>,
}

impl QuestionIn {
    /// Refuses what this route does not use: a budget that is passed over is a budget exceeded.
    fn only(&self, route: &str, k: bool, budget: bool, policy: bool) -> Outcome<()> {
        let surplus = [
            ("k", self.k.is_some() && !k),
            ("budget_tokens", self.budget_tokens.is_some() && !budget),
            ("strategy", self.strategy.is_some() && !budget),
            ("profile", self.profile.is_some() && !budget),
            ("policy", self.policy.is_some() && !policy),
            ("ask_mode", self.ask_mode.is_some() && !policy),
            ("sub_questions", self.sub_questions.is_some() && !policy),
        ];
        match surplus.iter().find(|(_, there)| *there) {
            None => Ok(()),
            Some((name, _)) => Err(Failure::usage(format!("{route} takes no `{name}`"))),
        }
    }

    async fn into_question(self, app: &App) -> Outcome<Question> {
        let namespace = app.namespace(self.namespace);
        let mode = self.mode.unwrap_or_else(|| "auto".to_owned());
        let vector = if mode == "lexical" {
            None
        } else {
            app.encoder.question(&self.question).await?
        };
        Ok(Question {
            text: self.question,
            vector,
            namespace,
            mode,
        })
    }
}

/// A source to store.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceIn {
    /// In POST; in PUT it stands in the path.
    artifact_id: Option<String>,
    body: String,
    title: Option<String>,
    origin: Option<String>,
    dated: Option<String>,
    namespace: Option<String>,
}

/// `?namespace=`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InNamespace {
    pub namespace: Option<String>,
}

pub(super) async fn search(
    State(app): State<App>,
    JsonBody(asked): JsonBody<QuestionIn>,
) -> Outcome<RawJson> {
    asked.only("search", true, false, false)?;
    let k = asked.k.unwrap_or(app.config.read.k);
    let question = asked.into_question(&app).await?;
    app.db
        .search(&question, k)
        .await
        .map(|answer| RawJson(answer.json))
}

pub(super) async fn read(
    State(app): State<App>,
    JsonBody(asked): JsonBody<QuestionIn>,
) -> Outcome<RawJson> {
    asked.only("read", false, true, false)?;
    let own = app.config.read.budget_tokens;
    let options = ReadOptions {
        budget_tokens: asked
            .budget_tokens
            .or(asked.profile.is_none().then_some(own)),
        strategy: asked.strategy.clone(),
        profile: asked.profile.clone(),
    };
    let question = asked.into_question(&app).await?;
    let answer = app.db.read(&question, &options).await?;
    let json = RawJson(answer.json.clone());
    if app.config.read.record {
        // Off the read path: who asked does not wait for it, and a standby cannot do it.
        tokio::spawn(async move {
            if let Err(failure) = app.db.record_read(&question, &answer).await {
                tracing::debug!(code = failure.code, "a read was not recorded");
            }
        });
    }
    Ok(json)
}

pub(super) async fn ask(
    State(app): State<App>,
    JsonBody(asked): JsonBody<QuestionIn>,
) -> Outcome<RawJson> {
    asked.only("traces", false, false, true)?;
    let mut options = AskOptions::default();
    if let Some(policy) = &asked.policy {
        options.policy = policy.clone();
    }
    if let Some(mode) = &asked.ask_mode {
        options.mode = mode.clone();
    }
    options.sub_questions = asked.sub_questions.clone();
    let question = asked.into_question(&app).await?;
    app.db
        .ask(&question, &options)
        .await
        .map(|answer| RawJson(answer.json))
}

pub(super) async fn post_source(
    State(app): State<App>,
    JsonBody(source): JsonBody<SourceIn>,
) -> Outcome<RawJson> {
    let Some(artifact_id) = source.artifact_id.clone() else {
        return Err(Failure::usage("`artifact_id` is missing")
            .hint("name the source, as in \"file:notes/today.md\""));
    };
    store(&app, artifact_id, source).await
}

pub(super) async fn put_source(
    State(app): State<App>,
    Segment(id): Segment<String>,
    JsonBody(source): JsonBody<SourceIn>,
) -> Outcome<RawJson> {
    if source
        .artifact_id
        .as_ref()
        .is_some_and(|named| *named != id)
    {
        return Err(Failure::usage(
            "`artifact_id` in the body is not the one in the path",
        ));
    }
    store(&app, id, source).await
}

async fn store(app: &App, artifact_id: String, source: SourceIn) -> Outcome<RawJson> {
    let source = Source {
        artifact_id,
        body: source.body,
        title: source.title,
        origin: source.origin,
        dated: source.dated,
        namespace: app.namespace(source.namespace),
    };
    app.db.put_source(&source).await.map(RawJson)
}

pub(super) async fn get_source(
    State(app): State<App>,
    Segment(id): Segment<String>,
    Parameters(place): Parameters<InNamespace>,
) -> Outcome<RawJson> {
    let namespace = app.namespace(place.namespace);
    let found = app.db.source(&id, &namespace).await?;
    found.map(RawJson).ok_or_else(|| Failure {
        code: "not_found",
        ..Failure::usage(format!("namespace {namespace:?} has no source {id:?}"))
    })
}

pub(super) async fn delete_source(
    State(app): State<App>,
    Segment(id): Segment<String>,
    Parameters(place): Parameters<InNamespace>,
) -> Outcome<RawJson> {
    let namespace = app.namespace(place.namespace);
    app.db.delete_source(&id, &namespace).await.map(RawJson)
}
