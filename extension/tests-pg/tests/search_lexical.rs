//! Search by words: quoted phrases in every mode, titles and dates, repeats, and replay by the algorithms that a
//! trace names. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use std::collections::BTreeSet;

use cortex_core::trace::Trace;
use cortex_extension_tests::serving::{
    Random, WORDS, ask, cortex_work, embed, embed_with, must_verify, put, text_vector, use_space,
    vector_literal,
};
use cortex_extension_tests::{Database, one};
use postgres::Client;
use serde_json::Value;

const DIMS: usize = 8;

fn space(client: &mut Client) {
    client
        .query_one("SELECT cortex_create_namespace('default')", &[])
        .unwrap();
    use_space(client, "m", DIMS);
}

/// The artifacts that a search finds, and its receipt.
fn found(client: &mut Client, query: &str, mode: &str, k: i32) -> (Vec<String>, Option<Value>) {
    let vector = vector_literal(&text_vector(query, DIMS));
    let rows = client
        .query(
            &format!(
                "SELECT artifact_id, receipt FROM cortex_search($1, '{vector}', {k}, mode => '{mode}') ORDER BY rank"
            ),
            &[&query],
        )
        .unwrap_or_else(|error| panic!("{query}: {error:?}"));
    let receipt = rows.first().map(|row| {
        let text: String = row.get(1);
        serde_json::from_str(&text).expect("a receipt is JSON")
    });
    (rows.iter().map(|row| row.get(0)).collect(), receipt)
}

fn set(items: &[&str]) -> BTreeSet<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

#[test]
fn a_phrase_is_a_condition_in_every_mode_and_at_replay() {
    let (_database, mut client) = Database::with_cortex();
    space(&mut client);
    for (artifact, body) in [
        ("row", "The bank of the river floods each spring."),
        ("of", "A river of the bank of papers."),
        ("gap", "The bank, a river and the spring."),
        ("case", "At THE BANK OF THE RIVER a house stands."),
        ("far", "Nothing of the kind."),
    ] {
        put(&mut client, artifact, body);
    }
    cortex_work(&mut client);
    embed(&mut client);
    let query = "what of “bank of the river” in spring";
    for mode in ["lexical", "vector", "hybrid", "auto"] {
        let (artifacts, receipt) = found(&mut client, query, mode, 10);
        let artifacts: BTreeSet<String> = artifacts.into_iter().collect();
        assert_eq!(artifacts, set(&["row", "case"]), "{mode}");
        let receipt = receipt.unwrap();
        assert_eq!(receipt["ranker"], "cortex-bm25/2");
        assert_eq!(receipt["total_matched"], 2, "{mode}: {receipt}");
        assert_eq!(receipt["cut"], "none", "{mode}");
        if mode != "lexical" {
            assert_eq!(receipt["nominator"], "exact", "{mode}");
        }
    }
    // Words in quotes that stand in no row find nothing, though each is there.
    for mode in ["lexical", "vector", "hybrid"] {
        assert_eq!(
            found(&mut client, "\"spring bank\"", mode, 10).0.len(),
            0,
            "{mode}"
        );
        assert_eq!(
            found(&mut client, "\"bank\" \"xyzzy\"", mode, 10).0.len(),
            0,
            "{mode}"
        );
    }
    // Of stop words only: no index knows them, and the vectors' candidates are held to it.
    let (artifacts, receipt) = found(&mut client, "\"of the\"", "vector", 10);
    assert_eq!(
        artifacts.into_iter().collect::<BTreeSet<_>>(),
        set(&["row", "of", "case", "far"])
    );
    assert_eq!(receipt.unwrap()["total_matched"], 4);
    // An open quote asks for nothing.
    assert_eq!(found(&mut client, "\"bank of", "lexical", 10).0.len(), 4);

    let vector = vector_literal(&text_vector(query, DIMS));
    let asked = [String::new(), format!("query_embedding => '{vector}'")]
        .map(|arguments| ask(&mut client, query, &arguments));
    put(&mut client, "later", "The bank of the river again.");
    cortex_work(&mut client);
    for asked in asked {
        assert_eq!(asked.evidence.as_array().unwrap().len(), 2);
        must_verify(&mut client, asked.id, "L4");
    }
}

