//! What several tests of text share.

/// Strings that programs tend to mishandle; see `testdata/README.md`.
pub fn naughty_strings() -> Vec<String> {
    let strings: Vec<String> =
        serde_json::from_str(include_str!("../../testdata/naughty_strings.json"))
            .expect("the file is JSON");
    assert_eq!(strings.len(), 515);
    strings
}
