//! What `cortex doctor` checks. Each check says what it found and, if that is not well, what to do.

mod checks;

use std::time::Duration;

use serde::Serialize;

use crate::config::{Config, Origin};
use crate::db::Db;
use crate::encoder::Encoder;
use crate::error::{Failure, Outcome};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Well.
    Ok,
    /// Works, and should be looked at.
    Warn,
    /// Does not work, or loses something.
    Fail,
    /// Could not be checked.
    Skip,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Stable name.
    pub name: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Check {
            name,
            verdict,
            found: found.into(),
            hint: None,
        }
    }

    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, found)
    }

    fn warn(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Check {
            hint: Some(hint.into()),
            ..Self::new(name, Verdict::Warn, found)
        }
    }

    fn fail(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Check {
            hint: Some(hint.into()),
            ..Self::new(name, Verdict::Fail, found)
        }
    }

    /// A check that ended in an error: a right that this role lacks leaves it open, anything else fails it.
    fn from(name: &'static str, outcome: Outcome<Check>) -> Self {
        outcome.unwrap_or_else(|failure: Failure| {
            let verdict = if failure.code == "forbidden" {
                Verdict::Skip
            } else {
                Verdict::Fail
            };
            let state = failure
                .sqlstate
                .map_or(String::new(), |state| format!(" (SQLSTATE {state})"));
            let found = format!("{}{state}", failure.message);
            Check {
                hint: failure.hint,
                ..Self::new(name, verdict, found)
            }
        })
    }
}

/// How long a notification may take.
const NOTIFICATION: Duration = Duration::from_secs(2);

/// Runs all checks. Without a database those that need one are left out.
pub async fn examine(config: &Config, origin: &Origin) -> Vec<Check> {
    let mut found = vec![checks::settings(config, origin)];
    let model = config.model.clone();
    let encoder = tokio::task::spawn_blocking(move || Encoder::load(&model))
        .await
        .unwrap_or_else(|error| Encoder::absent(format!("loading stopped: {error}")));
    found.push(checks::model(config, &encoder));
    found.push(checks::language(config).await);
    let db = match Db::open(&config.database, "doctor") {
        Ok(db) => db,
        Err(failure) => {
            found.push(Check::from("postgres", Err(failure)));
            return found;
        }
    };
    let catalog = match db.look_up_catalog().await {
        Ok(catalog) => catalog,
        Err(failure) => {
            let name = if failure.code == "extension_missing" {
                "extension"
            } else {
                "postgres"
            };
            found.push(Check::from(name, Err(failure)));
            return found;
        }
    };
    found.push(checks::postgres(&db, &catalog));
    found.push(Check::from("extension", checks::extension(&catalog)));
    found.push(checks::pgvector(&catalog));
    if catalog.check_version().is_err() {
        return found;
    }
    found.push(Check::from("storage", checks::storage(&db).await));
    found.push(Check::from(
        "query",
        checks::query(config, &db, &encoder).await,
    ));
    found.push(Check::from(
        "space",
        checks::space(config, &db, &encoder).await,
    ));
    found.push(Check::from("worker", checks::worker(&db).await));
    found.push(Check::from("sealer", checks::sealer(&db).await));
    found.push(Check::from("queue", checks::queue(&db).await));
    found.push(Check::from("bindings", checks::bindings(&db).await));
    found.push(Check::from("triggers", checks::triggers(&db).await));
    found.push(Check::from(
        "listen",
        checks::listen(config, &db, NOTIFICATION).await,
    ));
    db.close().await;
    found
}
