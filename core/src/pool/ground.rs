//! Checking claims that a model made against the chunks they cite, `cortex-ground/1`.
//!
//! A small model invents and mixes up. Whether a sentence follows from a text cannot be decided by code, but
//! what is most often wrong can: every number and every name of a claim must occur in a chunk that it cites.
//!
//! *Numbers* are runs of digits, in any script, with `.`, `,` or `:` between digits. Commas before groups of
//! three digits are ignored, so `1,000` is `1000`; so are leading zeros of a whole number. `15` is not in
//! `150`, nor `1.5` in `15`.
//!
//! *Names* are words with a capital letter. A word at the start of a sentence is one only if it has a capital
//! beyond its first letter, or if another capitalised word follows and it is no English stop word. Case, compatibility forms and a
//! possessive `'s` do not count. Scripts without case have no names here.

use std::collections::HashSet;

use thiserror::Error;
use unicode_normalization::UnicodeNormalization;

use crate::analyzer::is_stop_word;

/// Name of this check as recorded with builds.
pub const NAME: &str = "cortex-ground/1";

/// A claim beyond this many characters is not one statement.
pub const CLAIM_MAX_CHARS: usize = 1_000;

/// Why a claim is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// There is no text: null, not a text, or blank.
    #[error("claim has no text")]
    Blank,
    /// The text is too long.
    #[error("claim has more than {CLAIM_MAX_CHARS} characters, which is not one statement")]
    TooLong,
    /// It cites no chunk, or one that was not given to the build.
    #[error("claim cites no chunk that was given to the build")]
    UnknownChunk,
    /// A number or name does not occur in the chunks it cites.
    #[error("{missing:?} does not occur in the chunks that the claim cites")]
    Ungrounded {
        /// The first such number or name, as the claim has it.
        missing: String,
    },
}

impl Refusal {
    /// The name under which it is counted.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Blank => "blank",
            Self::TooLong => "too_long",
            Self::UnknownChunk => "unknown_chunk",
            Self::Ungrounded { .. } => "ungrounded",
        }
    }
}

/// The text of a claim to admit, trimmed, or why it is refused before its chunks are looked at. `None` stands
/// for null and for anything that is not a text.
pub fn admissible(claim: Option<&str>) -> Result<&str, Refusal> {
    let text = claim.map(str::trim).unwrap_or_default();
    let visible = text
        .chars()
        .any(|ch| !ch.is_whitespace() && !ch.is_control());
    if !visible {
        return Err(Refusal::Blank);
    }
    if text.chars().nth(CLAIM_MAX_CHARS).is_some() {
        return Err(Refusal::TooLong);
    }
    Ok(text)
}

/// The numbers and words of the texts that claims may rest on.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    numbers: HashSet<String>,
    words: HashSet<String>,
}

impl Evidence {
    /// Reads the chunks that a claim cites; the title of their source may be among the texts.
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut evidence = Self::default();
        for text in texts {
            let text: String = text.nfkc().collect();
            evidence
                .numbers
                .extend(numbers(&text).map(|n| number_form(&n)));
            evidence
                .words
                .extend(words(&text).map(|word| word_form(word.text)));
        }
        evidence
    }

    /// Admits a claim, or says why not. The text returned is trimmed.
    ///
    /// Errors: [`Refusal::Blank`], [`Refusal::TooLong`], [`Refusal::UnknownChunk`] if there is no evidence at
    /// all, [`Refusal::Ungrounded`].
    pub fn check<'c>(&self, claim: Option<&'c str>) -> Result<&'c str, Refusal> {
        let text = admissible(claim)?;
        if self.words.is_empty() {
            return Err(Refusal::UnknownChunk);
        }
        let folded: String = text.nfkc().collect();
        let missing_number = numbers(&folded).find(|n| !self.numbers.contains(&number_form(n)));
        let missing = missing_number.or_else(|| {
            names(&folded)
                .into_iter()
                .find(|name| !self.words.contains(&word_form(name)))
                .map(str::to_owned)
        });
        match missing {
            Some(missing) => Err(Refusal::Ungrounded { missing }),
            None => Ok(text),
        }
    }
}

/// How many claims of a build were refused, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// [`Refusal::Blank`].
    pub blank: u32,
    /// [`Refusal::Ungrounded`].
    pub ungrounded: u32,
    /// [`Refusal::UnknownChunk`].
    pub unknown_chunk: u32,
    /// [`Refusal::TooLong`].
    pub too_long: u32,
    /// Said before, see [`super::merge`].
    pub repeated: u32,
}

impl Dropped {
    /// Counts a refusal.
    pub fn count(&mut self, refusal: &Refusal) {
        match refusal {
            Refusal::Blank => self.blank += 1,
            Refusal::TooLong => self.too_long += 1,
            Refusal::UnknownChunk => self.unknown_chunk += 1,
            Refusal::Ungrounded { .. } => self.ungrounded += 1,
        }
    }

