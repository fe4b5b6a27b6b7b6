//! Help for tests of builds: a model that is a closure.

use cortex_core::chunker::{self, ChunkOptions};
use postgres::Client;
use serde_json::{Value, json};

use crate::one;
use crate::serving::json;

/// Namespace `default`, with further settings of the pool beside builder `model`.
pub fn modelled(client: &mut Client, settings: Value) {
    let mut all = json!({"builder": "model"});
    for (key, value) in settings.as_object().expect("settings are an object") {
        all[key] = value.clone();
    }
    client
        .query_one("SELECT cortex_create_namespace('default')", &[])
        .expect("a namespace can be made");
    client
        .query_one(
            "SELECT cortex_pool_set('default', $1::text::jsonb)",
            &[&all.to_string()],
        )
        .expect("the settings are right");
}

/// A text of these paragraphs, each made long enough to be a chunk of its own.
pub fn long_text(paragraphs: &[&str]) -> String {
    const FILL: &str = "The rest of this paragraph goes on about nothing at all.";
    let text = |length: usize| {
        let filled = |first: &&str| format!("{first}{}", format!(" {FILL}").repeat(length));
        paragraphs
            .iter()
            .map(filled)
            .collect::<Vec<_>>()
            .join("\n\n")
    };
    let apart = |text: &str| {
        let chunks = chunker::chunk(text, &ChunkOptions::default());
        chunks.len() == paragraphs.len()
            && chunks
                .iter()
                .zip(paragraphs)
                .all(|(chunk, first)| text[chunk.start..].starts_with(first))
    };
    (1..30)
        .map(text)
        .find(|text| apart(text))
        .expect("some length makes each paragraph a chunk")
}

/// Ids of the chunks of a source's current version, in order.
pub fn chunks(client: &mut Client, artifact: &str) -> Vec<i64> {
    client
        .query(
            "SELECT c.id FROM cortex.chunk c JOIN cortex.source_version v ON v.id = c.version_id AND v.closed_by IS NULL \
               JOIN cortex.source s ON s.id = v.source_id WHERE s.artifact_id = $1 ORDER BY c.ordinal",
            &[&artifact],
        )
        .expect("chunks can be listed")
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// What a read would want of a source's current version. No chunks: all of it.
pub fn wanted(client: &mut Client, artifact: &str, chunks: &[i64]) -> Value {
    let row = client
        .query_one(
            "SELECT s.id, v.id FROM cortex.source s JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL WHERE s.artifact_id = $1",
            &[&artifact],
        )
        .expect("the source is current");
    let (source, version): (i64, i64) = (row.get(0), row.get(1));
    json!([{"class": "NOVEL", "artifact_id": artifact, "source_id": source, "version_id": version, "chunk_ids": chunks, "score": 0.5}])
}

/// Asks for builds.
pub fn ask_for(client: &mut Client, wanted: &Value) -> Value {
    json(client, &format!("cortex_build_want('{wanted}')"))
}

/// Asks for builds of chunks of a source; no chunks: all of it.
pub fn want(client: &mut Client, artifact: &str, chunks: &[i64]) -> Value {
    let wanted = wanted(client, artifact, chunks);
    ask_for(client, &wanted)
}

/// What a want answers that did one thing.
pub fn told(what: &str) -> Value {
    let mut answer = json!({"queued": 0, "already": 0, "backing_off": 0, "gone": 0});
    answer[what] = json!(1);
    answer
}

/// A build that was handed out.
#[derive(Debug)]
pub struct Taken {
    /// The job.
    pub job: i64,
    /// `NOVEL` and so on.
    pub class: String,
    /// The versions that the chunks are of.
    pub versions: Vec<i64>,
    /// Ids and texts.
    pub chunks: Vec<(i64, String)>,
}

/// Takes a build, if there is one.
pub fn take(client: &mut Client, worker: &str, lease: &str) -> Option<Taken> {
    let row = client
        .query_opt(
            &format!("SELECT job_id, class, version_ids, chunks::text FROM cortex_build_take(worker => '{worker}', lease => '{lease}')"),
            &[],
        )
        .expect("a build can be asked for")?;
    let chunks: Value = serde_json::from_str(row.get(3)).expect("chunks are JSON");
    let chunks = chunks.as_array().expect("chunks are an array");
    assert!(!chunks.is_empty(), "a build of nothing");
    Some(Taken {
        job: row.get(0),
        class: row.get(1),
        versions: row.get(2),
        chunks: chunks
            .iter()
            .map(|chunk| {
                let body = chunk["body"].as_str().expect("a body");
                (chunk["chunk_id"].as_i64().expect("an id"), body.to_owned())
            })
            .collect(),
    })
}

/// Commits claims; `more` are further arguments of `cortex_build_commit`.
pub fn commit(client: &mut Client, job: i64, worker: &str, claims: &Value, more: &str) -> Value {
    let claims = claims.to_string().replace('\'', "''");
    let usage = r#"{"model": "m", "prompt_tokens": 100, "completion_tokens": 10}"#;
    json(
        client,
        &format!(
            "cortex_build_commit({job}, '{claims}', usage => '{usage}', worker => '{worker}'{more})"
        ),
    )
}

/// Does all builds with the claims that `model` gives for each chunk, and answers with the number of chunks read.
pub fn build_all(client: &mut Client, mut model: impl FnMut(&str) -> Vec<String>) -> usize {
    let mut read = 0;
    while let Some(taken) = take(client, "tests", "60 seconds") {
        read += taken.chunks.len();
        let claims: Vec<Value> = taken
            .chunks
            .iter()
            .flat_map(|(id, body)| {
                model(body)
                    .into_iter()
                    .map(|claim| json!({"claim": claim, "chunks": [id]}))
                    .collect::<Vec<_>>()
            })
            .collect();
        commit(client, taken.job, "tests", &json!(claims), "");
    }
    read
}

/// The first sentence of a text, reworded.
pub fn reworded(body: &str) -> Vec<String> {
    let first = body.split(". ").next().unwrap_or(body);
    vec![format!("It is known that: {first}")]
}

/// Claims of models that are served now.
pub fn served(client: &mut Client) -> i64 {
    one(
        client,
        "SELECT count(*) FROM cortex.claims f JOIN cortex.claim c ON c.id = f.claim_id JOIN cortex.unit u ON u.id = c.unit_id \
          WHERE f.fresh AND u.purpose = 'model'",
    )
}

/// Kinds of the events of namespace `default`, in order, sealed first.
pub fn events(client: &mut Client) -> Vec<(String, Value)> {
    client
        .batch_execute("SELECT cortex_seal()")
        .expect("drafts can be numbered");
    client
        .query(
            "SELECT kind, detail::text FROM cortex_events(max_events => 10000)",
            &[],
        )
        .expect("events can be read")
        .iter()
        .map(|row| {
            let detail: Value = serde_json::from_str(row.get(1)).expect("a detail is JSON");
            (row.get(0), detail)
        })
        .collect()
}