/// Against the definition, on texts in which each word is its own stem.
#[test]
fn random_phrases_find_the_rows_that_hold_them() {
    let (_database, mut client) = Database::with_cortex();
    space(&mut client);
    client
        .batch_execute(
            "CREATE TABLE note (id text PRIMARY KEY, body text); SELECT cortex_bind('note')",
        )
        .unwrap();
    let mut random = Random::new(11);
    // Few words, so that phrases are often there.
    let words = &WORDS[..5];
    let texts: Vec<Vec<&str>> = (0..200)
        .map(|_| {
            (0..3 + random.below(10))
                .map(|_| *random.of(words))
                .collect()
        })
        .collect();
    for (n, text) in texts.iter().enumerate() {
        client
            .execute(
                "INSERT INTO note VALUES ($1, $2)",
                &[&n.to_string(), &text.join(" ")],
            )
            .unwrap();
    }
    cortex_work(&mut client);
    embed(&mut client);
    let mut hits = 0;
    for round in 0..60 {
        let phrases: Vec<Vec<&str>> = (0..1 + random.below(2))
            .map(|_| {
                (0..1 + random.below(4))
                    .map(|_| *random.of(words))
                    .collect()
            })
            .collect();
        let quoted: Vec<String> = phrases
            .iter()
            .map(|phrase| format!("\"{}\"", phrase.join(" ")))
            .collect();
        let query = format!("{} {}", random.of(words), quoted.join(" "));
        let expected: BTreeSet<String> = (0..texts.len())
            .filter(|&n| {
                phrases.iter().all(|phrase| {
                    texts[n]
                        .windows(phrase.len())
                        .any(|window| window == phrase.as_slice())
                })
            })
            .map(|n| n.to_string())
            .collect();
        hits += expected.len();
        let mode = ["lexical", "vector", "hybrid"][round % 3];
        let (artifacts, receipt) = found(&mut client, &query, mode, 1000);
        let artifacts: BTreeSet<String> = artifacts
            .iter()
            .map(|artifact| artifact.chars().filter(char::is_ascii_digit).collect())
            .collect();
        assert_eq!(artifacts, expected, "{mode}: {query}");
        if let Some(receipt) = receipt {
            assert_eq!(receipt["total_matched"], expected.len(), "{mode}: {query}");
        }
    }
    assert!(hits > 200, "the phrases were hardly ever there: {hits}");
}

/// Texts are read up to a limit. What lies beyond is not served, and the receipt says that there may be more.
#[test]
fn what_was_not_read_is_said() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, body text); \
             INSERT INTO note SELECT g, 'pump valve pump' FROM generate_series(1, 2001) g; \
             INSERT INTO note VALUES (0, 'a gauge, then a valve, then a pump, with a long tail of other words'); \
             INSERT INTO note VALUES (-1, 'nozzle rotor'); \
             SELECT cortex_bind('note', text_columns => '{body}')",
        )
        .unwrap();
    cortex_work(&mut client);
    let told = |client: &mut Client, query: &str| {
        let (artifacts, receipt) = found(client, query, "lexical", 1);
        (
            artifacts.len(),
            receipt.map(|r| (r["total_matched"].as_u64().unwrap(), r["cut"].clone())),
        )
    };
    // 2,000 are read and hold it, two are not read: one of them holds it.
    assert_eq!(
        told(&mut client, "\"pump valve\""),
        (1, Some((2002, "cap".into())))
    );
    let (artifacts, receipt) = found(&mut client, "\"pump valve\"", "lexical", 1000);
    assert_eq!(
        (artifacts.len(), receipt.unwrap()["total_matched"].as_u64()),
        (1000, Some(2002))
    );
    // A further word makes the row that holds both the first of those with all words of the phrase.
    assert_eq!(
        told(&mut client, "\"valve, then a pump\" gauge"),
        (1, Some((3, "cap".into())))
    );
    assert_eq!(
        told(&mut client, "\"nozzle rotor\""),
        (1, Some((1, "none".into())))
    );

    let long = format!("\"{}\"", "valve ".repeat(65));
    let error = client
        .query("SELECT * FROM cortex_search($1)", &[&long])
        .unwrap_err();
    let said = error.as_db_error().unwrap().message().to_owned();
    assert!(said.contains("65 words") && said.contains("64"), "{said}");
}

#[test]
fn titles_and_dates_are_found_and_embedded() {
    let (_database, mut client) = Database::with_cortex();
    space(&mut client);
    client
        .batch_execute(
            "SELECT cortex_source_put('a', 'She went to the lake.', 'Holidays', NULL, '8 May, 2023'); \
             SELECT cortex_source_put('b', 'She went to the sea.', 'Work', NULL, '9 June, 2023'); \
             CREATE TABLE talk (id int PRIMARY KEY, body text, said date); \
             INSERT INTO talk VALUES (1, 'He stayed at home.', '2021-03-04'); \
             SELECT cortex_bind('talk', text_columns => '{body}', date_column => 'said')",
        )
        .unwrap();
    cortex_work(&mut client);
    let mut texts = Vec::new();
    embed_with(&mut client, |text, dims| {
        texts.push(text.to_owned());
        text_vector(text, dims)
    });
    assert!(
        texts.contains(&"[8 May, 2023] Holidays\nShe went to the lake.".to_owned()),
        "{texts:?}"
    );
    assert!(
        texts.contains(&"[2021-03-04] He stayed at home.".to_owned()),
        "{texts:?}"
    );
    for (query, artifact) in [
        ("May", "a"),
        ("june", "b"),
        ("holiday", "a"),
        ("2021-03-04", "talk"),
    ] {
        let (artifacts, _) = found(&mut client, query, "lexical", 10);
        assert!(
            artifacts.len() == 1 && artifacts[0].contains(artifact),
            "{query}: {artifacts:?}"
        );
    }
    // A phrase is looked for in the text, which is what can be quoted.
    assert_eq!(found(&mut client, "\"holidays\"", "lexical", 10).0.len(), 0);
}

