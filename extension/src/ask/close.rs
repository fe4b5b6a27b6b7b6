//! Closing an ask: the trace, and apart from it the texts behind its commitments.

use std::collections::BTreeMap;

use cortex_core::chunker;
use cortex_core::hash::{Hash, Salt, Target, commit};
use cortex_core::trace::{
    CitationDraft, EvidenceDraft, Head, ModelCall, Principal, RoundDraft, StatementDraft, Trace,
    TraceBuilder, TraceError, Visible,
};
use pgrx::pg_sys;
use serde_json::{Value, json};

use super::given::Call;
use super::state::{Ask, Shown};
use super::step::{gone, numbered, span};
use crate::chunk::key32;
use crate::db;
use crate::error::Fault;
use crate::rights::Namespace;
use crate::verify::stored_items;

/// What closing an ask gives.
pub struct Closed {
    pub trace_id: i64,
    pub status: String,
    pub reason: Option<String>,
    pub evidence: Value,
    pub statements: Value,
    pub gaps: Value,
    pub already: bool,
}

/// The texts of a trace, each committed to once.
struct Texts {
    secret: [u8; 32],
    kept: BTreeMap<Hash, (Salt, String)>,
}

impl Texts {
    fn commit(&mut self, text: &str) -> Hash {
        // Derived, because the same ask gives the same bytes.
        let salt = Salt::derived(&self.secret, text);
        let commitment = commit(&salt, text);
        self.kept.insert(commitment, (salt, text.to_owned()));
        commitment
    }

    fn call(&mut self, call: &Call) -> ModelCall {
        ModelCall {
            name: call.name.clone(),
            digest: call.digest.clone(),
            options: call.options.as_ref().map(|options| self.commit(options)),
            input: self.commit(&call.input),
            output: self.commit(&call.output),
        }
    }
}

fn broken(error: TraceError) -> Fault {
    Fault::internal(format!("trace: {error}"))
}

/// Builds the trace of an ask, stores it, and answers with what is in it. The same ask at the same state gives the
/// same trace, and says `already`. Call it as the owner; `caller` is who asks.
pub fn close(ask: &Ask, namespace: &Namespace, caller: pg_sys::Oid) -> Result<Closed, Fault> {
    let Some(first) = ask.rounds.first() else {
        return Err(Fault::state("nothing was asked yet".into())
            .hint("Call cortex_ask_round, or cortex_ask_abandon."));
    };
    if let Some(round) = ask.unselected() {
        return Err(
            Fault::state(format!("round {round} waits for its selection"))
                .hint("Call cortex_ask_select, with no ids if there is nothing to select."),
        );
    }
    let mut texts = Texts {
        secret: key32(namespace.secret.clone())?,
        kept: BTreeMap::new(),
    };
    let (origin, role) = db::read_one(
        "SELECT i.origin::text, r.rolname::text FROM cortex.installation i, pg_catalog.pg_roles r WHERE r.oid = $1",
        &[caller.into()],
        |row| Ok((row.must::<String>(1)?, row.must::<String>(2)?)),
    )?
    .ok_or_else(|| Fault::internal("the installation has no row".into()))?;
    let head = Head {
        engine: concat!("cortex/", env!("CARGO_PKG_VERSION")).into(),
        // An ask may be closed by a later version than ran its rounds.
        analyzer: first.receipt.analyzer.clone(),
        ranker: first.receipt.ranker.clone(),
        chunker: chunker::NAME.into(),
        origin,
        namespace: namespace.name.clone(),
        principal: Principal {
            role,
            visible: Visible::Checked,
        },
        state: ask.state.clone(),
        question: texts.commit(&ask.question),
        planned: ask
            .planned
            .iter()
            .map(|query| texts.commit(query))
            .collect(),
        mode: ask.mode,
        policy: ask.policy.clone(),
    };
    let mut builder = TraceBuilder::new(head).map_err(broken)?;
    for round in &ask.rounds {
        texts.commit(&round.query);
        let draft = RoundDraft {
            origin: round.origin,
            parent: round.parent,
            gap: round.gap.as_ref().map(|gap| texts.commit(gap)),
            refined_by: round.refined_by.as_ref().map(|call| texts.call(call)),
            receipt: round.receipt.clone(),
            selected_by: round.selected_by.as_ref().map(|call| texts.call(call)),
            selected: round.selected.clone().unwrap_or_default(),
        };
        builder.round(draft).map_err(broken)?;
    }
    let quotes = evidence(ask, namespace, &mut builder, &mut texts)?;
    if let Some(told) = &ask.told {
        let prose = told.prose.as_ref().map(|prose| texts.commit(prose));
        let model = told.model.as_ref().map(|call| texts.call(call));
        let statements = told.statements.iter().map(|stated| StatementDraft {
            text: stated.text.clone(),
            commitment: texts.commit(&stated.text),
            citations: stated
                .citations
                .iter()
                .map(|cited| CitationDraft {
                    n: cited.n,
                    quote: cited
                        .quote
                        .as_ref()
                        .map(|quote| (quote.clone(), texts.commit(quote))),
                })
                .collect(),
        });
        let statements = statements.collect();
        builder.answer(prose, model, statements).map_err(broken)?;
    }
    let trace = builder.finish().map_err(broken)?;
    let statements = super::step::check(ask, namespace)?;
    let families = trace.evidence.iter().map(|item| item.family);
    let evidence = quotes.into_iter().zip(families).map(|(mut quote, family)| {
        quote["family"] = family.into();
        quote
    });
    let gaps = trace.answer.gaps.iter().map(|gap| {
        let text = texts.kept.get(&gap.query).map(|(_, text)| text);
        json!({"query": text, "round": gap.round, "why": gap.why.as_str()})
    });
    let (evidence, gaps) = (evidence.collect(), gaps.collect());
    let (trace_id, already) = record(namespace, &trace, texts, caller)?;
    Ok(Closed {
        trace_id,
        status: trace.answer.status.as_str().into(),
        reason: trace.answer.reason.map(|reason| reason.as_str().into()),
        evidence: Value::Array(evidence),
        statements: Value::Array(statements),
        gaps: Value::Array(gaps),
        already,
    })
}

