//! What a read says of itself when something is missing, and that it pays for no text twice. Needs a server in
//! CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use cortex_extension_tests::serving::{
    cortex_work, embed_with, json, put, use_space, vector_literal,
};
use cortex_extension_tests::{Database, one};
use postgres::Client;
use serde_json::Value;

fn read(client: &mut Client, question: &str, arguments: &str) -> Value {
    json(
        client,
        &format!("SELECT to_jsonb(r) FROM cortex_read('{question}', {arguments}) r"),
    )
}

/// A direction `cosine` away from the first of four axes.
fn at(cosine: f32) -> Vec<f32> {
    vec![cosine, (1.0 - cosine * cosine).sqrt(), 0.0, 0.0]
}

fn with_space(client: &mut Client) {
    client
        .batch_execute("SELECT cortex_create_namespace('default')")
        .unwrap();
    use_space(client, "m", 4);
}

#[test]
fn raw_text_below_the_floor_is_not_what_the_claims_say() {
    let (_database, mut client) = Database::with_cortex();
    with_space(&mut client);
    let texts: Vec<String> = (0..30)
        .map(|n| format!("Entry {n} of the register names the keeper of lighthouse number {n}."))
        .collect();
    for (n, text) in texts.iter().enumerate() {
        put(&mut client, &format!("s{n}"), text);
    }
    cortex_work(&mut client);
    // Below the floor, all in the same order for claims and chunks.
    embed_with(&mut client, |body, _| {
        let n = texts.iter().position(|text| body.contains(text.as_str()));
        at(0.35 - 0.005 * n.map_or(40.0, |n| n as f32))
    });
    let question = format!("'{}'", vector_literal(&at(1.0)));
    for budget in [150, 400, 600] {
        let read = read(
            &mut client,
            "What of it?",
            &format!("{question}, {budget}, mode => 'vector'"),
        );
        assert_eq!(read["needs_retrieval"], true, "{read}");
        assert!(read["tokens"].as_i64().unwrap() <= budget);
        let payload = read["payload"].as_str().unwrap();
        let raw = read["raw"]["chunks"].as_array().unwrap();
        assert!(!raw.is_empty(), "{read}");
        for text in &texts {
            assert!(
                payload.matches(text.as_str()).count() <= 1,
                "{budget}: {text} twice"
            );
        }
        let kept = raw.iter().filter(|chunk| chunk["cut"] == false).count();
        let held = texts
            .iter()
            .filter(|text| payload.contains(text.as_str()))
            .count();
        assert_eq!(held, kept + read["claims"].as_array().unwrap().len());
    }
}

#[test]
fn a_long_question_is_answered_without_vectors_and_a_foreign_one_is_not() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute("SELECT cortex_create_namespace('default')")
        .unwrap();
    for n in 0..40 {
        put(
            &mut client,
            &format!("s{n}"),
            &format!("The article says that the company of case {n} had a good report this year."),
        );
    }
    put(
        &mut client,
        "gold",
        "Rotterdam fined the maker of the freight scanner after customs had complained.",
    );
    cortex_work(&mut client);
    let mut needs = |question: &str| read(&mut client, question, "NULL")["needs_retrieval"] == true;
    assert!(!needs(
        "Which maker, according to the article on harbours, cranes, tariffs, unions, dredging, insurers and brokers, \
         was fined in Rotterdam over its freight scanner?"
    ));
    assert!(needs(
        "Which orchestra, according to the article about festivals, conductors, symphonies and tours, did the company \
         report to have hired for the opening night?"
    ));
    assert!(!needs("freight scanner"));
}

