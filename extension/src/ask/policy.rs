//! The policy of an ask, from what the caller gave to what is in force.

use cortex_core::nearest::nearest;
use cortex_core::trace::{Policy, QuoteRule, Retrieval};
use serde_json::Value;

use super::JsonText;
use crate::error::Fault;

const FIELDS: [&str; 8] = [
    "max_rounds",
    "max_candidates",
    "max_evidence",
    "excerpt_chars",
    "allow_abstain",
    "allow_semantic_rerank",
    "retrieval",
    "quote",
];

/// The policy in force. `with_vectors`: a query embedding was given and the namespace has a space, which is what
/// retrieval `auto` looks at.
pub fn resolve(given: &JsonText, with_vectors: bool) -> Result<Policy, Fault> {
    let given: Value = serde_json::from_str(&given.0)
        .map_err(|error| Fault::argument(format!("policy cannot be read: {error}")))?;
    let Value::Object(fields) = given else {
        return Err(Fault::argument("policy must be a JSON object".into()));
    };
    let mut policy = Policy {
        retrieval: match with_vectors {
            true => Retrieval::Hybrid,
            false => Retrieval::Lexical,
        },
        ..Policy::default()
    };
    for (name, value) in &fields {
        match name.as_str() {
            "max_rounds" => policy.max_rounds = budget(name, value, Policy::CAPS.max_rounds)?,
            "max_candidates" => {
                policy.max_candidates = budget(name, value, Policy::CAPS.max_candidates)?
            }
            "max_evidence" => policy.max_evidence = budget(name, value, Policy::CAPS.max_evidence)?,
            "excerpt_chars" => {
                policy.excerpt_chars = budget(name, value, Policy::CAPS.excerpt_chars)?
            }
            "allow_abstain" => policy.allow_abstain = flag(name, value)?,
            "allow_semantic_rerank" => policy.allow_semantic_rerank = flag(name, value)?,
            "retrieval" => {
                policy.retrieval = match value.as_str() {
                    Some("auto") => policy.retrieval,
                    Some("lexical") => Retrieval::Lexical,
                    Some("vector") => Retrieval::Vector,
                    Some("hybrid") => Retrieval::Hybrid,
                    _ => return Err(choice(name, value, "auto, lexical, vector or hybrid")),
                }
            }
            "quote" => {
                policy.quote = match value.as_str() {
                    Some("id") => QuoteRule::Id,
                    Some("strict") => QuoteRule::Strict,
                    _ => return Err(choice(name, value, "id or strict")),
                }
            }
            _ => {
                let meant = nearest(name, &FIELDS).unwrap_or_default();
                return Err(
                    Fault::argument(format!("unknown policy field '{name}'")).hint(format!(
                        "Did you mean {meant}? Fields are {}.",
                        FIELDS.join(", ")
                    )),
                );
            }
        }
    }
    Ok(policy)
}

fn budget(name: &str, value: &Value, cap: u32) -> Result<u32, Fault> {
    match value.as_u64() {
        Some(n) if (1..=u64::from(cap)).contains(&n) => Ok(n as u32),
        _ => Err(Fault::argument(format!(
            "policy.{name} = {value} is outside 1 to {cap}"
        ))),
    }
}

fn flag(name: &str, value: &Value) -> Result<bool, Fault> {
    value
        .as_bool()
        .ok_or_else(|| choice(name, value, "true or false"))
}

fn choice(name: &str, value: &Value, among: &str) -> Fault {
    Fault::argument(format!("policy.{name} = {value} is not {among}"))
}
