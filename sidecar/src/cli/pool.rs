//! `cortex pool`: the claim pool on the command line.

use clap::{Args, Subcommand};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::ask::{parse, text};
use super::{Context, Output};
use crate::db::Db;
use crate::error::{Failure, Outcome};

/// Units that are fetched at once.
const PAGE: i64 = 500;

/// Which namespace.
#[derive(Args, Debug)]
pub struct In {
    /// Namespace [default: read.namespace]
    #[arg(short, long)]
    namespace: Option<String>,
}

/// What to do with the pool.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A unit is what was made of one source for one purpose: its sentences
(extract), or claims that were built for readers (model).

With builder=model, the setting synthesis says how claims are built:
  {\"synthesizer\": \"model\" | \"json\" | \"extractive\",   json: from tool results
   \"depth\": 0 to 1, \"fields\": [\"price\"], \"instruction\": \"for the model\"}

Examples:
  cortex pool set builder=model              have a model write claims of what reads ask for
  cortex pool set 'synthesis={\"depth\": 0.9}' build_when=eager
  cortex pool stats --json | jq .models      tokens by model
  cortex pool evict 17                       serve no claim of unit 17 any more")]
pub enum Pool {
    /// List the units
    Ls {
        #[command(flatten)]
        place: In,
    },
    /// Show a unit, its claims and the chunks behind it
    Show {
        /// Id of the unit
        unit: i64,
        #[command(flatten)]
        place: In,
    },
    /// Serve the claims of a unit no longer; replay of earlier states still sees them
    Evict {
        /// Id of the unit
        unit: i64,
        #[command(flatten)]
        place: In,
    },
    /// Evict everything that models wrote, and forget what was queued
    Purge {
        /// Do it
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        place: In,
    },
    /// Show counters, costs and settings
    Stats {
        #[command(flatten)]
        place: In,
    },
    /// Change settings; KEY=null puts one back to its default
    Set {
        /// Settings, each value as JSON or a plain word
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
        #[command(flatten)]
        place: In,
    },
}

pub async fn run(pool: Pool, context: &Context, out: &mut Output) -> Outcome<()> {
    let db = Db::open(&context.config.database, "command line")?;
    match pool {
        Pool::Ls { place } => list(&db, &context.namespace(place.namespace), out).await,
        Pool::Show { unit, place } => {
            let shown = db.unit(unit, &context.namespace(place.namespace)).await?;
            out.raw(&shown);
            if !out.is_json() {
                show(&parse(&shown)?, out);
            }
            Ok(())
        }
        Pool::Evict { unit, place } => {
            let namespace = context.namespace(place.namespace);
            told(&db.evict_unit(unit, &namespace).await?, out)
        }
        Pool::Purge { yes: false, place } => Err(Failure::usage(format!(
            "everything that models wrote in namespace {:?} would be evicted",
            context.namespace(place.namespace)
        ))
        .hint("add --yes to do it")),
        Pool::Purge { yes: true, place } => {
            let namespace = context.namespace(place.namespace);
            told(&db.purge_pool(&namespace).await?, out)
        }
        Pool::Stats { place } => {
            let namespace = context.namespace(place.namespace);
            told(&db.pool_stats(&namespace).await?, out)
        }
        Pool::Set { settings, place } => {
            let namespace = context.namespace(place.namespace);
            told(&db.set_pool(&namespace, &object(&settings)?).await?, out)
        }
    }
}

/// The answer, one member a line.
fn told(answer: &str, out: &mut Output) -> Outcome<()> {
    out.raw(answer);
    if !out.is_json() {
        for (name, value) in parse(answer)?.as_object().into_iter().flatten() {
            out.line(format!("{name:<18} {value}"));
        }
    }
    Ok(())
}

async fn list(db: &Db, namespace: &str, out: &mut Output) -> Outcome<()> {
    let mut after = 0;
    let mut units = Vec::new();
    loop {
        let page = db.units(namespace, after, PAGE).await?;
        let mut page = parse(&page)?;
        if let Some(Value::Array(found)) = page.get_mut("units").map(Value::take) {
            units.extend(found);
        }
        match page.get("next").and_then(Value::as_i64) {
            Some(next) => after = next,
            None => break,
        }
    }
    let count = units.len();
    for unit in &units {
        let covered = format!("{}/{}", text(unit, "chunks_covered"), text(unit, "chunks"));
        out.line(format!(
            "{:>8}  {:<7} {:<8} {:>6} claims  {covered:>9} chunks  {}  {}",
            text(unit, "unit_id"),
            text(unit, "state"),
            text(unit, "purpose"),
            text(unit, "claims"),
            text(unit, "artifact_id"),
            text(unit, "builder"),
        ));
    }
    out.object(&serde_json::json!({ "units": units }));
    out.line(format!("-- {count} units in namespace {namespace}"));
    Ok(())
}

fn show(shown: &Value, out: &mut Output) {
    for (name, value) in shown["unit"].as_object().into_iter().flatten() {
        out.line(format!(
            "{name:<18} {}",
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        ));
    }
    for claim in shown["claims"].as_array().into_iter().flatten() {
        let body = text(claim, "body");
        for (n, line) in body.lines().enumerate() {
            let id = text(claim, "claim_id");
            let mark = if n == 0 {
                format!("- {id}:")
            } else {
                " ".repeat(id.len() + 3)
            };
            out.line(format!("{mark} {line}"));
        }
    }
    for chunk in shown["chunks"].as_array().into_iter().flatten() {
        out.line(format!(
            "[{}] {} bytes {}-{}",
            text(chunk, "chunk_id"),
            text(chunk, "artifact_id"),
            text(chunk, "start_byte"),
            text(chunk, "end_byte"),
        ));
        for line in text(chunk, "body").lines() {
            out.line(format!("    {line}"));
        }
    }
}

/// `KEY=VALUE` words as one JSON object. A value that is not JSON is a word.
fn object(settings: &[String]) -> Outcome<Box<RawValue>> {
    let mut members = Map::new();
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(Failure::usage(format!("{setting:?} is not KEY=VALUE"))
                .hint("as in builder=model, gate=0.4 or 'synthesis={\"depth\": 0.9}'"));
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        if members.insert(key.to_owned(), value).is_some() {
            return Err(Failure::usage(format!("{key} is given twice")));
        }
    }
    serde_json::value::to_raw_value(&members)
        .map_err(|error| Failure::internal(format!("settings as JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::object;

    fn settings(words: &[&str]) -> Result<String, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        object(&words)
            .map(|object| object.get().to_owned())
            .map_err(|failure| failure.message)
    }

    #[test]
    fn values_are_json_or_words() {
        let expected = r#"{"builder":"model","gate":0.4,"reranker":null,"synthesis":{"depth":1}}"#;
        let given = [
            "builder=model",
            "gate=0.4",
            "reranker=null",
            r#"synthesis={"depth": 1}"#,
        ];
        assert_eq!(settings(&given).unwrap(), expected);
        assert_eq!(settings(&["header=a=b"]).unwrap(), r#"{"header":"a=b"}"#);
        assert!(settings(&["builder"]).unwrap_err().contains("KEY=VALUE"));
        assert!(
            settings(&["gate=1", "gate=0"])
                .unwrap_err()
                .contains("twice")
        );
    }
}
