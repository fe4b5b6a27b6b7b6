//! The way to PostgreSQL.
//!
//! Each call is one short transaction that sets what it needs for itself, with unnamed statements: no
//! session state is relied on, so PgBouncer may hand every transaction to another server connection.
//! (Outside a transaction it might do so between preparing a statement and running it.)

pub mod builds;
mod catalog;
mod failure;
pub mod jobs;
pub mod pool;
pub mod reader;
pub mod state;
pub mod traces;

use std::sync::{Arc, RwLock};
use std::time::Duration;

use sqlx::postgres::{
    PgArguments, PgConnectOptions, PgConnection, PgListener, PgPool, PgPoolOptions, PgRow,
};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection, Postgres, Row, Transaction};

use crate::config::{self, ListenAddress, Secret};
use crate::error::{Failure, Kind, Outcome};
pub use catalog::{Catalog, Version};
pub use failure::failure;

/// A statement whose parameters are being bound.
pub type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// What a call may do and how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only; refused by the server if it writes. Under the statement timeout.
    Read,
    /// May write. Under the statement timeout.
    Write,
    /// A step of a job: may write, without a statement timeout of ours.
    Job,
}

/// A pool of connections to one database, and what is known of its extension. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    pool: PgPool,
    options: PgConnectOptions,
    connect_timeout: Duration,
    statement_timeout: Duration,
    catalog: Arc<RwLock<Option<Arc<Catalog>>>>,
}

impl Db {
    /// A pool for the database of the settings. Connects on first use. `program` is shown in
    /// `pg_stat_activity` as `cortex <program>`.
    ///
    /// # Errors
    /// A URL that cannot be used.
    pub fn open(settings: &config::Database, program: &str) -> Outcome<Self> {
        let options = connect_options(&settings.url, program)?;
        let pool = PgPoolOptions::new()
            .min_connections(0)
            .max_connections(settings.pool_size)
            .acquire_timeout(settings.connect_timeout())
            .connect_lazy_with(options.clone());
        Ok(Db {
            pool,
            options,
            connect_timeout: settings.connect_timeout(),
            statement_timeout: Duration::from_secs(settings.statement_timeout_s.into()),
            catalog: Arc::default(),
        })
    }

    /// Where the extension and pgvector are, looked up once.
    ///
    /// # Errors
    /// No connection, no extension, or one that this binary does not work with.
    pub async fn catalog(&self) -> Outcome<Arc<Catalog>> {
        let known = self.catalog.read().ok().and_then(|slot| slot.clone());
        if let Some(known) = known {
            return Ok(known);
        }
        let catalog = Arc::new(self.look_up_catalog().await?);
        catalog.check_version()?;
        if let Ok(mut slot) = self.catalog.write() {
            *slot = Some(catalog.clone());
        }
        Ok(catalog)
    }

