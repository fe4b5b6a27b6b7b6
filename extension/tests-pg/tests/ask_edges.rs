//! Where an ask ends: wrong input, what was not shown, other roles, other states. Needs a server in CORTEX_TEST_PG18_URL
//! or CORTEX_TEST_PG16_URL.

use cortex_extension_tests::asks::{answer, close, corpus, list, open, round, select};
use cortex_extension_tests::serving::{Role, cortex_work, json, must_verify, put};
use cortex_extension_tests::{Database, bind, failure, one};
use postgres::Client;
use serde_json::json;

#[test]
fn a_statement_that_is_changed_afterwards_is_found() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let ask = open(&mut client, "closes at 12 bar", "'evidence_answer'");
    round(&mut client, ask);
    select(&mut client, ask, 0, None);
    answer(
        &mut client,
        ask,
        Some("It closes at 12 bar."),
        json!(["It closes at 12 bar."]),
        json!([{"statement": 1, "n": 1, "quote": "closes at 12 bar"}]),
        None,
    );
    let closed = close(&mut client, ask);
    assert_eq!(closed.status, "ANSWERED");
    must_verify(&mut client, closed.trace, "L4");
    client
        .batch_execute("UPDATE cortex.trace_text SET body = 'It closes at 13 bar.' WHERE body = 'It closes at 12 bar.'")
        .unwrap();
    let report = json(&mut client, &format!("cortex_verify({})", closed.trace));
    assert_eq!(
        (&report["ok"], &report["level"], &report["failed_step"]),
        (&json!(false), &json!("L0"), &json!("answer"))
    );
}

#[test]
fn what_was_not_shown_is_unbound() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let ask = open(&mut client, "valve closes at 12 bar", "'evidence_answer'");
    let seen = round(&mut client, ask);
    let outside: i64 = one(&mut client, "SELECT max(id) + 1000 FROM cortex.chunk");
    // A chunk of the same namespace that this round did not show.
    let unseen: i64 = one(
        &mut client,
        "SELECT id FROM cortex.chunk WHERE body LIKE '%gasket%'",
    );
    assert!(seen.iter().all(|(id, _)| *id != unseen));
    for ids in [
        vec![outside],
        vec![unseen],
        vec![seen[0].0, unseen],
        vec![0],
        vec![-1],
    ] {
        let (code, text) = failure(
            &mut client,
            &format!("SELECT cortex_ask_select({ask}, 0, '{{{}}}')", list(&ids)),
        );
        assert_eq!(code, "22023");
        assert!(text.starts_with("CORTEX_MODEL_UNBOUND"), "{text}");
    }
    select(&mut client, ask, 0, Some(&[seen[0].0]));
    for citation in [
        json!({"statement": 1, "item": seen[1].0}),
        json!({"statement": 1, "item": unseen}),
        json!({"statement": 1, "n": 0}),
        json!({"statement": 1, "n": 2}),
        json!({"statement": 1, "n": -1}),
    ] {
        let (code, text) = failure(
            &mut client,
            &format!("SELECT cortex_ask_answer({ask}, 'x', '[\"x\"]', '[{citation}]')"),
        );
        assert_eq!(code, "22023");
        assert!(text.starts_with("CORTEX_MODEL_UNBOUND"), "{text}");
    }
    // The ask is where it was: what is right goes on.
    answer(
        &mut client,
        ask,
        Some("It closes at 12 bar."),
        json!(["It closes at 12 bar."]),
        json!([{"statement": 1, "item": seen[0].0}]),
        None,
    );
    assert_eq!(close(&mut client, ask).status, "ANSWERED");
}

