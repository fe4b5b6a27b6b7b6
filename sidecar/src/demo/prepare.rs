//! Step 1: a fresh database, the rows, the binding, and the worker until nothing is left to do.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::place::{DATABASE, Place};
use super::session::Session;
use super::{Demo, NAMESPACE, TABLE, bar, check};
use crate::error::{Failure, Kind, Outcome};
use crate::worker::Worker;

/// Says in the catalog that a database is the demo's to drop.
const MARK: &str = "Made by cortex demo, which drops it when it runs again";
/// How long nothing may move before the demo gives up.
const STANDSTILL: Duration = Duration::from_secs(120);
/// How often the progress is looked at.
const LOOK: Duration = Duration::from_millis(100);

const CREATE_TABLE: &str = "CREATE TABLE release_note (
    id integer PRIMARY KEY,
    version text NOT NULL,
    released_on date,
    section text NOT NULL,
    body text NOT NULL
)";

/// What is left to do, and what is there. One statement, so that nothing moves between the figures.
const PROGRESS: &str = "
SELECT (SELECT count(*) FROM cortex.jobs j WHERE j.state <> 'dead') + n.unsealed AS left_over,
       n.dead_jobs, n.pending_chunk, n.pending_embed, n.chunks + n.claims
  FROM cortex.namespaces n WHERE n.namespace = $1";

/// Claims whose text is not, byte for byte, the span of the row that they name.
const MISQUOTED: &str = "
SELECT count(*) FROM cortex.claims c
  LEFT JOIN release_note r ON c.artifact_id = format('row:release_note:[%s]', r.id)
 WHERE c.fresh AND (r.id IS NULL OR convert_to(c.body, 'UTF8')
       <> substr(convert_to(r.body, 'UTF8'), c.start_byte + 1, c.end_byte - c.start_byte))";

/// Drops the demo's old database and makes a new one.
pub(super) async fn database(place: &Place) -> Outcome<()> {
    let mut admin = Session::open(&place.maintenance_url()).await?;
    let found = admin
        .rows(
            "SELECT coalesce(shobj_description(d.oid, 'pg_database'), '') FROM pg_database d WHERE d.datname = $1",
            &[DATABASE],
        )
        .await?;
    if let Some(row) = found.first() {
        let comment: String = crate::db::column(row, 0)?;
        if comment != MARK {
            return Err(Failure::new(
                Kind::System,
                "foreign_database",
                format!("the database {DATABASE} exists and is not the demo's"),
            )
            .hint(format!(
                "drop it if nobody needs it: DROP DATABASE {DATABASE}"
            )));
        }
        admin
            .run(&format!("DROP DATABASE {DATABASE} WITH (FORCE)"))
            .await?;
    }
    admin.run(&format!("CREATE DATABASE {DATABASE}")).await?;
    admin
        .run(&format!("COMMENT ON DATABASE {DATABASE} IS '{MARK}'"))
        .await
}

