//! What tests of the sidecar share: a database of their own, settings, a model that costs nothing.

#![allow(dead_code)] // Each test binary uses its own part of this.

pub mod cluster;
pub mod command;
pub mod http;
pub mod pooler;
pub mod worker;

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cortex_sidecar::config::{self, Config, Secret};
use cortex_sidecar::embed::{EmbedError, EmbeddingProvider, EmbeddingSpace, Embeddings};
use cortex_sidecar::encoder::Encoder;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Row};

/// Nothing that a test waits for takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// URL of a superuser on the server to test with.
pub fn server_url() -> String {
    for name in ["CORTEX_TEST_PG18_URL", "CORTEX_TEST_PG16_URL"] {
        if let Ok(url) = std::env::var(name) {
            return url;
        }
    }
    panic!(
        "these tests need a PostgreSQL with the extension: run `make test`, or set CORTEX_TEST_PG18_URL to a superuser's URL"
    );
}

/// A database with the extension. Dropped with this value.
pub struct Database {
    pub url: String,
    name: String,
    server: String,
}

impl Database {
    pub async fn new() -> Self {
        Self::on(&server_url()).await
    }

    pub async fn on(server: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "cortex_test_{}_{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let mut admin = session(server).await;
        run(
            &mut admin,
            &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
        )
        .await;
        run(&mut admin, &format!("CREATE DATABASE {name}")).await;
        let url = with_database(server, &name);
        let mut own = session(&url).await;
        run(&mut own, "CREATE EXTENSION cortex CASCADE").await;
        Database {
            url,
            name,
            server: server.to_owned(),
        }
    }

    pub async fn session(&self) -> PgConnection {
        session(&self.url).await
    }

    /// Settings for this database, of a busy and impatient worker, without a model.
    pub fn config(&self) -> Config {
        let mut config = defaults();
        config.database.url = Secret::new(&self.url);
        config
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // Dropping is asynchronous and this is not; a thread of its own may wait.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                // The server may be gone: a test that stops one takes its databases along.
                if let Ok(mut admin) = PgConnection::connect_with(&options(&server)).await {
                    run(
                        &mut admin,
                        &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
                    )
                    .await;
                }
            });
        })
        .join();
        if dropped.is_err() && !std::thread::panicking() {
            panic!("database {} could not be dropped", self.name);
        }
    }
}

/// The default settings, with a worker that looks often.
pub fn defaults() -> Config {
    let nothing: Vec<(OsString, OsString)> = Vec::new();
    let (mut config, _) = config::load_from(
        None,
        &std::env::temp_dir().join("cortex-no-settings-here"),
        nothing,
    )
    .unwrap();
    config.model.dir = std::path::PathBuf::new();
    config.worker.seal_interval_ms = 5;
    config.worker.seal_idle_interval_ms = 20;
    config.worker.poll_interval_ms = 50;
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config
}

fn options(url: &str) -> PgConnectOptions {
    url.parse()
        .unwrap_or_else(|error| panic!("{url:?}: {error}"))
}

pub async fn session(url: &str) -> PgConnection {
    PgConnection::connect_with(&options(url))
        .await
        .unwrap_or_else(|error| panic!("{url:?}: {error}"))
}

/// The same server and database, another user.
pub fn with_user(url: &str, name: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let others: Vec<&str> = query
        .split('&')
        .filter(|pair| {
            !pair.is_empty() && !pair.starts_with("user=") && !pair.starts_with("password=")
        })
        .collect();
    let own = format!("user={name}&password={password}");
    let query = [&others[..], &[own.as_str()]].concat().join("&");
    format!("{scheme}://{place}?{query}")
}

/// The same server and user, another database.
pub fn with_database(url: &str, name: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (place, query) = rest
        .split_once('?')
        .map_or((rest, String::new()), |(place, query)| {
            (place, format!("?{query}"))
        });
    let host = place.split('/').next().unwrap();
    format!("{scheme}://{host}/{name}{query}")
}

pub async fn run(session: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(session)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

pub async fn value<T>(session: &mut PgConnection, sql: &str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    let row = sqlx::query(AssertSqlSafe(sql))
        .fetch_one(session)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    row.get(0)
}

/// Waits until a statement returns true.
pub async fn until(session: &mut PgConnection, what: &str, sql: &str) {
    let started = Instant::now();
    while !value::<bool>(session, sql).await {
        assert!(
            started.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}: {sql}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// True once nothing is left to do.
pub const DRAINED: &str = "
SELECT NOT EXISTS (SELECT FROM cortex.jobs WHERE state <> 'dead') AND NOT EXISTS (SELECT FROM cortex.change WHERE seq IS NULL)";

/// Makes `count` sources of a few sentences each, in one transaction.
pub async fn put_sources(session: &mut PgConnection, count: u32) {
    run(
        session,
        &format!(
            "SELECT cortex_source_put('file:note-' || i, 'The kestrel number ' || i || ' was seen. It hovered above the field. \
             Nobody else noted it.', 'Note ' || i) FROM generate_series(1, {count}) i"
        ),
    )
    .await;
}

/// Makes a table of `count` rows of a few sentences each and binds it, which leaves everything to the worker.
pub async fn bind_rows(session: &mut PgConnection, count: u32) {
    run(
        session,
        &format!(
            "CREATE TABLE note (id integer PRIMARY KEY, body text);
             INSERT INTO note SELECT i, 'The kestrel number ' || i || ' was seen. It hovered above the field.'
               FROM generate_series(1, {count}) i;
             SELECT cortex_bind('note')"
        ),
    )
    .await;
}

/// A model of eight dimensions: counts letters. Texts that share letters are near.
pub struct Letters {
    space: EmbeddingSpace,
    delay: Duration,
}

impl Letters {
    pub fn encoder() -> Encoder {
        Self::slow(Duration::ZERO)
    }

    /// Takes `delay` for each call.
    pub fn slow(delay: Duration) -> Encoder {
        let space = EmbeddingSpace {
            model: "test/letters".to_owned(),
            revision: "1".to_owned(),
            digest: format!("b3:{}", "0".repeat(64)),
            dimensions: 8,
            normalised: true,
            prefix: String::new(),
        };
        Encoder::with(Arc::new(Letters { space, delay }))
    }
}

/// A text that [`Letters`] refuses.
pub const UNEMBEDDABLE: &str = "unembeddable";

impl EmbeddingProvider for Letters {
    fn space(&self) -> &EmbeddingSpace {
        &self.space
    }

    fn embed(&self, texts: &[String]) -> Result<Embeddings, EmbedError> {
        std::thread::sleep(self.delay);
        let mut vectors = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            if text.contains(UNEMBEDDABLE) {
                return Err(EmbedError::EmptyText { index });
            }
            let mut vector = [0.1f32; 8];
            for byte in text.bytes() {
                vector[usize::from(byte % 8)] += 1.0;
            }
            let length = vector.iter().map(|part| part * part).sum::<f32>().sqrt();
            vectors.push(vector.iter().map(|part| part / length).collect());
        }
        Ok(Embeddings {
            vectors,
            truncated: Vec::new(),
        })
    }
}

/// Folder of the real model.
pub fn model_dir() -> String {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cortex/model");
    assert!(
        dir.join("MODEL.json").is_file(),
        "no embedding model in {}: run `python3 tools/model/prepare.py .cortex/model` in the workspace",
        dir.display()
    );
    dir.to_str().unwrap().to_owned()
}
