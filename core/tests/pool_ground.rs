//! Grounding: both sides of each boundary.

use cortex_core::pool::ground::{CLAIM_MAX_CHARS, Dropped, Evidence, Refusal, admissible};

const CHUNK: &str = "PostgreSQL 15.3 was released on May 11, 2023. It fixes 1,000 bugs, costs 0 euros \
    and, as Tom Lane's notes say, takes 07 minutes with O'Brien at 10:30. Die Größe bleibt.";

fn refused(claim: &str) -> Option<String> {
    match Evidence::of([CHUNK]).check(Some(claim)) {
        Ok(_) => None,
        Err(Refusal::Ungrounded { missing }) => Some(missing),
        Err(other) => panic!("{claim}: {other}"),
    }
}

#[test]
fn numbers_must_be_those_of_the_chunk() {
    for inside in [
        "It fixes 1000 bugs.",
        "It fixes 1,000 bugs.",
        "The release 15.3 came in 2023.",
        "It takes 7 minutes.",
        "It starts at 10:30.",
        "It fixes ١٠٠٠ bugs.",
        "It fixes １０００ bugs.",
        "It costs 00 euros.",
    ] {
        assert_eq!(refused(inside), None, "{inside}");
    }
    for (outside, missing) in [
        ("It fixes 100 bugs.", "100"),
        ("It fixes 10000 bugs.", "10000"),
        ("It fixes 1,0000 bugs.", "1,0000"),
        ("The release 15 came.", "15"),
        ("The release 15.30 came.", "15.30"),
        ("It takes 70 minutes.", "70"),
        ("It starts at 10:31.", "10:31"),
        ("Version v2 is out.", "2"),
    ] {
        assert_eq!(refused(outside).as_deref(), Some(missing), "{outside}");
    }
}

#[test]
fn names_must_be_those_of_the_chunk() {
    for inside in [
        "Tom Lane wrote notes.",
        "Notes by Lane exist.",
        "The notes are TOM's.",
        "The PostgreSQL release fixes bugs.",
        "Bugs were fixed by postgresql.",
        "Users should upgrade.",
        "O'Brien waits.",
        "It stays, die GRÖSSE too.",
        "I say so. Then I rest.",
        "In May it came.",
        "The Tom Lane notes.",
    ] {
        let expected = if inside.contains("GRÖSSE") {
            // `ß` and `SS` differ in lower case; a strict answer costs a claim, not a lie.
            Some("GRÖSSE".to_owned())
        } else {
            None
        };
        assert_eq!(refused(inside), expected, "{inside}");
    }
    for (outside, missing) in [
        ("Released by Ada.", "Ada"),
        ("Ada Lane wrote it.", "Ada"),
        ("MySQL fixes bugs.", "MySQL"),
        ("It fixes bugs. Ada Lane wrote it.", "Ada"),
        ("Tom Lanes notes.", "Lanes"),
        ("The iPhone fixes it.", "iPhone"),
    ] {
        assert_eq!(refused(outside).as_deref(), Some(missing), "{outside}");
    }
}

#[test]
fn only_the_cited_chunks_count() {
    let claim = Some("Ada fixes 3 bugs.");
    let titled = Evidence::of(["Ada's notes", "fixes 3 bugs"]);
    assert_eq!(titled.check(claim), Ok("Ada fixes 3 bugs."));
    let other = Evidence::of(["fixes 4 bugs"]);
    assert!(matches!(
        other.check(claim),
        Err(Refusal::Ungrounded { .. })
    ));
    assert_eq!(Evidence::of([]).check(claim), Err(Refusal::UnknownChunk));
    assert_eq!(
        Evidence::of([" \n"]).check(claim),
        Err(Refusal::UnknownChunk)
    );
}

#[test]
fn claims_must_be_one_statement() {
    let exact = "x".repeat(CLAIM_MAX_CHARS);
    assert_eq!(admissible(Some(&exact)), Ok(exact.as_str()));
    assert_eq!(
        admissible(Some(&format!("{exact}x"))),
        Err(Refusal::TooLong)
    );
    assert_eq!(
        admissible(Some(&"é".repeat(CLAIM_MAX_CHARS))).map(str::len),
        Ok(2 * CLAIM_MAX_CHARS)
    );
    assert_eq!(admissible(Some(" fact \n")), Ok("fact"));
    for blank in [None, Some(""), Some(" \n\u{a0}"), Some("\u{0}\u{1}")] {
        assert_eq!(admissible(blank), Err(Refusal::Blank), "{blank:?}");
    }
}

#[test]
fn refusals_are_counted_by_reason() {
    let mut dropped = Dropped::default();
    let evidence = Evidence::of(["nothing much"]);
    for claim in [
        None,
        Some("7 bugs"),
        Some("much"),
        Some(&"x".repeat(20_000)),
    ] {
        if let Err(refusal) = evidence.check(claim) {
            dropped.count(&refusal);
        }
    }
    let expected = Dropped {
        blank: 1,
        ungrounded: 1,
        too_long: 1,
        ..Dropped::default()
    };
    assert_eq!((dropped, dropped.total()), (expected, 3));
}

proptest::proptest! {
    #[test]
    fn a_chunk_grounds_each_of_its_own_sentences(text in "\\PC{1,200}") {
        if admissible(Some(&text)).is_ok() && text.chars().any(char::is_alphanumeric) {
            proptest::prop_assert!(Evidence::of([text.as_str()]).check(Some(&text)).is_ok());
        }
    }
}
