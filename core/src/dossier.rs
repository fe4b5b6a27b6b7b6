//! A trace with its texts as a document for people: `dossier/1` as JSON, Markdown or HTML. The same trace and the same
//! texts give the same bytes. A text that was erased is shown as such.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::canon::{self, CanonError};
use crate::explain::{because, explain};
use crate::hash::Hash;
use crate::receipt::State;
use crate::trace::{Policy, Reason, Status, Trace};

/// Form of a dossier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Canonical JSON.
    Json,
    /// Markdown in which every text is escaped.
    Markdown,
    /// One HTML page without scripts, in which every text is escaped.
    Html,
}

impl Format {
    /// The form of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "json" => Some(Self::Json),
            "markdown" => Some(Self::Markdown),
            "html" => Some(Self::Html),
            _ => None,
        }
    }
}

/// What stands for a text that is not there any more.
const ERASED: &str = "[erased]";

#[derive(Serialize)]
struct Dossier<'a> {
    v: &'static str,
    trace: Hash,
    namespace: &'a str,
    role: &'a str,
    engine: &'a str,
    mode: &'static str,
    policy: &'a Policy,
    state: &'a State,
    question: Option<&'a str>,
    status: &'static str,
    reason: Option<&'static str>,
    prose: Option<Option<&'a str>>,
    statements: Vec<Stated<'a>>,
    evidence: Vec<Quoted<'a>>,
    gaps: Vec<Missing<'a>>,
    rounds: Vec<Ran<'a>>,
    sources: u32,
    families: u32,
    explanation: String,
}

#[derive(Serialize)]
struct Stated<'a> {
    n: u32,
    text: Option<&'a str>,
    supported: bool,
    numbers: &'static str,
    citations: Vec<Cited<'a>>,
}

#[derive(Serialize)]
struct Cited<'a> {
    n: u32,
    check: &'static str,
    quote: Option<Option<&'a str>>,
    other: Option<u32>,
}

#[derive(Serialize)]
struct Quoted<'a> {
    n: u32,
    artifact: &'a str,
    version: i64,
    start: u64,
    end: u64,
    family: u32,
    quote: Option<&'a str>,
}

#[derive(Serialize)]
struct Missing<'a> {
    query: Option<&'a str>,
    why: &'static str,
}

#[derive(Serialize)]
struct Ran<'a> {
    i: u32,
    query: Option<&'a str>,
    gap: Option<Option<&'a str>>,
    candidates: usize,
    selected: usize,
    stalled: bool,
}

/// Writes the dossier of a trace; `texts` are those of its commitments that are still there.
///
/// # Errors
/// Where a number is outside ±(2^53 - 1).
pub fn dossier(
    trace: &Trace,
    texts: &BTreeMap<Hash, &str>,
    format: Format,
) -> Result<String, CanonError> {
    let dossier = collect(trace, texts);
    match format {
        Format::Json => canon::to_text(&dossier),
        Format::Markdown => Ok(markdown(&dossier, trace.answer.reason)),
        Format::Html => Ok(html(&dossier, trace.answer.reason)),
    }
}

fn collect<'a>(trace: &'a Trace, texts: &BTreeMap<Hash, &'a str>) -> Dossier<'a> {
    let text = |commitment: &Hash| texts.get(commitment).copied();
    let answer = &trace.answer;
    Dossier {
        v: "dossier/1",
        trace: trace.roots.trace,
        namespace: &trace.namespace,
        role: &trace.principal.role,
        engine: &trace.engine,
        mode: trace.mode.as_str(),
        policy: &trace.policy,
        state: &trace.state,
        question: text(&trace.question),
        status: answer.status.as_str(),
        reason: answer.reason.map(Reason::as_str),
        prose: answer.prose.as_ref().map(text),
        statements: answer
            .statements
            .iter()
            .map(|statement| Stated {
                n: statement.n,
                text: text(&statement.text),
                supported: statement.supported,
                numbers: statement.numbers.as_str(),
                citations: statement
                    .citations
                    .iter()
                    .map(|citation| Cited {
                        n: citation.n,
                        check: citation.check.as_str(),
                        quote: citation.quote.as_ref().map(text),
                        other: citation.other,
                    })
                    .collect(),
            })
            .collect(),
        evidence: trace
            .evidence
            .iter()
            .map(|item| Quoted {
                n: item.n,
                artifact: &item.artifact,
                version: item.version,
                start: item.span.start,
                end: item.span.end,
                family: item.family,
                quote: text(&item.quote),
            })
            .collect(),
        gaps: answer
            .gaps
            .iter()
            .map(|gap| Missing {
                query: text(&gap.query),
                why: gap.why.as_str(),
            })
            .collect(),
        rounds: trace
            .rounds
            .iter()
            .map(|round| Ran {
                i: round.i,
                query: text(&round.query),
                gap: round.gap.as_ref().map(text),
                candidates: round.receipt.candidates.len(),
                selected: round.selected.len(),
                stalled: round.stalled,
            })
            .collect(),
        sources: answer.sources,
        families: answer.families,
        explanation: explain(trace),
    }
}