#[test]
fn wrong_input_says_what_is_wrong() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    for (call, code) in [
        ("cortex_ask_open(NULL)", "22004"),
        ("cortex_ask_open('x', 'guess')", "22023"),
        ("cortex_ask_open('x', 'prove_or_abstain')", "0A000"),
        (
            "cortex_ask_open('x', policy => '{\"max_rounds\": 9}')",
            "22023",
        ),
        (
            "cortex_ask_open('x', policy => '{\"max_rounds\": 0}')",
            "22023",
        ),
        (
            "cortex_ask_open('x', policy => '{\"quote\": \"loose\"}')",
            "22023",
        ),
        (
            "cortex_ask_open('x', policy => '{\"retrieval\": \"magic\"}')",
            "22023",
        ),
        (
            "cortex_ask_open('x', policy => '{\"allow_abstain\": 1}')",
            "22023",
        ),
        ("cortex_ask_open('x', policy => '{\"rounds\": 1}')", "22023"),
        ("cortex_ask_open('x', namespace => 'nowhere')", "42704"),
        ("cortex_ask_open('x', 'coverage_review')", "22023"),
        ("cortex_ask_open('x', sub_questions => '{x}')", "22023"),
        ("cortex_ask_open('x', sub_questions => '{a,a}')", "22023"),
        ("cortex_ask_open('x', sub_questions => '{a,NULL}')", "22004"),
        (
            "cortex_ask_open('x', query_embedding => '[1,2]', policy => '{\"retrieval\": \"vector\"}')",
            "55000",
        ),
        ("cortex_ask_round(98)", "42704"),
        ("cortex_ask_round(NULL)", "22004"),
        ("cortex_ask_close(99)", "42704"),
        ("cortex_ask_abandon(99)", "42704"),
    ] {
        // A retrieval by vector without a space is found when the round is run.
        let (found, text) = if call.contains("vector\"}") {
            let ask = open(&mut client, "x", "policy => '{\"retrieval\": \"vector\"}'");
            failure(
                &mut client,
                &format!("SELECT * FROM cortex_ask_round({ask}, '[1,2]')"),
            )
        } else {
            failure(&mut client, &format!("SELECT {call}"))
        };
        assert_eq!(found, code, "{call}: {text}");
    }
    let ask = open(&mut client, "valve", "'evidence_answer'");
    let failing = |client: &mut Client, call: &str, code: &str| {
        let (found, text) = failure(client, &format!("SELECT {call}"));
        assert_eq!(found, code, "{call}: {text}");
    };
    failing(
        &mut client,
        &format!("cortex_ask_select({ask}, 0)"),
        "55000",
    );
    failing(&mut client, &format!("cortex_ask_close({ask})"), "55000");
    failing(
        &mut client,
        &format!("cortex_ask_refine({ask}, 'a', 'b')"),
        "55000",
    );
    failing(
        &mut client,
        &format!("cortex_ask_answer({ask}, 'a')"),
        "55000",
    );
    round(&mut client, ask);
    failing(&mut client, &format!("cortex_ask_round({ask})"), "55000");
    failing(&mut client, &format!("cortex_ask_close({ask})"), "55000");
    failing(
        &mut client,
        &format!("cortex_ask_select({ask}, 1)"),
        "22023",
    );
    failing(
        &mut client,
        &format!("cortex_ask_select({ask}, 0, '{{NULL}}')"),
        "22004",
    );
    for model in [
        "[]",
        "{}",
        "{\"name\": \"m\"}",
        "{\"name\": \"\", \"input\": \"\", \"output\": \"\"}",
        "{\"name\": \"m\", \"input\": \"i\", \"output\": 1}",
        "{\"name\": \"m\", \"input\": \"i\", \"output\": \"o\", \"sharpness\": 1}",
    ] {
        failing(
            &mut client,
            &format!("cortex_ask_select({ask}, 0, model => '{model}')"),
            "22023",
        );
    }
    let long = format!(
        "cortex_ask_select({ask}, 0, model => jsonb_build_object('name', 'm', 'input', repeat('x', 131073), 'output', ''))"
    );
    failing(&mut client, &long, "54000");
    select(&mut client, ask, 0, None);
    failing(
        &mut client,
        &format!("cortex_ask_refine({ask}, ' ', 'gap')"),
        "22023",
    );
    for (statements, citations) in [
        ("{}", "[]"),
        ("[1]", "[]"),
        ("[\" \"]", "[]"),
        ("[\"x\"]", "{}"),
        ("[\"x\"]", "[1]"),
        ("[\"x\"]", "[{\"n\": 1}]"),
        ("[\"x\"]", "[{\"statement\": 2, \"n\": 1}]"),
        ("[\"x\"]", "[{\"statement\": 0, \"n\": 1}]"),
        ("[\"x\"]", "[{\"statement\": 1}]"),
        ("[\"x\"]", "[{\"statement\": 1, \"n\": 1, \"item\": 1}]"),
        ("[\"x\"]", "[{\"statement\": 1, \"n\": 1.5}]"),
        ("[\"x\"]", "[{\"statement\": 1, \"n\": 1, \"quote\": 1}]"),
        ("[\"x\"]", "[{\"statement\": 1, \"n\": 1, \"page\": 1}]"),
    ] {
        failing(
            &mut client,
            &format!("cortex_ask_answer({ask}, 'x', '{statements}', '{citations}')"),
            "22023",
        );
    }
    failing(
        &mut client,
        &format!("cortex_ask_answer({ask}, NULL, '[\"x\"]')"),
        "22023",
    );
    failing(
        &mut client,
        &format!("cortex_ask_answer({ask}, repeat('x', 65537))"),
        "54000",
    );
    let many = |n: usize| {
        format!(
            "cortex_ask_answer({ask}, 'x', jsonb_path_query_array(to_jsonb(array_fill('x'::text, ARRAY[{n}])), '$[*]'))"
        )
    };
    client.query(&format!("SELECT {}", many(64)), &[]).unwrap();
    failing(&mut client, &many(65), "54000");
    failing(
        &mut client,
        &format!("cortex_ask_answer({ask}, 'x', jsonb_build_array(repeat('é', 2001)))"),
        "54000",
    );
    let find = open(&mut client, "valve", "'find_relevant'");
    round(&mut client, find);
    select(&mut client, find, 0, None);
    failing(
        &mut client,
        &format!("cortex_ask_answer({find}, 'x')"),
        "22023",
    );
}

