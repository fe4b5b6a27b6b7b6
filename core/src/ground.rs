//! Whether a claim says only what its chunks say, as far as code can tell: its numbers and its names must occur
//! in them. Rule `cortex-ground/1`:
//!
//! - A *number* is a run of digits with separators inside it. Separators of thousands (`,` `.` `'` and blanks
//!   before groups of three) do not count, nor do zeros that change no value. `1.234` is one number or another
//!   depending on the country, so either reading may match. A word of scale multiplies (`5 million` is
//!   `5,000,000`); the number words up to twenty and the tens in a chunk count as numbers.
//! - A *unit* beside a number counts with it: where the chunks give that number another unit of the table below,
//!   it does not match; where they give it none, the unit must occur somewhere in them.
//! - A *name* is a capitalised word of two letters or more that does not begin a sentence, or begins one and is
//!   followed by another capitalised word, holds a further capital, or occurs inside a sentence as well. Case,
//!   compatibility forms, possessive and plural `s`, and the dots of `U.S.` do not count. A month also matches its
//!   abbreviation or its number.
//!
//! What this cannot see: a wrong name that begins the sentence alone, a wrong verb, facts joined wrongly. In a
//! language that capitalises nouns it asks that each noun be the chunk's own.

use std::collections::BTreeSet;

use crate::analyzer;
use crate::sentence;

/// A claim beyond this many characters is not one statement.
pub const CLAIM_MAX_CHARS: usize = 2_000;

/// Why a claim is refused before its chunks are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no text: null, not a text, or without a letter or digit.
    #[error("claim has no text")]
    Blank,
    /// The text is too long.
    #[error("claim has more than {CLAIM_MAX_CHARS} characters, which is not one statement")]
    TooLong,
}

/// The text of a claim to admit, trimmed. `None` stands for null and for anything that is not a text.
pub fn admissible(claim: Option<&str>) -> Result<&str, Refusal> {
    let text = claim.map(str::trim).unwrap_or_default();
    // Neither blanks nor marks, seen or unseen, say anything.
    if !text.chars().any(char::is_alphanumeric) {
        return Err(Refusal::Blank);
    }
    if text.chars().nth(CLAIM_MAX_CHARS).is_some() {
        return Err(Refusal::TooLong);
    }
    Ok(text)
}

/// Name of the rule, as recorded where it decided.
pub const NAME: &str = "cortex-ground/1";

/// The numbers (with their units) and names of `claim` that occur in none of `chunks`, as written, each once, in
/// the order of the claim. Empty: the claim is grounded.
pub fn missing(claim: &str, chunks: &[&str]) -> Vec<String> {
    let evidence = Evidence::of(chunks);
    let mut absent: Vec<(usize, String)> = Vec::new();
    for number in numbers(claim) {
        if !evidence.has_number(&number) {
            absent.push((number.at, number.written));
        }
    }
    for name in names(claim) {
        if !evidence.has_name(&name.folded) {
            absent.push((name.at, name.written));
        }
    }
    absent.sort_by_key(|(at, _)| *at);
    let mut seen = BTreeSet::new();
    absent
        .into_iter()
        .map(|(_, written)| written)
        .filter(|written| seen.insert(written.clone()))
        .collect()
}

/// The figures of `statement`: its numbers with their units, and each month that is named beside a number. Returns
/// how many there are, and those that occur in none of `chunks`, as written, each once, in their order.
pub fn figures(statement: &str, chunks: &[&str]) -> (usize, Vec<String>) {
    let evidence = Evidence::of(chunks);
    let numbers = numbers(statement);
    let mut found: Vec<(usize, String, bool)> = Vec::new();
    for word in words(statement) {
        let end = word.at + word.written.len();
        let beside = |number: &Number| {
            let number_end = number.at + number.written.len();
            let between = match number_end <= word.at {
                true => statement.get(number_end..word.at),
                false => statement.get(end..number.at),
            };
            between.is_some_and(|gap| matches!(gap, " " | ", " | ". " | "-" | " of "))
        };
        if MONTHS.contains(&word.folded.as_str()) && numbers.iter().any(beside) {
            let known = evidence.has_name(&word.folded);
            found.push((word.at, word.written, known));
        }
    }
    for number in numbers {
        let known = evidence.has_number(&number);
        found.push((number.at, number.written, known));
    }
    found.sort_by_key(|(at, _, _)| *at);
    let count = found.len();
    let mut seen = BTreeSet::new();
    let missing = found
        .into_iter()
        .filter(|(_, _, known)| !known)
        .map(|(_, written, _)| written)
        .filter(|written| seen.insert(written.clone()))
        .collect();
    (count, missing)
}

