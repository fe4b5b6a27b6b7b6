//! Retrieval, evidence and sources: one function here for each SQL function that callers use.
//!
//! Answers come back as the JSON text that PostgreSQL wrote, so that a client of ours and one that sends
//! the same statement itself get the same bytes.
//!
//! A question's vector belongs to one embedding space, and PostgreSQL can only see whether its length fits.
//! So each answer is kept only if its receipt names the vector's own space; otherwise the question is asked
//! again by words alone. Asked first and checked after, no switch of the namespace can come in between.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Access, Db, column};
use crate::error::{Failure, Kind, Outcome};

/// JSON as PostgreSQL wrote it.
pub type JsonText = String;

const SEARCH: &str = "
SELECT pg_catalog.json_build_object(
           'results', coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
               'rank', s.rank, 'item_id', s.item_id, 'artifact_id', s.artifact_id, 'version_id', s.version_id,
               'start_byte', s.start_byte, 'end_byte', s.end_byte, 'score', s.score, 'title', s.title,
               'origin', s.origin, 'dated', s.dated, 'body', s.body) ORDER BY s.rank), '[]'),
           'receipt', pg_catalog.min(s.receipt))::text,
       pg_catalog.min(s.receipt)::json -> 'space' ->> 'digest'
  FROM {cortex}.cortex_search($1, $2::text::{vector}.vector, $3, $4, $5) s";

const READ: &str = "
SELECT pg_catalog.row_to_json(r)::text, r.receipt::json -> 'space' ->> 'digest'
  FROM {cortex}.cortex_read($1, $2::text::{vector}.vector, $3, $4, $5, $6, $7) r";

const ASK: &str = "
SELECT pg_catalog.row_to_json(a)::text, a.trace_id
  FROM {cortex}.cortex_ask($1, $2::text::{vector}.vector, $3, $4::text::jsonb, $5, $6) a";

// Only the question has a vector here, so only the first round can have a space.
const TRACE_SPACE: &str =
    "SELECT {cortex}.cortex_trace($1)::json -> 'rounds' -> 0 -> 'receipt' -> 'space' ->> 'digest'";

const SOURCE_PUT: &str = "SELECT {cortex}.cortex_source_put($1, $2, $3, $4, $5, $6)::text";
const SOURCE_DELETED: &str = "SELECT {cortex}.cortex_source_deleted($1, $2)::text";

const SOURCES_KNOWN: &str = "
SELECT count(*) FROM (SELECT DISTINCT unnest($1::text[]) AS id) named WHERE {cortex}.cortex_has_source(named.id, $2)";

const SOURCES_BELOW: &str = "
SELECT l.artifact_id FROM {cortex}.cortex_source_list($1, $2, $3, $4) l ORDER BY l.artifact_id COLLATE \"C\"";

// A row's source is told by its table, so all that is said of it here is that it is there.
const SOURCE: &str = "
SELECT coalesce(
    (SELECT pg_catalog.row_to_json(l)::jsonb || pg_catalog.jsonb_build_object('namespace', $2::text)
       FROM {cortex}.cortex_source_list($1, $2, max_sources => 1) l WHERE l.artifact_id = $1),
    (SELECT pg_catalog.jsonb_build_object('artifact_id', $1::text, 'namespace', $2::text)
      WHERE {cortex}.cortex_has_source($1, $2)))::text";

/// Sources listed at once.
const PAGE: i32 = 1000;

const READ_LOG: &str = "SELECT {cortex}.cortex_read_log($1, $2::text::jsonb)";
const BUILD_WANT: &str =
    "SELECT {cortex}.cortex_build_want($1::text::jsonb, $2, $3::text::{vector}.vector)::text";

const HEALTH: &str = "SELECT {cortex}.cortex_health()::text";

/// A question for [`Db::search`], [`Db::read`] and [`Db::ask`].
#[derive(Clone, Debug)]
pub struct Question {
    /// The words.
    pub text: String,
    /// Their vector; none for the lexical arm alone.
    pub vector: Option<Vector>,
    /// Namespace to look in.
    pub namespace: String,
    /// `auto`, `lexical`, `vector` or `hybrid`, as the SQL function takes it.
    pub mode: String,
}

/// A vector of a question.
#[derive(Clone, Debug)]
pub struct Vector {
    /// As pgvector reads it.
    pub text: String,
    /// Digest of the embedding space that it belongs to.
    pub space: String,
}

/// An answer to a question.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What the SQL function returned.
    pub json: JsonText,
    /// Whether vectors were compared.
    pub by_vector: bool,
}

