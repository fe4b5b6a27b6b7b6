//! Quoted phrases: where they begin and end, and which texts hold them.

use cortex_core::analyzer::Analyzer;
use cortex_core::phrase::{MAX_PHRASES, MAX_WORDS, PhraseError, Phrases};
use proptest::prelude::*;

fn phrases(query: &str) -> Phrases {
    Phrases::of(query, Analyzer::V1).expect("within the limits")
}

fn held(query: &str, text: &str) -> bool {
    phrases(query).held_by(text)
}

#[test]
fn words_must_stand_in_a_row() {
    assert!(held("\"renal failure\"", "Acute renal failure was seen."));
    assert!(!held("\"renal failure\"", "Failure, renal or other."));
    assert!(!held("\"renal failure\"", "Renal and hepatic failure."));
    assert!(!held("\"renal failure\"", "renal"));
    assert!(!held("\"renal failure\"", ""));
}

#[test]
fn stop_words_count_in_their_place() {
    assert!(held("\"to be or not to be\"", "To be, or not to be: that."));
    assert!(!held("\"to be or not to be\"", "To be or to be."));
    assert!(held("\"bank of england\"", "The Bank of England rose."));
    assert!(!held("\"bank of england\"", "The Bank, England"));
    assert!(!held("\"bank england\"", "The Bank of England"));
}

#[test]
fn case_accents_and_endings_do_not_count() {
    assert!(held("\"Café RUNS\"", "the cafe running late"));
    assert!(held("\"real time\"", "a real-time system"));
    assert!(held("\"real-time system\"", "a real time system"));
    assert!(held("\"user id\"", "where user_id = 3"));
}

#[test]
fn every_phrase_is_asked_for() {
    let query = "compare \"red apple\" with “green pear”";
    assert!(held(query, "a green pear beside the red apple"));
    assert!(!held(query, "a green pear beside the red"));
    assert_eq!(phrases(query).terms().len(), 4);
}

#[test]
fn quotes_of_all_kinds() {
    for query in [
        "\"a b c\"",
        "“a b c”",
        "„a b c“",
        "”a b c“",
        "say (\"a b c\")!",
        "＂a b c＂",
    ] {
        assert!(!phrases(query).is_empty(), "{query}");
        assert!(held(query, "x a b c y"), "{query}");
        assert!(!held(query, "x a b d c y"), "{query}");
    }
}

#[test]
fn what_asks_for_nothing() {
    for query in [
        "",
        "no quotes",
        "\"",
        "one \"open quote",
        "\"\"",
        "\" , . \"",
        "5\" and 3\" pipes",
        "a 'single quoted' word",
        "don't and won't",
    ] {
        assert!(phrases(query).is_empty(), "{query}");
        assert!(held(query, "anything"), "{query}");
    }
}

#[test]
fn a_quote_within_a_word_does_not_close() {
    // The closing quote is the one that no letter follows.
    assert!(held("\"a 5\"x4 board\"", "a 5 x4 board"));
}

#[test]
fn scripts_without_spaces() {
    assert!(held("\"東京都\"", "ここは東京都庁です"));
    assert!(!held("\"東京都\"", "東京の京都"));
}

#[test]
fn the_limits() {
    let query =
        |phrases: usize| -> String { (0..phrases).map(|n| format!("\"word{n} x\" ")).collect() };
    assert!(Phrases::of(&query(MAX_PHRASES), Analyzer::V1).is_ok());
    assert_eq!(
        Phrases::of(&query(MAX_PHRASES + 1), Analyzer::V1),
        Err(PhraseError::TooMany {
            found: MAX_PHRASES + 1
        })
    );
    // The same phrase again is one.
    assert!(Phrases::of(&"\"a b\" ".repeat(100), Analyzer::V1).is_ok());
    let words = |n: usize| format!("\"{}\"", "go ".repeat(n));
    assert!(Phrases::of(&words(MAX_WORDS), Analyzer::V1).is_ok());
    assert_eq!(
        Phrases::of(&words(MAX_WORDS + 1), Analyzer::V1),
        Err(PhraseError::TooLong {
            found: MAX_WORDS + 1
        })
    );
}

const WORDS: [&str; 6] = ["the", "of", "apple", "pear", "plum", "fig"];

fn text() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(&WORDS[..]), 0..14)
}

proptest! {
    /// Against the plain definition on words that the analyzer leaves as they are.
    #[test]
    fn a_phrase_is_a_run(text in text(), phrase in text(), spaces in 1_usize..3) {
        let query = format!("x “{}”", phrase.join(&" ".repeat(spaces)));
        let expected = phrase.is_empty() || text.windows(phrase.len()).any(|window| window == phrase);
        prop_assert_eq!(held(&query, &text.join(", ")), expected);
    }

    /// A text that holds the phrase has all of its terms: the index may be asked for them first.
    #[test]
    fn terms_are_necessary(text in "[a-zA-Z_. -]{0,60}", from in 0_usize..60, to in 0_usize..60) {
        let (from, to) = (from.min(to).min(text.len()), from.max(to).min(text.len()));
        let phrases = phrases(&format!("\"{}\"", &text[from..to]));
        let (counts, _) = cortex_core::analyzer::term_counts(&text);
        if phrases.held_by(&text) {
            for term in phrases.terms() {
                prop_assert!(counts.contains_key(term), "{} is missing", term);
            }
        }
    }

    #[test]
    fn any_query_and_text_are_read(query in "\\PC{0,80}", text in "\\PC{0,80}") {
        if let Ok(phrases) = Phrases::of(&query, Analyzer::V1) {
            let _ = phrases.held_by(&text);
        }
    }
}
