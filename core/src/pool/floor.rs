//! The raw floor: what a reader gets of the sources themselves while the pool does not cover the question.
//!
//! A share of the budget is reserved for raw chunks. Within it stands at least what a plain top-k retrieval
//! would fit there: the chunks in order, up to the first that does not fit. If not even the first one fits,
//! it is cut and the cut is marked. The claims get the rest. What one side does not need because all of it is
//! served goes to the other.
//!
//! No text is paid for twice. Claims are mostly the very sentences of the chunks, so a text that stands in the
//! read as claims is carried: a chunk whose words all stand in served claims of its version is passed over, and of
//! one whose beginning or end does, only the rest is sent. A claim that stands word for word in a chunk sent before
//! it is passed over too. Only [`Place`]s tell; a rephrased claim covers nothing.
//!
//! Both sides together keep within the budget, and what is served at a budget is a prefix of what is served at a
//! larger one: the same claims and chunks and perhaps more, a cut chunk perhaps longer. So what is passed over must
//! not depend on the budget of the read. Think of the budget as growing from nothing: each claim and each chunk
//! comes in at the smallest budget that has room for it, and at that moment it is decided, once and for all larger
//! budgets, whether what came before covers it. A read is that story up to its budget. For the same reason a side
//! never takes over what the other leaves because its next piece is too large.

mod cover;

use std::collections::HashSet;
use std::hash::Hash;

use unicode_segmentation::UnicodeSegmentation;

use super::header;
use super::pack::{Claim, Meter, NextNeeds, Packed, Packing, Place};
use cover::Said;

/// Share of the budget that is reserved where no setting says otherwise.
pub const RESERVED_SHARE: f64 = 0.25;

/// Largest share that can be reserved.
pub const RESERVED_SHARE_MAX: f64 = 0.9;

/// Most chunks that are looked at.
pub const CHUNKS_MAX: usize = 64;

/// Stands in the place of what was cut off.
pub const CUT_MARK: &str = "\n[cut]";

/// A chunk is not cut to less than this; a reserve below it holds a chunk only if the whole of it fits. The name of
/// the source and two words tell nobody anything, and they would stand in every larger read.
pub const CUT_MIN_TOKENS: u64 = 24;

/// A retrieved chunk; slices of chunks are in rank order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chunk<'a> {
    /// Name of its source; may be empty.
    pub source: &'a str,
    /// Its text.
    pub text: &'a str,
    /// Where it stands. `None`: it is never compared with claims.
    pub place: Option<Place>,
}

/// A raw entry of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// Position of the chunk.
    pub chunk: usize,
    /// The entry: `[source: name]` on a line of its own, then the text; without a name the text alone.
    pub text: String,
    /// Offset in the chunk's text at which the entry begins: what is before it stands in claims.
    pub start_byte: usize,
    /// Bytes of the chunk's text that it holds from there.
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
    let mut story = Story::new(claims, chunks, share, meter);
    while story.step(budget_tokens).is_some() {}
    let mut served = Served {
        claims: story.packing.packed(),
        raw: story.raw.clone(),
    };
    served.raw.extend(story.cut(story.allowance(budget_tokens)));
    // Which claim comes next is told by going on.
    let before = served.claims.served.len();
    while story.packing.packed_claims() == before && story.step(u64::MAX).is_some() {}
    if let Some(&claim) = story
        .packing
        .last()
        .filter(|_| story.packing.packed_claims() > before)
    {
        served.claims.next_needs = Some(NextNeeds {
            claim,
            budget_tokens: story.now,
        });
    }
    served
}

/// Claims and chunks coming in while the budget grows.
struct Story<'s, 'a, G, M> {
    claims: &'s [Claim<'a, G>],
    /// The next claim.
    claim: usize,
    packing: Packing<'s, G, M>,
    chunks: Vec<Priced<'a>>,
    /// The next chunk.
    chunk: usize,
    raw: Vec<Raw>,
    raw_tokens: u64,
    /// Size of the chunks that are still to come.
    waiting: u64,
    /// The next chunk is the first one sent and has begun to be, cut.
    begun: bool,
    said: Said,
    /// The budget at which the last of them came in.
    now: u64,
    share: f64,
    meter: &'s M,
}

