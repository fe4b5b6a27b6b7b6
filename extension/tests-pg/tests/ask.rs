//! Questions, their quotes and what becomes of them. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use cortex_extension_tests::serving::{ask, cortex_work, json, must_verify, put};
use cortex_extension_tests::{Database, failure, one};
use postgres::Client;

#[test]
fn a_quote_is_the_bytes_of_its_span() {
    let (_database, mut client) = Database::with_cortex();
    let long = format!(
        "{} Das Ventil schließt um 12 Uhr — 価格は三百円です。 👩‍👩‍👧 {}",
        "Vorwort über Äpfel. ".repeat(80),
        "Nachwort. ".repeat(80)
    );
    client
        .batch_execute("CREATE TABLE note (id int PRIMARY KEY, head text, body text, foot text)")
        .unwrap();
    client
        .execute(
            "INSERT INTO note VALUES (1, 'Kopf', $1, NULL), (2, NULL, $2, E'Fuß\\r\\nzeile')",
            &[&long, &"Das Ventil\r\nist rot.\r\n\r\nEs schließt."],
        )
        .unwrap();
    client
        .batch_execute("SELECT cortex_bind('note', text_columns => '{head,body,foot}')")
        .unwrap();
    put(&mut client, "web:x", &long);
    cortex_work(&mut client);
    let asked = ask(
        &mut client,
        "Wann schließt das Ventil? 価格",
        "policy => '{\"excerpt_chars\": 60}'",
    );
    assert_eq!(asked.status, "ANSWERED");
    let evidence = asked.evidence.as_array().unwrap();
    assert!(evidence.len() >= 3);
    for item in evidence {
        let (artifact, quote) = (
            item["artifact_id"].as_str().unwrap(),
            item["quote"].as_str().unwrap(),
        );
        let text: String = match artifact {
            "row:note:[1]" => format!("Kopf\n\n{long}"),
            "row:note:[2]" => {
                "Das Ventil\r\nist rot.\r\n\r\nEs schließt.\n\nFuß\r\nzeile".to_owned()
            }
            _ => long.clone(),
        };
        let (start, end) = (
            item["start_byte"].as_u64().unwrap() as usize,
            item["end_byte"].as_u64().unwrap() as usize,
        );
        assert_eq!(&text[start..end], quote, "{artifact}");
        assert!(quote.chars().count() <= 60, "{quote}");
    }
    must_verify(&mut client, asked.id, "L4");
}

#[test]
fn a_policy_is_kept_and_one_over_the_caps_is_refused() {
    let (_database, mut client) = Database::with_cortex();
    for n in 0..40 {
        put(
            &mut client,
            &format!("s{n}"),
            &format!("The valve number {n} is closed."),
        );
    }
    cortex_work(&mut client);
    for (policy, evidence) in [
        ("{}", 12),
        ("{\"max_evidence\": 1}", 1),
        ("{\"max_evidence\": 32}", 32),
        ("{\"max_candidates\": 5}", 5),
        ("{\"max_candidates\": 200, \"max_evidence\": 20}", 20),
    ] {
        let asked = ask(&mut client, "valve", &format!("policy => '{policy}'"));
        assert_eq!(
            asked.evidence.as_array().unwrap().len(),
            evidence,
            "{policy}"
        );
        must_verify(&mut client, asked.id, "L4");
    }
    for policy in [
        "{\"max_evidence\": 33}",
        "{\"max_evidence\": 0}",
        "{\"max_candidates\": 201}",
        "{\"max_rounds\": 9}",
        "{\"excerpt_chars\": 501}",
        "{\"max_evidence\": null}",
        "{\"max_evidence\": \"5\"}",
        "{\"max_evidence\": 1.5}",
        "{\"Max_evidence\": 5}",
        "[]",
        "null",
    ] {
        let (code, text) = failure(
            &mut client,
            &format!("SELECT cortex_ask('valve', policy => '{policy}')"),
        );
        assert_eq!(code, "22023", "{policy}: {text}");
    }
    assert_eq!(
        failure(
            &mut client,
            "SELECT cortex_ask('valve', mode => 'prove_or_abstain')"
        )
        .0,
        "0A000"
    );
    // The same question under another policy is another trace.
    assert!(!ask(&mut client, "valve", "policy => '{\"max_evidence\": 3}'").already);
}

