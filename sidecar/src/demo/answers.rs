//! Step 2: questions, their evidence, and the same question without any sidecar.

use std::process::Command;

use serde_json::Value;

use super::{Demo, NAMESPACE, check};
use crate::db::reader::{AskOptions, Question, ReadOptions};
use crate::error::{Failure, Kind, Outcome};

/// Tokens of each context.
const BUDGET: i32 = 200;
/// Quotes of each answer.
const QUOTES: usize = 2;

/// What came of a question.
pub(super) struct Asked {
    pub trace_id: i64,
    /// Evidence, as `cortex_ask` gave it.
    pub evidence: Vec<Value>,
}

impl Asked {
    /// The piece of evidence that holds the given words.
    pub fn with(&self, words: &str) -> Option<&Value> {
        self.evidence.iter().find(|item| {
            item["quote"]
                .as_str()
                .is_some_and(|quote| quote.contains(words))
        })
    }
}

/// The quoted bytes of a row, as the row has them now.
const BYTES: &str = "
SELECT convert_from(substr(convert_to(r.body, 'UTF8'), $2::integer + 1, $3::integer - $2::integer), 'UTF8')
  FROM release_note r WHERE format('row:release_note:[%s]', r.id) = $1";

/// Arms of a search by words alone, and whether it finds the row of the answer.
const BY_WORDS: &str = "
SELECT min((s.receipt::jsonb -> 'arms')::text), bool_or(s.artifact_id = $2) FROM cortex_search($1, k => 3) s";