    /// As [`Db::catalog`], afresh and whatever the versions are.
    ///
    /// # Errors
    /// No connection, or no extension.
    pub async fn look_up_catalog(&self) -> Outcome<Catalog> {
        let rows = self
            .run(Access::Read, catalog::LOOK_UP.to_owned(), |statement| {
                statement
            })
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| Failure::internal("the catalog look-up returned no row"))?;
        Catalog::from_row(row)
    }

    /// Runs one statement in a transaction of its own and returns its rows. In `template`, `{cortex}` and
    /// `{vector}` stand for the schemas of the two extensions.
    ///
    /// # Errors
    /// As [`Db::catalog`], and whatever PostgreSQL raises.
    pub async fn rows(
        &self,
        access: Access,
        template: &'static str,
        bind: impl for<'q> FnOnce(Statement<'q>) -> Statement<'q>,
    ) -> Outcome<Vec<PgRow>> {
        let catalog = self.catalog().await?;
        let outcome = self.run(access, catalog.render(template), bind).await;
        if let Err(failure) = &outcome
            && matches!(
                failure.sqlstate.as_deref(),
                Some("42883" | "3F000" | "42P01")
            )
        {
            // The extension was moved, dropped or updated under us: look it up again next time.
            self.forget_catalog();
        }
        outcome
    }

    /// As [`Db::rows`], for a statement that returns one row.
    ///
    /// # Errors
    /// As [`Db::rows`]; no row is a fault.
    pub async fn row(
        &self,
        access: Access,
        template: &'static str,
        bind: impl for<'q> FnOnce(Statement<'q>) -> Statement<'q>,
    ) -> Outcome<PgRow> {
        let rows = self.rows(access, template, bind).await?;
        rows.into_iter()
            .next()
            .ok_or_else(|| Failure::internal(format!("no row came back from: {template}")))
    }

    /// As [`Db::row`], for a statement that returns one column.
    ///
    /// # Errors
    /// As [`Db::row`]; a value of another type is a fault.
    pub async fn value<T>(
        &self,
        access: Access,
        template: &'static str,
        bind: impl for<'q> FnOnce(Statement<'q>) -> Statement<'q>,
    ) -> Outcome<T>
    where
        T: for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
    {
        column(&self.row(access, template, bind).await?, 0)
    }

    async fn run(
        &self,
        access: Access,
        sql: String,
        bind: impl for<'q> FnOnce(Statement<'q>) -> Statement<'q>,
    ) -> Outcome<Vec<PgRow>> {
        let mut work = self.begin(access).await?;
        let rows = work.run(sql, bind).await?;
        work.commit().await?;
        Ok(rows)
    }

    /// Begins a transaction for several statements that belong together. Dropped, it is rolled back.
    ///
    /// # Errors
    /// No connection.
    async fn begin(&self, access: Access) -> Outcome<Work<'_>> {
        match self
            .pool
            .begin_with(AssertSqlSafe(self.opening(access)))
            .await
        {
            Ok(transaction) => Ok(Work {
                db: self,
                transaction,
            }),
            Err(sqlx::Error::PoolTimedOut) => Err(self.why_unreachable().await),
            Err(error) => Err(self.failure(error)),
        }
    }

    fn opening(&self, access: Access) -> String {
        let mode = if access == Access::Read {
            "BEGIN READ ONLY"
        } else {
            "BEGIN"
        };
        let timeout = if access == Access::Job {
            0
        } else {
            self.statement_timeout.as_millis()
        };
        format!("{mode}; SET LOCAL statement_timeout = {timeout}")
    }

    /// The pool only knows that it waited in vain; a connection of its own tells why.
    async fn why_unreachable(&self) -> Failure {
        let attempt = PgConnection::connect_with(&self.options);
        match tokio::time::timeout(self.connect_timeout, attempt).await {
            Ok(Err(error)) => self.failure(error),
            Ok(Ok(connection)) => {
                drop(connection);
                Failure::new(
                    Kind::Unreachable,
                    "no_free_connection",
                    format!(
                        "no connection became free within {} s",
                        self.connect_timeout.as_secs()
                    ),
                )
                .hint("raise database.pool_size, or send fewer requests at once")
            }
            Err(_) => self.unreachable("it does not answer"),
        }
    }

    fn failure(&self, error: sqlx::Error) -> Failure {
        match failure(error) {
            Failure {
                kind: Kind::Unreachable,
                sqlstate: None,
                message,
                ..
            } => self.unreachable(&message),
            failure => failure,
        }
    }

    fn unreachable(&self, why: &str) -> Failure {
        Failure::new(
            Kind::Unreachable,
            "postgres_unreachable",
            format!("PostgreSQL at {} cannot be reached: {why}", place(&self.options)),
        )
        .hint("start it, or correct database.url (CORTEX_DATABASE__URL); `cortex doctor` shows what is in force")
    }

    /// Forgets what was known of the extension.
    pub fn forget_catalog(&self) {
        if let Ok(mut slot) = self.catalog.write() {
            *slot = None;
        }
    }

    /// Closes the connections, waiting for those in use.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Host and port, or socket, and database.
    pub fn place(&self) -> String {
        place(&self.options)
    }
}

