//! `cortex_read`: a budgeted context of the pool's fresh claims, and whether it can be relied on.

mod coverage;
mod hooks;
mod probe;
mod settings;
mod stale;
mod vectors;

use std::collections::{HashMap, HashSet};

use cortex_core::hash::Target;
use cortex_core::pool::candidates::{self, KEPT_MAX, Quantised, Row};
use cortex_core::pool::decide::{self, Outcome as Decision};
use cortex_core::pool::floor::{self, Chunk};
use cortex_core::pool::header::{self, HeaderParts};
use cortex_core::pool::pack::{self, Claim, Estimate, Packed, Place};
use cortex_core::pool::rerank;
use cortex_core::pool::terms::Terms;
use cortex_core::receipt::{Arm, MAX_LIST};
use cortex_core::{analyzer, tokens};
use pgrx::JsonB;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use serde_json::{Value, json};

use crate::error::{Fault, given};
use crate::kept::{self, Access};
use crate::rights::{self, Owner};
use crate::serve::{self, Item, Request, Served};
use crate::vector::VectorRef;
use settings::{Asked, Settings};

/// One context of ranked, fresh claims under `budget_tokens`, each under the header of its source, and how far it can
/// be relied on.
///
/// `claims` lists what the payload holds, with provenance. `decision` is `serve`, `reuse` (the same question was built
/// before), `build` (what `wanted` names would help: hand it to cortex_build_want) or `escalate` (nothing to build,
/// and the claims do not cover the question). `coverage` is the similarity of the best claim, `match_score` that of the
/// first one served; below the floor `needs_retrieval` is true and, under strategy context_first, `raw` text stands
/// below the claims. `masked` names sources that answered before they changed,
/// with the reason: `changed` (not chunked yet) or, where vectors were asked, `not embedded` and not found by its words;
/// an entry `{"more": n, "reason": ..}` says that at least `n` more wait than were looked at. `pending` counts work that makes more
/// reachable; `next_needs` is the budget that would serve one claim more. `uncommitted` says that the calling
/// transaction has changed the namespace; `receipt` is NULL while more changes wait for a number than a state may list.
/// `details` is for cortex_read_log.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
#[expect(clippy::type_complexity, reason = "the columns of the result")]
fn cortex_read(
    query: Option<&str>,
    query_embedding: default!(Option<VectorRef>, "NULL"),
    budget_tokens: default!(Option<i32>, "NULL"),
    namespace: default!(Option<&str>, "'default'"),
    mode: default!(Option<&str>, "NULL"),
    strategy: default!(Option<&str>, "NULL"),
    profile: default!(Option<&str>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(payload, String),
            name!(tokens, i32),
            name!(claims, JsonB),
            name!(arms, String),
            name!(pending, i64),
            name!(wanted, JsonB),
            name!(next_needs, Option<i32>),
            name!(receipt, Option<String>),
            name!(decision, String),
            name!(coverage, f64),
            name!(match_score, f64),
            name!(needs_retrieval, bool),
            name!(masked, JsonB),
            name!(raw, Option<JsonB>),
            name!(uncommitted, bool),
            name!(details, JsonB),
        ),
    >,
    ErrorReport,
> {
    let query = given(query, "query")?;
    let namespace = given(namespace, "namespace")?;
    let asked = Asked {
        budget_tokens,
        mode,
        strategy,
        profile,
    };
    let read = Read::run(query, query_embedding.as_ref(), namespace, &asked)?;
    let claims = read.served().map(claim_json).collect();
    Ok(TableIterator::once((
        read.payload(),
        read.tokens() as i32,
        JsonB(Value::Array(claims)),
        serve::arms_text(&read.claims.arms),
        read.pending.iter().map(|(_, count)| count).sum(),
        JsonB(Value::Array(read.wanted.clone())),
        read.packed
            .next_needs
            .map(|next| i32::try_from(next.budget_tokens).unwrap_or(i32::MAX)),
        read.claims.receipt_text()?,
        read.decision().into(),
        read.coverage,
        read.served().next().map_or(0.0, coverage::similarity),
        read.needs_retrieval,
        JsonB(read.masked.clone()),
        read.raw_json()?.map(JsonB),
        read.claims.present.uncommitted,
        JsonB(read.details()),
    )))
}

/// A read of the pool.
struct Read {
    settings: Settings,
    claims: Served,
    /// Positions of claims in packing order.
    order: Vec<usize>,
    collapsed: usize,
    packed: Packed,
    raw: Vec<floor::Raw>,
    chunks: Option<Served>,
    outcome: Decision,
    escalated: bool,
    /// The sources were asked what a build could add.
    probed: bool,
    /// And builds have been through all that was found.
    contained: bool,
    coverage: f64,
    gate: f64,
    needs_retrieval: bool,
    wanted: Vec<Value>,
    masked: Value,
    pending: Vec<(String, i64)>,
    rerank_failed: Option<String>,
    header_failed: Option<String>,
    rerank_us: Option<u64>,
    /// What the builds behind the claims served once cost in tokens, by model.
    saved: Value,
}

impl Read {
    fn run(
        query: &str,
        embedding: Option<&VectorRef>,
        namespace: &str,
        asked: &Asked,
    ) -> Result<Self, Fault> {
        let settings = {
            let owner = Owner::enter()?;
            let namespace = rights::readable(namespace, owner.caller())?;
            Settings::load(&namespace, asked)?
        };
        let mode = settings.mode.clone();
        let request = Request {
            query,
            embedding,
            namespace,
            mode: &mode,
            target: Target::Claim,
        };
        let (claims, kept) = ranked_claims(&request, &settings)?;
        let by_vector = claims.arms.contains(&Arm::Vector);
        let terms = Terms::new(query, claims.receipt.stats.items, |term| {
            claims.holding.get(term).copied().unwrap_or(0)
        });
        let best = coverage::best(&claims.items, &terms, by_vector);
        let (gate, least) = settings.thresholds(by_vector);

        let owner = Owner::enter()?;
        let reuse = match &claims.vector {
            Some(vector) if settings.builds => probe::reused(
                claims.namespace.id,
                vector.space,
                &vector.components,
                settings.reuse_threshold,
            )?,
            _ => false,
        };
        let outcome = decide::outcome(reuse, best, gate);
        let coverage = best.unwrap_or(0.0);
        let masked = stale::masked(
            &owner,
            &claims.namespace,
            &terms,
            claims.vector.as_ref(),
            least,
        )?;
        let pending = pending(claims.namespace.id)?;
        drop(owner);

        let collapsed = claims.items.len() - kept.len();
        let Order {
            places: order,
            took_us: rerank_us,
            fault: rerank_failed,
        } = reranked(&settings, query, &claims, kept)?;
        let verdict = decide::verdict(coverage, least, settings.strategy, true, false);
        let raw_wanted = verdict.escalate || (verdict.raw_wanted && outcome == Decision::Build);
        let probing = outcome == Decision::Build && settings.builds;
        let chunks = if raw_wanted || probing {
            let raw_tokens = if raw_wanted {
                settings.budget_tokens
            } else {
                0
            };
            Some(probe::chunks(&request, raw_tokens)?)
        } else {
            None
        };
        let wanted = match &chunks {
            Some(found) if probing => {
                let _owner = Owner::enter()?;
                probe::wanted(&found.items)?
            }
            _ => Vec::new(),
        };
        let nothing_found = chunks.as_ref().is_some_and(|found| found.items.is_empty());
        let (headers, header_failed) = headers(&settings, &claims.items, &order)?;
        let offered: Vec<Claim<&str>> = order
            .iter()
            .map(|&at| {
                let item = &claims.items[at];
                Claim {
                    group: item.artifact_id.as_str(),
                    header: headers
                        .get(item.artifact_id.as_str())
                        .and_then(|h| h.as_deref()),
                    text: &item.body,
                    place: place(item),
                }
            })
            .collect();
        let (packed, raw) = match &chunks {
            Some(found) if raw_wanted => {
                let chunks: Vec<Chunk> = found
                    .items
                    .iter()
                    .map(|item| Chunk {
                        source: &item.artifact_id,
                        text: &item.body,
                        place: place(item),
                    })
                    .collect();
                let served = floor::serve(
                    &offered,
                    &chunks,
                    settings.budget_tokens,
                    settings.reserved_share,
                    &Estimate,
                );
                (served.claims, served.raw)
            }
            _ => (
                pack::pack(&offered, settings.budget_tokens, &Estimate),
                Vec::new(),
            ),
        };
        // What is named as not embedded, and yet was found by its words, is not missing.
        let shown: HashSet<&str> = packed
            .served
            .iter()
            .map(|&place| claims.items[order[place]].artifact_id.as_str())
            .chain(raw.iter().filter_map(|entry| {
                let found = chunks.as_ref()?.items.get(entry.chunk)?;
                Some(found.artifact_id.as_str())
            }))
            .collect();
        let masked = stale::unless_shown(masked, &shown);
        let saved = match outcome {
            Decision::Serve | Decision::Reuse if settings.builds => {
                let ids: Vec<i64> = packed
                    .served
                    .iter()
                    .map(|&place| claims.items[order[place]].ranked.item)
                    .collect();
                saved(&ids)?
            }
            _ => json!({}),
        };
        Ok(Read {
            saved,
            needs_retrieval: verdict.needs_retrieval
                || (outcome == Decision::Build && nothing_found),
            escalated: verdict.escalate,
            probed: probing,
            contained: probing && !nothing_found && wanted.is_empty(),
            settings,
            claims,
            order,
            collapsed,
            packed,
            raw,
            chunks,
            outcome,
            coverage,
            gate,
            wanted,
            masked,
            pending,
            rerank_failed,
            header_failed,
            rerank_us,
        })
    }

    /// The claims of the payload, in serving order.
    fn served(&self) -> impl Iterator<Item = &Item> {
        self.packed
            .served
            .iter()
            .filter_map(|&place| self.claims.items.get(*self.order.get(place)?))
    }

    fn payload(&self) -> String {
        let mut parts: Vec<&str> = Vec::new();
        if !self.packed.payload.is_empty() {
            parts.push(&self.packed.payload);
        }
        parts.extend(self.raw.iter().map(|entry| entry.text.as_str()));
        parts.join("\n\n")
    }

    fn tokens(&self) -> u32 {
        tokens::estimate(&self.payload())
    }

    fn decision(&self) -> &'static str {
        match self.outcome {
            Decision::Reuse => "reuse",
            Decision::Serve => "serve",
            Decision::Build if !self.wanted.is_empty() => "build",
            Decision::Build if self.needs_retrieval => "escalate",
            // Below the gate, above the floor, and all that could help is in the pool already.
            Decision::Build => "serve",
        }
    }

    fn raw_json(&self) -> Result<Option<Value>, Fault> {
        let Some(found) = self.chunks.as_ref().filter(|_| !self.raw.is_empty()) else {
            return Ok(None);
        };
        let chunks: Vec<Value> = self
            .raw
            .iter()
            .filter_map(|entry| {
                let item = found.items.get(entry.chunk)?;
                let start = item.start_byte + i32::try_from(entry.start_byte).ok()?;
                let held = i32::try_from(entry.held_bytes).ok()?;
                Some(json!({
                    "chunk_id": item.ranked.item,
                    "artifact_id": item.artifact_id,
                    "version_id": item.version_id,
                    "start_byte": start,
                    "end_byte": start + held,
                    "cut": entry.held_bytes < item.body.len(),
                    "tokens": entry.tokens,
                }))
            })
            .collect();
        Ok(Some(
            json!({"chunks": chunks, "receipt": found.receipt_text()?}),
        ))
    }

    fn details(&self) -> Value {
        let mut sources: Vec<&str> = self
            .served()
            .map(|item| item.artifact_id.as_str())
            .collect();
        sources.sort_unstable();
        sources.dedup();
        json!({
            "v": 1,
            "saved": self.saved,
            "payload": pack::NAME,
            "tokenizer": tokens::NAME,
            "decision": self.decision(),
            "coverage": self.coverage,
            "coverage_by": if self.claims.vector.is_some() { "cosine" } else { "terms" },
            "gate": self.gate,
            "n_claims": self.packed.served.len(),
            "n_sources": sources.len(),
            "tokens": self.tokens(),
            "budget_tokens": self.settings.budget_tokens,
            "candidates_raw": self.claims.items.len(),
            "candidates_unique": self.claims.items.len() - self.collapsed,
            "reranked": self.rerank_us.is_some() && self.rerank_failed.is_none(),
            "rerank_failed": self.rerank_failed,
            "rerank_ms": self.rerank_us.map(|us| us as f64 / 1_000.0),
            "header_failed": self.header_failed,
            "reuse": self.outcome == Decision::Reuse,
            "needs_retrieval": self.needs_retrieval,
            "masked": self.masked,
            "escalated": self.escalated,
            "probed": self.probed,
            "contained": self.contained,
            "floor_chunks": self.raw.len(),
            "pending": self.pending.iter().map(|(kind, count)| (kind.clone(), json!(count)))
                .collect::<serde_json::Map<_, _>>(),
            "claim_ids": self.served().map(|item| item.ranked.item).collect::<Vec<_>>(),
        })
    }
}