/// Which function a question goes to, with its limit or policy.
#[derive(Clone, Copy)]
enum Call<'a> {
    Search(i32),
    Read(&'a ReadOptions),
    Ask(&'a AskOptions),
}

/// How an ask is to be answered.
#[derive(Clone, Debug)]
pub struct AskOptions {
    /// `find_relevant` and so on, as the SQL function takes it.
    pub mode: String,
    /// A JSON object.
    pub policy: serde_json::Map<String, serde_json::Value>,
    /// Questions to ask after the question itself.
    pub sub_questions: Option<Vec<String>>,
}

impl Default for AskOptions {
    fn default() -> Self {
        AskOptions {
            mode: "find_relevant".into(),
            policy: serde_json::Map::new(),
            sub_questions: None,
        }
    }
}

impl AskOptions {
    /// The policy as JSON. Arms that were asked for are its `retrieval`, unless it names them itself.
    pub fn policy_for(&self, arms: &str) -> String {
        let mut policy = self.policy.clone();
        if arms != "auto" {
            policy
                .entry("retrieval")
                .or_insert_with(|| arms.to_owned().into());
        }
        serde_json::Value::Object(policy).to_string()
    }
}

/// How a context is to be made; what is not given follows from the profile and the namespace's settings.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Tokens that the context may have.
    pub budget_tokens: Option<i32>,
    /// `context_first`, `context_raw` or `context_only`, as the SQL function takes it.
    pub strategy: Option<String>,
    /// A profile of the namespace.
    pub profile: Option<String>,
}

impl ReadOptions {
    /// A budget and nothing else.
    pub fn within(budget_tokens: i32) -> Self {
        ReadOptions {
            budget_tokens: Some(budget_tokens),
            ..ReadOptions::default()
        }
    }
}

/// The parts of a read that its record needs.
#[derive(Deserialize)]
struct ReadParts {
    receipt: Option<String>,
    details: Box<RawValue>,
    wanted: Vec<serde_json::Value>,
}

/// What a statement returned, before it is known whether it may be used.
struct Attempt {
    json: JsonText,
    /// Digest of the space whose vectors were compared, if any were.
    space: Option<String>,
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
    /// As [`Db::rows`]; a mode that demands a vector, without one of the namespace's own space.
    pub async fn search(&self, question: &Question, k: i32) -> Outcome<Answer> {
        self.checked(question, Call::Search(k)).await
    }

    /// `cortex_read`: one context within a budget.
    ///
    /// # Errors
    /// As [`Db::search`].
    pub async fn read(&self, question: &Question, options: &ReadOptions) -> Outcome<Answer> {
        self.checked(question, Call::Read(options)).await
    }

    /// What a read leaves to its caller, since reading only reads: `cortex_read_log`, and `cortex_build_want` for
    /// what would have helped. The read is recorded once, however often this is called with it.
    ///
    /// # Errors
    /// As [`Db::rows`]; on a standby, that it cannot be written.
    pub async fn record_read(&self, question: &Question, answer: &Answer) -> Outcome<()> {
        let read: ReadParts = serde_json::from_str(answer.json.as_str())
            .map_err(|error| Failure::internal(format!("cortex_read answered {error}")))?;
        if let Some(receipt) = read.receipt {
            let details = read.details.get().to_owned();
            let _: i64 = self
                .value(Access::Write, READ_LOG, |statement| {
                    statement.bind(receipt).bind(details)
                })
                .await?;
        }
        if read.wanted.is_empty() {
            return Ok(());
        }
        let wanted = serde_json::to_string(&read.wanted)
            .map_err(|error| Failure::internal(format!("what a read wants: {error}")))?;
        let namespace = question.namespace.clone();
        let vector = question
            .vector
            .as_ref()
            .filter(|_| answer.by_vector)
            .map(|vector| vector.text.clone());
        let _: JsonText = self
            .value(Access::Write, BUILD_WANT, |statement| {
                statement.bind(wanted).bind(namespace).bind(vector)
            })
            .await?;
        Ok(())
    }

