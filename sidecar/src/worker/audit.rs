//! Verifies new traces now and then, and old ones again after a day.

use std::time::Duration;

use serde::Deserialize;
use tracing::{error, warn};

use super::Worker;
use super::backoff::Backoff;
use crate::error::{Failure, Outcome};

/// How often traces are looked at while there are none left.
const EVERY: Duration = Duration::from_secs(10);
/// Traces of one call. Others can be verified meanwhile, and the worker can stop between calls.
const AT_ONCE: i32 = 20;

#[derive(Deserialize)]
struct Audit {
    checked: i32,
    failed: Vec<Failed>,
}

/// A trace that fails and did not before. The database has it as an event and counts it in health.
#[derive(Deserialize)]
struct Failed {
    trace_id: i64,
    namespace: String,
    step: Option<String>,
    code: Option<String>,
    #[serde(rename = "where")]
    at: Option<String>,
}

pub(super) async fn run(worker: Worker) {
    let mut backoff = Backoff::new();
    loop {
        let wait = match audit(&worker).await {
            Ok(true) => Duration::ZERO,
            Ok(false) => {
                backoff.reset();
                EVERY
            }
            Err(failure) => {
                worker.status.trouble(&failure);
                warn!(
                    code = failure.code,
                    sqlstate = failure.sqlstate,
                    "traces were not verified; the role needs cortex_grant_worker"
                );
                backoff.next()
            }
        };
        if !worker.pause(wait).await {
            return;
        }
    }
}

/// True if there may be more to look at.
async fn audit(worker: &Worker) -> Outcome<bool> {
    let told = worker.db.audit(AT_ONCE).await?;
    let told: Audit = serde_json::from_str(&told)
        .map_err(|error| Failure::internal(format!("cortex_audit: {error}")))?;
    for failed in told.failed {
        error!(
            trace = failed.trace_id,
            namespace = failed.namespace,
            step = failed.step,
            code = failed.code,
            place = failed.at,
            "a trace does not verify; SELECT cortex_verify({}) says what was expected and found",
            failed.trace_id
        );
    }
    Ok(told.checked == AT_ONCE)
}
