//! Arguments against a tool's schema: what is certain is put right, the rest is refused with the place.
//!
//! The part of JSON Schema that tools use: `type` (one or several), `properties`, `required`,
//! `additionalProperties: false`, `items`, `enum`, `minimum`, `maximum`, `anyOf`, `oneOf`, local `$ref`.

use serde_json::{Map, Number, Value};

use super::json;

const MAX_DEPTH: usize = 16;

/// Arguments that fit `schema`, with the names of the repairs made.
pub(super) fn fit(
    schema: &Value,
    arguments: Map<String, Value>,
) -> Result<(Map<String, Value>, Vec<&'static str>), String> {
    let mut fitter = Fitter {
        root: schema,
        repairs: Vec::new(),
    };
    match fitter.value(schema, Value::Object(arguments), "", 0)? {
        Value::Object(object) => Ok((object, fitter.repairs)),
        _ => Err("the arguments must be an object".to_owned()),
    }
}

struct Fitter<'a> {
    root: &'a Value,
    repairs: Vec<&'static str>,
}

impl<'a> Fitter<'a> {
    fn repaired(&mut self, what: &'static str) {
        if !self.repairs.contains(&what) {
            self.repairs.push(what);
        }
    }

    /// Follows local references.
    fn resolve(&self, schema: &'a Value) -> Result<&'a Value, String> {
        let mut schema = schema;
        for _ in 0..MAX_DEPTH {
            let Some(reference) = schema.get("$ref").and_then(Value::as_str) else {
                return Ok(schema);
            };
            let pointer = reference.strip_prefix('#').ok_or_else(|| {
                format!("the tool's schema refers to {reference}, which is not part of it")
            })?;
            schema = self.root.pointer(pointer).ok_or_else(|| {
                format!("the tool's schema refers to {reference}, which it does not hold")
            })?;
        }
        Err("the tool's schema refers to itself".to_owned())
    }

    fn value(
        &mut self,
        schema: &'a Value,
        value: Value,
        place: &str,
        depth: usize,
    ) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("{} is nested too deeply", at(place)));
        }
        let schema = self.resolve(schema)?;
        for choice in ["anyOf", "oneOf"] {
            if let Some(choices) = schema.get(choice).and_then(Value::as_array) {
                let mut last = format!("{} fits no choice", at(place));
                // A choice that fits as it is goes before one that needs a repair.
                for repairs_allowed in [false, true] {
                    for choice in choices.iter().take(16) {
                        let before = self.repairs.len();
                        match self.value(choice, value.clone(), place, depth + 1) {
                            Ok(fitted) if repairs_allowed || fitted == value => return Ok(fitted),
                            Ok(_) => self.repairs.truncate(before),
                            Err(reason) => {
                                self.repairs.truncate(before);
                                last = reason;
                            }
                        }
                    }
                }
                return Err(last);
            }
        }
        let types = types(schema);
        let value = self.typed(&types, value, place)?;
        let value = match value {
            Value::Object(object) => self.object(schema, object, place, depth)?,
            Value::Array(array) => self.array(schema, array, place, depth)?,
            value => value,
        };
        bounds(schema, &value, place)?;
        Ok(value)
    }

    /// The value as one of `types`.
    fn typed(&mut self, types: &[&str], value: Value, place: &str) -> Result<Value, String> {
        if types.is_empty() || types.iter().any(|kind| is(kind, &value)) {
            // The word null is no text where null itself may stand.
            if types.contains(&"null") && is_null_word(&value) {
                self.repaired("null from text");
                return Ok(Value::Null);
            }
            return Ok(value);
        }
        for kind in types {
            if let Some((fitted, repair)) = coerced(kind, &value) {
                self.repaired(repair);
                return Ok(fitted);
            }
        }
        Err(format!(
            "{} must be {}, not {}",
            at(place),
            types.join(" or "),
            kind(&value)
        ))
    }

    fn object(
        &mut self,
        schema: &'a Value,
        mut object: Map<String, Value>,
        place: &str,
        depth: usize,
    ) -> Result<Value, String> {
        let properties = schema.get("properties").and_then(Value::as_object);
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let mut fitted = Map::new();
        for (name, property) in properties.into_iter().flatten() {
            let Some(value) = object.remove(name) else {
                continue;
            };
            let inner = if place.is_empty() {
                name.clone()
            } else {
                format!("{place}.{name}")
            };
            let resolved = self.resolve(property)?;
            let types = types(resolved);
            let nullable = types.contains(&"null");
            if !required.contains(&name.as_str()) && says_nothing(&types, nullable, &value) {
                self.repaired("empty optional left out");
                continue;
            }
            fitted.insert(
                name.clone(),
                self.value(property, value, &inner, depth + 1)?,
            );
        }
        let missing = required
            .iter()
            .find(|name| !fitted.contains_key(**name) && !object.contains_key(**name));
        if let Some(missing) = missing {
            return Err(format!("{} is missing", at(&join(place, missing))));
        }
        if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
            if let Some(name) = object.keys().next() {
                let known: Vec<&str> = properties
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.as_str())
                    .collect();
                let known = if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                };
                return Err(format!(
                    "{} is not an argument of this tool; it knows: {known}",
                    at(&join(place, name))
                ));
            }
        } else {
            fitted.extend(object);
        }
        Ok(Value::Object(fitted))
    }

    fn array(
        &mut self,
        schema: &'a Value,
        array: Vec<Value>,
        place: &str,
        depth: usize,
    ) -> Result<Value, String> {
        let Some(items) = schema.get("items") else {
            return Ok(Value::Array(array));
        };
        let fitted: Result<Vec<Value>, String> = array
            .into_iter()
            .enumerate()
            .map(|(n, value)| self.value(items, value, &format!("{place}[{n}]"), depth + 1))
            .collect();
        fitted.map(Value::Array)
    }
}