#[test]
fn a_replaced_source_that_waits_for_its_vector_is_named() {
    let (_database, mut client) = Database::with_cortex();
    with_space(&mut client);
    put(&mut client, "pump", "The pump is painted blue all over.");
    put(
        &mut client,
        "cat",
        "The cat sleeps on the windowsill at noon.",
    );
    cortex_work(&mut client);
    let model = |body: &str, _: usize| {
        if body.contains("pump") {
            at(0.9)
        } else {
            vec![0.0, 0.0, 1.0, 0.0]
        }
    };
    embed_with(&mut client, model);
    let question = format!("'{}'", vector_literal(&at(1.0)));
    let by_vector = format!("{question}, mode => 'vector'");
    let before = read(&mut client, "Which colour?", &by_vector);
    assert_eq!(before["masked"], serde_json::json!([]));
    assert!(before["payload"].as_str().unwrap().contains("blue"));

    put(&mut client, "pump", "The pump is painted red all over.");
    put(&mut client, "cat", "The cat sleeps on the sofa at noon.");
    let between = read(&mut client, "Which colour?", &by_vector);
    assert!(!between["payload"].as_str().unwrap().contains("pump"));
    let masked = between["masked"].as_array().unwrap();
    assert_eq!(masked.len(), 1, "{between}");
    assert_eq!(masked[0]["artifact_id"], "pump");
    assert_eq!(masked[0]["reason"], "not embedded");
    assert!(between["pending"].as_i64().unwrap() > 0);
    // Words find the new text at once, so nothing is missing there.
    let both = read(&mut client, "Which colour is the pump painted?", &question);
    assert!(both["payload"].as_str().unwrap().contains("red"), "{both}");
    assert_eq!(both["masked"], serde_json::json!([]));

    // Not with other words than its own.
    let other = read(&mut client, "Which colour?", &question);
    assert!(
        !other["payload"].as_str().unwrap().contains("red"),
        "{other}"
    );
    assert_eq!(other["masked"][0]["artifact_id"], "pump", "{other}");

    // Replaced again before it was embedded: the last version that had vectors tells.
    put(&mut client, "pump", "The pump is painted green all over.");
    let again = read(&mut client, "Which colour?", &by_vector);
    assert_eq!(again["masked"][0]["artifact_id"], "pump", "{again}");

    cortex_work(&mut client);
    embed_with(&mut client, model);
    let after = read(&mut client, "Which colour?", &by_vector);
    assert_eq!(after["masked"], serde_json::json!([]));
    assert!(after["payload"].as_str().unwrap().contains("green"));
}

#[test]
fn embed_jobs_of_many_transactions_are_taken_as_one() {
    let (_database, mut client) = Database::with_cortex();
    with_space(&mut client);
    for n in 0..60 {
        put(
            &mut client,
            &format!("s{n}"),
            &format!("Sentence number {n} stands alone."),
        );
        if n % 7 == 0 {
            client
                .batch_execute("SELECT nextval('cortex.item_id_seq')")
                .unwrap();
        }
    }
    cortex_work(&mut client);
    let waiting = "SELECT count(*) FROM cortex.job WHERE kind = 'embed'";
    let before: i64 = one(&mut client, waiting);
    assert!(before >= 60, "{before}");
    let pending = "SELECT pending FROM cortex_read('Sentence number')";
    let said: i64 = one(&mut client, pending);
    // One that failed before stays alone.
    let failed: i64 = one(
        &mut client,
        "UPDATE cortex.job SET attempts = 1 WHERE id = (SELECT max(id) FROM cortex.job WHERE kind = 'embed') RETURNING id",
    );
    let job: i64 = one(
        &mut client,
        "SELECT job_id FROM cortex_job_take('w', ARRAY['embed'])",
    );
    assert_eq!(one::<i64>(&mut client, waiting), 2);
    assert_eq!(one::<i64>(&mut client, pending), said);
    let texts = client
        .query(
            "SELECT item_id FROM cortex_embed_take($1, 'w', 500)",
            &[&job],
        )
        .unwrap();
    // A chunk and a claim each, but for the source whose job failed.
    assert_eq!(texts.len(), 118);
    let stored: i64 = one(
        &mut client,
        &format!(
            "SELECT (cortex_embed_commit({job}, 'w', array_agg(item_id), array_agg('[1,0,0,0]'::vector)) ->> 'stored')::int8 \
               FROM cortex_embed_take({job}, 'w', 500)"
        ),
    );
    assert_eq!(stored, 118);
    // Another namespace's are not touched, and what comes meanwhile has a job of its own.
    put(&mut client, "late", "A late sentence stands alone.");
    let done: bool = one(
        &mut client,
        &format!("SELECT (cortex_embed_commit({job}, 'w', '{{}}', '{{}}') ->> 'done')::bool"),
    );
    assert!(done);
    assert_eq!(one::<i64>(&mut client, waiting), 2);
    client
        .batch_execute(&format!(
            "UPDATE cortex.job SET attempts = 0 WHERE id = {failed}"
        ))
        .unwrap();
    embed_with(&mut client, |_, _| vec![1.0, 0.0, 0.0, 0.0]);
    assert_eq!(one::<i64>(&mut client, waiting), 0);
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.emb_1"),
        122
    );
}

