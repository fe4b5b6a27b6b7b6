//! Asking: a question, its rounds, its evidence, and the trace that records all of them.
//!
//! The host owns any model. It opens an ask, runs rounds, selects, refines and answers, and closes: `cortex_ask_open`,
//! `_round`, `_select`, `_refine`, `_answer`, `_close`. The whole ask looks at one state. `cortex_ask` makes the same
//! calls in one, without a model. Free text of an open ask lies in `cortex.ask`; closing moves it beside the trace.

mod close;
mod given;
mod policy;
mod state;
mod step;

use std::ffi::CStr;

use cortex_core::hash::{Context, Hash, digest};
use cortex_core::trace::{Mode, rules};
use pgrx::callconv::{Arg, ArgAbi};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{FromDatum, JsonB, direct_function_call, pg_sys};
use serde_json::{Value, json};

use self::close::Closed;
use self::state::{Ask, Kept, Waiting};
use crate::error::{Fault, Outcome, given};
use crate::retrieve::{self, MAX_UNSEALED};
use crate::rights::{self, Namespace, Owner};
use crate::serve::{self, MAX_QUERY};
use crate::vector::VectorRef;

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

/// Opens an ask at the present state: all of its rounds look at that state, whatever changes meanwhile. Answers with
/// its number, the policy in force and the state.
#[pg_extern(volatile, requires = ["tables"])]
fn cortex_ask_open(
    question: Option<&str>,
    mode: default!(Option<&str>, "'find_relevant'"),
    policy: default!(Option<JsonText>, "'{}'"),
    query_embedding: default!(Option<VectorRef>, "NULL"),
    namespace: default!(Option<&str>, "'default'"),
    sub_questions: default!(Option<Vec<Option<String>>>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(ask_id, i64),
            name!(policy, JsonB),
            name!(state, JsonB),
        ),
    >,
    ErrorReport,
> {
    let (namespace, ask) = open(
        question,
        mode,
        policy,
        query_embedding.as_ref(),
        namespace,
        sub_questions,
    )?;
    let owner = Owner::enter()?;
    let id = state::insert(&namespace, owner.caller(), &ask)?;
    drop(owner);
    let json = |value| JsonB(serde_json::to_value(value).unwrap_or(Value::Null));
    let policy = JsonB(json!(ask.policy));
    Ok(TableIterator::once((id, policy, json(&ask.state))))
}

fn open(
    question: Option<&str>,
    mode: Option<&str>,
    policy: Option<JsonText>,
    embedding: Option<&VectorRef>,
    namespace: Option<&str>,
    sub_questions: Option<Vec<Option<String>>>,
) -> Result<(Namespace, Ask), Fault> {
    let question = query(given(question, "question")?, "the question")?;
    let mode = read_mode(given(mode, "mode")?)?;
    let policy = given(policy, "policy")?;
    let name = given(namespace, "namespace")?;
    let planned = sub_questions.unwrap_or_default();
    let planned: Vec<String> = planned
        .into_iter()
        .zip(1..)
        .map(|(text, n)| {
            query(
                &given(text, "a sub-question")?,
                &format!("sub-question {n}"),
            )
        })
        .collect::<Result<_, _>>()?;
    // The rules know commitments only; equal texts have equal ones.
    let stand_in = |text: &str| digest(Context::Question, text.as_bytes());
    let plan: Vec<Hash> = planned.iter().map(|text| stand_in(text)).collect();
    rules::plan(mode, stand_in(&question), &plan).map_err(|broken| {
        Fault::argument(format!("sub_questions: expected {}", broken.expected))
            .hint("Give each sub-question once, at most 32, none of them the question itself.")
    })?;
    let owner = Owner::enter()?;
    let namespace = rights::readable(name, owner.caller())?;
    let present = retrieve::present(namespace.id)?;
    if present.uncommitted {
        return Err(Fault::state(
            "this transaction has changed the namespace, so nobody else could replay what it sees"
                .into(),
        )
        .hint("Commit first, then ask; cortex_read works here."));
    }
    if present.unsealed_overflow {
        return Err(Fault::state(format!(
            "more than {MAX_UNSEALED} changes have no number yet"
        ))
        .hint("Start the worker, or call cortex_seal()."));
    }
    let policy = policy::resolve(&policy, embedding.is_some() && namespace.space.is_some())?;
    let components = match (embedding, namespace.space) {
        (Some(embedding), Some(space)) => Some(serve::quantised(space, embedding)?),
        _ => None,
    };
    let space = namespace.space;
    Ok((
        namespace,
        Ask {
            question,
            mode,
            policy,
            state: present.state,
            space,
            components,
            planned,
            told: None,
            waiting: Vec::new(),
            rounds: Vec::new(),
        },
    ))
}

fn read_mode(name: &str) -> Result<Mode, Fault> {
    if name == "prove_or_abstain" {
        return Err(
            Fault::unsupported(format!("mode '{name}' is not available yet"))
                .hint("Mode evidence_answer checks what an answer cites."),
        );
    }
    let known = Mode::ALL.into_iter().find(|mode| mode.as_str() == name);
    known.ok_or_else(|| {
        let names = Mode::ALL.map(Mode::as_str).join(", ");
        Fault::argument(format!("unknown mode '{name}'")).hint(format!("Modes are {names}."))
    })
}

/// A query that may be asked. An empty one finds nothing, which is an answer.
fn query(text: &str, what: &str) -> Result<String, Fault> {
    if text.len() > MAX_QUERY {
        return Err(Fault::limit(format!(
            "{what} has {} bytes, the limit is {MAX_QUERY}",
            text.len()
        ))
        .hint("Ask with the question itself, not with a document."));
    }
    Ok(text.to_owned())
}

/// The caller's open ask of this number.
fn load(ask_id: Option<i64>) -> Result<Kept, Fault> {
    let ask_id = given(ask_id, "ask_id")?;
    let owner = Owner::enter()?;
    state::load(ask_id, owner.caller())
}

fn quantise(
    ask: &Ask,
    namespace: &Namespace,
    embedding: Option<&VectorRef>,
) -> Result<Option<Vec<i16>>, Fault> {
    let Some(embedding) = embedding else {
        return Ok(None);
    };
    let space = ask.space.ok_or_else(|| serve::no_space(namespace))?;
    let _owner = Owner::enter()?;
    serve::quantised(space, embedding).map(Some)
}

/// Runs the next query of an ask, the question first, then refinements and planned sub-questions, and returns what it
/// found: all that a model may see of it.
#[pg_extern(volatile, requires = ["tables"])]
#[expect(clippy::type_complexity, reason = "the columns of the result")]
fn cortex_ask_round(
    ask_id: Option<i64>,
    query_embedding: default!(Option<VectorRef>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(round, i32),
            name!(why, String),
            name!(query, String),
            name!(item_id, i64),
            name!(artifact_id, String),
            name!(title, Option<String>),
            name!(origin, Option<String>),
            name!(dated, Option<String>),
            name!(excerpt, String),
            name!(start_byte, i32),
            name!(end_byte, i32),
            name!(score, i64),
        ),
    >,
    ErrorReport,
> {
    let mut kept = load(ask_id)?;
    let components = quantise(&kept.ask, &kept.namespace, query_embedding.as_ref())?;
    let seen = step::round(&mut kept.ask, &kept.namespace, components)?;
    {
        let _owner = Owner::enter()?;
        kept.save()?;
        kept.save_round()?;
    }
    let number = kept.ask.rounds.len() as i32 - 1;
    let Some(round) = kept.ask.rounds.pop() else {
        return Err(Fault::internal("a round that ran is gone".into()).into());
    };
    let why = match round.origin {
        cortex_core::trace::Origin::Initial => "initial",
        cortex_core::trace::Origin::Planned => "planned",
        cortex_core::trace::Origin::Refine => "refine",
    };
    let query = round.query;
    Ok(TableIterator::new(seen.into_iter().map(move |seen| {
        let shown = seen.shown;
        (
            number,
            why.to_owned(),
            query.clone(),
            shown.item,
            shown.artifact_id,
            shown.title,
            shown.origin,
            shown.dated,
            seen.excerpt,
            shown.start,
            shown.end,
            shown.score,
        )
    })))
}

/// Records which items of a round are evidence. An id that the round did not show is refused with
/// `CORTEX_MODEL_UNBOUND`. Without ids the best are taken by a rule.
#[pg_extern(volatile, requires = ["tables"])]
fn cortex_ask_select(
    ask_id: Option<i64>,
    round: Option<i32>,
    item_ids: default!(Option<Vec<Option<i64>>>, "NULL"),
    model: default!(Option<JsonText>, "NULL"),
) -> Outcome<JsonB> {
    let round = given(round, "round")?;
    let call = given::call(model.as_ref())?;
    let ids = match item_ids {
        None => None,
        Some(ids) => {
            let ids = ids.into_iter().map(|id| given(id, "an item id"));
            Some(ids.collect::<Result<Vec<i64>, Fault>>()?)
        }
    };
    let mut kept = load(ask_id)?;
    let told = step::select(&mut kept.ask, round, ids, call)?;
    let _owner = Owner::enter()?;
    kept.save_round()?;
    Ok(JsonB(told))
}

/// Queues a query that is made from what is still missing, the gap. Refused after a round that added nothing.
#[pg_extern(volatile, requires = ["tables"])]
fn cortex_ask_refine(
    ask_id: Option<i64>,
    query: Option<&str>,
    gap: Option<&str>,
    query_embedding: default!(Option<VectorRef>, "NULL"),
    model: default!(Option<JsonText>, "NULL"),
) -> Outcome<JsonB> {
    let query = self::query(given(query, "query")?, "the query")?;
    let gap = self::query(given(gap, "gap")?, "the gap")?;
    if query.trim().is_empty() || gap.trim().is_empty() {
        return Err(Fault::argument("query or gap is blank".into())
            .hint("Say what is missing, and ask for it.")
            .into());
    }
    let model = given::call(model.as_ref())?;
    let mut kept = load(ask_id)?;
    let components = quantise(&kept.ask, &kept.namespace, query_embedding.as_ref())?;
    let waiting = Waiting {
        query,
        gap,
        parent: kept.ask.rounds.len().saturating_sub(1) as u32,
        components,
        model,
    };
    let told = step::refine(&mut kept.ask, waiting)?;
    let _owner = Owner::enter()?;
    kept.save()?;
    Ok(JsonB(told))
}

/// Takes an answer: its prose, the statements in it, and what each of them cites. Answers with the checks of each
/// statement. A citation of anything but selected evidence is refused with `CORTEX_MODEL_UNBOUND`.
#[pg_extern(volatile, requires = ["tables"])]
fn cortex_ask_answer(
    ask_id: Option<i64>,
    prose: Option<&str>,
    statements: default!(Option<JsonText>, "NULL"),
    citations: default!(Option<JsonText>, "NULL"),
    model: default!(Option<JsonText>, "NULL"),
) -> Outcome<JsonB> {
    if let Some(prose) = prose.filter(|prose| prose.len() > given::MAX_PROSE) {
        return Err(Fault::limit(format!(
            "the prose has {} bytes, the limit is {}",
            prose.len(),
            given::MAX_PROSE
        ))
        .into());
    }
    // A model that writes nothing abstains.
    let prose = prose
        .filter(|prose| !prose.trim().is_empty())
        .map(String::from);
    let statements = given::statements(statements.as_ref())?;
    let citations = given::citations(citations.as_ref(), statements.len())?;
    let model = given::call(model.as_ref())?;
    let mut kept = load(ask_id)?;
    let owner = Owner::enter()?;
    let told = step::answer(
        &mut kept.ask,
        &kept.namespace,
        prose,
        statements,
        citations,
        model,
    )?;
    kept.save()?;
    drop(owner);
    Ok(JsonB(told))
}

/// Closes an ask: its trace is recorded, its texts are moved beside it, and the ask is gone.
#[pg_extern(volatile, requires = ["tables"])]
#[expect(clippy::type_complexity, reason = "the columns of the result")]
fn cortex_ask_close(
    ask_id: Option<i64>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(trace_id, i64),
            name!(status, String),
            name!(reason, Option<String>),
            name!(evidence, JsonB),
            name!(statements, JsonB),
            name!(gaps, JsonB),
            name!(already, bool),
        ),
    >,
    ErrorReport,
> {
    let kept = load(ask_id)?;
    let closed = finish(&kept.ask, &kept.namespace)?;
    let _owner = Owner::enter()?;
    kept.remove()?;
    Ok(row(closed))
}

fn finish(ask: &Ask, namespace: &Namespace) -> Result<Closed, Fault> {
    let owner = Owner::enter()?;
    close::close(ask, namespace, owner.caller())
}

#[expect(clippy::type_complexity, reason = "the columns of the result")]
fn row(
    closed: Closed,
) -> TableIterator<
    'static,
    (
        name!(trace_id, i64),
        name!(status, String),
        name!(reason, Option<String>),
        name!(evidence, JsonB),
        name!(statements, JsonB),
        name!(gaps, JsonB),
        name!(already, bool),
    ),
> {
    TableIterator::once((
        closed.trace_id,
        closed.status,
        closed.reason,
        JsonB(closed.evidence),
        JsonB(closed.statements),
        JsonB(closed.gaps),
        closed.already,
    ))
}

/// Removes an open ask and all its texts; nothing is recorded.
#[pg_extern(volatile, requires = ["tables"])]
fn cortex_ask_abandon(ask_id: Option<i64>) -> Outcome<()> {
    let kept = load(ask_id)?;
    let _owner = Owner::enter()?;
    Ok(kept.remove()?)
}

/// Asks without a model, in one call: evidence and quotes, never prose. The same question at the same state gives the
/// same trace, and says `already`.
#[pg_extern(volatile, requires = ["tables"])]
#[expect(clippy::type_complexity, reason = "the columns of the result")]
fn cortex_ask(
    question: Option<&str>,
    query_embedding: default!(Option<VectorRef>, "NULL"),
    mode: default!(Option<&str>, "'find_relevant'"),
    policy: default!(Option<JsonText>, "'{}'"),
    namespace: default!(Option<&str>, "'default'"),
    sub_questions: default!(Option<Vec<Option<String>>>, "NULL"),
) -> Result<
    TableIterator<
        'static,
        (
            name!(trace_id, i64),
            name!(status, String),
            name!(reason, Option<String>),
            name!(evidence, JsonB),
            name!(statements, JsonB),
            name!(gaps, JsonB),
            name!(already, bool),
        ),
    >,
    ErrorReport,
> {
    let (namespace, mut ask) = open(
        question,
        mode,
        policy,
        query_embedding.as_ref(),
        namespace,
        sub_questions,
    )?;
    while ask.queries_waiting() > 0 && ask.rounds_left() > 0 {
        step::round(&mut ask, &namespace, None)?;
        let last = ask.rounds.len() as i32 - 1;
        step::select(&mut ask, last, None, None)?;
    }
    Ok(row(finish(&ask, &namespace)?))
}