impl Demo<'_> {
    /// Asks the story's questions.
    pub(super) async fn answers(&mut self) -> Outcome<String> {
        let mut most = 0;
        for index in 0..self.story.questions.len() {
            let (text, answer) = (
                self.story.questions[index].text,
                self.story.questions[index].answer,
            );
            if index > 0 {
                self.show.line("");
            }
            self.show.line(text);
            let tokens = self.context(text).await?;
            most = most.max(tokens);
            let asked = self.ask(text).await?;
            check(asked.with(answer).is_some(), || {
                format!("no evidence for {text:?} holds {answer:?}")
            })?;
            for item in &asked.evidence {
                self.check_quote(item).await?;
                self.show_evidence(item);
            }
            self.show.line(&format!(
                "context: {tokens} of {BUDGET} tokens; trace {}",
                asked.trace_id
            ));
            self.traces.push(asked);
        }
        Ok(format!(
            "3 answers, each quote byte for byte in its row, at most {most} tokens"
        ))
    }

    /// The context of a question; returns its tokens.
    async fn context(&mut self, text: &str) -> Outcome<i64> {
        let question = self.question(text).await?;
        let answer = self
            .db
            .read(&question, &ReadOptions::within(BUDGET))
            .await?;
        check(answer.by_vector, || {
            "no vectors were compared: the namespace uses another model".to_owned()
        })?;
        let read: Value = parse(&answer.json)?;
        let tokens = read["tokens"].as_i64().unwrap_or(i64::MAX);
        check(tokens <= i64::from(BUDGET), || {
            format!("a context of {tokens} tokens is over its budget of {BUDGET}")
        })?;
        check(!read["claims"].as_array().is_none_or(Vec::is_empty), || {
            format!("no claim was served for {text:?}")
        })?;
        Ok(tokens)
    }

    pub(super) async fn question(&self, text: &str) -> Outcome<Question> {
        Ok(Question {
            text: text.to_owned(),
            vector: self.encoder.question(text).await?,
            namespace: NAMESPACE.to_owned(),
            mode: "auto".to_owned(),
        })
    }

    /// Evidence and trace of a question.
    pub(super) async fn ask(&self, text: &str) -> Outcome<Asked> {
        let question = self.question(text).await?;
        let mut options = AskOptions::default();
        options.policy.insert("max_evidence".into(), QUOTES.into());
        let answer = parse(&self.db.ask(&question, &options).await?.json)?;
        check(answer["status"] == "ANSWERED", || {
            format!("{text:?} ended as {}", answer["status"])
        })?;
        let trace_id = answer["trace_id"]
            .as_i64()
            .ok_or_else(|| Failure::internal("an answer without a trace"))?;
        let evidence = answer["evidence"].as_array().cloned().unwrap_or_default();
        Ok(Asked { trace_id, evidence })
    }

    /// Compares a quote with the user's own row.
    async fn check_quote(&mut self, item: &Value) -> Outcome<()> {
        let (artifact, start, end) = (
            plain(&item["artifact_id"]),
            plain(&item["start_byte"]),
            plain(&item["end_byte"]),
        );
        let there: String = self.user.value(BYTES, &[&artifact, &start, &end]).await?;
        check(item["quote"] == there.as_str(), || {
            format!("{artifact} does not hold its quote at bytes {start}-{end}")
        })
    }

    pub(super) fn show_evidence(&mut self, item: &Value) {
        self.show.quote(item["quote"].as_str().unwrap_or_default());
        self.show.line(&format!(
            "[{}] {}, version {}, bytes {}-{}",
            plain(&item["n"]),
            plain(&item["artifact_id"]),
            plain(&item["version_id"]),
            plain(&item["start_byte"]),
            plain(&item["end_byte"]),
        ));
    }

    /// The first question in psql, which embeds nothing.
    pub(super) async fn psql(&mut self) -> Outcome<String> {
        let question = &self.story.questions[0];
        // The questions are the demo's own; a quote in one would still have to be doubled.
        let text = question.text.replace('\'', "''");
        let shown = format!(
            "SELECT rank, artifact_id, left(body, 48) AS body\n  FROM cortex_search('{text}', k => 3);"
        );
        for line in shown.lines() {
            self.show.line(line);
        }
        let output = self.run_psql(&shown)?;
        for line in output.lines().filter(|line| !line.is_empty()) {
            self.show.line(line);
        }
        let artifact = self
            .traces
            .first()
            .and_then(|asked| asked.with(question.answer))
            .map(|item| plain(&item["artifact_id"]));
        let artifact =
            artifact.ok_or_else(|| Failure::internal("the first question has no answer"))?;
        let rows = self
            .user
            .rows(BY_WORDS, &[question.text, &artifact])
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| Failure::internal("cortex_search returned no row"))?;
        let (arms, found): (String, bool) =
            (crate::db::column(row, 0)?, crate::db::column(row, 1)?);
        check(arms == r#"["lexical"]"#, || {
            format!("without a vector the arms are {arms}")
        })?;
        check(found, || format!("words alone do not find {artifact}"))?;
        check(output.contains("row:release_note:"), || {
            "psql printed no row".to_owned()
        })?;
        Ok("answered by PostgreSQL alone, arms: lexical".to_owned())
    }

    fn run_psql(&self, sql: &str) -> Outcome<String> {
        let program = self.place.bin_dir.join("psql");
        let output = Command::new(&program)
            .args([
                "-X",
                "-q",
                "-v",
                "ON_ERROR_STOP=1",
                "-P",
                "pager=off",
                "-P",
                "footer=off",
                "-d",
            ])
            .arg(self.place.url())
            .args(["-c", sql])
            .output()
            .map_err(|error| {
                Failure::system(format!("{} cannot be run: {error}", program.display()))
            })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Failure::new(
            Kind::CheckFailed,
            "check_failed",
            format!("psql: {}", String::from_utf8_lossy(&output.stderr).trim()),
        ))
    }
}

pub(super) fn parse(json: &str) -> Outcome<Value> {
    serde_json::from_str(json)
        .map_err(|error| Failure::internal(format!("PostgreSQL's answer is not JSON: {error}")))
}

/// A JSON value without the quotes of a string.
pub(super) fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
