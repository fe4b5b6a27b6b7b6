//! An in-memory host for the claim pool: it keeps units, retrieves, builds and serves with the algorithms of
//! `cortex_core::pool`, or, where its policy says so, by the peer's documented rule.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cortex_core::pool::gate;
use serde_json::{Map, Value, json};

use super::case::{Case, Chunk, Op, Retriever, Synthesizer};
use super::digest;
use super::hooks::{self, RerankHook, Settings};
use super::peer;
use super::policy::{Difference, Policy};
use super::stats::Counters;
use super::unit::Unit;

/// Floor of the embedding space that the recordings use.
pub const DEFAULT_FLOOR: f64 = 0.4;

/// Rows whose scores are nearer than this are told apart by rounding alone. The recordings' arithmetic gives equal
/// vectors unequal scores, depending on where they lie in memory.
pub const LAST_BITS: f64 = 2.5e-7;

/// How the single-precision sum of a score was ordered, which no recording says. It matters only for rows
/// that are equally near up to the last bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Summation {
    /// In double precision, rounded once.
    Double,
    /// In double precision to the end, as without numpy.
    Exact,
    /// From first to last.
    Serial,
    /// Halves added to each other.
    Pairwise,
}

impl Summation {
    /// All of them, the likeliest first.
    pub const ALL: [Self; 4] = [Self::Double, Self::Serial, Self::Pairwise, Self::Exact];

    /// Inner product.
    pub fn dot(self, a: &[f32], b: &[f32]) -> f64 {
        let products = a.iter().zip(b);
        match self {
            Self::Double => {
                let sum: f64 = products.map(|(&x, &y)| f64::from(x) * f64::from(y)).sum();
                f64::from(sum as f32)
            }
            Self::Exact => products.map(|(&x, &y)| f64::from(x) * f64::from(y)).sum(),
            Self::Serial => f64::from(products.map(|(x, y)| x * y).sum::<f32>()),
            Self::Pairwise => {
                let mut terms: Vec<f32> = products.map(|(x, y)| x * y).collect();
                while terms.len() > 1 {
                    let half = terms.len().div_ceil(2);
                    for at in half..terms.len() {
                        terms[at - half] += terms[at];
                    }
                    terms.truncate(half);
                }
                f64::from(terms.first().copied().unwrap_or_default())
            }
        }
    }
}

/// The noise ceiling of a namespace, or of all under the peer's rule.
#[derive(Debug, Clone, Copy, Default)]
pub struct Calibration {
    /// The ceiling.
    pub ceiling: f64,
    /// Builds since it was measured.
    pub builds: u32,
}

/// What one operation did, in the recordings' form.
#[derive(Debug, Default)]
pub struct Trail {
    /// Events in order.
    pub events: Vec<Value>,
    /// Calls of the model.
    pub synth_calls: Vec<Value>,
    /// Calls of retrieval.
    pub retriever_calls: Vec<Value>,
    /// Candidates, collapsed rows and packing.
    pub trace: Option<Value>,
}

/// The host.
pub struct Host<'a> {
    pub(super) settings: Settings,
    pub(super) policy: &'a Policy,
    pub(super) summation: Summation,
    pub(super) units: Vec<Unit>,
    /// Ids of the units it started with, which it did not build.
    pub(super) initial: BTreeSet<String>,
    pub(super) retriever: Retriever,
    pub(super) synthesizer: &'a Synthesizer,
    pub(super) embeddings: &'a HashMap<String, Vec<f64>>,
    pub(super) clock: f64,
    pub(super) calibrations: BTreeMap<String, Calibration>,
    /// Failed builds of sources that have no unit: how many in a row, and when the last one ended.
    pub(super) failures: BTreeMap<(String, String), (u32, f64)>,
    pub(super) counters: Counters,
    pub(super) trail: Trail,
    /// Recorded places of rows, by unit and by position or text.
    pub(super) places: HashMap<(String, String), i64>,
    /// Whether reads are checked against Cortex's rules.
    pub judged: bool,
    /// Rules of Cortex that a read broke.
    pub violations: Vec<String>,
}

