//! `cortex_ask`: a question, its evidence, and the trace that records both.

use std::ffi::CStr;

use cortex_core::excerpt::excerpt;
use cortex_core::hash::Target;
use cortex_core::trace::{
    EvidenceDraft, Head, Mode, Origin, Policy, Principal, Span, Status, Trace, TraceBuilder,
    Visible,
};
use cortex_core::{analyzer, chunker, lexical};
use pgrx::callconv::{Arg, ArgAbi};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{FromDatum, JsonB, direct_function_call, pg_sys};
use serde_json::{Value, json};

use crate::db;
use crate::error::{Fault, given};
use crate::retrieve::MAX_UNSEALED;
use crate::rights::{Namespace, Owner};
use crate::serve::{self, Item, Request, Served};
use crate::vector::VectorRef;

/// Answers a question by quoted evidence and records how in a trace, which `cortex_verify` checks. The same
/// question at the same state gives the same trace, and says `already`.
#[pg_extern(volatile, requires = ["tables"])]
fn cortex_ask(
    question: Option<&str>,
    query_embedding: default!(Option<VectorRef>, "NULL"),
    mode: default!(Option<&str>, "'find_relevant'"),
    policy: default!(Option<JsonText>, "'{}'"),
    namespace: default!(Option<&str>, "'default'"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(trace_id, i64),
            name!(status, String),
            name!(evidence, JsonB),
            name!(already, bool),
        ),
    >,
    ErrorReport,
> {
    let question = given(question, "question")?;
    let mode = given(mode, "mode")?;
    let namespace = given(namespace, "namespace")?;
    if mode != "find_relevant" {
        return Err(
            Fault::unsupported(format!("mode '{mode}' is not available yet"))
                .hint("Mode find_relevant answers with quoted evidence.")
                .into(),
        );
    }
    let policy = given(policy, "policy")?.policy()?;
    let request = Request {
        query: question,
        embedding: query_embedding.as_ref(),
        namespace,
        mode: "auto",
        target: Target::Chunk,
    };
    let served = serve::serve(&request, |shown| {
        shown.len() >= policy.max_candidates as usize
    })?;
    if served.present.uncommitted {
        return Err(Fault::state(
            "this transaction has changed the namespace, so nobody else could replay what it sees"
                .into(),
        )
        .hint("Commit first, then ask; cortex_read works here.")
        .into());
    }
    if served.present.unsealed_overflow {
        return Err(Fault::state(format!(
            "more than {MAX_UNSEALED} changes have no number yet"
        ))
        .hint("Start the worker, or call cortex_seal().")
        .into());
    }

    let (trace, quotes) = trace_of(&served, question, &policy)?;
    let evidence: Vec<Value> = quotes.iter().map(Quote::to_json).collect();
    let (id, already) = record(&served.namespace, &trace, question, &quotes)?;
    let status = match trace.answer.status {
        Status::Answered => "ANSWERED",
        Status::Partial => "PARTIAL",
        Status::InsufficientEvidence => "INSUFFICIENT_EVIDENCE",
    };
    Ok(TableIterator::once((
        id,
        status.into(),
        JsonB(Value::Array(evidence)),
        already,
    )))
}

/// An argument of type jsonb as the server prints it. pgrx's own type fails with XX000 on numbers that jsonb holds
/// and a float does not.
pub struct JsonText(pub String);

impl FromDatum for JsonText {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        _: pg_sys::Oid,
    ) -> Option<Self> {
        if is_null {
            return None;
        }
        // SAFETY: the caller promises a jsonb datum, which is what its output function takes.
        let text: Option<&CStr> =
            unsafe { direct_function_call(pg_sys::jsonb_out, &[Some(datum)]) };
        text.map(|text| JsonText(text.to_string_lossy().into_owned()))
    }
}

// SAFETY: unboxing goes through `FromDatum`.
unsafe impl<'fcx> ArgAbi<'fcx> for JsonText {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        unsafe { arg.unbox_arg_using_from_datum() }.expect("the function takes an Option")
    }
}

pgrx::impl_sql_translatable!(JsonText, arg_only = "jsonb");

impl JsonText {
    fn policy(&self) -> Result<Policy, Fault> {
        let value = serde_json::from_str(&self.0)
            .map_err(|error| Fault::argument(format!("policy cannot be read: {error}")))?;
        read_policy(&value)
    }
}

