//! Packing ranked claims under a token budget, `cortex-pack/1`.
//!
//! The payload groups claims by source in order of first appearance:
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
//! Everything that is sent counts: the token estimate is taken over the payload as it stands. Claims are
//! served in rank order and packing stops at the first that does not fit, so what is served at a budget is a
//! prefix of what is served at a larger one. A header is never dropped to make room.
//!
//! Text cannot leave its place: a claim always follows `- `, later lines of it are indented by two blanks
//! and empty ones left out, and header fields are single lines without the characters that structure a
//! header. So neither can pose as a header or as another claim.

use std::collections::HashMap;

use thiserror::Error;

use crate::analyzer;
use crate::pool::header::{self, field};
use crate::pool::pack::bullet;
use crate::tokens;

/// Name of this packing as recorded in receipts.
pub const NAME: &str = "cortex-pack/1";

/// Header fields beyond this many characters are cut, and the cut is marked with an ellipsis.
pub const HEADER_FIELD_MAX_CHARS: usize = header::FIELD_MAX_CHARS;

/// A claim offered for packing; the slice given to [`pack`] is in rank order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackItem<'a> {
    /// Id reported back.
    pub item: i64,
    /// Group key: claims with the same key share a header. Also the header if all its fields are empty.
    pub source: &'a str,
    /// Title of the source, or empty.
    pub title: &'a str,
    /// Where it comes from (publisher, table, folder), or empty.
    pub origin: &'a str,
    /// Its date as it is to be shown, or empty.
    pub date: &'a str,
    /// Text of the claim.
    pub text: &'a str,
}

/// A packed context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The text to send; empty if nothing fits or nothing was offered.
    pub payload: String,
    /// `tokens::estimate` of the payload, at most the budget.
    pub tokens: u32,
    /// Ids of the claims in the payload, in rank order.
    pub served: Vec<i64>,
    /// Claims left out because an earlier claim of the same source says the same, with that claim.
    pub collapsed: Vec<Collapsed>,
    /// The first claim that did not fit, if any.
    pub next_needs: Option<NextNeeds>,
}

/// A claim that repeats another of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collapsed {
    /// The claim left out.
    pub item: i64,
    /// The earlier claim that stands for it.
    pub into: i64,
}

/// The claim at which packing stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextNeeds {
    /// The claim.
    pub item: i64,
    /// The smallest budget in tokens that serves it too.
    pub budget_tokens: u32,
}

/// Why nothing can be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PackError {
    /// The budget is 0, which can hold nothing.
    #[error(
        "budget_tokens is 0, which holds no claim; give at least the size of one claim and its header"
    )]
    ZeroBudget,
}

/// Packs `items`, best first, into at most `budget_tokens` tokens. See the module for the rules.
///
/// Claims without any visible text are left out without a trace. Errors: [`PackError::ZeroBudget`].
pub fn pack(items: &[PackItem<'_>], budget_tokens: u32) -> Result<Packed, PackError> {
    if budget_tokens == 0 {
        return Err(PackError::ZeroBudget);
    }
    let mut layout = Layout::default();
    let mut served = Vec::new();
    let mut collapsed = Vec::new();
    let mut said: HashMap<(&str, String), i64> = HashMap::new();
    let mut next_needs = None;
    for item in items {
        let bullet = bullet(item.text);
        if bullet.is_empty() {
            continue;
        }
        let key = (item.source, analyzer::normalise(item.text));
        if let Some(&into) = said.get(&key) {
            collapsed.push(Collapsed {
                item: item.item,
                into,
            });
            continue;
        }
        let needed = layout.tokens_with(item, &bullet);
        if needed > u64::from(budget_tokens) {
            let budget_tokens = u32::try_from(needed).unwrap_or(u32::MAX);
            next_needs = Some(NextNeeds {
                item: item.item,
                budget_tokens,
            });
            break;
        }
        layout.add(item, bullet, needed);
        served.push(item.item);
        said.insert(key, item.item);
    }
    let payload = layout.render();
    let tokens = tokens::estimate(&payload);
    Ok(Packed {
        payload,
        tokens,
        served,
        collapsed,
        next_needs,
    })
}

/// The groups so far with their running size. A line feed separates in the estimate, so the size of the
/// payload is the sum of its lines and of the line feeds between them, and need not be measured again.
#[derive(Default)]
struct Layout<'a> {
    groups: Vec<(String, Vec<String>)>,
    group_of: HashMap<&'a str, usize>,
    tokens: u64,
}

impl<'a> Layout<'a> {
    /// Size of the payload if this claim were added.
    fn tokens_with(&self, item: &PackItem<'a>, bullet: &str) -> u64 {
        let line_feed = u64::from(tokens::estimate("\n"));
        let claim = line_feed + u64::from(tokens::estimate(bullet));
        if self.group_of.contains_key(item.source) {
            return self.tokens + claim;
        }
        let blank_line = if self.groups.is_empty() {
            0
        } else {
            2 * line_feed
        };
        self.tokens + blank_line + u64::from(tokens::estimate(&header(item))) + claim
    }

    fn add(&mut self, item: &PackItem<'a>, bullet: String, tokens: u64) {
        let group = *self.group_of.entry(item.source).or_insert_with(|| {
            self.groups.push((header(item), Vec::new()));
            self.groups.len() - 1
        });
        self.groups[group].1.push(bullet);
        self.tokens = tokens;
    }

    fn render(&self) -> String {
        let groups: Vec<String> = self
            .groups
            .iter()
            .map(|(header, bullets)| format!("{header}\n{}", bullets.join("\n")))
            .collect();
        groups.join("\n\n")
    }
}

/// The header line of a claim's source: its non-empty fields, else its key.
fn header(item: &PackItem<'_>) -> String {
    let mut fields: Vec<String> = [item.title, item.origin, item.date]
        .into_iter()
        .map(field)
        .filter(|field| !field.is_empty())
        .collect();
    if fields.is_empty() {
        fields.push(field(item.source));
    }
    format!("[{}]", fields.join(" | "))
}
