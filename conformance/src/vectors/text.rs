//! Vectors of text: analysis, excerpts, quotes and figures, each by the name of its algorithm.

use cortex_core::{analyzer, excerpt, ground, quote};
use serde::{Deserialize, Serialize};

use super::{Case, File, same};

/// A text, an algorithm and what it gives.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Text {
    id: String,
    description: String,
    /// Name of the algorithm.
    algorithm: String,
    input: Input,
    gives: Gives,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Input {
    Analyze {
        text: String,
    },
    QueryTerms {
        text: String,
    },
    Excerpt {
        text: String,
        query: String,
        max_chars: usize,
    },
    Quote {
        text: String,
        quote: String,
    },
    Figures {
        statement: String,
        chunks: Vec<String>,
    },
}

/// (term, first byte, one past the last, position, stop word)
type Token = (String, usize, usize, u32, bool);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Gives {
    Tokens(Vec<Token>),
    Terms(Vec<String>),
    /// Bytes of the text; null where there is no such place.
    Range(Option<(usize, usize)>),
    /// How many there are, and which are not in the chunks.
    Figures(usize, Vec<String>),
}

impl Input {
    /// Runs a named algorithm; an old name keeps its rule for ever.
    fn run(&self, algorithm: &str) -> Result<Gives, String> {
        match (self, algorithm) {
            (Self::Analyze { text }, "cortex-text/1") => {
                let tokens = analyzer::analyze(text).into_iter();
                let tokens = tokens.map(|token| {
                    (
                        token.term,
                        token.start,
                        token.end,
                        token.position,
                        token.stop,
                    )
                });
                Ok(Gives::Tokens(tokens.collect()))
            }
            (Self::QueryTerms { text }, "cortex-text/1") => {
                Ok(Gives::Terms(analyzer::query_terms(text)))
            }
            (
                Self::Excerpt {
                    text,
                    query,
                    max_chars,
                },
                "cortex-excerpt/1",
            ) => {
                let range = excerpt::excerpt(text, query, *max_chars);
                Ok(Gives::Range(Some((range.start, range.end))))
            }
            (Self::Quote { text, quote }, "cortex-quote/1") => {
                let found = quote::locate(text, quote);
                Ok(Gives::Range(found.map(|range| (range.start, range.end))))
            }
            (Self::Figures { statement, chunks }, "cortex-ground/1") => {
                let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
                let (count, missing) = ground::figures(statement, &chunks);
                Ok(Gives::Figures(count, missing))
            }
            _ => Err(format!("unknown algorithm {algorithm:?}")),
        }
    }
}

impl Case for Text {
    fn id(&self) -> &str {
        &self.id
    }

    fn check(&self) -> Result<(), String> {
        same("result", &self.gives, &self.input.run(&self.algorithm)?)
    }
}

fn file(comment: &str, algorithm: &str, cases: Vec<(&str, &str, Input)>) -> File<Text> {
    let cases = cases.into_iter().map(|(id, description, input)| Text {
        id: id.into(),
        description: description.into(),
        algorithm: algorithm.into(),
        gives: input.run(algorithm).expect("a known algorithm"),
        input,
    });
    File {
        comment: comment.into(),
        version: 1,
        cases: cases.collect(),
    }
}