fn read_policy(given: &Value) -> Result<Policy, Fault> {
    let Value::Object(fields) = given else {
        return Err(Fault::argument("policy must be a JSON object".into()));
    };
    let mut policy = Policy::default();
    for (name, value) in fields {
        let (field, cap) = match name.as_str() {
            "max_rounds" => (&mut policy.max_rounds, Policy::CAPS.max_rounds),
            "max_candidates" => (&mut policy.max_candidates, Policy::CAPS.max_candidates),
            "max_evidence" => (&mut policy.max_evidence, Policy::CAPS.max_evidence),
            "excerpt_chars" => (&mut policy.excerpt_chars, Policy::CAPS.excerpt_chars),
            _ => {
                return Err(
                    Fault::argument(format!("unknown policy field '{name}'")).hint(
                        "Fields are max_rounds, max_candidates, max_evidence and excerpt_chars.",
                    ),
                );
            }
        };
        match value.as_u64() {
            Some(n) if (1..=u64::from(cap)).contains(&n) => *field = n as u32,
            _ => {
                return Err(Fault::argument(format!(
                    "policy.{name} = {value} is outside 1 to {cap}"
                )));
            }
        }
    }
    Ok(policy)
}

/// A piece of evidence as the caller gets it.
struct Quote {
    n: u32,
    item: Item,
    start: i32,
    end: i32,
    text: String,
}

impl Quote {
    fn to_json(&self) -> Value {
        json!({
            "n": self.n,
            "artifact_id": self.item.artifact_id,
            "version_id": self.item.version_id,
            "start_byte": self.start,
            "end_byte": self.end,
            "title": self.item.title,
            "origin": self.item.origin,
            "dated": self.item.dated,
            "score": self.item.ranked.score,
            "quote": self.text,
        })
    }
}

fn trace_of(
    served: &Served,
    question: &str,
    policy: &Policy,
) -> Result<(Trace, Vec<Quote>), Fault> {
    let broken = |error: cortex_core::trace::TraceError| Fault::internal(format!("trace: {error}"));
    let (origin, role) = {
        let owner = Owner::enter()?;
        db::read_one(
            "SELECT i.origin::text, r.rolname::text FROM cortex.installation i, pg_catalog.pg_roles r WHERE r.oid = $1",
            &[owner.caller().into()],
            |row| Ok((row.must::<String>(1)?, row.must::<String>(2)?)),
        )?
        .ok_or_else(|| Fault::internal("the installation has no row".into()))?
    };
    let head = Head {
        engine: concat!("cortex/", env!("CARGO_PKG_VERSION")).into(),
        analyzer: analyzer::NAME.into(),
        ranker: lexical::NAME.into(),
        chunker: chunker::NAME.into(),
        origin,
        namespace: served.namespace.name.clone(),
        principal: Principal {
            role,
            visible: Visible::Checked,
        },
        state: served.present.state.clone(),
        question: serve::commitment(&served.namespace, question)?,
        mode: Mode::FindRelevant,
        policy: policy.clone(),
    };
    let mut builder = TraceBuilder::new(head).map_err(broken)?;
    let chosen: Vec<&Item> = served
        .items
        .iter()
        .take(policy.max_evidence as usize)
        .collect();
    let selected: Vec<i64> = chosen.iter().map(|item| item.ranked.item).collect();
    let round = builder
        .round(Origin::Initial, served.receipt.clone(), &selected)
        .map_err(broken)?;
    let mut quotes = Vec::with_capacity(chosen.len());
    for item in chosen {
        let range = excerpt(&item.body, question, policy.excerpt_chars as usize);
        let (start, end) = (
            item.start_byte + range.start as i32,
            item.start_byte + range.end as i32,
        );
        let text = item.body[range].to_owned();
        let n = builder
            .evidence(EvidenceDraft {
                round,
                item: item.ranked.item,
                content: item.content,
                span: Span {
                    start: start as u64,
                    end: end as u64,
                },
                quote: serve::commitment(&served.namespace, &text)?,
            })
            .map_err(broken)?;
        quotes.push(Quote {
            n,
            item: item.clone(),
            start,
            end,
            text,
        });
    }
    Ok((builder.finish().map_err(broken)?, quotes))
}

/// Stores the trace and, apart from it, the texts behind its commitments.
fn record(
    namespace: &Namespace,
    trace: &Trace,
    question: &str,
    quotes: &[Quote],
) -> Result<(i64, bool), Fault> {
    let body = trace
        .to_text()
        .map_err(|error| Fault::internal(format!("trace: {error}")))?;
    let root = trace.roots.trace.0.to_vec();
    let (mut commitments, mut salts, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    for text in quotes
        .iter()
        .map(|quote| quote.text.as_str())
        .chain([question])
    {
        commitments.push(serve::commitment(namespace, text)?.0.to_vec());
        salts.push(serve::salt(namespace, text)?.0.to_vec());
        bodies.push(text.to_owned());
    }
    let owner = Owner::enter()?;
    db::execute(
        "INSERT INTO cortex.trace_text (namespace_id, commitment, salt, body) \
         SELECT DISTINCT $1, u.commitment, u.salt, u.body \
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
            owner.caller().into(),
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
