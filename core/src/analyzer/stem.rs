//! English stemming by the Snowball rules known as Porter2, for words of `a` to `z`.
//!
//! Written here and not taken from a library because a named analyzer may never change, and because it works
//! in place on words that number millions. Apostrophes do not reach it. Source of the rules: the description
//! of the algorithm by the Snowball project; a test compares with its generated code.

/// Replaces `word`, which consists of `a` to `z`, by its stem.
pub(super) fn stem(word: &mut String) {
    if word.len() <= 2
        || !word.ends_with(['c', 'd', 'e', 'g', 'i', 'l', 'm', 'n', 'r', 's', 't', 'y'])
    {
        // No rule has an ending in another letter.
        return;
    }
    if let Some(stem) = irregular(word) {
        word.clear();
        word.push_str(stem);
        return;
    }
    mark_consonant_y(word);
    let (r1, r2) = regions(word.as_bytes());
    let mut word = Word { text: word, r1, r2 };
    word.plural();
    if !is_invariant_after_plural(word.text) {
        word.past_and_gerund();
        word.final_y();
        // Their endings must lie in these regions, which short words do not have.
        if word.r1 < word.len() {
            word.derivation();
            word.adjective_endings();
        }
        if word.r2 < word.len() {
            word.latin_endings();
        }
        word.final_e_and_l();
    }
    if word.text.contains('Y') {
        word.text.make_ascii_lowercase();
    }
}

/// Words whose stem no rule finds.
fn irregular(word: &str) -> Option<&'static str> {
    Some(match word {
        "skis" => "ski",
        "skies" | "sky" => "sky",
        "dying" => "die",
        "lying" => "lie",
        "tying" => "tie",
        "idly" => "idl",
        "gently" => "gentl",
        "ugly" => "ugli",
        "early" => "earli",
        "only" => "onli",
        "singly" => "singl",
        "news" => "news",
        "howe" => "howe",
        "atlas" => "atlas",
        "cosmos" => "cosmos",
        "bias" => "bias",
        "andes" => "andes",
        _ => return None,
    })
}

fn is_invariant_after_plural(word: &str) -> bool {
    matches!(
        word,
        "inning" | "outing" | "canning" | "herring" | "earring" | "proceed" | "exceed" | "succeed"
    )
}

/// Writes `Y` for a `y` that is a consonant: at the start or after a vowel.
fn mark_consonant_y(word: &mut String) {
    if !word.contains('y') {
        return;
    }
    let mut after_vowel = true;
    *word = word
        .chars()
        .map(|ch| {
            let marked = if ch == 'y' && after_vowel { 'Y' } else { ch };
            after_vowel = marked.is_ascii() && is_vowel(marked as u8);
            marked
        })
        .collect();
}

fn is_vowel(byte: u8) -> bool {
    matches!(byte, b'a' | b'e' | b'i' | b'o' | b'u' | b'y')
}

/// Where the regions R1 and R2 start: after the first consonant that follows a vowel, and the same again
/// within R1.
fn regions(word: &[u8]) -> (usize, usize) {
    let region_after = |from: usize| {
        let vowel = word
            .iter()
            .skip(from)
            .position(|&byte| is_vowel(byte))
            .map(|offset| from + offset);
        vowel
            .and_then(|at| {
                word.iter()
                    .skip(at)
                    .position(|&byte| !is_vowel(byte))
                    .map(|offset| at + offset + 1)
            })
            .unwrap_or(word.len())
    };
    // With the general rule these would lose too much.
    let r1 = if word.starts_with(b"gener") || word.starts_with(b"arsen") {
        5
    } else if word.starts_with(b"commun") {
        6
    } else {
        region_after(0)
    };
    (r1, region_after(r1))
}

/// A word being stemmed with the starts of its regions.
struct Word<'w> {
    text: &'w mut String,
    r1: usize,
    r2: usize,
}

