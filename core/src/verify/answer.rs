//! Step 7 beyond the items: families, statements and model calls against the stored texts.

use super::report::{Checked, Code, Failure, StepOutcome};
use super::store::{Evidence, StoredItem, committed_text, item_text};
use crate::family::{self, Member};
use crate::hash::Hash;
use crate::trace::answer::{Judge, MAX_STATEMENT_CHARS};
use crate::trace::{Numbers, Span, Statement, Trace};

/// Longest text of all items together that quotes are looked for in, in bytes: the work of a hostile file is bounded.
const MAX_SEARCHED: usize = 4 << 20;

/// The families are those that artifacts, contents and texts give. Where a store does not know which contents are
/// equal, or an item was erased, what must be one family may not count as two; the reverse cannot be told.
pub(super) fn families(trace: &Trace, stored: &[Option<StoredItem>]) -> Result<Checked, Failure> {
    let members: Vec<Member> = trace
        .evidence
        .iter()
        .zip(stored)
        .map(|(item, stored)| Member {
            artifact: item.artifact.clone(),
            equality: stored.as_ref().and_then(|stored| stored.equality),
            text: stored.as_ref().map(|stored| stored.text.clone()),
        })
        .collect();
    let exact = members
        .iter()
        .all(|member| member.equality.is_some() && member.text.is_some());
    let computed = family::families(&members);
    for (i, (item, first)) in trace.evidence.iter().zip(&computed).enumerate() {
        let expected = match exact {
            true => *first,
            // The recorded family of the evidence that this one belongs with.
            false => trace
                .evidence
                .get(*first as usize - 1)
                .map_or(*first, |first| first.family),
        };
        if item.family != expected {
            let at = format!("evidence[{i}].family");
            return Err(Failure::new(Code::TEvidence, at, expected, item.family));
        }
    }
    let found = format!(
        "{} families of {} sources",
        trace.answer.families, trace.answer.sources
    );
    let how = match exact {
        true => "families as contents and texts give them",
        false => "no two families with equal texts",
    };
    Ok(Checked::passed(how, found).at("evidence"))
}

/// The prose is the one committed to.
pub(super) fn prose(store: &mut dyn Evidence, trace: &Trace) -> Result<Option<Checked>, Failure> {
    let at = "answer.prose";
    let Some(prose) = &trace.answer.prose else {
        return Ok(None);
    };
    let found = committed_text(store, prose, at)?;
    Ok(Some(match found {
        Some(text) => Checked::passed(prose, text.commitment()).at(at),
        None => Checked::new(StepOutcome::Redacted, at, prose, "erased"),
    }))
}

/// The items of a trace's evidence, ready for its statements; `None` if one was erased.
pub(super) fn judge<'a>(
    trace: &Trace,
    stored: &'a [Option<StoredItem>],
) -> Result<Option<Judge<'a>>, Failure> {
    let known: Option<Vec<&StoredItem>> = stored.iter().map(Option::as_ref).collect();
    let Some(known) = known else { return Ok(None) };
    let size: usize = known.iter().map(|stored| stored.text.len()).sum();
    if size > MAX_SEARCHED {
        let expected = format!("at most {MAX_SEARCHED} bytes of items");
        return Err(Failure::new(Code::TLimit, "evidence", expected, size));
    }
    let items = known.into_iter().zip(&trace.evidence);
    let items = items.map(|(stored, item)| item_text(stored, item.span));
    Ok(Some(Judge::new(items)))
}

/// One statement: its checks give again what is recorded.
pub(super) fn statement(
    store: &mut dyn Evidence,
    trace: &Trace,
    judge: Option<&Judge<'_>>,
    statement: &Statement,
    at: &str,
) -> Result<Checked, Failure> {
    let redacted = |what: &str| {
        let expected = format!("the checks of statement {}", statement.n);
        Ok(Checked::new(StepOutcome::Redacted, at, expected, what))
    };
    let text = committed_text(store, &statement.text, &format!("{at}.text"))?;
    let mut quotes = Vec::with_capacity(statement.citations.len());
    for (i, citation) in statement.citations.iter().enumerate() {
        let at = format!("{at}.citations[{i}].quote");
        quotes.push(match &citation.quote {
            None => None,
            Some(quote) => match committed_text(store, quote, &at)? {
                Some(text) => Some(text.text),
                None => return redacted("a quote was erased"),
            },
        });
    }
    let Some(text) = text else {
        return redacted("the text was erased");
    };
    let Some(judge) = judge else {
        return redacted("an item was erased");
    };
    let long = |text: &str| text.chars().nth(MAX_STATEMENT_CHARS).is_some();
    let expected = format!("at most {MAX_STATEMENT_CHARS} characters");
    if long(&text.text) {
        let at = format!("{at}.text");
        return Err(Failure::new(Code::TAnswer, at, expected, "more"));
    }
    if let Some(i) = quotes
        .iter()
        .position(|quote| quote.as_deref().is_some_and(long))
    {
        let at = format!("{at}.citations[{i}].quote");
        return Err(Failure::new(Code::TAnswer, at, expected, "more"));
    }
    let cited = statement.citations.iter().zip(&quotes);
    let cited: Vec<(u32, Option<&str>)> = cited
        .map(|(citation, quote)| (citation.n, quote.as_deref()))
        .collect();
    let Some(judged) = judge.statement(&text.text, &cited, trace.policy.quote) else {
        return Err(Failure::new(
            Code::TUnbound,
            at,
            "evidence of the trace",
            "none",
        ));
    };
    for (i, (citation, (span, check, other))) in statement
        .citations
        .iter()
        .zip(&judged.citations)
        .enumerate()
    {
        let shown = |span: Span| format!("{} to {}", span.start, span.end);
        let number = |n: Option<u32>| n.map_or("null".into(), |n| n.to_string());
        for (name, recorded, found) in [
            (
                "check",
                citation.check.as_str().to_owned(),
                check.as_str().to_owned(),
            ),
            ("other", number(citation.other), number(*other)),
            ("span", shown(citation.span), shown(*span)),
        ] {
            if recorded != found {
                let at = format!("{at}.citations[{i}].{name}");
                return Err(Failure::new(Code::TAnswer, at, recorded, found));
            }
        }
    }
    if statement.numbers != judged.numbers {
        let (recorded, found) = (statement.numbers.as_str(), judged.numbers.as_str());
        let at = format!("{at}.numbers");
        return Err(Failure::new(Code::TAnswer, at, recorded, found));
    }
    let checked =
        |numbers: Numbers| format!("{} citations, numbers {}", cited.len(), numbers.as_str());
    let (recorded, found) = (checked(statement.numbers), checked(judged.numbers));
    Ok(Checked::passed(recorded, found).at(at))
}

/// Texts that are named and committed to are there.
pub(super) fn texts(
    store: &mut dyn Evidence,
    texts: &[(&str, Hash)],
    at: &str,
) -> Result<Checked, Failure> {
    let mut erased = 0;
    for (name, commitment) in texts {
        let at = match name.is_empty() {
            true => at.to_owned(),
            false => format!("{at}.{name}"),
        };
        erased += usize::from(committed_text(store, commitment, &at)?.is_none());
    }
    let expected = format!("{} texts", texts.len());
    Ok(match erased {
        0 => Checked::passed(expected, "as committed to").at(at),
        n => Checked::new(StepOutcome::Redacted, at, expected, format!("{n} erased")),
    })
}