/// Adds one piece of evidence for each selected item, in the order of their selection.
fn evidence(
    ask: &Ask,
    namespace: &Namespace,
    builder: &mut TraceBuilder,
    texts: &mut Texts,
) -> Result<Vec<Value>, Fault> {
    let chosen = numbered(ask);
    let ids: Vec<i64> = chosen.iter().map(|(_, shown)| shown.item).collect();
    let stored = stored_items(namespace, Target::Chunk, &ids)?;
    let mut quotes = Vec::with_capacity(chosen.len());
    for (round, shown) in chosen {
        let kept = stored.get(&shown.item).ok_or_else(|| gone(shown.item))?;
        let span = span(shown);
        let quote = cortex_core::verify::text_at(&kept.item, span)
            .ok_or_else(|| gone(shown.item))?
            .to_owned();
        let n = builder
            .evidence(EvidenceDraft {
                round: round as u32,
                item: shown.item,
                content: kept.item.content,
                equality: kept.item.equality,
                start: kept.item.start,
                end: kept.item.end,
                text: kept.item.text.clone(),
                span,
                quote: texts.commit(&quote),
            })
            .map_err(broken)?;
        quotes.push(quote_json(n, round, shown, &quote));
    }
    Ok(quotes)
}

fn quote_json(n: u32, round: usize, shown: &Shown, quote: &str) -> Value {
    json!({
        "n": n,
        "round": round,
        "item": shown.item,
        "artifact_id": shown.artifact_id,
        "version_id": shown.version_id,
        "start_byte": shown.start,
        "end_byte": shown.end,
        "title": shown.title,
        "origin": shown.origin,
        "dated": shown.dated,
        "score": shown.score,
        "quote": quote,
    })
}

fn record(
    namespace: &Namespace,
    trace: &Trace,
    texts: Texts,
    caller: pg_sys::Oid,
) -> Result<(i64, bool), Fault> {
    let body = trace
        .to_text()
        .map_err(|error| Fault::internal(format!("trace: {error}")))?;
    let root = trace.roots.trace.0.to_vec();
    let (mut commitments, mut salts, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    for (commitment, (salt, text)) in texts.kept {
        commitments.push(commitment.0.to_vec());
        salts.push(salt.0.to_vec());
        bodies.push(text);
    }
    db::execute(
        "INSERT INTO cortex.trace_text (namespace_id, commitment, salt, body) \
         SELECT $1, u.commitment, u.salt, u.body \
           FROM ROWS FROM (unnest($2::bytea[]), unnest($3::bytea[]), unnest($4::text[])) AS u(commitment, salt, body) ORDER BY u.commitment \
         ON CONFLICT ON CONSTRAINT trace_text_pkey DO NOTHING",
        &[
            namespace.id.into(),
            commitments.into(),
            salts.into(),
            bodies.into(),
        ],
    )?;
    // Looked up first, so that asking again burns no number.
    let known = || {
        db::write_one(
            "SELECT id FROM cortex.trace WHERE namespace_id = $1 AND root = $2",
            &[namespace.id.into(), root.clone().into()],
            |row| row.must::<i64>(1),
        )
    };
    if let Some(id) = known()? {
        return Ok((id, true));
    }
    let made = db::write_one(
        "INSERT INTO cortex.trace (namespace_id, root, body, asked_by) \
         VALUES ($1, $2, $3, (SELECT r.rolname FROM pg_catalog.pg_roles r WHERE r.oid = $4)) \
         ON CONFLICT ON CONSTRAINT trace_root_key DO NOTHING RETURNING id",
        &[
            namespace.id.into(),
            root.clone().into(),
            body.into(),
            caller.into(),
        ],
        |row| row.must::<i64>(1),
    )?;
    match made {
        Some(id) => Ok((id, false)),
        None => known()?.map(|id| (id, true)).ok_or_else(|| {
            Fault::retry("the same trace is being recorded by another session".into())
        }),
    }
}
