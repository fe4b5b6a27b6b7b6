//! What a database holds and has still to do, for health and doctor.

use serde::Serialize;

use super::{Access, Db, column};
use crate::error::Outcome;

const STORAGE: &str = "
SELECT pg_catalog.pg_database_size(pg_catalog.current_database()),
       coalesce((SELECT sum(pg_catalog.pg_total_relation_size(c.oid))::bigint
                   FROM pg_catalog.pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'cortex'::regnamespace), 0),
       pg_catalog.current_setting('fsync')::boolean AND pg_catalog.current_setting('full_page_writes')::boolean,
       pg_catalog.pg_is_in_recovery()";

const BACKLOG: &str = "
SELECT coalesce(sum(n.unsealed), 0)::bigint, coalesce(sum(n.pending_chunk), 0)::bigint,
       coalesce(sum(n.pending_embed), 0)::bigint,
       (SELECT count(*) FROM cortex.jobs j WHERE j.state = 'ready'),
       (SELECT count(*) FROM cortex.jobs j WHERE j.state = 'running'),
       (SELECT count(*) FROM cortex.jobs j WHERE j.state = 'dead'),
       (SELECT pg_catalog.format('job %s (%s): %s', d.job_id, d.kind, d.last_error)
          FROM cortex.jobs d WHERE d.state = 'dead' ORDER BY d.job_id LIMIT 1)
  FROM cortex.namespaces n";

/// Where the data is and how safe it is there.
#[derive(Clone, Debug, Serialize)]
pub struct Storage {
    /// Size of the database.
    pub database_bytes: i64,
    /// Of it, the tables of schema `cortex` with their indexes.
    pub cortex_bytes: i64,
    /// Whether a power cut leaves it whole: `fsync` and `full_page_writes` are on.
    pub durable: bool,
    /// Whether it is a standby, which answers and does not work.
    pub standby: bool,
}

/// What is not done yet, in the namespaces that this role may read.
#[derive(Clone, Debug, Serialize)]
pub struct Backlog {
    /// Changes without a number.
    pub unsealed: i64,
    /// Source versions to load or chunk.
    pub pending_chunk: i64,
    /// Items to embed.
    pub pending_embed: i64,
    /// Jobs that wait for a worker.
    pub jobs_ready: i64,
    /// Jobs that a worker has.
    pub jobs_running: i64,
    /// Jobs that wait for an operator.
    pub jobs_dead: i64,
    /// The first of them, with its reason, which may quote a source.
    #[serde(skip)]
    pub first_dead: Option<String>,
}

impl Db {
    /// Size and safety of the storage.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn storage(&self) -> Outcome<Storage> {
        let row = self
            .row(Access::Read, STORAGE, |statement| statement)
            .await?;
        Ok(Storage {
            database_bytes: column(&row, 0)?,
            cortex_bytes: column(&row, 1)?,
            durable: column(&row, 2)?,
            standby: column(&row, 3)?,
        })
    }

    /// What is not done yet.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn backlog(&self) -> Outcome<Backlog> {
        let row = self
            .row(Access::Read, BACKLOG, |statement| statement)
            .await?;
        Ok(Backlog {
            unsealed: column(&row, 0)?,
            pending_chunk: column(&row, 1)?,
            pending_embed: column(&row, 2)?,
            jobs_ready: column(&row, 3)?,
            jobs_running: column(&row, 4)?,
            jobs_dead: column(&row, 5)?,
            first_dead: column(&row, 6)?,
        })
    }
}
