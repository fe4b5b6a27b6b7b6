//! Sentences, chunks and claims.

mod common;

use std::collections::HashSet;

use cortex_core::chunker::{Chunk, ChunkOptions, chunk};
use cortex_core::extract::{MAX_CLAIM_TOKENS, extract};
use cortex_core::sentence::sentences;
use cortex_core::tokens::estimate;
use proptest::prelude::*;
use unicode_segmentation::UnicodeSegmentation;

fn cut(text: &str) -> Vec<&str> {
    sentences(text)
        .into_iter()
        .map(|span| &text[span.start..span.end])
        .collect()
}

fn claims(text: &str) -> Vec<&str> {
    extract(text)
        .into_iter()
        .map(|claim| &text[claim.start..claim.end])
        .collect()
}

fn pieces<'a>(text: &'a str, options: &ChunkOptions) -> Vec<&'a str> {
    chunk(text, options)
        .into_iter()
        .map(|chunk| &text[chunk.start..chunk.end])
        .collect()
}

#[test]
fn sentences_end_where_people_end_them() {
    let cases: &[(&str, &[&str])] = &[
        ("One. Two! Three? Four", &["One.", "Two!", "Three?", "Four"]),
        (
            "Dr. Smith met Mr. Jones. They spoke.",
            &["Dr. Smith met Mr. Jones.", "They spoke."],
        ),
        (
            "Version 15.2 fixes 3.14 bugs. See v1.0.",
            &["Version 15.2 fixes 3.14 bugs.", "See v1.0."],
        ),
        (
            "See Fig. 3 and No. 5. He said no. Then left.",
            &["See Fig. 3 and No. 5.", "He said no.", "Then left."],
        ),
        (
            "Smith et al. (2020) agree. So do we.",
            &["Smith et al. (2020) agree.", "So do we."],
        ),
        (
            "Made by Acme Inc. in Ohio. Sold by Acme Inc. The end.",
            &[
                "Made by Acme Inc. in Ohio.",
                "Sold by Acme Inc.",
                "The end.",
            ],
        ),
        (
            "J. R. Tolkien wrote. It sold.",
            &["J. R. Tolkien wrote.", "It sold."],
        ),
        (
            "In the U.S. Army. At 5 p.m. The end.",
            &["In the U.S. Army.", "At 5 p.m.", "The end."],
        ),
        (
            "e.g. this, i.e. that. Next.",
            &["e.g. this, i.e. that.", "Next."],
        ),
        (
            "\"Stop!\" he said. \"Why?\" She left.",
            &["\"Stop!\" he said.", "\"Why?\"", "She left."],
        ),
        (
            "He said “stop.” Then left.",
            &["He said “stop.”", "Then left."],
        ),
        (
            "Wait... what? Well… Yes.",
            &["Wait... what?", "Well…", "Yes."],
        ),
        ("(It works.) It does.", &["(It works.)", "It does."]),
        ("no.space.here is fine", &["no.space.here is fine"]),
        (
            "東京です。大阪は？「はい。」終わり",
            &["東京です。", "大阪は？", "「はい。」", "終わり"],
        ),
        ("यह है। वह है।", &["यह है।", "वह है।"]),
        ("Really?! Yes!!! OK.", &["Really?!", "Yes!!!", "OK."]),
        (
            "wrapped at\nthe margin. Next\r\nline.",
            &["wrapped at\nthe margin.", "Next\r\nline."],
        ),
        (
            "One paragraph\n\nanother one\r\n\r\nthird",
            &["One paragraph", "another one", "third"],
        ),
        ("# Heading\ntext below", &["Heading", "text below"]),
        ("#hashtag is text", &["#hashtag is text"]),
        (
            "- one item\n- two items\n  continued\n* three",
            &["one item", "two items\n  continued", "three"],
        ),
        (
            "1. first\n2) second\n(3) third\n1234. no list",
            &["first", "second", "third\n1234. no list"],
        ),
        (
            "-5 is a number\n-not a list",
            &["-5 is a number\n-not a list"],
        ),
        ("| a | b |\n| c | d |", &["| a | b |", "| c | d |"]),
        (
            "```\ncode one\ncode two\n```\nText.",
            &["```", "code one", "code two", "```", "Text."],
        ),
        ("old\rMac\r\rtext", &["old\rMac", "text"]),
        (
            "line\u{2028}separator\u{2029}\u{2029}paragraph",
            &["line\u{2028}separator", "paragraph"],
        ),
        ("", &[]),
        (" \r\n\t\u{3000}", &[]),
        ("- \n# \n", &[]),
        ("- \n  item after its mark", &["item after its mark"]),
        (
            "Title\n=====\ntext below\n---\nmore",
            &["Title", "=====", "text below", "---", "more"],
        ),
        ("...", &["..."]),
        (
            "Use ALTER TABLE ... ADD COLUMN here.",
            &["Use ALTER TABLE ... ADD COLUMN here."],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(cut(text), *expected, "{text:?}");
    }
}

#[test]
fn claims_are_the_sentences_that_say_something() {
    let text =
        "# Changes\n\n- Fix the planner crash. Yes.\n- \n---\n東京は首都です。 OK then.\nA, b; c!";
    assert_eq!(
        claims(text),
        ["Fix the planner crash.", "東京は首都です。", "A, b; c!"]
    );
    assert_eq!(claims("Only two. Now three words."), ["Now three words."]);
    assert!(claims("... !!! --- 😀😀😀 ***").is_empty());
}

#[test]
fn overlong_sentences_are_cut_after_clauses() {
    let clause = "the server writes the page to disk again and again, ";
    let text = clause.repeat(30);
    let found = claims(&text);
    assert!(found.len() > 1);
    for claim in &found {
        assert!(estimate(claim) <= MAX_CLAIM_TOKENS);
        assert!(
            claim.starts_with("the server") && claim.ends_with("again,"),
            "{claim}"
        );
    }
    // Just inside the limit it stays whole.
    let fits = "word ".repeat(MAX_CLAIM_TOKENS as usize);
    assert_eq!(claims(&fits), [fits.trim_end()]);
    assert_eq!(
        claims(&format!("{fits}more")).len(),
        1,
        "a remainder of one word stays with its sentence"
    );
    assert_eq!(claims(&format!("{fits}three more words")).len(), 2);
}

#[test]
fn a_strong_clause_mark_is_preferred_to_a_later_comma() {
    let first = format!("{}ends here;", "some words ".repeat(35));
    let second = format!("{}, then the end", "other words ".repeat(15).trim_end());
    let text = format!("{first} {second}");
    assert!(estimate(&text) > MAX_CLAIM_TOKENS);
    assert_eq!(claims(&text), [first, second]);
}

#[test]
fn chunks_have_the_sizes_asked_for() {
    let sentence = "The checkpoint writes every dirty page to the disk. ";
    let tokens = estimate(sentence.trim_end());
    let text = sentence.repeat(100);
    let options = ChunkOptions {
        target_tokens: tokens * 4,
        max_tokens: tokens * 5,
    };
    let chunks = chunk(&text, &options);
    assert_eq!(chunks.len(), 25);
    assert!(chunks.iter().all(|chunk| chunk.tokens == tokens * 4));
}

#[test]
fn a_small_remainder_joins_the_chunk_before() {
    let sentence = "The checkpoint writes every dirty page to the disk. ";
    let tokens = estimate(sentence.trim_end());
    let options = ChunkOptions {
        target_tokens: tokens * 4,
        max_tokens: tokens * 5,
    };
    let text = format!("{}The end.", sentence.repeat(4));
    assert_eq!(chunk(&text, &options).len(), 1);
    let text = sentence.repeat(5);
    assert_eq!(
        chunk(&text, &options).len(),
        2,
        "a quarter of the target stands alone"
    );
}

#[test]
fn headings_go_with_what_follows() {
    let body = "The checkpoint writes every dirty page to the disk. ".repeat(3);
    let text = format!("{body}\n\n## Vacuum\n\n{body}\n\n## Analyze\n\n{body}");
    let options = ChunkOptions {
        target_tokens: 30,
        max_tokens: 45,
    };
    for piece in pieces(&text, &options) {
        let last = piece.trim_end().lines().last().unwrap_or_default();
        assert!(!last.starts_with('#'), "{piece:?}");
    }
}

#[test]
fn paragraphs_stay_together_where_they_fit() {
    let paragraph = "One sentence of the paragraph here. Another sentence of it there.\n\n";
    let text = paragraph.repeat(6);
    let tokens = estimate(paragraph.trim_end());
    let options = ChunkOptions {
        target_tokens: tokens * 2,
        max_tokens: tokens * 2 + 6,
    };
    for piece in pieces(&text, &options) {
        assert!(piece.starts_with("One sentence"), "{piece:?}");
    }
}

#[test]
fn text_without_anything_visible_has_no_chunks() {
    for text in ["", " ", "\r\n\r\n\t", "\u{3000}\u{2028}"] {
        assert_eq!(chunk(text, &ChunkOptions::default()), []);
    }
    let blank = "\n".repeat(1_000_000);
    assert_eq!(chunk(&blank, &ChunkOptions::default()), []);
    assert_eq!(
        chunk(&format!("{blank}word{blank}"), &ChunkOptions::default()).len(),
        1
    );
}

#[test]
fn sizes_of_zero_are_read_as_documented() {
    let text = "One two three. Four five six.";
    for options in [
        ChunkOptions {
            target_tokens: 0,
            max_tokens: 0,
        },
        ChunkOptions {
            target_tokens: 1,
            max_tokens: 0,
        },
    ] {
        let found = chunk(text, &options);
        assert!(found.iter().all(|chunk| chunk.tokens == 1), "{found:?}");
        assert_eq!(pieces(text, &options).concat(), text);
    }
}

#[test]
fn huge_clusters_and_words_end() {
    let accents = "\u{301}".repeat(300_000);
    let family = "👩\u{200D}".repeat(100_000);
    for text in [
        format!("e{accents}"),
        family,
        "x".repeat(1_000_000),
        "東".repeat(300_000),
        "🇩".repeat(100_000),
    ] {
        let found = chunk(&text, &ChunkOptions::default());
        check_partition(&text, &found);
        assert!(found.len() > 100);
        let longest = found.iter().map(|chunk| chunk.end - chunk.start).max();
        assert!(longest <= Some(220 * 6), "{longest:?}");
    }
}

#[test]
fn cuts_of_an_endless_word_respect_clusters() {
    let text = "e\u{301}👩\u{200D}👩\u{200D}👧".repeat(2_000);
    check(&text, &ChunkOptions::default());
}

#[test]
fn naughty_strings_are_partitioned() {
    let strings = common::naughty_strings();
    for text in &strings {
        check(
            text,
            &ChunkOptions {
                target_tokens: 4,
                max_tokens: 7,
            },
        );
    }
    check(&strings.join("\n\n"), &ChunkOptions::default());
    check(&strings.join(" "), &ChunkOptions::default());
}

/// Chunks joined are the text, and none is empty or blank.
fn check_partition(text: &str, chunks: &[Chunk]) {
    if text.trim().is_empty() {
        assert!(chunks.is_empty());
        return;
    }
    let mut at = 0;
    for chunk in chunks {
        assert_eq!(chunk.start, at, "gap or overlap");
        let piece = &text[chunk.start..chunk.end];
        assert!(!piece.trim().is_empty(), "blank chunk {chunk:?}");
        assert_eq!(chunk.tokens, estimate(piece.trim()));
        at = chunk.end;
    }
    assert_eq!(at, text.len());
}

/// What holds for every text.
fn check(text: &str, options: &ChunkOptions) {
    let chunks = chunk(text, options);
    check_partition(text, &chunks);
    let mut boundaries: HashSet<usize> = text.grapheme_indices(true).map(|(at, _)| at).collect();
    // Clusters beyond 256 bytes (one naughty string holds a run of tag characters) may be cut.
    let oversized = text
        .grapheme_indices(true)
        .filter(|(_, cluster)| cluster.len() > 256);
    boundaries.extend(
        oversized
            .flat_map(|(at, cluster)| cluster.char_indices().map(move |(offset, _)| at + offset)),
    );
    for chunk in &chunks {
        let piece = &text[chunk.start..chunk.end];
        assert!(
            boundaries.contains(&chunk.start),
            "{piece:?} begins inside a cluster"
        );
        assert!(
            chunk.tokens <= options.max_tokens || piece.trim().graphemes(true).count() == 1,
            "{piece:?} has {} tokens",
            chunk.tokens
        );
    }
    check_spans(text);
}

/// Sentences and claims are in order, apart, on character boundaries, without blanks around them.
fn check_spans(text: &str) {
    let mut at = 0;
    for span in sentences(text) {
        assert!(at <= span.start && span.start < span.end);
        let sentence = &text[span.start..span.end];
        assert_eq!(sentence, sentence.trim());
        at = span.end;
    }
    let mut at = 0;
    for claim in extract(text) {
        assert!(at <= claim.start && claim.start < claim.end);
        let sentence = &text[claim.start..claim.end];
        assert_eq!(sentence, sentence.trim());
        at = claim.end;
    }
}

/// Text of pieces that matter to layout and segmentation.
fn laid_out() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z]{1,12}",
        "[0-9]{1,4}",
        prop::sample::select(vec![
            ". ", "! ", "? ", "...", "。", "」", "\" ", "”", ", ", "; ", ": ", "\n", "\r\n", "\r",
            "\n\n", "\r\n\r\n", " ", "  ", "\t", "\n- ", "\n# ", "\n1. ", "\n```\n", "\n| ",
            "Dr. ", "e.g. ", "No. 5", "J. ", "\u{301}", "\u{200D}", "👩", "🇩", "🇪", "한", "東京",
            "é", "\u{3000}", "\u{A0}", "\u{2028}", "\u{B}", "\u{0}", "\u{600}", "क्", "ष",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn options() -> impl Strategy<Value = ChunkOptions> {
    (1_u32..30, 0_u32..30).prop_map(|(target, more)| ChunkOptions {
        target_tokens: target,
        max_tokens: target + more,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn chunks_partition_any_text(text in prop_oneof![laid_out(), any::<String>()], options in options()) {
        check(&text, &options);
    }

    #[test]
    fn every_visible_character_is_in_one_sentence_or_a_mark(text in laid_out()) {
        let mut at = 0;
        for span in sentences(&text) {
            let between = text[at..span.start].trim();
            let is_mark = between.chars().all(|ch| ch.is_whitespace() || ch.is_ascii_digit() || "-*+#.()•‣◦▪·–".contains(ch));
            prop_assert!(is_mark, "{between:?} is lost");
            at = span.end;
        }
        let rest = text[at..].trim();
        prop_assert!(rest.chars().all(|ch| ch.is_whitespace() || ch.is_ascii_digit() || "-*+#.()".contains(ch)), "{rest:?} is lost");
    }

    #[test]
    fn line_ends_do_not_matter_to_sentences(text in "[a-zA-Z0-9.!? \n#-]{0,80}") {
        let with_crlf = text.replace('\n', "\r\n");
        let plain: Vec<String> = cut(&text).into_iter().map(str::to_owned).collect();
        let crlf: Vec<String> = cut(&with_crlf).into_iter().map(|sentence| sentence.replace("\r\n", "\n")).collect();
        prop_assert_eq!(plain, crlf);
    }
}
