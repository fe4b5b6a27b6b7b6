//! The analyzer: terms, positions, offsets and limits.

mod common;

use std::collections::HashSet;

use cortex_core::analyzer::{
    MAX_QUERY_TERMS, MAX_TERM_BYTES, MAX_TOKENS, analyze, has_words, normalise, query_terms,
    term_counts,
};
use proptest::prelude::*;
use unicode_normalization::UnicodeNormalization;

/// Terms with positions and a mark for stop words, in short.
fn shown(text: &str) -> String {
    let show = |token: &cortex_core::analyzer::Token| {
        format!(
            "{}@{}{}",
            token.term,
            token.position,
            if token.stop { "!" } else { "" }
        )
    };
    analyze(text).iter().map(show).collect::<Vec<_>>().join(" ")
}

#[test]
fn words_identifiers_and_numbers() {
    let cases = [
        ("The running dogs", "the@0! run@1 dog@2"),
        ("user_id", "userid@0 user@0 id@1"),
        ("__init__", "init@0"),
        ("a__b", "ab@0 a@0! b@1"),
        ("getUserName", "getusernam@0 get@0 user@1 name@2"),
        ("HTTPServer", "httpserver@0 http@0 server@1"),
        ("html5Parser", "html5parser@0 html5@0 parser@1"),
        ("os.path.join", "os.path.join@0 os@0 path@1 join@2"),
        ("real-time", "realtim@0 real@0 time@1"),
        ("x--y", "x@0 y@1"),
        ("end...Next", "end@0 next@1"),
        ("v15.2.", "v15.2@0 v15@0 2@1"),
        ("1,000,000 rows", "1000000@0 row@1"),
        ("1,00 and 12,3456", "1@0 00@1 and@2! 12@3 3456@4"),
        ("a,b", "a@0! b@1"),
        ("U.S.A.", "usa@0"),
        ("e.g. this", "eg@0 this@1!"),
        ("iPhone mRNA PhD CPUs", "iphon@0 mrna@1 phd@2 cpu@3"),
        ("O'Brien's", "obrien@0 o@0 brien@1 s@2!"),
        ("don't we'll it’s", "don@0! t@1! we@2! ll@3! it@4! s@5!"),
        ("won the race; won't", "won@0 the@1! race@2 won@3! t@4!"),
        (
            "state-of-the-art",
            "stateoftheart@0 state@0 of@1! the@2! art@3",
        ),
        ("foo/bar@baz", "foo@0 bar@1 baz@2"),
        ("", ""),
        (" -_.', ", ""),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(text), expected, "{text:?}");
    }
}

#[test]
fn other_scripts() {
    let cases = [
        ("Łódź Straße ﬁne Ünïcode", "lodz@0 strass@1 fine@2 unicod@3"),
        ("ΣΊΣΥΦΟΣ σίσυφος", "σισυφοσ@0 σισυφοσ@1"),
        ("Ёлка Й", "елка@0 и@1"),
        ("東京都に", "東京@0 京都@1 都に@2"),
        ("東 京", "東@0 京@1"),
        ("Python入門3章", "python@0 入門@1 3@2 章@3"),
        ("ガ ｶﾞ か\u{3099}", "ガ@0 ガ@1 が@2"),
        ("한국어", "한국@0 국어@1"),
        ("हिन्दी", "हिन्दी@0"),
        ("ฐานข้อมูล", "ฐา@0 าน@1 นข้@2 ข้อ@3 อมู@4 มูล@5"),
        ("שָׁלוֹם مُحَمَّد", "שלום@0 محمد@1"),
        ("x² ½ ™ Ⅻ", "x2@0 1@1 2@2 tm@3 xii@4"),
        (
            "soft\u{AD}hyphen zero\u{200B}width",
            "softhyphen@0 zero@1 width@2",
        ),
        ("naïve re\u{301}sume\u{301}", "naiv@0 resum@1"),
        ("ＦＵＬＬ　ｗｉｄｔｈ", "full@0 width@1"),
        ("😀 ❤️ ---", ""),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(text), expected, "{text:?}");
    }
}

