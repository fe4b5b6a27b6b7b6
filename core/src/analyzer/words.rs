//! Splitting text into words, compounds and character pairs.

use super::fold::{self, Class, Unit};
use super::{MAX_TERM_BYTES, MAX_TOKENS, Token, english, stem};

/// Characters that are looked at together when compounds are sought.
const MAX_RUN_UNITS: usize = 512;

/// A token that borrows its term.
pub(super) struct TokenRef<'a> {
    pub term: &'a str,
    pub start: usize,
    pub end: usize,
    pub position: u32,
    pub stop: bool,
}

impl TokenRef<'_> {
    pub(super) fn to_owned(&self) -> Token {
        let TokenRef {
            term,
            start,
            end,
            position,
            stop,
        } = *self;
        Token {
            term: term.to_owned(),
            start,
            end,
            position,
            stop,
        }
    }
}

/// Calls `sink` with each token of `text`, up to [`MAX_TOKENS`].
pub(super) fn for_each(text: &str, sink: &mut dyn FnMut(TokenRef<'_>)) {
    for_each_until(text, u32::MAX, sink);
}

/// As [`for_each`], but stops looking when `positions` words were found; a few more may be reported.
pub(super) fn for_each_until(text: &str, positions: u32, sink: &mut dyn FnMut(TokenRef<'_>)) {
    let mut splitter = Splitter {
        sink,
        term: String::new(),
        emitted: 0,
        position: 0,
    };
    let mut units = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.as_bytes().get(at)
        && splitter.emitted < MAX_TOKENS
        && splitter.position < positions
    {
        if byte.is_ascii() && fold::ascii_class(byte) == Class::Break {
            at += 1;
            continue;
        }
        at = match plain_word_end(text.as_bytes(), at) {
            Some(end) => {
                splitter.plain_word(text, at, end);
                end
            }
            None => {
                let end = fill_run(text, at, &mut units);
                drop_thousands_commas(&mut units);
                splitter.run(&units);
                end
            }
        };
    }
}

/// The end of the word at `start` if it is of ASCII letters and digits, stands alone (no compound, no other
/// script beside it) and does not change case inside: most words, which need no folding table.
fn plain_word_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut end = start;
    let mut has_lower = false;
    let mut has_upper_inside = false;
    while let Some(byte) = bytes.get(end).filter(|byte| byte.is_ascii_alphanumeric()) {
        has_lower |= byte.is_ascii_lowercase();
        has_upper_inside |= byte.is_ascii_uppercase() && end > start;
        end += 1;
        if end - start > MAX_RUN_UNITS {
            return None;
        }
    }
    let is_plain = end > start && !(has_lower && has_upper_inside) && !joins_next(bytes, end);
    is_plain.then_some(end)
}

/// Whether what stands at `at` may belong to the word before it: a character that is not ASCII, or a joiner
/// with more behind it.
fn joins_next(bytes: &[u8], at: usize) -> bool {
    let Some(&next) = bytes.get(at) else {
        return false;
    };
    match fold::ascii_class(next) {
        _ if !next.is_ascii() => true,
        Class::Break => false,
        // Of joiners only underscores can be repeated.
        Class::Underscore => true,
        _ => bytes
            .get(at + 1)
            .is_some_and(|after| after.is_ascii_alphanumeric() || !after.is_ascii()),
    }
}

/// Folds the run of words that begins at `start` into `units` and returns the offset after it. Makes
/// progress always: a character that ends the run is passed over.
fn fill_run(text: &str, start: usize, units: &mut Vec<Unit>) -> usize {
    units.clear();
    let Some(rest) = text.get(start..) else {
        return text.len();
    };
    for (offset, ch) in rest.char_indices() {
        let (from, to) = (start + offset, start + offset + ch.len_utf8());
        if !fold::push_folded(units, ch, from, to) {
            return to;
        }
        if units.len() >= MAX_RUN_UNITS {
            return to;
        }
    }
    text.len()
}

/// Where a part of a compound is and what joins it to the part before.
#[derive(Clone, Copy)]
struct Part {
    from: usize,
    to: usize,
    /// `None` where only the case changes, or for the first part.
    joiner: Option<Class>,
    stop: bool,
    clitic: bool,
}

struct Splitter<'s> {
    sink: &'s mut dyn FnMut(TokenRef<'_>),
    /// Scratch for the term in hand.
    term: String,
    emitted: usize,
    position: u32,
}

