//! Character classes and folding of `cortex-text/1`.

use caseless::Caseless;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{canonical_combining_class, compose, decompose_compatible};
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// What a folded character is to the word splitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Lower,
    Upper,
    /// A letter without case.
    Letter,
    Digit,
    /// A mark that belongs to the character before it.
    Mark,
    /// A character of a script written without spaces.
    Gram,
    Underscore,
    Dot,
    Hyphen,
    Apostrophe,
    Comma,
    /// Anything that ends a word.
    Break,
}

impl Class {
    /// Whether characters of this class can be part of a word that is delimited by spaces.
    pub(super) fn is_word(self) -> bool {
        matches!(
            self,
            Class::Lower | Class::Upper | Class::Letter | Class::Digit | Class::Mark
        )
    }
}

/// A folded character with the bytes of the text it came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unit {
    pub ch: char,
    pub class: Class,
    pub start: usize,
    pub end: usize,
}

/// Class of an ASCII character.
pub(super) fn ascii_class(byte: u8) -> Class {
    match byte {
        b'a'..=b'z' => Class::Lower,
        b'A'..=b'Z' => Class::Upper,
        b'0'..=b'9' => Class::Digit,
        b'_' => Class::Underscore,
        b'.' => Class::Dot,
        b'-' => Class::Hyphen,
        b'\'' => Class::Apostrophe,
        b',' => Class::Comma,
        _ => Class::Break,
    }
}

/// Appends the folded form of `ch`, found at `start..end` of the text. Returns false if the character ends
/// the run of words, in which case nothing is appended.
pub(super) fn push_folded(units: &mut Vec<Unit>, ch: char, start: usize, end: usize) -> bool {
    if ch.is_ascii() {
        let class = ascii_class(ch as u8);
        if class == Class::Break {
            return false;
        }
        units.push(Unit {
            ch: ch.to_ascii_lowercase(),
            class,
            start,
            end,
        });
        return true;
    }
    if is_ignored(ch) {
        return true;
    }
    match ch {
        '\u{2019}' | '\u{2BC}' | '\u{FF07}' => {
            units.push(Unit {
                ch: '\'',
                class: Class::Apostrophe,
                start,
                end,
            });
            return true;
        }
        '\u{2010}' | '\u{2011}' => {
            units.push(Unit {
                ch: '-',
                class: Class::Hyphen,
                start,
                end,
            });
            return true;
        }
        // Composed syllables stay whole; the generic path would take them apart.
        '\u{AC00}'..='\u{D7A3}' => {
            units.push(Unit {
                ch,
                class: Class::Gram,
                start,
                end,
            });
            return true;
        }
        _ => {}
    }
    match ch.general_category_group() {
        GeneralCategoryGroup::Letter
        | GeneralCategoryGroup::Number
        | GeneralCategoryGroup::Mark => {
            decompose_compatible(ch, |part| push_part(units, part, start, end));
            true
        }
        GeneralCategoryGroup::Symbol => push_symbol(units, ch, start, end),
        _ => false,
    }
}

/// Compatibility and case folding of a whole text, for comparing texts rather than finding words.
pub(super) fn compatibility_fold(text: &str) -> String {
    if text.is_ascii() {
        text.to_ascii_lowercase()
    } else {
        text.nfkd().default_case_fold().nfkc().collect()
    }
}

/// Signs that stand for letters or digits (trade mark, square kilogram) become a word of their own.
fn push_symbol(units: &mut Vec<Unit>, ch: char, start: usize, end: usize) -> bool {
    let before = units.len();
    units.push(Unit {
        ch: ' ',
        class: Class::Break,
        start,
        end,
    });
    decompose_compatible(ch, |part| push_part(units, part, start, end));
    let has_word = units
        .iter()
        .skip(before)
        .any(|unit| unit.class.is_word() || unit.class == Class::Gram);
    if has_word {
        units.push(Unit {
            ch: ' ',
            class: Class::Break,
            start,
            end,
        });
    } else {
        units.truncate(before);
    }
    has_word
}

/// Appends one character of a compatibility decomposition.
fn push_part(units: &mut Vec<Unit>, part: char, start: usize, end: usize) {
    if part.is_ascii() {
        units.push(Unit {
            ch: part.to_ascii_lowercase(),
            class: ascii_class(part as u8),
            start,
            end,
        });
        return;
    }
    let class = match part.general_category() {
        _ if is_ignored(part) => return,
        GeneralCategory::NonspacingMark
        | GeneralCategory::SpacingMark
        | GeneralCategory::EnclosingMark => {
            push_mark(units, part, start, end);
            return;
        }
        GeneralCategory::UppercaseLetter | GeneralCategory::TitlecaseLetter => Class::Upper,
        GeneralCategory::LowercaseLetter => Class::Lower,
        GeneralCategory::DecimalNumber => Class::Digit,
        GeneralCategory::ModifierLetter
        | GeneralCategory::OtherLetter
        | GeneralCategory::LetterNumber
            if is_gram(part) =>
        {
            push_gram(units, part, start, end);
            return;
        }
        GeneralCategory::ModifierLetter | GeneralCategory::OtherLetter => Class::Letter,
        GeneralCategory::LetterNumber | GeneralCategory::OtherNumber => Class::Digit,
        _ => Class::Break,
    };
    let mut push = |ch| {
        units.push(Unit {
            ch,
            class,
            start,
            end,
        })
    };
    match plain_letters(part) {
        Some(letters) => letters.chars().for_each(&mut push),
        None => std::iter::once(part)
            .default_case_fold()
            .for_each(&mut push),
    }
}