/// The claims that may be served, with the positions of those that repeat no other. As many as the budget can hold are
/// looked at, or with a reranker always the same number, so that what it sees does not depend on the budget.
fn ranked_claims(request: &Request, settings: &Settings) -> Result<(Served, Vec<usize>), Fault> {
    let mut least = settings.budget_tokens;
    let looked_at = coverage::looked_at(request.mode);
    loop {
        let served = serve::serve(request, |shown| {
            if settings.reranker.is_some() {
                return shown.len() >= KEPT_MAX;
            }
            let tokens = shown
                .iter()
                .map(|item| u64::from(tokens::estimate(&item.body)));
            shown.len() >= looked_at && tokens.sum::<u64>() > least
        })?;
        let kept = collapse(&served)?;
        let offered: u64 = kept
            .iter()
            .map(|&at| u64::from(tokens::estimate(&served.items[at].body)))
            .sum();
        let more = served.receipt.total_matched > served.considered as u64
            && served.items.len() < MAX_LIST;
        // So much repeated itself that the budget may not be filled: look further down.
        if more && settings.reranker.is_none() && offered <= settings.budget_tokens {
            least = least.saturating_mul(4);
            continue;
        }
        return Ok((served, kept));
    }
}

/// Leaves out what a source says twice.
fn collapse(served: &Served) -> Result<Vec<usize>, Fault> {
    let items = &served.items;
    let mut places: HashMap<&str, usize> = HashMap::new();
    for item in items {
        *places.entry(item.artifact_id.as_str()).or_default() += 1;
    }
    let repeated = |item: &Item| {
        places
            .get(item.artifact_id.as_str())
            .is_some_and(|n| *n > 1)
    };
    let asked: Vec<i64> = items
        .iter()
        .filter(|item| repeated(item))
        .map(|item| item.ranked.item)
        .collect();
    let vectors = match served.namespace.space {
        Some(space) => {
            let _owner = Owner::enter()?;
            vectors::stored(space, &asked)?
        }
        None => HashMap::new(),
    };
    let normal: Vec<Option<String>> = items
        .iter()
        .map(|item| repeated(item).then(|| analyzer::normalise(&item.body)))
        .collect();
    let rows: Vec<Row<&str>> = items
        .iter()
        .map(|item| Row {
            owner: item.artifact_id.as_str(),
            text: &item.body,
        })
        .collect();
    let measured: Vec<Option<Quantised>> = items
        .iter()
        .map(|item| {
            vectors
                .get(&item.ranked.item)
                .map(|vector| Quantised::of(vector))
        })
        .collect();
    let found = candidates::collapse_within(&rows, MAX_LIST, MAX_LIST, |kept, row| {
        normal[kept].is_some() && normal[kept] == normal[row]
            || match (&measured[kept], &measured[row]) {
                (Some(a), Some(b)) => a.similar(b).unwrap_or(false),
                _ => false,
            }
    });
    Ok(found.kept)
}

