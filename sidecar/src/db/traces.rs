//! Traces and open asks: one function here for each SQL function.

use serde_json::Value;

use super::reader::{AskOptions, JsonText, Question};
use super::{Access, Db};
use crate::error::Outcome;

const VERIFY_ID: &str = "SELECT {cortex}.cortex_verify($1::bigint, $2, $3)::text";
const VERIFY_TEXT: &str = "SELECT {cortex}.cortex_verify($1::text, $2, $3)::text";
const VERIFY_ALL: &str = "
SELECT coalesce(pg_catalog.json_agg(v ORDER BY v.trace_id), '[]')::text
  FROM {cortex}.cortex_verify_all($1, $2::text::timestamptz) v";
const DRIFT: &str = "SELECT {cortex}.cortex_drift($1)::text";
const TRACE: &str = "SELECT {cortex}.cortex_trace($1)";
const EXPLAIN: &str = "SELECT {cortex}.cortex_explain($1::bigint)";
const DOSSIER: &str = "SELECT {cortex}.cortex_dossier($1, $2)";
const EVIDENCE: &str = "SELECT {cortex}.cortex_trace_evidence($1)";

const OPEN: &str = "
SELECT pg_catalog.row_to_json(a)::text
  FROM {cortex}.cortex_ask_open($1, $2, $3::text::jsonb, $4::text::{vector}.vector, $5, $6) a";
const ROUND: &str = "
SELECT coalesce(pg_catalog.json_agg(r ORDER BY r.score DESC, r.item_id), '[]')::text
  FROM {cortex}.cortex_ask_round($1, $2::text::{vector}.vector) r";
const SELECT: &str =
    "SELECT {cortex}.cortex_ask_select($1, $2, $3::bigint[], $4::text::jsonb)::text";
const REFINE: &str = "
SELECT {cortex}.cortex_ask_refine($1, $2, $3, $4::text::{vector}.vector, $5::text::jsonb)::text";
const ANSWER: &str = "
SELECT {cortex}.cortex_ask_answer($1, $2, $3::text::jsonb, $4::text::jsonb, $5::text::jsonb)::text";
const CLOSE: &str = "SELECT pg_catalog.row_to_json(c)::text FROM {cortex}.cortex_ask_close($1) c";
const ABANDON: &str = "SELECT {cortex}.cortex_ask_abandon($1)::text";

/// A query that is made from a gap.
#[derive(Clone, Debug)]
pub struct Refinement {
    /// The query.
    pub query: String,
    /// What is missing.
    pub gap: String,
    /// The query's vector, as pgvector reads it.
    pub vector: Option<String>,
    /// The model call that wrote it.
    pub model: Option<Value>,
}

/// An answer with its statements.
#[derive(Clone, Debug)]
pub struct Told {
    /// The prose; none to abstain.
    pub prose: Option<String>,
    /// Its statements: an array of texts.
    pub statements: Option<Value>,
    /// What they cite: an array of objects.
    pub citations: Option<Value>,
    /// The model call that wrote it.
    pub model: Option<Value>,
}

fn json(value: Option<Value>) -> Option<String> {
    value.map(|value| value.to_string())
}

