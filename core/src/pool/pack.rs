//! Packing candidates under a token budget, `cortex-pack/2`.
//!
//! The payload groups claims by owner in order of first appearance, each group under its header:
//!
//! ```text
//! [PostgreSQL 15.3 | release notes | 2023-05-11]
//! - First claim.
//! - Second claim,
//!   whose text has a second line.
//!
//! [another title]
//! - Third claim.
//! ```
//!
//! The budget counts all that is sent and is never exceeded, not even by the first claim; a header is never
//! dropped to make room; packing stops at the first claim that does not fit, so what is served at a budget is a
//! prefix of what is served at a larger one. Headers are the caller's and may be absent, how tokens are counted
//! is the caller's ([`Meter`]), and repetitions are not looked for (see [`super::candidates`]).
//!
//! Text cannot leave its place: a claim always follows `- `, later lines of it are indented by two blanks and
//! empty ones left out. So it can pose neither as a header nor as another claim.

use std::collections::HashMap;
use std::hash::Hash;

use crate::tokens;

/// Name of this packing, as recorded in the details of a read.
pub const NAME: &str = "cortex-pack/2";

/// How tokens are counted.
///
/// Costs add up: the size of a payload is the sum of the costs of its parts. A meter for a tokenizer whose
/// counts do not add up must give upper bounds. No cost may fall when text is appended to the part.
pub trait Meter {
    /// Opening a group: its header, if it has one, and what separates it from the group before.
    fn opening(&self, header: Option<&str>, first_group: bool) -> u64;

    /// A claim as it is rendered (`- ` and its lines) and what separates it from the line before.
    /// `opens_group` says that it is the first line of a group without header.
    fn claim(&self, bullet: &str, opens_group: bool) -> u64;

    /// A raw entry: its source line (empty if it has none), its text, and what separates it from what precedes.
    fn raw(&self, source_line: &str, text: &str) -> u64;
}

/// Counts by [`tokens::estimate`], exactly: a line feed separates in it, so lines and line feeds add up.
#[derive(Debug, Clone, Copy, Default)]
pub struct Estimate;

const LINE_FEED: u64 = 1;

impl Meter for Estimate {
    fn opening(&self, header: Option<&str>, first_group: bool) -> u64 {
        let blank_line = if first_group { 0 } else { 2 * LINE_FEED };
        blank_line + header.map_or(0, |header| u64::from(tokens::estimate(header)))
    }

    fn claim(&self, bullet: &str, opens_group: bool) -> u64 {
        let line_feed = if opens_group { 0 } else { LINE_FEED };
        line_feed + u64::from(tokens::estimate(bullet))
    }

    fn raw(&self, source_line: &str, text: &str) -> u64 {
        let source_line = match source_line {
            "" => 0,
            line => u64::from(tokens::estimate(line)) + LINE_FEED,
        };
        2 * LINE_FEED + source_line + u64::from(tokens::estimate(text))
    }
}

/// A claim offered for packing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a, G> {
    /// Group key: claims with the same key share a header.
    pub group: G,
    /// Header of the group; that of its first claim counts. Blank is none.
    pub header: Option<&'a str>,
    /// Text of the claim.
    pub text: &'a str,
    /// Where it was taken from. Packing does not look at it; [`super::floor`] does.
    pub place: Option<Place>,
}

/// A span of one source version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The version.
    pub version: i64,
    /// Offset of the first byte in its text.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

/// A packed context.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packed {
    /// The text to send.
    pub payload: String,
    /// Its size by the meter, at most the budget.
    pub tokens: u64,
    /// Positions of the claims in it, in serving order.
    pub served: Vec<usize>,
    /// The first claim that did not fit; `None` if all were served.
    pub next_needs: Option<NextNeeds>,
}

/// The claim at which packing stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextNeeds {
    /// Its position.
    pub claim: usize,
    /// The smallest budget in tokens that serves it too.
    pub budget_tokens: u64,
}