impl<'a> Host<'a> {
    /// A host with the units of a case.
    pub fn new(case: &'a Case, policy: &'a Policy, summation: Summation) -> Result<Self, String> {
        Ok(Self {
            settings: Settings::read(&case.config)?,
            policy,
            summation,
            units: case.initial_units.iter().map(Unit::load).collect(),
            initial: case
                .initial_units
                .iter()
                .map(|unit| unit.id.clone())
                .collect(),
            retriever: case.retriever.clone(),
            synthesizer: &case.synthesizer,
            embeddings: &case.embeddings,
            clock: 1_000.0,
            calibrations: BTreeMap::new(),
            failures: BTreeMap::new(),
            counters: Counters::default(),
            trail: Trail::default(),
            places: HashMap::new(),
            judged: false,
            violations: Vec::new(),
        })
    }

    /// Does one operation and says what came of it. An error says what this host cannot do.
    pub fn run(&mut self, op: &Op) -> Result<Map<String, Value>, String> {
        self.trail = Trail::default();
        self.places = match self.ours_in(Difference::TiesById) {
            true => HashMap::new(),
            false => self.recorded_places(&op.recorded),
        };
        let text = |name: &str| op.args.get(name).and_then(Value::as_str);
        let first = || {
            let list = op.args.get("args").and_then(Value::as_array);
            let named = list.and_then(|list| list.first()).and_then(Value::as_str);
            named
                .or(text("artifact_id"))
                .ok_or("an artifact id is missing")
        };
        let silent = |result: Value| Ok(Map::from_iter([("result".to_owned(), result)]));
        match op.op.as_str() {
            "note" => {
                // A note that says nothing known is a remark; if it mattered, what follows differs.
                hooks::apply_note(text("text").unwrap_or_default(), &mut self.retriever);
                Ok(Map::new())
            }
            "advance_clock" => {
                let seconds = op.args.get("seconds").and_then(Value::as_f64);
                self.clock += seconds.ok_or("seconds are missing")?;
                Ok(Map::new())
            }
            "get" => {
                let result = self.get(&op.args)?;
                Ok(self.finish(result))
            }
            "get_sequence" => {
                let result = self.get_sequence(&op.args)?;
                silent(result)
            }
            "source_changed" => {
                let result = self.changed(first()?, text("text"), text("version"), false);
                Ok(self.finish(result))
            }
            "source_deleted" => {
                let result = self.changed(first()?, None, None, true);
                Ok(self.finish(result))
            }
            "has_source" => {
                let artifact = first()?;
                let known = self.units.iter().any(|unit| unit.cites(artifact));
                Ok(self.finish(json!(known)))
            }
            "inspect_units" => {
                let wanted = text("unit_id");
                let units = self.units.iter();
                let shown = units.filter(|unit| wanted.is_none_or(|id| id == unit.id));
                let shown: Map<String, Value> = shown
                    .map(|unit| (unit.id.clone(), unit.inspect()))
                    .collect();
                silent(Value::Object(shown))
            }
            "stats" => silent(self.stats(op.args.get("keys"))),
            other => Err(format!("not built yet: operation {other}")),
        }
    }

    /// In which order rows were recorded: from the candidates, or else from the claims served.
    fn recorded_places(&self, recorded: &Map<String, Value>) -> HashMap<(String, String), i64> {
        let candidates = recorded
            .get("trace")
            .and_then(|trace| trace.get("candidates"));
        let candidates = candidates.and_then(Value::as_array);
        let served = recorded.get("result").and_then(|result| result.get("pool"));
        let served = served.and_then(Value::as_array);
        let rows: Vec<&Value> = candidates.or(served).into_iter().flatten().collect();
        let turned = candidates.is_none() && self.settings.reranker == Some(RerankHook::Reversed);
        let sign = if turned { -1 } else { 1 };
        let key = |row: &Value| match row.as_array() {
            Some(row) => Some((
                row.first()?.as_str()?.to_owned(),
                format!("#{}", row.get(1)?),
            )),
            None => {
                let unit = row.get("unit_id")?.as_str()?;
                Some((unit.to_owned(), format!("={}", row.get("claim")?.as_str()?)))
            }
        };
        // Rows that were not recorded have place 0: they come after those that were served, before them if a
        // reranker turned the order round.
        let places = -(rows.len() as i64)..0;
        places
            .zip(rows)
            .filter_map(|(place, row)| Some((key(row)?, sign * place)))
            .collect()
    }