impl Db {
    /// `cortex_verify` of a stored trace, with a question of the verifier's own if there is one.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn verify_stored(
        &self,
        trace_id: i64,
        question: Option<&str>,
        exhaustive: bool,
    ) -> Outcome<JsonText> {
        let question = question.map(str::to_owned);
        self.value(Access::Read, VERIFY_ID, |statement| {
            statement.bind(trace_id).bind(question).bind(exhaustive)
        })
        .await
    }

    /// `cortex_verify` of the text of a trace.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn verify_text(
        &self,
        trace: &str,
        question: Option<&str>,
        exhaustive: bool,
    ) -> Outcome<JsonText> {
        let (trace, question) = (trace.to_owned(), question.map(str::to_owned));
        self.value(Access::Read, VERIFY_TEXT, |statement| {
            statement.bind(trace).bind(question).bind(exhaustive)
        })
        .await
    }

    /// `cortex_verify_all`: an array with one object a trace.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn verify_all(
        &self,
        namespace: Option<String>,
        since: Option<String>,
    ) -> Outcome<JsonText> {
        self.value(Access::Read, VERIFY_ALL, |statement| {
            statement.bind(namespace).bind(since)
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

    /// `cortex_explain`: a stored trace in sentences.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn explain(&self, trace_id: i64) -> Outcome<String> {
        self.value(Access::Read, EXPLAIN, |statement| statement.bind(trace_id))
            .await
    }

    /// `cortex_dossier`: a stored trace with its texts as a document.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn dossier(&self, trace_id: i64, format: &str) -> Outcome<String> {
        let format = format.to_owned();
        self.value(Access::Read, DOSSIER, |statement| {
            statement.bind(trace_id).bind(format)
        })
        .await
    }

    /// `cortex_trace_evidence`: what a verifier without the database needs.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn trace_evidence(&self, trace_id: i64) -> Outcome<JsonText> {
        self.value(Access::Read, EVIDENCE, |statement| statement.bind(trace_id))
            .await
    }

    /// `cortex_ask_open`. The question's vector must be of the namespace's space.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn open_ask(&self, question: &Question, options: &AskOptions) -> Outcome<JsonText> {
        let (text, namespace) = (question.text.clone(), question.namespace.clone());
        let vector = question.vector.as_ref().map(|vector| vector.text.clone());
        let policy = options.policy_for(&question.mode);
        let (mode, sub_questions) = (options.mode.clone(), options.sub_questions.clone());
        self.value(Access::Write, OPEN, |statement| {
            statement
                .bind(text)
                .bind(mode)
                .bind(policy)
                .bind(vector)
                .bind(namespace)
                .bind(sub_questions)
        })
        .await
    }

    /// `cortex_ask_round`: an array with what was found.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn ask_round(&self, ask: i64, vector: Option<String>) -> Outcome<JsonText> {
        self.value(Access::Write, ROUND, |statement| {
            statement.bind(ask).bind(vector)
        })
        .await
    }

    /// `cortex_ask_select`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn ask_select(
        &self,
        ask: i64,
        round: i32,
        item_ids: Option<Vec<i64>>,
        model: Option<Value>,
    ) -> Outcome<JsonText> {
        self.value(Access::Write, SELECT, |statement| {
            statement
                .bind(ask)
                .bind(round)
                .bind(item_ids)
                .bind(json(model))
        })
        .await
    }

    /// `cortex_ask_refine`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn ask_refine(&self, ask: i64, refinement: Refinement) -> Outcome<JsonText> {
        self.value(Access::Write, REFINE, |statement| {
            statement
                .bind(ask)
                .bind(refinement.query)
                .bind(refinement.gap)
                .bind(refinement.vector)
                .bind(json(refinement.model))
        })
        .await
    }

    /// `cortex_ask_answer`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn ask_answer(&self, ask: i64, told: Told) -> Outcome<JsonText> {
        self.value(Access::Write, ANSWER, |statement| {
            statement
                .bind(ask)
                .bind(told.prose)
                .bind(json(told.statements))
                .bind(json(told.citations))
                .bind(json(told.model))
        })
        .await
    }

    /// `cortex_ask_close`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn ask_close(&self, ask: i64) -> Outcome<JsonText> {
        self.value(Access::Write, CLOSE, |statement| statement.bind(ask))
            .await
    }

    /// `cortex_ask_abandon`.
    ///
    /// # Errors
    /// As [`Db::rows`].
    pub async fn ask_abandon(&self, ask: i64) -> Outcome<()> {
        let _: String = self
            .value(Access::Write, ABANDON, |statement| statement.bind(ask))
            .await?;
        Ok(())
    }
}
