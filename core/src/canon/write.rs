//! From a typed structure straight to its canonical text, without a tree in between.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::Range;

use serde::ser::{self, Serialize};

use super::encode::write_string;
use super::{CanonError, CanonErrorKind as Kind, MAX_INTEGER, misfit};

impl ser::Error for CanonError {
    fn custom<T: Display>(message: T) -> Self {
        misfit("", message)
    }
}

/// Appends the canonical text of a structure.
pub(super) fn write<T: Serialize + ?Sized>(
    out: &mut String,
    structure: &T,
) -> Result<(), CanonError> {
    structure.serialize(Writer(out))
}

fn fault<T>(kind: Kind) -> Result<T, CanonError> {
    Err(CanonError { at: 0, kind })
}

struct Writer<'a>(&'a mut String);

impl<'a> Writer<'a> {
    fn integer(self, value: i64) -> Result<(), CanonError> {
        if value.unsigned_abs() > MAX_INTEGER.unsigned_abs() {
            return fault(Kind::OutOfRange);
        }
        self.0.push_str(&value.to_string());
        Ok(())
    }

    fn list(self, after: &'static str) -> List<'a> {
        self.0.push('[');
        List {
            out: self.0,
            some: false,
            after,
        }
    }

    fn members(self, after: &'static str) -> Members<'a> {
        self.0.push('{');
        Members {
            start: self.0.len(),
            out: self.0,
            parts: Vec::new(),
            after,
        }
    }

    /// The one member of an enum's variant that holds something; what closes it is written after its value.
    fn variant(self, name: &str) -> Result<Self, CanonError> {
        self.0.push('{');
        write_key(self.0, name)?;
        Ok(self)
    }
}

fn write_key(out: &mut String, key: &str) -> Result<(), CanonError> {
    if !key.is_ascii() {
        return fault(Kind::NonAsciiKey(key.into()));
    }
    write_string(out, key);
    out.push(':');
    Ok(())
}

impl<'a> ser::Serializer for Writer<'a> {
    type Ok = ();
    type Error = CanonError;
    type SerializeSeq = List<'a>;
    type SerializeTuple = List<'a>;
    type SerializeTupleStruct = List<'a>;
    type SerializeTupleVariant = List<'a>;
    type SerializeMap = Members<'a>;
    type SerializeStruct = Members<'a>;
    type SerializeStructVariant = Members<'a>;

    fn serialize_bool(self, value: bool) -> Result<(), CanonError> {
        self.0.push_str(if value { "true" } else { "false" });
        Ok(())
    }
    fn serialize_i8(self, value: i8) -> Result<(), CanonError> {
        self.integer(value.into())
    }
    fn serialize_i16(self, value: i16) -> Result<(), CanonError> {
        self.integer(value.into())
    }
    fn serialize_i32(self, value: i32) -> Result<(), CanonError> {
        self.integer(value.into())
    }
    fn serialize_i64(self, value: i64) -> Result<(), CanonError> {
        self.integer(value)
    }
    fn serialize_u8(self, value: u8) -> Result<(), CanonError> {
        self.integer(value.into())
    }
    fn serialize_u16(self, value: u16) -> Result<(), CanonError> {
        self.integer(value.into())
    }
    fn serialize_u32(self, value: u32) -> Result<(), CanonError> {
        self.integer(value.into())
    }
    fn serialize_u64(self, value: u64) -> Result<(), CanonError> {
        match i64::try_from(value) {
            Ok(value) => self.integer(value),
            Err(_) => fault(Kind::OutOfRange),
        }
    }
    fn serialize_f32(self, _: f32) -> Result<(), CanonError> {
        fault(Kind::Float)
    }
    fn serialize_f64(self, _: f64) -> Result<(), CanonError> {
        fault(Kind::Float)
    }
    fn serialize_char(self, value: char) -> Result<(), CanonError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }
    fn serialize_str(self, value: &str) -> Result<(), CanonError> {
        write_string(self.0, value);
        Ok(())
    }
    fn serialize_bytes(self, value: &[u8]) -> Result<(), CanonError> {
        self.collect_seq(value)
    }
    fn serialize_none(self) -> Result<(), CanonError> {
        self.serialize_unit()
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), CanonError> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<(), CanonError> {
        self.0.push_str("null");
        Ok(())
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), CanonError> {
        self.serialize_unit()
    }
    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), CanonError> {
        self.serialize_str(variant)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), CanonError> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), CanonError> {
        let Writer(out) = self.variant(variant)?;
        value.serialize(Writer(out))?;
        out.push('}');
        Ok(())
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<List<'a>, CanonError> {
        Ok(self.list("]"))
    }
    fn serialize_tuple(self, _: usize) -> Result<List<'a>, CanonError> {
        Ok(self.list("]"))
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List<'a>, CanonError> {
        Ok(self.list("]"))
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<List<'a>, CanonError> {
        Ok(self.variant(variant)?.list("]}"))
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Members<'a>, CanonError> {
        Ok(self.members("}"))
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Members<'a>, CanonError> {
        Ok(self.members("}"))
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Members<'a>, CanonError> {
        Ok(self.variant(variant)?.members("}}"))
    }
}