pub(super) fn analyzed() -> File<Text> {
    let analyze = |text: &str| Input::Analyze { text: text.into() };
    let query = |text: &str| Input::QueryTerms { text: text.into() };
    let long = "x".repeat(80);
    file(
        "Texts and their tokens: term, first byte, one past the last, position, whether a stop word.",
        "cortex-text/1",
        vec![
            ("empty", "no text", analyze("")),
            (
                "blank",
                "white space of several kinds",
                analyze(" \t\n\u{a0}\u{3000}"),
            ),
            (
                "plain",
                "stop words keep their position",
                analyze("The vacuum of the tables"),
            ),
            (
                "composed",
                "an accent on its letter",
                analyze("caf\u{e9} \u{c9}tat"),
            ),
            (
                "combining",
                "the same accents as characters of their own",
                analyze("cafe\u{301} E\u{301}tat"),
            ),
            (
                "ligature",
                "compatibility forms",
                analyze("ﬁle ﬀ ½ ² ™ ㎢ Ⅷ Ａｂｃ"),
            ),
            (
                "sharp-s",
                "sharp s, small and capital",
                analyze("Straße STRASSE STRAẞE"),
            ),
            (
                "dotted-i",
                "capital i with a dot, small i without",
                analyze("İstanbul ISTANBUL ısı"),
            ),
            ("sigma", "final sigma", analyze("ΟΔΟΣ οδος οδοσ")),
            (
                "strokes",
                "letters with a stroke",
                analyze("Łódź Øre Æon Đà"),
            ),
            ("han", "pairs of characters", analyze("東京都に住む")),
            ("han-alone", "a lone character", analyze("漢 x 字")),
            (
                "kana-voiced",
                "the voicing of kana, in either form",
                analyze("が か\u{3099} ガ カ\u{ff9e}"),
            ),
            (
                "hangul",
                "syllables whole and as letters",
                analyze("한국어 \u{1112}\u{1161}\u{11ab}"),
            ),
            (
                "thai",
                "a script without spaces and with tones",
                analyze("ข้อมูล"),
            ),
            (
                "devanagari",
                "vowel signs and virama stay",
                analyze("हिन्दी क्षेत्र"),
            ),
            (
                "arabic",
                "points and the lengthening stroke go",
                analyze("مُحَمَّد كتـــاب"),
            ),
            ("hebrew", "points go", analyze("שָׁלוֹם")),
            (
                "emoji",
                "pictures are no words; joiners do not separate letters",
                analyze("a👩\u{200d}💻b 🇩🇪 ok\u{200d}ay"),
            ),
            (
                "hyphens",
                "compounds and their parts",
                analyze("real-time state-of-the-art -dash- a--b e\u{2011}mail"),
            ),
            (
                "soft-hyphen",
                "invisible inside a word; the zero-width space separates",
                analyze("soft\u{ad}ware zero\u{200b}width"),
            ),
            (
                "snake",
                "identifiers by underscore",
                analyze("user_id __init__ _x"),
            ),
            (
                "camel",
                "identifiers by case",
                analyze("getUserName HTTPServer parseURLs iOS"),
            ),
            (
                "dotted",
                "names and versions with dots",
                analyze("os.path.join v1.2.3 15.2 e.g. U.S.A."),
            ),
            (
                "numbers",
                "digits of several scripts",
                analyze("1,000 3.14 ٣٤ 5th 0x1F"),
            ),
            (
                "apostrophes",
                "of three kinds",
                analyze("don't don\u{2019}t O\u{2bc}Brien"),
            ),
            (
                "stems",
                "the English stems",
                analyze("running nationalization happily ties skies generously"),
            ),
            (
                "not-english",
                "no stem for other letters",
                analyze("cafés running"),
            ),
            (
                "long",
                "a term of more than 64 bytes is cut",
                analyze(&long),
            ),
            (
                "controls",
                "control characters end a word",
                analyze("a\u{0}b\u{7f}c\u{85}d"),
            ),
            (
                "query",
                "each term once, without stop words",
                query("the vacuum of a VACUUM vacuums"),
            ),
            (
                "query-stop",
                "nothing but stop words",
                query("what is the of and"),
            ),
            (
                "query-compound",
                "the whole of a compound and its parts",
                query("user_id real-time"),
            ),
        ],
    )
}

