//! Retrieval, evidence and sources: one function here for each SQL function that callers use.
//!
//! Answers come back as the JSON text that PostgreSQL wrote, so that a client of ours and one that sends
//! the same statement itself get the same bytes.

use super::{Access, Db};
use crate::error::Outcome;

/// JSON as PostgreSQL wrote it.
pub type JsonText = String;

const SEARCH: &str = "
SELECT pg_catalog.json_build_object(
           'results', coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
               'rank', s.rank, 'item_id', s.item_id, 'artifact_id', s.artifact_id, 'version_id', s.version_id,
               'start_byte', s.start_byte, 'end_byte', s.end_byte, 'score', s.score, 'title', s.title,
               'origin', s.origin, 'dated', s.dated, 'body', s.body) ORDER BY s.rank), '[]'),
           'receipt', pg_catalog.min(s.receipt))::text
  FROM {cortex}.cortex_search($1, $2::text::{vector}.vector, $3, $4, $5) s";

const READ: &str = "
SELECT pg_catalog.row_to_json(r)::text
  FROM {cortex}.cortex_read($1, $2::text::{vector}.vector, $3, $4, $5) r";

const ASK: &str = "
SELECT pg_catalog.row_to_json(a)::text
  FROM {cortex}.cortex_ask($1, $2::text::{vector}.vector, 'find_relevant', $3::text::jsonb, $4) a";

const VERIFY_ID: &str = "SELECT {cortex}.cortex_verify($1::bigint, $2)::text";
const VERIFY_TEXT: &str = "SELECT {cortex}.cortex_verify($1::text, $2)::text";
const DRIFT: &str = "SELECT {cortex}.cortex_drift($1)::text";
const TRACE: &str = "SELECT {cortex}.cortex_trace($1)";

// The caller may lack the right to the texts, which is not an error of the account.
const TRACE_QUESTION: &str = "
SELECT t.body FROM cortex.trace s
  JOIN cortex.trace_text t ON t.namespace_id = s.namespace_id
   AND t.commitment = pg_catalog.decode(pg_catalog.substr(s.body::jsonb ->> 'question', 4), 'hex')
 WHERE s.id = $1";

const SOURCE_PUT: &str = "SELECT {cortex}.cortex_source_put($1, $2, $3, $4, $5, $6)::text";
const SOURCE_DELETED: &str = "SELECT {cortex}.cortex_source_deleted($1, $2)::text";
const SOURCE_KNOWN: &str = "SELECT {cortex}.cortex_has_source($1, $2)";

const SOURCES_KNOWN: &str = "
SELECT count(*) FROM (SELECT DISTINCT unnest($1::text[]) AS id) named WHERE {cortex}.cortex_has_source(named.id, $2)";

const SPACE_DIGEST: &str = "
SELECT s.digest FROM cortex.namespace n JOIN cortex.space s ON s.id = n.space_id WHERE n.name = $1";

const HEALTH: &str = "SELECT {cortex}.cortex_health()::text";

/// A question for [`Db::search`], [`Db::read`] and [`Db::ask`].
#[derive(Clone, Debug)]
pub struct Question {
    /// The words.
    pub text: String,
    /// Their vector in the namespace's embedding space, as pgvector reads it; none for the lexical arm alone.
    pub vector: Option<String>,
    /// Namespace to look in.
    pub namespace: String,
    /// `auto`, `lexical`, `vector` or `hybrid`, as the SQL function takes it.
    pub mode: String,
}

/// A source that is not a row.
#[derive(Clone, Debug)]
pub struct Source {
    /// Stable name, such as `file:notes/today.md`.
    pub artifact_id: String,
    /// Its text.
    pub body: String,
    /// Title for headers.
    pub title: Option<String>,
    /// Origin label for headers.
    pub origin: Option<String>,
    /// Date for headers.
    pub dated: Option<String>,
    /// Namespace.
    pub namespace: String,
}