fn join(place: &str, name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
    if place.is_empty() {
        name
    } else {
        format!("{place}.{name}")
    }
}

fn at(place: &str) -> String {
    if place.is_empty() {
        "the arguments".to_owned()
    } else {
        format!("argument {place}")
    }
}

fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is(kind_name: &str, value: &Value) -> bool {
    match kind_name {
        "integer" => value.is_i64() || value.is_u64(),
        other => kind(value) == other,
    }
}

fn is_null_word(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|word| matches!(word.trim(), "null" | "None" | "NULL" | "nil"))
}

/// A value that a model puts where it has none: an argument that may be left out is.
fn says_nothing(types: &[&str], nullable: bool, value: &Value) -> bool {
    match value {
        Value::Null => !nullable && !types.is_empty(),
        Value::String(text) if text.is_empty() => {
            nullable || (!types.is_empty() && !types.contains(&"string"))
        }
        Value::Array(items) => {
            !items.is_empty()
                && items
                    .iter()
                    .all(|item| item.is_null() || is_null_word(item))
        }
        value => {
            is_null_word(value) && !nullable && !types.is_empty() && !types.contains(&"string")
        }
    }
}

/// `value` as a `kind`, where only one thing can be meant.
fn coerced(kind: &str, value: &Value) -> Option<(Value, &'static str)> {
    match (kind, value) {
        ("null", value) if is_null_word(value) => Some((Value::Null, "null from text")),
        ("boolean", Value::String(text)) => {
            let truth = match text.trim() {
                "true" | "True" | "TRUE" => true,
                "false" | "False" | "FALSE" => false,
                _ => return None,
            };
            Some((Value::Bool(truth), "boolean from text"))
        }
        ("integer", Value::String(text)) => {
            let number = text.trim().parse::<i64>().ok()?;
            Some((number.into(), "number from text"))
        }
        ("number", Value::String(text)) => {
            let number: Number = text.trim().parse().ok()?;
            Some((Value::Number(number), "number from text"))
        }
        ("integer", Value::Number(number)) => {
            let float = number.as_f64()?;
            // Within the range where every integer has a float of its own.
            let whole = float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0;
            whole.then(|| ((float as i64).into(), "integer from number"))
        }
        ("string", Value::Number(number)) => {
            Some((Value::String(number.to_string()), "text from number"))
        }
        ("string", Value::Bool(truth)) => {
            Some((Value::String(truth.to_string()), "text from boolean"))
        }
        ("object", Value::String(text)) => json::whole(text)
            .ok()
            .filter(Value::is_object)
            .map(|value| (value, "decoded twice")),
        ("array", Value::String(text)) => json::whole(text)
            .ok()
            .filter(Value::is_array)
            .map(|value| (value, "decoded twice")),
        _ => None,
    }
}

fn bounds(schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    if let Some(choices) = schema.get("enum").and_then(Value::as_array)
        && !choices.contains(value)
    {
        let choices: Vec<String> = choices.iter().take(20).map(Value::to_string).collect();
        return Err(format!(
            "{} must be one of {}",
            at(place),
            choices.join(", ")
        ));
    }
    let Some(number) = value.as_f64() else {
        return Ok(());
    };
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    if let Some(least) = bound("minimum").filter(|least| number < *least) {
        return Err(format!(
            "{} must be at least {least}, not {number}",
            at(place)
        ));
    }
    if let Some(most) = bound("maximum").filter(|most| number > *most) {
        return Err(format!(
            "{} must be at most {most}, not {number}",
            at(place)
        ));
    }
    Ok(())
}