#[test]
fn repeats_give_their_place_to_the_next() {
    let (_database, mut client) = Database::with_cortex();
    let long = "The committee met in the town hall and decided after a long debate, in which every member spoke, that the bridge over \
        the northern branch of the river shall be rebuilt in stone, that the toll house shall stay where it is, and that the work begins soon";
    for (artifact, body) in [
        ("a", format!("{long}.")),
        ("b", format!("{}!", long.to_uppercase())),
        ("c", format!("{long}, for 900 pounds.")),
        ("d", format!("{long}, for 950 pounds.")),
        ("e", "A debate about a bridge.".to_owned()),
        ("f", "A bridge.".to_owned()),
    ] {
        put(&mut client, artifact, &body);
    }
    cortex_work(&mut client);
    let mut listed = |more: &str, k: i32| -> Vec<String> {
        let sql = format!(
            "SELECT artifact_id FROM cortex_search('long debate bridge stone', k => {k}{more}) ORDER BY rank"
        );
        client
            .query(&sql, &[])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect()
    };
    let all = listed("", 10);
    assert_eq!(all.len(), 6);
    assert_eq!(listed(", leave_out_repeats => false", 10), all);
    let distinct = listed(", leave_out_repeats => true", 10);
    // Of a and b the better one is kept; another sum is another statement.
    let kept: Vec<String> = {
        let first = all.iter().find(|id| *id == "a" || *id == "b").unwrap();
        all.iter()
            .filter(|id| (*id != "a" && *id != "b") || *id == first)
            .cloned()
            .collect()
    };
    assert_eq!(distinct, kept);
    // The list is filled up.
    for k in 1..=5 {
        assert_eq!(listed(", leave_out_repeats => true", k), kept[..k as usize]);
    }
}

/// A trace as another version would have made it: changed, with its roots made anew.
fn remade(text: &str, change: impl FnOnce(&mut Trace)) -> String {
    let mut trace = Trace::from_text(text).unwrap();
    change(&mut trace);
    trace.roots = trace.compute_roots().unwrap();
    trace.to_text().unwrap()
}

fn old(trace: &mut Trace) {
    trace.ranker = "cortex-bm25/1".into();
    for round in &mut trace.rounds {
        round.receipt.ranker = "cortex-bm25/1".into();
        round.receipt.fusion = "cortex-rrf/1".into();
        round.receipt.params.rrf_k = 60;
    }
}

#[test]
fn a_replay_runs_by_the_algorithms_that_the_trace_names() {
    let (_database, mut client) = Database::with_cortex();
    for (artifact, body) in [
        ("a", "The valve closes at night."),
        ("b", "At night the valve is shut."),
        ("c", "A pump works by night."),
    ] {
        put(&mut client, artifact, body);
    }
    cortex_work(&mut client);
    let level = |report: &Value| (report["ok"].clone(), report["level"].clone());
    // To the first ranker quotes meant nothing: the same words without them rank the same.
    let trace_of = |client: &mut Client, question: &str| -> String {
        let asked = ask(client, question, "");
        one(client, &format!("SELECT cortex_trace({})", asked.id))
    };
    let unquoted = trace_of(&mut client, "the valve at night");
    let quoted = trace_of(&mut client, "the \"valve closes\" at night");
    let mut told = |text: &str| -> Value {
        let report: String = client
            .query_one("SELECT cortex_verify($1::text)::text", &[&text])
            .unwrap()
            .get(0);
        serde_json::from_str(&report).unwrap()
    };
    assert_eq!(level(&told(&unquoted)), (true.into(), "L4".into()));
    assert_eq!(level(&told(&quoted)), (true.into(), "L4".into()));
    let report = told(&remade(&unquoted, old));
    assert_eq!(level(&report), (true.into(), "L4".into()), "{report:#}");
    // By the first ranker the quoted question would have found all three: this is not its trace.
    let report = told(&remade(&quoted, old));
    assert_eq!(report["ok"], false);
    assert_eq!(
        (report["failed_step"].as_str(), report["code"].as_str()),
        (Some("replay"), Some("T_REPLAY")),
        "{report:#}"
    );
    // Parameters that the named algorithms do not have.
    for change in [
        (|trace: &mut Trace| trace.rounds[0].receipt.params.rrf_k = 60) as fn(&mut Trace),
        |trace| trace.rounds[0].receipt.params.k1_milli = 900,
        |trace| trace.rounds[0].receipt.params.b_milli = 400,
    ] {
        let report = told(&remade(&unquoted, change));
        assert_eq!(report["ok"], false);
        assert_eq!(report["failed_step"], "replay", "{report:#}");
    }
    // And names that no version has.
    let report = told(&remade(&unquoted, |trace| {
        trace.ranker = "cortex-bm25/9".into();
        trace.rounds[0].receipt.ranker = "cortex-bm25/9".into();
    }));
    assert_eq!(report["code"], "T_VERSION", "{report:#}");
}