struct List<'a> {
    out: &'a mut String,
    some: bool,
    after: &'static str,
}

impl List<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonError> {
        if self.some {
            self.out.push(',');
        }
        self.some = true;
        value.serialize(Writer(self.out))
    }

    fn close(self) -> Result<(), CanonError> {
        self.out.push_str(self.after);
        Ok(())
    }
}

/// Members are written as they come and put in the order of their keys at the end.
struct Members<'a> {
    out: &'a mut String,
    /// Where the first member begins.
    start: usize,
    /// Key and the range of the whole member in the output.
    parts: Vec<(Cow<'static, str>, Range<usize>)>,
    after: &'static str,
}

impl Members<'_> {
    fn member<T: Serialize + ?Sized>(
        &mut self,
        key: Cow<'static, str>,
        value: &T,
    ) -> Result<(), CanonError> {
        let start = self.out.len();
        write_key(self.out, &key)?;
        value.serialize(Writer(self.out))?;
        self.parts.push((key, start..self.out.len()));
        Ok(())
    }

    fn close(mut self) -> Result<(), CanonError> {
        let written = self.out.split_off(self.start);
        self.parts.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (i, (_, range)) in self.parts.iter().enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            let member = written.get(range.start - self.start..range.end - self.start);
            self.out.push_str(member.unwrap_or_default());
        }
        self.out.push_str(self.after);
        Ok(())
    }
}

macro_rules! list {
    ($trait:ident, $method:ident) => {
        impl ser::$trait for List<'_> {
            type Ok = ();
            type Error = CanonError;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonError> {
                self.item(value)
            }
            fn end(self) -> Result<(), CanonError> {
                self.close()
            }
        }
    };
}
list!(SerializeSeq, serialize_element);
list!(SerializeTuple, serialize_element);
list!(SerializeTupleStruct, serialize_field);
list!(SerializeTupleVariant, serialize_field);

macro_rules! members {
    ($trait:ident) => {
        impl ser::$trait for Members<'_> {
            type Ok = ();
            type Error = CanonError;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), CanonError> {
                self.member(key.into(), value)
            }
            fn end(self) -> Result<(), CanonError> {
                self.close()
            }
        }
    };
}
members!(SerializeStruct);
members!(SerializeStructVariant);

impl ser::SerializeMap for Members<'_> {
    type Ok = ();
    type Error = CanonError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), CanonError> {
        let key = match serde_json::to_value(key) {
            Ok(serde_json::Value::String(key)) => key,
            Ok(serde_json::Value::Number(key)) => key.to_string(),
            Ok(_) => return Err(misfit("", "a key that is no text")),
            Err(error) => return Err(misfit("", error)),
        };
        let end = self.out.len();
        self.parts.push((key.into(), end..end));
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonError> {
        match self.parts.pop() {
            Some((key, _)) => self.member(key, value),
            None => Err(misfit("", "a value without a key")),
        }
    }

    fn end(self) -> Result<(), CanonError> {
        self.close()
    }
}
