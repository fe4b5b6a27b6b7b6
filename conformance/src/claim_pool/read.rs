//! One read, step by step.

use cortex_core::pool::candidates::{self, SIMILAR_COSINE, WINDOW, cosine};
use cortex_core::pool::classify::{self, BUILDS_MAX, Class, Finding, Owner};
use cortex_core::pool::decide::{self, Outcome, Strategy};
use cortex_core::pool::gate;
use cortex_core::pool::reuse::{self, Seed};
use serde_json::{Map, Value, json};

use super::build::{self, Question, Stop, Target};
use super::case::Chunk;
use super::host::{Host, LAST_BITS};
use super::policy::Difference;
use super::serve::Serving;
use super::unit;

/// Which units Python's generator would draw: part of a recorded sequence, and none of Cortex.
pub const PYTHON_SAMPLE: &str = "python_rng_sample_if_calibrated_now";

/// A row of the scan.
#[derive(Debug, Clone)]
pub struct Hit {
    /// Position of its unit.
    pub unit: usize,
    /// Position of the row in the unit.
    pub row: usize,
    /// Similarity to the question.
    pub score: f64,
}

/// What a scan found.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// Fresh rows of the window, best first.
    pub fresh: Vec<Hit>,
    /// Stale rows that a read has to answer for, best first.
    pub stale: Vec<Hit>,
}

/// Sources of the retrieved chunks, in order of retrieval.
struct Group {
    artifact: String,
    chunks: Vec<Chunk>,
}

