//! The tamper matrix through SQL: `cortex_verify(text)` refuses every single change to a trace, at the step and with
//! the code that the conformance library expects. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use cortex_conformance::attack::{Attack, Repair, on_trace};
use cortex_conformance::mutate::{Random, mutated};
use cortex_conformance::offline::{Given, check};
use cortex_core::verify::Report;
use cortex_extension_tests::serving::{ask, cortex_work, must_verify, put};
use cortex_extension_tests::{Database, one};
use postgres::Client;

/// Random changes beside the matrix.
const RANDOM: usize = 1_000;

fn trace(client: &mut Client) -> String {
    put(
        client,
        "a",
        "The pressure valve closes at night. It opens in the morning.",
    );
    put(
        client,
        "b",
        "A pump feeds the boiler. The pressure is shown by a gauge.",
    );
    put(client, "c", "Every valve is checked each month by hand.");
    cortex_work(client);
    let asked = ask(client, "pressure valve", "");
    must_verify(client, asked.id, "L4");
    one(client, &format!("SELECT cortex_trace({})", asked.id))
}

/// The reports of the extension, in the order of the texts.
fn reports(client: &mut Client, texts: &[String]) -> Vec<Report> {
    let mut all = Vec::with_capacity(texts.len());
    for texts in texts.chunks(500) {
        let sql = "SELECT cortex_verify(t)::text FROM unnest($1::text[]) WITH ORDINALITY AS u (t, n) ORDER BY n";
        for row in client.query(sql, &[&texts]).unwrap() {
            all.push(serde_json::from_str(row.get(0)).unwrap());
        }
    }
    assert_eq!(all.len(), texts.len());
    all
}

#[test]
fn sql_refuses_the_whole_tamper_matrix() {
    let (_database, mut client) = Database::with_cortex();
    let text = trace(&mut client);
    let attacks: Vec<Attack> = on_trace(&text)
        .unwrap()
        .filter(|attack| attack.repair != Repair::All)
        .collect();
    assert!(attacks.len() > 500, "{} changes", attacks.len());
    let texts: Vec<String> = attacks.iter().map(|attack| attack.text.clone()).collect();
    for (attack, report) in attacks.iter().zip(reports(&mut client, &texts)) {
        assert!(!report.ok, "{attack} was accepted");
        if let Err(error) = attack.expected.check(&report) {
            panic!("{attack}: {error}");
        }
    }
}

#[test]
fn sql_says_the_same_of_random_changes_as_a_verifier_without_it() {
    let (_database, mut client) = Database::with_cortex();
    let text = trace(&mut client);
    let mut random = Random::new(5);
    // A text of PostgreSQL is UTF-8 without NUL, which is the only difference in what can be asked.
    let changes = (0..RANDOM).map(|_| mutated(&text, &mut random));
    let changes = changes.filter(|change| !change.forged);
    let texts = changes.filter_map(|change| String::from_utf8(change.bytes).ok());
    let texts: Vec<String> = texts
        .filter(|changed| *changed != text && !changed.contains('\0'))
        .collect();
    for (changed, report) in texts.iter().zip(reports(&mut client, &texts)) {
        let alone = check(changed.as_bytes(), &Given::default());
        assert!(!report.ok, "accepted: {changed}");
        assert_eq!(
            (&report.failed_step, report.code),
            (&alone.failed_step, alone.code),
            "{changed}"
        );
    }
}
