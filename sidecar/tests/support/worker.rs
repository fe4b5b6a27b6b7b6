//! A worker at work in this process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cortex_sidecar::config::Config;
use cortex_sidecar::db::Db;
use cortex_sidecar::encoder::Encoder;
use cortex_sidecar::error::Outcome;
use cortex_sidecar::worker::{Status, View, Worker};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::PATIENCE;

/// A running worker.
pub struct Running {
    pub status: Arc<Status>,
    pub stop: CancellationToken,
    pub ended: JoinHandle<Outcome<()>>,
}

impl Running {
    pub fn start(config: &Config, encoder: Encoder) -> Self {
        let stop = CancellationToken::new();
        let db = Db::open(&config.database, "worker").unwrap();
        let worker = Worker::new(db, encoder, config, stop.clone()).unwrap();
        let status = worker.status();
        Running {
            status,
            stop,
            ended: tokio::spawn(worker.run()),
        }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.ended.await.unwrap().unwrap();
        assert_eq!(self.status.view().state, "stopped");
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&View) -> bool) {
        let started = Instant::now();
        while !holds(&self.status.view()) {
            assert!(
                started.elapsed() < PATIENCE,
                "{what}: {:?}",
                self.status.view()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub fn no_model() -> Encoder {
    Encoder::absent("no model in this test")
}