/// The order in which claims are packed.
struct Order {
    /// Positions of claims.
    places: Vec<usize>,
    /// How long a reranker took, if one was asked.
    took_us: Option<u64>,
    /// Why it was not followed.
    fault: Option<String>,
}

/// The order of the claims kept, by the namespace's reranker if it has one.
fn reranked(
    settings: &Settings,
    query: &str,
    served: &Served,
    kept: Vec<usize>,
) -> Result<Order, Fault> {
    let Some(function) = settings.reranker.as_ref().filter(|_| !kept.is_empty()) else {
        return Ok(Order {
            places: kept,
            took_us: None,
            fault: None,
        });
    };
    let (asked, rest) = kept.split_at(kept.len().min(KEPT_MAX));
    let texts: Vec<&str> = asked
        .iter()
        .map(|&at| served.items[at].body.as_str())
        .collect();
    let start = std::time::Instant::now();
    let owner = Owner::enter()?;
    let scores = hooks::rerank(&owner, function, settings.hook_timeout_ms, query, &texts)?;
    drop(owner);
    let took = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let ranked = rerank::order(asked.len(), scores.as_deref().map_err(Clone::clone));
    let mut places: Vec<usize> = ranked.order.iter().map(|&place| asked[place]).collect();
    places.extend_from_slice(rest);
    Ok(Order {
        places,
        took_us: Some(took),
        fault: ranked.fault.map(|fault| fault.to_string()),
    })
}

