//! Step 5: what a superuser changes behind the extension's back is found.

use cortex_core::verify::{Code, Report};

use super::{Demo, check};
use crate::error::{Failure, Outcome};

/// One byte of the trace: the last hexadecimal digit of the first evidence item's leaf.
const CHANGE_TRACE: &str = "
UPDATE cortex.trace t
   SET body = overlay(t.body PLACING CASE substr(t.body, place.at, 1) WHEN '0' THEN '1' ELSE '0' END FROM place.at FOR 1)
  FROM (SELECT s.id, position('\"leaf\":\"b3:' IN s.body) + 74 AS at FROM cortex.trace s) place
 WHERE place.id = t.id AND t.id = $1::bigint
RETURNING t.id";

/// One byte of the first evidence item's chunk: the first letter.
const CHANGE_CHUNK: &str = "
UPDATE cortex.chunk c
   SET body = overlay(c.body PLACING CASE left(c.body, 1) WHEN 'X' THEN 'Y' ELSE 'X' END FROM 1 FOR 1)
  FROM cortex.trace t
 WHERE t.id = $1::bigint AND c.id = (t.body::jsonb -> 'evidence' -> 0 ->> 'item')::bigint
RETURNING c.id";

impl Demo<'_> {
    /// Changes a byte of the trace, then a byte of its evidence, each undone afterwards.
    pub(super) async fn tamper(&mut self) -> Outcome<String> {
        let trace_id = self
            .traces
            .first()
            .map(|asked| asked.trace_id)
            .unwrap_or_default();
        let before = self.db.trace(trace_id).await?;
        let report = self
            .tampered(trace_id, CHANGE_TRACE, "one byte of the stored trace")
            .await?;
        let found = report.code;
        check(found.is_some(), || {
            "the failure of the changed trace has no code".to_owned()
        })?;
        let report = self
            .tampered(trace_id, CHANGE_CHUNK, "one byte of an evidence chunk")
            .await?;
        check(report.code == Some(Code::TEvidence), || {
            format!("the changed chunk fails with {:?}", report.code)
        })?;
        check(self.db.trace(trace_id).await? == before, || {
            "the trace was not put back".to_owned()
        })?;
        let report = self.verified(trace_id).await?;
        check(report.ok, || {
            "undone, the trace does not verify any more".to_owned()
        })?;
        Ok("both found; undone, the trace verifies again".to_owned())
    }

    /// Runs a change as superuser, verifies within the transaction, and undoes it.
    async fn tampered(&mut self, trace_id: i64, change: &str, what: &str) -> Outcome<Report> {
        self.user.run("BEGIN").await?;
        let changed = self.user.rows(change, &[&trace_id.to_string()]).await;
        let report = match changed {
            Ok(rows) if rows.len() == 1 => self.verified(trace_id).await,
            Ok(rows) => Err(Failure::internal(format!(
                "the change hit {} rows",
                rows.len()
            ))),
            Err(failure) => Err(failure),
        };
        self.user.run("ROLLBACK").await?;
        let report = report?;
        check(!report.ok, || {
            format!("{what} was changed and verification did not notice")
        })?;
        let shown = |part: &Option<String>| part.clone().unwrap_or_default();
        check(report.expected != report.found, || {
            "the report does not tell expected from found".to_owned()
        })?;
        let place = shown(&report.at);
        self.show.line(&format!(
            "{what}: {} in step {}{}",
            report
                .code
                .map_or_else(String::new, |code| super::answers::plain(
                    &serde_json::json!(code)
                )),
            shown(&report.failed_step),
            if place.is_empty() {
                String::new()
            } else {
                format!(", {place}")
            },
        ));
        self.show
            .line(&format!("  expected {}", shown(&report.expected)));
        self.show
            .line(&format!("  found    {}", shown(&report.found)));
        Ok(report)
    }
}
