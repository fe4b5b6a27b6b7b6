//! The serve gate: how similar the best claim must be for the pool to answer alone.
//!
//! Where no absolute gate is set, the gate adapts. What a namespace's own questions score against claims of
//! *foreign* sources is noise: a match no better than that says nothing. The gate stands a margin above
//! this noise ceiling, within a band above the default floor of the embedding space.
//!
//! # The sample
//!
//! Probes are the fresh units of the namespace that know the question they were built for, in the same
//! embedding space. With fewer than [`SAMPLE_MIN`] the ceiling is 0. Up to [`SAMPLE_MAX`] all are taken;
//! beyond that, the [`SAMPLE_MAX`] whose ids hash lowest (SplitMix64 of the id, ties by id). So the sample
//! depends on the set of units alone, not on their order, and one more unit changes at most one probe.
//!
//! For each probe the caller finds the greatest cosine of its question to a claim of a unit that shares no
//! source with it, 0 if there is none or none is positive.

/// Probes that are enough to speak of a ceiling.
pub const SAMPLE_MIN: usize = 8;

/// Most probes that are looked at.
pub const SAMPLE_MAX: usize = 24;

/// Distance of the gate above the noise ceiling.
pub const MARGIN: f64 = 0.02;

/// Distance of the highest adaptive gate above the default floor.
pub const BAND: f64 = 0.27;

/// Builds after which a ceiling is measured again.
pub const BUILDS_BETWEEN: u32 = 16;

/// Positions of the units to probe, by their ids: ascending positions, empty if there are too few.
pub fn sample(ids: &[u64]) -> Vec<usize> {
    if ids.len() < SAMPLE_MIN {
        return Vec::new();
    }
    let mut positions: Vec<usize> = (0..ids.len()).collect();
    if positions.len() > SAMPLE_MAX {
        positions.sort_by_key(|&at| (splitmix64(ids[at]), ids[at], at));
        positions.truncate(SAMPLE_MAX);
        positions.sort_unstable();
    }
    positions
}

/// The noise ceiling: the value at place `floor(0.95 * (k - 1))` of the probes' `k` greatest cosines in
/// ascending order, from 0. At least 0; 0 for fewer than [`SAMPLE_MIN`].
pub fn ceiling(greatest: &[f64]) -> f64 {
    if greatest.len() < SAMPLE_MIN {
        return 0.0;
    }
    let mut sorted: Vec<f64> = greatest
        .iter()
        .map(|&value| if value > 0.0 { value } else { 0.0 })
        .collect();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * 95 / 100]
}

/// The gate in force: `absolute` where one is set, else the ceiling and [`MARGIN`], but between
/// `default_floor` (of the embedding space) and [`BAND`] above it.
pub fn effective(absolute: Option<f64>, default_floor: f64, ceiling: f64) -> f64 {
    absolute.unwrap_or_else(|| {
        (ceiling + MARGIN)
            .max(default_floor)
            .min(default_floor + BAND)
    })
}

/// Whether the ceiling is to be measured after a build: always until it is positive once, then every
/// [`BUILDS_BETWEEN`] builds.
pub fn due(ceiling: f64, builds_since: u32) -> bool {
    ceiling == 0.0 || builds_since >= BUILDS_BETWEEN
}

/// SplitMix64 (Steele, Lea and Flood, 2014), used to spread ids.
fn splitmix64(id: u64) -> u64 {
    let mut z = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // First output for seed 0 of the reference implementation.
        assert_eq!(splitmix64(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn few_units_give_no_ceiling_and_some_are_all_taken() {
        let ids: Vec<u64> = (1..=24).collect();
        assert!(sample(&ids[..7]).is_empty());
        assert_eq!(sample(&ids[..8]).len(), 8);
        assert_eq!(sample(&ids), (0..24).collect::<Vec<_>>());
        assert_eq!(ceiling(&[0.9; 7]), 0.0);
        assert_eq!(ceiling(&[0.9; 8]), 0.9);
    }

    #[test]
    fn the_ceiling_is_a_high_quantile() {
        let values: Vec<f64> = (0..24).map(|n| f64::from(n) / 100.0).collect();
        assert_eq!(ceiling(&values), 0.21);
        assert_eq!(ceiling(&[-0.5; 24]), 0.0);
        assert_eq!(ceiling(&[f64::NAN; 24]), 0.0);
    }

    #[test]
    fn the_gate_stays_in_its_band() {
        assert_eq!(effective(None, 0.4, 0.0), 0.4);
        assert_eq!(effective(None, 0.4, 0.5), 0.52);
        assert_eq!(effective(None, 0.4, 0.8), 0.67);
        assert_eq!(effective(Some(0.0), 0.4, 0.8), 0.0);
    }

    #[test]
    fn the_ceiling_is_measured_until_positive_then_now_and_then() {
        assert!(due(0.0, 0));
        assert!(!due(0.1, 15));
        assert!(due(0.1, 16));
    }

    proptest! {
        #[test]
        fn one_more_unit_changes_at_most_one_probe(ids in prop::collection::hash_set(any::<u64>(), 30..80)) {
            let ids: Vec<u64> = ids.into_iter().collect();
            let chosen = |ids: &[u64]| -> std::collections::BTreeSet<u64> {
                sample(ids).into_iter().map(|at| ids[at]).collect()
            };
            let all = chosen(&ids);
            let fewer = chosen(&ids[1..]);
            prop_assert_eq!(all.len(), SAMPLE_MAX);
            prop_assert!(all.difference(&fewer).count() <= 1);
            let mut turned = ids.clone();
            turned.reverse();
            prop_assert_eq!(chosen(&turned), all);
        }
    }
}
