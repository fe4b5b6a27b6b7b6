//! The setting `synthesis` of a namespace. The database keeps it as it is; here it gets its meaning.

use serde_json::Value;

use crate::error::{Failure, Outcome};

/// Longest instruction, in characters: it is sent with each request.
const LONGEST_INSTRUCTION: usize = 2_000;
/// Most names in `fields`.
const MOST_FIELDS: usize = 32;
/// Longest of them, in characters.
const LONGEST_FIELD: usize = 80;
const KEYS: [&str; 4] = ["synthesizer", "depth", "fields", "instruction"];

/// Who makes claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synthesizer {
    /// A language model.
    #[default]
    Model,
    /// The members of JSON, without a model.
    Json,
    /// The sentences as they stand, without a model.
    Extractive,
}

/// How much of a source becomes claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// What the source is about.
    Headlines,
    /// What a reader would want to know.
    #[default]
    Normal,
    /// Every detail.
    Everything,
}

/// The setting, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Who makes claims.
    pub synthesizer: Synthesizer,
    /// How much becomes claims.
    pub depth: Depth,
    /// What to look for in particular.
    pub fields: Vec<String>,
    /// What the operator adds for the model.
    pub instruction: Option<String>,
}

impl Settings {
    /// Reads the settings of a namespace as a build job carries them: the member `synthesis`. Missing or
    /// null means the defaults.
    ///
    /// # Errors
    /// A key that does not exist, or a value out of its range.
    pub fn read(namespace: &Value) -> Outcome<Self> {
        let mut settings = Settings::default();
        let members = match namespace.get("synthesis") {
            None | Some(Value::Null) => return Ok(settings),
            Some(Value::Object(members)) => members,
            Some(_) => return Err(wrong("synthesis is not an object")),
        };
        for (key, value) in members {
            match (key.as_str(), value) {
                (known, Value::Null) if KEYS.contains(&known) => {}
                ("synthesizer", value) => settings.synthesizer = synthesizer(value)?,
                ("depth", value) => settings.depth = depth(value)?,
                ("fields", value) => settings.fields = fields(value)?,
                ("instruction", value) => settings.instruction = instruction(value)?,
                (unknown, _) => return Err(wrong(format!("synthesis has no key {unknown:?}"))),
            }
        }
        Ok(settings)
    }
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure {
        code: "wrong_synthesis",
        ..Failure::usage(message)
    }
    .hint(format!(
        "the keys are {}; cortex_pool_set changes them",
        KEYS.join(", ")
    ))
}

fn synthesizer(value: &Value) -> Outcome<Synthesizer> {
    match value.as_str() {
        Some("model") => Ok(Synthesizer::Model),
        Some("json") => Ok(Synthesizer::Json),
        Some("extractive") => Ok(Synthesizer::Extractive),
        _ => Err(wrong(format!(
            "synthesis.synthesizer is {value}; it is \"model\", \"json\" or \"extractive\""
        ))),
    }
}

/// A number from 0 to 1, in thirds.
fn depth(value: &Value) -> Outcome<Depth> {
    match value.as_f64() {
        Some(depth) if (0.0..=0.34).contains(&depth) => Ok(Depth::Headlines),
        Some(depth) if (0.34..0.67).contains(&depth) => Ok(Depth::Normal),
        Some(depth) if (0.67..=1.0).contains(&depth) => Ok(Depth::Everything),
        _ => Err(wrong(format!(
            "synthesis.depth is {value}; it is a number from 0 to 1"
        ))),
    }
}

fn fields(value: &Value) -> Outcome<Vec<String>> {
    let refuse = || {
        wrong(format!(
            "synthesis.fields is a list of up to {MOST_FIELDS} names of up to {LONGEST_FIELD} characters"
        ))
    };
    let list = value.as_array().ok_or_else(refuse)?;
    if list.len() > MOST_FIELDS {
        return Err(refuse());
    }
    list.iter()
        .map(|name| {
            let name = name.as_str().map(str::trim).unwrap_or_default();
            if name.is_empty() || name.chars().count() > LONGEST_FIELD {
                return Err(refuse());
            }
            Ok(name.to_owned())
        })
        .collect()
}

fn instruction(value: &Value) -> Outcome<Option<String>> {
    let text = value
        .as_str()
        .ok_or_else(|| wrong("synthesis.instruction is not a text"))?
        .trim();
    if text.chars().count() > LONGEST_INSTRUCTION {
        return Err(wrong(format!(
            "synthesis.instruction has {} characters; the limit is {LONGEST_INSTRUCTION}",
            text.chars().count()
        )));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_said_means_the_defaults() {
        for namespace in [
            json!({}),
            json!({"synthesis": null}),
            json!({"synthesis": {}}),
            json!({"synthesis": {"depth": null, "fields": null}}),
        ] {
            assert_eq!(Settings::read(&namespace).unwrap(), Settings::default());
        }
    }

    #[test]
    fn every_key_is_read() {
        let namespace = json!({"synthesis": {"synthesizer": "json", "depth": 0.67, "fields": [" price "],
            "instruction": "Amounts are in euros."}});
        let settings = Settings::read(&namespace).unwrap();
        assert_eq!(settings.synthesizer, Synthesizer::Json);
        assert_eq!(settings.depth, Depth::Everything);
        assert_eq!(settings.fields, ["price"]);
        assert_eq!(
            settings.instruction.as_deref(),
            Some("Amounts are in euros.")
        );
    }

    #[test]
    fn depth_has_three_ranges_and_two_ends() {
        for (value, expected) in [
            (0.0, Depth::Headlines),
            (0.34, Depth::Headlines),
            (0.35, Depth::Normal),
            (0.66, Depth::Normal),
            (0.67, Depth::Everything),
            (1.0, Depth::Everything),
        ] {
            assert_eq!(depth(&json!(value)).unwrap(), expected, "{value}");
        }
        for value in [json!(-0.01), json!(1.01), json!("deep")] {
            assert!(depth(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn what_does_not_exist_is_refused_by_name() {
        for (synthesis, expected) in [
            (json!({"deepth": 1}), "deepth"),
            (json!({"synthesizer": "magic"}), "magic"),
            (json!({"fields": "price"}), "fields"),
            (json!({"fields": [""]}), "fields"),
            (json!({"fields": vec!["price"; 33]}), "fields"),
            (json!({"instruction": 1}), "instruction"),
            (json!({"instruction": "x".repeat(2_001)}), "2001"),
            (json!([]), "object"),
        ] {
            let failure = Settings::read(&json!({"synthesis": synthesis})).unwrap_err();
            assert!(failure.message.contains(expected), "{failure}");
        }
        let longest = json!({"synthesis": {"instruction": "x".repeat(2_000)}});
        assert!(Settings::read(&longest).is_ok());
    }
}
