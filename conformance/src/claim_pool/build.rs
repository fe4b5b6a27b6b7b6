//! Building units.

use std::collections::BTreeMap;

use cortex_core::ground;
use cortex_core::pool::backoff;
use cortex_core::pool::candidates::{SIMILAR_COSINE, cosine};
use cortex_core::pool::merge::{self, Place};
use cortex_core::pool::sift;
use serde_json::{Map, Value, json};

use super::case::{Chunk, SourceSpan};
use super::digest;
use super::host::Host;
use super::judge;
use super::peer;
use super::policy::Difference;
use super::stats::Usage;
use super::unit::{self, Unit};

/// Why a read ends without a result.
#[derive(Debug)]
pub enum Stop {
    /// The model failed, and by the peer's rule the read with it.
    Raised,
    /// The host cannot do what the case asks.
    Cannot(String),
}

/// What a build goes into.
pub enum Target {
    /// A unit that is there, at its position.
    Unit(usize),
    /// A new unit of a source, or the one that has its id.
    Source {
        /// Namespace.
        namespace: String,
        /// Name of the source; may be empty.
        artifact: String,
    },
}

/// The question that a build serves, and what the builds of its read spent.
pub struct Question<'q> {
    /// Text.
    pub text: &'q str,
    /// Vector.
    pub vector: &'q [f64],
    /// Whether a model was called.
    pub built: bool,
    /// Tokens, if a call reported them.
    pub usage: Option<Usage>,
}

struct Answer {
    understanding: Map<String, Value>,
    used: Option<Vec<i64>>,
    ok: bool,
    usage: Option<Usage>,
}

