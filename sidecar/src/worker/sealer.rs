//! Numbers committed changes every few milliseconds, less often while there are none.

use std::time::Duration;

use tracing::warn;

use super::Worker;
use super::backoff::Backoff;

pub(super) async fn run(worker: Worker) {
    let busy = Duration::from_millis(worker.settings.seal_interval_ms);
    let idle = Duration::from_millis(worker.settings.seal_idle_interval_ms);
    let mut pause = busy;
    let mut backoff = Backoff::new();
    loop {
        let wait = match worker.db.seal().await {
            Ok(changes) => {
                worker.status.reached();
                worker.status.sealed(changes);
                backoff.reset();
                if changes > 0 {
                    worker.wake();
                    pause = busy;
                } else {
                    pause = (pause * 2).min(idle);
                }
                pause
            }
            Err(failure) => {
                worker.status.trouble(&failure);
                let wait = backoff.next();
                warn!(
                    code = failure.code,
                    sqlstate = failure.sqlstate,
                    ?wait,
                    "sealing failed"
                );
                wait
            }
        };
        if !worker.pause(wait).await {
            return;
        }
    }
}
