//! Tampering with what is stored, as a superuser behind the extension's back: verification names the step, the code,
//! the expected and the found. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use cortex_extension_tests::serving::{Random, ask, cortex_work, json, must_verify, put, verify};
use cortex_extension_tests::{Database, one};
use postgres::Client;
use serde_json::Value;

/// A corpus with one question asked about it, whose trace verifies.
fn asked(client: &mut Client) -> i64 {
    for (artifact, body) in [
        (
            "a",
            "The pressure valve closes at night. It opens in the morning.",
        ),
        (
            "b",
            "A pump feeds the boiler. The pressure is shown by a gauge.",
        ),
        ("c", "Every valve is checked each month by hand."),
        ("d", "The cable runs below the panel."),
    ] {
        put(client, artifact, body);
    }
    client
        .batch_execute("CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note VALUES (1, 'The valve of the row has a pressure gauge.'); SELECT cortex_bind('note')")
        .unwrap();
    cortex_work(client);
    let asked = ask(client, "pressure valve", "");
    assert!(
        asked.evidence.as_array().unwrap().len() >= 3,
        "{}",
        asked.evidence
    );
    must_verify(client, asked.id, "L4");
    asked.id
}

/// Does `tampering`, checks that verification fails with one of these (step, code) pairs, and undoes it.
fn caught(client: &mut Client, trace: i64, tampering: &str, expected: &[(&str, &str)]) {
    client.batch_execute("BEGIN").unwrap();
    let changed: u64 = client
        .execute(tampering, &[])
        .unwrap_or_else(|error| panic!("{tampering}: {error:?}"));
    assert!(changed > 0, "nothing was changed: {tampering}");
    let report = verify(client, trace);
    assert_eq!(report["ok"], false, "{tampering} went unseen");
    let told = (
        report["failed_step"].as_str().unwrap(),
        report["code"].as_str().unwrap(),
    );
    assert!(
        expected.contains(&told),
        "{tampering}: {told:?} instead of {expected:?}: {report:#}"
    );
    assert_eq!(report["outcome"], "failed");
    assert!(
        !report["expected"].as_str().unwrap().is_empty()
            && !report["found"].as_str().unwrap().is_empty(),
        "{report:#}"
    );
    assert_ne!(report["expected"], report["found"], "{report:#}");
    client.batch_execute("ROLLBACK").unwrap();
    must_verify(client, trace, "L4");
}

const EVIDENCE: &[(&str, &str)] = &[("evidence", "T_EVIDENCE")];
const REPLAY: &[(&str, &str)] = &[("replay", "T_REPLAY")];

