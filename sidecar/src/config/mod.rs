//! Settings: the defaults compiled in, then `cortex.toml`, then the environment, checked as a whole.
//!
//! [`DEFAULTS`] is also the reference of every key. Nothing else in this crate reads the environment.

mod language_model;
mod load;
mod secret;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Failure, Outcome};
pub use language_model::{LanguageModel, Provider};
pub use load::{Origin, load, load_from};
pub use secret::Secret;

/// The commented defaults, every key with its meaning and unit.
pub const DEFAULTS: &str = include_str!("default.toml");

/// The settings in force. Serialised, secrets are masked.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where PostgreSQL is and how long to wait for it.
    pub database: Database,
    /// The embedding model.
    pub model: Model,
    /// The server of the model that writes claims.
    pub language_model: LanguageModel,
    /// Defaults of retrieval.
    pub read: Read,
    /// Pace and limits of the worker.
    pub worker: Worker,
    /// The REST service.
    pub server: Server,
    /// Limits of `cortex ingest`.
    pub ingest: Ingest,
    /// Where the background service keeps its files.
    pub state: State,
    /// Logging.
    pub log: Log,
}

/// Section `database`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Connection URL.
    pub url: Secret,
    /// Connection URL for LISTEN, or empty.
    pub direct_url: Secret,
    /// Most connections at once.
    pub pool_size: u32,
    /// Seconds to wait for a connection.
    pub connect_timeout_s: u32,
    /// Seconds that a statement may run, 0 for no limit.
    pub statement_timeout_s: u32,
}

/// Section `model`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Folder of the model, or empty.
    pub dir: PathBuf,
    /// Threads that embed, 0 for one a core.
    pub threads: usize,
}

/// Section `read`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Read {
    /// Namespace where none is named.
    pub namespace: String,
    /// Tokens of one read.
    pub budget_tokens: i32,
    /// Results of one search.
    pub k: i32,
    /// Whether the service records its reads and asks for the builds that would have helped.
    pub record: bool,
}

/// Section `worker`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// Milliseconds between two looks of the busy sealer.
    pub seal_interval_ms: u64,
    /// Milliseconds between two looks of the idle sealer.
    pub seal_idle_interval_ms: u64,
    /// Milliseconds between two looks for jobs.
    pub poll_interval_ms: u64,
    /// Seconds of a job's lease.
    pub lease_s: u32,
    /// Attempts after which a job is dead.
    pub max_attempts: i32,
    /// Rows of one step.
    pub batch_rows: i32,
    /// Texts of one step.
    pub batch_texts: i32,
}

/// Section `server`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Bearer key, or empty.
    pub key: Secret,
    /// Largest request body, in bytes.
    pub body_limit_bytes: usize,
    /// Seconds that one request may take.
    pub request_timeout_s: u32,
    /// Seconds to end running work.
    pub shutdown_timeout_s: u32,
}

/// Section `ingest`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ingest {
    /// Largest file, in bytes.
    pub max_file_bytes: u64,
    /// Most files of one run.
    pub max_files: usize,
}

/// Section `state`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Folder of the process file and the log.
    pub dir: PathBuf,
}

/// Section `log`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Level or directives.
    pub level: String,
    /// Whether each line is a JSON object.
    pub json: bool,
}

impl Database {
    /// How long to wait for a connection.
    pub fn connect_timeout(&self) -> Duration {
        Duration::from_secs(self.connect_timeout_s.into())
    }

    /// Where to LISTEN: at `direct_url`, or at `url` where there is none.
    pub fn listen_address(&self) -> ListenAddress {
        let named = !self.direct_url.is_empty();
        let url = if named { &self.direct_url } else { &self.url };
        ListenAddress {
            url: url.clone(),
            named,
        }
    }
}

/// An address for LISTEN.
#[derive(Clone, Debug)]
pub struct ListenAddress {
    /// PostgreSQL's connection URL.
    pub url: Secret,
    /// Whether the settings name it as PostgreSQL's own. Else a pooler may stand there.
    pub named: bool,
}

impl Model {
    /// The model's folder, if embedding is switched on.
    pub fn dir(&self) -> Option<&std::path::Path> {
        (!self.dir.as_os_str().is_empty()).then_some(self.dir.as_path())
    }
}

impl Worker {
    /// How long a job stays with a silent worker.
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_s.into())
    }
}

/// Shortest bearer key: 16 random characters are out of reach of guessing over a network.
const SHORTEST_KEY: usize = 16;

