//! Quoted phrases against the texts of candidates.

use std::collections::{HashMap, HashSet};

use cortex_core::hash::Target;
use cortex_core::lexical::Posting;
use cortex_core::phrase::{MAX_CHECKED, Phrases};

use crate::error::Fault;
use crate::kept::{self, Access};

/// Texts that are read at a time.
const AT_ONCE: usize = 250;

/// What the phrases left of a ranked list.
#[derive(Default)]
pub struct Held {
    /// The items whose text holds every phrase, in their order.
    pub ranked: Vec<(i64, i64)>,
    /// Items after [`MAX_CHECKED`]: their texts were not read.
    pub unchecked: u64,
}

impl Held {
    /// The items alone.
    pub fn items(&self) -> Vec<i64> {
        self.ranked.iter().map(|(item, _)| *item).collect()
    }
}

/// Keeps the items of a ranked list whose text holds every phrase, of the first [`MAX_CHECKED`].
pub fn holding(phrases: &Phrases, target: Target, ranked: Vec<(i64, i64)>) -> Result<Held, Fault> {
    if phrases.is_empty() {
        return Ok(Held {
            ranked,
            unchecked: 0,
        });
    }
    let sql = match target {
        Target::Chunk => "SELECT i.id, i.body FROM cortex.chunk i WHERE i.id = ANY ($1)",
        Target::Claim => "SELECT i.id, i.body FROM cortex.claim i WHERE i.id = ANY ($1)",
    };
    let (checked, unchecked) = ranked.split_at(ranked.len().min(MAX_CHECKED));
    let mut held = Held {
        ranked: Vec::new(),
        unchecked: unchecked.len() as u64,
    };
    for part in checked.chunks(AT_ONCE) {
        pgrx::check_for_interrupts!();
        let ids: Vec<i64> = part.iter().map(|(item, _)| *item).collect();
        let mut found: HashSet<i64> = HashSet::new();
        kept::read(Access::Index, sql, &[ids.into()], |row| {
            if phrases.held_by(row.must::<&str>(2)?) {
                found.insert(row.must(1)?);
            }
            Ok(())
        })?;
        held.ranked
            .extend(part.iter().filter(|(item, _)| found.contains(item)));
    }
    Ok(held)
}

/// Keeps the items of a ranked list that hold every word of the phrases: no other can hold the phrases.
pub fn with_all_words(
    phrases: &Phrases,
    lists: &[(&str, Vec<Posting>)],
    ranked: Vec<(i64, i64)>,
) -> Vec<(i64, i64)> {
    if phrases.terms().is_empty() {
        return ranked;
    }
    let mut words: HashMap<i64, usize> = HashMap::new();
    for (term, postings) in lists {
        if phrases.terms().iter().any(|word| word == term) {
            for posting in postings {
                *words.entry(posting.item).or_default() += 1;
            }
        }
    }
    let all = phrases.terms().len();
    ranked
        .into_iter()
        .filter(|(item, _)| words.get(item) == Some(&all))
        .collect()
}