    fn finish(&mut self, result: Value) -> Map<String, Value> {
        let trail = std::mem::take(&mut self.trail);
        let mut output = Map::from_iter([
            ("result".to_owned(), result),
            ("events".to_owned(), Value::Array(trail.events)),
            ("synth_calls".to_owned(), Value::Array(trail.synth_calls)),
            (
                "retriever_calls".to_owned(),
                Value::Array(trail.retriever_calls),
            ),
        ]);
        if let Some(trace) = trail.trace {
            output.insert("trace".to_owned(), trace);
        }
        output
    }

    pub(super) fn ours_in(&self, difference: Difference) -> bool {
        self.policy.ours_in(difference)
    }

    pub(super) fn emit(&mut self, kind: &str, fields: Value) {
        let mut event = Map::from_iter([
            ("event".to_owned(), json!(kind)),
            ("ts".to_owned(), json!(self.clock)),
        ]);
        if let Value::Object(fields) = fields {
            event.extend(fields);
        }
        self.trail.events.push(Value::Object(event));
    }

    /// Vector of a text. A replay of the peer's rules embeds nothing that was not recorded; ours may build what
    /// the peer did not, and a claim without vector is then no row.
    pub(super) fn embed(&self, text: &str) -> Vec<f64> {
        self.embeddings.get(text).cloned().unwrap_or_default()
    }

    pub(super) fn retrieve(&mut self, query: &str, namespace: &str) -> Vec<Chunk> {
        self.counters.retrievals += 1;
        let shown = (!namespace.is_empty()).then_some(namespace);
        let call = json!({"query": query, "namespace": shown});
        self.trail.retriever_calls.push(call);
        let listed = self.retriever.by_query.get(query);
        listed.unwrap_or(&self.retriever.default).clone()
    }

    /// Positions of the units of a namespace, in the order in which they came.
    pub(super) fn units_of(&self, namespace: &str) -> Vec<usize> {
        (0..self.units.len())
            .filter(|&at| self.units[at].namespace == namespace)
            .collect()
    }

    pub(super) fn position(&self, id: &str) -> Option<usize> {
        self.units.iter().position(|unit| unit.id == id)
    }

    /// Seconds since a unit was last known to be fresh.
    pub(super) fn age(&self, unit: &Unit) -> f64 {
        (self.clock - unit.epoch.unwrap_or(self.clock)).max(0.0)
    }

    /// Key of the calibration that a namespace has.
    pub(super) fn calibration_key(&self, namespace: &str) -> String {
        match self.ours_in(Difference::NoiseSample) {
            true => namespace.to_owned(),
            false => String::new(),
        }
    }

    pub(super) fn calibration(&self, namespace: &str) -> Calibration {
        let key = self.calibration_key(namespace);
        self.calibrations.get(&key).copied().unwrap_or_default()
    }

    pub(super) fn gate(&self, namespace: &str) -> f64 {
        let ceiling = self.calibration(namespace).ceiling;
        gate::effective(self.settings.gate, DEFAULT_FLOOR, ceiling)
    }