    /// All refusals.
    pub fn total(&self) -> u32 {
        self.blank + self.ungrounded + self.unknown_chunk + self.too_long + self.repeated
    }
}

/// The numbers of a text as they stand in it.
fn numbers(text: &str) -> impl Iterator<Item = String> {
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < chars.len() && !chars[at].is_numeric() {
            at += 1;
        }
        let start = at;
        while at < chars.len() {
            let inner = matches!(chars[at], '.' | ',' | ':')
                && chars.get(at + 1).is_some_and(|next| next.is_numeric());
            if !chars[at].is_numeric() && !inner {
                break;
            }
            at += 1;
        }
        (start < at).then(|| chars[start..at].iter().collect())
    })
}

/// The form under which two numbers are the same.
fn number_form(number: &str) -> String {
    let ascii: String = number.chars().map(ascii_digit).collect();
    let mut groups = ascii.split(',');
    let first = groups.next().unwrap_or_default();
    let rest: Vec<&str> = groups.collect();
    // In `1,234,567.8` every group after a comma has three digits before whatever follows.
    let thousands = rest.iter().enumerate().all(|(n, group)| {
        let whole = match n + 1 == rest.len() {
            true => group.split('.').next().unwrap_or_default(),
            false => group,
        };
        whole.len() == 3 && whole.bytes().all(|byte| byte.is_ascii_digit())
    });
    let plain = match thousands {
        true => format!("{first}{}", rest.concat()),
        false => ascii,
    };
    let digits_only = plain.chars().all(char::is_numeric);
    match plain.trim_start_matches('0') {
        _ if !digits_only => plain,
        "" => "0".to_owned(),
        significant => significant.to_owned(),
    }
}

/// Decimal digits of other scripts as ASCII: Unicode keeps them in runs of ten from zero.
fn ascii_digit(ch: char) -> char {
    /// First code points of the runs in common use.
    const ZEROS: [u32; 12] = [
        0x660, 0x6F0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xE50,
    ];
    let code = u32::from(ch);
    ZEROS
        .iter()
        .find_map(|&zero| code.checked_sub(zero).filter(|&digit| digit < 10))
        .and_then(|digit| char::from_digit(digit, 10))
        .unwrap_or(ch)
}

struct Word<'a> {
    text: &'a str,
    /// No other word stands before it in its sentence.
    opens_sentence: bool,
}

/// Runs of letters and digits, with apostrophes between letters.
fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    let mut rest = text;
    let mut opens_sentence = true;
    std::iter::from_fn(move || {
        let start = rest.find(char::is_alphanumeric)?;
        opens_sentence |= rest[..start].contains(['.', '!', '?', ':', ';', '\n', '•', '"', '“']);
        rest = &rest[start..];
        let mut end = 0;
        let mut chars = rest.char_indices().peekable();
        while let Some((at, ch)) = chars.next() {
            let joins = matches!(ch, '\'' | '’')
                && chars.peek().is_some_and(|(_, next)| next.is_alphabetic());
            if !ch.is_alphanumeric() && !joins {
                break;
            }
            end = at + ch.len_utf8();
        }
        let word = Word {
            text: &rest[..end],
            opens_sentence,
        };
        rest = &rest[end..];
        opens_sentence = false;
        Some(word)
    })
}

/// The words of a claim that name something.
fn names(text: &str) -> Vec<&str> {
    let words: Vec<Word> = words(text).collect();
    let capitalised = |word: &Word| word.text.chars().next().is_some_and(char::is_uppercase);
    (0..words.len())
        .filter(|&at| {
            let word = &words[at];
            let mut letters = word.text.chars();
            let capital = letters.next().is_some_and(char::is_uppercase);
            if is_pronoun(word.text) || letters.any(char::is_uppercase) {
                return !is_pronoun(word.text);
            }
            // The first word of a sentence has a capital in any case; `The` before a name has it for that.
            let opens_name = || {
                words
                    .get(at + 1)
                    .is_some_and(|next| !next.opens_sentence && capitalised(next))
                    && !is_stop_word(&word.text.to_lowercase())
            };
            capital && (!word.opens_sentence || opens_name())
        })
        .map(|at| words[at].text)
        .collect()
}

/// English writes it with a capital wherever it stands.
fn is_pronoun(word: &str) -> bool {
    word == "I" || word.starts_with("I'") || word.starts_with("I’")
}

/// The form under which two words are the same.
fn word_form(word: &str) -> String {
    let lower = word.to_lowercase();
    let stem = lower
        .strip_suffix("'s")
        .or_else(|| lower.strip_suffix("’s"))
        .unwrap_or(&lower);
    stem.to_owned()
}
