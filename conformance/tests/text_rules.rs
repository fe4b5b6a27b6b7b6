//! The rules of texts, in both verifiers: canonical JSON, quotes, numbers and dates.

mod common;

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use common::{python, python_folder, sound};
use cortex_conformance::mutate::Random;
use cortex_conformance::unicode;
use cortex_conformance::vectors::EMBEDDED;
use cortex_core::canon::Value as Canonical;
use cortex_core::{ground, quote};
use serde_json::{Value, json};

fn ask(cases: &[Value]) -> Vec<Value> {
    let mut child = python()
        .arg(python_folder().join("text_rules.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a Python 3; set PYTHON");
    let mut stdin = child.stdin.take().unwrap();
    let lines: Vec<String> = cases.iter().map(Value::to_string).collect();
    let writer = std::thread::spawn(move || {
        let _ = lines.iter().try_for_each(|line| writeln!(stdin, "{line}"));
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    sound(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), cases.len());
    answers
}

fn agree(cases: &[Value], ours: impl Fn(&Value) -> Value) {
    for (case, answer) in cases.iter().zip(ask(cases)) {
        assert_eq!(ours(case), answer, "{case}");
    }
}

fn located(case: &Value) -> Value {
    let (text, wanted) = (
        case["text"].as_str().unwrap(),
        case["quote"].as_str().unwrap(),
    );
    let range = quote::locate(text, wanted).map(|range| [range.start, range.end]);
    json!({"range": range, "normal": quote::normalise(text)})
}

fn grounded(case: &Value) -> Value {
    let chunks = case["chunks"].as_array().unwrap().iter();
    let chunks: Vec<&str> = chunks.map(|chunk| chunk.as_str().unwrap()).collect();
    let (count, missing) = ground::figures(case["statement"].as_str().unwrap(), &chunks);
    json!({"figures": count, "known": missing.is_empty()})
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parsed(case: &Value) -> Value {
    let digits = case["json"].as_str().unwrap().as_bytes();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap());
    let bytes: Vec<u8> = pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect();
    match Canonical::parse(&bytes) {
        Ok(value) => json!({"canonical": value.encode().unwrap()}),
        Err(error) => json!({"error": error.kind.name(), "at": error.at}),
    }
}

/// Pieces that the rules treat in some way of their own.
const PIECES: &[&str] = &[
    " ",
    "  ",
    "\n",
    "\u{a0}",
    "\u{202f}",
    "\u{2009}",
    "\u{3000}",
    "\u{85}",
    "\u{200b}",
    "\u{ad}",
    "\u{feff}",
    "-",
    "‑",
    "–",
    "−",
    "'",
    "’",
    "“",
    "”",
    "\"",
    "…",
    "...",
    ".",
    ",",
    ", ",
    ". ",
    " of ",
    "a",
    "e",
    "é",
    "e\u{301}",
    "\u{301}",
    "\u{323}",
    "\u{307}",
    "\u{344}",
    "ß",
    "ẞ",
    "ﬁ",
    "İ",
    "ı",
    "Σ",
    "ς",
    "K",
    "Å",
    "한",
    "\u{1112}\u{1161}",
    "\u{11ab}",
    "漢字",
    "𝐌𝐚𝐲",
    "Ｍａｙ",
    "Ⓜ",
    "①",
    "½",
    "٣",
    "५",
    "\u{1ccd6}",
    "\u{16d6b}",
    "\u{10efa}",
    "\u{1e6e3}",
    "U.S.",
    "U",
    ".S",
    "'s",
    "s",
    "S",
    "1",
    "5",
    "12",
    "15",
    "0",
    "00",
    "007",
    "2024",
    "1,234",
    "1.234",
    "1 234",
    "1'234",
    "1,234.50",
    "1.2.3",
    "5 million",
    "3 mn",
    "million",
    " thousand",
    "billion",
    "%",
    " percent",
    "km",
    " km",
    "m",
    " miles",
    "kg",
    "$",
    "€",
    "°",
    "°C",
    "twelve",
    "thirty",
    "May",
    "may",
    "MAY",
    "Mar",
    "March",
    "March 5",
    "5 March 2024",
    "September",
    "sep",
    "Januarys",
    "2024-03-05",
    "5.",
    "5,",
    "x",
    "vacuum",
    "Vacuum is fast",
];

fn phrase(random: &mut Random, most: usize) -> String {
    let pieces = (0..random.below(most)).map(|_| match random.below(40) {
        0 => char::from_u32(random.below(0x11_0000) as u32)
            .unwrap_or('x')
            .to_string(),
        1 => char::from_u32(random.below(0x3000) as u32)
            .unwrap_or('x')
            .to_string(),
        _ => PIECES[random.below(PIECES.len())].to_owned(),
    });
    pieces.collect()
}

/// A part of a text, often cut where a quote would not be.
fn part(text: &str, random: &mut Random) -> String {
    let (a, b) = (random.below(text.len() + 1), random.below(text.len() + 1));
    let (a, b) = (
        text.floor_char_boundary(a.min(b)),
        text.floor_char_boundary(a.max(b)),
    );
    text[a..b].to_owned()
}

#[test]
fn quotes_are_found_at_the_same_bytes() {
    let mut random = Random::new(11);
    let cases: Vec<Value> = (0..6_000)
        .map(|_| {
            let text = phrase(&mut random, 24);
            let wanted = match random.below(3) {
                0 => phrase(&mut random, 4),
                1 => quote::normalise(&part(&text, &mut random)),
                _ => part(&text, &mut random),
            };
            json!({"text": text, "quote": wanted})
        })
        .collect();
    let found = cases
        .iter()
        .filter(|case| !located(case)["range"].is_null())
        .count();
    assert!(found > 1_000 && found < 5_500, "{found} found");
    agree(&cases, located);
    let tries = |n| json!({"text": format!("{}a", "ab ".repeat(n)), "quote": "a"});
    agree(&[tries(99), tries(100)], located);
}

#[test]
fn figures_are_known_to_both_or_to_neither() {
    let mut random = Random::new(12);
    let cases: Vec<Value> = (0..8_000)
        .map(|_| {
            let chunks: Vec<String> = (0..random.below(3))
                .map(|_| phrase(&mut random, 16))
                .collect();
            let statement = match random.below(2) {
                0 => phrase(&mut random, 8),
                _ => chunks
                    .iter()
                    .map(|chunk| part(chunk, &mut random))
                    .collect(),
            };
            json!({"statement": statement, "chunks": chunks})
        })
        .collect();
    let of = |known: bool| {
        cases
            .iter()
            .filter(|case| grounded(case)["known"] == known)
            .count()
    };
    assert!(
        of(true) > 1_000 && of(false) > 1_000,
        "{} known, {} not",
        of(true),
        of(false)
    );
    agree(&cases, grounded);
}

/// Every character alone and between others, so that no table is wrong anywhere.
#[test]
fn every_character_is_treated_alike() {
    let all: Vec<char> = ('\0'..=char::MAX).collect();
    let cases: Vec<Value> = all
        .chunks(1_000)
        .map(|chars| {
            let text: String = chars.iter().collect();
            json!({"text": text, "quote": "\u{0}"})
        })
        .collect();
    agree(&cases, located);
    // A month beside a number is a word of its own only where its neighbour is no letter or digit.
    let interesting = all.iter().filter(|ch| {
        ch.is_alphanumeric() || unicode_normalization::char::canonical_combining_class(**ch) != 0
    });
    let mut cases = Vec::new();
    for ch in interesting.filter(|ch| (**ch as u32).is_multiple_of(7) || (**ch as u32) < 0x600) {
        cases.push(json!({"statement": format!("{ch}May 5 {ch}ay 6 Ma{ch} 7"), "chunks": [format!("{ch}may 5 6 7")]}));
    }
    assert!(cases.len() > 15_000, "{}", cases.len());
    agree(&cases, grounded);
}

#[test]
fn the_tables_of_the_python_verifier_are_those_of_core() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(unicode::PATH);
    let written = std::fs::read_to_string(path).unwrap();
    assert!(
        written == unicode::tables(),
        "{} is out of date; write it with cortex-conformance generate",
        unicode::PATH
    );
}

/// Python's own tables, for characters that both know, as a third opinion on decomposition and combining classes.
#[test]
fn the_tables_agree_with_unicodedata() {
    let script = "
import sys, unicodedata
sys.path.insert(0, sys.argv[1])
from cortex_trace import quote, tables
seen = 0
for code in range(0x110000):
    char = chr(code)
    if 0xD800 <= code < 0xE000 or unicodedata.category(char) == 'Cn':
        continue
    seen += 1
    assert tables.COMBINING.get(char, 0) == unicodedata.combining(char), hex(code)
    assert quote.decompose(char) == unicodedata.normalize('NFD', char), hex(code)
    assert not char.isalpha() or tables.is_alphabetic(char), hex(code)
print(seen)
";
    let output = python()
        .args(["-c", script])
        .arg(python_folder())
        .output()
        .unwrap();
    sound(&output);
    let seen: usize = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .unwrap();
    assert!(seen > 250_000, "{seen}");
}

#[test]
fn canonical_json_is_read_alike() {
    let mut cases = Vec::new();
    for path in [
        "canon/v1/accept.json",
        "canon/v1/reject.json",
        "json/v1/suite.json",
    ] {
        let (_, text) = EMBEDDED.iter().find(|(known, _)| *known == path).unwrap();
        let file: Value = serde_json::from_str(text).unwrap();
        for case in file["cases"].as_array().unwrap() {
            cases.extend(
                cortex_conformance::vectors::canon_input(case)
                    .iter()
                    .map(|bytes| json!({"json": hex(bytes)})),
            );
        }
    }
    assert!(cases.len() > 400, "{}", cases.len());
    let sample = br#"{"a":[1,-2,true,null,"\u00e9\ud83d\ude00\n"],"b":{"c":"d","e":[]}}"#;
    let mut random = Random::new(13);
    for _ in 0..20_000 {
        let mut bytes = sample.to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            let byte = b"\"\\{}[],:-+.019euE \n\x00\x80\xc3"[random.below(22)];
            match random.below(3) {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.drain(at..(at + 1 + random.below(4)).min(bytes.len()))),
            }
            if bytes.is_empty() {
                break;
            }
        }
        cases.push(json!({"json": hex(&bytes)}));
    }
    agree(&cases, parsed);
}