#[test]
fn ways_to_write_one_name_meet() {
    for other in ["user_id", "userId", "user-id", "UserId", "USER_ID"] {
        assert!(query_terms(other).contains(&"userid".to_owned()), "{other}");
    }
    assert!(!query_terms("15.2").contains(&"152".to_owned()));
}

#[test]
fn counts_leave_out_stop_words_and_count_wholes_without_length() {
    let (counts, length) = term_counts("The user_id of the user");
    let counts: Vec<(&str, u32)> = counts
        .iter()
        .map(|(term, &count)| (term.as_str(), count))
        .collect();
    assert_eq!(counts, [("id", 1), ("user", 2), ("userid", 1)]);
    assert_eq!(length, 3);
}

#[test]
fn queries_have_each_term_once_in_order() {
    assert_eq!(
        query_terms("What is the Index of an index, indexes?"),
        ["index"]
    );
    assert_eq!(
        query_terms("vacuum before analyze vacuum"),
        ["vacuum", "befor", "analyz"]
    );
    assert_eq!(query_terms("to be or not to be"), Vec::<String>::new());
    let long: String = (0..MAX_QUERY_TERMS + 10)
        .map(|number| format!("t{number} "))
        .collect();
    assert_eq!(query_terms(&long).len(), MAX_QUERY_TERMS);
}

#[test]
fn terms_are_cut_at_the_limit() {
    let just = "x1".repeat(MAX_TERM_BYTES / 2);
    assert_eq!(analyze(&just)[0].term, just);
    assert_eq!(analyze(&format!("{just}y"))[0].term, just);
    // 33 letters of two bytes: 32 fit.
    let terms = analyze(&"ж".repeat(33));
    assert_eq!(terms[0].term, "ж".repeat(32));
    assert_eq!((terms[0].start, terms[0].end), (0, 66));
    // The whole of a compound that would be cut is left out.
    let compound = format!("{just}_tail");
    assert!(
        analyze(&compound)
            .iter()
            .all(|token| token.term == just || token.term == "tail")
    );
}

#[test]
fn tokens_are_limited() {
    let text = "w ".repeat(MAX_TOKENS + 5);
    assert_eq!(analyze(&text).len(), MAX_TOKENS);
    let (counts, length) = term_counts(&text);
    assert_eq!(
        (counts.get("w"), length as usize),
        (Some(&(MAX_TOKENS as u32)), MAX_TOKENS)
    );
}

#[test]
fn large_texts_without_spaces_take_linear_time() {
    // Quadratic work on these would take hours.
    for unit in [
        "x",
        "xY",
        "東",
        "é",
        "_",
        "'",
        "a.",
        "\u{301}",
        "1,",
        "\u{200D}",
        "สุ\u{E49}",
    ] {
        let text = unit.repeat(1_000_000 / unit.len());
        let tokens = analyze(&text);
        assert!(tokens.len() <= MAX_TOKENS);
        assert!(
            tokens
                .iter()
                .all(|token| token.term.len() <= MAX_TERM_BYTES)
        );
    }
}

#[test]
fn words_are_looked_for_no_further_than_needed() {
    assert!(has_words("one two the", 3));
    assert!(!has_words("one two", 3));
    assert!(!has_words("... !!! —", 1));
    assert!(has_words("", 0));
    assert!(has_words("東京都です", 3));
}

#[test]
fn normalised_texts_are_equal_up_to_case_and_blanks() {
    assert_eq!(normalise("  The\n\tSAME  ﬁle "), "the same file");
    assert_eq!(normalise("Straße"), normalise("STRASSE"));
    assert_ne!(normalise("résumé"), normalise("resume"));
    assert_ne!(normalise("a."), normalise("a"));
}

