//! `GET /api/v1/health`: what a monitor asks. It runs real queries; nothing in it is assumed.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::value::RawValue;

use super::App;
use super::reply::RawJson;
use crate::db::reader::{Question, ReadOptions};
use crate::db::state::{Backlog, Storage};
use crate::error::{Failure, Outcome};
use crate::worker::View;

/// The question of the trial; any word will do. It is read and not searched for, since a read tells its arms
/// also where nothing is found.
const TRIAL: &str = "health";
const TRIAL_TOKENS: i32 = 100;

#[derive(Serialize)]
struct Health {
    /// `ok`, or `down` where the database does not answer. The HTTP status says the same: 200 or 503.
    status: &'static str,
    binary: &'static str,
    postgres: Option<String>,
    extension: Option<String>,
    pgvector: Option<String>,
    /// Whether this process embeds; if not, why.
    embedding: String,
    /// The server of the language model that is asked for claims; null without one.
    language_model: Option<ModelServer>,
    /// What a trial read did.
    read: Option<Trial>,
    storage: Option<Storage>,
    /// What is not done yet; null where this role may not see it.
    backlog: Option<Backlog>,
    /// `cortex_health()`, as PostgreSQL wrote it.
    database: Option<Box<RawValue>>,
    /// The worker of this process; null where it runs none.
    worker: Option<View>,
    warnings: Vec<String>,
    error: Option<Failure>,
}

#[derive(Serialize)]
struct ModelServer {
    name: String,
    url: String,
    /// Whether texts of sources leave this machine.
    remote: bool,
}

#[derive(Serialize)]
struct Trial {
    /// Whether it compared vectors, or why not.
    vector: bool,
    ms: u64,
}

pub(super) async fn health(State(app): State<App>) -> Response {
    let mut health = Health {
        status: "ok",
        binary: env!("CARGO_PKG_VERSION"),
        postgres: None,
        extension: None,
        pgvector: None,
        embedding: app
            .encoder
            .space()
            .map_or_else(str::to_owned, |space| space.model.clone()),
        language_model: app.config.language_model.is_on().then(|| ModelServer {
            name: app.config.language_model.name.clone(),
            url: app.config.language_model.url.clone(),
            remote: app.config.language_model.is_remote(),
        }),
        read: None,
        storage: None,
        backlog: None,
        database: None,
        worker: app.worker.as_ref().map(|status| status.view()),
        warnings: Vec::new(),
        error: None,
    };
    let status = match fill(&app, &mut health).await {
        Ok(()) => StatusCode::OK,
        Err(failure) => {
            health.status = "down";
            health.error = Some(failure);
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    match serde_json::to_string(&health) {
        Ok(body) => (status, RawJson(body)).into_response(),
        Err(error) => {
            Failure::internal(format!("health cannot be written: {error}")).into_response()
        }
    }
}

/// A warning where an audit found traces that do not verify.
fn failed_traces(database: &str) -> Option<String> {
    let database: serde_json::Value = serde_json::from_str(database).ok()?;
    let failed = database["failed_traces"].as_u64().filter(|n| *n > 0)?;
    Some(format!(
        "{failed} traces do not verify; cortex_verify_all() names them, and event trace_failed told of each"
    ))
}

async fn fill(app: &App, health: &mut Health) -> Outcome<()> {
    let catalog = app.db.look_up_catalog().await?;
    health.postgres = Some(catalog.server.clone());
    health.extension = Some(catalog.cortex.clone());
    health.pgvector = Some(catalog.vector.clone());
    health.warnings.extend(catalog.warning());
    catalog.check_version()?;
    let database = app.db.health().await?;
    health.warnings.extend(failed_traces(&database));
    health.database = RawValue::from_string(database).ok();
    let storage = app.db.storage().await?;
    if !storage.durable {
        let warning = "fsync or full_page_writes is off: a power cut can destroy this database";
        health.warnings.push(warning.to_owned());
    }
    health.storage = Some(storage);
    health.backlog = match app.db.backlog().await {
        Ok(backlog) => Some(backlog),
        Err(failure) if failure.code == "forbidden" => None,
        Err(failure) => return Err(failure),
    };
    let namespace = app.config.read.namespace.clone();
    let started = std::time::Instant::now();
    let vector = app.encoder.question(TRIAL).await?;
    let question = Question {
        text: TRIAL.to_owned(),
        vector,
        namespace,
        mode: "auto".to_owned(),
    };
    match app
        .db
        .read(&question, &ReadOptions::within(TRIAL_TOKENS))
        .await
    {
        Ok(answer) => {
            let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            health.read = Some(Trial {
                vector: answer.by_vector,
                ms,
            });
            Ok(())
        }
        // A namespace that was never used is not an illness.
        Err(failure) if failure.code == "not_found" => {
            health.warnings.push(failure.message);
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}