/// One document in a markup: what differs between Markdown and HTML.
struct Markup {
    escape: fn(&str) -> String,
    heading: fn(&mut String, u8, &str),
    paragraph: fn(&mut String, &str),
    quote: fn(&mut String, &str),
}

fn body(dossier: &Dossier<'_>, reason: Option<Reason>, markup: &Markup) -> String {
    let mut out = String::new();
    let escape = markup.escape;
    let or_erased = |text: Option<&str>| escape(text.unwrap_or(ERASED));
    (markup.heading)(&mut out, 1, &or_erased(dossier.question));
    let mut status = format!("Status: {}.", escape(dossier.status));
    if let Some(reason) = reason.filter(|_| dossier.status != Status::Answered.as_str()) {
        let _ = write!(status, " {}", escape(because(reason)));
    }
    (markup.paragraph)(&mut out, &status);
    if let Some(prose) = dossier.prose {
        (markup.heading)(&mut out, 2, "Answer");
        (markup.paragraph)(&mut out, &or_erased(prose));
    }
    if !dossier.statements.is_empty() {
        (markup.heading)(&mut out, 2, "Statements");
    }
    for statement in &dossier.statements {
        let verdict = match statement.supported {
            true => "supported",
            false => "NOT supported",
        };
        let mut text = format!(
            "{}. {} ({verdict}; numbers: {})",
            statement.n,
            or_erased(statement.text),
            statement.numbers
        );
        for citation in &statement.citations {
            let _ = write!(
                text,
                " {}",
                escape(&format!("[{}: {}]", citation.n, citation.check))
            );
        }
        (markup.paragraph)(&mut out, &text);
        for quote in statement
            .citations
            .iter()
            .filter_map(|citation| citation.quote)
        {
            (markup.quote)(&mut out, &or_erased(quote));
        }
    }
    (markup.heading)(&mut out, 2, "Evidence");
    if dossier.evidence.is_empty() {
        (markup.paragraph)(&mut out, "None.");
    }
    for item in &dossier.evidence {
        let place = format!(
            "{}. {}, version {}, bytes {} to {}, family {}",
            item.n,
            escape(item.artifact),
            item.version,
            item.start,
            item.end,
            item.family
        );
        (markup.paragraph)(&mut out, &place);
        (markup.quote)(&mut out, &or_erased(item.quote));
    }
    if !dossier.gaps.is_empty() {
        (markup.heading)(&mut out, 2, "Gaps");
    }
    for gap in &dossier.gaps {
        let text = format!("{} ({})", or_erased(gap.query), escape(gap.why));
        (markup.paragraph)(&mut out, &text);
    }
    (markup.heading)(&mut out, 2, "How it came about");
    for line in dossier.explanation.lines() {
        (markup.paragraph)(&mut out, &escape(line));
    }
    out
}

fn markdown(dossier: &Dossier<'_>, reason: Option<Reason>) -> String {
    let markup = Markup {
        escape: |text| {
            let mut out = String::with_capacity(text.len());
            for ch in text.chars() {
                match ch {
                    '\n' | '\r' => out.push(' '),
                    ch if ch.is_ascii_punctuation()
                        && !matches!(ch, '.' | ',' | ':' | ';' | '\'' | '"' | '/' | '%' | '?') =>
                    {
                        out.push('\\');
                        out.push(ch);
                    }
                    ch => out.push(ch),
                }
            }
            out
        },
        heading: |out, level, text| {
            let _ = write!(out, "{} {text}\n\n", "#".repeat(usize::from(level)));
        },
        paragraph: |out, text| {
            let _ = write!(out, "{text}\n\n");
        },
        quote: |out, text| {
            let _ = write!(out, "> {text}\n\n");
        },
    };
    body(dossier, reason, &markup)
}

fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for ch in text.chars() {
        match ch {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            ch => out.push(ch),
        }
    }
    out
}

fn html(dossier: &Dossier<'_>, reason: Option<Reason>) -> String {
    let markup = Markup {
        escape: escape_html,
        heading: |out, level, text| {
            let _ = writeln!(out, "<h{level}>{text}</h{level}>");
        },
        paragraph: |out, text| {
            let _ = writeln!(out, "<p>{text}</p>");
        },
        quote: |out, text| {
            let _ = writeln!(out, "<blockquote>{text}</blockquote>");
        },
    };
    let title = escape_html(&format!("Dossier of trace {}", dossier.trace));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title></head>\n<body>\n{}</body>\n</html>\n",
        body(dossier, reason, &markup)
    )
}
