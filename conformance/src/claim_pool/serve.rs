//! The second half of a read: order, packing, raw text and the result.

use cortex_core::pool::decide::{self, Outcome, Strategy};
use cortex_core::pool::floor::{self, RESERVED_SHARE};
use cortex_core::pool::header::{self, HeaderParts};
use cortex_core::pool::pack::{self, Claim};
use cortex_core::pool::rerank::{self, Reranked};
use serde_json::{Map, Value, json};

use super::build::Question;
use super::case::Chunk;
use super::hooks::{HeaderHook, RerankHook};
use super::host::Host;
use super::judge;
use super::peer::{self, Line, PeerPacked, QuarterOfCharacters};
use super::policy::Difference;
use super::read::{Hit, Scan};
use super::unit::{self, Unit};

/// What is known when serving begins.
pub struct Serving<'s> {
    /// The question and what its builds spent.
    pub question: &'s Question<'s>,
    /// Namespace of the read.
    pub namespace: &'s str,
    /// What the reader wants.
    pub strategy: Strategy,
    /// Most related units to name.
    pub related: i64,
    /// The gate that was used.
    pub gate: f64,
    /// The decision.
    pub outcome: Outcome,
    /// Coverage before any build.
    pub confidence: f64,
    /// A retrieval for builds brought nothing.
    pub nothing_found: bool,
    /// Chunks that were retrieved, if a retrieval ran.
    pub chunks: Option<Vec<Chunk>>,
    /// The scan to serve from.
    pub scan: Scan,
}

/// What is sent.
#[derive(Debug, Default)]
pub struct Sent {
    /// Number of claims, a prefix of the order.
    pub served: usize,
    /// The claims as text.
    pub payload: String,
    /// Size of the claims.
    pub tokens: u64,
    /// Header that each served owner got.
    pub headers: Map<String, Value>,
    /// Size of a first claim served beyond the budget.
    pub overrun: Option<u64>,
    /// Raw entries.
    pub raw: Vec<RawEntry>,
}

impl Sent {
    /// Size of claims and raw entries.
    pub fn total_tokens(&self) -> u64 {
        self.tokens + self.raw.iter().map(|entry| entry.tokens).sum::<u64>()
    }
}

/// A raw entry as it is sent.
#[derive(Debug)]
pub struct RawEntry {
    /// The entry.
    pub text: String,
    /// Its source.
    pub source: String,
    /// Its size.
    pub tokens: u64,
}

