//! Counters of the host.

use serde_json::{Map, Value, json};

use super::host::Host;

/// Tokens of a model call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read.
    pub prompt: u64,
    /// Tokens written.
    pub completion: u64,
}

impl Usage {
    /// Both.
    pub fn total(self) -> u64 {
        self.prompt + self.completion
    }

    /// Adds another call.
    pub fn add(&mut self, other: Self) {
        self.prompt += other.prompt;
        self.completion += other.completion;
    }
}

/// What happened so far.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Reads.
    pub reads: u64,
    /// Reads that called no model.
    pub hits: u64,
    /// Reads that added raw text for want of coverage.
    pub escalations: u64,
    /// Times that a stale unit was not served.
    pub staleness_prevented: u64,
    /// Units that a change made stale or removed.
    pub invalidated: u64,
    /// Sum of the ages of hits that served something, and their number.
    pub ages: (f64, u64),
    /// Greatest of these ages.
    pub max_age: f64,
    /// Model calls that reported usage.
    pub synth_calls: u64,
    /// Their tokens.
    pub usage: Usage,
    /// Tokens that hits did not spend.
    pub tokens_saved: u64,
    /// Reads that the gate let through.
    pub pool_serves: u64,
    /// Hits with a retrieval.
    pub probe_reads: u64,
    /// Reads whose chunks were all contained.
    pub admission_reuses: u64,
    /// Retrievals.
    pub retrievals: u64,
    /// Builds into an existing unit.
    pub rebuilds_by_read: u64,
    /// Builds of a new unit.
    pub builds_by_gap: u64,
    /// Owners served in all, and reads that served something.
    pub owners: (u64, u64),
}

fn rounded(value: f64, places: i32) -> f64 {
    let scale = 10_f64.powi(places);
    (value * scale).round_ties_even() / scale
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}

impl Host<'_> {
    /// The statistics named, all without names.
    pub(super) fn stats(&self, keys: Option<&Value>) -> Value {
        let c = &self.counters;
        let rows = |fresh: bool| -> usize {
            let units = self.units.iter().filter(|unit| !fresh || unit.fresh);
            units.map(|unit| unit.rows.len()).sum()
        };
        let (fresh, total) = (rows(true), rows(false));
        let ages = self
            .units
            .iter()
            .filter(|unit| unit.fresh)
            .map(|unit| self.age(unit));
        let mut artifacts: Vec<&str> = self
            .units
            .iter()
            .flat_map(|unit| unit.artifacts())
            .collect();
        artifacts.sort_unstable();
        artifacts.dedup();
        let calibration = self.calibration("");
        let all = json!({
            "units": self.units.len(),
            "tracked_artifacts": artifacts.len(),
            "reads": c.reads,
            "hits": c.hits,
            "escalations": c.escalations,
            "escalation_rate": rounded(ratio(c.escalations as f64, c.hits as f64), 3),
            "hit_rate": rounded(ratio(c.hits as f64, c.reads as f64), 3),
            "staleness_prevented": c.staleness_prevented,
            "invalidated_units": c.invalidated,
            "avg_age_at_serve_s": rounded(ratio(c.ages.0, c.ages.1 as f64), 3),
            "max_age_at_serve_s": c.max_age,
            "oldest_fresh_unit_s": ages.fold(0.0, f64::max),
            "synth_calls": c.synth_calls,
            "synth_prompt_tokens": c.usage.prompt,
            "synth_completion_tokens": c.usage.completion,
            "synth_tokens": c.usage.total(),
            "synth_cost": 0.0,
            "avg_synth_tokens": rounded(ratio(c.usage.total() as f64, c.synth_calls as f64), 1),
            "tokens_saved": c.tokens_saved,
            "coverage_floor": self.settings.floor,
            "recall_threshold": self.settings.floor,
            "hit_threshold": 0.45,
            "hit_margin": 0.0,
            "select_floor": null,
            "residual_floor": null,
            "read_path": "pool",
            "serve_budget": self.settings.budget,
            "serve_gate": self.settings.gate,
            "serve_gate_effective": rounded(self.gate(""), 4),
            "pool_noise_ceiling": rounded(calibration.ceiling, 4),
            "pool_claims_fresh": fresh,
            "pool_claims_total": total,
            "pool_mask_rate": rounded(ratio((total - fresh) as f64, total as f64), 3),
            "pool_serves": c.pool_serves,
            "probe_reads": c.probe_reads,
            "admission_reuses": c.admission_reuses,
            "retrievals": c.retrievals,
            "rebuilds_by_read": c.rebuilds_by_read,
            "builds_by_gap": c.builds_by_gap,
            "avg_units_per_serve": rounded(ratio(c.owners.0 as f64, c.owners.1 as f64), 2),
            "pool_scan_slow": false,
        });
        let wanted = keys
            .and_then(Value::as_array)
            .filter(|keys| !keys.is_empty());
        let (Some(wanted), Value::Object(all)) = (wanted, &all) else {
            return all;
        };
        let named = wanted.iter().filter_map(Value::as_str);
        let named: Map<String, Value> = named
            .filter_map(|key| all.get(key).map(|value| (key.to_owned(), value.clone())))
            .collect();
        Value::Object(named)
    }
}
