//! The builder's side of the SQL interface: what is to be made into claims, and what came of it.

use std::time::Duration;

use serde_json::Value;
use sqlx::postgres::PgRow;

use super::jobs::interval;
use super::{Access, Db, column, vector_text};
use crate::error::{Failure, Outcome};
use crate::synth::{Chunk, Source};

const TAKE: &str = "
SELECT t.job_id, t.namespace::text, t.artifact_id, t.title, t.origin, t.dated, t.class, t.chunks::text, t.settings::text
  FROM {cortex}.cortex_build_take($1, $2, $3) t";
const COMMIT: &str = "
SELECT {cortex}.cortex_build_commit($1, $2::text::jsonb, $3::text[]::{vector}.vector[], $4::text::jsonb, $5, $6)::text";
const FAIL: &str = "SELECT {cortex}.cortex_build_fail($1, $2, $3::text::jsonb, $4)";
const MODELLESS: &str = "
SELECT n.namespace::text FROM cortex.namespaces n
 CROSS JOIN LATERAL (SELECT {cortex}.cortex_stats(n.namespace) -> 'settings' AS now OFFSET 0) s
 WHERE s.now ->> 'builder' = 'model' AND s.now #>> '{synthesis,synthesizer}' IN ('json', 'extractive') ORDER BY 1";
const SPACE: &str = "SELECT n.space FROM cortex.namespaces n WHERE n.namespace = $1";

/// A source that this worker is to make claims of.
#[derive(Clone, Debug)]
pub struct BuildJob {
    /// Id of the job.
    pub id: i64,
    /// Its namespace.
    pub namespace: String,
    /// The source.
    pub artifact_id: String,
    /// Why it is wanted: `NOVEL`, `THIN`, `STALE-OWNED`, if a read wanted it.
    pub class: Option<String>,
    /// Its text and labels.
    pub source: Source,
    /// The namespace's settings.
    pub settings: Value,
}

impl Db {
    /// Takes a build of `namespace`, or of any.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn build_take(
        &self,
        namespace: Option<&str>,
        worker: &str,
        lease: Duration,
    ) -> Outcome<Option<BuildJob>> {
        let (namespace, worker) = (namespace.map(str::to_owned), worker.to_owned());
        let lease = interval(lease)?;
        let rows = self
            .rows(Access::Job, TAKE, |statement| {
                statement.bind(namespace).bind(worker).bind(lease)
            })
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let chunks: String = column(row, 7)?;
        let settings: Option<String> = column(row, 8)?;
        Ok(Some(BuildJob {
            id: column(row, 0)?,
            namespace: column(row, 1)?,
            artifact_id: column(row, 2)?,
            class: column(row, 6)?,
            source: Source {
                title: column(row, 3)?,
                origin: column(row, 4)?,
                dated: column(row, 5)?,
                chunks: parse::<Vec<Chunk>>("chunks", &chunks)?,
            },
            settings: settings.map_or(Ok(Value::Null), |text| parse("settings", &text))?,
        }))
    }

    /// Hands in claims, as JSON, with their vectors and the space these belong to. Returns what the database did with them.
    ///
    /// # Errors
    /// As [`Db::rows`]; 55000 if the worker no longer holds the job.
    pub async fn build_commit(
        &self,
        job: i64,
        worker: &str,
        claims: String,
        vectors: Option<(i32, Vec<Vec<f32>>)>,
        usage: String,
    ) -> Outcome<Value> {
        let worker = worker.to_owned();
        let space = vectors.as_ref().map(|(space, _)| *space);
        let vectors: Option<Vec<String>> =
            vectors.map(|(_, vectors)| vectors.iter().map(|vector| vector_text(vector)).collect());
        let answer: String = self
            .value(Access::Job, COMMIT, |statement| {
                statement
                    .bind(job)
                    .bind(claims)
                    .bind(vectors)
                    .bind(usage)
                    .bind(worker)
                    .bind(space)
            })
            .await?;
        parse("cortex_build_commit", &answer)
    }

    /// Gives a build back with the reason. Returns `ready` (it backs off) or `dead`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn build_fail(
        &self,
        job: i64,
        worker: &str,
        reason: &str,
        usage: String,
    ) -> Outcome<String> {
        let (worker, reason) = (worker.to_owned(), reason.to_owned());
        self.value(Access::Job, FAIL, |statement| {
            statement.bind(job).bind(reason).bind(usage).bind(worker)
        })
        .await
    }

    /// Namespaces whose claims are made without a language model, among those that this role may read
    /// (`cortex_grant`).
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn namespaces_built_without_model(&self) -> Outcome<Vec<String>> {
        let rows = self
            .rows(Access::Read, MODELLESS, |statement| statement)
            .await;
        seen(rows)?.iter().map(|row| column(row, 0)).collect()
    }

    /// Id of the embedding space of a namespace, if it has one and this role may read it.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn space_of(&self, namespace: &str) -> Outcome<Option<i32>> {
        let namespace = namespace.to_owned();
        let rows = self
            .rows(Access::Read, SPACE, |statement| statement.bind(namespace))
            .await;
        let space = seen(rows)?.first().map(|row| column(row, 0)).transpose()?;
        Ok(space.flatten())
    }
}

/// Nothing, where the role may not look: a worker need not be a reader.
fn seen(rows: Outcome<Vec<PgRow>>) -> Outcome<Vec<PgRow>> {
    match rows {
        Err(failure) if failure.code == "forbidden" => Ok(Vec::new()),
        rows => rows,
    }
}

fn parse<T: serde::de::DeserializeOwned>(what: &str, json: &str) -> Outcome<T> {
    serde_json::from_str(json).map_err(|error| Failure::internal(format!("{what}: {error}")))
}