impl Host<'_> {
    pub(super) fn serve(&mut self, mut serving: Serving<'_>) -> Value {
        let (candidates, collapsed) = self.candidates(&serving.scan);
        let top = serving.scan.fresh.first().map_or(0.0, |hit| hit.score);
        let reranked = self.rerank(&candidates);
        if let Some(fault) = reranked
            .as_ref()
            .and_then(|reranked| reranked.fault.as_ref())
        {
            self.emit("rerank_failed", json!({"reason": fault.to_string()}));
        }
        let order: Vec<Hit> = match &reranked {
            Some(reranked) => reranked
                .order
                .iter()
                .map(|&at| candidates[at].clone())
                .collect(),
            None => candidates.clone(),
        };
        let was_reranked = reranked.is_some_and(|reranked| reranked.fault.is_none());

        let mut coverage = top;
        let in_band = coverage >= self.settings.floor && coverage < self.settings.ceiling;
        if let Some(answer) = self.settings.scorer.filter(|_| in_band) {
            coverage = answer;
        }
        let verdict = decide::verdict(
            coverage,
            self.settings.floor,
            serving.strategy,
            self.settings.escalation,
            serving.nothing_found,
        );
        if verdict.escalate && serving.chunks.is_none() {
            let chunks = self.retrieve(serving.question.text, serving.namespace);
            serving.chunks = Some(chunks);
        }
        let retrieved = serving.chunks.is_some();
        let chunks = serving.chunks.take().unwrap_or_default();
        let with_raw = verdict.escalate || verdict.raw_wanted && retrieved;
        let raw_chunks: &[Chunk] = if with_raw { &chunks } else { &[] };

        let sent = self.send(&order, raw_chunks, verdict.escalate);
        judge::read(self, &order, raw_chunks, &sent, &serving);
        if let Some(tokens) = sent.overrun {
            self.emit("pool_budget_overrun", json!({"est_tokens": tokens}));
        }
        self.counters.escalations += u64::from(verdict.escalate);
        self.trail.trace = Some(self.trace(&serving.scan, &candidates, &collapsed, &sent));

        let hit = !serving.question.built;
        let served = &order[..sent.served];
        let mut owners: Vec<usize> = Vec::new();
        for claim in served {
            if !owners.contains(&claim.unit) {
                owners.push(claim.unit);
            }
        }
        let ages = owners.iter().map(|&at| self.age(&self.units[at]));
        let age = ages.fold(0.0, f64::max);
        self.count(hit, retrieved, &owners, age);
        let event = json!({
            "n_claims": served.len(),
            "n_units": owners.len(),
            "coverage": coverage,
            "gate": serving.gate,
            "est_tokens": sent.tokens,
            "budget": self.settings.budget,
            "candidates_raw": serving.scan.fresh.len(),
            "candidates_unique": candidates.len(),
            "reranked": was_reranked,
            "reuse": serving.outcome == Outcome::Reuse,
        });
        self.emit("pool_served", event);

        let text = |claim: &Hit| self.units[claim.unit].rows[claim.row].text.clone();
        let texts: Vec<String> = served.iter().map(text).collect();
        let understanding = json!({"claims": texts});
        let mut context = json!({
            "pool": sent.payload,
            "serve": "pool",
            "understanding": understanding,
        });
        if with_raw {
            let entries: Vec<&str> = sent.raw.iter().map(|entry| entry.text.as_str()).collect();
            context["raw"] = json!(entries);
        }
        let mut sources: Vec<&str> = Vec::new();
        let evidence = owners.iter().flat_map(|&at| &self.units[at].evidence);
        let evidence = evidence.map(|chunk| chunk.artifact_id.as_str());
        let raw = sent.raw.iter().map(|entry| entry.source.as_str());
        for source in evidence.chain(raw.filter(|_| verdict.escalate)) {
            if !source.is_empty() && !sources.contains(&source) {
                sources.push(source);
            }
        }
        let pool: Vec<Value> = served
            .iter()
            .map(|claim| {
                json!({
                    "claim": text(claim),
                    "score": claim.score,
                    "unit_id": self.units[claim.unit].id,
                })
            })
            .collect();
        let shown = match serving.question.built || verdict.escalate {
            true => unit::pairs(&chunks),
            false => Vec::new(),
        };
        let usage = serving.question.usage.map(
            |usage| json!({"prompt_tokens": usage.prompt, "completion_tokens": usage.completion}),
        );
        json!({
            "cache_hit": hit,
            "unit_id": owners.first().map_or("", |&at| &self.units[at].id),
            "confidence": serving.confidence,
            "coverage": coverage,
            "escalated": verdict.escalate,
            "needs_retrieval": verdict.needs_retrieval,
            "namespace": serving.namespace,
            "read_id": format!("read-{}", self.counters.reads),
            "parent_read_id": "",
            "sources": sources,
            "max_source_age_s": age,
            "understanding": understanding,
            "context": context,
            "pool": pool,
            "recalled": [],
            "evidence": shown,
            "usage": usage,
            "related": self.related(&serving, owners.first().copied()),
            "probes": [],
            "probe_coverage": [],
            "gaps": [],
        })
    }

    fn count(&mut self, hit: bool, retrieved: bool, owners: &[usize], age: f64) {
        let saved = owners.first().map_or(0, |&at| self.units[at].synth_tokens);
        let counters = &mut self.counters;
        if hit {
            counters.hits += 1;
            counters.probe_reads += u64::from(retrieved);
            counters.tokens_saved += saved;
        }
        if owners.is_empty() {
            return;
        }
        counters.owners.0 += owners.len() as u64;
        counters.owners.1 += 1;
        if hit {
            counters.ages.0 += age;
            counters.ages.1 += 1;
            counters.max_age = counters.max_age.max(age);
        }
    }

    fn rerank(&self, candidates: &[Hit]) -> Option<Reranked> {
        let hook = self.settings.reranker.as_ref()?;
        let count = candidates.len();
        if count == 0 {
            return None;
        }
        let text = |at: usize| &self.units[candidates[at].unit].rows[candidates[at].row].text;
        let scores: Vec<Option<f64>> = (0..count)
            .map(|at| match hook {
                RerankHook::Reversed => Some(at as f64),
                RerankHook::NanFor(named) if text(at) == named => Some(f64::NAN),
                RerankHook::NoNumbers => None,
                _ => Some(1.0),
            })
            .collect();
        Some(match hook {
            RerankHook::Raises => rerank::order(count, Err("reranker down".into())),
            RerankHook::TooFew => rerank::order(count, Ok(&scores[1..])),
            _ => rerank::order(count, Ok(&scores)),
        })
    }

    /// Header of a unit; empty if it has none.
    pub(super) fn header(&self, unit: &Unit) -> String {
        let custom = self.settings.header.as_ref().map(|hook| match hook {
            HeaderHook::AroundId(before, after) => format!("{before}{}{after}", unit.id),
            HeaderHook::Fixed(text) => text.clone(),
            HeaderHook::Raises => String::new(),
        });
        let meta = |name: &str| unit.meta.get(name).map_or("", |value| value.trim());
        let artifact = unit
            .evidence
            .first()
            .map(|chunk| chunk.artifact_id.as_str());
        let source = artifact
            .filter(|artifact| !artifact.is_empty())
            .unwrap_or(&unit.id);
        if self.ours_in(Difference::SafeText) {
            let parts = HeaderParts {
                custom: custom.as_deref(),
                title: meta("title"),
                origin: meta("source"),
                date: meta("date"),
                question: &unit.query,
                source,
            };
            return header::header(&parts).unwrap_or_default();
        }
        if let Some(custom) = custom {
            return custom;
        }
        let fields: Vec<&str> = ["title", "source", "date"].into_iter().map(meta).collect();
        let fields: Vec<&str> = fields
            .into_iter()
            .filter(|field| !field.is_empty())
            .collect();
        let question = unit.query.trim();
        if !fields.is_empty() {
            format!("[{}]", fields.join(" | "))
        } else if !question.is_empty() {
            format!("## {}", question.chars().take(60).collect::<String>())
        } else {
            format!("[source: {source}]")
        }
    }

    /// Packs claims and raw text.
    fn send(&self, order: &[Hit], chunks: &[Chunk], escalated: bool) -> Sent {
        let budget = self.settings.budget;
        let raw_chunks: Vec<floor::Chunk<'_>> = chunks
            .iter()
            .map(|chunk| floor::Chunk {
                source: &chunk.artifact_id,
                text: &chunk.text,
                place: None,
            })
            .collect();
        if self.ours_in(Difference::BudgetKept)
            && self.ours_in(Difference::SafeText)
            && self.ours_in(Difference::RawCounts)
        {
            let headers: Vec<String> = order
                .iter()
                .map(|hit| self.header(&self.units[hit.unit]))
                .collect();
            let claims = self.claims(order, &headers);
            let served = floor::serve(
                &claims,
                &raw_chunks,
                budget,
                RESERVED_SHARE,
                &QuarterOfCharacters,
            );
            let owners = served.claims.served.iter().map(|&at| {
                let id = self.units[order[at].unit].id.clone();
                (id, json!(headers[at]))
            });
            return Sent {
                served: served.claims.served.len(),
                tokens: served.claims.tokens,
                headers: owners.collect(),
                overrun: None,
                raw: entries(served.raw, &raw_chunks),
                payload: served.claims.payload,
            };
        }
        // Some rule is the peer's.
        let lines: Vec<Line> = order.iter().map(|hit| self.line(hit)).collect();
        let at_least_one = !self.ours_in(Difference::BudgetKept);
        let (packed, raw) = match self.ours_in(Difference::RawCounts) {
            true => shared_budget(&lines, &raw_chunks, budget, at_least_one),
            false => {
                let raw: Vec<&Chunk> = match escalated {
                    true => peer_floor(chunks, budget),
                    false => chunks.iter().collect(),
                };
                let entry = |chunk: &&Chunk| RawEntry {
                    text: raw_entry(chunk),
                    source: chunk.artifact_id.clone(),
                    tokens: peer::estimate(&chunk.text),
                };
                let raw = raw.iter().map(entry).collect();
                (peer::pack(&lines, budget, at_least_one), raw)
            }
        };
        Sent {
            served: packed.served,
            payload: peer::render(&lines[..packed.served], &packed.headers),
            tokens: packed.tokens,
            headers: packed
                .headers
                .into_iter()
                .map(|(id, text)| (id, json!(text)))
                .collect(),
            overrun: packed.overrun,
            raw,
        }
    }

    pub(super) fn claims<'c>(
        &'c self,
        order: &[Hit],
        headers: &'c [String],
    ) -> Vec<Claim<'c, usize>> {
        let claim = |(hit, header): (&Hit, &'c String)| Claim {
            group: hit.unit,
            header: Some(header.as_str()),
            text: &self.units[hit.unit].rows[hit.row].text,
            place: None,
        };
        order.iter().zip(headers).map(claim).collect()
    }

    fn line(&self, hit: &Hit) -> Line {
        let unit = &self.units[hit.unit];
        let text = &unit.rows[hit.row].text;
        Line {
            unit: unit.id.clone(),
            header: self.header(unit),
            bullet: match self.ours_in(Difference::SafeText) {
                true => pack::bullet(text),
                false => format!("- {text}"),
            },
        }
    }

    fn trace(&self, scan: &Scan, kept: &[Hit], collapsed: &[(Hit, Hit)], sent: &Sent) -> Value {
        let name = |hit: &Hit| {
            let unit = &self.units[hit.unit];
            json!([unit.id, unit.rows[hit.row].index])
        };
        let candidates: Vec<Value> = kept
            .iter()
            .map(|hit| {
                let unit = &self.units[hit.unit];
                json!([unit.id, unit.rows[hit.row].index, hit.score])
            })
            .collect();
        let key = |hit: &Hit| {
            (
                &self.units[hit.unit].id,
                self.units[hit.unit].rows[hit.row].index,
            )
        };
        let mut collapsed: Vec<&(Hit, Hit)> = collapsed.iter().collect();
        collapsed.sort_by(|a, b| key(&a.0).cmp(&key(&b.0)));
        let collapsed: Vec<Value> = collapsed
            .iter()
            .map(|(row, into)| json!([name(row), name(into)]))
            .collect();
        json!({
            "scan_fresh_rows": scan.fresh.len(),
            "candidates": candidates,
            "collapsed": collapsed,
            "pack": {
                "est_tokens": sent.tokens,
                "headers": sent.headers,
                "n_claims": sent.served,
            },
        })
    }

    /// Units that share an entity or a source with the first owner, best first.
    fn related(&self, serving: &Serving<'_>, first: Option<usize>) -> Vec<Value> {
        let (Some(first), Ok(wanted)) = (first, usize::try_from(serving.related)) else {
            return Vec::new();
        };
        let unit = &self.units[first];
        let mut found: Vec<(f64, &Unit, &str)> = self
            .units
            .iter()
            .filter(|other| other.fresh && other.namespace == unit.namespace && other.id != unit.id)
            .filter_map(|other| {
                let relation = if !other.entities().is_disjoint(&unit.entities()) {
                    "shared_entity"
                } else if !other.artifacts().is_disjoint(&unit.artifacts()) {
                    "shared_source"
                } else {
                    return None;
                };
                Some((other.score(serving.question.vector), other, relation))
            })
            .collect();
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found.truncate(wanted);
        let shown = found.into_iter().map(|(score, other, relation)| {
            json!({"unit_id": other.id, "relation": relation, "score": score})
        });
        shown.collect()
    }
}

