//! Wakes the lanes when a sealer somewhere has numbered changes.
//!
//! Where no connection can listen, the lanes poll.

use sqlx::postgres::PgListener;
use tracing::{debug, warn};

use super::Worker;
use super::backoff::Backoff;
use crate::config::ListenAddress;
use crate::db::{self, failure};
use crate::error::Outcome;

/// The channel that sealers notify.
pub const CHANNEL: &str = "cortex";

pub(super) async fn run(worker: Worker) {
    let mut backoff = Backoff::new();
    loop {
        tokio::select! {
            () = worker.stop.cancelled() => return,
            outcome = listen(&worker, &mut backoff) => {
                worker.status.listening(false);
                if let Err(failure) = outcome {
                    debug!(code = failure.code, "not listening; polling");
                }
            }
        }
        if !worker.pause(backoff.next()).await {
            return;
        }
    }
}

/// Listens until the connection is lost.
async fn listen(worker: &Worker, backoff: &mut Backoff) -> Outcome<()> {
    let mut listener = connect(&worker.listen_address).await?;
    worker.status.listening(true);
    backoff.reset();
    // What came while nobody listened is found by looking once.
    worker.wake();
    while listener.try_recv().await.map_err(failure)?.is_some() {
        worker.wake();
    }
    warn!("the connection that listens was lost");
    Ok(())
}

/// A connection that listens on [`CHANNEL`].
///
/// # Errors
/// No connection, or one that cannot listen.
pub async fn connect(address: &ListenAddress) -> Outcome<PgListener> {
    db::listen(address, CHANNEL).await
}
