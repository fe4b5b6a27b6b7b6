//! The raw floor: what a reader gets of the sources themselves while the pool does not cover the question.
//!
//! A share of the budget is reserved for raw chunks. Within it stands at least what a plain top-k retrieval
//! would fit there: the chunks in order, up to the first that does not fit. If not even the first one fits,
//! it is cut and the cut is marked. The claims get the rest. What one side does not need because all of it is
//! served goes to the other.
//!
//! Together they keep within the budget, and what is served at a budget is a prefix of what is served at a
//! larger one: the same claims and chunks and perhaps more, a cut chunk perhaps longer. That is why a side
//! never takes over what the other leaves because its next piece is too large.

use std::collections::HashSet;
use std::hash::Hash;

use unicode_segmentation::UnicodeSegmentation;

use super::header;
use super::pack::{self, Claim, Meter, Packed};

/// Share of the budget that is reserved where no setting says otherwise.
pub const RESERVED_SHARE: f64 = 0.25;

/// Largest share that can be reserved.
pub const RESERVED_SHARE_MAX: f64 = 0.9;

/// Most chunks that are looked at.
pub const CHUNKS_MAX: usize = 64;

/// Stands in the place of what was cut off.
pub const CUT_MARK: &str = "\n[cut]";

/// A retrieved chunk; slices of chunks are in rank order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chunk<'a> {
    /// Name of its source; may be empty.
    pub source: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// A raw entry of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// Position of the chunk.
    pub chunk: usize,
    /// The entry: `[source: name]` on a line of its own, then the text; without a name the text alone.
    pub text: String,
    /// Bytes of the chunk's text that it holds.
    pub held_bytes: usize,
    /// Its size by the meter.
    pub tokens: u64,
}

/// Claims and raw text of one read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    /// The claims. `next_needs` is the smallest budget of the whole read that serves one claim more.
    pub claims: Packed,
    /// The raw entries.
    pub raw: Vec<Raw>,
}

impl Served {
    /// Size of both.
    pub fn tokens(&self) -> u64 {
        self.claims.tokens + self.raw.iter().map(|entry| entry.tokens).sum::<u64>()
    }
}

/// Tokens of `budget_tokens` that are reserved for raw text; a share beyond its bounds is brought into them.
pub fn reserve(budget_tokens: u64, share: f64) -> u64 {
    let share = if share.is_nan() {
        RESERVED_SHARE
    } else {
        share.clamp(0.0, RESERVED_SHARE_MAX)
    };
    (budget_tokens as f64 * share).floor() as u64
}

/// Packs claims and raw chunks into one budget by the rules of this module. Chunks of the same source and
/// text count once.
pub fn serve<G: Copy + Eq + Hash>(
    claims: &[Claim<'_, G>],
    chunks: &[Chunk<'_>],
    budget_tokens: u64,
    share: f64,
    meter: &impl Meter,
) -> Served {
    let priced = price(chunks, meter);
    let all_raw: u64 = priced.iter().map(|entry| entry.tokens).sum();
    // What is left for claims: it never falls when the budget grows, since the share is below 1.
    let left = |budget: u64| budget - all_raw.min(reserve(budget, share));
    let mut claims = pack::pack(claims, left(budget_tokens), meter);
    let for_raw = match claims.next_needs {
        Some(_) => reserve(budget_tokens, share),
        None => budget_tokens - claims.tokens,
    };
    if let Some(needs) = &mut claims.next_needs {
        needs.budget_tokens = smallest_budget(needs.budget_tokens, left);
    }
    Served {
        claims,
        raw: raw(&priced, for_raw, meter),
    }
}

/// The smallest budget that leaves `needed` tokens.
fn smallest_budget(needed: u64, left: impl Fn(u64) -> u64) -> u64 {
    let mut too_small = needed.saturating_sub(1);
    // No share leaves less than a tenth.
    let mut enough = needed.saturating_mul(11).saturating_add(11);
    while enough - too_small > 1 {
        let middle = too_small + (enough - too_small) / 2;
        match left(middle) >= needed {
            true => enough = middle,
            false => too_small = middle,
        }
    }
    enough
}

/// A distinct chunk with its price.
struct Priced<'a> {
    at: usize,
    chunk: Chunk<'a>,
    source_line: String,
    tokens: u64,
}

fn price<'a>(chunks: &[Chunk<'a>], meter: &impl Meter) -> Vec<Priced<'a>> {
    let mut seen = HashSet::new();
    let distinct = chunks
        .iter()
        .enumerate()
        .take(CHUNKS_MAX)
        .filter(|(_, chunk)| !chunk.text.trim().is_empty() && seen.insert(**chunk));
    distinct
        .map(|(at, chunk)| {
            let source_line = source_line(chunk.source);
            Priced {
                at,
                chunk: *chunk,
                tokens: meter.raw(&source_line, chunk.text),
                source_line,
            }
        })
        .collect()
}

/// The chunks in order that fit into `budget`, the first one cut if need be.
fn raw(priced: &[Priced<'_>], budget: u64, meter: &impl Meter) -> Vec<Raw> {
    let mut entries = Vec::new();
    let mut used = 0;
    for next in priced {
        if used + next.tokens > budget {
            if entries.is_empty() {
                entries.extend(cut(next, budget, meter));
            }
            break;
        }
        used += next.tokens;
        entries.push(Raw {
            chunk: next.at,
            text: entry(&next.source_line, next.chunk.text),
            held_bytes: next.chunk.text.len(),
            tokens: next.tokens,
        });
    }
    entries
}

/// As much of a chunk as fits with the mark: up to a blank if one comes in time, else to a grapheme
/// cluster. `None` if not one cluster fits.
fn cut(priced: &Priced<'_>, budget: u64, meter: &impl Meter) -> Option<Raw> {
    let Priced {
        at,
        chunk,
        source_line,
        ..
    } = priced;
    let marked = |end: usize| format!("{}{CUT_MARK}", &chunk.text[..end]);
    let ends: Vec<usize> = chunk
        .text
        .grapheme_indices(true)
        .map(|(start, cluster)| start + cluster.len())
        .collect();
    let fitting = ends.partition_point(|&end| meter.raw(source_line, &marked(end)) <= budget);
    let most = *ends.get(fitting.checked_sub(1)?)?;
    let text = &chunk.text[..most];
    let words = match text.rfind(char::is_whitespace) {
        Some(blank) if most < chunk.text.len() => text[..blank].trim_end().len(),
        _ => most,
    };
    // A text that begins with blanks has nothing before its first one.
    let held_bytes = if words == 0 { most } else { words };
    let text = marked(held_bytes);
    Some(Raw {
        chunk: *at,
        tokens: meter.raw(source_line, &text),
        text: entry(source_line, &text),
        held_bytes,
    })
}

fn source_line(source: &str) -> String {
    match header::field(source) {
        name if name.is_empty() => name,
        name => format!("[source: {name}]"),
    }
}

fn entry(source_line: &str, text: &str) -> String {
    match source_line {
        "" => text.to_owned(),
        line => format!("{line}\n{text}"),
    }
}
