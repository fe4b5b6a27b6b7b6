//! Every single change that can be made to a JSON text: the tampering that no trace may survive.

use serde_json::Value;

/// One way of changing one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tamper {
    /// Another value of the same kind: the last hexadecimal digit of a hash changed between 0 and 1,
    /// `x` after another text, 1 added to an integer, the other boolean, 0 for null, null for an
    /// array or object.
    Flip,
    /// The member or element removed.
    Delete,
    /// A member `extra_member` with value null, or a null at the end of an array.
    Add,
    /// The element, or the member with its key, written twice.
    Duplicate,
    /// The element exchanged with the next one, or the member written after the next one.
    Reorder,
}

impl Tamper {
    /// All ways.
    pub const ALL: [Self; 5] = [
        Self::Flip,
        Self::Delete,
        Self::Add,
        Self::Duplicate,
        Self::Reorder,
    ];

    /// Name in vector files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flip => "flip",
            Self::Delete => "delete",
            Self::Add => "add",
            Self::Duplicate => "duplicate",
            Self::Reorder => "reorder",
        }
    }

    /// The way with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tamper| tamper.name() == name)
    }
}

/// JSON pointers (RFC 6901) of all values in a document, the document itself first.
pub fn pointers(document: &Value) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut next = 0;
    while let Some(pointer) = found.get(next).cloned() {
        match document.pointer(&pointer) {
            Some(Value::Array(items)) => {
                found.extend((0..items.len()).map(|i| format!("{pointer}/{i}")));
            }
            Some(Value::Object(members)) => {
                let escaped = |key: &String| key.replace('~', "~0").replace('/', "~1");
                found.extend(
                    members
                        .keys()
                        .map(|key| format!("{pointer}/{}", escaped(key))),
                );
            }
            _ => {}
        }
        next += 1;
    }
    found
}

/// The text of the document with one change; `None` where the change does not apply there or
/// changes nothing. Members are written in the order of their keys, without white space.
pub fn tampered(document: &Value, pointer: &str, tamper: Tamper) -> Option<String> {
    let write = |pointer| {
        let mut writer = Writer {
            pointer,
            tamper,
            applied: false,
            out: String::new(),
        };
        writer.value(document, "");
        writer
    };
    let changed = write(pointer);
    let as_it_is = write("not a pointer");
    (changed.applied && changed.out != as_it_is.out).then_some(changed.out)
}

struct Writer<'a> {
    pointer: &'a str,
    tamper: Tamper,
    applied: bool,
    out: String,
}

impl Writer<'_> {
    fn hits(&mut self, at: &str, tamper: Tamper) -> bool {
        let hit = at == self.pointer && tamper == self.tamper;
        self.applied |= hit;
        hit
    }

    fn value(&mut self, value: &Value, at: &str) {
        if self.hits(at, Tamper::Flip) {
            let flipped = flipped(value);
            self.out.push_str(&flipped.to_string());
            return;
        }
        match value {
            Value::Array(items) => {
                let items = items.iter().enumerate();
                let items = items.map(|(i, item)| (i.to_string(), item));
                self.list(items.collect(), at, ['[', ']'], false);
            }
            Value::Object(members) => {
                let mut members: Vec<_> = members
                    .iter()
                    .map(|(key, value)| (key.clone(), value))
                    .collect();
                members.sort_by(|(a, _), (b, _)| a.cmp(b));
                self.list(members, at, ['{', '}'], true);
            }
            plain => self.out.push_str(&plain.to_string()),
        }
    }

    fn list(&mut self, mut parts: Vec<(String, &Value)>, at: &str, ends: [char; 2], keyed: bool) {
        let path = |key: &str| format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        let place = parts.iter().position(|(key, _)| path(key) == self.pointer);
        if let Some(i) = place {
            let here = path(&parts[i].0);
            if self.hits(&here, Tamper::Delete) {
                parts.remove(i);
            } else if self.hits(&here, Tamper::Duplicate) {
                parts.insert(i, parts[i].clone());
            } else if i + 1 < parts.len() && self.hits(&here, Tamper::Reorder) {
                parts.swap(i, i + 1);
            }
        }
        if self.hits(at, Tamper::Add) {
            parts.push(("extra_member".into(), &Value::Null));
            if keyed {
                parts.sort_by(|(a, _), (b, _)| a.cmp(b));
            }
        }
        self.out.push(ends[0]);
        for (i, (key, value)) in parts.into_iter().enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            if keyed {
                self.out.push_str(&Value::from(key.clone()).to_string());
                self.out.push(':');
            }
            self.value(value, &path(&key));
        }
        self.out.push(ends[1]);
    }
}

fn flipped(value: &Value) -> Value {
    match value {
        Value::Null => 0.into(),
        Value::Bool(value) => (!value).into(),
        Value::Number(number) => number
            .as_i64()
            .map_or(Value::Null, |value| (value + 1).into()),
        Value::String(text) if text.starts_with("b3:") => {
            let mut digits = text.clone();
            let last = digits.pop();
            digits.push(if last == Some('0') { '1' } else { '0' });
            digits.into()
        }
        Value::String(text) => format!("{text}x").into(),
        Value::Array(_) | Value::Object(_) => Value::Null,
    }
}