    /// `cortex_ask`: evidence and a trace, without a model.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn ask(&self, question: &Question, options: &AskOptions) -> Outcome<Answer> {
        self.checked(question, Call::Ask(options)).await
    }

    /// Asks with the question's vector, and again without it where the vector is not of the namespace's
    /// space. Only mode `auto` may do without; the others were asked for.
    async fn checked(&self, question: &Question, call: Call<'_>) -> Outcome<Answer> {
        let vector = question.vector.as_ref().map(|vector| vector.text.clone());
        let may_retry = vector.is_some() && question.mode == "auto";
        let attempt = match self.attempt(question, vector, call).await {
            Ok(attempt) if attempt.fits(question) => attempt,
            Ok(_) if may_retry => self.attempt(question, None, call).await?,
            Ok(_) => return Err(other_space(question)),
            // Perhaps the length; anything else is refused without the vector as well.
            Err(failure) if may_retry && failure.code == "invalid_argument" => {
                self.attempt(question, None, call).await?
            }
            Err(failure) => return Err(failure),
        };
        Ok(Answer {
            by_vector: attempt.space.is_some(),
            json: attempt.json,
        })
    }

    async fn attempt(
        &self,
        question: &Question,
        vector: Option<String>,
        call: Call<'_>,
    ) -> Outcome<Attempt> {
        let Question {
            text,
            namespace,
            mode,
            ..
        } = question.clone();
        let row = match call {
            Call::Search(k) => {
                self.row(Access::Read, SEARCH, |statement| {
                    statement
                        .bind(text)
                        .bind(vector)
                        .bind(k)
                        .bind(namespace)
                        .bind(mode)
                })
                .await?
            }
            Call::Read(options) => {
                let options = options.clone();
                // A mode that nobody asked for leaves it to the profile.
                let mode = (options.profile.is_none() || mode != "auto").then_some(mode);
                self.row(Access::Read, READ, |statement| {
                    statement
                        .bind(text)
                        .bind(vector)
                        .bind(options.budget_tokens)
                        .bind(namespace)
                        .bind(mode)
                        .bind(options.strategy)
                        .bind(options.profile)
                })
                .await?
            }
            Call::Ask(options) => return self.ask_once(question, vector, options).await,
        };
        Ok(Attempt {
            json: column(&row, 0)?,
            space: column(&row, 1)?,
        })
    }

    /// Asks, and commits the trace only if its receipt names the vector's own space.
    async fn ask_once(
        &self,
        question: &Question,
        vector: Option<String>,
        options: &AskOptions,
    ) -> Outcome<Attempt> {
        let catalog = self.catalog().await?;
        let mut work = self.begin(Access::Write).await?;
        let (text, namespace) = (question.text.clone(), question.namespace.clone());
        let policy = options.policy_for(&question.mode);
        let (mode, sub_questions) = (options.mode.clone(), options.sub_questions.clone());
        let rows = work
            .run(catalog.render(ASK), |statement| {
                statement
                    .bind(text)
                    .bind(vector)
                    .bind(mode)
                    .bind(policy)
                    .bind(namespace)
                    .bind(sub_questions)
            })
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| Failure::internal("cortex_ask returned no row"))?;
        let (json, trace_id): (JsonText, i64) = (column(row, 0)?, column(row, 1)?);
        let rows = work
            .run(catalog.render(TRACE_SPACE), |statement| {
                statement.bind(trace_id)
            })
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| Failure::internal("cortex_trace returned no row"))?;
        let attempt = Attempt {
            json,
            space: column(row, 0)?,
        };
        if attempt.fits(question) {
            work.commit().await?;
        }
        Ok(attempt)
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

    /// What `cortex_source_list` says of one source, or that a row is there; none if there is no such source.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn source(&self, artifact_id: &str, namespace: &str) -> Outcome<Option<JsonText>> {
        let (artifact_id, namespace) = (artifact_id.to_owned(), namespace.to_owned());
        self.value(Access::Read, SOURCE, |statement| {
            statement.bind(artifact_id).bind(namespace)
        })
        .await
    }

    /// The ids of all current sources that start with `prefix`, in byte order.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn sources_below(&self, prefix: &str, namespace: &str) -> Outcome<Vec<String>> {
        let mut all: Vec<String> = Vec::new();
        loop {
            let (prefix, namespace) = (prefix.to_owned(), namespace.to_owned());
            let after = all.last().cloned().unwrap_or_default();
            let rows = self
                .rows(Access::Read, SOURCES_BELOW, |statement| {
                    statement
                        .bind(prefix)
                        .bind(namespace)
                        .bind(after)
                        .bind(PAGE)
                })
                .await?;
            let full = rows.len() >= PAGE as usize;
            for row in &rows {
                all.push(column(row, 0)?);
            }
            if !full {
                return Ok(all);
            }
        }
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
}

impl Attempt {
    /// Whether no vectors were compared but those of the question's own space.
    fn fits(&self, question: &Question) -> bool {
        match (&self.space, &question.vector) {
            (None, _) => true,
            (Some(compared), Some(vector)) => *compared == vector.space,
            (Some(_), None) => false,
        }
    }
}

fn other_space(question: &Question) -> Failure {
    let message = format!(
        "namespace {:?} was embedded with another model than this service has",
        question.namespace
    );
    Failure::new(Kind::Usage, "other_space", message)
        .hint("use mode auto or lexical, or the model that the namespace was embedded with")
}