#[test]
fn one_state_for_the_whole_ask() {
    let (database, mut client) = Database::with_cortex();
    client
        .batch_execute("CREATE TABLE part (id int PRIMARY KEY, note text); INSERT INTO part VALUES (1, 'The valve closes at 12 bar.'), (2, 'The valve is red.'), (3, 'The valve is old.')")
        .unwrap();
    bind(&mut client, "part", "");
    put(&mut client, "web:x", "The valve of the net opens at noon.");
    cortex_work(&mut client);
    let ask = open(
        &mut client,
        "valve",
        "'evidence_answer', sub_questions => '{red,valve noon}'",
    );
    let state = json(
        &mut client,
        "(SELECT body::jsonb -> 'state' FROM cortex.ask)",
    );
    // Another session changes a row, deletes one, adds one, and replaces a source that is no row.
    let mut other = database.connect();
    other
        .batch_execute(
            "UPDATE part SET note = 'The valve closes at 13 bar.' WHERE id = 1; DELETE FROM part WHERE id = 3;
             INSERT INTO part VALUES (4, 'The valve is new.')",
        )
        .unwrap();
    put(
        &mut other,
        "web:x",
        "The valve of the net opens at midnight.",
    );
    cortex_work(&mut other);
    let seen = round(&mut client, ask);
    let texts: Vec<&str> = seen.iter().map(|(_, text)| text.as_str()).collect();
    assert!(texts.contains(&"The valve is red."), "{texts:?}");
    // A row's old version is withheld, since the row no longer says it; a source without a row is quoted as it was.
    assert!(
        texts.contains(&"The valve of the net opens at noon."),
        "{texts:?}"
    );
    for gone in ["12 bar", "13 bar", "old", "new", "midnight"] {
        assert!(
            texts.iter().all(|text| !text.contains(gone)),
            "{gone}: {texts:?}"
        );
    }
    select(&mut client, ask, 0, None);
    // Between the rounds too.
    other
        .batch_execute("UPDATE part SET note = 'The valve is blue.' WHERE id = 2")
        .unwrap();
    cortex_work(&mut other);
    let seen = round(&mut client, ask);
    assert!(
        seen.iter()
            .all(|(_, text)| !text.contains("red") && !text.contains("blue")),
        "{seen:?}"
    );
    select(&mut client, ask, 1, None);
    round(&mut client, ask);
    select(&mut client, ask, 2, None);
    let closed = close(&mut client, ask);
    let trace = json(
        &mut client,
        &format!("cortex_trace({})::jsonb", closed.trace),
    );
    assert_eq!(trace["state"], state);
    assert_eq!(trace["rounds"][0]["receipt"]["masked"], 2);
    must_verify(&mut client, closed.trace, "L4");
}

