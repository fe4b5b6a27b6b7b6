//! Step 6: the same question from a role that may use the namespace and may not select the table.

use super::{Demo, NAMESPACE, check};
use crate::error::{Failure, Outcome};

/// A role of the demo's own.
const ROLE: &str = "cortex_demo_reader";

const FOUND: &str = "
SELECT (SELECT count(*) FROM cortex_search($1, k => 10)),
       (SELECT jsonb_array_length(r.claims) FROM cortex_read($1, NULL, 1000) r)::bigint,
       (SELECT r.payload FROM cortex_read($1, NULL, 1000) r)";
const ASKED: &str = "SELECT a.status, jsonb_array_length(a.evidence)::bigint FROM cortex_ask($1) a";

impl Demo<'_> {
    /// Asks as the role, and as a control once more with the right to select.
    pub(super) async fn rights(&mut self) -> Outcome<String> {
        let question = self.story.questions[0].text;
        let exists: bool = self
            .user
            .value(
                "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)",
                &[ROLE],
            )
            .await?;
        if !exists {
            self.user
                .run(&format!("CREATE ROLE {ROLE} NOLOGIN"))
                .await?;
        }
        self.user
            .run(&format!("SELECT cortex_grant('{NAMESPACE}', '{ROLE}')"))
            .await?;
        self.show
            .line(&format!("SELECT cortex_grant('{NAMESPACE}', '{ROLE}');"));
        self.show
            .line(&format!("SET ROLE {ROLE};  -- no SELECT on release_note"));
        let without = self.as_role(question).await?;
        check(
            without.search == 0 && without.read == 0 && without.evidence == 0,
            || {
                format!(
                    "the role got {} items, {} claims, {} quotes",
                    without.search, without.read, without.evidence
                )
            },
        )?;
        check(
            !without.payload.contains("row:") && !without.payload.contains(self.story.new),
            || "the role's context holds text of the table".to_owned(),
        )?;
        self.show.say(&format!(
            "search: {} items; read: {} claims; ask: {}, {} quotes",
            without.search, without.read, without.status, without.evidence
        ));

        self.user
            .run(&format!("GRANT SELECT ON release_note TO {ROLE}"))
            .await?;
        let with = self.as_role(question).await?;
        check(
            with.search > 0 && with.read > 0 && with.evidence > 0,
            || {
                "with SELECT on the table the role still gets nothing, so the check before proved nothing".to_owned()
            },
        )?;
        self.show.line("GRANT SELECT ON release_note; asked again:");
        self.show.say(&format!(
            "search: {} items; read: {} claims; ask: {}, {} quotes",
            with.search, with.read, with.status, with.evidence
        ));
        self.user
            .run(&format!("REVOKE SELECT ON release_note FROM {ROLE}"))
            .await?;
        Ok("nothing without SELECT on the table, everything with it".to_owned())
    }

    async fn as_role(&mut self, question: &str) -> Outcome<Got> {
        self.user.run(&format!("SET ROLE {ROLE}")).await?;
        let got = self.get(question).await;
        self.user.run("RESET ROLE").await?;
        got
    }

    async fn get(&mut self, question: &str) -> Outcome<Got> {
        let none = || Failure::internal("no row came back");
        let found = self.user.rows(FOUND, &[question]).await?;
        let found = found.first().ok_or_else(none)?;
        let asked = self.user.rows(ASKED, &[question]).await?;
        let asked = asked.first().ok_or_else(none)?;
        Ok(Got {
            search: crate::db::column(found, 0)?,
            read: crate::db::column(found, 1)?,
            payload: crate::db::column::<Option<String>>(found, 2)?.unwrap_or_default(),
            status: crate::db::column(asked, 0)?,
            evidence: crate::db::column(asked, 1)?,
        })
    }
}

/// What a role got.
struct Got {
    search: i64,
    read: i64,
    payload: String,
    status: String,
    evidence: i64,
}
