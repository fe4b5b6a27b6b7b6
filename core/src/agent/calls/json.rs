//! JSON as models write it: trailing commas, single quotes, `True`, `False`, `None` and line breaks in strings are
//! read. Words without quotes, missing or wrong brackets, repeated keys and anything cut off are not: guessing what
//! was meant there could make another call.

use serde_json::{Map, Number, Value};

/// Deeper values are refused.
pub(super) const MAX_DEPTH: usize = 32;

/// Why a text is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// Byte offset in the text.
    pub(super) at: usize,
    pub(super) what: &'static str,
    /// The text ended before the value did.
    pub(super) cut_off: bool,
}

/// The value at the start of `text`, after blanks, and the offset after it.
pub(super) fn value(text: &str) -> Result<(Value, usize), Problem> {
    let mut reader = Reader { text, at: 0 };
    reader.blanks();
    let value = reader.value(0)?;
    Ok((value, reader.at))
}

/// The one value that `text` holds.
pub(super) fn whole(text: &str) -> Result<Value, Problem> {
    let (value, end) = value(text)?;
    if text[end..].trim().is_empty() {
        Ok(value)
    } else {
        Err(Problem {
            at: end,
            what: "text follows the value",
            cut_off: false,
        })
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn problem<T>(&self, what: &'static str) -> Result<T, Problem> {
        Err(Problem {
            at: self.at,
            what,
            cut_off: self.at >= self.text.len(),
        })
    }

    fn value(&mut self, depth: usize) -> Result<Value, Problem> {
        if depth > MAX_DEPTH {
            return self.problem("the value is nested too deeply");
        }
        match self.peek() {
            Some('{') => self.object(depth),
            Some('[') => self.array(depth),
            Some('"' | '\'') => self.string().map(Value::String),
            Some(c) if c.is_ascii_digit() || c == '-' => self.number(),
            Some(c) if c.is_alphabetic() => self.word(),
            Some(_) => self.problem("no value begins here"),
            None => self.problem("the text ends where a value is due"),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Problem> {
        let mut object = Map::new();
        self.at += 1;
        loop {
            self.blanks();
            match self.peek() {
                Some('}') => {
                    self.at += 1;
                    return Ok(Value::Object(object));
                }
                Some('"' | '\'') => {}
                _ => return self.problem("a key in quotes or } is due"),
            }
            let key = self.string()?;
            if object.contains_key(&key) {
                return self.problem("a key occurs twice");
            }
            self.blanks();
            if self.peek() != Some(':') {
                return self.problem("a colon is due");
            }
            self.at += 1;
            self.blanks();
            let value = self.value(depth + 1)?;
            object.insert(key, value);
            self.comma('}')?;
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, Problem> {
        let mut array = Vec::new();
        self.at += 1;
        loop {
            self.blanks();
            if self.peek() == Some(']') {
                self.at += 1;
                return Ok(Value::Array(array));
            }
            array.push(self.value(depth + 1)?);
            self.comma(']')?;
        }
    }

    /// A comma, or the closing bracket, which stays.
    fn comma(&mut self, closing: char) -> Result<(), Problem> {
        self.blanks();
        match self.peek() {
            Some(',') => {
                self.at += 1;
                Ok(())
            }
            Some(c) if c == closing => Ok(()),
            _ => self.problem("a comma or the closing bracket is due"),
        }
    }

    fn string(&mut self) -> Result<String, Problem> {
        let Some(quote) = self.peek() else {
            return self.problem("a string is due");
        };
        let mut string = String::new();
        self.at += 1;
        loop {
            let Some(c) = self.peek() else {
                return self.problem("a string does not end");
            };
            self.at += c.len_utf8();
            match c {
                c if c == quote => return Ok(string),
                '\\' => string.push(self.escape()?),
                c => string.push(c),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Problem> {
        let Some(c) = self.peek() else {
            return self.problem("a string does not end");
        };
        self.at += c.len_utf8();
        Ok(match c {
            '"' | '\\' | '/' | '\'' => c,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => return self.unicode(),
            _ => return self.problem("an unknown escape"),
        })
    }

    fn unicode(&mut self) -> Result<char, Problem> {
        let first = self.hex()?;
        let code = if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u") {
            self.at += 2;
            let second = self.hex()?;
            if !(0xdc00..0xe000).contains(&second) {
                return self.problem("half a surrogate pair");
            }
            0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        match char::from_u32(code) {
            Some(c) => Ok(c),
            None => self.problem("half a surrogate pair"),
        }
    }

    fn hex(&mut self) -> Result<u32, Problem> {
        let code = self
            .text
            .get(self.at..self.at + 4)
            .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match code {
            Some(code) => {
                self.at += 4;
                Ok(code)
            }
            None => self.problem("four hexadecimal digits are due"),
        }
    }

    fn number(&mut self) -> Result<Value, Problem> {
        let rest = &self.text[self.at..];
        let length = rest
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E')))
            .unwrap_or(rest.len());
        match rest[..length].parse::<Number>() {
            Ok(number) => {
                self.at += length;
                Ok(Value::Number(number))
            }
            Err(_) => self.problem("not a number"),
        }
    }

    fn word(&mut self) -> Result<Value, Problem> {
        let rest = &self.text[self.at..];
        let length = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let value = match &rest[..length] {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            "null" | "None" => Value::Null,
            _ => return self.problem("a word without quotes"),
        };
        self.at += length;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_models_write() {
        assert_eq!(
            whole("{'a': [1, 2,], \"b\": None,}"),
            Ok(json!({"a": [1, 2], "b": null}))
        );
        assert_eq!(
            whole("\"a\nb\\u00e9\\ud83d\\ude00\""),
            Ok(json!("a\nb\u{e9}\u{1f600}"))
        );
        for broken in [
            "{a: 1}",
            "[1, 2",
            "[1}",
            "{\"a\": 1]",
            "{\"a\": 1, \"a\": 2}",
            "[,]",
            "{\"a\" 1}",
            "01",
            "1.2.3",
            "\"\\ud800\"",
            "\"\\x\"",
            "[1] 2",
            "",
            "nul",
            "NaN",
        ] {
            assert!(whole(broken).is_err(), "{broken}");
        }
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(whole(&deep(MAX_DEPTH + 1)).is_ok());
        assert!(whole(&deep(MAX_DEPTH + 2)).is_err());
        assert!(whole(&"[".repeat(1_000_000)).is_err());
    }

    proptest! {
        #[test]
        fn what_is_json_is_read_as_json(text in "[\\[\\]{}\":,0-9a-z\\\\ .eE+-]{0,24}") {
            if let (Ok(strict), Ok(ours)) = (serde_json::from_str::<Value>(&text), whole(&text)) {
                prop_assert_eq!(strict, ours);
            }
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,60}") {
            let _ = value(&text);
        }
    }
}
