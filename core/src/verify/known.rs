//! Step 2: the layouts and algorithms that this version knows. Released ones stay in these lists
//! for ever, so that old traces verify after upgrades.

use super::report::{Checked, Code, Failure};
use crate::canon::Value;
use crate::trace::TRACE_VERSION;
use crate::{analyzer, chunker, excerpt, family, fusion, ground, lexical, quote, vector};

const ANALYZERS: &[&str] = &analyzer::NAMES;
const CHUNKERS: [&str; 1] = [chunker::NAME];
const FUSIONS: &[&str] = &fusion::NAMES;
const QUANTISERS: [&str; 1] = [vector::NAME];
const RANKERS: &[&str] = &lexical::NAMES;
const RULES: [(&str, &[&str]); 4] = [
    ("excerpt", &[excerpt::NAME]),
    ("quote", &[quote::NAME]),
    ("ground", &[ground::NAME]),
    ("family", &[family::NAME]),
];
/// Name of the program in `engine`; its version is free, since the algorithms carry their own.
const ENGINE: &str = "cortex/";

/// Checks the names that are there; a member that is missing or no text is for the next step.
pub(super) fn check(trace: &Value) -> Result<Checked, Failure> {
    one_of(trace.get("v"), &[TRACE_VERSION], "v")?;
    if let Some(Value::String(engine)) = trace.get("engine")
        && !engine.starts_with(ENGINE)
    {
        let expected = format!("{ENGINE} and a version");
        return Err(Failure::new(Code::TVersion, "engine", expected, engine));
    }
    one_of(trace.get("analyzer"), ANALYZERS, "analyzer")?;
    one_of(trace.get("ranker"), RANKERS, "ranker")?;
    one_of(trace.get("chunker"), &CHUNKERS, "chunker")?;
    for (name, known) in RULES {
        let rule = trace.get("rules").and_then(|rules| rules.get(name));
        one_of(rule, known, &format!("rules.{name}"))?;
    }
    if let Some(Value::Array(rounds)) = trace.get("rounds") {
        for (i, round) in rounds.iter().enumerate() {
            let at = format!("rounds[{i}].receipt");
            let receipt = round.get("receipt");
            let member = |name| receipt.and_then(|receipt| receipt.get(name));
            one_of(member("fusion"), FUSIONS, &format!("{at}.fusion"))?;
            let quantiser = member("space").and_then(|space| space.get("quantiser"));
            one_of(quantiser, &QUANTISERS, &format!("{at}.space.quantiser"))?;
        }
    }
    Ok(Checked::passed(TRACE_VERSION, TRACE_VERSION))
}

fn one_of(value: Option<&Value>, known: &[&str], at: &str) -> Result<(), Failure> {
    match value {
        Some(Value::String(name)) if !known.contains(&name.as_str()) => {
            Err(Failure::new(Code::TVersion, at, known.join(" or "), name))
        }
        _ => Ok(()),
    }
}