pub(super) fn excerpts() -> File<Text> {
    let excerpt = |text: &str, query: &str, max_chars| Input::Excerpt {
        text: text.into(),
        query: query.into(),
        max_chars,
    };
    let two = "Größere Seiten werden später gelesen. Vacuum überspringt sie.";
    let accents = "e\u{301}".repeat(300);
    let wide = "漢".repeat(501);
    let family = format!("{}👩\u{200d}👩\u{200d}👧\u{200d}👧", "a".repeat(497));
    let flags = format!("{}🇩🇪🇫🇷", "a".repeat(497));
    let crlf = format!("{}\r\nb", "a".repeat(499));
    let hangul = "\u{1112}\u{1161}\u{11ab}".repeat(200);
    let one = "👩\u{200d}".repeat(300);
    file(
        "The part of a text that is quoted for a query, in bytes: at most max_chars characters, cut between grapheme \
         clusters where one fits.",
        "cortex-excerpt/1",
        vec![
            ("empty", "no text", excerpt("", "x", 500)),
            ("whole", "a text that fits", excerpt(two, "seiten", 500)),
            (
                "second",
                "it starts with the sentence that answers",
                excerpt(two, "vacuum", 500),
            ),
            (
                "no-budget",
                "no characters at all",
                excerpt(two, "vacuum", 0),
            ),
            (
                "inside",
                "one character short of both sentences",
                excerpt(two, "seiten", 60),
            ),
            (
                "exact",
                "as many characters as both sentences have",
                excerpt(two, "seiten", 61),
            ),
            (
                "umlaut",
                "cut after a character of two bytes",
                excerpt(two, "seiten", 4),
            ),
            (
                "wide-500",
                "characters of three bytes, one too many",
                excerpt(&wide, "x", 500),
            ),
            ("wide-501", "as many as fit", excerpt(&wide, "x", 501)),
            (
                "accents-500",
                "letters with combining accents, an even budget",
                excerpt(&accents, "x", 500),
            ),
            (
                "accents-499",
                "an odd budget leaves the accent with its letter",
                excerpt(&accents, "x", 499),
            ),
            (
                "family-500",
                "a joined emoji across the edge is left out",
                excerpt(&family, "x", 500),
            ),
            (
                "family-504",
                "and is in where it fits",
                excerpt(&family, "x", 504),
            ),
            (
                "flags-500",
                "a flag is two characters",
                excerpt(&flags, "x", 500),
            ),
            (
                "crlf-500",
                "a line end of two characters",
                excerpt(&crlf, "x", 500),
            ),
            (
                "hangul-500",
                "conjoining letters of a syllable",
                excerpt(&hangul, "x", 500),
            ),
            (
                "one-cluster",
                "a cluster that alone is too long is cut between characters",
                excerpt(&one, "x", 500),
            ),
        ],
    )
}

pub(super) fn quotes() -> File<Text> {
    let quote = |text: &str, quote: &str| Input::Quote {
        text: text.into(),
        quote: quote.into(),
    };
    let tries = |n| format!("{}a", "ab ".repeat(n));
    let text = "It took  15 million\n\tyears – “so far”. Cafe\u{301}.";
    file(
        "Where a quote stands in a text, in bytes of the text; null where it does not.",
        "cortex-quote/1",
        vec![
            ("itself", "the whole text", quote(text, text)),
            (
                "white-space",
                "runs of white space are one space",
                quote(text, "15 million years"),
            ),
            (
                "no-break",
                "as are other spaces",
                quote(text, "15\u{a0}million\u{3000}years"),
            ),
            (
                "dashes",
                "dashes and quotation marks are folded",
                quote(text, "years - \"so far\""),
            ),
            (
                "ends",
                "white space at the ends does not count",
                quote(text, "\n years "),
            ),
            (
                "within-number",
                "not within a number",
                quote(text, "5 million"),
            ),
            ("within-word", "not within a word", quote(text, "15 mill")),
            ("case", "case counts", quote(text, "it took")),
            ("composed", "a composed accent", quote(text, "Caf\u{e9}")),
            (
                "cut-accent",
                "no letter without its accent",
                quote(text, "Cafe"),
            ),
            (
                "mark-order",
                "marks in another order",
                quote("a\u{323}\u{307}", "a\u{307}\u{323}"),
            ),
            (
                "hangul",
                "a syllable and its letters",
                quote("\u{1112}\u{1161}\u{11ab}", "한"),
            ),
            (
                "singleton",
                "a character that decomposes to one other",
                quote("10 \u{212b}", "10 A\u{30a}"),
            ),
            (
                "compatibility",
                "compatibility forms are not folded",
                quote("ﬁle", "file"),
            ),
            (
                "ellipsis",
                "an ellipsis is three dots",
                quote("wait… then", "wait... then"),
            ),
            (
                "cut-ellipsis",
                "and is not cut",
                quote("wait… then", "wait.."),
            ),
            (
                "soft-hyphen",
                "soft hyphens are left out",
                quote("soft\u{ad}ware", "software"),
            ),
            (
                "byte-order-mark",
                "as is the byte order mark",
                quote("\u{feff}word", "word"),
            ),
            (
                "han",
                "no word edges in scripts without them",
                quote("漢字かな", "字か"),
            ),
            (
                "emoji",
                "part of a joined emoji is a character",
                quote("x 👩\u{200d}💻", "👩"),
            ),
            ("nothing", "nothing visible", quote(text, " \u{ad}\u{200b}")),
            ("empty-text", "nothing to be found in", quote("", "a")),
            ("try-100", "the hundredth match", quote(&tries(99), "a")),
            (
                "try-101",
                "the match after a hundred that may not stand",
                quote(&tries(100), "a"),
            ),
        ],
    )
}