#[test]
fn changes_of_its_own_keep_an_ask_from_being_opened_and_stay_out_of_its_rounds() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let ask = open(&mut client, "valve", "'find_relevant'");
    client.batch_execute("BEGIN").unwrap();
    put(&mut client, "web:own", "The valve of this transaction.");
    assert_eq!(
        failure(&mut client, "SAVEPOINT s; SELECT cortex_ask_open('valve')").0,
        "55000"
    );
    client.batch_execute("ROLLBACK TO s").unwrap();
    let seen = round(&mut client, ask);
    assert!(seen.iter().all(|(_, text)| !text.contains("transaction")));
    select(&mut client, ask, 0, None);
    let closed = close(&mut client, ask);
    client.batch_execute("COMMIT").unwrap();
    must_verify(&mut client, closed.trace, "L4");
    cortex_work(&mut client);
    must_verify(&mut client, closed.trace, "L4");
}

#[test]
fn an_ask_is_its_openers_alone() {
    let (database, mut client) = Database::with_cortex();
    corpus(&mut client);
    client
        .batch_execute(
            "CREATE TABLE part (id int PRIMARY KEY, seen_by text, note text);
             INSERT INTO part VALUES (1, 'a', 'The valve of Anna is green.'), (2, 'b', 'The valve of Bert is blue.');
             ALTER TABLE part ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON part USING (right(current_user, 1) = seen_by);
             GRANT SELECT ON part TO PUBLIC",
        )
        .unwrap();
    bind(&mut client, "part", "text_columns => '{note}'");
    cortex_work(&mut client);
    let (a, b) = (Role::new(&database, "a", ""), Role::new(&database, "b", ""));
    for role in [&a, &b] {
        client
            .batch_execute(&format!("SELECT cortex_grant('default', '{}')", role.name))
            .unwrap();
    }
    let (mut as_a, mut as_b) = (a.login(&database), b.login(&database));
    let ask = open(&mut as_a, "valve", "'find_relevant'");
    let other = open(&mut as_b, "valve", "'find_relevant'");
    for call in [
        format!("cortex_ask_round({ask})"),
        format!("cortex_ask_select({ask}, 0)"),
        format!("cortex_ask_refine({ask}, 'a', 'b')"),
        format!("cortex_ask_answer({ask}, 'a')"),
        format!("cortex_ask_close({ask})"),
        format!("cortex_ask_abandon({ask})"),
    ] {
        assert_eq!(
            failure(&mut as_b, &format!("SELECT {call}")).0,
            "42704",
            "{call}"
        );
    }
    assert_eq!(one::<i64>(&mut as_b, "SELECT count(*) FROM cortex.asks"), 1);
    let green = round(&mut as_a, ask);
    let blue = round(&mut as_b, other);
    assert!(
        green.iter().any(|(_, text)| text.contains("green"))
            && green.iter().all(|(_, text)| !text.contains("blue"))
    );
    assert!(
        blue.iter().any(|(_, text)| text.contains("blue"))
            && blue.iter().all(|(_, text)| !text.contains("green"))
    );
    // An id of a row that is hidden from this role is as unknown as any.
    let hidden = blue
        .iter()
        .find(|(_, text)| text.contains("blue"))
        .unwrap()
        .0;
    let (_, text) = failure(
        &mut as_a,
        &format!("SELECT cortex_ask_select({ask}, 0, '{{{hidden}}}')"),
    );
    assert!(text.starts_with("CORTEX_MODEL_UNBOUND"), "{text}");
    select(&mut as_a, ask, 0, None);
    let closed = close(&mut as_a, ask);
    must_verify(&mut as_a, closed.trace, "L4");
    assert_eq!(
        failure(
            &mut as_b,
            &format!("SELECT cortex_verify({})", closed.trace)
        )
        .0,
        "42704"
    );
    as_b.batch_execute(&format!("SELECT cortex_ask_abandon({other})"))
        .unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.ask_round"),
        0
    );
}

