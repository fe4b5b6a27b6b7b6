//! The claim pool over REST: what the SQL functions return, byte for byte.

use axum::extract::State;
use serde::Deserialize;

use super::App;
use super::body::{Parameters, Segment};
use super::handlers::InNamespace;
use super::reply::RawJson;
use crate::error::{Failure, Outcome};

/// Units in one answer, if none are asked for.
const UNITS: i64 = 100;
/// Most units in one answer.
const MOST_UNITS: i64 = 1_000;

/// Which units.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    namespace: Option<String>,
    after: Option<i64>,
    limit: Option<i64>,
}

pub(super) async fn units(
    State(app): State<App>,
    Parameters(page): Parameters<Page>,
) -> Outcome<RawJson> {
    let limit = page.limit.unwrap_or(UNITS);
    if !(1..=MOST_UNITS).contains(&limit) {
        return Err(Failure::usage(format!(
            "limit must be from 1 to {MOST_UNITS} and is {limit}"
        )));
    }
    let namespace = app.namespace(page.namespace);
    let after = page.after.unwrap_or(0);
    app.db.units(&namespace, after, limit).await.map(RawJson)
}

pub(super) async fn unit(
    State(app): State<App>,
    Segment(id): Segment<i64>,
    Parameters(place): Parameters<InNamespace>,
) -> Outcome<RawJson> {
    let namespace = app.namespace(place.namespace);
    app.db.unit(id, &namespace).await.map(RawJson)
}

pub(super) async fn evict(
    State(app): State<App>,
    Segment(id): Segment<i64>,
    Parameters(place): Parameters<InNamespace>,
) -> Outcome<RawJson> {
    let namespace = app.namespace(place.namespace);
    app.db.evict_unit(id, &namespace).await.map(RawJson)
}

pub(super) async fn stats(
    State(app): State<App>,
    Parameters(place): Parameters<InNamespace>,
) -> Outcome<RawJson> {
    let namespace = app.namespace(place.namespace);
    app.db.pool_stats(&namespace).await.map(RawJson)
}
