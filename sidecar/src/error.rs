//! Why a command or a request failed, and what the exit code or the HTTP status says about it.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// What a caller would do differently about a failure. Decides the exit code and the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A check or a verification ran and did not pass.
    CheckFailed,
    /// An argument or a setting that no state of the system could make right.
    Usage,
    /// PostgreSQL, or the Cortex service, does not answer.
    Unreachable,
    /// PostgreSQL refused the statement; [`Failure::sqlstate`] says why.
    Refused,
    /// The database lacks the extension, or has it in a version that this binary does not work with.
    Version,
    /// A file, a port or a process of this machine.
    System,
    /// A fault of ours.
    Internal,
}

impl Kind {
    /// The exit code of the command line, as documented in `cortex --help`.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::CheckFailed => 1,
            Kind::Usage => 2,
            Kind::Unreachable => 3,
            Kind::Refused | Kind::Version => 4,
            Kind::System | Kind::Internal => 5,
        }
    }
}

/// A failure as the user sees it: what was wrong, with the value, and what to do.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What a caller would do differently.
    pub kind: Kind,
    /// Stable name of the failure, lower-case with underscores, for programs.
    pub code: &'static str,
    /// What was wrong, with the value.
    pub message: String,
    /// More about it, from PostgreSQL.
    pub detail: Option<String>,
    /// What to do next.
    pub hint: Option<String>,
    /// SQLSTATE, where PostgreSQL raised it.
    pub sqlstate: Option<String>,
}

impl Failure {
    /// A failure of the given kind.
    pub fn new(kind: Kind, code: &'static str, message: impl Into<String>) -> Self {
        Failure {
            kind,
            code,
            message: message.into(),
            detail: None,
            hint: None,
            sqlstate: None,
        }
    }

    /// A wrong argument or setting.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, "invalid_argument", message)
    }

    /// A file, a port or a process.
    pub fn system(message: impl Into<String>) -> Self {
        Self::new(Kind::System, "system", message)
    }

    /// A fault of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, "internal", message)
    }

    /// Adds what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Whether the same statement may succeed when it is sent again: the connection was lost, or the
    /// server asked for a retry, is starting, shutting down, or out of a resource for the moment.
    pub fn is_transient(&self) -> bool {
        self.kind == Kind::Unreachable
            || self.sqlstate.as_deref().is_some_and(|state| {
                matches!(
                    state,
                    "40001" | "40P01" | "55P03" | "57P01" | "57P02" | "57P03"
                ) || state.starts_with("53")
                    || state.starts_with("08")
            })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)?;
        if let Some(state) = &self.sqlstate {
            write!(out, " (SQLSTATE {state})")?;
        }
        if let Some(detail) = &self.detail {
            write!(out, "\n  detail: {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(out, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// `{error, code, hint}`, with `detail` and `sqlstate` where PostgreSQL gave them: the body of every
/// failed request and of every failed command with `--json`.
impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("error", &self.message)?;
        map.serialize_entry("code", self.code)?;
        map.serialize_entry("hint", &self.hint)?;
        if let Some(detail) = &self.detail {
            map.serialize_entry("detail", detail)?;
        }
        if let Some(state) = &self.sqlstate {
            map.serialize_entry("sqlstate", state)?;
        }
        map.end()
    }
}

/// What fallible functions of this crate return.
pub type Outcome<T> = Result<T, Failure>;
