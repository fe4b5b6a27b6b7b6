//! The checks one by one.

use std::time::Duration;

use super::Check;
use crate::config::{Config, Origin};
use crate::db::reader::{Answer, Question, ReadOptions};
use crate::db::{Access, Catalog, Db, column};
use crate::encoder::Encoder;
use crate::error::{Failure, Outcome};
use crate::{model, worker};

/// Seconds after which an unnumbered change means that no sealer runs; a busy one takes milliseconds.
const LATE_SEAL_S: f64 = 10.0;

pub(super) fn settings(config: &Config, origin: &Origin) -> Check {
    let file = origin
        .file
        .as_ref()
        .map_or("defaults".to_owned(), |file| file.display().to_string());
    let variables = match origin.variables.as_slice() {
        [] => String::new(),
        names => format!(", then {}", names.join(", ")),
    };
    Check::ok(
        "settings",
        format!(
            "{file}{variables}; database {}",
            config.database.url.masked()
        ),
    )
}

pub(super) fn model(config: &Config, encoder: &Encoder) -> Check {
    match encoder.space() {
        Ok(space) => Check::ok(
            "model",
            format!(
                "{}, {} dimensions, in {}",
                space.model,
                space.dimensions,
                config.model.dir.display()
            ),
        ),
        Err(reason) => Check::warn(
            "model",
            format!("{reason}; retrieval is by words alone"),
            "prepare the model, or name its folder in model.dir (CORTEX_MODEL__DIR)",
        ),
    }
}

/// The server of the language model, asked for its models.
pub(super) async fn language(config: &Config) -> Check {
    const NAME: &str = "language";
    let settings = &config.language_model;
    let server = match model::open(settings) {
        Ok(Some(server)) => server,
        Ok(None) => {
            return Check::ok(
                NAME,
                "no language model (language_model.provider is none); claims are the sources' own sentences",
            );
        }
        Err(failure) => return Check::from(NAME, Err(failure)),
    };
    let place = if settings.is_remote() {
        format!(
            "{} at {}, BEYOND THIS MACHINE: texts of sources are sent there",
            settings.name, settings.url
        )
    } else {
        format!("{} at {}", settings.name, settings.url)
    };
    match server.list().await {
        Err(failure) => Check::fail(
            NAME,
            format!("{place}; {}", failure.message),
            failure.hint.unwrap_or_default(),
        ),
        Ok(_) if settings.shows_its_key() => Check::warn(
            NAME,
            format!("{place}; the key goes there in the clear"),
            "use https in language_model.url, or a server on this machine",
        ),
        Ok(listed) if !model::is_listed(&listed, &settings.name) => Check::warn(
            NAME,
            format!(
                "{place}; the server does not list that model among {}",
                listed.len()
            ),
            format!(
                "load it there (for Ollama: ollama pull {}), or correct language_model.name",
                settings.name
            ),
        ),
        Ok(_) => Check::ok(NAME, place),
    }
}

pub(super) fn postgres(db: &Db, catalog: &Catalog) -> Check {
    Check::ok(
        "postgres",
        format!("PostgreSQL {} at {}", catalog.server, db.place()),
    )
}

pub(super) fn extension(catalog: &Catalog) -> Outcome<Check> {
    catalog.check_version()?;
    Ok(Check::ok(
        "extension",
        format!(
            "cortex {}, binary {}",
            catalog.cortex,
            env!("CARGO_PKG_VERSION")
        ),
    ))
}

pub(super) fn pgvector(catalog: &Catalog) -> Check {
    match catalog.warning() {
        None => Check::ok("pgvector", format!("pgvector {}", catalog.vector)),
        Some(warning) => Check::warn(
            "pgvector",
            warning,
            "install a newer pgvector, then ALTER EXTENSION vector UPDATE",
        ),
    }
}

pub(super) async fn storage(db: &Db) -> Outcome<Check> {
    let storage = db.storage().await?;
    let found = format!(
        "database {}, of it schema cortex {}{}",
        megabytes(storage.database_bytes),
        megabytes(storage.cortex_bytes),
        if storage.standby {
            ", a standby: it answers and does not work"
        } else {
            ""
        }
    );
    if storage.durable {
        return Ok(Check::ok("storage", found));
    }
    Ok(Check::warn(
        "storage",
        format!("{found}; fsync or full_page_writes is off"),
        "a power cut can destroy this database: switch both on unless it may be lost",
    ))
}

