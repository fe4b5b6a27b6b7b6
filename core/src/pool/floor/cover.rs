//! Which parts of source versions stand in served claims, word for word.

use std::collections::HashMap;

use super::Place;

/// Texts of claims by version.
#[derive(Default)]
pub(super) struct Said {
    of: HashMap<i64, Vec<(usize, String)>>,
}

impl Said {
    /// A claim is served.
    pub(super) fn add(&mut self, place: Place, text: &str) {
        // A span that is not as long as the text is where it was drawn from, not where it stands.
        if place.end.checked_sub(place.start) == Some(text.len()) {
            let spans = self.of.entry(place.version).or_default();
            spans.push((place.start, text.to_owned()));
        }
    }

    /// From the first to the last word of a chunk that no claim says, as offsets in its text. `None` if all is said;
    /// the whole text if nothing is, or if what is said lies in the middle.
    pub(super) fn rest(&self, chunk: Place, text: &str) -> Option<(usize, usize)> {
        let mut said: Vec<(usize, usize)> = Vec::new();
        for (start, claim) in self.of.get(&chunk.version).into_iter().flatten() {
            // Only what is there to the letter counts, whatever the place says.
            let Some(start) = start.checked_sub(chunk.start) else {
                continue;
            };
            let end = start + claim.len();
            if text.get(start..end) == Some(claim.as_str()) {
                said.push((start, end));
            }
        }
        if said.is_empty() {
            return Some((0, text.len()));
        }
        said.sort_unstable();
        let is_said = |at: usize| said.iter().any(|&(start, end)| start <= at && at < end);
        let left = |(at, ch): &(usize, char)| ch.is_alphanumeric() && !is_said(*at);
        let (first, _) = text.char_indices().find(left)?;
        let last = text.char_indices().rfind(left).map_or(first, |(at, _)| at);
        // The claims around it end where the rest begins: what is between, a bracket or a bullet, belongs to it.
        let start = said
            .iter()
            .filter(|span| span.1 <= first)
            .map(|span| span.1)
            .max();
        let end = said
            .iter()
            .filter(|span| span.0 > last)
            .map(|span| span.0)
            .min();
        let (start, end) = (start.unwrap_or(0), end.unwrap_or(text.len()));
        if (start, end) == (0, text.len()) {
            return Some((0, text.len()));
        }
        let part = &text[start..end];
        let blanks = part.len() - part.trim_start().len();
        Some((start + blanks, start + part.trim_end().len()))
    }
}