impl Word<'_> {
    fn bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    fn ends_with(&self, suffix: &str) -> bool {
        self.text.ends_with(suffix)
    }

    fn len(&self) -> usize {
        self.text.len()
    }

    /// Replaces the last `length` bytes.
    fn replace_end(&mut self, length: usize, with: &str) {
        self.text.truncate(self.text.len() - length);
        self.text.push_str(with);
    }

    fn has_vowel_before(&self, end: usize) -> bool {
        self.bytes().iter().take(end).any(|&byte| is_vowel(byte))
    }

    fn byte_from_end(&self, back: usize) -> Option<u8> {
        self.len()
            .checked_sub(back + 1)
            .and_then(|at| self.bytes().get(at))
            .copied()
    }

    /// The first entry whose suffix ends the word; entries are tried in order, longer ones first. All have
    /// two letters at least, by which most are ruled out at once.
    fn find<'t>(&self, endings: &'t [(&'t str, &'t str)]) -> Option<&'t (&'t str, &'t str)> {
        let last_two = self.bytes().last_chunk::<2>();
        endings.iter().find(|(suffix, _)| {
            suffix.as_bytes().last_chunk::<2>() == last_two && self.ends_with(suffix)
        })
    }

    /// Step 1a.
    fn plural(&mut self) {
        if self.ends_with("sses") {
            self.replace_end(2, "");
        } else if self.ends_with("ied") || self.ends_with("ies") {
            self.replace_end(if self.len() > 4 { 2 } else { 1 }, "");
        } else if self.ends_with("s")
            && !self.ends_with("us")
            && !self.ends_with("ss")
            && self.has_vowel_before(self.len().saturating_sub(2))
        {
            self.replace_end(1, "");
        }
    }

    /// Step 1b.
    fn past_and_gerund(&mut self) {
        for suffix in ["eedly", "eed"] {
            if self.ends_with(suffix) {
                if self.len() - suffix.len() >= self.r1 {
                    self.replace_end(suffix.len(), "ee");
                }
                return;
            }
        }
        let Some(suffix) = ["ingly", "edly", "ing", "ed"]
            .into_iter()
            .find(|suffix| self.ends_with(suffix))
        else {
            return;
        };
        if !self.has_vowel_before(self.len() - suffix.len()) {
            return;
        }
        self.replace_end(suffix.len(), "");
        if self.ends_with("at") || self.ends_with("bl") || self.ends_with("iz") {
            self.text.push('e');
        } else if self.ends_with_double() {
            self.replace_end(1, "");
        } else if self.len() <= self.r1 && self.ends_in_short_syllable(self.len()) {
            self.text.push('e');
        }
    }

    fn ends_with_double(&self) -> bool {
        let last = self.byte_from_end(0);
        last == self.byte_from_end(1)
            && matches!(
                last,
                Some(b'b' | b'd' | b'f' | b'g' | b'm' | b'n' | b'p' | b'r' | b't')
            )
    }

    /// Whether the first `end` bytes end in consonant, vowel, consonant other than w, x, Y; or are a vowel
    /// and a consonant.
    fn ends_in_short_syllable(&self, end: usize) -> bool {
        match self.bytes().get(..end).unwrap_or_default() {
            [.., before, vowel, after] => {
                !is_vowel(*before)
                    && is_vowel(*vowel)
                    && !is_vowel(*after)
                    && !matches!(after, b'w' | b'x' | b'Y')
            }
            [vowel, after] => is_vowel(*vowel) && !is_vowel(*after),
            _ => false,
        }
    }

    /// Step 1c.
    fn final_y(&mut self) {
        let after_consonant = self.byte_from_end(1).is_some_and(|byte| !is_vowel(byte));
        if matches!(self.byte_from_end(0), Some(b'y' | b'Y')) && after_consonant && self.len() > 2 {
            self.replace_end(1, "i");
        }
    }

    /// Step 2.
    fn derivation(&mut self) {
        const ENDINGS: [(&str, &str); 24] = [
            ("ational", "ate"),
            ("fulness", "ful"),
            ("iveness", "ive"),
            ("ization", "ize"),
            ("ousness", "ous"),
            ("biliti", "ble"),
            ("lessli", "less"),
            ("tional", "tion"),
            ("alism", "al"),
            ("aliti", "al"),
            ("ation", "ate"),
            ("entli", "ent"),
            ("fulli", "ful"),
            ("iviti", "ive"),
            ("ousli", "ous"),
            ("abli", "able"),
            ("alli", "al"),
            ("anci", "ance"),
            ("ator", "ate"),
            ("enci", "ence"),
            ("izer", "ize"),
            ("bli", "ble"),
            ("ogi", "og"),
            ("li", ""),
        ];
        let Some(&(suffix, with)) = self.find(&ENDINGS) else {
            return;
        };
        let before = self.byte_from_end(suffix.len());
        let allowed = match suffix {
            "ogi" => before == Some(b'l'),
            "li" => matches!(
                before,
                Some(b'c' | b'd' | b'e' | b'g' | b'h' | b'k' | b'm' | b'n' | b'r' | b't')
            ),
            _ => true,
        };
        if allowed && self.len() - suffix.len() >= self.r1 {
            self.replace_end(suffix.len(), with);
        }
    }

    /// Step 3.
    fn adjective_endings(&mut self) {
        const ENDINGS: [(&str, &str); 9] = [
            ("ational", "ate"),
            ("tional", "tion"),
            ("alize", "al"),
            ("ative", ""),
            ("icate", "ic"),
            ("iciti", "ic"),
            ("ical", "ic"),
            ("ness", ""),
            ("ful", ""),
        ];
        let Some(&(suffix, with)) = self.find(&ENDINGS) else {
            return;
        };
        let region = if suffix == "ative" { self.r2 } else { self.r1 };
        if self.len() - suffix.len() >= region {
            self.replace_end(suffix.len(), with);
        }
    }

    /// Step 4.
    fn latin_endings(&mut self) {
        const ENDINGS: [(&str, &str); 18] = [
            ("ement", ""),
            ("able", ""),
            ("ance", ""),
            ("ence", ""),
            ("ible", ""),
            ("ment", ""),
            ("ant", ""),
            ("ate", ""),
            ("ent", ""),
            ("ion", ""),
            ("ism", ""),
            ("iti", ""),
            ("ive", ""),
            ("ize", ""),
            ("ous", ""),
            ("al", ""),
            ("er", ""),
            ("ic", ""),
        ];
        let Some(&(suffix, with)) = self.find(&ENDINGS) else {
            return;
        };
        let allowed = suffix != "ion" || matches!(self.byte_from_end(3), Some(b's' | b't'));
        if allowed && self.len() - suffix.len() >= self.r2 {
            self.replace_end(suffix.len(), with);
        }
    }

    /// Step 5.
    fn final_e_and_l(&mut self) {
        let before = self.len().saturating_sub(1);
        let removed = match self.byte_from_end(0) {
            Some(b'e') => {
                before >= self.r2 || (before >= self.r1 && !self.ends_in_short_syllable(before))
            }
            Some(b'l') => before >= self.r2 && self.byte_from_end(1) == Some(b'l'),
            _ => false,
        };
        if removed {
            self.replace_end(1, "");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rust_stemmers::{Algorithm, Stemmer};

    fn stemmed(word: &str) -> String {
        let mut stem = word.to_owned();
        super::stem(&mut stem);
        stem
    }

    /// Letters in shares that make rules fire, followed by endings that the rules know.
    fn word() -> impl Strategy<Value = String> {
        let endings = [
            "", "s", "es", "ies", "ied", "sses", "us", "ss", "eed", "eedly", "ed", "edly", "ing",
            "ingly", "y", "ly", "tional", "ational", "ization", "izer", "ator", "alism", "ality",
            "ally", "fulness", "ousness", "iveness", "ivity", "ability", "bly", "ogy", "logy",
            "fully", "lessly", "ently", "ency", "ancy", "alize", "ative", "icate", "icity", "ical",
            "ness", "ful", "ement", "ment", "ent", "ance", "ence", "able", "ible", "ant", "ism",
            "ate", "ity", "ous", "ive", "ize", "sion", "tion", "ion", "al", "er", "ic", "e", "ll",
            "le",
        ];
        let beginnings = [
            "", "", "", "gener", "commun", "arsen", "y", "proceed", "inn",
        ];
        (
            prop::sample::select(beginnings.to_vec()),
            "[abcdegilmnorstuwxyz]{0,7}",
            prop::sample::select(endings.to_vec()),
            prop::sample::select(endings.to_vec()),
        )
            .prop_map(|(beginning, middle, inner, outer)| {
                format!("{beginning}{middle}{inner}{outer}")
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn agrees_with_the_code_the_snowball_project_generates(word in word()) {
            let reference = Stemmer::create(Algorithm::English);
            prop_assert_eq!(stemmed(&word), reference.stem(&word), "stem of {}", word);
        }
    }

    #[test]
    fn irregular_words_agree_too() {
        let reference = Stemmer::create(Algorithm::English);
        for word in [
            "skis",
            "skies",
            "sky",
            "dying",
            "lying",
            "tying",
            "idly",
            "gently",
            "ugly",
            "early",
            "only",
            "singly",
            "news",
            "howe",
            "atlas",
            "cosmos",
            "bias",
            "andes",
            "innings",
            "outings",
            "canning",
            "herrings",
            "earrings",
            "proceeds",
            "exceeded",
            "succeeding",
            "is",
            "as",
            "y",
            "by",
            "say",
            "cry",
            "yes",
            "gas",
            "this",
            "ties",
        ] {
            assert_eq!(stemmed(word), reference.stem(word), "stem of {word}");
        }
    }
}