impl Host<'_> {
    /// Builds from `chunks`. `Ok(None)`: nothing came of it and no unit stands for it.
    pub(super) fn build(
        &mut self,
        target: Target,
        question: &mut Question<'_>,
        chunks: &[Chunk],
    ) -> Result<Option<usize>, Stop> {
        let (position, source) = match target {
            Target::Unit(position) => (Some(position), None),
            Target::Source {
                namespace,
                artifact,
            } => {
                let id = digest::unit_id(&namespace, &artifact);
                (self.position(&id), Some((id, namespace, artifact)))
            }
        };
        let answer = match self.synthesize(question.text, chunks) {
            Ok(answer) => answer,
            Err(_) if self.ours_in(Difference::NoHollowUnit) => {
                question.built = true;
                self.note_failure(position, source);
                return Ok(None);
            }
            Err(stop) => {
                if let (None, Some((id, namespace, _))) = (position, source) {
                    self.units.push(Unit {
                        id,
                        namespace,
                        query: question.text.to_owned(),
                        seed: question.vector.to_vec(),
                        fresh: true,
                        ..Unit::default()
                    });
                }
                return Err(stop);
            }
        };
        question.built = true;
        if let Some(usage) = answer.usage {
            question.usage.get_or_insert_default().add(usage);
            self.counters.synth_calls += 1;
            self.counters.usage.add(usage);
        }
        let position = position.unwrap_or_else(|| {
            let (id, namespace, _) = source.clone().unwrap_or_default();
            self.units.push(Unit {
                id,
                namespace,
                ..Unit::default()
            });
            self.units.len() - 1
        });
        let (namespace, built) = {
            let mut unit = std::mem::take(&mut self.units[position]);
            let before = unit.clone();
            self.fill(&mut unit, question, chunks, answer);
            self.violations.extend(judge::added(self, &before, &unit));
            let namespace = unit.namespace.clone();
            self.units[position] = unit;
            (namespace, position)
        };
        let key = self.calibration_key(&namespace);
        self.calibrations.entry(key).or_default().builds += 1;
        Ok(Some(built))
    }

    fn note_failure(&mut self, position: Option<usize>, source: Option<(String, String, String)>) {
        let now = self.clock;
        match (position, source) {
            (Some(position), _) => {
                let unit = &mut self.units[position];
                unit.failures = (unit.failures.0 + 1, now);
            }
            (None, Some((_, namespace, artifact))) => {
                let failures = self.failures.entry((namespace, artifact)).or_default();
                *failures = (failures.0 + 1, now);
            }
            (None, None) => {}
        }
    }

    /// Whether failed builds make a source wait.
    pub(super) fn backing_off(&self, failures: (u32, f64)) -> bool {
        let (count, at) = failures;
        count > 0 && self.clock < at + f64::from(backoff::seconds(count))
    }

    fn synthesize(&mut self, query: &str, chunks: &[Chunk]) -> Result<Answer, Stop> {
        let model = self.synthesizer;
        if model.ok.is_string() {
            return Err(Stop::Raised);
        }
        self.trail
            .synth_calls
            .push(json!({"query": query, "chunks": unit::pairs(chunks)}));
        let claims: Vec<Value> = chunks
            .iter()
            .flat_map(|chunk| match model.claims_by_chunk_text.get(&chunk.text) {
                Some(claims) => claims.clone(),
                None => vec![json!(chunk.text)],
            })
            .collect();
        let usage = Usage {
            prompt: 10 * chunks.len() as u64,
            completion: 5 * claims.len() as u64,
        };
        let ok = model.ok != json!(false);
        let (understanding, usage) = match &model.fixed_understanding {
            Some(fixed) => (fixed.clone(), None),
            None => {
                let claims = Map::from_iter([("claims".to_owned(), Value::Array(claims))]);
                (claims, Some(usage))
            }
        };
        Ok(Answer {
            understanding: match ok {
                true => understanding,
                false => Map::from_iter([("_synthesis_failed".to_owned(), json!(true))]),
            },
            used: model.used.clone(),
            ok,
            usage,
        })
    }

    /// Puts what a build brought into its unit.
    fn fill(&self, unit: &mut Unit, question: &Question<'_>, chunks: &[Chunk], answer: Answer) {
        let adds = self.ours_in(Difference::BuildsAdd) && unit.fresh && !unit.rows.is_empty();
        let mut understanding = answer.understanding;
        let mut cited: Vec<usize> = match &answer.used {
            None => (0..chunks.len()).collect(),
            Some(used) => {
                let in_range = used.iter().filter_map(|&at| usize::try_from(at).ok());
                in_range.filter(|&at| at < chunks.len()).collect()
            }
        };
        if !answer.ok || cited.is_empty() {
            if answer.ok && !chunks.is_empty() {
                understanding.insert("_citation_fallback".into(), json!(true));
            }
            cited = (0..chunks.len()).collect();
        }
        if unit.seed.is_empty() {
            unit.query = question.text.to_owned();
            unit.seed = question.vector.to_vec();
        }
        unit.synth_tokens = answer.usage.map_or(0, Usage::total);
        unit.epoch = Some(self.clock);
        unit.fresh = true;
        unit.failures = match answer.ok {
            true => (0, 0.0),
            false => (unit.failures.0 + 1, self.clock),
        };
        if adds && !answer.ok {
            return;
        }
        let spans = cited.iter().map(|&at| span(&chunks[at]));
        let mut pairs = self.claims_with_vectors(&understanding);
        if adds {
            let held = std::mem::take(&mut unit.rows);
            let texts: Vec<&str> = held.iter().map(|row| row.text.as_str()).collect();
            let built: Vec<String> = pairs
                .iter()
                .map(|(claim, _)| peer::claim_text(claim))
                .collect();
            let vector = |place: Place| match place {
                Place::Held(at) => &held[at].vector,
                Place::Built(at) => &pairs[at].1,
            };
            let merged = merge::merge(&texts, &built, |other, at| {
                cosine(vector(other), &pairs[at].1) >= SIMILAR_COSINE
            });
            let kept = unit.claims().to_vec();
            let mut all: Vec<(Value, Vec<f64>)> = kept
                .into_iter()
                .enumerate()
                .map(|(index, claim)| {
                    let row = held.iter().find(|row| row.index == index);
                    (claim, row.map(|row| row.vector.clone()).unwrap_or_default())
                })
                .collect();
            all.extend(merged.admitted.iter().map(|&at| pairs[at].clone()));
            pairs = all;
            for chunk in chunks {
                let same =
                    |held: &Chunk| held.artifact_id == chunk.artifact_id && held.text == chunk.text;
                if !unit.evidence.iter().any(same) {
                    unit.evidence.push(chunk.clone());
                }
            }
            for span in spans {
                if !unit.spans.contains(&span) {
                    unit.spans.push(span);
                }
            }
        } else {
            unit.evidence = chunks.to_vec();
            unit.spans = spans.collect();
        }
        if understanding.contains_key("claims") {
            let claims = pairs.iter().map(|(claim, _)| claim.clone()).collect();
            understanding.insert("claims".into(), Value::Array(claims));
        }
        unit.understanding = understanding;
        let vectors: Vec<Vec<f64>> = pairs.into_iter().map(|(_, vector)| vector).collect();
        unit.set_rows(&vectors);
        unit.meta = dominant_meta(&unit.evidence);
        unit.digest_vector = self.embed(&digest_text(&unit.understanding));
    }

    /// The claims of an answer with a vector each.
    fn claims_with_vectors(&self, understanding: &Map<String, Value>) -> Vec<(Value, Vec<f64>)> {
        let claims = understanding.get("claims").and_then(Value::as_array);
        let claims = claims.map_or(&[][..], Vec::as_slice);
        if self.ours_in(Difference::ClaimsChecked) {
            return claims
                .iter()
                .filter_map(|claim| {
                    let text = admitted_text(claim)?;
                    Some((claim.clone(), self.embed(text)))
                })
                .collect();
        }
        let texts = claims.iter().map(peer::claim_text);
        let summary = understanding.get("summary").and_then(Value::as_str);
        let summary = summary.map(|summary| summary.trim().to_owned());
        let embedded = texts.chain(summary).filter(|text| !text.is_empty());
        let mut vectors = embedded.map(|text| self.embed(&text));
        let paired = claims.iter().cloned();
        paired
            .map(|claim| (claim, vectors.next().unwrap_or_default()))
            .collect()
    }

    /// The chunks to build a source from: widened if the case says so.
    pub(super) fn widened(&mut self, artifact: &str, trigger: &[Chunk]) -> Vec<Chunk> {
        // A source without a name cannot be fetched.
        let Some(limit) = self.settings.widen.filter(|_| !artifact.is_empty()) else {
            return trigger.to_vec();
        };
        if self.settings.fetched.is_empty() {
            self.emit("widen_unavailable", json!({"artifact_id": artifact}));
            return trigger.to_vec();
        }
        let fetched = self.settings.fetched.iter().map(|text| Chunk {
            artifact_id: artifact.to_owned(),
            text: text.clone(),
            ..Chunk::default()
        });
        let mut merged: Vec<Chunk> = fetched.collect();
        let holds = |chunks: &[Chunk], text: &str| chunks.iter().any(|chunk| chunk.text == text);
        let unfetched = trigger.iter().filter(|chunk| !holds(&merged, &chunk.text));
        let unfetched: Vec<Chunk> = unfetched.cloned().collect();
        merged.extend(unfetched);
        if merged.len() > limit {
            let head = &merged[..limit];
            let missing: Vec<Chunk> = trigger
                .iter()
                .filter(|chunk| !holds(head, &chunk.text))
                .cloned()
                .collect();
            merged.truncate(limit.saturating_sub(missing.len()));
            merged.extend(missing);
        }
        merged
    }
}