    /// A change notice. It names no namespace, so it is taken as one for each namespace that has the source.
    fn changed(
        &mut self,
        artifact: &str,
        text: Option<&str>,
        version: Option<&str>,
        deleted: bool,
    ) -> Value {
        let matched: Vec<usize> = (0..self.units.len())
            .filter(|&at| self.units[at].cites(artifact))
            .collect();
        let mut dirtied = BTreeSet::new();
        let mut skipped = BTreeSet::new();
        let mut evicted = BTreeSet::new();
        for &at in &matched {
            let id = self.units[at].id.clone();
            if deleted {
                evicted.insert(id);
            } else if self.differs(&self.units[at], artifact, text, version) {
                self.units[at].fresh = false;
                self.units[at].failures = (0, 0.0);
                dirtied.insert(id);
            } else {
                skipped.insert(id);
            }
        }
        self.units.retain(|unit| !evicted.contains(&unit.id));
        self.failures.retain(|(_, source), _| source != artifact);
        self.counters.invalidated += (dirtied.len() + evicted.len()) as u64;
        let mut event = json!({
            "artifact_id": artifact,
            "change_kind": if deleted { "delete" } else { "update" },
            "matched_units": matched.len(),
            "dirtied": dirtied,
            "deleted": evicted,
        });
        if !matched.is_empty() {
            event["skipped_unchanged"] = json!(skipped.len());
        }
        self.emit("source_changed", event);
        json!({
            "dirtied": dirtied,
            "skipped_unchanged": skipped,
            "deleted": evicted,
            "matched_units": matched.len(),
        })
    }

    /// Whether a notice says something new about what a unit was built from.
    fn differs(
        &self,
        unit: &Unit,
        artifact: &str,
        text: Option<&str>,
        version: Option<&str>,
    ) -> bool {
        let hash = text.map(digest::text_hash);
        let spans = unit
            .spans
            .iter()
            .filter(|span| span.artifact_id == artifact);
        let span_differs = spans.clone().any(|span| match (&hash, version) {
            (Some(hash), _) if !span.content_hash.is_empty() => *hash != span.content_hash,
            (_, Some(version)) if !span.version.is_empty() && !version.is_empty() => {
                version != span.version
            }
            _ => true,
        });
        if !span_differs || !self.ours_in(Difference::WholeDocument) {
            return span_differs;
        }
        let chunks = unit
            .evidence
            .iter()
            .filter(|chunk| chunk.artifact_id == artifact);
        let chunks: Vec<&str> = chunks.map(|chunk| chunk.text.as_str()).collect();
        !text.is_some_and(|text| consists_of(text, &chunks))
    }

    /// The sample of units whose questions are the probes of the noise ceiling, as positions.
    pub(super) fn noise_sample(&self, namespace: &str) -> Vec<usize> {
        let ours = self.ours_in(Difference::NoiseSample);
        let eligible: Vec<usize> = (0..self.units.len())
            .filter(|&at| {
                let unit = &self.units[at];
                unit.fresh && !unit.seed.is_empty() && (!ours || unit.namespace == namespace)
            })
            .collect();
        let sample = if ours {
            let ids: Vec<u64> = eligible
                .iter()
                .map(|&at| spread(&self.units[at].id))
                .collect();
            gate::sample(&ids)
        } else if eligible.len() < gate::SAMPLE_MIN {
            Vec::new()
        } else {
            peer::python_sample(eligible.len(), gate::SAMPLE_MAX.min(eligible.len()))
        };
        sample.into_iter().map(|at| eligible[at]).collect()
    }
}

/// A number for a unit's id, as a database has one.
fn spread(id: &str) -> u64 {
    let hash = blake3::hash(id.as_bytes());
    let (first, _) = hash.as_bytes().as_chunks::<8>();
    u64::from_le_bytes(first[0])
}

/// Whether `text` is exactly the given chunks in order, with nothing but white space around them: how a whole
/// document is recognised where only its chunks are known and not how it was cut. `false` without chunks.
fn consists_of(text: &str, chunks: &[&str]) -> bool {
    let mut rest = text.trim_start();
    for chunk in chunks {
        match rest.strip_prefix(chunk.trim()) {
            Some(after) => rest = after.trim_start(),
            None => return false,
        }
    }
    !chunks.is_empty() && rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::consists_of;

    #[test]
    fn a_document_is_its_chunks_and_nothing_else() {
        assert!(consists_of(" one\n\ntwo ", &["one", "two"]));
        assert!(!consists_of("one two three", &["one", "two"]));
        assert!(!consists_of("two one", &["one", "two"]));
        assert!(!consists_of("one", &["one", "two"]));
        assert!(!consists_of("", &[]));
    }
}
