//! The token estimate.

use cortex_core::tokens::estimate;
use proptest::prelude::*;

#[test]
fn sizes_of_known_texts() {
    let cases = [
        ("", 0),
        ("a", 1),
        ("letter", 1),
        ("letters", 2),
        ("two words", 2),
        ("two  words", 3),
        ("getUserName", 3),
        ("HTTPServer", 2),
        ("123", 1),
        ("1234", 2),
        ("x = f(y);", 7),
        ("a\nb", 3),
        ("a\r\nb", 3),
        ("数据库", 3),
        ("데이터", 6),
        ("база", 4),
        ("é", 1),
        ("ééé", 2),
        ("😀", 2),
        (" ", 0),
        ("\u{3000}\u{A0}", 1),
    ];
    for (text, tokens) in cases {
        assert_eq!(estimate(text), tokens, "{text:?}");
    }
}

#[test]
fn a_large_text_is_counted_exactly() {
    assert_eq!(estimate(&"a ".repeat(1 << 20)), 1 << 20);
}

proptest! {
    #[test]
    fn appending_never_lowers_it(a in any::<String>(), b in any::<String>()) {
        let joined = format!("{a}{b}");
        prop_assert!(estimate(&joined) >= estimate(&a));
    }

    #[test]
    fn prepending_never_lowers_it(a in "[ -~\n]{0,40}", b in "[ -~\n]{0,40}") {
        let joined = format!("{a}{b}");
        prop_assert!(estimate(&joined) >= estimate(&b));
    }

    #[test]
    fn joining_costs_at_most_one_more_where_blanks_meet(a in any::<String>(), b in "[ -~\n\u{e0}-\u{ff}]{0,40}") {
        let apart = estimate(&a) + estimate(&b);
        let joined = estimate(&format!("{a}{b}"));
        let blanks_meet = a.ends_with(char::is_whitespace) && b.starts_with(char::is_whitespace);
        prop_assert!(joined <= apart + u32::from(blanks_meet), "{joined} > {apart}");
    }

    #[test]
    fn a_line_feed_separates(a in any::<String>(), b in any::<String>()) {
        let joined = format!("{a}\n{b}");
        prop_assert_eq!(estimate(&joined), estimate(&a) + 1 + estimate(&b));
    }

    #[test]
    fn it_is_at_most_one_token_a_byte(text in any::<String>()) {
        prop_assert!(estimate(&text) as usize <= text.len());
    }
}
