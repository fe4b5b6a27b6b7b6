//! The protocol of an ask, as a host calls it.

use postgres::Client;
use serde_json::{Value, json};

use crate::serving::{cortex_work, json, put};

/// Sources about valves and pumps, two of them copies.
pub fn corpus(client: &mut Client) {
    for (name, body) in [
        (
            "web:a",
            "The valve closes at 12 bar. It was built in March 2024 by hand.",
        ),
        ("web:b", "A pump feeds the valve with 300 litres of water."),
        ("web:c", "The gasket of the pump is made of rubber."),
        (
            "web:copy",
            "The valve closes at 12 bar. It was built in March 2024 by hand.",
        ),
    ] {
        put(client, name, body);
    }
    cortex_work(client);
}

/// Opens an ask; `arguments` follow the question.
pub fn open(client: &mut Client, question: &str, arguments: &str) -> i64 {
    client
        .query_one(
            &format!("SELECT ask_id FROM cortex_ask_open($1, {arguments})"),
            &[&question],
        )
        .unwrap_or_else(|error| panic!("{arguments}: {error:?}"))
        .get(0)
}

/// Rows of a round: item and excerpt.
pub fn round(client: &mut Client, ask: i64) -> Vec<(i64, String)> {
    let rows = client
        .query("SELECT item_id, excerpt FROM cortex_ask_round($1)", &[&ask])
        .unwrap_or_else(|error| panic!("{error:?}"));
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Selects items of a round, or what the rule without a model takes.
pub fn select(client: &mut Client, ask: i64, round: i32, ids: Option<&[i64]>) -> Value {
    let ids = ids.map_or("NULL".into(), |ids| format!("'{{{}}}'", list(ids)));
    json(client, &format!("cortex_ask_select({ask}, {round}, {ids})"))
}

/// Ids as an array literal has them.
pub fn list(ids: &[i64]) -> String {
    ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}

/// Hands in an answer and gives its checks.
pub fn answer(
    client: &mut Client,
    ask: i64,
    prose: Option<&str>,
    statements: Value,
    citations: Value,
    model: Option<Value>,
) -> Value {
    let model = model.map(|model| model.to_string());
    let text: String = client
        .query_one(
            "SELECT cortex_ask_answer($1, $2, $3::text::jsonb, $4::text::jsonb, $5::text::jsonb)::text",
            &[&ask, &prose, &statements.to_string(), &citations.to_string(), &model],
        )
        .unwrap_or_else(|error| panic!("{error:?}"))
        .get(0);
    serde_json::from_str(&text).unwrap()
}

/// What closing gave.
pub struct Closed {
    /// Number of the trace.
    pub trace: i64,
    /// Status.
    pub status: String,
    /// Reason.
    pub reason: Option<String>,
    /// Evidence.
    pub evidence: Value,
    /// Checked statements.
    pub statements: Value,
    /// Gaps.
    pub gaps: Value,
    /// Whether the trace was there.
    pub already: bool,
}

/// Closes an ask.
pub fn close(client: &mut Client, ask: i64) -> Closed {
    let row = client
        .query_one(
            "SELECT trace_id, status, reason, evidence::text, statements::text, gaps::text, already FROM cortex_ask_close($1)",
            &[&ask],
        )
        .unwrap_or_else(|error| panic!("{error:?}"));
    let value = |n: usize| serde_json::from_str(row.get::<_, &str>(n)).unwrap();
    Closed {
        trace: row.get(0),
        status: row.get(1),
        reason: row.get(2),
        evidence: value(3),
        statements: value(4),
        gaps: value(5),
        already: row.get(6),
    }
}

/// A model call with its texts.
pub fn model(input: &str, output: &str) -> Value {
    json!({"name": "scripted", "digest": "sha256:0", "options": {"temperature": 0}, "input": input, "output": output})
}