/// The numbers of `text` (with their units) that occur in none of `chunks`, as written, each once, in their order.
pub fn missing_numbers(text: &str, chunks: &[&str]) -> Vec<String> {
    let evidence = Evidence::of(chunks);
    let mut seen = BTreeSet::new();
    numbers(text)
        .into_iter()
        .filter(|number| !evidence.has_number(number))
        .map(|number| number.written)
        .filter(|written| seen.insert(written.clone()))
        .collect()
}

/// What the chunks hold.
struct Evidence {
    /// Reading and unit of every number.
    numbers: BTreeSet<(String, Option<&'static str>)>,
    /// Units beside a number or alone.
    units: BTreeSet<&'static str>,
    words: BTreeSet<String>,
}

impl Evidence {
    fn of(chunks: &[&str]) -> Self {
        let mut evidence = Evidence {
            numbers: BTreeSet::new(),
            units: BTreeSet::new(),
            words: BTreeSet::new(),
        };
        for chunk in chunks {
            for number in numbers(chunk) {
                for reading in number.readings.iter().chain(&number.parts) {
                    evidence.numbers.insert((reading.clone(), number.unit));
                }
            }
            for word in words(chunk) {
                if let Some(value) = number_word(&word.folded) {
                    evidence.numbers.insert((value.to_string(), None));
                }
                evidence.units.extend(unit(&word.folded));
                evidence.words.insert(word.folded);
            }
            let signs: BTreeSet<char> = chunk.chars().collect();
            let signs = signs.into_iter();
            evidence
                .units
                .extend(signs.filter_map(|c| unit(c.encode_utf8(&mut [0; 4]))));
        }
        let beside: Vec<&'static str> = evidence
            .numbers
            .iter()
            .filter_map(|(_, unit)| *unit)
            .collect();
        evidence.units.extend(beside);
        evidence
    }

    fn has_number(&self, number: &Number) -> bool {
        let with_unit = |reading: &String| match number.unit {
            None => self.units_of(reading).next().is_some(),
            Some(unit) => self.units_of(reading).any(|found| match found {
                Some(found) => found == unit,
                None => self.units.contains(unit),
            }),
        };
        number.readings.iter().any(with_unit)
            || (!number.parts.is_empty() && number.parts.iter().all(with_unit))
    }

    fn units_of<'a>(&'a self, reading: &'a str) -> impl Iterator<Item = Option<&'static str>> + 'a {
        self.numbers
            .range((reading.to_owned(), None)..)
            .take_while(move |(found, _)| found == reading)
            .map(|(_, unit)| *unit)
    }

    fn has_name(&self, name: &str) -> bool {
        if self.words.contains(name) || self.words.contains(&format!("{name}s")) {
            return true;
        }
        if name
            .strip_suffix('s')
            .is_some_and(|singular| self.words.contains(singular))
        {
            return true;
        }
        let Some(month) = MONTHS.iter().position(|month| *month == name) else {
            return false;
        };
        let short: String = name.chars().take(3).collect();
        self.words.contains(&short) || self.units_of(&(month + 1).to_string()).next().is_some()
    }
}

struct Number {
    at: usize,
    written: String,
    /// What it may mean, in one form.
    readings: Vec<String>,
    /// Of a number with plain blanks inside: its groups, which may as well be numbers of their own.
    parts: Vec<String>,
    unit: Option<&'static str>,
}