impl Host<'_> {
    /// A read. A model that raises is part of the result, under the peer's rule.
    pub(super) fn get(&mut self, args: &Map<String, Value>) -> Result<Value, String> {
        for name in args.keys() {
            if !matches!(
                name.as_str(),
                "query" | "namespace" | "related" | "strategy"
            ) {
                return Err(format!("not built yet: argument {name} of a read"));
            }
        }
        let query = args
            .get("query")
            .and_then(Value::as_str)
            .ok_or("a read without query")?;
        let namespace = args
            .get("namespace")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let strategy = args.get("strategy").and_then(Value::as_str);
        let strategy = match strategy.unwrap_or(&self.settings.strategy) {
            "context_raw" => Strategy::ContextRaw,
            "context_only" => Strategy::ContextOnly,
            _ => Strategy::ContextFirst,
        };
        let related = args.get("related").and_then(Value::as_i64).unwrap_or(3);
        match self.read(query, namespace, strategy, related) {
            Ok(result) => Ok(result),
            Err(Stop::Cannot(reason)) => Err(reason),
            Err(Stop::Raised) => Ok(json!({"raised": "RuntimeError", "message": "model down"})),
        }
    }

    fn read(
        &mut self,
        query: &str,
        namespace: &str,
        strategy: Strategy,
        related: i64,
    ) -> Result<Value, Stop> {
        let vector = self.embed(query);
        if vector.is_empty() {
            return Err(Stop::Cannot(format!(
                "no vector was recorded for the question {query:?}"
            )));
        }
        self.counters.reads += 1;
        let mut question = Question {
            text: query,
            vector: &vector,
            built: false,
            usage: None,
        };
        let gate = self.gate(namespace);

        let (reused, mut chunks) = self.reuse(&mut question, namespace)?;

        let mut scan = self.scan(&vector, namespace);
        self.report_masked(&scan, gate);
        let first = scan.fresh.first().map(|hit| hit.score);
        let confidence = first.unwrap_or_default();
        let outcome = decide::outcome(reused, first, gate);
        self.emit(
            "pool_gate",
            json!({"coverage": confidence, "gate": gate, "outcome": outcome.name()}),
        );
        if outcome != Outcome::Build {
            self.counters.pool_serves += 1;
        }

        let mut nothing_found = false;
        if outcome == Outcome::Build {
            let probed = match chunks.take() {
                Some(chunks) => chunks,
                None => self.retrieve(query, namespace),
            };
            nothing_found = probed.is_empty();
            if !nothing_found {
                self.probe(&mut question, namespace, &probed, confidence, gate)?;
            }
            chunks = Some(probed);
            if question.built {
                scan = self.scan(&vector, namespace);
            }
        }
        let final_scan = scan;
        let result = self.serve(Serving {
            question: &question,
            namespace,
            strategy,
            related,
            gate,
            outcome,
            confidence,
            nothing_found,
            chunks,
            scan: final_scan,
        });
        if question.built && self.settings.gate.is_none() {
            self.recalibrate(namespace);
        }
        Ok(result)
    }

    /// Whether what was built for this question before may answer, after building anew what of it is stale.
    /// Also the chunks, if that took a retrieval.
    fn reuse(
        &mut self,
        question: &mut Question<'_>,
        namespace: &str,
    ) -> Result<(bool, Option<Vec<Chunk>>), Stop> {
        let asked: Vec<usize> = self.units_of(namespace);
        let asked: Vec<usize> = asked
            .into_iter()
            .filter(|&at| !self.units[at].seed.is_empty())
            .collect();
        let seeds = |host: &Self| -> Vec<Seed> {
            let units = asked.iter().map(|&at| &host.units[at]);
            units
                .map(|unit| Seed {
                    similarity: cosine(question.vector, &unit.seed),
                    fresh: unit.fresh,
                })
                .collect()
        };
        let mut found = reuse::find(&seeds(self), self.settings.reuse_threshold);
        let Some(matched) = found.matched.map(|at| asked[at]) else {
            return Ok((false, None));
        };
        if !self.ours_in(Difference::StaleSibling) {
            // Only the matched unit counts.
            found.stale.retain(|&at| asked[at] == matched);
        }
        let failed = self.units[matched].failures;
        if self.ours_in(Difference::FailedBuildsRetry) && failed.0 > 0 && !self.backing_off(failed)
        {
            return Ok((false, None));
        }
        if found.stale.is_empty() {
            return Ok((true, None));
        }
        let stale: Vec<usize> = found.stale.iter().map(|&at| asked[at]).collect();
        let ours = self.ours_in(Difference::OwnSource);
        let mut chunks: Option<Vec<Chunk>> = None;
        for (rebuilt, position) in stale.into_iter().enumerate() {
            self.prevented(question.text, position);
            if rebuilt >= BUILDS_MAX {
                continue;
            }
            let retrieved = match &chunks {
                Some(chunks) => chunks.clone(),
                None => self.retrieve(question.text, namespace),
            };
            chunks = Some(retrieved.clone());
            let unit = &self.units[position];
            let own: Vec<Chunk> = match (ours, self.settings.widen, build::dominant(&retrieved)) {
                (true, _, _) => retrieved
                    .iter()
                    .filter(|chunk| unit.cites(&chunk.artifact_id))
                    .cloned()
                    .collect(),
                (false, Some(_), Some(artifact)) => retrieved
                    .iter()
                    .filter(|chunk| chunk.artifact_id == artifact)
                    .cloned()
                    .collect(),
                _ => retrieved.clone(),
            };
            if ours && own.is_empty() {
                continue;
            }
            let own = match build::dominant(&own).map(str::to_owned) {
                Some(artifact) => self.widened(&artifact, &own),
                None => own,
            };
            let Some(position) = self.build(Target::Unit(position), question, &own)? else {
                continue;
            };
            self.counters.rebuilds_by_read += 1;
            let unit = &self.units[position];
            let event = json!({
                "unit_id": unit.id,
                "artifact_id": unit.artifacts().first().copied().unwrap_or_default(),
                "reason": "reuse_stale",
            });
            self.emit("rebuild_triggered_by_read", event);
        }
        let serves = match self.ours_in(Difference::StaleSibling) {
            true => reuse::find(&seeds(self), self.settings.reuse_threshold).serves(),
            false => self.units[matched].fresh || !ours,
        };
        // The raw text of a served reuse is what its unit was built from.
        let chunks = match serves {
            true => Some(self.units[matched].evidence.clone()),
            false => chunks,
        };
        Ok((serves, chunks))
    }

    fn prevented(&mut self, query: &str, position: usize) {
        self.counters.staleness_prevented += 1;
        let unit = &self.units[position];
        let event = json!({"unit_id": unit.id, "query": query, "unit_age_s": self.age(unit)});
        self.emit("stale_read_prevented", event);
    }

    /// Ranks the rows of a namespace.
    pub(super) fn scan(&self, query: &[f64], namespace: &str) -> Scan {
        let Some(direction) = unit::direction(query) else {
            return Scan::default();
        };
        let mut hits = Vec::new();
        for position in self.units_of(namespace) {
            for (row, claim) in self.units[position].rows.iter().enumerate() {
                hits.push(Hit {
                    unit: position,
                    row,
                    score: self.summation.dot(&claim.direction, &direction),
                });
            }
        }
        let key = |hit: &Hit| {
            (
                &self.units[hit.unit].id,
                self.units[hit.unit].rows[hit.row].index,
            )
        };
        hits.sort_by(|a, b| {
            b.score
                .total_cmp(&a.score)
                .then_with(|| key(a).cmp(&key(b)))
        });
        self.order_as_recorded(&mut hits);
        if !self.ours_in(Difference::MaskBeforeWindow) {
            hits.truncate(WINDOW);
        }
        let (mut fresh, stale): (Vec<Hit>, Vec<Hit>) =
            hits.into_iter().partition(|hit| self.units[hit.unit].fresh);
        fresh.truncate(WINDOW);
        Scan { fresh, stale }
    }

    /// Puts rows that only rounding tells apart into the order in which they were recorded.
    fn order_as_recorded(&self, hits: &mut [Hit]) {
        if self.places.is_empty() {
            return;
        }
        let place = |hit: &Hit| {
            let unit = &self.units[hit.unit];
            let row = &unit.rows[hit.row];
            let known = |name: String| self.places.get(&(unit.id.clone(), name)).copied();
            let place =
                known(format!("#{}", row.index)).or_else(|| known(format!("={}", row.text)));
            place.unwrap_or_default()
        };
        for cluster in hits.chunk_by_mut(|a, b| a.score - b.score <= LAST_BITS) {
            cluster.sort_by_key(place);
        }
    }

    fn report_masked(&mut self, scan: &Scan, gate: f64) {
        let masked: Vec<&Hit> = scan.stale.iter().filter(|hit| hit.score >= gate).collect();
        let Some(top) = masked.first().map(|hit| hit.score) else {
            return;
        };
        let mut units: Vec<String> = masked
            .iter()
            .map(|hit| self.units[hit.unit].id.clone())
            .collect();
        units.sort();
        units.dedup();
        units.truncate(8);
        let event = json!({"n_rows": masked.len(), "units": units, "top_stale_score": top});
        self.emit("pool_masked_stale", event);
    }

    /// Classifies the sources of the retrieved chunks and builds what is missing.
    fn probe(
        &mut self,
        question: &mut Question<'_>,
        namespace: &str,
        chunks: &[Chunk],
        coverage: f64,
        gate: f64,
    ) -> Result<(), Stop> {
        let mut groups: Vec<Group> = Vec::new();
        for chunk in chunks {
            match groups
                .iter_mut()
                .find(|group| group.artifact == chunk.artifact_id)
            {
                Some(group) => group.chunks.push(chunk.clone()),
                None => groups.push(Group {
                    artifact: chunk.artifact_id.clone(),
                    chunks: vec![chunk.clone()],
                }),
            }
        }
        let findings: Vec<(Finding, Option<usize>)> = groups
            .iter()
            .map(|group| self.classify(group, namespace))
            .collect();
        let needing: Vec<usize> = (0..groups.len())
            .filter(|&at| findings[at].0.class != Class::Contained)
            .collect();
        if needing.is_empty() {
            self.counters.admission_reuses += 1;
            self.emit("admission_reuse", json!({"probed_sources": groups.len()}));
            return Ok(());
        }
        let chosen = classify::choose(&needing, |at| {
            let similarities = groups[at]
                .chunks
                .iter()
                .map(|chunk| cosine(&self.embed(&chunk.text), question.vector));
            similarities.fold(f64::NEG_INFINITY, f64::max)
        });
        let mut novel = 0;
        let mut artifacts = Vec::new();
        for at in chosen {
            let group = &groups[at];
            let (finding, owner) = &findings[at];
            artifacts.push(group.artifact.clone());
            let chunks = self.widened(&group.artifact, &group.chunks);
            match (finding.class, *owner) {
                (Class::StaleOwned | Class::Thin, Some(owner)) => {
                    if finding.class == Class::StaleOwned {
                        self.prevented(question.text, owner);
                    }
                    if self
                        .build(Target::Unit(owner), question, &chunks)?
                        .is_none()
                    {
                        continue;
                    }
                    self.counters.rebuilds_by_read += 1;
                    let reason = match finding.class {
                        Class::StaleOwned => "stale",
                        _ => "thin",
                    };
                    let event = json!({
                        "unit_id": self.units[owner].id,
                        "artifact_id": group.artifact,
                        "reason": reason,
                    });
                    self.emit("rebuild_triggered_by_read", event);
                }
                _ => {
                    let target = Target::Source {
                        namespace: namespace.to_owned(),
                        artifact: group.artifact.clone(),
                    };
                    let Some(built) = self.build(target, question, &chunks)? else {
                        continue;
                    };
                    novel += 1;
                    self.counters.builds_by_gap += 1;
                    let event = json!({"unit_id": self.units[built].id, "reason": "miss"});
                    self.emit("unit_built", event);
                }
            }
        }
        artifacts.sort();
        let event = json!({
            "coverage": coverage,
            "gate": gate,
            "artifacts": artifacts,
            "n_units_built": novel,
        });
        self.emit("build_triggered_by_gap", event);
        Ok(())
    }

    /// The class of a source, and the position of the unit to build into.
    fn classify(&self, group: &Group, namespace: &str) -> (Finding, Option<usize>) {
        let mut owners = self.units_of(namespace);
        owners.retain(|&at| self.units[at].cites(&group.artifact));
        owners.sort_by(|&a, &b| self.units[a].id.cmp(&self.units[b].id));
        let retries = self.ours_in(Difference::FailedBuildsRetry);
        let states: Vec<Owner> = owners
            .iter()
            .map(|&at| {
                let unit = &self.units[at];
                let holds =
                    |chunk: &Chunk| unit.evidence.iter().any(|held| held.text == chunk.text);
                let holds_all = group.chunks.iter().all(holds);
                let failed = retries && unit.failures.0 > 0;
                Owner {
                    fresh: unit.fresh,
                    // What failed and waits is left alone; what failed and has waited is tried again.
                    holds_all: if failed {
                        self.backing_off(unit.failures)
                    } else {
                        holds_all
                    },
                }
            })
            .collect();
        let mut finding = classify::classify(!group.artifact.is_empty(), &states);
        let key = (namespace.to_owned(), group.artifact.clone());
        let failures = self.failures.get(&key).copied().unwrap_or_default();
        if finding.class == Class::Novel && self.backing_off(failures) {
            finding.class = Class::Contained;
        }
        let owner = finding.owner.map(|at| owners[at]);
        (finding, owner)
    }

    /// Rows of a scan to candidates.
    pub(super) fn candidates(&self, scan: &Scan) -> (Vec<Hit>, Vec<(Hit, Hit)>) {
        let row = |hit: &Hit| &self.units[hit.unit].rows[hit.row];
        let rows: Vec<candidates::Row<'_, usize>> = scan
            .fresh
            .iter()
            .map(|hit| candidates::Row {
                owner: hit.unit,
                text: &row(hit).text,
            })
            .collect();
        let by_vector = self.ours_in(Difference::CollapsesRephrasings);
        let found = candidates::collapse(&rows, |a, b| {
            by_vector
                && cosine(&row(&scan.fresh[a]).vector, &row(&scan.fresh[b]).vector)
                    >= SIMILAR_COSINE
        });
        let hit = |at: usize| scan.fresh[at].clone();
        let kept = found.kept.into_iter().map(hit).collect();
        let collapsed = found
            .collapsed
            .iter()
            .map(|pair| (hit(pair.row), hit(pair.into)));
        (kept, collapsed.collect())
    }

    fn recalibrate(&mut self, namespace: &str) {
        let key = self.calibration_key(namespace);
        let calibration = self.calibration(namespace);
        if !gate::due(calibration.ceiling, calibration.builds) {
            return;
        }
        let sample = self.noise_sample(namespace);
        let greatest: Vec<f64> = sample.iter().map(|&at| self.noise(at)).collect();
        let calibration = self.calibrations.entry(key).or_default();
        calibration.ceiling = gate::ceiling(&greatest);
        calibration.builds = 0;
    }

    /// Greatest similarity of a unit's question to a claim of a unit that shares no source with it.
    fn noise(&self, probe: usize) -> f64 {
        let probe = &self.units[probe];
        let sources = probe.artifacts();
        let strangers = self.units.iter().filter(|other| {
            other.fresh
                && other.namespace == probe.namespace
                && other.id != probe.id
                && other.artifacts().is_disjoint(&sources)
        });
        let rows = strangers.flat_map(|other| &other.rows);
        rows.map(|row| cosine(&probe.seed, &row.vector))
            .fold(0.0, f64::max)
    }

    /// Several reads in a row, with the state of the gate after each.
    pub(super) fn get_sequence(&mut self, args: &Map<String, Value>) -> Result<Value, String> {
        let namespace = args
            .get("namespace")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let queries = args
            .get("queries")
            .and_then(Value::as_array)
            .ok_or("queries are missing")?;
        let mut reads = Vec::new();
        for query in queries {
            let mut get = args.clone();
            get.remove("queries");
            get.insert("query".into(), query.clone());
            self.trail = super::host::Trail::default();
            let result = self.get(&get)?;
            let gate_event = self
                .trail
                .events
                .iter()
                .find(|event| event["event"] == "pool_gate");
            let gate_event = gate_event.cloned().unwrap_or_default();
            let calibration = self.calibration(&namespace);
            let mut read = json!({
                "query": query,
                "gate_used": gate_event["gate"],
                "coverage": gate_event["coverage"],
                "outcome": gate_event["outcome"],
                "built": result["cache_hit"] == json!(false),
                "units_after": self.units.len(),
                "ceiling_after": calibration.ceiling,
                "gate_after": self.gate(&namespace),
                "builds_since_calibration": calibration.builds,
            });
            if !self.ours_in(Difference::NoiseSample) {
                let sample = self.noise_sample(&namespace).into_iter();
                let ids: Vec<&str> = sample.map(|at| self.units[at].id.as_str()).collect();
                read[PYTHON_SAMPLE] = json!(ids);
            }
            reads.push(read);
        }
        Ok(Value::Array(reads))
    }
}