impl Config {
    /// Checks each value and the values against each other.
    ///
    /// # Errors
    /// The first rule that does not hold, naming the key, the value and the range.
    pub fn check(&self) -> Outcome<()> {
        check_url("database.url", &self.database.url, false)?;
        check_url("database.direct_url", &self.database.direct_url, true)?;
        within("database.pool_size", self.database.pool_size, 2, 100)?;
        within(
            "database.connect_timeout_s",
            self.database.connect_timeout_s,
            1,
            3_600,
        )?;
        within(
            "database.statement_timeout_s",
            self.database.statement_timeout_s,
            0,
            86_400,
        )?;
        within("model.threads", self.model.threads, 0, 1_024)?;
        self.language_model.check()?;
        within(
            "read.namespace, in bytes,",
            self.read.namespace.len(),
            1,
            200,
        )?;
        within("read.budget_tokens", self.read.budget_tokens, 1, 1_000_000)?;
        within("read.k", self.read.k, 1, 200)?;
        within(
            "worker.seal_interval_ms",
            self.worker.seal_interval_ms,
            1,
            60_000,
        )?;
        within(
            "worker.seal_idle_interval_ms",
            self.worker.seal_idle_interval_ms,
            self.worker.seal_interval_ms,
            60_000,
        )?;
        within(
            "worker.poll_interval_ms",
            self.worker.poll_interval_ms,
            10,
            600_000,
        )?;
        within("worker.lease_s", self.worker.lease_s, 3, 3_600)?;
        within("worker.max_attempts", self.worker.max_attempts, 1, 1_000)?;
        within("worker.batch_rows", self.worker.batch_rows, 1, 1_000)?;
        within("worker.batch_texts", self.worker.batch_texts, 1, 4_096)?;
        within(
            "server.body_limit_bytes",
            self.server.body_limit_bytes,
            1_024,
            1 << 30,
        )?;
        within(
            "server.request_timeout_s",
            self.server.request_timeout_s,
            1,
            3_600,
        )?;
        within(
            "server.shutdown_timeout_s",
            self.server.shutdown_timeout_s,
            1,
            3_600,
        )?;
        within(
            "ingest.max_file_bytes",
            self.ingest.max_file_bytes,
            1,
            1 << 30,
        )?;
        within("ingest.max_files", self.ingest.max_files, 1, 100_000_000)?;
        if self
            .log
            .level
            .parse::<tracing_subscriber::EnvFilter>()
            .is_err()
        {
            return Err(invalid(format!("log.level is {:?}", self.log.level)).hint(
                "use error, warn, info, debug or trace, or directives such as `warn,cortex_sidecar::worker=debug`",
            ));
        }
        self.check_exposure()
    }

    fn check_exposure(&self) -> Outcome<()> {
        let key = self.server.key.expose();
        if key.is_empty() {
            if !self.server.listen.ip().is_loopback() {
                return Err(invalid(format!(
                    "server.listen is {}, which other machines can reach, and server.key is empty",
                    self.server.listen
                ))
                .hint("set CORTEX_SERVER__KEY to a random key, or listen on 127.0.0.1"));
            }
        } else if key.len() < SHORTEST_KEY || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid(format!(
                "server.key must have at least {SHORTEST_KEY} visible ASCII characters and has {}",
                key.chars().count()
            ))
            .hint("make one with `openssl rand -hex 24`"));
        }
        Ok(())
    }
}

fn invalid(message: String) -> Failure {
    Failure {
        code: "invalid_config",
        ..Failure::usage(message)
    }
}

fn within<T: PartialOrd + std::fmt::Display>(
    key: &str,
    value: T,
    least: T,
    most: T,
) -> Outcome<()> {
    if value < least || value > most {
        return Err(invalid(format!(
            "{key} must be from {least} to {most} and is {value}"
        )));
    }
    Ok(())
}

/// The message never repeats the URL, which may hold a password.
fn check_url(key: &str, url: &Secret, may_be_empty: bool) -> Outcome<()> {
    let text = url.expose();
    if text.is_empty() && may_be_empty {
        return Ok(());
    }
    let is_postgres = text.starts_with("postgresql://") || text.starts_with("postgres://");
    if !is_postgres || text.parse::<sqlx::postgres::PgConnectOptions>().is_err() {
        return Err(invalid(format!("{key} is not a PostgreSQL connection URL"))
            .hint("write it as postgresql://user:password@host:5432/database, with % codes for special characters"));
    }
    Ok(())
}