impl Demo<'_> {
    /// Makes the table, binds it, and works until every claim is there.
    pub(super) async fn rows(&mut self) -> Outcome<String> {
        self.user.run("CREATE EXTENSION cortex CASCADE").await?;
        self.db.catalog().await?;
        self.user.run(CREATE_TABLE).await?;
        self.user
            .rows("INSERT INTO release_note SELECT * FROM json_populate_recordset(NULL::release_note, $1::text::json)", &[&self.story.json])
            .await?;
        self.bind().await?;
        self.drain("chunking and embedding").await?;
        self.count().await
    }

    async fn bind(&mut self) -> Outcome<()> {
        let arguments = "'release_note', text_columns => '{body}', title_column => 'section', date_column => 'released_on'";
        let preview: Value = self
            .answer(&format!(
                "SELECT cortex_bind({arguments}, preview => true)::text"
            ))
            .await?;
        let figure = |name: &str| preview["preview"][name].as_i64().unwrap_or_default();
        self.show.line("SELECT cortex_bind('release_note',");
        self.show
            .line("    text_columns => '{body}', title_column => 'section',");
        self.show.line("    date_column => 'released_on');");
        self.show.say(&format!(
            "preview: about {} rows, {} chunks, {} KB on disk, {} s of work; {} triggers",
            figure("estimated_rows"),
            figure("estimated_chunks"),
            figure("estimated_disk_bytes") / 1_024,
            figure("estimated_seconds"),
            preview["preview"]["triggers"][0]["triggers"]
                .as_array()
                .map_or(0, Vec::len),
        ));
        check(preview["bound"] == false, || {
            "the preview has bound the table".to_owned()
        })?;
        let bound: Value = self
            .answer(&format!("SELECT cortex_bind({arguments})::text"))
            .await?;
        check(bound["bound"] == true, || {
            format!("the table was not bound: {bound}")
        })
    }

    /// Runs a worker in this process until no job is left and every change has its number.
    pub(super) async fn drain(&mut self, label: &str) -> Outcome<()> {
        let stop = CancellationToken::new();
        // Whatever ends this function ends the worker.
        let _guard = stop.clone().drop_guard();
        let worker = Worker::new(
            self.db.clone(),
            self.encoder.clone(),
            &self.config,
            stop.clone(),
        );
        let mut running = tokio::spawn(worker?.run());
        let mut bar = bar(&self.show, label);
        let mut moved = (Instant::now(), i64::MAX);
        loop {
            tokio::select! {
                ended = &mut running => {
                    return Err(match ended {
                        Ok(Err(failure)) => failure,
                        Ok(Ok(())) => Failure::internal("the worker ended before its work"),
                        Err(error) => Failure::internal(format!("the worker stopped: {error}")),
                    });
                }
                () = tokio::time::sleep(LOOK) => {}
            }
            let rows = self.user.rows(PROGRESS, &[NAMESPACE]).await?;
            let row = rows
                .first()
                .ok_or_else(|| Failure::internal("the namespace is gone"))?;
            let figure = |index| crate::db::column::<i64>(row, index);
            let (left, dead, chunk, embed, items) =
                (figure(0)?, figure(1)?, figure(2)?, figure(3)?, figure(4)?);
            check(dead == 0, || {
                format!("{dead} jobs are dead: SELECT * FROM cortex.jobs WHERE state = 'dead'")
            })?;
            if left == 0 {
                break;
            }
            let done = u64::try_from(items - embed).unwrap_or(0);
            bar.show(
                done,
                u64::try_from(items).ok(),
                &if chunk > 0 {
                    format!("{chunk} rows to chunk")
                } else {
                    String::new()
                },
            );
            if left + chunk + embed < moved.1 || chunk + embed != moved.1 {
                moved = (Instant::now(), chunk + embed);
            }
            check(moved.0.elapsed() < STANDSTILL, || {
                format!(
                    "nothing moved for {} s, {left} pieces of work are left",
                    STANDSTILL.as_secs()
                )
            })?;
        }
        drop(bar);
        stop.cancel();
        running
            .await
            .map_err(|error| Failure::internal(format!("the worker stopped: {error}")))?
    }

    /// Counts by SQL, and checks what must add up.
    async fn count(&mut self) -> Outcome<String> {
        let rows: i64 = self
            .user
            .value("SELECT count(*) FROM release_note", &[])
            .await?;
        check(rows == self.story.count, || {
            format!("the table has {rows} rows, the file {}", self.story.count)
        })?;
        let served: i64 = self
            .user
            .value(
                "SELECT count(DISTINCT c.artifact_id) FROM cortex.claims c WHERE c.fresh",
                &[],
            )
            .await?;
        check(served == rows, || {
            format!("{served} of {rows} rows have claims")
        })?;
        let chunks: i64 = self
            .user
            .value(
                "SELECT n.chunks FROM cortex.namespaces n WHERE n.namespace = $1",
                &[NAMESPACE],
            )
            .await?;
        let claims: i64 = self
            .user
            .value("SELECT count(*) FROM cortex.claims c WHERE c.fresh", &[])
            .await?;
        let space: i32 = self
            .user
            .value(
                "SELECT n.space FROM cortex.namespaces n WHERE n.namespace = $1",
                &[NAMESPACE],
            )
            .await?;
        let vectors: i64 = self
            .user
            .value(&format!("SELECT count(*) FROM cortex.emb_{space}"), &[])
            .await?;
        check(vectors == chunks + claims, || {
            format!("{vectors} vectors for {chunks} chunks and {claims} claims")
        })?;
        let misquoted: i64 = self.user.value(MISQUOTED, &[]).await?;
        check(misquoted == 0, || {
            format!("{misquoted} claims are not what stands in their row")
        })?;
        self.show.say(&format!(
            "{rows} rows of {TABLE}, {chunks} chunks, {claims} claims, {vectors} vectors; each claim is byte for byte in its row"
        ));
        Ok(format!("{rows} rows, {claims} claims with provenance"))
    }

    /// The JSON that a statement of one column returns as text.
    pub(super) async fn answer(&mut self, sql: &str) -> Outcome<Value> {
        let text: String = self.user.value(sql, &[]).await?;
        serde_json::from_str(&text)
            .map_err(|error| Failure::internal(format!("PostgreSQL's answer is not JSON: {error}")))
    }
}
