//! The claim pool for operators and clients: units, statistics, settings, events. Thin over the SQL interface.

use serde_json::value::RawValue;

use super::reader::JsonText;
use super::{Access, Db, column};
use crate::error::{Failure, Outcome};

const UNITS: &str = "
SELECT pg_catalog.json_build_object(
           'units', coalesce(pg_catalog.json_agg(pg_catalog.row_to_json(u) ORDER BY u.unit_id), '[]'),
           'next', CASE WHEN count(*) = $3 THEN max(u.unit_id) END)::text,
       EXISTS (SELECT FROM cortex.namespaces n WHERE n.namespace = $1)
  FROM (SELECT v.* FROM cortex.units v WHERE v.namespace = $1 AND v.unit_id > $2 ORDER BY v.unit_id LIMIT $3) u";

const UNIT: &str = "
SELECT pg_catalog.json_build_object(
           'unit', pg_catalog.row_to_json(u),
           'claims', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.row_to_json(c)), '[]')
                        FROM {cortex}.cortex_unit_claims($1, $2) c),
           'chunks', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.row_to_json(d)), '[]')
                        FROM {cortex}.cortex_drill($1, $2) d))::text
  FROM cortex.units u WHERE u.unit_id = $1 AND u.namespace = $2";

const EVICT: &str = "SELECT {cortex}.cortex_unit_evict($1, $2)::text";
const PURGE: &str = "SELECT {cortex}.cortex_pool_purge($1)::text";
const STATS: &str = "SELECT {cortex}.cortex_stats($1)::text";
const SET: &str = "SELECT {cortex}.cortex_pool_set($1, $2::text::jsonb)::text";
const LAST_EVENT: &str = "SELECT coalesce(({cortex}.cortex_stats($1) ->> 'last_event')::bigint, 0)";
const EVENTS: &str = "
SELECT e.event_id, e.kind, pg_catalog.row_to_json(e)::text FROM {cortex}.cortex_events($1, $2, $3) e ORDER BY e.event_id";

/// Something that happened in a namespace.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its number; later events have larger ones.
    pub id: i64,
    /// What happened.
    pub kind: String,
    /// The row of `cortex_events`, as PostgreSQL wrote it.
    pub json: JsonText,
}

impl Db {
    /// Units of a namespace after a given id, in the order of their ids; `next` names the last one if there
    /// may be more.
    ///
    /// # Errors
    /// As [`Db::rows`]; a namespace that does not exist or may not be seen.
    pub async fn units(&self, namespace: &str, after: i64, limit: i64) -> Outcome<JsonText> {
        let name = namespace.to_owned();
        let row = self
            .row(Access::Read, UNITS, |statement| {
                statement.bind(name).bind(after).bind(limit)
            })
            .await?;
        if column::<bool>(&row, 1)? {
            return column(&row, 0);
        }
        Err(Failure {
            code: "not_found",
            ..Failure::usage(format!("there is no namespace {namespace:?}"))
        })
    }

    /// A unit, its claims and the chunks behind it, as far as the caller may see them.
    ///
    /// # Errors
    /// As [`Db::rows`]; a unit that does not exist in the namespace.
    pub async fn unit(&self, unit: i64, namespace: &str) -> Outcome<JsonText> {
        let name = namespace.to_owned();
        let rows = self
            .rows(Access::Read, UNIT, |statement| {
                statement.bind(unit).bind(name)
            })
            .await?;
        match rows.first() {
            Some(row) => column(row, 0),
            None => Err(Failure {
                code: "not_found",
                ..Failure::usage(format!("namespace {namespace:?} has no unit {unit}"))
            }
            .hint("`cortex pool ls` lists them")),
        }
    }

    /// `cortex_unit_evict`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn evict_unit(&self, unit: i64, namespace: &str) -> Outcome<JsonText> {
        let namespace = namespace.to_owned();
        self.value(Access::Write, EVICT, |statement| {
            statement.bind(unit).bind(namespace)
        })
        .await
    }

    /// `cortex_pool_purge`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn purge_pool(&self, namespace: &str) -> Outcome<JsonText> {
        let namespace = namespace.to_owned();
        self.value(Access::Write, PURGE, |statement| statement.bind(namespace))
            .await
    }

    /// `cortex_stats`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn pool_stats(&self, namespace: &str) -> Outcome<JsonText> {
        let namespace = namespace.to_owned();
        self.value(Access::Read, STATS, |statement| statement.bind(namespace))
            .await
    }

    /// `cortex_pool_set`, with settings as a JSON object.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn set_pool(&self, namespace: &str, settings: &RawValue) -> Outcome<JsonText> {
        let (namespace, settings) = (namespace.to_owned(), settings.get().to_owned());
        self.value(Access::Write, SET, |statement| {
            statement.bind(namespace).bind(settings)
        })
        .await
    }

    /// Number of the last event of a namespace, 0 before the first.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn last_event(&self, namespace: &str) -> Outcome<i64> {
        let namespace = namespace.to_owned();
        self.value(Access::Read, LAST_EVENT, |statement| {
            statement.bind(namespace)
        })
        .await
    }

    /// `cortex_events`: what happened after a given event, the oldest first.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn events(&self, namespace: &str, after: i64, most: i32) -> Outcome<Vec<Event>> {
        let namespace = namespace.to_owned();
        let rows = self
            .rows(Access::Read, EVENTS, |statement| {
                statement.bind(namespace).bind(after).bind(most)
            })
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Event {
                    id: column(row, 0)?,
                    kind: column(row, 1)?,
                    json: column(row, 2)?,
                })
            })
            .collect()
    }
}
