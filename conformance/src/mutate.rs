//! Random changes to a trace or an evidence file, from a seed: the same seed gives the same changes everywhere.

use cortex_core::canon;
use cortex_core::trace::Trace;
use serde_json::Value;

use crate::tamper::pointers;

/// A source of numbers that only has to be spread well and to be the same everywhere (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below a bound, 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % (bound.max(1) as u64)) as usize
    }
}

/// What a random change did.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// The changed bytes; not always UTF-8.
    pub bytes: Vec<u8>,
    /// Whether every root was recomputed afterwards, which makes it another trace.
    pub forged: bool,
    /// Whether it may be an erasure, which a file may admit to.
    pub erased: bool,
}

/// The text with one to three random changes. It may happen to be the same text.
pub fn mutated(text: &str, random: &mut Random) -> Mutation {
    if random.below(3) == 0 {
        return Mutation {
            bytes: in_bytes(text, random),
            forged: false,
            erased: false,
        };
    }
    let Ok(mut document) = serde_json::from_str::<Value>(text) else {
        return Mutation {
            bytes: in_bytes(text, random),
            forged: false,
            erased: false,
        };
    };
    let mut erased = false;
    for _ in 0..=random.below(3) {
        erased |= in_document(&mut document, random);
    }
    let forge = random.below(2) == 0;
    let forged = forge.then(|| with_fresh_roots(&document)).flatten();
    let is_forged = forged.is_some();
    // As canonical text where the values have one, so that more than the parser is put to the test.
    let plain = || canon::to_text(&document).unwrap_or_else(|_| document.to_string());
    Mutation {
        bytes: forged.unwrap_or_else(plain).into_bytes(),
        forged: is_forged,
        erased,
    }
}

fn with_fresh_roots(document: &Value) -> Option<String> {
    let mut trace: Trace = serde_json::from_value(document.clone()).ok()?;
    trace.roots = trace.compute_roots().ok()?;
    trace.to_text().ok()
}

/// Bytes that mean something to a parser, and some that are no text.
const BYTES: &[u8] = b"\"\\{}[],:-+.0123456789abnutrfeE \n\t\0\x7f\x80\xc3\xa9\xed\xa0\xff";

fn in_bytes(text: &str, random: &mut Random) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        let length = random.below(8).min(bytes.len() - at.min(bytes.len()));
        let byte = BYTES[random.below(BYTES.len())];
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            2 => drop(bytes.drain(at..at + length)),
            3 => {
                let again = bytes[at..at + length].to_vec();
                bytes.splice(at..at, again);
            }
            4 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// Changes one value; whether it may have admitted to an erasure.
fn in_document(document: &mut Value, random: &mut Random) -> bool {
    let all = pointers(document);
    let at = all[random.below(all.len())].clone();
    let from = &all[random.below(all.len())];
    let other = document.pointer(from).cloned();
    let Some(place) = document.pointer_mut(&at) else {
        return false;
    };
    match random.below(5) {
        // What stands elsewhere, mostly of another kind, sometimes a hash for a hash.
        0 => *place = other.unwrap_or(Value::Null),
        1 => *place = hostile(random),
        2 => near(place, random),
        3 => match place {
            Value::Array(items) if !items.is_empty() => {
                let (i, j) = (random.below(items.len()), random.below(items.len()));
                match random.below(3) {
                    0 => items.swap(i, j),
                    1 => items.insert(i, items[j].clone()),
                    _ => drop(items.remove(i)),
                }
            }
            Value::Object(members) if !members.is_empty() => {
                let keys: Vec<String> = members.keys().cloned().collect();
                members.remove(&keys[random.below(keys.len())]);
            }
            plain => near(plain, random),
        },
        _ => *place = near_kind(place, random),
    }
    at.ends_with("/stored")
}

/// Another value close by.
fn near(value: &mut Value, random: &mut Random) {
    match value {
        Value::Bool(flag) => *flag = !*flag,
        Value::Number(number) => {
            let steps = [1, -1, 2, 1000, -1000];
            let step = steps[random.below(steps.len())];
            *value = number.as_i64().unwrap_or(0).saturating_add(step).into();
        }
        Value::String(text) if !text.is_empty() => {
            let mut chars: Vec<char> = text.chars().collect();
            let i = random.below(chars.len());
            let letters = [
                '0', 'a', 'f', ' ', '-', 'é', '\u{301}', '漢', '“', '5', '\u{ad}',
            ];
            chars[i] = letters[random.below(letters.len())];
            *text = chars.into_iter().collect();
        }
        _ => *value = hostile(random),
    }
}

/// Another value that the same place might have: words of the layout for words, small numbers for numbers.
fn near_kind(value: &Value, random: &mut Random) -> Value {
    const WORDS: [&str; 30] = [
        "find_relevant",
        "evidence_answer",
        "compare_sources",
        "coverage_review",
        "ANSWERED",
        "PARTIAL",
        "INSUFFICIENT_EVIDENCE",
        "no_model",
        "model_abstained",
        "gaps_left",
        "one_family",
        "nothing_retrieved",
        "nothing_selected",
        "statements_unsupported",
        "initial",
        "planned",
        "refine",
        "lexical",
        "vector",
        "hybrid",
        "id",
        "strict",
        "supported",
        "misattributed",
        "absent",
        "unsupported",
        "none",
        "approximate",
        "checked",
        "all",
    ];
    match value {
        Value::String(_) => WORDS[random.below(WORDS.len())].into(),
        Value::Number(_) | Value::Null => (random.below(8) as i64).into(),
        Value::Bool(flag) => (!flag).into(),
        _ => hostile(random),
    }
}

/// Values that do harm where they are not expected.
fn hostile(random: &mut Random) -> Value {
    let values: [Value; 20] = [
        0.into(),
        1.into(),
        (-1).into(),
        9_007_199_254_740_991_i64.into(),
        (-9_007_199_254_740_991_i64).into(),
        4_294_967_296_i64.into(),
        i64::MAX.into(),
        u64::MAX.into(),
        0.5.into(),
        Value::Null,
        true.into(),
        "".into(),
        "x".into(),
        "b3:".into(),
        "cortex/9".into(),
        "\u{0}\u{1f600}".into(),
        serde_json::json!([]),
        serde_json::json!({}),
        serde_json::json!([[1, 1]]),
        serde_json::json!({"": null}),
    ];
    values[random.below(values.len())].clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_changes() {
        let text = r#"{"a":[1,2,{"b":"c"}],"stored":{"d":null}}"#;
        let made = |seed| {
            let mut random = Random::new(seed);
            let all = (0..200).map(|_| mutated(text, &mut random).bytes);
            all.collect::<Vec<_>>()
        };
        assert_eq!(made(7), made(7));
        assert_ne!(made(7), made(8));
        let changed = made(7)
            .iter()
            .filter(|bytes| *bytes != text.as_bytes())
            .count();
        assert!(changed > 150, "{changed}");
        assert!(mutated("", &mut Random::new(1)).bytes.len() <= 4);
    }
}
