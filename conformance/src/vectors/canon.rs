//! Vectors of canonical JSON.

use cortex_core::canon::{MAX_BYTES, MAX_DEPTH, Value, parse_canonical};
use serde::{Deserialize, Serialize};

use super::{Case, File, same};

/// A part of an input: a text, or bytes as hexadecimal, `times` times.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum Piece {
    Text(String),
    Hex(String),
    Repeat { text: String, times: usize },
}

pub(super) fn bytes(pieces: &[Piece]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => bytes.extend(text.bytes()),
            Piece::Repeat { text, times } => bytes.extend(text.repeat(*times).bytes()),
            Piece::Hex(digits) => {
                for pair in digits.as_bytes().chunks(2) {
                    let pair = std::str::from_utf8(pair).map_err(|error| error.to_string())?;
                    let byte = u8::from_str_radix(pair, 16);
                    bytes.push(byte.map_err(|error| format!("{pair:?}: {error}"))?);
                }
            }
        }
    }
    Ok(bytes)
}

/// A text that is read, with its canonical form.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Accept {
    id: String,
    description: String,
    input: Vec<Piece>,
    canonical: Vec<Piece>,
}

impl Case for Accept {
    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Result<(), String> {
        let (input, canonical) = (bytes(&self.input)?, bytes(&self.canonical)?);
        let value = Value::parse(&input).map_err(|error| error.to_string())?;
        let encoded = value.encode().map_err(|error| error.to_string())?;
        same("canonical form", &canonical, &encoded.into_bytes())?;
        let again = parse_canonical(&canonical).map_err(|error| error.to_string())?;
        same("value", &value, &again)?;
        let is_canonical = parse_canonical(&input).is_ok();
        same("input is canonical", &(input == canonical), &is_canonical)
    }
}

/// A text that is refused, with the rule it breaks and the byte where.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reject {
    id: String,
    description: String,
    input: Vec<Piece>,
    error: String,
    at: usize,
}

impl Case for Reject {
    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Result<(), String> {
        match parse_canonical(&bytes(&self.input)?) {
            Ok(_) => Err("was read".into()),
            Err(error) => {
                same("error", &self.error.as_str(), &error.kind.name())?;
                same("at", &self.at, &error.at)
            }
        }
    }
}

fn repeat(text: &str, times: usize) -> Piece {
    Piece::Repeat {
        text: text.into(),
        times,
    }
}

fn plain(text: &str) -> Vec<Piece> {
    vec![Piece::Text(text.into())]
}

pub(super) fn accepted() -> File<Accept> {
    let case = |id: &str, description: &str, input: &str, canonical: &str| Accept {
        id: id.into(),
        description: description.into(),
        input: plain(input),
        canonical: plain(canonical),
    };
    let itself = |id: &str, description: &str, input: &str| case(id, description, input, input);
    let mut cases = vec![
        itself("null", "the word null", "null"),
        itself("true", "the word true", "true"),
        itself("false", "the word false", "false"),
        itself("zero", "zero", "0"),
        itself("minus-one", "a negative integer", "-1"),
        itself("largest", "2^53 - 1", "9007199254740991"),
        itself("smallest", "-(2^53 - 1)", "-9007199254740991"),
        itself("empty-string", "a string without characters", "\"\""),
        itself("empty-array", "an array without elements", "[]"),
        itself("empty-object", "an object without members", "{}"),
        case(
            "white-space",
            "all four white space characters between tokens",
            " \t\r\n{ \"a\" :\n[ 1 ,\t2 ] }\r\n",
            "{\"a\":[1,2]}",
        ),
        case(
            "key-order",
            "keys by byte and not by length: upper case before lower case, a prefix first",
            "{\"b\":1,\"aa\":2,\"a\":3,\"B\":4,\"\":5,\"a~\":6}",
            "{\"\":5,\"B\":4,\"a\":3,\"aa\":2,\"a~\":6,\"b\":1}",
        ),
        case(
            "key-escape-order",
            "the order is that of the keys, not of their escapes",
            "{\"\\u0061\":1,\"\\n\":2,\"!\":3}",
            "{\"\\n\":2,\"!\":3,\"a\":1}",
        ),
        case(
            "short-escapes",
            "escapes that JSON has a letter for",
            "\"\\u0008\\u0009\\u000a\\u000c\\u000d\\u0022\\u005c\\u002f\"",
            "\"\\b\\t\\n\\f\\r\\\"\\\\/\"",
        ),
        case(
            "control-characters",
            "other control characters in lower case; U+007F stands for itself",
            "\"\\u0000\\u001F\\u000B\\u007F\"",
            "\"\\u0000\\u001f\\u000b\u{7f}\"",
        ),
        case(
            "solidus",
            "the solidus is not escaped",
            "\"a\\/b\"",
            "\"a/b\"",
        ),
        case(
            "beyond-ascii",
            "characters beyond ASCII are not escaped",
            "\"\\u00e9\\u20ac\\ud83d\\ude00\\u2028\"",
            "\"é€😀\u{2028}\"",
        ),
        itself(
            "not-normalised",
            "composed and decomposed forms stay as they are",
            "[\"é\",\"e\u{301}\"]",
        ),
        itself("last-character", "the last code point", "\"\u{10ffff}\""),
        itself(
            "nested",
            "containers in one another",
            "{\"a\":[{\"b\":[]},{}]}",
        ),
    ];
    cases.push(Accept {
        id: "depth-limit".into(),
        description: "as deep as the limit".into(),
        input: vec![repeat("[", MAX_DEPTH), repeat("]", MAX_DEPTH)],
        canonical: vec![repeat("[", MAX_DEPTH), repeat("]", MAX_DEPTH)],
    });
    let large = || {
        let quote = || Piece::Text("\"".into());
        vec![quote(), repeat("a", MAX_BYTES - 2), quote()]
    };
    cases.push(Accept {
        id: "size-limit".into(),
        description: "as long as the limit of 8 MiB".into(),
        input: large(),
        canonical: large(),
    });
    File {
        comment: "JSON texts that are read, and their canonical form. An input or a form is the \
                  concatenation of its pieces."
            .into(),
        version: 1,
        cases,
    }
}