/// The header of each source, and why a header function was not followed.
#[expect(clippy::type_complexity, reason = "headers by source, and the fault")]
fn headers<'a>(
    settings: &Settings,
    items: &'a [Item],
    order: &[usize],
) -> Result<(HashMap<&'a str, Option<String>>, Option<String>), Fault> {
    let mut headers: HashMap<&str, Option<String>> = HashMap::new();
    let mut failed = None;
    // Enough to fill the budget: a header and a claim are never smaller than this.
    let mut least = 0;
    for &at in order {
        let item = &items[at];
        if least > settings.budget_tokens {
            break;
        }
        least += u64::from(tokens::estimate(&item.body));
        if headers.contains_key(item.artifact_id.as_str()) {
            continue;
        }
        let custom = match &settings.header {
            Some(function) if failed.is_none() => {
                let owner = Owner::enter()?;
                match hooks::header(&owner, function, settings.hook_timeout_ms, item)? {
                    Ok(text) => Some(text),
                    Err(reason) => {
                        failed = Some(reason);
                        None
                    }
                }
            }
            _ => None,
        };
        let parts = HeaderParts {
            custom: custom.as_deref(),
            title: item.title.as_deref().unwrap_or(""),
            origin: item.origin.as_deref().unwrap_or(""),
            date: item.dated.as_deref().unwrap_or(""),
            question: "",
            source: &item.artifact_id,
        };
        headers.insert(item.artifact_id.as_str(), header::header(&parts));
    }
    Ok((headers, failed))
}