impl<'s, 'a, G: Copy + Eq + Hash, M: Meter> Story<'s, 'a, G, M> {
    fn new(claims: &'s [Claim<'a, G>], chunks: &[Chunk<'a>], share: f64, meter: &'s M) -> Self {
        let chunks = price(chunks, meter);
        let mut story = Self {
            claims,
            claim: 0,
            packing: Packing::new(meter),
            waiting: chunks.iter().map(|chunk| chunk.tokens).sum(),
            chunks,
            chunk: 0,
            raw: Vec::new(),
            raw_tokens: 0,
            begun: false,
            said: Said::default(),
            now: 0,
            share,
            meter,
        };
        story.pass_blank_claims();
        story
    }

    fn pass_blank_claims(&mut self) {
        while self
            .claims
            .get(self.claim)
            .is_some_and(|claim| super::pack::bullet(claim.text).is_empty())
        {
            self.claim += 1;
        }
    }

    /// Lets the next one in that comes at a budget of at most `budget`; `None` if there is none.
    fn step(&mut self, budget: u64) -> Option<()> {
        let claim = self.claim_comes();
        let chunk = self.chunk_comes();
        match (claim, chunk) {
            // Of two that come at the same budget the claim is first.
            (Some(claim), _) if claim <= chunk.unwrap_or(u64::MAX) && claim <= budget => {
                self.now = claim;
                self.let_claim_in();
            }
            (_, Some(chunk)) if chunk <= budget => {
                self.now = chunk;
                self.let_chunk_in();
            }
            _ => return None,
        }
        Some(())
    }

    /// Tokens that a budget leaves for claims. It never falls when the budget grows, since the share is below 1, nor
    /// when a chunk is passed over.
    fn left(&self, budget: u64) -> u64 {
        budget - (self.raw_tokens + self.waiting).min(reserve(budget, self.share))
    }

    /// Tokens that a budget leaves for raw text.
    fn allowance(&self, budget: u64) -> u64 {
        match self.claim < self.claims.len() {
            true => reserve(budget, self.share),
            false => budget.saturating_sub(self.packing.tokens()),
        }
    }

    /// The smallest budget from now on for which `enough` holds, if it does for `most`.
    fn first_budget(&self, most: u64, enough: impl Fn(u64) -> bool) -> Option<u64> {
        if enough(self.now) {
            return Some(self.now);
        }
        let (mut too_small, mut large) = (self.now, most.max(self.now));
        if !enough(large) {
            return None;
        }
        while large - too_small > 1 {
            let middle = too_small + (large - too_small) / 2;
            match enough(middle) {
                true => large = middle,
                false => too_small = middle,
            }
        }
        Some(large)
    }

    fn claim_comes(&self) -> Option<u64> {
        let needed = self.packing.offer(self.claims.get(self.claim)?)?.tokens;
        // No share leaves less than a tenth.
        let most = needed.saturating_mul(11).saturating_add(11);
        self.first_budget(most, |budget| self.left(budget) >= needed)
    }

    fn chunk_comes(&self) -> Option<u64> {
        let whole = self.chunks.get(self.chunk)?.tokens;
        let needed = match self.raw.is_empty() && !self.begun {
            true => whole.min(CUT_MIN_TOKENS),
            false => self.raw_tokens + whole,
        };
        // Beyond this no budget is given, and floats count exactly up to here.
        self.first_budget(1 << 52, |budget| self.allowance(budget) >= needed)
    }

