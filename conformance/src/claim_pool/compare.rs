//! Comparing what a replay gives with what was recorded.

use serde_json::{Map, Value};

use super::read::PYTHON_SAMPLE;

/// Largest difference of two scores that are the same.
pub const SCORE_TOLERANCE: f64 = 1e-5;

/// Recorded numbers of events are rounded to four places.
const ROUNDED_TOLERANCE: f64 = 5e-5 + SCORE_TOLERANCE;

/// Recorded, but no matter of ours.
const NOT_COMPARED: [&str; 1] = ["embedder_calls"];

/// Compares one operation. The error names the place and both values.
pub fn operation(recorded: &Map<String, Value>, found: &Map<String, Value>) -> Result<(), String> {
    for (name, recorded) in recorded {
        if NOT_COMPARED.contains(&name.as_str()) {
            continue;
        }
        let Some(found) = found.get(name) else {
            return match recorded {
                Value::Null => Ok(()),
                _ => Err(format!(
                    "{name}: expected {}, found nothing",
                    short(recorded)
                )),
            };
        };
        match (name.as_str(), recorded, found) {
            ("events", _, _) => value(name, recorded, found, ROUNDED_TOLERANCE)?,
            // The reads of a sequence are recorded from events.
            ("result", Value::Array(_), _) => value(name, recorded, found, ROUNDED_TOLERANCE)?,
            // Long lists are left out of some recordings.
            ("trace", Value::Object(recorded), Value::Object(found)) => {
                for (part, recorded) in recorded {
                    let found = found.get(part).unwrap_or(&Value::Null);
                    value(&format!("trace.{part}"), recorded, found, SCORE_TOLERANCE)?;
                }
            }
            _ => value(name, recorded, found, SCORE_TOLERANCE)?,
        }
    }
    Ok(())
}

fn value(at: &str, recorded: &Value, found: &Value, tolerance: f64) -> Result<(), String> {
    match (recorded, found) {
        (Value::Object(a), Value::Object(b)) => object(at, a, b, tolerance),
        (Value::Array(a), Value::Array(b)) => {
            for (n, (a, b)) in a.iter().zip(b).enumerate() {
                value(&format!("{at}[{n}]"), a, b, tolerance)?;
            }
            match a.len() == b.len() {
                true => Ok(()),
                false => Err(format!(
                    "{at}: expected {} entries, found {}",
                    a.len(),
                    b.len()
                )),
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            let whole = a.is_i64() && b.is_i64() || a.is_u64() && b.is_u64();
            let same = match (a.as_f64(), b.as_f64()) {
                _ if whole => a == b,
                (Some(a), Some(b)) => (a - b).abs() <= tolerance,
                _ => false,
            };
            unless(same, at, recorded, found)
        }
        _ => unless(recorded == found, at, recorded, found),
    }
}

fn object(
    at: &str,
    recorded: &Map<String, Value>,
    found: &Map<String, Value>,
    tolerance: f64,
) -> Result<(), String> {
    let fault = recorded
        .get("event")
        .is_some_and(|kind| kind == "rerank_failed");
    for (key, expected) in recorded {
        // How a fault is worded is each program's own; that there is a reason is not.
        if fault && key == "reason" {
            let said = found
                .get(key)
                .and_then(Value::as_str)
                .is_some_and(|reason| !reason.is_empty());
            unless(said, at, expected, &Value::Null)?;
            continue;
        }
        if key == PYTHON_SAMPLE && !found.contains_key(key) {
            continue;
        }
        let found = found.get(key).unwrap_or(&Value::Null);
        if key == "related" {
            // The peer takes units of equal score from an unordered set.
            let (expected, found) = (by_score(expected), by_score(found));
            value(&format!("{at}.{key}"), &expected, &found, tolerance)?;
            continue;
        }
        value(&format!("{at}.{key}"), expected, found, tolerance)?;
    }
    let extra = found
        .keys()
        .find(|key| !recorded.contains_key(*key) && *key != PYTHON_SAMPLE);
    match extra {
        Some(key) => Err(format!(
            "{at}.{key}: not recorded, found {}",
            short(&found[key])
        )),
        None => Ok(()),
    }
}

/// Related units by score, equal ones by id.
fn by_score(related: &Value) -> Value {
    let Value::Array(units) = related else {
        return related.clone();
    };
    let mut units = units.clone();
    units.sort_by_key(|unit| {
        let score = unit["score"].as_f64().unwrap_or_default();
        let steps = (score / SCORE_TOLERANCE).round() as i64;
        (-steps, unit["unit_id"].to_string())
    });
    Value::Array(units)
}

fn unless(same: bool, at: &str, recorded: &Value, found: &Value) -> Result<(), String> {
    match same {
        true => Ok(()),
        false => Err(format!(
            "{at}: expected {}, found {}",
            short(recorded),
            short(found)
        )),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