#[test]
fn an_open_transaction_that_stores_holds_back_nobodys_vectors() {
    let (database, mut client) = Database::with_cortex();
    with_space(&mut client);
    put(&mut client, "first", "The first sentence stands alone.");
    let mut open = database.connect();
    open.batch_execute("BEGIN").unwrap();
    put(&mut open, "second", "The second sentence stands alone.");
    embed_with(&mut client, |_, _| vec![1.0, 0.0, 0.0, 0.0]);
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.emb_1"),
        2
    );
    open.batch_execute("COMMIT").unwrap();
    embed_with(&mut client, |_, _| vec![1.0, 0.0, 0.0, 0.0]);
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.emb_1"),
        4
    );
}

#[test]
fn statistics_tell_the_age_of_what_was_served_and_all_claims() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute("SELECT cortex_create_namespace('default')")
        .unwrap();
    put(&mut client, "pump", "The pump is painted blue all over.");
    cortex_work(&mut client);
    let stats = json(&mut client, "cortex_stats()");
    assert_eq!(stats["avg_age_at_serve_s"], Value::Null);
    assert_eq!(stats["claims_total"], 1);
    client
        .batch_execute("UPDATE cortex.change SET made_at = made_at - interval '100 seconds'")
        .unwrap();
    put(&mut client, "valve", "The valve is painted white all over.");
    cortex_work(&mut client);
    let log = |client: &mut Client, id: i64, question: &str| {
        client
            .batch_execute(&format!(
                "SELECT cortex._read_logged(1, {id}, true, r.details) FROM cortex_read('{question}') r; SELECT cortex_work()"
            ))
            .unwrap();
    };
    // Both are served: the older one counts. Then only the new one is there.
    log(&mut client, 1, "painted pump valve");
    put(&mut client, "pump", "The pump was taken away.");
    cortex_work(&mut client);
    log(&mut client, 2, "painted white valve");
    let stats = json(&mut client, "cortex_stats()");
    let seconds = |name: &str| stats[name].as_f64().unwrap();
    assert!(
        (100.0..130.0).contains(&seconds("max_age_at_serve_s")),
        "{stats}"
    );
    assert!(
        (50.0..80.0).contains(&seconds("avg_age_at_serve_s")),
        "{stats}"
    );
    assert_eq!(
        (&stats["claims_total"], &stats["claims_fresh"]),
        (&Value::from(3), &Value::from(2))
    );
}

#[test]
fn claims_of_a_unit_are_shown_while_they_may_be_served() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute("SELECT cortex_create_namespace('default')")
        .unwrap();
    put(
        &mut client,
        "pump",
        "The pump is blue all over. It was bought in spring.",
    );
    cortex_work(&mut client);
    let unit: i64 = one(&mut client, "SELECT id FROM cortex.unit");
    let claims = |client: &mut Client| -> Vec<String> {
        let rows = client
            .query("SELECT body FROM cortex_unit_claims($1)", &[&unit])
            .unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(
        claims(&mut client),
        ["The pump is blue all over.", "It was bought in spring."]
    );
    put(&mut client, "pump", "The pump is red.");
    assert_eq!(claims(&mut client), [""; 0]);
    let (code, _) =
        cortex_extension_tests::failure(&mut client, "SELECT cortex_unit_claims(999999)");
    assert_eq!(code, "42704");
}

#[test]
fn a_hook_that_ends_with_its_time_leaves_no_cancel_behind() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "SELECT cortex_create_namespace('default'); \
             CREATE FUNCTION public.slow(text, text[]) RETURNS float8[] LANGUAGE plpgsql AS $$ \
             DECLARE till timestamptz := clock_timestamp() + interval '1 ms' * current_setting('test.ms')::float8; \
             BEGIN WHILE clock_timestamp() < till LOOP END LOOP; \
             RETURN ARRAY(SELECT 1.0 FROM unnest($2)); END $$; \
             SELECT cortex_pool_set('default', '{\"reranker\": \"public.slow(text,text[])\", \"hook_timeout_ms\": 3}')",
        )
        .unwrap();
    put(&mut client, "pump", "The pump is painted blue all over.");
    cortex_work(&mut client);
    let (mut ran, mut late) = (0, 0);
    for n in 0..400 {
        // Around the limit, in steps of a hundredth of a millisecond.
        let ms = 2.0 + f64::from(n % 200) / 100.0;
        client
            .batch_execute(&format!("SET test.ms = {ms}"))
            .unwrap();
        let read = json(
            &mut client,
            "SELECT to_jsonb(r) FROM cortex_read('blue pump') r, (SELECT count(*) FROM generate_series(1, 1000)) more",
        );
        match read["details"]["rerank_failed"].is_null() {
            true => ran += 1,
            false => late += 1,
        }
    }
    assert!(late > 0, "{ran} in time, {late} late");
}
