//! Writing the canonical form.

use super::{CanonError, CanonErrorKind, MAX_INTEGER, Value};

pub(super) fn write_value(out: &mut String, value: &Value) -> Result<(), CanonError> {
    let fault = |out: &String, kind| CanonError {
        at: out.len(),
        kind,
    };
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Integer(value) => {
            if value.unsigned_abs() > MAX_INTEGER.unsigned_abs() {
                return Err(fault(out, CanonErrorKind::OutOfRange));
            }
            out.push_str(&value.to_string());
        }
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(out, item)?;
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (i, (key, value)) in members.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                if !key.is_ascii() {
                    return Err(fault(out, CanonErrorKind::NonAsciiKey(key.clone())));
                }
                write_string(out, key);
                out.push(':');
                write_value(out, value)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

/// Appends `text` as a canonical JSON string (RFC 8785 section 3.2.2.2): short escapes where JSON
/// has one, `\u00xx` in lower case for the other control characters, everything else as it is.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut written = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[written..at]);
        written = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            0x0c => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            control => out.push_str(&format!("\\u{control:04x}")),
        }
    }
    out.push_str(&text[written..]);
    out.push('"');
}

/// The canonical array of texts in which NULL (`None`) stays apart from the empty text. There is
/// no size limit: it is the preimage of content hashes of rows of any length.
pub fn text_array(values: &[Option<&str>]) -> String {
    let texts = values.iter().flatten().map(|text| text.len());
    let mut out = String::with_capacity(texts.sum::<usize>() + 8 * values.len() + 2);
    out.push('[');
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        match value {
            Some(text) => write_string(&mut out, text),
            None => out.push_str("null"),
        }
    }
    out.push(']');
    out
}
