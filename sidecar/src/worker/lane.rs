//! One lane takes one job after the other and brings each to its end.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::backoff::Backoff;
use super::{SQL_KINDS, Worker, embedding};
use crate::db::jobs::{Job, Step};
use crate::error::{Failure, Outcome};

/// Tries of one step that fails in a way that may pass by itself, while PostgreSQL is there.
const TRIES: u32 = 10;
/// Longest reason that is kept with a failed job, in characters.
const LONGEST_REASON: usize = 1_000;

/// Which jobs a lane does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Those that the extension runs: load, reconcile, chunk.
    Sql,
    /// Embedding.
    Embed,
}

impl Work {
    fn kinds(self) -> &'static [&'static str] {
        match self {
            Work::Sql => &SQL_KINDS,
            Work::Embed => &["embed"],
        }
    }
}

pub(super) async fn run(worker: Worker, work: Work) {
    let name = worker.status.name();
    let mut woken = worker.wake.subscribe();
    let mut backoff = Backoff::new();
    while !worker.stop.is_cancelled() {
        // Before the look, so that a wake-up during it counts.
        woken.borrow_and_update();
        let wait = match worker
            .db
            .take_job(&name, work.kinds(), worker.settings.lease())
            .await
        {
            Ok(Some(job)) => {
                backoff.reset();
                hold(&worker, work, &job).await;
                continue;
            }
            Ok(None) => {
                backoff.reset();
                Duration::from_millis(worker.settings.poll_interval_ms)
            }
            Err(failure) => {
                worker.status.trouble(&failure);
                warn!(
                    code = failure.code,
                    sqlstate = failure.sqlstate,
                    ?work,
                    "no job could be taken"
                );
                backoff.next()
            }
        };
        tokio::select! {
            () = worker.stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
            _ = woken.changed() => {}
        }
    }
}

/// How a job left our hands.
enum End {
    Done,
    /// We no longer hold it: another worker took it after our lease ran out, or it is gone.
    Lost,
    Failed(Failure),
    /// We stop.
    Released,
}

async fn hold(worker: &Worker, work: Work, job: &Job) {
    let lost = CancellationToken::new();
    let beat = tokio::spawn(heartbeat(worker.clone(), job.id, lost.clone()));
    let end = steps(worker, work, job, &lost).await;
    beat.abort();
    match end {
        End::Done => {
            worker.status.job_done();
            debug!(
                job = job.id,
                kind = job.kind,
                namespace = job.namespace,
                "job done"
            );
        }
        End::Lost => info!(job = job.id, kind = job.kind, "the job is no longer ours"),
        End::Failed(failure) => {
            worker.status.job_failed();
            worker.status.trouble(&failure);
            give_back(worker, job, &reason(&failure), worker.settings.max_attempts).await;
        }
        // A worker that stops is no reason for a job to die.
        End::Released => give_back(worker, job, "released: the worker stopped", i32::MAX).await,
    }
    // A step of one lane makes work for the other.
    worker.wake();
}

async fn steps(worker: &Worker, work: Work, job: &Job, lost: &CancellationToken) -> End {
    let mut backoff = Backoff::new();
    let mut tries = 0;
    loop {
        if lost.is_cancelled() {
            return End::Lost;
        }
        match step(worker, work, job).await {
            Ok(Step { done: true, .. }) => return End::Done,
            Ok(Step { rows, .. }) => {
                worker.status.reached();
                backoff.reset();
                tries = 0;
                if rows > 0 && matches!(work, Work::Sql) {
                    worker.wake();
                }
                if worker.stop.is_cancelled() {
                    return End::Released;
                }
            }
            // The state that is wrong may be that of the job, or of what the job is about.
            Err(failure) if failure.code == "wrong_state" && !still_ours(worker, job.id).await => {
                return End::Lost;
            }
            Err(failure) if failure.is_transient() => {
                worker.status.trouble(&failure);
                // While PostgreSQL is away nothing counts; the lease tells afterwards whose job it is.
                if failure.sqlstate.is_some() {
                    tries += 1;
                }
                if tries >= TRIES {
                    return End::Failed(failure);
                }
                if !worker.pause(backoff.next()).await {
                    return End::Released;
                }
            }
            Err(failure) => return End::Failed(failure),
        }
    }
}

/// Whether the job is this worker's. While that cannot be asked, its lease tells.
pub(super) async fn still_ours(worker: &Worker, job: i64) -> bool {
    let (name, lease) = (worker.status.name(), worker.settings.lease());
    worker
        .db
        .heartbeat(job, &name, lease)
        .await
        .unwrap_or(false)
}

async fn step(worker: &Worker, work: Work, job: &Job) -> Outcome<Step> {
    match work {
        Work::Sql => {
            worker
                .db
                .run_job(job.id, &worker.status.name(), worker.settings.batch_rows)
                .await
        }
        Work::Embed => embedding::step(worker, job).await,
    }
}

/// Signs of life while a step runs. Cancels `lost` when the job is no longer ours.
pub(super) async fn heartbeat(worker: Worker, job: i64, lost: CancellationToken) {
    let lease = worker.settings.lease();
    let name = worker.status.name();
    loop {
        tokio::time::sleep(lease / 3).await;
        match worker.db.heartbeat(job, &name, lease).await {
            Ok(true) => {}
            Ok(false) => return lost.cancel(),
            Err(failure) => warn!(
                code = failure.code,
                sqlstate = failure.sqlstate,
                job,
                "no sign of life was given"
            ),
        }
    }
}

/// Gives a job back. If that fails, its lease runs out and does the same.
async fn give_back(worker: &Worker, job: &Job, reason: &str, max_attempts: i32) {
    match worker
        .db
        .fail_job(job.id, &worker.status.name(), reason, max_attempts)
        .await
    {
        Ok(state) => warn!(job = job.id, kind = job.kind, state, "job given back"),
        Err(failure) => warn!(
            code = failure.code,
            job = job.id,
            "job not given back; its lease will run out"
        ),
    }
}

/// The reason that is kept with the job, in the database, for its operator.
pub(super) fn reason(failure: &Failure) -> String {
    failure.to_string().chars().take(LONGEST_REASON).collect()
}