fn numbers(text: &str) -> Vec<Number> {
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let digit = |i: usize| chars.get(i).is_some_and(|(_, c)| c.is_ascii_digit());
    let offset = |i: usize| chars.get(i).map_or(text.len(), |(at, _)| *at);
    let mut found = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        if !digit(i) {
            i += 1;
            continue;
        }
        let start = i;
        // Digit groups with the separator before each.
        let mut groups: Vec<(Option<char>, String)> = Vec::new();
        let mut before = None;
        loop {
            let mut group = String::new();
            while digit(i) {
                group.push(chars[i].1);
                i += 1;
            }
            groups.push((before, group));
            let Some((_, separator)) = chars.get(i).copied() else {
                break;
            };
            let blank = matches!(separator, ' ' | '\u{a0}' | '\u{2009}' | '\u{202f}');
            let next_is_triple = (1..=3).all(|n| digit(i + n)) && !digit(i + 4);
            let first_is_short = groups[0].1.len() <= 3;
            let inside = match separator {
                ',' | '.' | '\'' | '\u{2019}' => digit(i + 1),
                _ if blank => next_is_triple && first_is_short,
                _ => false,
            };
            if !inside {
                break;
            }
            before = Some(if blank && separator != ' ' {
                '\u{a0}'
            } else {
                separator
            });
            i += 1;
        }
        let end = i;
        let symbol_before = start
            .checked_sub(1)
            .and_then(|i| chars.get(i))
            .and_then(|(_, c)| unit(c.encode_utf8(&mut [0; 4])));
        let (scale, after_scale) = scale_at(text, offset(end));
        let (suffix, after_unit) = unit_at(text, after_scale);
        let readings = readings(&groups)
            .into_iter()
            .map(|reading| scaled(&reading, scale))
            .collect();
        let plain_blanks = groups.iter().any(|(separator, _)| *separator == Some(' '));
        let parts = if plain_blanks {
            groups.iter().map(|(_, group)| plain(group, "")).collect()
        } else {
            Vec::new()
        };
        let written = text[offset(start)..after_unit.max(after_scale)]
            .trim_end()
            .to_owned();
        found.push(Number {
            at: offset(start),
            written,
            readings,
            parts,
            unit: symbol_before.or(suffix),
        });
    }
    found
}

/// What a written number may mean: all separators of thousands, or the last one a decimal mark. One that can be
/// neither (a version, a date with dots) means its groups in their order.
fn readings(groups: &[(Option<char>, String)]) -> Vec<String> {
    let all = |groups: &[(Option<char>, String)]| -> String {
        groups.iter().map(|(_, g)| g.as_str()).collect()
    };
    let triples = |groups: &[(Option<char>, String)]| {
        groups.len() == 1
            || (groups[0].1.len() <= 3 && groups[1..].iter().all(|(_, g)| g.len() == 3))
    };
    let mut readings = Vec::new();
    if triples(groups) {
        readings.push(plain(&all(groups), ""));
    }
    if let [whole @ .., (Some('.' | ','), decimals)] = groups
        && !whole.is_empty()
        && triples(whole)
    {
        readings.push(plain(&all(whole), decimals));
    }
    if readings.is_empty() {
        let groups: Vec<String> = groups.iter().map(|(_, group)| plain(group, "")).collect();
        readings.push(groups.join("|"));
    }
    readings.dedup();
    readings
}

/// Without zeros that change nothing.
fn plain(whole: &str, decimals: &str) -> String {
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    match decimals.trim_end_matches('0') {
        "" => whole.to_owned(),
        decimals => format!("{whole}.{decimals}"),
    }
}

/// A reading times ten to the power `zeros`.
fn scaled(reading: &str, zeros: usize) -> String {
    if zeros == 0 {
        return reading.to_owned();
    }
    let (whole, decimals) = reading.split_once('.').unwrap_or((reading, ""));
    let padded = format!("{decimals:0<zeros$}");
    let (moved, rest) = padded.split_at(zeros);
    plain(&format!("{whole}{moved}"), rest)
}

/// The word at `at`, at most one blank on, with the offset after it.
fn word_at(text: &str, at: usize) -> Option<(String, usize)> {
    let rest = &text[at..];
    let body = rest
        .strip_prefix([' ', '\u{a0}', '\u{202f}', '-'])
        .unwrap_or(rest);
    let length = body
        .char_indices()
        .find(|(_, c)| !c.is_alphabetic())
        .map_or(body.len(), |(end, _)| end);
    let end = text.len() - body.len() + length;
    (length > 0).then(|| (analyzer::normalise(&body[..length]), end))
}

fn scale_at(text: &str, at: usize) -> (usize, usize) {
    let Some((word, end)) = word_at(text, at) else {
        return (0, at);
    };
    match word.as_str() {
        "thousand" => (3, end),
        "million" | "millions" | "mn" | "mio" => (6, end),
        "billion" | "billions" | "bn" => (9, end),
        "trillion" | "trillions" => (12, end),
        _ => (0, at),
    }
}