/// Packs `claims`, best first, into at most `budget_tokens`. Claims without visible text are passed over.
pub fn pack<G: Copy + Eq + Hash>(
    claims: &[Claim<'_, G>],
    budget_tokens: u64,
    meter: &impl Meter,
) -> Packed {
    let mut packing = Packing::new(meter);
    for (at, claim) in claims.iter().enumerate() {
        let Some(offer) = packing.offer(claim) else {
            continue;
        };
        if offer.tokens > budget_tokens {
            let mut packed = packing.packed();
            packed.next_needs = Some(NextNeeds {
                claim: at,
                budget_tokens: offer.tokens,
            });
            return packed;
        }
        packing.add(at, claim, &offer);
    }
    packing.packed()
}

/// A context being packed.
pub(super) struct Packing<'m, G, M> {
    meter: &'m M,
    groups: Vec<String>,
    group_of: HashMap<G, usize>,
    served: Vec<usize>,
    tokens: u64,
}

/// What a claim would add.
pub(super) struct Offer {
    bullet: String,
    /// Size of the whole with it.
    pub(super) tokens: u64,
}

impl<'m, G: Copy + Eq + Hash, M: Meter> Packing<'m, G, M> {
    pub(super) fn new(meter: &'m M) -> Self {
        Self {
            meter,
            groups: Vec::new(),
            group_of: HashMap::new(),
            served: Vec::new(),
            tokens: 0,
        }
    }

    /// Size so far.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// How many claims are in it.
    pub(super) fn packed_claims(&self) -> usize {
        self.served.len()
    }

    /// The claim added last.
    pub(super) fn last(&self) -> Option<&usize> {
        self.served.last()
    }

    /// What a claim would add; `None` if it has no visible text.
    pub(super) fn offer(&self, claim: &Claim<'_, G>) -> Option<Offer> {
        let bullet = bullet(claim.text);
        if bullet.is_empty() {
            return None;
        }
        let header = header_of(claim);
        let added = match self.group_of.contains_key(&claim.group) {
            true => self.meter.claim(&bullet, false),
            false => {
                self.meter.opening(header, self.groups.is_empty())
                    + self.meter.claim(&bullet, header.is_none())
            }
        };
        Some(Offer {
            bullet,
            tokens: self.tokens + added,
        })
    }

    /// Serves the claim at position `at`.
    pub(super) fn add(&mut self, at: usize, claim: &Claim<'_, G>, offer: &Offer) {
        let groups = &mut self.groups;
        let group = *self.group_of.entry(claim.group).or_insert_with(|| {
            groups.push(header_of(claim).unwrap_or_default().to_owned());
            groups.len() - 1
        });
        let text = &mut groups[group];
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&offer.bullet);
        self.tokens = offer.tokens;
        self.served.push(at);
    }

    /// What is packed so far.
    pub(super) fn packed(&self) -> Packed {
        Packed {
            payload: self.groups.join("\n\n"),
            tokens: self.tokens,
            served: self.served.clone(),
            next_needs: None,
        }
    }
}

fn header_of<'a, G>(claim: &Claim<'a, G>) -> Option<&'a str> {
    claim.header.filter(|line| !line.trim().is_empty())
}

/// `- ` and the text, later lines indented by two blanks, empty lines and control characters left out;
/// empty if there is nothing visible to say.
pub fn bullet(text: &str) -> String {
    let mut bullet = String::new();
    for line in text.split(is_line_break) {
        let line: String = line
            .chars()
            .filter(|&ch| ch == '\t' || !ch.is_control())
            .collect();
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        bullet.push_str(if bullet.is_empty() { "- " } else { "\n  " });
        bullet.push_str(line);
    }
    bullet
}

fn is_line_break(ch: char) -> bool {
    matches!(
        ch,
        '\n' | '\r' | '\u{B}' | '\u{C}' | '\u{1C}'..='\u{1E}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}
