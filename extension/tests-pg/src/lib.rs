//! Help for tests of the extension against a running server.
//!
//! The server is the one of `CORTEX_TEST_PG_URL`, `CORTEX_TEST_PG18_URL` or `CORTEX_TEST_PG16_URL`, as a
//! superuser; its programs are in `CORTEX_TEST_PG_BIN` and so on. Each test has a database of its own.

pub mod asks;
pub mod pool;
pub mod server;
pub mod serving;

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use cortex_core::hash::content_hash;
use postgres::{Client, Config, IsolationLevel, NoTls, Row};
use serde_json::Value;

/// A database that is dropped with the value.
pub struct Database {
    /// Its name.
    pub name: String,
    config: Config,
}

impl Database {
    /// An empty database.
    pub fn empty() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let config: Config = setting("URL")
            .parse()
            .expect("the URL of the test server is not one");
        let name = format!(
            "cortex_test_{}_{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let mut admin = config
            .connect(NoTls)
            .expect("the test server cannot be reached");
        admin
            .batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
            .expect("an old database is in the way");
        admin
            .batch_execute(&format!(
                "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'"
            ))
            .expect("the test server does not make databases");
        let mut config = config;
        config.dbname(&name);
        Database { name, config }
    }

    /// A database with the extension and a session in it.
    pub fn with_cortex() -> (Self, Client) {
        let database = Self::empty();
        let mut client = database.connect();
        client
            .batch_execute("CREATE EXTENSION cortex CASCADE")
            .expect("the extension is not installed");
        (database, client)
    }

    /// Another session.
    pub fn connect(&self) -> Client {
        let mut client = self
            .config
            .connect(NoTls)
            .expect("the test database cannot be reached");
        client
            .batch_execute("SET statement_timeout = '60s'")
            .expect("a new session takes no setting");
        client
    }

    /// Another session, as a role that the test has made.
    pub fn connect_as(&self, role: &str) -> Client {
        let mut client = self.connect();
        client
            .batch_execute(&format!("SET SESSION AUTHORIZATION {role}"))
            .expect("no such role");
        client
    }

    /// How sessions of this database connect.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// Command line of one of the server's programs, connected to this database.
    pub fn program(&self, name: &str) -> std::process::Command {
        let mut command = std::process::Command::new(PathBuf::from(setting("BIN")).join(name));
        if let Some(postgres::config::Host::Unix(folder)) = self.config.get_hosts().first() {
            command.arg("--host").arg(folder);
        }
        if let Some(postgres::config::Host::Tcp(host)) = self.config.get_hosts().first() {
            command.arg("--host").arg(host);
        }
        if let Some(port) = self.config.get_ports().first() {
            command.arg("--port").arg(port.to_string());
        }
        if let Some(user) = self.config.get_user() {
            command.arg("--username").arg(user);
        }
        if let Some(password) = self.config.get_password() {
            command.env("PGPASSWORD", String::from_utf8_lossy(password).into_owned());
        }
        command.arg("--dbname").arg(&self.name);
        command
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let mut config = self.config.clone();
        config.dbname("postgres");
        if let Ok(mut admin) = config.connect(NoTls) {
            // A prepared transaction that a failed test left keeps its database alive.
            if let Ok(left) = self.prepared(&mut admin)
                && let Ok(mut own) = self.config.connect(NoTls)
            {
                for gid in left {
                    let _ = own.batch_execute(&format!("ROLLBACK PREPARED '{gid}'"));
                }
            }
            let _ = admin.batch_execute(&format!(
                "DROP DATABASE IF EXISTS {} WITH (FORCE)",
                self.name
            ));
        }
    }
}

