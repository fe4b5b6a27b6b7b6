//! Logs go to stderr, as lines or as JSON. They never hold secrets, questions or texts of sources.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config;
use crate::error::{Failure, Outcome};

/// Starts logging as the settings say. A second start keeps the first.
///
/// # Errors
/// A level that cannot be read.
pub fn start(settings: &config::Log) -> Outcome<()> {
    // A plain level is ours alone: what libraries log at their finest may hold requests and statements.
    let directives = if settings.level.contains(['=', ',']) {
        format!("{},sqlx=error", settings.level)
    } else {
        format!("warn,sqlx=error,cortex_sidecar={}", settings.level)
    };
    let filter = EnvFilter::try_new(&directives)
        .map_err(|error| Failure::usage(format!("log.level {:?}: {error}", settings.level)))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false);
    let started = if settings.json {
        lines.json().flatten_event(true).try_init()
    } else {
        lines.with_ansi(io::stderr().is_terminal()).try_init()
    };
    if started.is_err() {
        tracing::debug!("logging was started already");
    }
    Ok(())
}