/// A transaction at work.
struct Work<'a> {
    db: &'a Db,
    transaction: Transaction<'static, Postgres>,
}

impl Work<'_> {
    /// Runs one unnamed statement.
    async fn run(
        &mut self,
        sql: String,
        bind: impl for<'q> FnOnce(Statement<'q>) -> Statement<'q>,
    ) -> Outcome<Vec<PgRow>> {
        bind(sqlx::query(AssertSqlSafe(sql)).persistent(false))
            .fetch_all(&mut *self.transaction)
            .await
            .map_err(|error| self.db.failure(error))
    }

    async fn commit(self) -> Outcome<()> {
        self.transaction
            .commit()
            .await
            .map_err(|error| self.db.failure(error))
    }
}

/// A connection of its own that listens on `channel`. LISTEN is state of a session, so this needs a direct
/// connection: through a pooler in transaction mode it would leave a server connection listening, and what it hears
/// would break into the statements of whoever has that connection next. Unless the settings
/// name the address as direct, a server that calls another port its own than the one it was reached by is taken for
/// one behind a pooler.
///
/// # Errors
/// No connection, or one that is not direct.
pub async fn listen(address: &ListenAddress, channel: &str) -> Outcome<PgListener> {
    let options = connect_options(&address.url, "listener")?;
    let reached_by = options.get_port();
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&pool).await.map_err(failure)?;
    let own: String = sqlx::query_scalar("SELECT pg_catalog.current_setting('port')")
        .persistent(false)
        .fetch_one(&mut listener)
        .await
        .map_err(failure)?;
    if !address.named && own != reached_by.to_string() {
        let message = format!(
            "PostgreSQL's own port is {own} and it was reached through port {reached_by}: a pooler may stand between"
        );
        return Err(Failure::new(Kind::System, "not_direct", message)
            .hint("set database.direct_url to PostgreSQL's own address"));
    }
    listener.listen(channel).await.map_err(failure)?;
    Ok(listener)
}

/// Options for a connection of our own, as the pool uses them.
///
/// # Errors
/// A URL that cannot be used.
pub fn connect_options(url: &Secret, program: &str) -> Outcome<PgConnectOptions> {
    let options: PgConnectOptions = url.expose().parse().map_err(|_| Failure {
        code: "invalid_config",
        ..Failure::usage("database.url is not a PostgreSQL connection URL")
    })?;
    Ok(options
        .application_name(&format!("cortex {program}"))
        .statement_cache_capacity(0)
        // A start-up parameter that PgBouncer refuses unless told otherwise.
        .extra_float_digits(None))
}

fn place(options: &PgConnectOptions) -> String {
    let database = options
        .get_database()
        .unwrap_or_else(|| options.get_username());
    match options.get_socket() {
        Some(folder) => format!(
            "{}, port {}, database {database}",
            folder.display(),
            options.get_port()
        ),
        None => format!(
            "{}:{}, database {database}",
            options.get_host(),
            options.get_port()
        ),
    }
}

/// Column `index` of a row. The types are those that our own statements ask for, so another is a fault of
/// ours or an extension that does not keep the promised signatures.
///
/// # Errors
/// Another type.
pub fn column<T>(row: &PgRow, index: usize) -> Outcome<T>
where
    T: for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
{
    row.try_get(index)
        .map_err(|error| Failure::internal(format!("column {index}: {error}")))
}

/// A vector as pgvector reads it. The shortest decimal form of a float reads back as the same float.
pub fn vector_text(vector: &[f32]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 + vector.len() * 12);
    text.push('[');
    for (index, component) in vector.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{component}");
    }
    text.push(']');
    text
}
