//! What governs a read of the pool: the namespace's settings, a profile over them, the caller's arguments over both.

use cortex_core::pool::decide::Strategy;
use cortex_core::pool::floor::RESERVED_SHARE;
use cortex_core::pool::{gate, terms};
use pgrx::JsonB;
use serde_json::Value;

use crate::error::Fault;
use crate::kept::{self, Access};
use crate::rights::Namespace;

/// Budget of a read where nothing says otherwise, in tokens.
const DEFAULT_BUDGET: i64 = 1_000;
/// Largest budget of a read, in tokens.
const MAX_BUDGET: i64 = 1_000_000;
/// Floor of an embedding space that was not calibrated.
const SPACE_FLOOR: f64 = 0.40;

/// What the caller said; `None` where it said nothing.
pub struct Asked<'a> {
    pub budget_tokens: Option<i32>,
    pub mode: Option<&'a str>,
    pub strategy: Option<&'a str>,
    pub profile: Option<&'a str>,
}

/// The settings in force for one read.
pub struct Settings {
    pub budget_tokens: u64,
    pub mode: String,
    pub strategy: Strategy,
    pub reserved_share: f64,
    pub reuse_threshold: f64,
    pub builds: bool,
    pub reranker: Option<String>,
    pub header: Option<String>,
    pub hook_timeout_ms: i32,
    absolute_gate: Option<f64>,
    absolute_floor: Option<f64>,
    space_floor: f64,
    ceiling: f64,
}

impl Settings {
    /// Loads them. Call it as the owner.
    pub fn load(namespace: &Namespace, asked: &Asked) -> Result<Self, Fault> {
        let found = kept::read_one(
            Access::Index,
            "SELECT cortex._pool_settings($1), s.coverage_floor, g.ceiling, \
                    CASE WHEN $3::text IS NOT NULL THEN cortex._profile($1, $3) END \
               FROM (VALUES (1)) one (row) LEFT JOIN cortex.space s ON s.id = $2 \
               LEFT JOIN cortex.pool_gate g ON g.namespace_id = $1 AND g.space_id = $2",
            &[
                namespace.id.into(),
                namespace.space.into(),
                asked.profile.into(),
            ],
            |row| {
                Ok((
                    row.must::<JsonB>(1)?.0,
                    row.get::<f64>(2),
                    row.get::<f64>(3),
                    row.get::<JsonB>(4).map(|profile| profile.0),
                ))
            },
        )?;
        let Some((settings, space_floor, ceiling, profile)) = found else {
            return Err(Fault::internal("the pool's settings have no row".into()));
        };
        let pick = |key: &str| -> Option<&Value> {
            let own = profile.as_ref().and_then(|profile| profile.get(key));
            own.or_else(|| settings.get(key))
                .filter(|value| !value.is_null())
        };
        let text = |key: &str| pick(key).and_then(Value::as_str).map(str::to_owned);
        let number = |key: &str| pick(key).and_then(Value::as_f64);
        let budget_tokens = asked
            .budget_tokens
            .map(i64::from)
            .or_else(|| pick("budget_tokens").and_then(Value::as_i64))
            .unwrap_or(DEFAULT_BUDGET);
        if !(1..=MAX_BUDGET).contains(&budget_tokens) {
            return Err(Fault::argument(format!(
                "budget_tokens = {budget_tokens} is outside 1 to {MAX_BUDGET}"
            ))
            .hint("A claim with its header needs about 40 tokens."));
        }
        let strategy = asked
            .strategy
            .map(str::to_owned)
            .or_else(|| text("strategy"));
        Ok(Settings {
            budget_tokens: budget_tokens.unsigned_abs(),
            mode: asked
                .mode
                .map(str::to_owned)
                .or_else(|| text("mode"))
                .unwrap_or_else(|| "auto".into()),
            strategy: strategy_of(strategy.as_deref())?,
            reserved_share: number("reserved_share").unwrap_or(RESERVED_SHARE),
            reuse_threshold: number("reuse_threshold")
                .unwrap_or(cortex_core::pool::reuse::THRESHOLD),
            builds: text("builder").as_deref() == Some("model")
                && text("build_when").as_deref() != Some("off"),
            reranker: text("reranker"),
            header: text("header"),
            hook_timeout_ms: number("hook_timeout_ms").unwrap_or(1_000.0) as i32,
            absolute_gate: number("gate"),
            absolute_floor: number("coverage_floor"),
            space_floor: space_floor.unwrap_or(SPACE_FLOOR),
            ceiling: ceiling.unwrap_or(0.0),
        })
    }

    /// Gate and floor of coverage: for cosines those of the namespace and its space, for terms the one that was measured.
    pub fn thresholds(&self, by_vector: bool) -> (f64, f64) {
        if by_vector {
            let floor = self.absolute_floor.unwrap_or(self.space_floor);
            let gate = gate::effective(self.absolute_gate, self.space_floor, self.ceiling);
            (gate, floor)
        } else {
            (terms::FLOOR, terms::FLOOR)
        }
    }
}

fn strategy_of(name: Option<&str>) -> Result<Strategy, Fault> {
    match name {
        None | Some("context_first") => Ok(Strategy::ContextFirst),
        Some("context_raw") => Ok(Strategy::ContextRaw),
        Some("context_only") => Ok(Strategy::ContextOnly),
        Some(other) => Err(Fault::argument(format!("unknown strategy '{other}'"))
            .hint("Strategies are context_first, context_raw and context_only.")),
    }
}