fn entries(raw: Vec<floor::Raw>, chunks: &[floor::Chunk<'_>]) -> Vec<RawEntry> {
    let entry = |raw: floor::Raw| RawEntry {
        text: raw.text,
        source: chunks[raw.chunk].source.to_owned(),
        tokens: raw.tokens,
    };
    raw.into_iter().map(entry).collect()
}

/// Cortex's split of the budget around the peer's packing.
fn shared_budget(
    lines: &[Line],
    chunks: &[floor::Chunk<'_>],
    budget: u64,
    at_least_one: bool,
) -> (PeerPacked, Vec<RawEntry>) {
    let raw = |budget| floor::serve::<usize>(&[], chunks, budget, 0.0, &QuarterOfCharacters);
    let reserved = floor::reserve(budget, RESERVED_SHARE);
    let within = raw(reserved);
    let complete = within == raw(u64::from(u32::MAX));
    let left = match complete {
        true => budget - within.tokens(),
        false => budget - reserved,
    };
    let packed = peer::pack(lines, left, at_least_one);
    let served = match complete || packed.served < lines.len() {
        true => within,
        false => raw(budget.saturating_sub(packed.tokens)),
    };
    (packed, entries(served.raw, chunks))
}

/// The peer's floor: distinct chunks in order while they fit into a budget of their own, at least one.
fn peer_floor(chunks: &[Chunk], budget: u64) -> Vec<&Chunk> {
    let mut taken: Vec<&Chunk> = Vec::new();
    let mut used = 0;
    for chunk in chunks {
        let same =
            |other: &&Chunk| other.artifact_id == chunk.artifact_id && other.text == chunk.text;
        if taken.iter().any(same) {
            continue;
        }
        let size = peer::estimate(&chunk.text);
        if !taken.is_empty() && used + size > budget {
            break;
        }
        used += size;
        taken.push(chunk);
    }
    taken
}

fn raw_entry(chunk: &Chunk) -> String {
    match chunk.artifact_id.as_str() {
        "" => chunk.text.clone(),
        artifact => format!("[source: {artifact}]\n{}", chunk.text),
    }
}
