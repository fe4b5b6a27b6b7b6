//! The worker's side of the SQL interface.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::postgres::types::PgInterval;

use super::{Access, Db, column, vector_text};
use crate::embed::EmbeddingSpace;
use crate::error::{Failure, Outcome};

// The notification is part of the sealing transaction: who is woken finds what was sealed.
const SEAL: &str = "
SELECT sealed.n, CASE WHEN sealed.n > 0 THEN pg_catalog.pg_notify('cortex', sealed.n::text)::text END
  FROM (SELECT {cortex}.cortex_seal() AS n OFFSET 0) sealed";
const AUDIT: &str = "SELECT {cortex}.cortex_audit($1)::text";
const TAKE: &str = "SELECT job_id, kind, namespace FROM {cortex}.cortex_job_take($1, $2, $3)";
const RUN: &str = "SELECT (r.step ->> 'done')::boolean, (r.step ->> 'rows')::bigint
  FROM (SELECT {cortex}.cortex_job_run($1, $2, $3) AS step OFFSET 0) r";
const HEARTBEAT: &str = "SELECT {cortex}.cortex_job_heartbeat($1, $2, $3)";
const FAIL: &str = "SELECT {cortex}.cortex_job_fail($1, $2, $3, $4)";
const EMBED_TAKE: &str = "SELECT item_id, body FROM {cortex}.cortex_embed_take($1, $2, $3)";
const EMBED_COMMIT: &str = "
SELECT (r.step ->> 'done')::boolean, (r.step ->> 'stored')::bigint
  FROM (SELECT {cortex}.cortex_embed_commit($1, $2, $3, $4::text[]::{vector}.vector[]) AS step OFFSET 0) r";
const REGISTER: &str = "SELECT {cortex}.cortex_space_register($1, $2, $3, $4, $5, $6)";
const USE_SPACE: &str = "SELECT {cortex}.cortex_space_use($1, $2)::text";
const WITHOUT_SPACE: &str =
    "SELECT w.namespace FROM {cortex}.cortex_space_wanting() AS w (namespace)";

/// A job that this worker holds.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its id.
    pub id: i64,
    /// `load`, `reconcile`, `chunk` or `embed`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
}

/// What one step of a job did.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Whether the job is finished.
    pub done: bool,
    /// Rows or vectors that it handled.
    pub rows: i64,
}

/// A text to embed.
#[derive(Clone, Debug)]
pub struct Text {
    /// Chunk or claim.
    pub item_id: i64,
    /// Its text with date and title in front.
    pub body: String,
}

impl Db {
    /// Numbers what is committed and unnumbered, and wakes who listens if there was any. Returns how many
    /// changes it numbered.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn seal(&self) -> Outcome<i64> {
        self.value(Access::Job, SEAL, |statement| statement).await
    }

    /// `cortex_audit`: verifies traces that were not looked at lately; JSON with the number and the new failures.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn audit(&self, max_traces: i32) -> Outcome<String> {
        self.value(Access::Job, AUDIT, |statement| statement.bind(max_traces))
            .await
    }

    /// Takes one job of the given kinds.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn take_job(
        &self,
        worker: &str,
        kinds: &[&str],
        lease: Duration,
    ) -> Outcome<Option<Job>> {
        let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let lease = interval(lease)?;
        let worker = worker.to_owned();
        let rows = self
            .rows(Access::Job, TAKE, |statement| {
                statement.bind(worker).bind(kinds).bind(lease)
            })
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        Ok(Some(Job {
            id: column(row, 0)?,
            kind: column(row, 1)?,
            namespace: column(row, 2)?,
        }))
    }

    /// Runs one batch of a job that needs no model.
    ///
    /// # Errors
    /// As [`Db::rows`]; 55000 if the worker no longer holds the job.
    pub async fn run_job(&self, job: i64, worker: &str, batch: i32) -> Outcome<Step> {
        let worker = worker.to_owned();
        let row = self
            .row(Access::Job, RUN, |statement| {
                statement.bind(job).bind(worker).bind(batch)
            })
            .await?;
        step(&row)
    }

    /// Extends the lease. False if the worker no longer holds the job.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn heartbeat(&self, job: i64, worker: &str, lease: Duration) -> Outcome<bool> {
        let (worker, lease) = (worker.to_owned(), interval(lease)?);
        self.value(Access::Job, HEARTBEAT, |statement| {
            statement.bind(job).bind(worker).bind(lease)
        })
        .await
    }

    /// Gives the job back. Returns `ready` or, after `max_attempts`, `dead`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn fail_job(
        &self,
        job: i64,
        worker: &str,
        reason: &str,
        max_attempts: i32,
    ) -> Outcome<String> {
        let (worker, reason) = (worker.to_owned(), reason.to_owned());
        self.value(Access::Job, FAIL, |statement| {
            statement
                .bind(job)
                .bind(worker)
                .bind(reason)
                .bind(max_attempts)
        })
        .await
    }

    /// The next texts of an embed job. None left: empty.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn embed_take(&self, job: i64, worker: &str, batch: i32) -> Outcome<Vec<Text>> {
        let worker = worker.to_owned();
        let rows = self
            .rows(Access::Job, EMBED_TAKE, |statement| {
                statement.bind(job).bind(worker).bind(batch)
            })
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Text {
                    item_id: column(row, 0)?,
                    body: column(row, 1)?,
                })
            })
            .collect()
    }

    /// Stores vectors. Without any it ends the job if nothing is left.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn embed_commit(
        &self,
        job: i64,
        worker: &str,
        items: Vec<i64>,
        vectors: &[Vec<f32>],
    ) -> Outcome<Step> {
        let worker = worker.to_owned();
        let vectors: Vec<String> = vectors.iter().map(|vector| vector_text(vector)).collect();
        let row = self
            .row(Access::Job, EMBED_COMMIT, |statement| {
                statement.bind(job).bind(worker).bind(items).bind(vectors)
            })
            .await?;
        step(&row)
    }

    /// The id of an embedding space, made if it is new.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn register_space(&self, space: &EmbeddingSpace) -> Outcome<i32> {
        let space = space.clone();
        let dims = i32::try_from(space.dimensions)
            .map_err(|_| Failure::internal(format!("{} dimensions", space.dimensions)))?;
        self.value(Access::Write, REGISTER, |statement| {
            statement
                .bind(space.model)
                .bind(space.revision)
                .bind(space.digest)
                .bind(dims)
                .bind(space.normalised)
                .bind(space.prefix)
        })
        .await
    }

    /// Namespaces that have no embedding space yet.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn namespaces_without_space(&self) -> Outcome<Vec<String>> {
        let rows = self
            .rows(Access::Read, WITHOUT_SPACE, |statement| statement)
            .await?;
        rows.iter().map(|row| column(row, 0)).collect()
    }

    /// Switches a namespace to a space, which queues the embedding of what it holds.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn use_space(&self, namespace: &str, space: i32) -> Outcome<String> {
        let namespace = namespace.to_owned();
        self.value(Access::Job, USE_SPACE, |statement| {
            statement.bind(namespace).bind(space)
        })
        .await
    }
}

fn step(row: &PgRow) -> Outcome<Step> {
    let rows: Option<i64> = row.try_get(1).ok();
    Ok(Step {
        done: column(row, 0)?,
        rows: rows.unwrap_or(0),
    })
}

pub(super) fn interval(length: Duration) -> Outcome<PgInterval> {
    PgInterval::try_from(length)
        .map_err(|error| Failure::internal(format!("an interval of {length:?}: {error}")))
}
