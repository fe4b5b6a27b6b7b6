//! Hashes: written form, separation by context, key and field.

use std::collections::HashSet;

use cortex_core::hash::{
    Context, Hash, Leaf, Salt, Target, commit, content_hash, digest, equality_digest, keyed_digest,
    text_hash,
};
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_hash_survives_its_text(bytes in any::<[u8; 32]>()) {
        let hash = Hash(bytes);
        prop_assert_eq!(hash.to_string().parse::<Hash>().unwrap(), hash);
        prop_assert_eq!(serde_json::from_str::<Hash>(&serde_json::to_string(&hash).unwrap()).unwrap(), hash);
        let salt = Salt(bytes);
        prop_assert_eq!(salt.to_string().parse::<Salt>().unwrap(), salt);
    }

    #[test]
    fn no_other_text_is_a_hash(text in "(b3:)?[0-9a-fA-F]{62,66}|.{0,70}") {
        let lower = text.strip_prefix("b3:").is_some_and(|digits| {
            digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        });
        prop_assert_eq!(text.parse::<Hash>().is_ok(), lower);
    }

    #[test]
    fn contents_differ_where_the_columns_do(
        a in prop::collection::vec(prop::option::of("[ab\",]{0,3}"), 0..4),
        b in prop::collection::vec(prop::option::of("[ab\",]{0,3}"), 0..4),
    ) {
        let hash = |texts: &[Option<String>]| {
            let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
            content_hash(&[1; 32], &texts)
        };
        prop_assert_eq!(hash(&a) == hash(&b), a == b);
    }
}

#[test]
fn every_context_is_distinct_and_hashes_apart() {
    let names: HashSet<&str> = Context::ALL
        .iter()
        .map(|context| context.as_str())
        .collect();
    assert_eq!(names.len(), Context::ALL.len());
    let hashes: HashSet<Hash> = Context::ALL.map(|context| digest(context, b"same")).into();
    assert_eq!(hashes.len(), Context::ALL.len());
    for context in Context::ALL {
        assert_eq!(Context::from_name(context.as_str()), Some(context));
        assert!(context.as_str().starts_with("cortex ") && context.as_str().ends_with(" v1"));
    }
    assert_eq!(Context::from_name("cortex other v1"), None);
}

#[test]
fn a_keyed_digest_is_the_key_in_front_of_the_bytes() {
    let joined = [[9u8; 32].as_slice(), b"text"].concat();
    assert_eq!(
        keyed_digest(Context::Text, &[9; 32], b"text"),
        digest(Context::Text, &joined)
    );
}

#[test]
fn keys_and_roles_keep_equal_texts_apart() {
    let hashes: HashSet<Hash> = [
        content_hash(&[1; 32], &[Some("x")]),
        content_hash(&[2; 32], &[Some("x")]),
        equality_digest(&[1; 32], &[Some("x")]),
        text_hash(&[1; 32], "x"),
        commit(&Salt([1; 32]), "x"),
        Hash(Salt::derived(&[1; 32], "x").0),
        content_hash(&[1; 32], &[]),
        content_hash(&[1; 32], &[None]),
        content_hash(&[1; 32], &[Some("")]),
        content_hash(&[1; 32], &[None, None]),
        content_hash(&[1; 32], &[Some("null")]),
    ]
    .into();
    assert_eq!(hashes.len(), 11);
}

#[test]
fn each_field_of_a_leaf_enters_its_hash() {
    let leaf = Leaf {
        kind: Target::Chunk,
        item: 1,
        artifact: "row:t:{\"id\":1}",
        version: 2,
        content: Hash([3; 32]),
        start: 4,
        end: 9,
    };
    let hashes: HashSet<Hash> = [
        leaf.clone(),
        Leaf {
            kind: Target::Claim,
            ..leaf
        },
        Leaf { item: 2, ..leaf },
        Leaf {
            artifact: "row:t:{\"id\":2}",
            ..leaf
        },
        Leaf { version: 3, ..leaf },
        Leaf {
            content: Hash([4; 32]),
            ..leaf
        },
        Leaf { start: 5, ..leaf },
        Leaf { end: 10, ..leaf },
    ]
    .iter()
    .map(|leaf| leaf.hash(&[0; 32], "text").unwrap())
    .chain([
        leaf.hash(&[0; 32], "Text").unwrap(),
        leaf.hash(&[1; 32], "text").unwrap(),
    ])
    .collect();
    assert_eq!(hashes.len(), 10);
    assert!(
        Leaf {
            item: i64::MAX,
            ..leaf
        }
        .hash(&[0; 32], "text")
        .is_err()
    );
}
