//! Canonical JSON: round trips, refusals just inside and just outside each rule, and no panic on
//! anything.

use cortex_core::canon::{
    CanonErrorKind, MAX_BYTES, MAX_DEPTH, MAX_INTEGER, MAX_VALUES, Value, from_text,
    parse_canonical, text_array, to_text,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-MAX_INTEGER..=MAX_INTEGER).prop_map(Value::Integer),
        any::<String>().prop_map(Value::String),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            prop::collection::btree_map("[\\x00-\\x7f]{0,6}", inner, 0..8).prop_map(Value::Object),
        ]
    })
}

/// JSON that looks right until it does not.
fn near_json() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\"",
        "\"b\"",
        "\"é\"",
        "\"\\u00e9\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "0",
        "-0",
        "-1",
        "01",
        "1.5",
        "1e3",
        "9007199254740991",
        "9007199254740992",
        "true",
        "false",
        "null",
        "nul",
        " ",
        "\n",
        "\"",
        "\\",
        "\u{0}",
        "é",
    ]);
    prop::collection::vec(token, 0..24).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn a_value_survives_the_round_trip(value in values()) {
        let text = value.encode().unwrap();
        prop_assert_eq!(parse_canonical(text.as_bytes()).unwrap(), value);
    }

    #[test]
    fn another_reader_reads_the_same(value in values()) {
        let text = value.encode().unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read, serde_json::Value::from(value));
    }

    #[test]
    fn white_space_is_read_but_not_canonical(value in values(), space in "[ \\t\\n\\r]{1,3}") {
        let text = value.encode().unwrap() + &space;
        prop_assert_eq!(Value::parse(text.as_bytes()).unwrap(), value);
        let error = parse_canonical(text.as_bytes()).unwrap_err();
        prop_assert_eq!(error.kind, CanonErrorKind::NotCanonical);
        prop_assert_eq!(error.at, text.len() - space.len());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        if let Err(error) = Value::parse(&bytes) {
            prop_assert!(error.at <= bytes.len());
        }
    }

    #[test]
    fn what_is_read_here_is_read_alike_elsewhere(text in near_json()) {
        match Value::parse(text.as_bytes()) {
            Ok(value) => {
                let read: serde_json::Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(Value::try_from(read).unwrap(), value.clone());
                let canonical = value.encode().unwrap();
                prop_assert_eq!(parse_canonical(canonical.as_bytes()).unwrap(), value);
            }
            Err(error) => prop_assert!(text.is_char_boundary(error.at), "{error}"),
        }
    }

    #[test]
    fn one_changed_byte_is_another_value_or_refused(value in values(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let text = value.encode().unwrap();
        let mut changed = text.clone().into_bytes();
        let at = at.index(changed.len());
        changed[at] = byte;
        if changed != text.as_bytes() && let Ok(read) = parse_canonical(&changed) {
            prop_assert_ne!(read, value);
        }
    }

    #[test]
    fn null_and_empty_stay_apart(texts in prop::collection::vec(prop::option::of(".{0,5}"), 0..6)) {
        let borrowed: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
        let array = text_array(&borrowed);
        let Value::Array(items) = parse_canonical(array.as_bytes()).unwrap() else { unreachable!() };
        let again: Vec<Option<String>> = items
            .into_iter()
            .map(|item| match item {
                Value::String(text) => Some(text),
                _ => None,
            })
            .collect();
        prop_assert_eq!(again, texts);
    }
}

fn refusal(text: &str) -> (&'static str, usize) {
    let error = Value::parse(text.as_bytes()).unwrap_err();
    (error.kind.name(), error.at)
}

#[test]
fn depth_at_the_limit_and_beyond() {
    let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
    assert!(Value::parse(nested(MAX_DEPTH).as_bytes()).is_ok());
    assert_eq!(refusal(&nested(MAX_DEPTH + 1)), ("too_deep", MAX_DEPTH));
    // Unclosed and far too deep: refused at the limit, whatever follows.
    assert_eq!(refusal(&"[".repeat(1 << 20)), ("too_deep", MAX_DEPTH));
    // Depth counts what is open, not what was.
    let flat = format!("[{}[]]", "[],".repeat(100));
    assert!(Value::parse(flat.as_bytes()).is_ok());
}

#[test]
fn size_at_the_limit_and_beyond() {
    let text = |bytes: usize| format!("\"{}\"", "a".repeat(bytes - 2));
    assert!(parse_canonical(text(MAX_BYTES).as_bytes()).is_ok());
    assert_eq!(refusal(&text(MAX_BYTES + 1)), ("too_large", MAX_BYTES));
}

#[test]
fn count_at_the_limit_and_beyond() {
    // The array itself is one of the values.
    let array = |values: usize| format!("[{}0]", "0,".repeat(values - 2));
    assert!(parse_canonical(array(MAX_VALUES).as_bytes()).is_ok());
    assert_eq!(refusal(&array(MAX_VALUES + 1)).0, "too_many_values");
}

#[test]
fn integers_at_the_limit_and_beyond() {
    for text in ["9007199254740991", "-9007199254740991", "0"] {
        assert!(parse_canonical(text.as_bytes()).is_ok(), "{text}");
    }
    for text in [
        "9007199254740992",
        "-9007199254740992",
        "99999999999999999999999999",
    ] {
        assert_eq!(refusal(text), ("out_of_range", 0));
    }
    assert!(Value::Integer(MAX_INTEGER).encode().is_ok());
    for value in [MAX_INTEGER + 1, -MAX_INTEGER - 1, i64::MIN, i64::MAX] {
        let error = Value::Integer(value).encode().unwrap_err();
        assert_eq!(error.kind, CanonErrorKind::OutOfRange);
    }
    assert!(to_text(&u64::MAX).is_err());
    assert!(to_text(&0.5).is_err());
    assert!(
        to_text(
            &[("é", 1)]
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>()
        )
        .is_err()
    );
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    left: i64,
    right: Option<String>,
}

#[test]
fn a_structure_is_read_only_from_its_own_text() {
    let pair = from_text::<Pair>(r#"{"left":1,"right":null}"#).unwrap();
    assert_eq!((pair.left, pair.right.as_deref()), (1, None));
    let path = |text| match from_text::<Pair>(text).unwrap_err().kind {
        CanonErrorKind::Shape { path, .. } => path,
        kind => panic!("{kind}"),
    };
    assert_eq!(
        path(r#"{"left":1}"#),
        "right",
        "a nullable member may not be left out"
    );
    assert_eq!(path(r#"{"left":"1","right":null}"#), "left");
    assert_eq!(path(r#"{"left":1,"other":2,"right":null}"#), "other");
    assert_eq!(path("[1,null]"), ".", "a list is not an object");
    let kind = from_text::<Pair>(r#"{"right":null,"left":1}"#)
        .unwrap_err()
        .kind;
    assert_eq!(kind, CanonErrorKind::NotCanonical);
}