/// Where an item stands in its source.
fn place(item: &Item) -> Option<Place> {
    Some(Place {
        version: item.version_id,
        start: usize::try_from(item.start_byte).ok()?,
        end: usize::try_from(item.end_byte).ok()?,
    })
}

fn claim_json(item: &Item) -> Value {
    json!({
        "claim_id": item.ranked.item,
        "artifact_id": item.artifact_id,
        "version_id": item.version_id,
        "start_byte": item.start_byte,
        "end_byte": item.end_byte,
        "score": item.ranked.score,
        "body": item.body,
    })
}

/// Work that waits to make more reachable, by its kind.
fn pending(namespace: i32) -> Result<Vec<(String, i64)>, Fault> {
    kept::read(
        Access::Index,
        "SELECT j.kind, sum(greatest(coalesce(j.total, 0) - j.progress, 1))::int8 FROM cortex.job j \
          WHERE j.namespace_id = $1 AND j.state <> 'dead' GROUP BY j.kind ORDER BY j.kind",
        &[namespace.into()],
        |row| Ok((row.must::<String>(1)?, row.must::<i64>(2)?)),
    )
}

/// What building the units of these claims cost in tokens, by model.
fn saved(claims: &[i64]) -> Result<Value, Fault> {
    let _owner = Owner::enter()?;
    let costs = kept::read(
        Access::Index,
        "SELECT a.model, sum(a.prompt_tokens + a.completion_tokens)::int8 FROM cortex.unit_addition a \
          WHERE a.model IS NOT NULL \
            AND a.unit_id IN (SELECT c.unit_id FROM cortex.claim c WHERE c.id = ANY ($1)) GROUP BY a.model",
        &[claims.to_vec().into()],
        |row| Ok((row.must::<String>(1)?, json!(row.must::<i64>(2)?))),
    )?;
    Ok(Value::Object(costs.into_iter().collect()))
}