#[test]
fn naughty_strings_keep_the_rules() {
    for text in common::naughty_strings() {
        check(&text);
    }
}

/// What holds for every text.
fn check(text: &str) {
    let tokens = analyze(text);
    let mut last_position = 0;
    for token in &tokens {
        assert!(
            !token.term.is_empty() && token.term.len() <= MAX_TERM_BYTES,
            "{token:?}"
        );
        assert!(token.start < token.end, "{token:?}");
        assert!(
            text.is_char_boundary(token.start) && text.is_char_boundary(token.end),
            "{token:?}"
        );
        assert!(
            token.position >= last_position && token.position <= last_position + 1,
            "{token:?}"
        );
        last_position = token.position;
    }
    let (counts, length) = term_counts(text);
    let matching: Vec<_> = tokens.iter().filter(|token| !token.stop).collect();
    assert_eq!(counts.values().sum::<u32>() as usize, matching.len());
    let positions: HashSet<u32> = matching.iter().map(|token| token.position).collect();
    assert_eq!(length as usize, positions.len());
    let distinct: HashSet<String> = query_terms(text).into_iter().collect();
    assert_eq!(distinct, counts.into_keys().collect());
}

fn terms(text: &str) -> Vec<String> {
    analyze(text).into_iter().map(|token| token.term).collect()
}

/// Words of many scripts, compounds, joiners and marks.
fn mixed() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z0-9]{1,6}",
        "[_.'’,-]{1,2}",
        " ",
        "[à-ÿĀ-ſ]{1,3}",
        "[가-힣]{1,3}",
        "[ぁ-ん]{1,3}",
        "[\u{300}-\u{36F}]",
        "[\u{3099}\u{309A}]",
        "[ก-ฮ\u{E31}\u{E34}-\u{E3A}\u{E47}-\u{E4E}]{1,3}",
        "[अ-ह\u{93C}\u{93E}-\u{94D}]{1,3}",
        "[א-ת\u{5B0}-\u{5BC}]{1,3}",
        "[ا-ي\u{64B}-\u{655}]{1,3}",
        "[а-яА-ЯёЁйЙ]{1,3}",
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_text_keeps_the_rules(text in prop_oneof![any::<String>(), mixed()]) {
        check(&text);
    }

    #[test]
    fn composed_and_decomposed_text_have_the_same_terms(text in mixed()) {
        let composed: String = text.nfc().collect();
        let decomposed: String = text.nfd().collect();
        prop_assert_eq!(terms(&composed), terms(&decomposed));
    }

    #[test]
    fn case_does_not_matter_to_plain_words(text in "[a-z ]{0,40}") {
        prop_assert_eq!(terms(&text), terms(&text.to_uppercase()));
    }

    #[test]
    fn words_apart_do_not_influence_each_other(a in mixed(), b in mixed()) {
        let apart = [terms(&a), terms(&b)].concat();
        let together = format!("{a} / {b}");
        prop_assert_eq!(terms(&together), apart);
    }

    #[test]
    fn the_quick_path_for_plain_words_equals_the_general_one(text in "[a-zA-Z0-9 ]{0,30}") {
        // An invisible joiner belongs to no word, but sends its neighbours down the general path.
        let general: String = text.replace(' ', "\u{2060} ") + "\u{2060}";
        prop_assert_eq!(terms(&text), terms(&general));
    }

    #[test]
    fn offsets_hold_the_word(text in mixed()) {
        for token in analyze(&text) {
            let slice = &text[token.start..token.end];
            prop_assert!(terms(slice).contains(&token.term) || slice.contains(['.', '\'', '’']), "{:?} in {:?}", token, text);
        }
    }

    #[test]
    fn normalising_twice_changes_nothing(text in any::<String>()) {
        let once = normalise(&text);
        prop_assert_eq!(normalise(&once), once);
    }
}