impl Splitter<'_> {
    fn plain_word(&mut self, text: &str, start: usize, end: usize) {
        self.term.clear();
        self.term.push_str(&text[start..end]);
        self.term.make_ascii_lowercase();
        let stop = english::is_stop_word(&self.term);
        self.emit(start, end, stop, true);
    }

    /// Splits folded units at breaks and between scripts with and without spaces.
    fn run(&mut self, units: &[Unit]) {
        let mut rest = units;
        while let Some(first) = rest.first() {
            let is_gram = first.class == Class::Gram;
            let length = match first.class {
                Class::Break => 1,
                Class::Gram => rest
                    .iter()
                    .take_while(|unit| matches!(unit.class, Class::Gram | Class::Mark))
                    .count(),
                _ => rest
                    .iter()
                    .take_while(|unit| !matches!(unit.class, Class::Gram | Class::Break))
                    .count(),
            };
            let (stretch, after) = rest.split_at(length);
            if is_gram {
                self.grams(stretch);
            } else if first.class != Class::Break {
                self.compounds(stretch);
            }
            rest = after;
        }
    }

    /// Overlapping pairs of characters, each with its marks; a lone character by itself.
    fn grams(&mut self, units: &[Unit]) {
        let starts: Vec<usize> = (0..units.len())
            .filter(|&at| units[at].class == Class::Gram)
            .chain([units.len()])
            .collect();
        let pair_ends = if starts.len() == 2 {
            &starts[1..]
        } else {
            &starts[2..]
        };
        for (&from, &to) in starts.iter().zip(pair_ends) {
            self.fill(&units[from..to]);
            let (start, end) = extent(&units[from..to]);
            self.emit(start, end, false, true);
        }
    }

    /// Splits a stretch without breaks into compounds and emits each.
    fn compounds(&mut self, units: &[Unit]) {
        let mut parts: Vec<Part> = Vec::new();
        let mut joiner = None;
        let mut at = 0;
        while at < units.len() {
            if units[at].class.is_word() {
                let to = word_end(units, at);
                self.push_case_parts(units, at, to, joiner, &mut parts);
                joiner = None;
                at = to;
            } else {
                let class = units[at].class;
                let joins = match joiner {
                    None => class != Class::Comma && !parts.is_empty(),
                    Some(before) => before == Class::Underscore && class == Class::Underscore,
                };
                if joins {
                    joiner = Some(class);
                } else {
                    self.compound(units, &parts);
                    parts.clear();
                    joiner = None;
                }
                at += 1;
            }
        }
        self.compound(units, &parts);
    }

    /// Adds the parts of the word `from..to`, cut where its case changes.
    fn push_case_parts(
        &mut self,
        units: &[Unit],
        from: usize,
        to: usize,
        joiner: Option<Class>,
        parts: &mut Vec<Part>,
    ) {
        let mut start = from;
        let mut joiner = joiner;
        for at in from + 1..to {
            if case_changes(&units[start..to], at - start) {
                parts.push(self.part(units, start, at, joiner));
                joiner = None;
                start = at;
            }
        }
        let last = self.part(units, start, to, joiner);
        if last.clitic && self.term == "t" {
            // don't, isn't: the word before is as common as the rest.
            if let Some(before) = parts.last_mut() {
                before.stop = true;
            }
        }
        parts.push(last);
    }

    fn part(&mut self, units: &[Unit], from: usize, to: usize, joiner: Option<Class>) -> Part {
        self.fill(without_plural_of_acronym(&units[from..to]));
        let clitic = joiner == Some(Class::Apostrophe) && english::is_clitic(&self.term);
        Part {
            from,
            to,
            joiner,
            stop: clitic || english::is_stop_word(&self.term),
            clitic,
        }
    }

    /// Emits the whole of a compound and its parts, or a single word.
    fn compound(&mut self, units: &[Unit], parts: &[Part]) {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return;
        };
        if is_acronym(parts) {
            self.fill(&units[first.from..last.to]);
            self.term.retain(|ch| ch != '.');
            let stop = english::is_stop_word(&self.term);
            let (start, end) = extent(&units[first.from..last.to]);
            self.emit(start, end, stop, true);
            return;
        }
        if parts.iter().filter(|part| !part.clitic).count() > 1 {
            self.whole(units, parts);
        }
        for part in parts {
            self.fill(without_plural_of_acronym(&units[part.from..part.to]));
            let (start, end) = extent(&units[part.from..part.to]);
            self.emit(start, end, part.stop, true);
        }
    }

    /// Emits the parts joined: dots stay, since 15.2 is not 152; other joiners go, so that the ways to write
    /// one name (`user_id`, `userId`, `user-id`) meet. Wholes that would be cut are left out.
    fn whole(&mut self, units: &[Unit], parts: &[Part]) {
        let kept: Vec<&Part> = parts.iter().filter(|part| !part.clitic).collect();
        let (Some(first), Some(last)) = (kept.first(), kept.last()) else {
            return;
        };
        self.term.clear();
        for part in &kept {
            if part.joiner == Some(Class::Dot) && part.from != first.from {
                self.term.push('.');
            }
            self.term
                .extend(units[part.from..part.to].iter().map(|unit| unit.ch));
            if self.term.len() > MAX_TERM_BYTES {
                return;
            }
        }
        let (start, end) = extent(&units[first.from..last.to]);
        self.emit(start, end, false, false);
    }

    fn fill(&mut self, units: &[Unit]) {
        self.term.clear();
        self.term
            .extend(units.iter().map(|unit| unit.ch).take(MAX_TERM_BYTES));
    }

    /// Hands the term in `self.term` to the sink, cut and stemmed.
    fn emit(&mut self, start: usize, end: usize, stop: bool, advances: bool) {
        if self.emitted >= MAX_TOKENS {
            return;
        }
        self.term
            .truncate(self.term.floor_char_boundary(MAX_TERM_BYTES));
        if self.term.bytes().all(|byte| byte.is_ascii_lowercase()) {
            stem::stem(&mut self.term);
        }
        (self.sink)(TokenRef {
            term: &self.term,
            start,
            end,
            position: self.position,
            stop,
        });
        self.emitted += 1;
        if advances {
            self.position += 1;
        }
    }
}