pub(super) fn figures() -> File<Text> {
    let figures = |statement: &str, chunks: &[&str]| Input::Figures {
        statement: statement.into(),
        chunks: chunks.iter().map(|chunk| chunk.to_string()).collect(),
    };
    file(
        "The figures of a statement: how many there are, and those that occur in no chunk, as written.",
        "cortex-ground/1",
        vec![
            (
                "none",
                "no figure",
                figures("Ada Stein founded it in May.", &[]),
            ),
            (
                "copied",
                "as it stands",
                figures("It read 15 pages.", &["15 pages were read"]),
            ),
            (
                "missing",
                "another number",
                figures("It read 16 pages.", &["15 pages were read"]),
            ),
            (
                "thousands",
                "separators of thousands",
                figures("It cost 1,234,567.", &["1.234.567 or 1 234 567"]),
            ),
            (
                "decimals",
                "a decimal mark of another country",
                figures("It weighs 3.50 kg.", &["3,5 kg"]),
            ),
            (
                "either",
                "a number that may be one or another",
                figures("It weighs 1.234.", &["1,234", "1234"]),
            ),
            (
                "scale",
                "words of scale",
                figures("5 million users", &["5,000,000 users"]),
            ),
            (
                "words",
                "number words of a chunk",
                figures("12 doors and 40 rooms", &["twelve doors, forty rooms"]),
            ),
            (
                "unit",
                "another unit",
                figures("It is 7 km long.", &["5 km long, 7 kg"]),
            ),
            (
                "unit-alone",
                "a unit in another place",
                figures("It weighs 5 kg.", &["Weight (kg): 5"]),
            ),
            (
                "percent",
                "a sign and its word",
                figures("It grew by 12%.", &["12 percent"]),
            ),
            (
                "dates",
                "months by name and number",
                figures("On 5 March 2024.", &["2024-03-05"]),
            ),
            (
                "month",
                "another month",
                figures("On 5 June 2024.", &["2024-03-05"]),
            ),
            (
                "month-folded",
                "a month in compatibility letters",
                figures("On 5 Ｍａｙ 2024.", &["May 5, 2024"]),
            ),
            (
                "month-in-word",
                "a letter before it makes another word",
                figures("5 \u{e9}May", &["5"]),
            ),
            (
                "version",
                "a version is its groups",
                figures("Version 1.2.4", &["release 1.2.3"]),
            ),
            (
                "two-chunks",
                "chunks answer together",
                figures("3 dogs, 4 cats", &["3 dogs", "4 cats"]),
            ),
            (
                "parts",
                "groups that are numbers of their own",
                figures("rooms 12 345", &["12 and 345"]),
            ),
            (
                "no-chunk",
                "nothing to be found in",
                figures("It has 3 doors.", &[]),
            ),
        ],
    )
}