#[test]
fn an_abandoned_ask_leaves_nothing_and_an_old_one_is_removed() {
    let (database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let ask = open(&mut client, "valve", "'find_relevant'");
    round(&mut client, ask);
    client
        .batch_execute(&format!("SELECT cortex_ask_abandon({ask})"))
        .unwrap();
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT (SELECT count(*) FROM cortex.ask) + (SELECT count(*) FROM cortex.ask_round) + (SELECT count(*) FROM cortex.trace)"
        ),
        0
    );
    let (young, old, used) = (
        open(&mut client, "valve", "'find_relevant'"),
        open(&mut client, "valve", "'find_relevant'"),
        open(&mut client, "valve", "'find_relevant'"),
    );
    round(&mut client, old);
    client
        .batch_execute(&format!(
            "UPDATE cortex.ask SET opened_at = now() - interval '23 hours' WHERE id = {young};
             UPDATE cortex.ask SET opened_at = now() - interval '25 hours' WHERE id IN ({old}, {used})"
        ))
        .unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT open_asks FROM cortex.health"),
        3
    );
    // One in use is not waited for.
    let mut user = database.connect();
    user.batch_execute(&format!("BEGIN; SELECT * FROM cortex_ask_round({used})"))
        .unwrap();
    client
        .batch_execute("SET statement_timeout = '10s'; SELECT cortex_seal()")
        .unwrap();
    let left: Vec<i64> = client
        .query("SELECT ask_id FROM cortex.asks ORDER BY 1", &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(left, [young, used]);
    user.batch_execute("COMMIT").unwrap();
    client.batch_execute("SELECT cortex_work()").unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.ask_round"),
        0
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.ask"),
        1
    );
}

#[test]
fn excerpts_are_cut_between_graphemes() {
    let (_database, mut client) = Database::with_cortex();
    let family = "👩‍👩‍👧";
    let text = format!("Ventil {}", family.repeat(40));
    put(&mut client, "web:emoji", &text);
    let accents = format!("Ventil {}", "e\u{301}".repeat(300));
    put(&mut client, "web:accents", &accents);
    cortex_work(&mut client);
    // The family is five characters long, the accented letter two.
    for chars in [7usize, 11, 12, 13, 16, 17, 499, 500] {
        let ask = open(
            &mut client,
            "Ventil",
            &format!("'find_relevant', '{{\"excerpt_chars\": {chars}}}'"),
        );
        let seen = round(&mut client, ask);
        assert_eq!(seen.len(), 2);
        for (_, excerpt) in &seen {
            assert!(excerpt.chars().count() <= chars, "{chars}: {excerpt}");
            let whole = if text.starts_with(excerpt.as_str()) {
                &text
            } else {
                &accents
            };
            assert!(whole.starts_with(excerpt.as_str()));
            let tail = excerpt.trim_start_matches("Ventil").trim_start();
            let unit = if whole == &text { family } else { "e\u{301}" };
            assert_eq!(tail.replace(unit, ""), "", "{chars}: {excerpt:?}");
        }
        select(&mut client, ask, 0, None);
        let closed = close(&mut client, ask);
        must_verify(&mut client, closed.trace, "L4");
    }
}