fn megabytes(bytes: i64) -> String {
    let tenths = bytes / 104_858;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

/// A read as a user would make it. It tells its arms also where nothing is found.
async fn trial(config: &Config, db: &Db, encoder: &Encoder) -> Outcome<Answer> {
    let text = "doctor".to_owned();
    let question = Question {
        vector: encoder.question(&text).await?,
        text,
        namespace: config.read.namespace.clone(),
        mode: "auto".to_owned(),
    };
    db.read(&question, &ReadOptions::within(config.read.budget_tokens))
        .await
}

pub(super) async fn query(config: &Config, db: &Db, encoder: &Encoder) -> Outcome<Check> {
    match trial(config, db, encoder).await {
        Ok(answer) => {
            let arms = if answer.by_vector {
                "words and vectors"
            } else {
                "words alone"
            };
            Ok(Check::ok(
                "query",
                format!(
                    "a read of namespace {} by {arms} runs",
                    config.read.namespace
                ),
            ))
        }
        Err(failure) if failure.code == "not_found" => Ok(Check::warn(
            "query",
            failure.message,
            "bind a table (SELECT cortex_bind('your_table')), run cortex ingest, or have it granted to you",
        )),
        Err(failure) => Err(failure),
    }
}

const MODEL_OF: &str = "SELECT n.model FROM cortex.namespaces n WHERE n.namespace = $1";

pub(super) async fn space(config: &Config, db: &Db, encoder: &Encoder) -> Outcome<Check> {
    let namespace = &config.read.namespace;
    let name = namespace.clone();
    let rows = db
        .rows(Access::Read, MODEL_OF, |statement| statement.bind(name))
        .await?;
    let model: Option<String> = rows
        .first()
        .map(|row| column(row, 0))
        .transpose()?
        .flatten();
    let Some(model) = model else {
        return Ok(Check::warn(
            "space",
            format!("namespace {namespace} has no embedding space yet"),
            "a worker with a model gives it one: cortex up",
        ));
    };
    if encoder.space().is_err() {
        return Ok(Check::warn(
            "space",
            format!(
                "namespace {namespace} has vectors of {model}, and this binary has no model to embed a question"
            ),
            "prepare the model, or name its folder in model.dir",
        ));
    }
    if trial(config, db, encoder).await?.by_vector {
        return Ok(Check::ok(
            "space",
            format!("namespace {namespace} has vectors of {model}, as this binary makes them"),
        ));
    }
    Ok(Check::warn(
        "space",
        format!(
            "a question to namespace {namespace} is asked by words alone: nothing is embedded yet, or by another model ({model})"
        ),
        "let the worker finish, or use the model that it was embedded with",
    ))
}

const WORKERS: &str = "
SELECT count(DISTINCT (a.client_addr, a.application_name)) FROM pg_catalog.pg_stat_activity a
 WHERE a.datname = pg_catalog.current_database() AND a.application_name IN ('cortex worker', 'cortex service', 'cortex demo')";

pub(super) async fn worker(db: &Db) -> Outcome<Check> {
    let workers: i64 = db
        .value(Access::Read, WORKERS, |statement| statement)
        .await?;
    if workers > 0 {
        return Ok(Check::ok(
            "worker",
            "a worker is connected to this database",
        ));
    }
    Ok(Check::warn(
        "worker",
        "no worker is connected to this database; what changes stays pending",
        "start one: cortex up, or cortex worker",
    ))
}

pub(super) async fn sealer(db: &Db) -> Outcome<Check> {
    let health: serde_json::Value = serde_json::from_str(&db.health().await?)
        .map_err(|error| Failure::internal(format!("cortex_health() is not JSON: {error}")))?;
    let waiting = health["unsealed"].as_i64().unwrap_or_default();
    let age = health["oldest_unsealed_seconds"]
        .as_f64()
        .unwrap_or_default();
    let found = match waiting {
        0 => "every committed change has its number".to_owned(),
        waiting => format!("{waiting} changes wait for their number, the oldest for {age:.1} s"),
    };
    if age < LATE_SEAL_S {
        return Ok(Check::ok("sealer", found));
    }
    Ok(Check::fail(
        "sealer",
        found,
        "start a worker (cortex up), or by hand: SELECT cortex_seal()",
    ))
}

pub(super) async fn queue(db: &Db) -> Outcome<Check> {
    let backlog = db.backlog().await?;
    let found = format!(
        "{} jobs ready, {} running, {} dead; {} versions to chunk, {} items to embed",
        backlog.jobs_ready,
        backlog.jobs_running,
        backlog.jobs_dead,
        backlog.pending_chunk,
        backlog.pending_embed
    );
    let Some(first) = backlog.first_dead else {
        return Ok(Check::ok("queue", found));
    };
    Ok(Check::fail(
        "queue",
        format!("{found}; {first}"),
        "see SELECT * FROM cortex.jobs WHERE state = 'dead'; remove the cause, then SELECT cortex_job_retry()",
    ))
}

const BINDINGS: &str = "
SELECT count(*), count(*) FILTER (WHERE b.state = 'held'),
       (SELECT pg_catalog.format('%s in %s is held: %s%s', h.name, h.namespace, h.hold_reason, ', ' || h.hold_detail)
          FROM cortex.bindings h WHERE h.state = 'held' ORDER BY h.namespace, h.name LIMIT 1)
  FROM cortex.bindings b";

pub(super) async fn bindings(db: &Db) -> Outcome<Check> {
    let row = db
        .row(Access::Read, BINDINGS, |statement| statement)
        .await?;
    let (all, held): (i64, i64) = (column(&row, 0)?, column(&row, 1)?);
    let Some(first): Option<String> = column(&row, 2)? else {
        return Ok(Check::ok("bindings", format!("{all} bindings, none held")));
    };
    Ok(Check::fail(
        "bindings",
        format!("{held} of {all} bindings are held and serve nothing; {first}"),
        "SELECT cortex_resume(<binding>) checks every row and opens it again",
    ))
}

/// Our triggers that are switched off, and settings that keep triggers from firing.
const SILENCED: &str = "
SELECT count(*), min(s.what) FROM (
    SELECT pg_catalog.format('trigger %I on %s is switched off', t.tgname, t.tgrelid::regclass) AS what
      FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
     WHERE t.tgenabled = 'D' AND NOT t.tgisinternal AND p.pronamespace = 'cortex'::regnamespace
    UNION ALL
    SELECT pg_catalog.format('%s is set for %s', c.setting, coalesce(r.rolname, 'the database'))
      FROM pg_catalog.pg_db_role_setting d LEFT JOIN pg_catalog.pg_roles r ON r.oid = d.setrole,
           unnest(d.setconfig) AS c (setting)
     WHERE c.setting ILIKE 'session_replication_role=%' AND c.setting NOT ILIKE '%=origin'
       AND d.setdatabase IN (0, (SELECT b.oid FROM pg_catalog.pg_database b WHERE b.datname = pg_catalog.current_database()))
    UNION ALL
    SELECT pg_catalog.format('event trigger %I is switched off', e.evtname)
      FROM pg_catalog.pg_event_trigger e JOIN pg_catalog.pg_proc p ON p.oid = e.evtfoid
     WHERE e.evtenabled = 'D' AND p.pronamespace = 'cortex'::regnamespace) s";

pub(super) async fn triggers(db: &Db) -> Outcome<Check> {
    let row = db
        .row(Access::Read, SILENCED, |statement| statement)
        .await?;
    let Some(first): Option<String> = column(&row, 1)? else {
        return Ok(Check::ok("triggers", "no trigger is silenced"));
    };
    let all: i64 = column(&row, 0)?;
    Ok(Check::fail(
        "triggers",
        format!("{all} silenced: {first}"),
        "changes go unseen: undo it, then SELECT cortex_reconcile(<binding>) finds what was missed",
    ))
}

const NOTIFY: &str = "SELECT pg_catalog.pg_notify($1, '')::text";

pub(super) async fn listen(config: &Config, db: &Db, patience: Duration) -> Outcome<Check> {
    let polling = |why: String| {
        Check::warn(
            "listen",
            format!(
                "{why}; workers poll every {} ms",
                config.worker.poll_interval_ms
            ),
            "behind PgBouncer in transaction mode, set database.direct_url to PostgreSQL's own address",
        )
    };
    let mut listener = match worker::connect_listener(&config.database.listen_address()).await {
        Ok(listener) => listener,
        Err(failure) => return Ok(polling(failure.message)),
    };
    db.rows(Access::Write, NOTIFY, |statement| {
        statement.bind(worker::CHANNEL)
    })
    .await?;
    Ok(
        match tokio::time::timeout(patience, listener.recv()).await {
            Ok(Ok(_)) => Check::ok("listen", "a notification arrives"),
            Ok(Err(error)) => polling(error.to_string()),
            Err(_) => polling(format!("no notification within {} s", patience.as_secs())),
        },
    )
}
