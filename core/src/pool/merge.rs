//! A build adds to what is held of a source.
//!
//! Two questions about two parts of one document must not make its unit flip between them. So the claims
//! drawn from chunks that did not change stay, and a build brings in what is new. Only a change of the
//! source takes claims away, and then only those whose chunks are gone.

use std::collections::HashSet;

/// Most claims that a unit holds; what a build brings beyond it is left out and counted.
pub const CLAIMS_MAX: usize = 2_000;

/// Most claims of one build that are looked at; the rest is left out and counted.
pub const BUILT_MAX: usize = 512;

/// What a build brings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Merged {
    /// Positions of the built claims that are added after the held ones, in order.
    pub admitted: Vec<usize>,
    /// Built claims that say what is held or what an earlier one of the build says.
    pub repeated: usize,
    /// Built claims for which there was no room.
    pub no_room: usize,
}

/// A claim of a unit, as seen by `similar` in [`merge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Position among the held claims.
    Held(usize),
    /// Position among the built claims.
    Built(usize),
}

/// Which of the `built` texts are added to the `held` ones. A text repeats another if both are equal or
/// `similar(other, position of the built one)` holds.
pub fn merge<T: AsRef<str>, U: AsRef<str>>(
    held: &[T],
    built: &[U],
    mut similar: impl FnMut(Place, usize) -> bool,
) -> Merged {
    let mut merged = Merged::default();
    let mut texts: HashSet<&str> = held.iter().map(AsRef::as_ref).collect();
    for (at, text) in built.iter().enumerate() {
        if at >= BUILT_MAX {
            merged.no_room += 1;
            continue;
        }
        let text = text.as_ref();
        let repeats = texts.contains(text)
            || (0..held.len()).any(|other| similar(Place::Held(other), at))
            || merged
                .admitted
                .iter()
                .any(|&other| similar(Place::Built(other), at));
        if repeats {
            merged.repeated += 1;
        } else if held.len() + merged.admitted.len() >= CLAIMS_MAX {
            merged.no_room += 1;
        } else {
            texts.insert(text);
            merged.admitted.push(at);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_build_adds_what_is_new() {
        let held = ["one", "two"];
        let built = ["two", "three", "three", "3", "four"];
        let merged = merge(&held, &built, |other, at| {
            other == Place::Built(1) && at == 3 || other == Place::Held(0) && at == 4
        });
        assert_eq!(merged.admitted, [1]);
        assert_eq!(merged.repeated, 4);
    }

    #[test]
    fn a_unit_does_not_grow_without_bound() {
        let held: Vec<String> = (0..CLAIMS_MAX - 1).map(|n| n.to_string()).collect();
        let merged = merge(&held, &["a", "b", "0"], |_, _| false);
        assert_eq!(merged.admitted, [0]);
        assert_eq!((merged.repeated, merged.no_room), (1, 1));
        let many: Vec<String> = (0..BUILT_MAX + 3).map(|n| n.to_string()).collect();
        let merged = merge(&[""; 0], &many, |_, _| false);
        assert_eq!((merged.admitted.len(), merged.no_room), (BUILT_MAX, 3));
    }

    proptest! {
        #[test]
        fn the_same_build_twice_changes_nothing(
            held in prop::collection::vec(0_u8..9, 0..9),
            built in prop::collection::vec(0_u8..9, 0..9)
        ) {
            let texts = |numbers: &[u8]| -> Vec<String> { numbers.iter().map(u8::to_string).collect() };
            let (mut held, built) = (texts(&held), texts(&built));
            let first = merge(&held, &built, |_, _| false);
            held.extend(first.admitted.iter().map(|&at| built[at].clone()));
            prop_assert!(built.iter().all(|text| held.contains(text)));
            let again = merge(&held, &built, |_, _| false);
            prop_assert!(again.admitted.is_empty());
            prop_assert_eq!(again.repeated, built.len());
        }
    }
}
