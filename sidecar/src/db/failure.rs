//! What PostgreSQL or the connection to it says, as a [`Failure`].

use sqlx::postgres::PgDatabaseError;

use crate::error::{Failure, Kind};

/// Keeps SQLSTATE, detail and hint of an error of the server.
pub fn failure(error: sqlx::Error) -> Failure {
    match error {
        sqlx::Error::Database(error) => match error.try_downcast_ref::<PgDatabaseError>() {
            Some(error) => from_server(error),
            None => Failure::internal(error.to_string()),
        },
        sqlx::Error::Io(error) => unreachable(error.to_string()),
        sqlx::Error::Tls(error) => unreachable(format!("TLS: {error}")),
        sqlx::Error::PoolTimedOut => unreachable("no connection in time"),
        sqlx::Error::PoolClosed => unreachable("this program is shutting down"),
        sqlx::Error::WorkerCrashed | sqlx::Error::BeginFailed => unreachable(error.to_string()),
        // A connection that breaks in mid-message also shows as a protocol error.
        sqlx::Error::Protocol(message) => unreachable(format!("protocol: {message}")),
        error => Failure::internal(error.to_string()),
    }
}

fn unreachable(why: impl Into<String>) -> Failure {
    Failure::new(Kind::Unreachable, "postgres_unreachable", why)
}

fn from_server(error: &PgDatabaseError) -> Failure {
    let state = error.code();
    Failure {
        kind: if is_absence(state) {
            Kind::Unreachable
        } else {
            Kind::Refused
        },
        code: code(state),
        message: error.message().to_owned(),
        detail: error.detail().map(str::to_owned),
        hint: error
            .hint()
            .map(str::to_owned)
            .or_else(|| own_hint(state).map(str::to_owned)),
        sqlstate: Some(state.to_owned()),
    }
}

/// The server is there but takes no statements: starting, stopping, connection lost.
fn is_absence(state: &str) -> bool {
    state.starts_with("08") || matches!(state, "57P01" | "57P02" | "57P03")
}

/// Stable names for what the extension and the server raise (`extension/src/error.rs` lists the former).
fn code(state: &str) -> &'static str {
    match state {
        "42704" => "not_found",
        "42710" => "already_exists",
        "42501" => "forbidden",
        "40001" | "40P01" => "try_again",
        "55P03" => "locked",
        "55000" => "wrong_state",
        "54000" | "54001" => "too_large",
        "0A000" => "unsupported",
        "57014" => "timed_out",
        "25006" => "read_only",
        "28000" | "28P01" => "login_refused",
        "3D000" => "no_such_database",
        "42883" | "42P01" | "3F000" => "extension_missing",
        _ => match state.get(..2) {
            Some("22") => "invalid_argument",
            Some("23") => "conflict",
            Some("53") => "out_of_resources",
            Some("08" | "57") => "postgres_unreachable",
            Some("XX") => "postgres_internal",
            _ => "postgres_error",
        },
    }
}

fn own_hint(state: &str) -> Option<&'static str> {
    match code(state) {
        "extension_missing" => Some(
            "run CREATE EXTENSION cortex CASCADE, or ALTER EXTENSION cortex UPDATE, in this database",
        ),
        "login_refused" => Some("correct user and password in database.url (CORTEX_DATABASE__URL)"),
        "timed_out" => Some("ask for less, or raise database.statement_timeout_s"),
        "try_again" | "locked" => Some("send the same request again"),
        _ => None,
    }
}
