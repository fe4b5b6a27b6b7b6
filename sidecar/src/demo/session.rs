//! The user's side of the demo: plain SQL over one connection.

use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Postgres, Row};

use crate::db::{column, failure};
use crate::error::{Failure, Outcome};

/// A session as a user has it in `psql`. Its statements are the demo's own text, never input.
pub(super) struct Session {
    connection: PgConnection,
}

impl Session {
    /// Opens a session.
    pub async fn open(url: &str) -> Outcome<Self> {
        let options: PgConnectOptions = url.parse().map_err(|error: sqlx::Error| {
            Failure::usage(format!("the cluster's address: {error}"))
        })?;
        let connection = PgConnection::connect_with(
            &options
                .application_name("cortex demo user")
                .statement_cache_capacity(0),
        )
        .await
        .map_err(|error| {
            failure(error).hint("start it with: python3 tools/cluster.py start --dir <folder>")
        })?;
        Ok(Session { connection })
    }

    /// Runs statements without parameters, as typed.
    pub async fn run(&mut self, sql: &str) -> Outcome<()> {
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut self.connection)
            .await
            .map_err(failure)?;
        Ok(())
    }

    /// Rows of a statement with text parameters.
    pub async fn rows(&mut self, sql: &str, parameters: &[&str]) -> Outcome<Vec<PgRow>> {
        let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        for parameter in parameters {
            query = query.bind((*parameter).to_owned());
        }
        query.fetch_all(&mut self.connection).await.map_err(failure)
    }

    /// The first column of the one row of a statement with text parameters.
    pub async fn value<T>(&mut self, sql: &str, parameters: &[&str]) -> Outcome<T>
    where
        T: for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
    {
        let rows = self.rows(sql, parameters).await?;
        let row = rows
            .first()
            .ok_or_else(|| Failure::internal(format!("no row came back from: {sql}")))?;
        if row.is_empty() {
            return Err(Failure::internal(format!(
                "no column came back from: {sql}"
            )));
        }
        column(row, 0)
    }
}