pub(super) fn rejected() -> File<Reject> {
    let case = |id: &str, description: &str, input: &str, error: &str, at| Reject {
        id: id.into(),
        description: description.into(),
        input: plain(input),
        error: error.into(),
        at,
    };
    let mut cases = vec![
        case("empty", "no text", "", "unexpected_end", 0),
        case("only-space", "only white space", " \n", "unexpected_end", 2),
        case("word", "an unknown word", "nul", "unexpected", 0),
        case(
            "upper-case-word",
            "words are lower case",
            "True",
            "unexpected",
            0,
        ),
        case("nan", "NaN is no JSON", "NaN", "unexpected", 0),
        case(
            "infinity",
            "minus infinity is no JSON",
            "-Infinity",
            "unexpected",
            1,
        ),
        case(
            "duplicate",
            "the same key twice",
            "{\"a\":1,\"a\":1}",
            "duplicate_key",
            7,
        ),
        case(
            "duplicate-escaped",
            "the same key twice, once with an escape",
            "{\"a\":1,\"\\u0061\":2}",
            "duplicate_key",
            7,
        ),
        case(
            "key-beyond-ascii",
            "a key that is not ASCII",
            "{\"é\":1}",
            "non_ascii_key",
            1,
        ),
        case(
            "key-beyond-ascii-escaped",
            "a key that is not ASCII, written with an escape",
            "{\"\\u00e9\":1}",
            "non_ascii_key",
            1,
        ),
        case(
            "key-number",
            "a key that is no string",
            "{1:2}",
            "unexpected",
            1,
        ),
        case("float", "a fraction", "[1.5]", "float", 1),
        case("float-whole", "a fraction of zero", "1.0", "float", 0),
        case("exponent", "an exponent", "1e3", "exponent", 0),
        case(
            "exponent-upper",
            "an exponent in upper case",
            "1E3",
            "exponent",
            0,
        ),
        case("minus-zero", "minus zero", "-0", "negative_zero", 0),
        case("leading-zero", "a leading zero", "01", "leading_zero", 0),
        case(
            "leading-zero-negative",
            "a leading zero after the sign",
            "-01",
            "leading_zero",
            0,
        ),
        case("plus", "a plus sign", "+1", "unexpected", 0),
        case(
            "sign-alone",
            "a sign without digits",
            "-",
            "unexpected_end",
            1,
        ),
        case(
            "above-largest",
            "2^53",
            "9007199254740992",
            "out_of_range",
            0,
        ),
        case(
            "below-smallest",
            "-(2^53)",
            "-9007199254740992",
            "out_of_range",
            0,
        ),
        case(
            "beyond-64-bits",
            "an integer that wraps around to 1 in 64 bits",
            "18446744073709551617",
            "out_of_range",
            0,
        ),
        case(
            "high-surrogate",
            "a high surrogate alone",
            "\"\\ud83d\"",
            "lone_surrogate",
            1,
        ),
        case(
            "low-surrogate",
            "a low surrogate alone",
            "\"\\ude00\"",
            "lone_surrogate",
            1,
        ),
        case(
            "two-high-surrogates",
            "a high surrogate after another",
            "\"\\ud83d\\ud83d\"",
            "lone_surrogate",
            1,
        ),
        case(
            "bad-escape",
            "an unknown escape",
            "\"a\\x41\"",
            "bad_escape",
            2,
        ),
        case(
            "short-escape",
            "an escape with three digits",
            "\"\\u00e\"",
            "bad_escape",
            1,
        ),
        case(
            "raw-newline",
            "a control character in a string",
            "\"a\nb\"",
            "control_character",
            2,
        ),
        case(
            "unclosed-string",
            "a string without end",
            "\"abc",
            "unexpected_end",
            4,
        ),
        case(
            "unclosed-array",
            "an array without end",
            "[1",
            "unexpected_end",
            2,
        ),
        case(
            "unclosed-object",
            "an object without end",
            "{\"a\":1",
            "unexpected_end",
            6,
        ),
        case(
            "trailing-comma",
            "a comma before the end",
            "[1,]",
            "unexpected",
            3,
        ),
        case(
            "trailing-member-comma",
            "a comma before the end",
            "{\"a\":1,}",
            "unexpected",
            7,
        ),
        case(
            "missing-comma",
            "no comma between elements",
            "[1 2]",
            "unexpected",
            3,
        ),
        case(
            "missing-colon",
            "no colon after a key",
            "{\"a\" 1}",
            "unexpected",
            5,
        ),
        case(
            "single-quotes",
            "quotes of another kind",
            "'a'",
            "unexpected",
            0,
        ),
        case("comment", "a comment", "1//", "trailing_bytes", 1),
        case("two-values", "two values", "{}{}", "trailing_bytes", 2),
        case(
            "trailing-nul",
            "a NUL at the end",
            "null\u{0}",
            "trailing_bytes",
            4,
        ),
        case(
            "byte-order-mark",
            "a byte order mark",
            "\u{feff}null",
            "unexpected",
            0,
        ),
        case(
            "no-break-space",
            "white space that is not JSON's",
            "\u{a0}1",
            "unexpected",
            0,
        ),
        case(
            "not-canonical-space",
            "white space at the end",
            "{} ",
            "not_canonical",
            2,
        ),
        case(
            "not-canonical-order",
            "keys in another order",
            "{\"b\":1,\"a\":2}",
            "not_canonical",
            2,
        ),
        case(
            "not-canonical-escape",
            "an escape without need",
            "\"\\u0061\"",
            "not_canonical",
            1,
        ),
        case(
            "not-canonical-solidus",
            "an escaped solidus",
            "\"\\/\"",
            "not_canonical",
            1,
        ),
        case(
            "not-canonical-hex",
            "upper case digits in an escape",
            "\"\\u001F\"",
            "not_canonical",
            6,
        ),
    ];
    let mut bytes = |id: &str, description: &str, input, error: &str, at| {
        cases.push(Reject {
            id: id.into(),
            description: description.into(),
            input,
            error: error.into(),
            at,
        });
    };
    let hex = |digits: &str| vec![Piece::Hex(digits.into())];
    bytes(
        "bad-utf8",
        "a byte that UTF-8 never has",
        hex("22ff22"),
        "invalid_utf8",
        1,
    );
    bytes(
        "long-utf8",
        "U+002F in two bytes",
        hex("22c0af22"),
        "invalid_utf8",
        1,
    );
    bytes(
        "surrogate-utf8",
        "a surrogate in UTF-8",
        hex("22eda0bd22"),
        "invalid_utf8",
        1,
    );
    bytes(
        "cut-utf8",
        "a character cut short",
        hex("22c3"),
        "invalid_utf8",
        1,
    );
    let deep = vec![repeat("[", MAX_DEPTH + 1), repeat("]", MAX_DEPTH + 1)];
    bytes(
        "too-deep",
        "one deeper than the limit",
        deep,
        "too_deep",
        MAX_DEPTH,
    );
    let quote = || Piece::Text("\"".into());
    let large = vec![quote(), repeat("a", MAX_BYTES - 1), quote()];
    bytes(
        "too-large",
        "one byte longer than the limit",
        large,
        "too_large",
        MAX_BYTES,
    );
    let many = vec![
        Piece::Text("[".into()),
        repeat("0,", 1 << 18),
        Piece::Text("0]".into()),
    ];
    let at = 1 + 2 * ((1 << 18) - 1);
    bytes(
        "too-many",
        "more values than the limit of 2^18",
        many,
        "too_many_values",
        at,
    );
    File {
        comment:
            "Texts that are refused, with the rule they break and the byte offset. An input is \
                  the concatenation of its pieces."
                .into(),
        version: 1,
        cases,
    }
}