fn unit_at(text: &str, at: usize) -> (Option<&'static str>, usize) {
    let rest = &text[at..];
    let body = rest
        .strip_prefix([' ', '\u{a0}', '\u{202f}'])
        .unwrap_or(rest);
    if let Some(symbol) = body.chars().next()
        && let Some(unit) = unit(symbol.encode_utf8(&mut [0; 4]))
    {
        return (Some(unit), text.len() - body.len() + symbol.len_utf8());
    }
    match word_at(text, at) {
        Some((word, end)) => match unit(&word) {
            Some(unit) => (Some(unit), end),
            None => (None, at),
        },
        None => (None, at),
    }
}

/// The one name of a unit, by any of its spellings (folded).
fn unit(word: &str) -> Option<&'static str> {
    UNITS
        .iter()
        .find(|spellings| spellings.contains(&word))
        .map(|spellings| spellings[0])
}

const UNITS: &[&[&str]] = &[
    &["%", "percent", "pct"],
    &["$", "usd", "dollar", "dollars"],
    &["€", "eur", "euro", "euros"],
    &["£", "gbp", "pounds"],
    &["¥", "jpy", "yen"],
    &["km", "kilometre", "kilometres", "kilometer", "kilometers"],
    &["m", "metre", "metres", "meter", "meters"],
    &[
        "cm",
        "centimetre",
        "centimetres",
        "centimeter",
        "centimeters",
    ],
    &[
        "mm",
        "millimetre",
        "millimetres",
        "millimeter",
        "millimeters",
    ],
    &["miles", "mile", "mi"],
    &["feet", "foot", "ft"],
    &["kg", "kilogram", "kilograms", "kilo", "kilos"],
    &["g", "gram", "grams"],
    &["mg", "milligram", "milligrams"],
    &["tonnes", "tonne", "tons", "ton", "t"],
    &["l", "litre", "litres", "liter", "liters"],
    &[
        "ml",
        "millilitre",
        "millilitres",
        "milliliter",
        "milliliters",
    ],
    &["years", "year", "yrs", "yr"],
    &["months", "month"],
    &["weeks", "week"],
    &["days", "day"],
    &["hours", "hour", "hrs", "hr", "h"],
    &["minutes", "minute", "mins", "min"],
    &["seconds", "second", "secs", "sec", "s"],
    &["ms", "millisecond", "milliseconds"],
    &["kw", "kilowatt", "kilowatts"],
    &["mw", "megawatt", "megawatts"],
    &["gw", "gigawatt", "gigawatts"],
    &["kwh"],
    &["gb", "gigabyte", "gigabytes"],
    &["mb", "megabyte", "megabytes"],
    &["kb", "kilobyte", "kilobytes"],
    &["hz", "hertz"],
    &["khz"],
    &["mhz"],
    &["ghz"],
    &["bar"],
    &["°", "degrees", "degree"],
];

fn number_word(word: &str) -> Option<u32> {
    const SMALL: [&str; 21] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
        "twenty",
    ];
    const TENS: [&str; 7] = [
        "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
    ];
    let small = SMALL.iter().position(|small| *small == word);
    let tens = || {
        TENS.iter()
            .position(|tens| *tens == word)
            .map(|n| (n + 3) * 10)
    };
    small.or_else(tens).map(|value| value as u32)
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

struct Word {
    at: usize,
    written: String,
    folded: String,
}

/// Runs of letters and digits, the possessive left out, `U.S.` as one.
fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut end_of_last = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let skipped = rest.find(char::is_alphanumeric).unwrap_or(rest.len());
        let start = at + skipped;
        let rest = &text[start..];
        let length = rest
            .find(|c: char| !c.is_alphanumeric() && !is_mark(c))
            .unwrap_or(rest.len());
        if length == 0 {
            break;
        }
        at = start + length;
        let written = &text[start..at];
        let between = &text[end_of_last..start];
        let single = written.chars().count() == 1;
        let possessive = matches!(between, "'" | "\u{2019}") && matches!(written, "s" | "S");
        let initials =
            between == "." && single && words.last().is_some_and(|last| is_initials(&last.written));
        end_of_last = at;
        if possessive && !words.is_empty() {
            continue;
        }
        if initials && let Some(last) = words.last_mut() {
            last.written.push_str(written);
            last.folded = analyzer::normalise(&last.written);
            continue;
        }
        words.push(Word {
            at: start,
            written: written.to_owned(),
            folded: analyzer::normalise(written),
        });
    }
    words
}

