//! Near-duplicates: what is alike, just inside and just outside.

use cortex_core::distinct::{Distinct, MIN_SHARED_PERCENT, Shape};
use proptest::prelude::*;

fn alike(a: &str, b: &str) -> bool {
    Shape::of(a).is_like(&Shape::of(b))
}

/// A text of so many letters in which no five in a row occur twice, from a place in the sequence on.
fn letters(from: usize, count: usize) -> String {
    (from..from + count)
        .map(|n| char::from_u32(0x4E00 + n as u32).expect("a Han character"))
        .collect()
}

#[test]
fn just_inside_and_just_outside() {
    // 100 runs in the one, and the other begins later: `later` runs are in the one only, so many in the other only.
    let of = |later: usize| alike(&letters(0, 104), &letters(later, 104));
    // 96 shared of 104: 92.3 of 100. 95 of 105: 90.5.
    assert!(of(4));
    assert!(!of(5));
    // A part: 92 of 100 shared, and 91 of 100.
    assert!(alike(&letters(0, 104), &letters(0, 96)));
    assert!(!alike(&letters(0, 104), &letters(0, 95)));
    assert_eq!(MIN_SHARED_PERCENT, 92);
}

#[test]
fn case_and_blanks_do_not_count() {
    assert!(alike(
        "The cat  sat on\nthe mat.",
        "the CAT sat on the mat."
    ));
    assert!(alike("", "  "));
    assert!(alike("ab", "AB"));
    assert!(!alike("ab", "abc"));
}

const LONG: &str = "The committee met in the town hall and decided, after a long debate in which every member spoke at least once, \
    that the bridge over the northern branch of the river shall be rebuilt in stone, that the old toll house shall stay where it is, \
    and that the work begins as soon as the water is low enough";

#[test]
fn another_number_is_another_text() {
    let say = |year: &str| format!("{LONG}, in {year}.");
    assert!(alike(
        &say("2023"),
        &format!("{}!", say("2023").trim_end_matches('.'))
    ));
    assert!(!alike(&say("2023"), &say("2024")));
    assert!(!alike(&say("-5"), &say("5")));
}

#[test]
fn a_denial_is_another_text() {
    for (yes, no) in [
        ("shall stay", "shall not stay"),
        ("begins", "never begins"),
        ("rebuilt in stone", "rebuilt without stone"),
    ] {
        assert!(!alike(LONG, &LONG.replace(yes, no)), "{no}");
    }
    // As close, and no denial.
    assert!(alike(LONG, &LONG.replace("shall stay", "shall yet stay")));
}

#[test]
fn the_first_of_a_kind_is_kept() {
    let mut distinct = Distinct::new();
    assert_eq!(distinct.add(LONG), None);
    assert_eq!(distinct.add("Something else."), None);
    assert_eq!(distinct.add(&LONG.to_uppercase()), Some(0));
    assert_eq!(distinct.add("something  else."), Some(1));
    assert_eq!(distinct.add("Something more."), None);
}

proptest! {
    #[test]
    fn likeness_is_mutual_and_of_each_to_itself(a in "[ab ]{0,40}", b in "[ab ]{0,40}") {
        prop_assert!(alike(&a, &a));
        prop_assert_eq!(alike(&a, &b), alike(&b, &a));
    }

    /// Against the definition, in sets of strings.
    #[test]
    fn it_is_the_share_of_runs(a in "[a-c]{5,60}", cut in 0_usize..12, tail in "[a-c]{0,4}") {
        let b = format!("{}{tail}", &a[..a.len() - cut.min(a.len() - 5)]);
        let runs = |text: &str| -> std::collections::BTreeSet<String> {
            text.as_bytes().windows(5).map(|run| String::from_utf8_lossy(run).into_owned()).collect()
        };
        let (x, y) = (runs(&a), runs(&b));
        let (both, either) = (x.intersection(&y).count(), x.union(&y).count());
        prop_assert_eq!(alike(&a, &b), 100 * both >= 92 * either);
    }

    #[test]
    fn what_is_kept_is_like_nothing_kept_before(texts in prop::collection::vec("[ab]{1,9}", 0..12)) {
        let mut distinct = Distinct::new();
        let mut kept: Vec<&String> = Vec::new();
        for text in &texts {
            match distinct.add(text) {
                Some(n) => prop_assert!(alike(kept[n], text) && !kept[..n].iter().any(|other| alike(other, text))),
                None => {
                    prop_assert!(!kept.iter().any(|other| alike(other, text)));
                    kept.push(text);
                }
            }
        }
    }
}
