//! The rule by which a claim's numbers and names must occur in its chunks.

use cortex_core::ground::missing;
use proptest::prelude::*;

fn grounded(claim: &str, chunk: &str) {
    assert_eq!(
        missing(claim, &[chunk]),
        Vec::<String>::new(),
        "{claim} / {chunk}"
    );
}

fn lacks(claim: &str, chunk: &str, what: &[&str]) {
    assert_eq!(missing(claim, &[chunk]), what, "{claim} / {chunk}");
}

#[test]
fn thousands_and_decimals_in_any_country() {
    for written in [
        "1,234,567",
        "1.234.567",
        "1 234 567",
        "1\u{202f}234\u{202f}567",
        "1'234'567",
        "1234567",
    ] {
        grounded(&format!("The plant cost {written}."), "It cost 1,234,567.");
        grounded(
            "The plant cost 1234567.",
            &format!("It cost {written} in all."),
        );
    }
    grounded("It weighs 3.5 kg.", "weight: 3,50 kg");
    grounded("It weighs 1.234.", "1,234");
    lacks("It weighs 12.34.", "1,234", &["12.34"]);
    lacks("It cost 1,234,568.", "It cost 1,234,567.", &["1,234,568"]);
    lacks("There are 12.", "There are 120.", &["12"]);
    lacks("There are 120.", "There are 12.", &["120"]);
}

#[test]
fn scale_and_number_words() {
    grounded("It has 5 million users.", "It has 5,000,000 users.");
    grounded("It has 2,500,000 users.", "It has 2.5 million users.");
    lacks(
        "It has 5 million users.",
        "It has 5 thousand users.",
        &["5 million"],
    );
    lacks("It has 5 users.", "It has 5 million users.", &["5"]);
    grounded("It has 12 doors.", "It has twelve doors.");
    grounded("It has 40 doors.", "It has forty doors.");
}

#[test]
fn a_unit_goes_with_its_number() {
    grounded(
        "It is 5 km long.",
        "It is 5 kilometres long and weighs 7 kg.",
    );
    lacks(
        "It is 7 km long.",
        "It is 5 km long and weighs 7 kg.",
        &["7 km"],
    );
    grounded("It grew by 12%.", "growth: 12 percent");
    lacks("It grew by 12%.", "It grew to 12 people.", &["12%"]);
    grounded("It weighs 5 kg.", "Weight (kg): 5");
    grounded("It cost $5.", "It cost 5 dollars.");
    lacks("It cost $5.", "It cost €5.", &["5"]);
}

#[test]
fn names_inside_a_sentence() {
    grounded("The firm is led by Ada Stein.", "Ada Stein leads the firm.");
    lacks(
        "The firm is led by Ada Stone.",
        "Ada Stein leads the firm.",
        &["Stone"],
    );
    // Alone at the start nothing tells a name from any other word.
    grounded("Founded by Stein.", "Stein began it.");
    lacks("Bert Stein founded it.", "Ada Stein founded it.", &["Bert"]);
    lacks("NASA said so.", "They said so.", &["NASA"]);
    grounded("The U.S. agreed.", "The US agreed.");
    grounded("It is Stein's firm.", "the firm of Stein");
    grounded("He met the Germans.", "a German firm he met");
    grounded(
        "The \u{c5}ngstr\u{f6}m is a unit.",
        "The A\u{30a}ngstro\u{308}m is a unit.",
    );
    grounded("It opened on 5 January 2024.", "opened 2024-01-05");
    lacks(
        "It opened on 5 March 2024.",
        "opened 2024-01-05",
        &["March"],
    );
}

#[test]
fn several_chunks_answer_together() {
    assert_eq!(
        missing("Ada Stein has 3 dogs.", &["Ada Stein", "3 dogs"]),
        Vec::<String>::new()
    );
    assert_eq!(missing("It has 3 dogs.", &[]), ["3"]);
    assert_eq!(missing("It has 3 dogs, 3 dogs.", &["none"]), ["3"]);
}

#[test]
fn odd_numbers_keep_their_groups() {
    grounded("Version 1.2.3 is out.", "release 1.2.3");
    lacks("Version 1.2.4 is out.", "release 1.2.3", &["1.2.4"]);
    grounded("It flew an A320.", "an A320 of theirs");
}

proptest! {
    #[test]
    fn what_is_copied_is_grounded(text in "[A-Za-z0-9,.'$% \u{e9}\u{a0}-]{0,80}") {
        prop_assert_eq!(missing(&text, &[&text]), Vec::<String>::new());
    }

    #[test]
    fn more_evidence_never_takes_ground_away(claim in "\\PC{0,60}", a in "\\PC{0,60}", b in "\\PC{0,60}") {
        let alone = missing(&claim, &[&a]);
        let both = missing(&claim, &[&a, &b]);
        prop_assert!(both.iter().all(|word| alone.contains(word)), "{alone:?} {both:?}");
    }

    #[test]
    fn a_number_that_is_not_there_is_missed(n in 0u32..1_000_000, m in 0u32..1_000_000) {
        let told = missing(&format!("it has {n} parts"), &[&format!("it has {m} parts")]);
        prop_assert_eq!(told.is_empty(), n == m);
    }
}
