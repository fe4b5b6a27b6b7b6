//! The fuzz targets on a few thousand inputs; `conformance/fuzz` runs them for as long as one likes.

use cortex_conformance::mutate::{Random, mutated};
use cortex_conformance::{fuzz, samples};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz::parser(&data);
        fuzz::verifier(&data);
        fuzz::evidence(&data);
    }

    #[test]
    fn what_looks_like_json(text in r#"[\[\]{}",:0-9a-e\\ntu \.\-]{0,60}"#) {
        fuzz::parser(text.as_bytes());
        fuzz::verifier(text.as_bytes());
    }

    #[test]
    fn what_was_a_trace(seed in any::<u64>()) {
        fuzz::changed(&seed.to_le_bytes());
    }
}

#[test]
fn what_was_an_evidence_file() {
    let samples = samples::all();
    let mut random = Random::new(17);
    for _ in 0..1_000 {
        let i = random.below(samples.len());
        let mut data = vec![i as u8];
        data.extend(mutated(&samples[i].evidence, &mut random).bytes);
        fuzz::evidence(&data);
        fuzz::parser(&data[1..]);
    }
}
