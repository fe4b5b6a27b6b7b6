//! The rules of the adaptive gate, for `sql/59_gate.sql`.

use cortex_core::pool::gate;
use pgrx::prelude::*;

/// Places of the questions to probe, from 1, by their ids.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._gate_sample(ids bigint[]) RETURNS integer[]
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn sample(ids: Vec<Option<i64>>) -> Vec<i32> {
    let ids: Vec<u64> = ids.into_iter().flatten().map(i64::cast_unsigned).collect();
    gate::sample(&ids)
        .into_iter()
        .map(|at| at as i32 + 1)
        .collect()
}

/// The noise ceiling of the probes' greatest foreign cosines.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._gate_ceiling(cosines float8[]) RETURNS float8
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn ceiling(greatest: Vec<Option<f64>>) -> f64 {
    let greatest: Vec<f64> = greatest
        .into_iter()
        .map(|cosine| cosine.unwrap_or(0.0))
        .collect();
    gate::ceiling(&greatest)
}

/// Whether the ceiling is to be measured after a build.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._gate_due(ceiling float8, builds_since integer) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn due(ceiling: f64, builds_since: i32) -> bool {
    gate::due(ceiling, builds_since.max(0).unsigned_abs())
}

/// The gate in force; `absolute` is the setting, if there is one.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._gate_effective(absolute float8, default_floor float8, ceiling float8) RETURNS float8
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn effective(
    absolute: Option<f64>,
    default_floor: Option<f64>,
    ceiling: Option<f64>,
) -> Option<f64> {
    Some(gate::effective(absolute, default_floor?, ceiling?))
}
