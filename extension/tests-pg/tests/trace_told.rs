//! Audits of many traces, and traces told to people. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use cortex_extension_tests::asks::{answer, close, corpus, open, round, select};
use cortex_extension_tests::serving::{Role, ask, cortex_work, json, put};
use cortex_extension_tests::{Database, bind, failure, one};
use postgres::Client;
use serde_json::{Value, json};

/// Rows of an audit: trace, ok, failed step and code.
fn audit(client: &mut Client, arguments: &str) -> Vec<(i64, bool, Option<String>, Option<String>)> {
    client
        .query(&format!("SELECT trace_id, ok, failed_step, code, level, \"where\", expected, found FROM cortex_verify_all({arguments}) ORDER BY 1"), &[])
        .unwrap()
        .iter()
        .map(|row| {
            let ok: bool = row.get(1);
            assert_eq!(ok, row.get::<_, Option<&str>>(5).is_none() && row.get::<_, Option<&str>>(7).is_none());
            (row.get(0), ok, row.get(2), row.get(3))
        })
        .collect()
}

#[test]
fn an_audit_goes_through_the_callers_traces_and_a_workers_through_all() {
    let (database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let (a, worker, stranger) = (
        Role::new(&database, "a", ""),
        Role::new(&database, "w", ""),
        Role::new(&database, "s", ""),
    );
    client
        .batch_execute(&format!(
            "SELECT cortex_grant('default', '{}'), cortex_grant('default', '{}'), cortex_grant_worker('{}');
             SELECT cortex_create_namespace('other'); SELECT cortex_source_put('web:x', 'The valve of another tenant.', namespace => 'other')",
            a.name, stranger.name, worker.name
        ))
        .unwrap();
    cortex_work(&mut client);
    let (mut as_a, mut as_worker, mut as_stranger) = (
        a.login(&database),
        worker.login(&database),
        stranger.login(&database),
    );
    let of_a = ask(&mut as_a, "valve", "").id;
    let mine = ask(&mut client, "pump", "").id;
    let other: i64 = one(
        &mut client,
        "SELECT trace_id FROM cortex_ask('valve', namespace => 'other')",
    );
    let good = |id| (id, true, None, None);
    assert_eq!(audit(&mut as_a, ""), [good(of_a)]);
    assert_eq!(audit(&mut as_a, "'default'"), [good(of_a)]);
    assert_eq!(audit(&mut as_stranger, ""), []);
    assert_eq!(
        audit(&mut as_worker, ""),
        [good(of_a), good(mine), good(other)]
    );
    assert_eq!(audit(&mut as_worker, "'other'"), [good(other)]);
    assert_eq!(audit(&mut client, "NULL, now() + interval '1 hour'"), []);
    assert_eq!(
        failure(&mut as_a, "SELECT * FROM cortex_verify_all('other')").0,
        "42704"
    );
    assert_eq!(audit(&mut client, "'nowhere'"), []);
    client
        .batch_execute(&format!(
            "UPDATE cortex.trace SET created_at = now() - interval '2 days' WHERE id = {mine}"
        ))
        .unwrap();
    assert_eq!(
        audit(&mut client, "since => now() - interval '1 day'"),
        [good(of_a), good(other)]
    );

    // What breaks is named, whatever is broken, and the rest goes on.
    client
        .batch_execute(&format!(
            "UPDATE cortex.chunk SET body = replace(body, 'pump', 'pomp') WHERE body LIKE '%pump%';
             UPDATE cortex.trace SET body = 'not a trace' WHERE id = {other}"
        ))
        .unwrap();
    let found = audit(&mut client, "");
    assert_eq!(
        found[1],
        (
            mine,
            false,
            Some("evidence".into()),
            Some("T_EVIDENCE".into())
        )
    );
    assert_eq!(
        found[2],
        (other, false, Some("parse".into()), Some("T_PARSE".into()))
    );
    // More traces than one page holds.
    client
        .batch_execute(
            "INSERT INTO cortex.trace (namespace_id, root, body) SELECT namespace_id, decode(lpad(to_hex(g), 64, '0'), 'hex'), '[]' FROM cortex.trace, generate_series(1, 120) g
              WHERE id = (SELECT min(id) FROM cortex.trace)",
        )
        .unwrap();
    assert_eq!(audit(&mut client, "").len(), 123);
}

#[test]
fn a_workers_audit_tells_of_each_failure_once() {
    let (database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let worker = Role::new(&database, "w", "");
    client
        .batch_execute(&format!("SELECT cortex_grant_worker('{}')", worker.name))
        .unwrap();
    let mut as_worker = worker.login(&database);
    let audit = |client: &mut Client| json(client, "cortex_audit()");
    let (first, second) = (
        ask(&mut client, "valve", "").id,
        ask(&mut client, "pump", "").id,
    );
    assert_eq!(audit(&mut as_worker), json!({"checked": 2, "failed": []}));
    // Looked at today already.
    assert_eq!(audit(&mut as_worker), json!({"checked": 0, "failed": []}));
    client
        .batch_execute(&format!(
            "UPDATE cortex.trace SET body = replace(body, '\"role\":\"postgres\"', '\"role\":\"other\"') WHERE id = {first}"
        ))
        .unwrap();
    let third = ask(&mut client, "gasket", "").id;
    assert_eq!(audit(&mut as_worker)["checked"], 1);
    client
        .batch_execute("UPDATE cortex.trace_check SET checked_at = now() - interval '25 hours'")
        .unwrap();
    let told = audit(&mut as_worker);
    assert_eq!(told["checked"], 3);
    assert_eq!(
        told["failed"],
        json!([{"trace_id": first, "namespace": "default", "step": "roots", "code": "T_ROOT", "where": "roots.principal"}])
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT failed_traces FROM cortex.health"),
        1
    );
    let mut listener = database.connect();
    listener.batch_execute("LISTEN cortex_event").unwrap();
    cortex_work(&mut client);
    let events = client
        .query(
            "SELECT detail::text FROM cortex_events() WHERE kind = 'trace_failed'",
            &[],
        )
        .unwrap();
    assert_eq!(events.len(), 1);
    let detail: Value = serde_json::from_str(events[0].get(0)).unwrap();
    assert_eq!(
        detail,
        json!({"trace_id": first, "step": "roots", "code": "T_ROOT", "where": "roots.principal"})
    );
    listener.batch_execute("SELECT 1").unwrap();
    assert!(!listener.notifications().is_empty());
    // It fails again tomorrow, which is no news.
    client
        .batch_execute("UPDATE cortex.trace_check SET checked_at = now() - interval '25 hours'")
        .unwrap();
    assert_eq!(audit(&mut as_worker), json!({"checked": 3, "failed": []}));
    assert_eq!(failure(&mut as_worker, "SELECT cortex_audit(0)").0, "22023");
    assert_eq!(
        failure(&mut as_worker, "SELECT cortex._verify_trace(1)").0,
        "42501"
    );
    assert!(second < third);
}

/// A trace with hostile texts in every place that a document shows.
fn hostile(client: &mut Client) -> i64 {
    put(
        client,
        "web:<b>\"x\"</b>",
        "The valve <script>alert('1')</script> & [link](http://x) closes at 12 bar. *Really* `so`.",
    );
    put(client, "web:plain", "A pump feeds the valve.");
    cortex_work(client);
    let asked = open(
        client,
        "valve <img src=x onerror=1>",
        "'evidence_answer', sub_questions => '{<zebra>}'",
    );
    round(client, asked);
    select(client, asked, 0, None);
    round(client, asked);
    select(client, asked, 1, None);
    answer(
        client,
        asked,
        Some("<i>prose</i>\n# not a heading"),
        json!(["<u>It</u> closes at 12 bar."]),
        json!([{"statement": 1, "n": 1, "quote": "<script>alert('1')</script>"}, {"statement": 1, "n": 1, "quote": "no <such> quote"}]),
        None,
    );
    close(client, asked).trace
}

#[test]
fn a_dossier_is_the_same_bytes_each_time_and_runs_nothing() {
    let (_database, mut client) = Database::with_cortex();
    let trace = hostile(&mut client);
    for format in ["json", "markdown", "html"] {
        let call = format!("SELECT cortex_dossier({trace}, '{format}')");
        let text: String = one(&mut client, &call);
        assert_eq!(one::<String>(&mut client, &call), text);
        client
            .batch_execute("SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'")
            .unwrap();
        assert_eq!(one::<String>(&mut client, &call), text);
    }
    let html: String = one(
        &mut client,
        &format!("SELECT cortex_dossier({trace}, 'html')"),
    );
    for tag in ["<script", "<img", "<b>", "<i>", "<u>", "<such>", "<zebra>"] {
        assert!(!html.contains(tag), "{tag}: {html}");
    }
    for text in [
        "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp;",
        "&lt;u&gt;It&lt;/u&gt;",
        "&lt;zebra&gt;",
        "&lt;img src=x onerror=1&gt;",
    ] {
        assert!(html.contains(text), "{text}: {html}");
    }
    let markdown: String = one(
        &mut client,
        &format!("SELECT cortex_dossier({trace}, 'markdown')"),
    );
    for text in ["](http", "*Really*", "\n# not", "`so`"] {
        assert!(!markdown.contains(text), "{text}: {markdown}");
    }
    for (at, _) in markdown.match_indices('<') {
        assert!(markdown[..at].ends_with('\\'), "{markdown}");
    }
    let json: Value = serde_json::from_str(&one::<String>(
        &mut client,
        &format!("SELECT cortex_dossier({trace})"),
    ))
    .unwrap();
    assert_eq!(json["status"], "INSUFFICIENT_EVIDENCE");
    assert_eq!(json["statements"][0]["citations"][1]["check"], "absent");
    assert_eq!(json["question"], "valve <img src=x onerror=1>");
    assert_eq!(
        json["gaps"][0],
        json!({"query": "<zebra>", "why": "nothing_retrieved"})
    );
    // A text that is gone is shown as erased, and everything else stays.
    client
        .batch_execute("DELETE FROM cortex.trace_text WHERE body LIKE '%img src%'")
        .unwrap();
    let html: String = one(
        &mut client,
        &format!("SELECT cortex_dossier({trace}, 'html')"),
    );
    assert!(html.contains("<h1>[erased]</h1>"), "{html}");
    assert_eq!(
        failure(
            &mut client,
            &format!("SELECT cortex_dossier({trace}, 'pdf')")
        )
        .0,
        "22023"
    );
    assert_eq!(failure(&mut client, "SELECT cortex_dossier(99)").0, "42704");
    assert_eq!(
        failure(&mut client, "SELECT cortex_dossier(NULL)").0,
        "22004"
    );
}

#[test]
fn an_explanation_comes_from_the_trace_alone() {
    let (_database, mut client) = Database::with_cortex();
    let trace = hostile(&mut client);
    let body: String = one(&mut client, &format!("SELECT cortex_trace({trace})"));
    let told: String = one(&mut client, &format!("SELECT cortex_explain({trace})"));
    assert_eq!(
        client
            .query_one("SELECT cortex_explain($1::text)", &[&body])
            .unwrap()
            .get::<_, String>(0),
        told
    );
    for text in [
        "mode evidence_answer",
        "Statement 1 cites evidence 1 with a quote that occurs there",
        "not supported by what it cites",
        "Sub-question 1 has no evidence: nothing_retrieved.",
        "It does not mean that the answer is true.",
    ] {
        assert!(told.contains(text), "{text}: {told}");
    }
    for text in ["12 bar", "<i>", "zebra"] {
        assert!(!told.contains(text), "{text}: {told}");
    }
    // Without any text and any chunk it is the same.
    client
        .batch_execute("DELETE FROM cortex.trace_text; UPDATE cortex.chunk SET body = 'x'")
        .unwrap();
    assert_eq!(
        one::<String>(&mut client, &format!("SELECT cortex_explain({trace})")),
        told
    );
    assert_eq!(
        failure(&mut client, "SELECT cortex_explain('{}'::text)").0,
        "22023"
    );
    assert_eq!(
        failure(&mut client, "SELECT cortex_explain(repeat('x', 8388609))").0,
        "54000"
    );
}

#[test]
fn whole_chunks_are_handed_out_only_while_their_table_may_be_read() {
    let (database, mut client) = Database::with_cortex();
    client
        .batch_execute("CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note VALUES (1, 'The valve is red.')")
        .unwrap();
    bind(&mut client, "note", "");
    cortex_work(&mut client);
    let role = Role::new(&database, "r", "");
    client
        .batch_execute(&format!(
            "SELECT cortex_grant('default', '{0}'); GRANT SELECT ON note TO {0}",
            role.name
        ))
        .unwrap();
    let mut reader = role.login(&database);
    let trace = ask(&mut reader, "valve", "").id;
    let call = format!("SELECT cortex_trace_evidence({trace})");
    let whole: String = one(&mut reader, &call);
    assert!(whole.contains("The valve is red."));
    // Changed since: still the version that was cited.
    client
        .batch_execute("UPDATE note SET body = 'Else.'; SELECT cortex_work()")
        .unwrap();
    assert_eq!(one::<String>(&mut reader, &call), whole);
    client
        .batch_execute(&format!("REVOKE SELECT ON note FROM {}", role.name))
        .unwrap();
    assert_eq!(failure(&mut reader, &call).0, "42501");
    let report = json(&mut reader, &format!("cortex_verify({trace})"));
    assert_eq!(report["level"], "L4");
}

#[test]
fn verification_runs_in_a_parallel_query() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let trace = ask(&mut client, "valve", "").id;
    client
        .batch_execute(&format!(
            "CREATE TABLE big AS SELECT g AS id, {trace}::bigint AS trace FROM generate_series(1, 20000) g; ANALYZE big;
             SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2"
        ))
        .unwrap();
    for call in [
        "cortex_verify(trace)",
        "cortex_verify(trace, 'valve', true)",
        "cortex_verify(cortex_trace(trace))",
        "cortex_drift(trace)",
        "cortex_explain(trace)",
        "cortex_dossier(trace, 'html')",
        "cortex_trace_evidence(trace)",
    ] {
        let sql = format!("SELECT {call}::text FROM big WHERE id % 10000 = 7");
        let plan: Vec<String> = client
            .query(&format!("EXPLAIN {sql}"), &[])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert!(
            plan.iter().any(|line| line.contains("Gather")),
            "{call}: {plan:?}"
        );
        let rows = client
            .query(&sql, &[])
            .unwrap_or_else(|error| panic!("{call}: {error:?}"));
        assert_eq!(rows.len(), 2, "{call}");
        let alone: String = one(
            &mut client,
            &format!(
                "SELECT {}::text",
                call.replace("trace)", &format!("{trace})"))
                    .replace("(trace,", &format!("({trace},"))
            ),
        );
        assert_eq!(rows[0].get::<_, String>(0), alone, "{call}");
    }
    let ok: bool = one(
        &mut client,
        &format!(
            "SELECT bool_and((r ->> 'ok')::boolean) FROM (SELECT cortex_verify(trace) r FROM big WHERE id % 5000 = 3) v WHERE {trace} > 0"
        ),
    );
    assert!(ok);
    // A trace that is bad still gives a report there.
    client
        .batch_execute("UPDATE cortex.trace SET body = '{}'")
        .unwrap();
    let report = json(
        &mut client,
        "(SELECT cortex_verify(trace) FROM big WHERE id = 5)",
    );
    assert_eq!(
        (&report["ok"], &report["code"]),
        (&json!(false), &json!("T_STRUCT"))
    );
}
