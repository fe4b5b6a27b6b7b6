//! One step of an embed job: take texts, embed them, store the vectors.

use super::Worker;
use crate::db::jobs::{Job, Step, Text};
use crate::error::{Failure, Kind, Outcome};

/// Takes the next texts and stores their vectors.
pub(super) async fn step(worker: &Worker, job: &Job) -> Outcome<Step> {
    let name = worker.status.name();
    let texts = worker
        .db
        .embed_take(job.id, &name, worker.settings.batch_texts)
        .await?;
    let (items, vectors) = embed(worker, texts).await?;
    worker.db.embed_commit(job.id, &name, items, &vectors).await
}

/// The vectors of as many texts as can be embedded. One text that cannot be must not keep the others of its
/// job from being found; it is reported when nothing else is left.
async fn embed(worker: &Worker, texts: Vec<Text>) -> Outcome<(Vec<i64>, Vec<Vec<f32>>)> {
    if texts.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let (items, bodies): (Vec<i64>, Vec<String>) = texts
        .iter()
        .map(|text| (text.item_id, text.body.clone()))
        .unzip();
    match worker.encoder.embeddings(bodies).await {
        Ok(made) => {
            worker.status.texts_cut(made.truncated.len() as u64);
            return Ok((items, made.vectors));
        }
        Err(failure) if failure.kind != Kind::Usage => return Err(failure),
        Err(_) => {}
    }
    let (mut items, mut vectors) = (Vec::new(), Vec::new());
    let mut refused = None;
    for text in texts {
        match worker.encoder.embeddings(vec![text.body]).await {
            Ok(made) => {
                worker.status.texts_cut(made.truncated.len() as u64);
                items.push(text.item_id);
                vectors.extend(made.vectors);
            }
            Err(failure) if failure.kind == Kind::Usage => {
                refused.get_or_insert(format!(
                    "item {} cannot be embedded: {}",
                    text.item_id, failure.message
                ));
            }
            Err(failure) => return Err(failure),
        }
    }
    match refused {
        Some(reason) if items.is_empty() => Err(Failure::new(Kind::System, "cannot_embed", reason)),
        _ => Ok((items, vectors)),
    }
}