    fn let_claim_in(&mut self) {
        let claim = &self.claims[self.claim];
        if !self.stands_in_raw(claim)
            && let Some(offer) = self.packing.offer(claim)
        {
            self.packing.add(self.claim, claim, &offer);
            if let Some(place) = claim.place {
                self.said.add(place, claim.text);
            }
        }
        self.claim += 1;
        self.pass_blank_claims();
        // The rest of a chunk that has begun may stand in claims now: it grows no further.
        if self.begun && self.rest_of(self.chunk).is_none() {
            let entry = self.cut(self.allowance(self.now));
            self.pass_chunk();
            self.send(entry);
        }
    }

    fn let_chunk_in(&mut self) {
        let at = self.chunk;
        if self.begun {
            self.pass_chunk();
            self.send(Some(self.entry(at, 0, self.chunks[at].chunk.text.len())));
            return;
        }
        match self.rest_of(at) {
            None => self.pass_chunk(),
            Some(_) if self.raw.is_empty() => self.begun = true,
            Some((start, end)) => {
                let whole = self.entry(at, 0, self.chunks[at].chunk.text.len());
                let rest = self.entry(at, start, end);
                self.pass_chunk();
                self.send(Some(if rest.tokens < whole.tokens {
                    rest
                } else {
                    whole
                }));
            }
        }
    }

    fn pass_chunk(&mut self) {
        self.waiting -= self.chunks[self.chunk].tokens;
        self.chunk += 1;
        self.begun = false;
    }

    fn send(&mut self, entry: Option<Raw>) {
        self.raw_tokens += entry.as_ref().map_or(0, |entry| entry.tokens);
        self.raw.extend(entry);
    }

    /// The part of a chunk that claims do not say, as offsets in its text.
    fn rest_of(&self, at: usize) -> Option<(usize, usize)> {
        let chunk = &self.chunks[at].chunk;
        match chunk.place {
            Some(place) => self.said.rest(place, chunk.text),
            None => Some((0, chunk.text.len())),
        }
    }

    /// Whether the text of a claim was sent as part of a chunk.
    fn stands_in_raw(&self, claim: &Claim<'_, G>) -> bool {
        let Some(place) = claim.place else {
            return false;
        };
        self.raw.iter().any(|entry| {
            let chunk = self.chunks.iter().find(|chunk| chunk.at == entry.chunk);
            chunk.is_some_and(|Priced { chunk, .. }| {
                chunk.place.is_some_and(|of| {
                    let start = of.start + entry.start_byte;
                    of.version == place.version
                        && start <= place.start
                        && place.end <= start + entry.held_bytes
                        && place.end >= place.start
                        && chunk.text.get(place.start - of.start..place.end - of.start)
                            == Some(claim.text)
                })
            })
        })
    }

    /// An entry with a span of a chunk's text.
    fn entry(&self, at: usize, start: usize, end: usize) -> Raw {
        let Priced {
            at,
            chunk,
            source_line,
            ..
        } = &self.chunks[at];
        let text = &chunk.text[start..end];
        Raw {
            chunk: *at,
            text: entry(source_line, text),
            start_byte: start,
            held_bytes: text.len(),
            tokens: self.meter.raw(source_line, text),
        }
    }

    /// As much of a chunk that has begun as fits with the mark: up to a blank if one comes in time, else to a grapheme
    /// cluster. `None` if not one cluster fits.
    fn cut(&self, budget: u64) -> Option<Raw> {
        let Priced {
            at,
            chunk,
            source_line,
            ..
        } = self.chunks.get(self.chunk).filter(|_| self.begun)?;
        let marked = |end: usize| format!("{}{CUT_MARK}", &chunk.text[..end]);
        let ends: Vec<usize> = chunk
            .text
            .grapheme_indices(true)
            .map(|(start, cluster)| start + cluster.len())
            .collect();
        let fitting =
            ends.partition_point(|&end| self.meter.raw(source_line, &marked(end)) <= budget);
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
            tokens: self.meter.raw(source_line, &text),
            text: entry(source_line, &text),
            start_byte: 0,
            held_bytes,
        })
    }
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
        .filter(|(_, chunk)| {
            !chunk.text.trim().is_empty() && seen.insert((chunk.source, chunk.text))
        });
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
