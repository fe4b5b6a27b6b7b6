//! The Unicode tables of the Python verifier, written out from those that core is built with.
//!
//! Python's own tables are those of the Python that runs; the rules of quotes and figures have one version.

use std::fmt::Write;

use cortex_core::analyzer;
use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

/// Path of the written file, from the folder of the vectors.
pub const PATH: &str = "python/cortex_trace/tables.py";

const HEAD: &str = r#""""Unicode 17 tables of the rules cortex-quote/1 and cortex-ground/1.

Written by `cortex-conformance generate` from the tables that the first verifier is built with; a test compares.
"""
import bisect

"#;

const TAIL: &str = r#"

def _pairs(packed):
    for entry in packed.split():
        key, _, value = entry.partition(":")
        yield chr(int(key, 16)), value


def _runs(packed):
    """Ranges as a list of ends: a character is in one if an odd number of ends is at or below it."""
    ends = []
    at = 0
    for entry in packed.split():
        gap, _, length = entry.partition(":")
        at += int(gap, 16)
        ends.append(at)
        at += int(length, 16)
        ends.append(at)
    return ends


CANONICAL = {key: "".join(chr(int(part, 16)) for part in value.split(",")) for key, value in _pairs(_CANONICAL)}
COMBINING = {key: int(value) for key, value in _pairs(_COMBINING)}
TO_ASCII = dict(_pairs(_TO_ASCII))
_ALPHABETIC_ENDS = _runs(_ALPHABETIC)
_ALPHANUMERIC_ENDS = _runs(_ALPHANUMERIC)
_UPPERCASE_ENDS = _runs(_UPPERCASE)


def is_alphabetic(char):
    """Whether a character has the property Alphabetic."""
    return char.isalpha() if char.isascii() else bisect.bisect_right(_ALPHABETIC_ENDS, ord(char)) % 2 == 1


def is_alphanumeric(char):
    """Whether a character is alphabetic or a number of any kind."""
    return char.isalnum() if char.isascii() else bisect.bisect_right(_ALPHANUMERIC_ENDS, ord(char)) % 2 == 1


def is_uppercase(char):
    """Whether a character has the property Uppercase."""
    return char.isupper() if char.isascii() else bisect.bisect_right(_UPPERCASE_ENDS, ord(char)) % 2 == 1
"#;

/// The text of the file.
pub fn tables() -> String {
    let canonical = all().filter(|ch| !('\u{ac00}'..='\u{d7a3}').contains(ch));
    let canonical = canonical.filter_map(|ch| {
        let mut parts = Vec::new();
        decompose_canonical(ch, |part| parts.push(part));
        let written: Vec<String> = parts
            .iter()
            .map(|part| format!("{:x}", *part as u32))
            .collect();
        (parts != [ch]).then(|| format!("{:x}:{}", ch as u32, written.join(",")))
    });
    let combining = all().filter_map(|ch| {
        let class = canonical_combining_class(ch);
        (class != 0).then(|| format!("{:x}:{class}", ch as u32))
    });
    let to_ascii = all().filter_map(|ch| {
        let plain = analyzer::normalise(ch.encode_utf8(&mut [0; 4]));
        let maps = !ch.is_ascii() && ch.is_alphanumeric() && plain.is_ascii();
        maps.then(|| format!("{:x}:{plain}", ch as u32))
    });
    let mut out = String::from(HEAD);
    write(&mut out, "_CANONICAL", canonical);
    write(&mut out, "_COMBINING", combining);
    write(&mut out, "_TO_ASCII", to_ascii);
    write(&mut out, "_ALPHABETIC", runs(char::is_alphabetic));
    write(&mut out, "_ALPHANUMERIC", runs(char::is_alphanumeric));
    write(&mut out, "_UPPERCASE", runs(char::is_uppercase));
    out.truncate(out.trim_end().len());
    out.push('\n');
    out.push_str(TAIL);
    out
}

fn all() -> impl Iterator<Item = char> {
    '\0'..=char::MAX
}

/// Each range as its distance from the last one and its length.
fn runs(has: fn(char) -> bool) -> impl Iterator<Item = String> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for ch in all().filter(|ch| has(*ch)) {
        let code = ch as u32;
        match runs.last_mut() {
            Some((start, length)) if *start + *length == code => *length += 1,
            _ => runs.push((code, 1)),
        }
    }
    let mut at = 0;
    runs.into_iter().map(move |(start, length)| {
        let gap = start - at;
        at = start + length;
        format!("{gap:x}:{length:x}")
    })
}

/// A Python string of entries, at most 120 characters a line.
fn write(out: &mut String, name: &str, entries: impl Iterator<Item = String>) {
    let mut line = String::new();
    let _ = writeln!(out, "{name} = \"\"\"");
    for entry in entries {
        if line.len() + entry.len() + 1 > 120 {
            let _ = writeln!(out, "{}", line.trim_end());
            line.clear();
        }
        line.push_str(&entry);
        line.push(' ');
    }
    let _ = writeln!(out, "{}\n\"\"\"\n", line.trim_end());
}