#[test]
fn nothing_found_is_said_and_recorded() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute("SELECT cortex_create_namespace('default')")
        .unwrap();
    for (moment, question) in [
        ("empty", "valve"),
        ("stop words", "of the and"),
        ("signs", "?!… ()"),
        ("nothing", ""),
    ] {
        let asked = ask(&mut client, question, "");
        assert_eq!(
            (asked.status.as_str(), &asked.evidence),
            ("INSUFFICIENT_EVIDENCE", &serde_json::json!([])),
            "{moment}"
        );
        must_verify(&mut client, asked.id, "L4");
    }
    put(&mut client, "a", "A pump.");
    let asked = ask(&mut client, "valve", "");
    assert_eq!(asked.status, "INSUFFICIENT_EVIDENCE");
    must_verify(&mut client, asked.id, "L4");
    // The proof that nothing was found holds on after something is there.
    put(&mut client, "b", "A valve.");
    cortex_work(&mut client);
    must_verify(&mut client, asked.id, "L4");
    assert_eq!(ask(&mut client, "valve", "").status, "ANSWERED");
}

#[test]
fn drift_names_what_became_of_each_quote() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute("CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note SELECT g, 'The valve of row ' || g || '.' FROM generate_series(1, 4) g; SELECT cortex_bind('note')")
        .unwrap();
    cortex_work(&mut client);
    let asked = ask(&mut client, "valve row", "");
    let fates = |client: &mut postgres::Client| -> Vec<(String, String)> {
        let drift = json(client, &format!("cortex_drift({})", asked.id));
        let mut fates: Vec<(String, String)> = drift["evidence"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                (
                    item["artifact_id"].as_str().unwrap().to_owned(),
                    item["now"].as_str().unwrap().to_owned(),
                )
            })
            .collect();
        fates.sort();
        assert_eq!(
            drift["evidence_changed"],
            fates.iter().filter(|(_, now)| now != "unchanged").count()
        );
        fates
    };
    let all = |now: [&str; 4]| -> Vec<(String, String)> {
        (1..=4)
            .zip(now)
            .map(|(n, now)| (format!("row:note:[{n}]"), now.to_owned()))
            .collect()
    };
    assert_eq!(fates(&mut client), all(["unchanged"; 4]));
    client.batch_execute("UPDATE note SET body = 'The valve of row 1 is new.' WHERE id = 1; DELETE FROM note WHERE id = 2").unwrap();
    assert_eq!(
        fates(&mut client),
        all(["superseded", "deleted", "unchanged", "unchanged"])
    );
    cortex_work(&mut client);
    let drift = json(&mut client, &format!("cortex_drift({})", asked.id));
    assert_eq!(
        (
            &drift["rounds"][0]["still_found"],
            &drift["rounds"][0]["left"]
        ),
        (&2.into(), &2.into()),
        "{drift:#}"
    );
    let superseding = &drift["evidence"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["artifact_id"] == "row:note:[1]")
        .unwrap()["superseded_by"];
    let current: i64 = one(
        &mut client,
        "SELECT v.id FROM cortex.source_version v JOIN cortex.source s ON s.id = v.source_id WHERE s.artifact_id = 'row:note:[1]' AND v.closed_by IS NULL",
    );
    assert_eq!(superseding, current);
    client.batch_execute("SELECT cortex_pause('note')").unwrap();
    assert_eq!(
        fates(&mut client),
        all(["superseded", "deleted", "held", "held"])
    );
    must_verify(&mut client, asked.id, "L4");
}

#[test]
fn too_many_unnumbered_changes_are_no_state_to_record() {
    let (_database, mut client) = Database::with_cortex();
    for n in 0..3 {
        put(
            &mut client,
            &format!("s{n}"),
            &format!("The valve says {n}."),
        );
    }
    // Changes of other transactions, as 10,000 sessions would leave them.
    let more = |client: &mut Client, n: i32, from: i32| {
        client
            .execute(
                "INSERT INTO cortex.change (namespace_id, xact, cluster) \
                 SELECT 1, (10000000 + g)::text::xid8, 1 FROM generate_series($2::int4, $2 + $1 - 1) g",
                &[&n, &from],
            )
            .unwrap()
    };
    more(&mut client, 9_997, 0);
    // Just inside: each change is named.
    let asked = ask(&mut client, "valve", "");
    must_verify(&mut client, asked.id, "L4");
    let receipts = "SELECT (SELECT receipt FROM cortex_search('valve') LIMIT 1) IS NOT NULL \
                       AND (SELECT receipt FROM cortex_read('valve')) IS NOT NULL";
    assert!(one::<bool>(&mut client, receipts));
    more(&mut client, 1, 9_997);
    assert!(
        !one::<bool>(&mut client, receipts),
        "a state that cannot be named is not named in part"
    );
    let (code, text) = failure(&mut client, "SELECT cortex_ask('valve')");
    assert!(
        code == "55000" && text.contains("cortex_seal"),
        "{code}: {text}"
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_search('valve')"),
        3,
        "reading goes on"
    );
    client.batch_execute("SELECT cortex_seal()").unwrap();
    let asked = ask(&mut client, "valve", "");
    must_verify(&mut client, asked.id, "L4");
    must_verify(&mut client, 1, "L4");
}
