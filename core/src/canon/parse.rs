//! The strict parser: recursive descent over bytes, depth and size bounded.

use std::collections::BTreeMap;

use super::{
    CanonError, CanonErrorKind as Kind, MAX_DEPTH, MAX_INTEGER, MAX_VALUES, Value, check_size,
};

pub(super) fn parse(input: &[u8]) -> Result<Value, CanonError> {
    check_size(input)?;
    let text = std::str::from_utf8(input).map_err(|error| CanonError {
        at: error.valid_up_to(),
        kind: Kind::InvalidUtf8,
    })?;
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        values: 0,
    };
    parser.skip_space();
    let value = parser.value()?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(value),
        Some(_) => parser.fail(Kind::TrailingBytes),
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Byte offset of the next unread byte; a character boundary whenever a value starts.
    at: usize,
    depth: usize,
    values: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn fail<T>(&self, kind: Kind) -> Result<T, CanonError> {
        Err(CanonError { at: self.at, kind })
    }

    fn unexpected<T>(&self, expected: &'static str) -> Result<T, CanonError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.fail(match rest.chars().next() {
            Some(found) => Kind::Unexpected { expected, found },
            None => Kind::UnexpectedEnd(expected),
        })
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), CanonError> {
        if self.peek() != Some(byte) {
            return self.unexpected(expected);
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self) -> Result<Value, CanonError> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return self.fail(Kind::TooManyValues);
        }
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => self.unexpected("a value"),
        }
    }

    fn nested(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Value, CanonError>,
    ) -> Result<Value, CanonError> {
        if self.depth == MAX_DEPTH {
            return self.fail(Kind::TooDeep);
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value, CanonError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word) {
            return self.unexpected("true, false or null");
        }
        self.at += word.len();
        Ok(value)
    }

    fn array(&mut self) -> Result<Value, CanonError> {
        self.take(b'[', "an array")?;
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            self.skip_space();
            items.push(self.value()?);
            self.skip_space();
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(Value::Array(items));
            }
            self.take(b',', "a comma or the end of the array")?;
        }
    }

    fn object(&mut self) -> Result<Value, CanonError> {
        self.take(b'{', "an object")?;
        let mut members = BTreeMap::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(members));
        }
        loop {
            self.skip_space();
            let start = self.at;
            if self.peek() != Some(b'"') {
                return self.unexpected("a key");
            }
            let key = self.string()?;
            let fault = |kind| CanonError { at: start, kind };
            if !key.is_ascii() {
                return Err(fault(Kind::NonAsciiKey(key)));
            }
            if members.contains_key(&key) {
                return Err(fault(Kind::DuplicateKey(key)));
            }
            self.skip_space();
            self.take(b':', "a colon")?;
            self.skip_space();
            let value = self.value()?;
            members.insert(key, value);
            self.skip_space();
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(Value::Object(members));
            }
            self.take(b',', "a comma or the end of the object")?;
        }
    }

    fn number(&mut self) -> Result<Value, CanonError> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        if negative {
            self.at += 1;
        }
        let digits_from = self.at;
        let mut magnitude: u64 = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            let digit = u64::from(digit - b'0');
            magnitude = magnitude.saturating_mul(10).saturating_add(digit);
            self.at += 1;
        }
        let digits = self.at - digits_from;
        if digits == 0 {
            return self.unexpected("a digit");
        }
        let leading_zero = self.text.as_bytes().get(digits_from) == Some(&b'0') && digits > 1;
        let broken = match self.peek() {
            Some(b'.') => Some(Kind::Float),
            Some(b'e' | b'E') => Some(Kind::Exponent),
            _ if leading_zero => Some(Kind::LeadingZero),
            _ if negative && magnitude == 0 => Some(Kind::NegativeZero),
            _ if magnitude > MAX_INTEGER.unsigned_abs() => Some(Kind::OutOfRange),
            _ => None,
        };
        if let Some(kind) = broken {
            return Err(CanonError { at: start, kind });
        }
        // In range by the check above, so the conversion never saturates.
        let magnitude = i64::try_from(magnitude).unwrap_or(i64::MAX);
        Ok(Value::Integer(if negative {
            -magnitude
        } else {
            magnitude
        }))
    }

    fn string(&mut self) -> Result<String, CanonError> {
        self.take(b'"', "a string")?;
        let mut out = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let plain = rest
                .bytes()
                .position(|byte| byte == b'"' || byte == b'\\' || byte < 0x20)
                .unwrap_or(rest.len());
            out.push_str(rest.get(..plain).unwrap_or_default());
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => return self.fail(Kind::ControlCharacter),
                None => return self.unexpected("the end of the string"),
            }
        }
    }

    fn escape(&mut self) -> Result<char, CanonError> {
        let start = self.at;
        self.take(b'\\', "an escape")?;
        let Some(letter) = self.peek() else {
            return self.unexpected("an escape");
        };
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(start),
            _ => {
                let kind = Kind::BadEscape;
                return Err(CanonError { at: start, kind });
            }
        })
    }

    /// The rest of a `\uXXXX` escape, with its second half where it is a surrogate pair.
    fn unicode_escape(&mut self, start: usize) -> Result<char, CanonError> {
        let lone = CanonError {
            at: start,
            kind: Kind::LoneSurrogate,
        };
        let first = self.hex4(start)?;
        let code = match first {
            0xD800..=0xDBFF => {
                let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
                if !rest.starts_with(b"\\u") {
                    return Err(lone);
                }
                self.at += 2;
                let second = self.hex4(start)?;
                if !(0xDC00..=0xDFFF).contains(&second) {
                    return Err(lone);
                }
                0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            }
            code => code,
        };
        // Only a low surrogate without its high half is not a character here.
        char::from_u32(code).ok_or(lone)
    }

    fn hex4(&mut self, start: usize) -> Result<u32, CanonError> {
        let bad = CanonError {
            at: start,
            kind: Kind::BadEscape,
        };
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let mut code = 0;
        for digit in digits.ok_or(bad.clone())? {
            let digit = char::from(*digit).to_digit(16).ok_or(bad.clone())?;
            code = code * 16 + digit;
        }
        self.at += 4;
        Ok(code)
    }
}