/// The bytes of the text that the units came from.
fn extent(units: &[Unit]) -> (usize, usize) {
    let start = units.iter().map(|unit| unit.start).min().unwrap_or(0);
    let end = units.iter().map(|unit| unit.end).max().unwrap_or(start);
    (start, end)
}

/// Removes the commas of numbers like `1,000,000`, so that they read as one word of digits.
fn drop_thousands_commas(units: &mut Vec<Unit>) {
    if !units.iter().any(|unit| unit.class == Class::Comma) {
        return;
    }
    let is_digit = |index: usize| {
        units
            .get(index)
            .is_some_and(|unit| unit.class == Class::Digit)
    };
    let separates = |at: usize| {
        units[at].class == Class::Comma
            && at.checked_sub(1).is_some_and(is_digit)
            && (at + 1..at + 4).all(is_digit)
            && !is_digit(at + 4)
    };
    let dropped: Vec<bool> = (0..units.len()).map(separates).collect();
    let mut dropped = dropped.into_iter();
    units.retain(|_| !dropped.next().unwrap_or(false));
}

/// The end of the word at `from`.
fn word_end(units: &[Unit], from: usize) -> usize {
    units[from..]
        .iter()
        .position(|unit| !unit.class.is_word())
        .map_or(units.len(), |length| from + length)
}

/// Whether a new part begins at `at` within `word`: `fooBar`, `html5Parser`, `HTTPServer`. Parts of a single
/// letter are not split off (`iPhone`, `mRNA`, `PhD`), nor is a plural ending (`CPUs`).
fn case_changes(word: &[Unit], at: usize) -> bool {
    let class = |index: usize| word.get(index).map(|unit| unit.class);
    let Some([before, here]) = word.get(at - 1..=at) else {
        return false;
    };
    // Both may be parts of one character: a ligature in upper case.
    if at < 2 || here.class != Class::Upper || here.start < before.end {
        return false;
    }
    let lower_follows = class(at + 1) == Some(Class::Lower);
    match before.class {
        Class::Lower => class(at + 1).is_some_and(|next| next != Class::Digit),
        Class::Digit => lower_follows,
        Class::Upper => lower_follows && class(at + 2) == Some(Class::Lower),
        _ => false,
    }
}

/// `CPUs` without its s, which stemming would take for part of a Latin word.
fn without_plural_of_acronym(word: &[Unit]) -> &[Unit] {
    match word {
        [acronym @ .., last]
            if acronym.len() > 1
                && last.class == Class::Lower
                && last.ch == 's'
                && acronym.iter().all(|unit| unit.class == Class::Upper) =>
        {
            acronym
        }
        _ => word,
    }
}

/// Single letters joined by dots: `U.S.A`, `e.g`.
fn is_acronym(parts: &[Part]) -> bool {
    parts.len() > 1
        && parts.iter().all(|part| part.to - part.from == 1)
        && parts
            .iter()
            .skip(1)
            .all(|part| part.joiner == Some(Class::Dot))
}
