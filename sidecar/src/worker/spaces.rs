//! Registers this worker's embedding space and gives it to namespaces that have none.

use std::time::Duration;

use tracing::{info, warn};

use super::Worker;
use super::backoff::Backoff;
use crate::error::Outcome;

/// How often new namespaces are looked for.
const EVERY: Duration = Duration::from_secs(2);

pub(super) async fn run(worker: Worker) {
    let mut backoff = Backoff::new();
    loop {
        let wait = match assign(&worker).await {
            Ok(()) => {
                backoff.reset();
                EVERY
            }
            Err(failure) => {
                worker.status.trouble(&failure);
                warn!(
                    code = failure.code,
                    sqlstate = failure.sqlstate,
                    "the embedding space was not given to namespaces; the role needs cortex_grant_worker"
                );
                backoff.next()
            }
        };
        if !worker.pause(wait).await {
            return;
        }
    }
}

/// Registering a space that is known returns its id, so it is done anew each time: the database may have
/// been restored or recreated meanwhile.
async fn assign(worker: &Worker) -> Outcome<()> {
    let Ok(space) = worker.encoder.space() else {
        return Ok(());
    };
    let without = worker.db.namespaces_without_space().await?;
    if without.is_empty() {
        return Ok(());
    }
    let id = worker.db.register_space(space).await?;
    for namespace in without {
        worker.db.use_space(&namespace, id).await?;
        info!(
            namespace,
            space = id,
            "namespace uses this worker's embedding space"
        );
        worker.wake();
    }
    Ok(())
}
