//! What a title and a date add to the index.

use cortex_core::analyzer;
use cortex_core::index_text::{Header, embedding_text};
use proptest::prelude::*;

#[test]
fn date_and_title_stand_before_the_text_to_embed() {
    let text = |title, dated| embedding_text(title, dated, " Body.\n");
    assert_eq!(text(Some(" Title "), None), "Title\nBody.");
    assert_eq!(text(None, Some(" 8 May, 2023 ")), "[8 May, 2023] Body.");
    assert_eq!(
        text(Some("Title"), Some("2023-05-08")),
        "[2023-05-08] Title\nBody."
    );
    assert_eq!(text(None, None), "Body.");
    assert_eq!(text(Some("  "), Some("\t")), "Body.");
    assert_eq!(embedding_text(Some("Title"), None, " "), "Title\n");
}

#[test]
fn what_the_text_begins_with_is_not_said_twice() {
    assert_eq!(
        embedding_text(Some("Body"), None, "Body of text."),
        "Body of text."
    );
    assert_eq!(
        embedding_text(None, Some("2023"), "2023 was wet."),
        "2023 was wet."
    );
    assert_eq!(
        embedding_text(None, Some("2023"), "In 2023 it rained."),
        "[2023] In 2023 it rained."
    );
}

proptest! {
    #[test]
    fn words_are_those_of_all_parts(title in "[a-c ]{0,12}", dated in "[0-9 -]{0,10}", body in "[a-d .]{0,40}") {
        let words = Header::new(Some(&title), Some(&dated)).words(&body);
        let parts = [&title, &dated, &body].map(|part| analyzer::term_counts(part));
        prop_assert_eq!(words.length, parts.iter().map(|(_, length)| length).sum::<u32>());
        for (term, count) in &words.terms {
            let sum: u32 = parts.iter().filter_map(|(counts, _)| counts.get(term)).sum();
            prop_assert_eq!(*count, sum, "{}", term);
        }
        let distinct: std::collections::BTreeSet<&String> = parts.iter().flat_map(|(counts, _)| counts.keys()).collect();
        prop_assert_eq!(words.terms.len(), distinct.len());
    }
}

#[test]
fn no_header_adds_nothing() {
    let (terms, length) = analyzer::term_counts("The cat sat.");
    let words = Header::new(None, Some("  ")).words("The cat sat.");
    assert_eq!((words.terms, words.length), (terms, length));
}