#[test]
fn every_byte_of_a_stored_trace_counts() {
    let (_database, mut client) = Database::with_cortex();
    let trace = asked(&mut client);
    let body: String = one(&mut client, &format!("SELECT cortex_trace({trace})"));
    let mut random = Random::new(1);
    // Any other printable ASCII character at any place: by the ladder's order the first steps see it.
    let mut codes = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..400 {
        let at = random.below(body.len());
        let mut bytes = body.clone().into_bytes();
        let flipped = loop {
            let byte = b' ' + random.below(95) as u8;
            if byte != bytes[at] {
                break byte;
            }
        };
        bytes[at] = flipped;
        let text = String::from_utf8(bytes).unwrap();
        client
            .execute(
                "UPDATE cortex.trace SET body = $1 WHERE id = $2",
                &[&text, &trace],
            )
            .unwrap();
        let report = verify(&mut client, trace);
        assert_eq!(
            report["ok"], false,
            "byte {at} as {:?} went unseen: {text}",
            flipped as char
        );
        let by_text: String = client
            .query_one("SELECT cortex_verify($1)::text", &[&text])
            .unwrap()
            .get(0);
        let by_text: Value = serde_json::from_str(&by_text).unwrap();
        assert_eq!(by_text["ok"], false, "byte {at}");
        *codes
            .entry(report["code"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    assert!(
        codes.contains_key("T_ROOT")
            && codes.contains_key("T_PARSE")
            && codes.contains_key("T_STRUCT"),
        "{codes:?}"
    );
    client
        .execute(
            "UPDATE cortex.trace SET body = $1 WHERE id = $2",
            &[&body, &trace],
        )
        .unwrap();
    must_verify(&mut client, trace, "L4");
}

#[test]
fn a_cut_doubled_or_foreign_trace_is_told_apart() {
    let (_database, mut client) = Database::with_cortex();
    let trace = asked(&mut client);
    let body: String = one(&mut client, &format!("SELECT cortex_trace({trace})"));
    for (text, code) in [
        (String::new(), "T_PARSE"),
        (body[..body.len() - 1].to_owned(), "T_PARSE"),
        (format!("{body} "), "T_NONCANON"),
        (format!("{body}\n"), "T_NONCANON"),
        (format!("{body}{body}"), "T_PARSE"),
        (format!("{{\"answer\":0,{}", &body[1..]), "T_PARSE"),
        ("{}".to_owned(), "T_STRUCT"),
        ("null".to_owned(), "T_STRUCT"),
        ("[".repeat(100_000), "T_LIMIT"),
        (format!("\"{}\"", "x".repeat(9 << 20)), "T_LIMIT"),
    ] {
        let report: String = client
            .query_one("SELECT cortex_verify($1)::text", &[&text])
            .unwrap()
            .get(0);
        let report: Value = serde_json::from_str(&report).unwrap();
        let told = report["code"].as_str().unwrap_or("none");
        assert_eq!(report["ok"], false);
        assert_eq!(
            told,
            code,
            "{}: {}",
            &text.chars().take(60).collect::<String>(),
            report["found"]
        );
    }
    // The right text under the wrong question.
    let report = json(
        &mut client,
        &format!("cortex_verify({trace}, 'Another question')"),
    );
    assert_eq!(
        (&report["failed_step"], &report["code"]),
        (&"question".into(), &"T_QUESTION".into())
    );
    let report = json(
        &mut client,
        &format!("cortex_verify({trace}, 'pressure valve')"),
    );
    assert_eq!(
        (&report["ok"], &report["level"]),
        (&true.into(), &"L4".into())
    );
}

#[test]
fn stored_evidence_cannot_be_changed_unseen() {
    let (_database, mut client) = Database::with_cortex();
    let trace = asked(&mut client);
    let cited = "id IN (SELECT (e ->> 'item')::bigint FROM cortex.traces t, jsonb_array_elements(t.body -> 'evidence') e)";
    let ids: Vec<i64> = client
        .query(
            &format!("SELECT id FROM cortex.chunk WHERE {cited} ORDER BY id"),
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert!(ids.len() >= 3);
    for id in ids {
        for place in [1, 5, 20] {
            caught(
                &mut client,
                trace,
                &format!(
                    "UPDATE cortex.chunk SET body = overlay(body placing '#' from {place}) WHERE id = {id}"
                ),
                EVIDENCE,
            );
        }
        caught(
            &mut client,
            trace,
            &format!("UPDATE cortex.chunk SET body = body || ' ' WHERE id = {id}"),
            EVIDENCE,
        );
        caught(
            &mut client,
            trace,
            &format!("UPDATE cortex.chunk SET start_byte = start_byte + 1 WHERE id = {id}"),
            EVIDENCE,
        );
        caught(
            &mut client,
            trace,
            &format!("UPDATE cortex.chunk SET end_byte = end_byte + 1 WHERE id = {id}"),
            EVIDENCE,
        );
        caught(
            &mut client,
            trace,
            &format!(
                "UPDATE cortex.chunk SET leaf = set_byte(leaf, 7, get_byte(leaf, 7) # 1) WHERE id = {id}"
            ),
            &[("evidence", "T_EVIDENCE"), ("replay", "T_REPLAY")],
        );
        caught(
            &mut client,
            trace,
            &format!("UPDATE cortex.chunk SET leaf = '' WHERE id = {id}"),
            &[
                ("evidence", "T_EVIDENCE"),
                ("evidence", "T_FAULT"),
                ("replay", "T_REPLAY"),
                ("replay", "T_FAULT"),
            ],
        );
        caught(
            &mut client,
            trace,
            &format!("DELETE FROM cortex.chunk WHERE id = {id}"),
            EVIDENCE,
        );
        let version = format!("(SELECT version_id FROM cortex.chunk WHERE id = {id})");
        caught(
            &mut client,
            trace,
            &format!(
                "UPDATE cortex.source_version SET content_hash = set_byte(content_hash, 31, get_byte(content_hash, 31) # 128) WHERE id = {version}"
            ),
            EVIDENCE,
        );
        let source = format!("(SELECT source_id FROM cortex.source_version WHERE id = {version})");
        caught(
            &mut client,
            trace,
            &format!(
                "UPDATE cortex.source SET hash_key = set_byte(hash_key, 0, get_byte(hash_key, 0) # 1) WHERE id = {source}"
            ),
            EVIDENCE,
        );
        caught(
            &mut client,
            trace,
            &format!(
                "UPDATE cortex.source SET artifact_id = artifact_id || 'x' WHERE id = {source}"
            ),
            EVIDENCE,
        );
    }
    // A text swapped for another together with its leaf.
    caught(
        &mut client,
        trace,
        "UPDATE cortex.chunk c SET body = o.body, leaf = o.leaf FROM cortex.chunk o WHERE c.version_id = 1 AND o.version_id = 3",
        EVIDENCE,
    );
    // Texts behind the commitments.
    let count: i64 = one(&mut client, "SELECT count(*) FROM cortex.trace_text");
    assert!(count >= 4);
    for n in 0..count {
        let text = format!(
            "commitment = (SELECT commitment FROM cortex.trace_text ORDER BY commitment OFFSET {n} LIMIT 1)"
        );
        let expected = &[("evidence", "T_EVIDENCE"), ("replay", "T_EVIDENCE")];
        caught(
            &mut client,
            trace,
            &format!("UPDATE cortex.trace_text SET body = body || '.' WHERE {text}"),
            expected,
        );
        caught(
            &mut client,
            trace,
            &format!(
                "UPDATE cortex.trace_text SET salt = set_byte(salt, 3, get_byte(salt, 3) # 4) WHERE {text}"
            ),
            expected,
        );
        caught(
            &mut client,
            trace,
            &format!("DELETE FROM cortex.trace_text WHERE {text}"),
            expected,
        );
    }
}

#[test]
fn the_index_and_the_history_cannot_be_changed_unseen() {
    let (_database, mut client) = Database::with_cortex();
    let trace = asked(&mut client);
    let hit = "chunk_hits IS NOT NULL AND term IN ('valv', 'pressur', 'valve', 'pressure')";
    assert!(
        one::<i64>(
            &mut client,
            &format!("SELECT count(*) FROM cortex.posting WHERE {hit}")
        ) >= 6
    );
    // Packed hits: distance of the item, frequency, length.
    for (byte, version) in [(0, 1), (1, 1), (2, 3)] {
        let flip =
            format!("chunk_hits = set_byte(chunk_hits, {byte}, get_byte(chunk_hits, {byte}) # 1)");
        caught(
            &mut client,
            trace,
            &format!("UPDATE cortex.posting SET {flip} WHERE {hit} AND version_id = {version}"),
            &[REPLAY[0], ("replay", "T_FAULT")],
        );
    }
    for tampering in [
        "UPDATE cortex.posting SET chunk_hits = chunk_hits || '\x010101' WHERE version_id = 1 AND",
        "UPDATE cortex.posting SET chunk_hits = NULL WHERE version_id = 1 AND claim_hits IS NOT NULL AND",
        "UPDATE cortex.posting SET chunk_hits = claim_hits WHERE version_id = 1 AND",
        "UPDATE cortex.posting SET base_item = base_item + 1 WHERE version_id = 1 AND",
        "UPDATE cortex.posting SET namespace_id = 4711 WHERE version_id = 1 AND",
        "UPDATE cortex.posting SET term = term || 'x' WHERE version_id = 1 AND",
        "DELETE FROM cortex.posting WHERE version_id = 2 AND",
        "INSERT INTO cortex.posting (version_id, added_by, namespace_id, base_item, term, chunk_hits, claim_hits) SELECT version_id, added_by, namespace_id, base_item + 1, term, chunk_hits, claim_hits \
           FROM cortex.posting WHERE version_id = 1 AND",
    ] {
        caught(
            &mut client,
            trace,
            &format!("{tampering} {hit}"),
            &[REPLAY[0], ("replay", "T_FAULT")],
        );
    }
    // A version made to begin later, or to have ended earlier, than it did.
    caught(
        &mut client,
        trace,
        "UPDATE cortex.posting SET added_by = 4711 WHERE version_id = 1",
        REPLAY,
    );
    caught(
        &mut client,
        trace,
        "UPDATE cortex.source_version SET closed_by = opened_by WHERE id = 1",
        REPLAY,
    );
    caught(
        &mut client,
        trace,
        "UPDATE cortex.change SET seq = 1000000 WHERE id = (SELECT added_by FROM cortex.posting WHERE version_id = 2 LIMIT 1)",
        REPLAY,
    );
    // The corpus statistics of the seal that the trace was asked at.
    let last = "seq = (SELECT max(seq) FROM cortex.seal)";
    for column in ["chunk_count", "chunk_terms"] {
        caught(
            &mut client,
            trace,
            &format!("UPDATE cortex.seal SET {column} = {column} + 1 WHERE {last}"),
            REPLAY,
        );
    }
    caught(
        &mut client,
        trace,
        &format!("DELETE FROM cortex.seal WHERE {last}"),
        REPLAY,
    );
    // A hold slipped in at the recorded state.
    caught(
        &mut client,
        trace,
        "INSERT INTO cortex.hold (binding_id, reason, opened_by) SELECT 1, 'paused', min(id) FROM cortex.change",
        REPLAY,
    );
    // Bytes that are no key, no hash, no text of the kind expected give a report too.
    for tampering in [
        "UPDATE cortex.source_version SET content_hash = '\\x00' WHERE id = 1",
        "UPDATE cortex.chunk SET start_byte = 2147483646, end_byte = 2147483647 WHERE version_id = 1",
        "UPDATE cortex.posting SET chunk_hits = '\\xffffffffffffffffffff' WHERE version_id = 1",
        "UPDATE cortex.posting SET chunk_hits = '\\x00' WHERE version_id = 1",
        "UPDATE cortex.posting SET chunk_hits = '\\x00ffffffff0fffffffff0f' WHERE version_id = 1",
        "UPDATE cortex.posting SET base_item = 9223372036854775807 WHERE version_id = 1",
        "UPDATE cortex.posting SET base_item = -9223372036854775808 WHERE version_id = 1",
        "UPDATE cortex.seal SET chunk_count = 9223372036854775807, chunk_terms = 9223372036854775807",
        "UPDATE cortex.seal SET chunk_count = -1, chunk_terms = -1",
    ] {
        caught(
            &mut client,
            trace,
            tampering,
            &[
                ("evidence", "T_EVIDENCE"),
                ("evidence", "T_FAULT"),
                ("replay", "T_REPLAY"),
                ("replay", "T_FAULT"),
            ],
        );
    }
}

#[test]
fn a_stored_vector_cannot_be_changed_unseen() {
    use cortex_extension_tests::serving::{embed, text_vector, use_space, vector_literal};
    let (_database, mut client) = Database::with_cortex();
    asked(&mut client);
    use_space(&mut client, "m", 16);
    embed(&mut client);
    client.batch_execute("SELECT cortex_seal()").unwrap();
    let asked = ask(
        &mut client,
        "pressure valve",
        &format!("'{}'", vector_literal(&text_vector("pressure valve", 16))),
    );
    must_verify(&mut client, asked.id, "L4");
    caught(
        &mut client,
        asked.id,
        "UPDATE cortex.emb_1 SET embedding = (SELECT embedding FROM cortex.emb_1 WHERE version_id = 4 LIMIT 1) WHERE version_id = 1",
        REPLAY,
    );
    caught(
        &mut client,
        asked.id,
        "DELETE FROM cortex.emb_1 WHERE version_id = 1 AND target = 'k'",
        REPLAY,
    );
    caught(
        &mut client,
        asked.id,
        "UPDATE cortex.emb_1 SET embedding = array_fill(0, ARRAY[16])::vector WHERE version_id = 1",
        &[("replay", "T_REPLAY"), ("replay", "T_FAULT")],
    );
    caught(
        &mut client,
        asked.id,
        "UPDATE cortex.space SET digest = 'another'",
        &[("replay", "T_FAULT")],
    );
}