/// The text of a claim that Cortex admits. Whether it is grounded is not asked: the recorded models write
/// claims that are not in their chunks.
pub fn admitted_text(claim: &Value) -> Option<&str> {
    ground::admissible(sift::text_of(claim)).ok()
}

fn span(chunk: &Chunk) -> SourceSpan {
    SourceSpan {
        artifact_id: chunk.artifact_id.clone(),
        version: chunk.version.clone(),
        content_hash: digest::text_hash(&chunk.text),
    }
}

/// Metadata of the source with most chunks, the first of equals: that of the first chunk that has any.
fn dominant_meta(chunks: &[Chunk]) -> BTreeMap<String, String> {
    let Some(artifact) = dominant(chunks) else {
        return BTreeMap::new();
    };
    let metas = chunks.iter().filter(|chunk| chunk.artifact_id == artifact);
    let mut metas = metas.filter_map(|chunk| chunk.meta.as_ref());
    metas
        .find(|meta| !meta.is_empty())
        .cloned()
        .unwrap_or_default()
}

/// The source with most chunks, the first of equals.
pub fn dominant(chunks: &[Chunk]) -> Option<&str> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for chunk in chunks {
        match counts
            .iter_mut()
            .find(|(artifact, _)| *artifact == chunk.artifact_id)
        {
            Some((_, count)) => *count += 1,
            None => counts.push((&chunk.artifact_id, 1)),
        }
    }
    let mut best: Option<(&str, usize)> = None;
    for (artifact, count) in counts {
        if best.is_none_or(|(_, most)| count > most) {
            best = Some((artifact, count));
        }
    }
    best.map(|(artifact, _)| artifact)
}

/// Summary, claims and entities as one text, each as Python prints it.
fn digest_text(understanding: &Map<String, Value>) -> String {
    let list = |name| understanding.get(name).and_then(Value::as_array);
    let summary = understanding.get("summary").and_then(Value::as_str);
    let listed = list("claims").into_iter().chain(list("entities")).flatten();
    let parts = summary
        .map(str::to_owned)
        .into_iter()
        .chain(listed.map(peer::printed));
    let parts: Vec<String> = parts.collect();
    parts.join(" ")
}
