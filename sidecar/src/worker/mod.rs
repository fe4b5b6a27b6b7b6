//! The worker: numbers changes, loads and chunks rows, embeds texts, makes claims of sources.
//!
//! Any number of workers may run. What one does is a job with a lease in the database, so that a worker
//! that dies loses nothing: the lease runs out and another takes the job. Notifications only save waiting;
//! everything is also found by polling.

mod audit;
mod backoff;
mod building;
mod embedding;
mod lane;
mod listener;
mod sealer;
mod spaces;
mod status;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::{self, ListenAddress};
use crate::db::Db;
use crate::encoder::Encoder;
use crate::error::{Failure, Kind, Outcome};
use crate::model::{self, LanguageModel};
use backoff::Backoff;
pub use listener::{CHANNEL, connect as connect_listener};
pub use status::{Status, View};

/// Kinds of jobs that the extension runs by itself, step by step.
const SQL_KINDS: [&str; 4] = ["load", "reconcile", "chunk", "upkeep"];

/// What a worker is made of. Cheap to clone; its tasks share it.
#[derive(Clone)]
pub struct Worker {
    db: Db,
    encoder: Encoder,
    model: Option<Arc<dyn LanguageModel>>,
    /// Builds at once.
    builders: usize,
    settings: config::Worker,
    listen_address: ListenAddress,
    status: Arc<Status>,
    wake: Arc<watch::Sender<()>>,
    stop: CancellationToken,
}

impl Worker {
    /// A worker that stops when `stop` is cancelled. It does nothing before [`Worker::run`].
    ///
    /// # Errors
    /// A TLS library that cannot be started, for the language model's server.
    pub fn new(
        db: Db,
        encoder: Encoder,
        settings: &config::Config,
        stop: CancellationToken,
    ) -> Outcome<Self> {
        let model = model::open(&settings.language_model)?;
        let building = model
            .as_ref()
            .map_or("no language model", |model| model.name())
            .to_owned();
        let status = Status::new(name(), encoder.space().err(), building);
        Ok(Worker {
            db,
            encoder,
            model,
            builders: settings.language_model.parallel,
            settings: settings.worker.clone(),
            listen_address: settings.database.listen_address(),
            status: Arc::new(status),
            wake: Arc::new(watch::Sender::new(())),
            stop,
        })
    }

    /// What it is doing, for health and tests.
    pub fn status(&self) -> Arc<Status> {
        self.status.clone()
    }

    /// Works until told to stop. Jobs in hand are brought to the end of their step and given back.
    ///
    /// # Errors
    /// An extension that this binary does not work with, or rights that the role lacks. A database that is
    /// away is waited for.
    pub async fn run(self) -> Outcome<()> {
        info!(worker = self.status.name(), "worker starts");
        let status = self.status.clone();
        let outcome = self.work().await;
        status.stopped();
        info!(worker = status.name(), "worker stopped");
        outcome
    }

    async fn work(self) -> Outcome<()> {
        if !self.wait_for_database().await? {
            return Ok(());
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(sealer::run(self.clone()));
        tasks.spawn(listener::run(self.clone()));
        tasks.spawn(audit::run(self.clone()));
        tasks.spawn(lane::run(self.clone(), lane::Work::Sql));
        for _ in 0..self.builders {
            tasks.spawn(building::run(self.clone()));
        }
        match self.encoder.space() {
            Ok(_) => {
                tasks.spawn(spaces::run(self.clone()));
                tasks.spawn(lane::run(self.clone(), lane::Work::Embed));
            }
            Err(reason) => warn!(reason, "this worker does not embed"),
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                self.stop.cancel();
                return Err(Failure::internal(format!(
                    "a task of the worker stopped: {error}"
                )));
            }
        }
        Ok(())
    }

    /// False if it was told to stop before the database came.
    async fn wait_for_database(&self) -> Outcome<bool> {
        let mut backoff = Backoff::new();
        loop {
            match self.db.catalog().await {
                Ok(_) => {
                    self.status.reached();
                    return Ok(true);
                }
                Err(failure) if failure.kind == Kind::Version => return Err(failure),
                Err(failure) => self.status.trouble(&failure),
            }
            if !self.pause(backoff.next()).await {
                return Ok(false);
            }
        }
    }

    /// Waits. False if it is time to stop.
    async fn pause(&self, length: Duration) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(length) => true,
        }
    }

    /// Tells every lane to look for jobs.
    fn wake(&self) {
        self.wake.send_replace(());
    }
}

/// Names a worker in leases and logs. The random part tells apart processes with the same id on different
/// machines, or one after the other.
fn name() -> String {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(std::process::id());
    format!("worker-{}-{:08x}", std::process::id(), random & 0xffff_ffff)
}