impl Db {
    /// `cortex_search`: the best `k` items.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn search(&self, question: &Question, k: i32) -> Outcome<JsonText> {
        self.value(Access::Read, SEARCH, |statement| {
            statement
                .bind(question.text.clone())
                .bind(question.vector.clone())
                .bind(k)
                .bind(question.namespace.clone())
                .bind(question.mode.clone())
        })
        .await
    }

    /// `cortex_read`: one context within a budget.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn read(&self, question: &Question, budget_tokens: i32) -> Outcome<JsonText> {
        self.value(Access::Read, READ, |statement| {
            statement
                .bind(question.text.clone())
                .bind(question.vector.clone())
                .bind(budget_tokens)
                .bind(question.namespace.clone())
                .bind(question.mode.clone())
        })
        .await
    }

    /// `cortex_ask` in mode `find_relevant`: evidence and a trace. `policy` is a JSON object.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn ask(&self, question: &Question, policy: &str) -> Outcome<JsonText> {
        self.value(Access::Write, ASK, |statement| {
            statement
                .bind(question.text.clone())
                .bind(question.vector.clone())
                .bind(policy.to_owned())
                .bind(question.namespace.clone())
        })
        .await
    }

    /// `cortex_verify` of a stored trace, with a question of the verifier's own if there is one.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn verify_stored(&self, trace_id: i64, question: Option<&str>) -> Outcome<JsonText> {
        let question = question.map(str::to_owned);
        self.value(Access::Read, VERIFY_ID, |statement| {
            statement.bind(trace_id).bind(question)
        })
        .await
    }

    /// `cortex_verify` of the text of a trace.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn verify_text(&self, trace: &str, question: Option<&str>) -> Outcome<JsonText> {
        let (trace, question) = (trace.to_owned(), question.map(str::to_owned));
        self.value(Access::Read, VERIFY_TEXT, |statement| {
            statement.bind(trace).bind(question)
        })
        .await
    }

    /// `cortex_drift`: how today differs from the state of a trace.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn drift(&self, trace_id: i64) -> Outcome<JsonText> {
        self.value(Access::Read, DRIFT, |statement| statement.bind(trace_id))
            .await
    }

    /// `cortex_trace`: the canonical text of a stored trace.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn trace(&self, trace_id: i64) -> Outcome<String> {
        self.value(Access::Read, TRACE, |statement| statement.bind(trace_id))
            .await
    }

    /// The words of a stored trace's question. None where they were erased or the caller may not see them.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn trace_question(&self, trace_id: i64) -> Outcome<Option<String>> {
        match self
            .rows(Access::Read, TRACE_QUESTION, |statement| {
                statement.bind(trace_id)
            })
            .await
        {
            Ok(rows) => rows.first().map(|row| super::column(row, 0)).transpose(),
            Err(failure) if failure.code == "forbidden" => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// `cortex_source_put`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn put_source(&self, source: &Source) -> Outcome<JsonText> {
        let source = source.clone();
        self.value(Access::Write, SOURCE_PUT, |statement| {
            statement
                .bind(source.artifact_id)
                .bind(source.body)
                .bind(source.title)
                .bind(source.origin)
                .bind(source.dated)
                .bind(source.namespace)
        })
        .await
    }

    /// `cortex_source_deleted`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn delete_source(&self, artifact_id: &str, namespace: &str) -> Outcome<JsonText> {
        let (artifact_id, namespace) = (artifact_id.to_owned(), namespace.to_owned());
        self.value(Access::Write, SOURCE_DELETED, |statement| {
            statement.bind(artifact_id).bind(namespace)
        })
        .await
    }

    /// `cortex_has_source`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn has_source(&self, artifact_id: &str, namespace: &str) -> Outcome<bool> {
        let (artifact_id, namespace) = (artifact_id.to_owned(), namespace.to_owned());
        self.value(Access::Read, SOURCE_KNOWN, |statement| {
            statement.bind(artifact_id).bind(namespace)
        })
        .await
    }

    /// How many of the named sources `cortex_has_source` knows.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn count_sources(&self, artifact_ids: &[String], namespace: &str) -> Outcome<i64> {
        let (artifact_ids, namespace) = (artifact_ids.to_vec(), namespace.to_owned());
        self.value(Access::Read, SOURCES_KNOWN, |statement| {
            statement.bind(artifact_ids).bind(namespace)
        })
        .await
    }

    /// `cortex_health`, which runs a real query.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn health(&self) -> Outcome<JsonText> {
        self.value(Access::Read, HEALTH, |statement| statement)
            .await
    }

    /// The digest of the embedding space that a namespace reads with. None if it has none, or is unknown.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn namespace_space_digest(&self, namespace: &str) -> Outcome<Option<String>> {
        let namespace = namespace.to_owned();
        let rows = self
            .rows(Access::Read, SPACE_DIGEST, |statement| {
                statement.bind(namespace)
            })
            .await?;
        rows.first().map(|row| super::column(row, 0)).transpose()
    }
}
