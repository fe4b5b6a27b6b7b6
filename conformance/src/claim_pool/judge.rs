//! Whether a read of ours keeps the rules for whose sake it differs. Checked on every read of a replay by
//! Cortex's rules, whether it differs there or not.

use std::collections::BTreeSet;

use cortex_core::pool::candidates::{WINDOW, cosine};
use cortex_core::pool::floor::{self, RESERVED_SHARE};
use cortex_core::pool::gate;
use cortex_core::pool::pack::Meter;

use super::build;
use super::case::Chunk;
use super::host::{DEFAULT_FLOOR, Host};
use super::peer::QuarterOfCharacters;
use super::read::Hit;
use super::serve::{Sent, Serving};
use super::unit::Unit;

/// Checks a read and the state it leaves.
pub fn read(
    host: &mut Host<'_>,
    order: &[Hit],
    chunks: &[Chunk],
    sent: &Sent,
    serving: &Serving<'_>,
) {
    if !host.judged {
        return;
    }
    let mut broken: Vec<String> = Vec::new();
    budget(host, order, chunks, sent, &mut broken);
    freshness(host, serving, &mut broken);
    units(host, &mut broken);
    band(host, serving, &mut broken);
    host.violations.extend(broken);
}

/// The budget is kept, with headers, and what less would serve is a prefix.
fn budget(host: &Host<'_>, order: &[Hit], chunks: &[Chunk], sent: &Sent, broken: &mut Vec<String>) {
    let budget = host.settings.budget;
    let total = sent.total_tokens();
    if total > budget {
        broken.push(format!(
            "{total} tokens are sent and the budget is {budget}"
        ));
    }
    for (at, entry) in sent.raw.iter().enumerate() {
        if sent.raw[..at].iter().any(|other| other.text == entry.text) {
            broken.push(format!("raw text of {:?} is sent twice", entry.source));
        }
    }
    let headers: Vec<String> = order
        .iter()
        .map(|hit| host.header(&host.units[hit.unit]))
        .collect();
    for header in &headers[..sent.served] {
        if !sent.payload.contains(header.as_str()) {
            broken.push(format!("header {header:?} was dropped"));
        }
    }
    let claims = host.claims(order, &headers);
    let raw: Vec<floor::Chunk<'_>> = chunks
        .iter()
        .map(|chunk| floor::Chunk {
            source: &chunk.artifact_id,
            text: &chunk.text,
            place: None,
        })
        .collect();
    let at = |budget| floor::serve(&claims, &raw, budget, RESERVED_SHARE, &QuarterOfCharacters);
    let mut less = at(0);
    for budget in [
        budget / 4,
        budget / 2,
        budget.saturating_sub(1),
        budget,
        budget + 1,
        2 * budget,
    ] {
        let more = at(budget);
        let longer = more.raw.len() >= less.raw.len()
            && less
                .raw
                .iter()
                .zip(&more.raw)
                .all(|(a, b)| a.chunk == b.chunk && a.held_bytes <= b.held_bytes);
        if !more.claims.served.starts_with(&less.claims.served) || !longer || more.tokens() > budget
        {
            broken.push(format!(
                "what is served at {budget} tokens does not begin with what less serves"
            ));
        }
        less = more;
    }
    // The reserved share holds at least what plain retrieval would fit there.
    let mut left = floor::reserve(budget, RESERVED_SHARE);
    let mut seen: Vec<&floor::Chunk<'_>> = Vec::new();
    for chunk in &raw {
        if chunk.text.trim().is_empty() || seen.contains(&chunk) {
            continue;
        }
        seen.push(chunk);
        let line = match chunk.source {
            "" => String::new(),
            source => format!("[source: {source}]"),
        };
        match left.checked_sub(QuarterOfCharacters.raw(&line, chunk.text)) {
            Some(rest) => left = rest,
            None => break,
        }
        if !sent
            .raw
            .iter()
            .any(|entry| entry.text.ends_with(chunk.text))
        {
            broken.push(format!(
                "raw text of {:?} fits the reserved share and is missing",
                chunk.source
            ));
        }
    }
}

/// Nothing stale is served, nothing fresh is crowded out, and no stale sibling is hidden.
fn freshness(host: &Host<'_>, serving: &Serving<'_>, broken: &mut Vec<String>) {
    let stale = serving
        .scan
        .fresh
        .iter()
        .any(|hit| !host.units[hit.unit].fresh);
    if stale {
        broken.push("a stale claim is among the candidates".into());
    }
    let units = host
        .units
        .iter()
        .filter(|unit| unit.namespace == serving.namespace);
    let rows: usize = units
        .clone()
        .filter(|unit| unit.fresh)
        .map(|unit| unit.rows.len())
        .sum();
    if serving.scan.fresh.len() != rows.min(WINDOW) {
        broken.push(format!(
            "{} of {rows} fresh rows are in the window",
            serving.scan.fresh.len()
        ));
    }
    let threshold = host.settings.reuse_threshold;
    let hidden = units.filter(|unit| {
        !unit.fresh
            && !unit.seed.is_empty()
            && cosine(&unit.seed, serving.question.vector) >= threshold
    });
    if serving.outcome.name() == "reuse" && hidden.count() > 0 {
        broken.push("a question is answered as known past a stale sibling".into());
    }
}

/// Every unit has evidence of its own sources and rows that say something, each with its own vector.
fn units(host: &Host<'_>, broken: &mut Vec<String>) {
    for unit in &host.units {
        let built = unit.epoch.is_none_or(|epoch| epoch >= 1_000.0) && unit.fresh;
        if built && unit.evidence.is_empty() && unit.rows.is_empty() {
            broken.push(format!(
                "unit {} holds nothing and stands as fresh",
                unit.id
            ));
        }
        if host.initial.contains(&unit.id) {
            continue;
        }
        let sources: BTreeSet<&str> = unit
            .evidence
            .iter()
            .map(|chunk| chunk.artifact_id.as_str())
            .collect();
        if sources.len() > 1 {
            broken.push(format!("unit {} mixes the sources {sources:?}", unit.id));
        }
        for claim in unit.claims() {
            match build::admitted_text(claim) {
                None => broken.push(format!("unit {} holds a claim without text", unit.id)),
                Some(text) => vector(host, unit, text, broken),
            }
        }
    }
}

fn vector(host: &Host<'_>, unit: &Unit, text: &str, broken: &mut Vec<String>) {
    let expected = host.embed(text);
    let row = unit.rows.iter().find(|row| row.text == text);
    let right = match row {
        Some(row) => row.vector == expected,
        // Without a recorded vector there can be no row.
        None => expected.iter().all(|&x| x == 0.0),
    };
    if !right {
        broken.push(format!(
            "claim {text:?} of unit {} has not the vector of its text",
            unit.id
        ));
    }
}

/// An adaptive gate stays in its band.
fn band(host: &Host<'_>, serving: &Serving<'_>, broken: &mut Vec<String>) {
    let gate = serving.gate;
    let within = (DEFAULT_FLOOR..=DEFAULT_FLOOR + gate::BAND).contains(&gate);
    if host.settings.gate.is_none() && !within {
        broken.push(format!("the gate {gate} is outside its band"));
    }
}

/// Checks that a build into a unit whose sources did not change forgot nothing.
pub fn added(host: &Host<'_>, before: &Unit, after: &Unit) -> Option<String> {
    let kept = |text: &str| after.rows.iter().any(|row| row.text == text);
    let lost = before.rows.iter().find(|row| !kept(&row.text))?;
    (host.judged && before.fresh).then(|| format!("unit {} forgot {:?}", after.id, lost.text))
}