/// Combining accents belong to the letter before them.
fn is_mark(c: char) -> bool {
    ('\u{300}'..='\u{36f}').contains(&c)
}

/// One capital, or capitals that were joined already.
fn is_initials(written: &str) -> bool {
    written.chars().count() <= 8 && written.chars().all(char::is_uppercase)
}

fn names(claim: &str) -> Vec<Word> {
    let starts: BTreeSet<usize> = sentence::sentences(claim)
        .into_iter()
        .map(|span| span.start)
        .collect();
    let words = words(claim);
    let capital = |word: &Word| word.written.chars().next().is_some_and(char::is_uppercase);
    let mut begins = Vec::with_capacity(words.len());
    let mut end_of_last = 0;
    for word in &words {
        let between = claim.get(end_of_last..word.at).unwrap_or("");
        let first = end_of_last == 0 || starts.range(end_of_last..=word.at).next().is_some();
        let opened = between.contains([':', '"', '\u{201c}', '\u{ab}', '\u{201e}', '\n', '(', '[']);
        begins.push(first || opened);
        end_of_last = word.at + word.written.len();
    }
    let inside: BTreeSet<String> = words
        .iter()
        .zip(&begins)
        .filter(|(word, begins)| capital(word) && !**begins)
        .map(|(word, _)| word.folded.clone())
        .collect();
    let next_is_capital: Vec<bool> = (0..words.len())
        .map(|n| {
            words.get(n + 1).is_some_and(|next| {
                let adjacent = claim.get(words[n].at + words[n].written.len()..next.at);
                capital(next)
                    && !begins[n + 1]
                    && adjacent.is_some_and(|gap| gap == " " || gap == "-")
            })
        })
        .collect();
    words
        .into_iter()
        .enumerate()
        .filter(|(n, word)| {
            let letters = word.written.chars().filter(|c| c.is_alphabetic()).count();
            let further = word.written.chars().skip(1).any(char::is_uppercase);
            let stop = next_is_capital[*n] && analyzer::query_terms(&word.folded).is_empty();
            capital(word)
                && letters >= 2
                && (!begins[*n]
                    || further
                    || inside.contains(&word.folded)
                    || (next_is_capital[*n] && !stop))
        })
        .map(|(_, word)| word)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blank_and_overlong_claims_are_refused() {
        for blank in [None, Some(""), Some(" \n\t"), Some("\u{0}\u{7}")] {
            assert_eq!(admissible(blank), Err(Refusal::Blank), "{blank:?}");
        }
        let longest = "é".repeat(CLAIM_MAX_CHARS);
        assert_eq!(admissible(Some(&longest)), Ok(longest.as_str()));
        let longer = format!("{longest}x");
        assert_eq!(admissible(Some(&longer)), Err(Refusal::TooLong));
        assert_eq!(admissible(Some(" a claim\n")), Ok("a claim"));
    }

    fn grounded(claim: &str, chunk: &str) {
        assert_eq!(
            missing(claim, &[chunk]),
            Vec::<String>::new(),
            "{claim} / {chunk}"
        );
    }

    fn lacks(claim: &str, chunk: &str, what: &[&str]) {
        assert_eq!(missing(claim, &[chunk]), what, "{claim} / {chunk}");
    }

    #[test]
    fn thousands_and_decimals_in_any_country() {
        for written in [
            "1,234,567",
            "1.234.567",
            "1 234 567",
            "1\u{202f}234\u{202f}567",
            "1'234'567",
            "1234567",
        ] {
            grounded(&format!("The plant cost {written}."), "It cost 1,234,567.");
            grounded(
                "The plant cost 1234567.",
                &format!("It cost {written} in all."),
            );
        }
        grounded("It weighs 3.5 kg.", "weight: 3,50 kg");
        grounded("It weighs 1.234.", "1,234");
        lacks("It weighs 12.34.", "1,234", &["12.34"]);
        lacks("It cost 1,234,568.", "It cost 1,234,567.", &["1,234,568"]);
        lacks("There are 12.", "There are 120.", &["12"]);
        lacks("There are 120.", "There are 12.", &["120"]);
    }

    #[test]
    fn scale_and_number_words() {
        grounded("It has 5 million users.", "It has 5,000,000 users.");
        grounded("It has 2,500,000 users.", "It has 2.5 million users.");
        lacks(
            "It has 5 million users.",
            "It has 5 thousand users.",
            &["5 million"],
        );
        lacks("It has 5 users.", "It has 5 million users.", &["5"]);
        grounded("It has 12 doors.", "It has twelve doors.");
        grounded("It has 40 doors.", "It has forty doors.");
    }

    #[test]
    fn a_unit_goes_with_its_number() {
        grounded(
            "It is 5 km long.",
            "It is 5 kilometres long and weighs 7 kg.",
        );
        lacks(
            "It is 7 km long.",
            "It is 5 km long and weighs 7 kg.",
            &["7 km"],
        );
        grounded("It grew by 12%.", "growth: 12 percent");
        lacks("It grew by 12%.", "It grew to 12 people.", &["12%"]);
        grounded("It weighs 5 kg.", "Weight (kg): 5");
        grounded("It cost $5.", "It cost 5 dollars.");
        lacks("It cost $5.", "It cost €5.", &["5"]);
    }

    #[test]
    fn names_inside_a_sentence() {
        grounded("The firm is led by Ada Stein.", "Ada Stein leads the firm.");
        lacks(
            "The firm is led by Ada Stone.",
            "Ada Stein leads the firm.",
            &["Stone"],
        );
        // Alone at the start nothing tells a name from any other word.
        grounded("Founded by Stein.", "Stein began it.");
        lacks("Bert Stein founded it.", "Ada Stein founded it.", &["Bert"]);
        lacks("NASA said so.", "They said so.", &["NASA"]);
        grounded("The U.S. agreed.", "The US agreed.");
        grounded("It is Stein's firm.", "the firm of Stein");
        grounded("He met the Germans.", "a German firm he met");
        grounded(
            "The \u{c5}ngstr\u{f6}m is a unit.",
            "The A\u{30a}ngstro\u{308}m is a unit.",
        );
        grounded("It opened on 5 January 2024.", "opened 2024-01-05");
        lacks(
            "It opened on 5 March 2024.",
            "opened 2024-01-05",
            &["March"],
        );
    }

    #[test]
    fn figures_are_numbers_and_dates_only() {
        let none = |text: &str| figures(text, &[]);
        assert_eq!(none("Ada Stein founded it in May."), (0, vec![]));
        assert_eq!(none("It has 3 doors."), (1, vec!["3".into()]));
        let told = "It opened on 5 March 2024, May 3, 2025 and in June of 2026.";
        assert_eq!(figures(told, &[told]), (8, vec![]));
        let (count, missing) = figures(told, &["2024-03-05, 2025-05-03 and 2026"]);
        assert_eq!((count, missing), (8, vec!["June".into()]));
        assert_eq!(figures("It is 5 km long.", &["5 kilometres"]), (1, vec![]));
    }

    #[test]
    fn several_chunks_answer_together() {
        assert_eq!(
            missing("Ada Stein has 3 dogs.", &["Ada Stein", "3 dogs"]),
            Vec::<String>::new()
        );
        assert_eq!(missing("It has 3 dogs.", &[]), ["3"]);
        assert_eq!(missing("It has 3 dogs, 3 dogs.", &["none"]), ["3"]);
    }

    #[test]
    fn odd_numbers_keep_their_groups() {
        grounded("Version 1.2.3 is out.", "release 1.2.3");
        lacks("Version 1.2.4 is out.", "release 1.2.3", &["1.2.4"]);
        grounded("It flew an A320.", "an A320 of theirs");
    }

    proptest! {
        #[test]
        fn what_is_copied_is_grounded(text in "[A-Za-z0-9,.'$% \u{e9}\u{a0}-]{0,80}") {
            prop_assert_eq!(missing(&text, &[&text]), Vec::<String>::new());
        }

        #[test]
        fn more_evidence_never_takes_ground_away(claim in "\\PC{0,60}", a in "\\PC{0,60}", b in "\\PC{0,60}") {
            let alone = missing(&claim, &[&a]);
            let both = missing(&claim, &[&a, &b]);
            prop_assert!(both.iter().all(|word| alone.contains(word)), "{alone:?} {both:?}");
        }

        #[test]
        fn a_number_that_is_not_there_is_missed(n in 0u32..1_000_000, m in 0u32..1_000_000) {
            let told = missing(&format!("it has {n} parts"), &[&format!("it has {m} parts")]);
            prop_assert_eq!(told.is_empty(), n == m);
        }
    }
}
