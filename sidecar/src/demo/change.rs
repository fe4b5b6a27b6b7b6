//! Steps 3 and 4: a row changes, and the trace from before still replays.

use cortex_core::receipt::Nominator;
use cortex_core::trace::Trace;
use cortex_core::verify::{Level, Report};
use serde_json::Value;

use super::answers::{parse, plain};
use super::{Demo, check};
use crate::cli::report_summary;
use crate::error::{Failure, Outcome};

/// The row that was changed.
pub(super) struct Changed {
    /// Its source.
    pub artifact_id: String,
    /// The version that the old trace quotes.
    pub old_version: String,
}

const STALE: &str = "
SELECT s.claim_id, s.reason, left(s.body, 50), s.closed_by FROM cortex.stale s WHERE s.artifact_id = $1 ORDER BY s.claim_id";

/// Items of the old version that a search by its own words still serves; and the old words, anywhere.
const STILL_SERVED: &str = "
SELECT count(*) FROM cortex_search($1, k => 200) s WHERE s.version_id = $2::bigint OR position($3 IN s.body) > 0";
const STILL_READ: &str = "SELECT position($2 IN r.payload) > 0 FROM cortex_read($1, NULL, 4000) r";

impl Demo<'_> {
    /// Updates the row that answered the first question, and asks again.
    pub(super) async fn change(&mut self) -> Outcome<String> {
        let question = self.story.questions[0].text;
        let (old, new) = (self.story.old, self.story.new);
        let asked = self
            .traces
            .first()
            .ok_or_else(|| Failure::internal("no question was asked"))?;
        let item = asked
            .with(old)
            .ok_or_else(|| Failure::internal("no evidence to change"))?;
        let changed = Changed {
            artifact_id: plain(&item["artifact_id"]),
            old_version: plain(&item["version_id"]),
        };
        let id = changed
            .artifact_id
            .trim_start_matches("row:release_note:[")
            .trim_end_matches(']')
            .parse::<i32>()
            .map_err(|_| Failure::internal(format!("{} names no row", changed.artifact_id)))?;
        let others: i64 = self.others(&changed.artifact_id).await?;

        let update = [
            "UPDATE release_note SET body = replace(body,".to_owned(),
            format!("    '{}',", old.replace('\'', "''")),
            format!("    '{}')", new.replace('\'', "''")),
            format!("WHERE id = {id};"),
        ];
        for line in &update {
            self.show.line(line);
        }
        self.user.run(&update.join("\n")).await?;

        // No worker runs now: what is no longer served went with the commit itself.
        self.never_old(question, &changed).await?;
        let rows = self.user.rows(STALE, &[&changed.artifact_id]).await?;
        check(!rows.is_empty(), || {
            format!("cortex.stale shows no claim of {}", changed.artifact_id)
        })?;
        self.show.line("");
        self.show
            .line("SELECT claim_id, reason, body FROM cortex.stale;");
        for row in &rows {
            let (claim, reason): (i64, String) =
                (crate::db::column(row, 0)?, crate::db::column(row, 1)?);
            let (body, by): (String, Option<i64>) =
                (crate::db::column(row, 2)?, crate::db::column(row, 3)?);
            check(reason == "updated" && by.is_some(), || {
                format!("claim {claim} is stale for the reason {reason:?}")
            })?;
            self.show.line(&format!(
                "claim {claim}, {reason}: {}",
                body.replace('\n', " ")
            ));
        }
        let after: i64 = self.others(&changed.artifact_id).await?;
        check(after == others, || {
            format!("{} claims of other rows went with it", others - after)
        })?;

        self.drain("the new text").await?;
        let again = self.ask(question).await?;
        let item = again.with(new).ok_or_else(|| {
            Failure::new(
                crate::error::Kind::CheckFailed,
                "check_failed",
                format!("asked again, no evidence holds {new:?}"),
            )
        })?;
        check(plain(&item["version_id"]) != changed.old_version, || {
            "the new text has the old version".to_owned()
        })?;
        let item = item.clone();
        self.never_old(question, &changed).await?;
        self.show.line("");
        self.show.line(&format!("asked again: {question}"));
        self.show_evidence(&item);
        let died = rows.len();
        self.changed = Some(changed);
        Ok(format!(
            "{died} claims died, {others} others untouched, the old text is not served"
        ))
    }

    /// Fresh claims of all other rows.
    async fn others(&mut self, artifact: &str) -> Outcome<i64> {
        self.user
            .value(
                "SELECT count(*) FROM cortex.claims c WHERE c.fresh AND c.artifact_id <> $1",
                &[artifact],
            )
            .await
    }

    /// Looks for the old version and the old words, by words, by meaning and in a large context.
    async fn never_old(&mut self, question: &str, changed: &Changed) -> Outcome<()> {
        let old = format!("{}.", self.story.old);
        for query in [question, self.story.old] {
            let found: i64 = self
                .user
                .value(STILL_SERVED, &[query, &changed.old_version, &old])
                .await?;
            check(found == 0, || {
                format!("{found} items of the old text are still found by {query:?}")
            })?;
            let read: bool = self.user.value(STILL_READ, &[query, &old]).await?;
            check(!read, || {
                format!("the old text is still read for {query:?}")
            })?;
            let by_meaning = self.question(query).await?;
            let found = parse(&self.db.search(&by_meaning, 200).await?.json)?;
            let served = found["results"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|item| {
                    plain(&item["version_id"]) == changed.old_version
                        || item["body"]
                            .as_str()
                            .is_some_and(|body| body.contains(&old))
                });
            check(!served, || {
                format!("the old text is still found by the meaning of {query:?}")
            })?;
        }
        Ok(())
    }

    /// Verifies the first trace, which quotes the old text, and says what changed since.
    pub(super) async fn replay(&mut self) -> Outcome<String> {
        let trace_id = self
            .traces
            .first()
            .map(|asked| asked.trace_id)
            .unwrap_or_default();
        let changed = self
            .changed
            .as_ref()
            .ok_or_else(|| Failure::internal("nothing was changed"))?;
        let (artifact, old_version) = (changed.artifact_id.clone(), changed.old_version.clone());
        let trace = Trace::from_text(&self.db.trace(trace_id).await?)
            .map_err(|error| Failure::internal(format!("the trace cannot be read: {error}")))?;
        let exact = trace
            .rounds
            .iter()
            .all(|round| round.receipt.nominator != Nominator::Approximate);
        let how = if exact { "exact" } else { "approximate" };
        self.show
            .line(&format!("SELECT cortex_verify({trace_id});"));
        let report: Report = self.verified(trace_id).await?;
        check(report.ok, || {
            format!("the trace does not verify: {}", report_summary(&report))
        })?;
        let reached = if exact { Level::L4 } else { Level::L4Nominated };
        check(report.level == Some(reached), || {
            format!(
                "the trace reached level {:?}, not {reached:?}",
                report.level
            )
        })?;
        self.show.say(&format!(
            "{}; nominator: {how}; replayed at change {} of its time. It means recorded, bound and replayable, not true.",
            report_summary(&report),
            trace.state.seq
        ));

        self.show.line(&format!("SELECT cortex_drift({trace_id});"));
        let drift = parse(&self.db.drift(trace_id).await?)?;
        let fate = drift["evidence"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|item| item["artifact_id"] == artifact.as_str())
            .cloned()
            .unwrap_or(Value::Null);
        check(
            fate["now"] == "superseded" && plain(&fate["version_id"]) == old_version,
            || format!("drift does not tell of the change: {drift}"),
        )?;
        self.show.say(&format!(
            "evidence [{}] of {artifact}: version {old_version} is superseded by {}; changes {} to {} came since",
            plain(&fate["n"]),
            plain(&fate["superseded_by"]),
            plain(&drift["recorded_seq"]),
            plain(&drift["present_seq"]),
        ));
        Ok(format!(
            "verified, level {}, {how}; drift names the row",
            if exact { "L4" } else { "L4-nominated" }
        ))
    }

    /// The report of a stored trace, seen by the user's session and so within its transaction.
    pub(super) async fn verified(&mut self, trace_id: i64) -> Outcome<Report> {
        let text: String = self
            .user
            .value(
                "SELECT cortex_verify($1::bigint)::text",
                &[&trace_id.to_string()],
            )
            .await?;
        serde_json::from_str(&text)
            .map_err(|error| Failure::internal(format!("the report cannot be read: {error}")))
    }
}
