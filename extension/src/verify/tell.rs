//! A trace told: in sentences, as a document, and as a file for verifiers without the database.

use cortex_core::dossier::{self, Format};
use cortex_core::explain;
use cortex_core::trace::Trace;
use cortex_core::verify::Bundle;
use pgrx::prelude::*;

use super::{MAX_TRACE, Store, stored};
use crate::db;
use crate::error::{Fault, Outcome, given};
use crate::rights::{Namespace, Owner};
use crate::serve;

fn read(trace_id: Option<i64>) -> Result<(Namespace, Trace), Fault> {
    let trace_id = given(trace_id, "trace_id")?;
    let owner = Owner::enter()?;
    let (namespace, body) = stored(&owner, trace_id)?;
    let trace = Trace::from_text(&body).map_err(|error| {
        Fault::state(format!("trace {trace_id} cannot be read: {error}"))
            .hint("Run cortex_verify to see where it breaks.")
    })?;
    Ok((namespace, trace))
}

/// A stored trace in sentences, from the trace alone. It says what is recorded, not that it verifies.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
fn cortex_explain(trace_id: Option<i64>) -> Outcome<String> {
    Ok(explain::explain(&read(trace_id)?.1))
}

/// The text of a trace in sentences.
#[pg_extern(stable, parallel_restricted, name = "cortex_explain", requires = ["tables"])]
fn cortex_explain_text(trace: Option<&str>) -> Outcome<String> {
    let text = given(trace, "trace")?;
    if text.len() > MAX_TRACE {
        return Err(Fault::limit(format!(
            "the trace has {} bytes, the limit is {MAX_TRACE}",
            text.len()
        ))
        .into());
    }
    let trace = Trace::from_text(text).map_err(|error| {
        Fault::argument(format!("not a trace: {error}"))
            .hint("cortex_verify says of a text where it breaks.")
    })?;
    Ok(explain::explain(&trace))
}

/// A stored trace with its texts as a document: canonical JSON, Markdown or HTML. The same trace gives the same bytes
/// until a text is erased.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
fn cortex_dossier(
    trace_id: Option<i64>,
    format: default!(Option<&str>, "'json'"),
) -> Outcome<String> {
    let format = given(format, "format")?;
    let format = Format::from_name(format).ok_or_else(|| {
        Fault::argument(format!("unknown format '{format}'"))
            .hint("Formats are json, markdown and html.")
    })?;
    let (trace, bundle) = bundle(trace_id)?;
    let text = dossier::dossier(&trace, &bundle.texts(), format);
    Ok(text.map_err(|error| Fault::internal(format!("dossier: {error}")))?)
}

/// The items and texts that a verifier without the database needs to check a trace's evidence (L2), as `evidence/1`.
/// The file shows them, and the keys of the cited sources, to whoever has it. It holds whole chunks, of which the ask
/// showed excerpts; so the caller must still be allowed to read the tables that they come from.
#[pg_extern(stable, parallel_restricted, requires = ["tables"])]
fn cortex_trace_evidence(trace_id: Option<i64>) -> Outcome<String> {
    let (namespace, trace) = read(trace_id)?;
    {
        let owner = Owner::enter()?;
        let versions: Vec<i64> = trace.evidence.iter().map(|item| item.version).collect();
        let barred = serve::barred(&namespace, owner.caller())?;
        let closed = db::read_one(
            "SELECT b.name FROM cortex.source_version v JOIN cortex.source s ON s.id = v.source_id \
               JOIN cortex.binding b ON b.id = s.binding_id \
              WHERE v.id = ANY ($1) AND b.id = ANY ($2) ORDER BY b.id LIMIT 1",
            &[versions.into(), barred.into()],
            |row| row.must::<String>(1),
        )?;
        if let Some(name) = closed {
            return Err(Fault::privilege(format!(
                "evidence of this trace comes from the table of binding {name}, which you may not read any more"
            ))
            .hint("cortex_verify and cortex_dossier work without it.")
            .into());
        }
    }
    let text = bundle(trace_id)?.1.to_text();
    Ok(text.map_err(|error| Fault::internal(format!("evidence: {error}")))?)
}

fn bundle(trace_id: Option<i64>) -> Result<(Trace, Bundle), Fault> {
    let (namespace, trace) = read(trace_id)?;
    let _owner = Owner::enter()?;
    let mut store = Store::new(namespace);
    match Bundle::collect(&trace, &mut store) {
        Ok(bundle) => Ok((trace, bundle)),
        Err(told) => Err(store.interruption.unwrap_or_else(|| Fault::state(told))),
    }
}