/// Appends a mark, or drops it if it only decorates its letter.
fn push_mark(units: &mut Vec<Unit>, mark: char, start: usize, end: usize) {
    let class = canonical_combining_class(mark);
    if is_decoration(class) || mark.general_category() == GeneralCategory::EnclosingMark {
        return;
    }
    if compose_with_base(units, mark, class, end) {
        return;
    }
    // Equivalent texts may order their marks differently; the canonical order makes them equal.
    let at = units
        .iter()
        .rposition(|unit| {
            unit.class != Class::Mark || class == 0 || canonical_combining_class(unit.ch) <= class
        })
        .map_or(0, |last_before| last_before + 1);
    units.insert(
        at,
        Unit {
            ch: mark,
            class: Class::Mark,
            start,
            end,
        },
    );
}

/// Joins a mark to the last character of a script without spaces if they make one (the voicing of kana) and
/// no mark between stands in the way, which by the rules of Unicode one of the same or a higher class does.
fn compose_with_base(units: &mut [Unit], mark: char, class: u8, end: usize) -> bool {
    let Some(base) = units.iter().rposition(|unit| unit.class != Class::Mark) else {
        return false;
    };
    let is_free = units
        .iter()
        .skip(base + 1)
        .all(|between| (1..class).contains(&canonical_combining_class(between.ch)));
    match units.get_mut(base) {
        Some(unit) if unit.class == Class::Gram && is_free => match compose(unit.ch, mark) {
            Some(composed) => {
                *unit = Unit {
                    ch: composed,
                    end: unit.end.max(end),
                    ..*unit
                };
                true
            }
            None => false,
        },
        _ => false,
    }
}

/// Appends a character of a script without spaces; conjoining Hangul letters join to syllables.
fn push_gram(units: &mut Vec<Unit>, ch: char, start: usize, end: usize) {
    if let Some(last) = units.last_mut()
        && last.class == Class::Gram
        && let Some(composed) = compose(last.ch, ch)
    {
        *last = Unit {
            ch: composed,
            end,
            ..*last
        };
        return;
    }
    units.push(Unit {
        ch,
        class: Class::Gram,
        start,
        end,
    });
}

/// Combining classes of accents: overlays, Hebrew and Arabic points, and everything above or below a letter.
/// Nukta (7), kana voicing (8), virama (9), and the vowels and tones of South-East Asia (103 to 132) are not.
fn is_decoration(combining_class: u8) -> bool {
    matches!(combining_class, 1 | 10..=36 | 200..=240)
}

/// Invisible characters that do not separate words: joiners, variation selectors, directions, soft hyphen,
/// and the Arabic lengthening stroke. The zero-width space does separate.
fn is_ignored(ch: char) -> bool {
    match ch {
        '\u{200B}' => false,
        '\u{34F}'
        | '\u{640}'
        | '\u{180B}'..='\u{180F}'
        | '\u{FE00}'..='\u{FE0F}'
        | '\u{E0100}'..='\u{E01EF}' => true,
        _ => ch.general_category() == GeneralCategory::Format,
    }
}

/// Blocks of scripts that are written without spaces, or (Hangul) with spaces only between phrases.
fn is_gram(ch: char) -> bool {
    matches!(ch,
        '\u{E00}'..='\u{EFF}'         // Thai, Lao
        | '\u{1000}'..='\u{109F}'     // Burmese
        | '\u{1100}'..='\u{11FF}'     // conjoining Hangul
        | '\u{1780}'..='\u{17FF}'     // Khmer
        | '\u{2E80}'..='\u{2FDF}'     // radicals
        | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{3029}' | '\u{3031}'..='\u{3035}'
        | '\u{3041}'..='\u{30FF}'     // kana
        | '\u{3105}'..='\u{318F}' | '\u{31A0}'..='\u{31BF}' | '\u{31F0}'..='\u{31FF}'
        | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
        | '\u{A000}'..='\u{A4CF}'     // Yi
        | '\u{A960}'..='\u{A97F}' | '\u{A9E0}'..='\u{A9FF}' | '\u{AA60}'..='\u{AA7F}'
        | '\u{AC00}'..='\u{D7FF}' | '\u{F900}'..='\u{FAFF}'
        | '\u{1B000}'..='\u{1B16F}' | '\u{20000}'..='\u{3FFFF}')
}

/// Letters whose stroke or ligature Unicode does not decompose, as people type them without it.
fn plain_letters(ch: char) -> Option<&'static str> {
    Some(match ch {
        'Æ' | 'æ' => "ae",
        'Œ' | 'œ' => "oe",
        'Ø' | 'ø' => "o",
        'Ł' | 'ł' => "l",
        'Đ' | 'đ' => "d",
        'Ħ' | 'ħ' => "h",
        'Ŧ' | 'ŧ' => "t",
        'ı' => "i",
        _ => return None,
    })
}