impl Database {
    fn prepared(&self, admin: &mut Client) -> Result<Vec<String>, postgres::Error> {
        let rows = admin.query(
            "SELECT gid FROM pg_prepared_xacts WHERE database = $1",
            &[&self.name],
        )?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

/// The value of `CORTEX_TEST_PG_<what>`, or of the variant for a version of the server.
/// See [`Database`].
pub fn setting(what: &str) -> String {
    ["PG", "PG18", "PG16"]
        .iter()
        .find_map(|server| env::var(format!("CORTEX_TEST_{server}_{what}")).ok())
        .unwrap_or_else(|| panic!("set CORTEX_TEST_PG_{what}: these tests need a running server"))
}

/// One value of a query with one row.
pub fn one<T: postgres::types::FromSqlOwned>(client: &mut Client, sql: &str) -> T {
    client
        .query_one(sql, &[])
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
        .get(0)
}

/// SQLSTATE and full text of the error that a statement must end in.
pub fn failure(client: &mut Client, sql: &str) -> (String, String) {
    let error = client
        .batch_execute(sql)
        .expect_err(&format!("should have failed: {sql}"));
    let error = error
        .as_db_error()
        .unwrap_or_else(|| panic!("{sql}: not an error of the server: {error:?}"));
    let text = [Some(error.message()), error.detail(), error.hint()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n");
    (error.code().code().to_owned(), text)
}

/// Binds a table with further arguments of `cortex_bind`, loads it, and answers with the binding's name.
pub fn bind(client: &mut Client, table: &str, arguments: &str) -> String {
    let comma = if arguments.is_empty() { "" } else { ", " };
    let told: String = one(
        client,
        &format!("SELECT cortex_bind('{table}'{comma}{arguments})::text"),
    );
    let told: Value = serde_json::from_str(&told).expect("cortex_bind answers in JSON");
    let name = told["binding"]
        .as_str()
        .expect("the binding has a name")
        .to_owned();
    work(client);
    name
}

/// Does all load and reconcile jobs, in small batches.
pub fn work(client: &mut Client) {
    try_work(client).expect("load and reconcile jobs can be done");
}

/// [`work`], or the error that a batch ended in; its job stays.
pub fn try_work(client: &mut Client) -> Result<(), postgres::Error> {
    let jobs = client.query(
        "SELECT id, kind, payload::text FROM cortex.job WHERE kind IN ('load', 'reconcile') ORDER BY id",
        &[],
    )?;
    for job in jobs {
        let (id, kind, payload): (i64, String, String) = (job.get(0), job.get(1), job.get(2));
        if kind == "load" {
            load(client, &payload)?;
        } else {
            reconcile(client, payload)?;
        }
        client.execute("DELETE FROM cortex.job WHERE id = $1", &[&id])?;
    }
    Ok(())
}

/// Rows of a batch in tests: small, so that there are several.
const BATCH: i32 = 7;

fn load(client: &mut Client, payload: &str) -> Result<(), postgres::Error> {
    let payload: Value = serde_json::from_str(payload).expect("a payload is JSON");
    let binding = payload["binding"]
        .as_i64()
        .expect("a load job names its binding") as i32;
    let mut after: Option<Vec<String>> = None;
    loop {
        let row = client.query_one(
            "SELECT \"rows\", \"last\" FROM cortex._load_batch($1, $2, $3)",
            &[&binding, &after, &BATCH],
        )?;
        after = row.get(1);
        if row.get::<_, i32>(0) < BATCH {
            return Ok(());
        }
    }
}

fn reconcile(client: &mut Client, mut payload: String) -> Result<(), postgres::Error> {
    loop {
        let next: Option<String> = client
            .query_one(
                "SELECT next::text FROM cortex._reconcile_batch($1::text::jsonb, $2)",
                &[&payload, &BATCH],
            )?
            .get(0);
        match next {
            Some(next) => payload = next,
            None => return Ok(()),
        }
    }
}

/// State of a binding as its view shows it: state, reason and detail of the hold.
pub fn state(client: &mut Client, binding: &str) -> (String, Option<String>, Option<String>) {
    let row = client
        .query_one(
            "SELECT state, hold_reason, hold_detail FROM cortex.bindings WHERE name = $1",
            &[&binding],
        )
        .expect("the binding is listed");
    (row.get(0), row.get(1), row.get(2))
}

/// What differs between current versions and live rows, seen in one snapshot; empty if the binding is true.
///
/// `rows` is a query for the artifact id, then the texts of the content, of every live row. Nothing of the
/// extension takes part: the artifact ids are the test's, the hashes are made here.
pub fn differences(client: &mut Client, rows: &str) -> Vec<String> {
    look(client, rows).unwrap_or_else(|error| panic!("{rows}: {error:?}"))
}

/// [`differences`], or the error of looking: another transaction may hold the table's lock.
///
/// The tables are locked before the snapshot is taken, because TRUNCATE does not respect snapshots: who waits
/// for it with an older one finds the rows gone and the versions current.
pub fn look(client: &mut Client, rows: &str) -> Result<Vec<String>, postgres::Error> {
    let tables = client.query_one(
        "SELECT string_agg(relation::text, ', ') FROM cortex.binding WHERE relation <> 0::oid",
        &[],
    )?;
    let tables: Option<String> = tables.get(0);
    let mut transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()?;
    if let Some(tables) = tables {
        transaction.batch_execute(&format!("LOCK TABLE {tables} IN ACCESS SHARE MODE"))?;
    }
    let live = transaction.query(rows, &[])?;
    let current = transaction.query(
        "SELECT s.artifact_id, s.hash_key, v.content_hash FROM cortex.source_version v \
           JOIN cortex.source s ON s.id = v.source_id WHERE v.closed_by IS NULL",
        &[],
    )?;
    transaction.commit()?;
    Ok(compare(&live, &current))
}

fn compare(live: &[Row], current: &[Row]) -> Vec<String> {
    let mut contents = BTreeMap::new();
    for row in live {
        let texts: Vec<Option<String>> = (1..row.len()).map(|n| row.get(n)).collect();
        contents.insert(row.get::<_, String>(0), texts);
    }
    let mut differences = Vec::new();
    for row in current {
        let (artifact, key, hash): (String, Vec<u8>, Vec<u8>) =
            (row.get(0), row.get(1), row.get(2));
        match contents.remove(&artifact) {
            None => differences.push(format!(
                "{artifact}: current version of a row that is gone (or two of them)"
            )),
            Some(texts) => {
                let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
                let key = key.try_into().expect("a hash key has 32 bytes");
                if content_hash(&key, &texts).0.to_vec() != hash {
                    differences.push(format!(
                        "{artifact}: the current version is not of {texts:?}"
                    ));
                }
            }
        }
    }
    differences.extend(
        contents
            .into_keys()
            .map(|artifact| format!("{artifact}: no current version")),
    );
    differences
}
