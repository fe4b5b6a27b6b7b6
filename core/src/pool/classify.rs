//! What the chunks retrieved for a question that the pool does not answer say about their sources.

/// Most builds that one read asks for.
pub const BUILDS_MAX: usize = 3;

/// The state of a source in the light of chunks retrieved from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// All of them were already used for a fresh unit: building again would bring nothing.
    Contained,
    /// The source has units, and one of them is stale.
    StaleOwned,
    /// The source has fresh units, none of which saw all these chunks.
    Thin,
    /// Nothing was built from the source.
    Novel,
}

impl Class {
    /// The name used in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Contained => "CONTAINED",
            Self::StaleOwned => "STALE-OWNED",
            Self::Thin => "THIN",
            Self::Novel => "NOVEL",
        }
    }
}

/// A unit of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// All its sources are as they were.
    pub fresh: bool,
    /// It was built from (at least) all the chunks in question.
    pub holds_all: bool,
}

/// What is to be done about a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// Its class.
    pub class: Class,
    /// The unit to build into, as a position among the owners: the first stale one, else the first.
    pub owner: Option<usize>,
}

/// Classifies a source by its units of the namespace, in the order of their ids. Without a name
/// (`named` false) a source cannot be known again and is always new.
pub fn classify(named: bool, owners: &[Owner]) -> Finding {
    let found = |class, owner| Finding { class, owner };
    if !named || owners.is_empty() {
        return found(Class::Novel, None);
    }
    if owners.iter().any(|owner| owner.fresh && owner.holds_all) {
        return found(Class::Contained, None);
    }
    match owners.iter().position(|owner| !owner.fresh) {
        Some(stale) => found(Class::StaleOwned, Some(stale)),
        None => found(Class::Thin, Some(0)),
    }
}

/// Which of the sources that need work get it, as positions: all in order if they are at most
/// [`BUILDS_MAX`], else the [`BUILDS_MAX`] with the greatest `similarity` (of their best chunk to the
/// question), best first and equal ones in order. `similarity` is asked only if there are too many.
pub fn choose(needing: &[usize], mut similarity: impl FnMut(usize) -> f64) -> Vec<usize> {
    if needing.len() <= BUILDS_MAX {
        return needing.to_vec();
    }
    let mut ranked: Vec<(f64, usize)> = needing
        .iter()
        .map(|&at| match similarity(at) {
            unknown if unknown.is_nan() => (f64::NEG_INFINITY, at),
            // `+ 0.0` makes the two zeros one, which `total_cmp` would tell apart.
            known => (known + 0.0, at),
        })
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked.truncate(BUILDS_MAX);
    ranked.into_iter().map(|(_, at)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owner(fresh: bool, holds_all: bool) -> Owner {
        Owner { fresh, holds_all }
    }

    fn class(named: bool, owners: &[Owner]) -> (Class, Option<usize>) {
        let found = classify(named, owners);
        (found.class, found.owner)
    }

    #[test]
    fn each_class_has_its_case() {
        assert_eq!(class(true, &[]), (Class::Novel, None));
        assert_eq!(class(true, &[owner(true, true)]), (Class::Contained, None));
        assert_eq!(class(true, &[owner(true, false)]), (Class::Thin, Some(0)));
        // A stale unit that held the chunks says nothing about them now.
        assert_eq!(
            class(true, &[owner(false, true)]),
            (Class::StaleOwned, Some(0))
        );
        let mixed = [owner(true, false), owner(false, false), owner(false, false)];
        assert_eq!(class(true, &mixed), (Class::StaleOwned, Some(1)));
        let covered = [owner(false, false), owner(true, true)];
        assert_eq!(class(true, &covered), (Class::Contained, None));
        assert_eq!(class(false, &[owner(true, true)]), (Class::Novel, None));
    }

    #[test]
    fn at_most_three_are_chosen_and_the_best() {
        let unasked = |_| -> f64 { panic!("three need no comparison") };
        assert_eq!(choose(&[4, 1, 7], unasked), [4, 1, 7]);
        let similarity = |at: usize| [0.1, 0.5, 0.5, 0.9, 0.5][at];
        assert_eq!(choose(&[0, 1, 2, 3, 4], similarity), [3, 1, 2]);
        assert_eq!(choose(&[], similarity), [0_usize; 0]);
    }

    proptest! {
        #[test]
        fn every_source_has_exactly_one_class(
            named in any::<bool>(),
            owners in prop::collection::vec((any::<bool>(), any::<bool>()), 0..5)
        ) {
            let owners: Vec<Owner> = owners.into_iter().map(|(f, h)| owner(f, h)).collect();
            let found = classify(named, &owners);
            let contained = named && owners.iter().any(|o| o.fresh && o.holds_all);
            let novel = !named || owners.is_empty();
            let stale = owners.iter().any(|o| !o.fresh);
            let expected = match (novel, contained, stale) {
                (true, _, _) => Class::Novel,
                (_, true, _) => Class::Contained,
                (_, _, true) => Class::StaleOwned,
                _ => Class::Thin,
            };
            prop_assert_eq!(found.class, expected);
            // Only a build into an existing unit names one, and it is the right one.
            match found.class {
                Class::StaleOwned => prop_assert!(found.owner.is_some_and(|at| !owners[at].fresh)),
                Class::Thin => prop_assert_eq!(found.owner, Some(0)),
                _ => prop_assert_eq!(found.owner, None),
            }
        }
    }
}
