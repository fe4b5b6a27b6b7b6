//! Invariant 5: a vector belongs to one embedding space. Needs a server in CORTEX_TEST_PG18_URL or
//! CORTEX_TEST_PG16_URL.

use std::thread;
use std::time::Duration;

use cortex_extension_tests::serving::{
    ask, cortex_work, embed, embed_with, json, must_verify, put, text_vector, use_space,
    vector_literal,
};
use cortex_extension_tests::{Database, failure, one};
use postgres::Client;

const TEXTS: [(&str, &str); 4] = [
    ("a", "The turbine needs oil every month."),
    ("b", "A gasket seals the flange of the pump."),
    ("c", "Switch the boiler off before the weekend."),
    ("d", "Bolts and rivets hold the panel."),
];

fn corpus(client: &mut Client) {
    for (artifact, body) in TEXTS {
        put(client, artifact, body);
    }
    cortex_work(client);
}

/// The chunks found by vector alone, best first.
fn nearest(client: &mut Client, text: &str, dims: usize) -> Vec<String> {
    let vector = vector_literal(&text_vector(text, dims));
    let sql = "SELECT artifact_id FROM cortex_search('x', $1::text::vector, mode => 'vector')";
    client
        .query(sql, &[&vector])
        .unwrap_or_else(|error| panic!("{error:?}"))
        .iter()
        .map(|row| row.get(0))
        .collect()
}

#[test]
fn inv_05_a_query_vector_that_does_not_fit_is_refused_with_both_sizes() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    use_space(&mut client, "small", 8);
    assert_eq!(embed(&mut client), 8);
    for (vector, told) in [
        (vector_literal(&[0.5; 7]), vec!["7", "8"]),
        (vector_literal(&[0.5; 9]), vec!["9", "8"]),
        (vector_literal(&[1.0]), vec!["1 dimension", "8"]),
        (vector_literal(&[0.0; 8]), vec!["zero", "8"]),
    ] {
        for call in [
            format!("SELECT cortex_search('pump', '{vector}')"),
            format!("SELECT cortex_search('pump', '{vector}', mode => 'hybrid')"),
            format!("SELECT cortex_read('pump', '{vector}')"),
            format!("SELECT cortex_ask('pump', '{vector}')"),
        ] {
            let (code, text) = failure(&mut client, &call);
            assert_eq!(code, "22023", "{call}: {text}");
            assert!(
                told.iter().all(|part| text.contains(part)),
                "{call}: {text}"
            );
        }
    }
    // What is not a number does not even become a vector; the error is pgvector's.
    for vector in ["[NaN,0,0,0,0,0,0,0]", "[Infinity,0,0,0,0,0,0,0]"] {
        let (code, _) = failure(
            &mut client,
            &format!("SELECT cortex_search('pump', '{vector}')"),
        );
        assert!(code.starts_with("22"), "{code}");
    }
    // Numbers at the ends of what a vector can hold are directions as good as any.
    for vector in [
        vec![f32::MAX; 8],
        vec![1e-45; 8],
        vec![-1e-30, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    ] {
        let vector = vector_literal(&vector);
        let found = client
            .query(
                "SELECT * FROM cortex_search('pump', $1::text::vector, mode => 'vector')",
                &[&vector],
            )
            .unwrap();
        assert_eq!(found.len(), 4, "{vector}");
    }
    // Without a space, a mode that needs one says so and one that does not answers.
    client
        .batch_execute("SELECT cortex_source_put('x', 'A pump.', namespace => 'bare')")
        .unwrap();
    let vector = vector_literal(&[0.5; 8]);
    let (code, text) = failure(
        &mut client,
        &format!("SELECT cortex_search('pump', '{vector}', namespace => 'bare', mode => 'vector')"),
    );
    assert!(
        code == "55000" && text.contains("no embedding space"),
        "{code}: {text}"
    );
    let arms: String = one(
        &mut client,
        &format!("SELECT arms FROM cortex_read('pump', '{vector}', namespace => 'bare')"),
    );
    assert_eq!(arms, "lexical");
}

#[test]
fn inv_05_a_vector_that_does_not_fit_is_not_stored_and_nothing_of_its_batch_is() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let space = use_space(&mut client, "small", 8);
    let job: i64 = one(
        &mut client,
        "SELECT job_id FROM cortex_job_take('w', '{embed}')",
    );
    let ids: Vec<i64> = client
        .query("SELECT item_id FROM cortex_embed_take($1, 'w', 3)", &[&job])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let good = vector_literal(&[0.5; 8]);
    for (bad, told) in [
        (vector_literal(&[0.5; 7]), vec!["7", "8"]),
        (vector_literal(&[0.5; 16]), vec!["16", "8"]),
        (vector_literal(&[0.0; 8]), vec!["zero", "8"]),
    ] {
        let call = format!(
            "SELECT cortex_embed_commit({job}, 'w', ARRAY{ids:?}::bigint[], ARRAY['{good}', '{bad}', '{good}']::vector[])"
        );
        let (code, text) = failure(&mut client, &call);
        assert_eq!(code, "22023", "{text}");
        assert!(told.iter().all(|part| text.contains(part)), "{text}");
        assert!(
            text.contains(&format!("item {}", ids[1])),
            "the item is named: {text}"
        );
        assert_eq!(
            one::<i64>(
                &mut client,
                &format!("SELECT count(*) FROM cortex.emb_{space}")
            ),
            0
        );
    }
    // NULL vectors, NULL ids, twice the same id, foreign ids, unequal arrays.
    for (ids_sql, vectors) in [
        (
            format!("{{{},{}}}", ids[0], ids[1]),
            format!("{{\"{good}\",NULL}}"),
        ),
        (
            format!("{{{},{}}}", ids[0], ids[1]),
            format!("{{\"{good}\"}}"),
        ),
    ] {
        let (code, text) = failure(
            &mut client,
            &format!("SELECT cortex_embed_commit({job}, 'w', '{ids_sql}', '{vectors}')"),
        );
        assert!(code == "22023" || code == "23502", "{code}: {text}");
        assert_eq!(
            one::<i64>(
                &mut client,
                &format!("SELECT count(*) FROM cortex.emb_{space}")
            ),
            0
        );
    }
    let told = json(
        &mut client,
        &format!(
            "cortex_embed_commit({job}, 'w', '{{{0},{0},NULL,999999}}', ARRAY['{good}', '{good}', '{good}', '{good}']::vector[])",
            ids[0]
        ),
    );
    assert_eq!(told["stored"], 1);
    assert_eq!(told["skipped"], 3);
    assert_eq!(
        one::<i64>(
            &mut client,
            &format!("SELECT count(*) FROM cortex.emb_{space}")
        ),
        1,
        "the count told is the count stored"
    );
}

#[test]
fn inv_05_spaces_that_cannot_be_indexed_are_refused() {
    let (_database, mut client) = Database::with_cortex();
    for dims in ["0", "-1", "2001", "2147483647", "NULL"] {
        let (code, text) = failure(
            &mut client,
            &format!("SELECT cortex_space_register('m', '1', 'd', {dims})"),
        );
        assert_eq!(code, "22023", "{text}");
    }
    for dims in [1, 2000] {
        let space: i32 = one(
            &mut client,
            &format!("SELECT cortex_space_register('m', '1', 'd', {dims})"),
        );
        assert_eq!(
            one::<i32>(
                &mut client,
                &format!("SELECT cortex_space_register('m', '1', 'd', {dims})")
            ),
            space,
            "the same again"
        );
    }
    // Every part of a space's identity makes another space.
    let mut seen = vec![one::<i32>(
        &mut client,
        "SELECT cortex_space_register('m', '1', 'd', 4)",
    )];
    for other in [
        "'n', '1', 'd', 4",
        "'m', '2', 'd', 4",
        "'m', '1', 'e', 4",
        "'m', '1', 'd', 5",
        "'m', '1', 'd', 4, false",
        "'m', '1', 'd', 4, true, 'query: '",
    ] {
        let space: i32 = one(
            &mut client,
            &format!("SELECT cortex_space_register({other})"),
        );
        assert!(!seen.contains(&space), "{other}");
        seen.push(space);
    }
    let (code, _) = failure(
        &mut client,
        "SELECT cortex_create_namespace('default'); SELECT cortex_space_use('default', 4711)",
    );
    assert_eq!(code, "42704");
    assert_eq!(
        failure(&mut client, "SELECT cortex_space_use('nowhere', 1)").0,
        "42704"
    );
}

#[test]
fn inv_05_two_spaces_of_equal_size_never_mix() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let first = use_space(&mut client, "first", 8);
    assert_eq!(embed(&mut client), 8);
    let before = ask(
        &mut client,
        "gasket",
        &format!("'{}'", vector_literal(&text_vector(TEXTS[1].1, 8))),
    );
    assert_eq!(nearest(&mut client, TEXTS[1].1, 8)[0], "b");
    // The second model sees every text as its mirror image: mixing would turn the order round.
    let second = use_space(&mut client, "second", 8);
    assert_ne!(first, second);
    assert_eq!(
        nearest(&mut client, TEXTS[1].1, 8)[0],
        "b",
        "the first space serves on"
    );
    let mirrored = |text: &str, dims| {
        text_vector(text, dims)
            .into_iter()
            .map(|x| -x)
            .collect::<Vec<f32>>()
    };
    let part = client
        .query_one("SELECT job_id FROM cortex_job_take('w', '{embed}')", &[])
        .unwrap()
        .get::<_, i64>(0);
    let row = client
        .query_one(
            "SELECT item_id, body FROM cortex_embed_take($1, 'w', 1)",
            &[&part],
        )
        .unwrap();
    let vector = vector_literal(&mirrored(row.get(1), 8));
    client
        .query_one(
            "SELECT cortex_embed_commit($1, 'w', ARRAY[$2::bigint], ARRAY[$3::text::vector])",
            &[&part, &row.get::<_, i64>(0), &vector],
        )
        .unwrap();
    let order = nearest(&mut client, TEXTS[1].1, 8);
    assert_eq!(
        (order.len(), order[0].as_str()),
        (4, "b"),
        "no vector of the other space is compared"
    );
    client
        .batch_execute(&format!(
            "SELECT cortex_job_fail({part}, 'w', 'test'); UPDATE cortex.job SET run_after = now()"
        ))
        .unwrap();
    assert_eq!(embed_with(&mut client, mirrored), 7);
    let order = nearest(&mut client, TEXTS[1].1, 8);
    assert_eq!(
        (order.len(), order[3].as_str()),
        (4, "b"),
        "the mirror image of b is the farthest"
    );
    // The old space is still there: the old trace replays in it.
    must_verify(&mut client, before.id, "L4");
    // Two namespaces in two spaces.
    client.batch_execute("SELECT cortex_source_put('z', 'A gasket seals the flange of the pump.', namespace => 'other')").unwrap();
    client
        .query_one("SELECT cortex_space_use('other', $1)", &[&first])
        .unwrap();
    assert_eq!(embed(&mut client), 2);
    let vector = vector_literal(&text_vector(TEXTS[1].1, 8));
    let found = client.query("SELECT artifact_id, score FROM cortex_search('x', $1::text::vector, namespace => 'other', mode => 'vector')", &[&vector]).unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].get::<_, i64>(1) > 0);
}

#[test]
fn inv_05_the_old_space_serves_until_the_new_one_is_whole() {
    let (database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let first = use_space(&mut client, "first", 8);
    embed(&mut client);
    let second: i32 = one(
        &mut client,
        "SELECT cortex_space_register('second', '1', 'd', 4)",
    );
    let told = json(
        &mut client,
        &format!("cortex_space_use('default', {second})"),
    );
    assert_eq!(
        (&told["queued"], &told["switched"], &told["already"]),
        (&8.into(), &false.into(), &false.into())
    );
    // What comes meanwhile is embedded in both, so that the old one is whole as long as it serves.
    put(&mut client, "e", "A new hinge.");
    assert_eq!(
        one::<i64>(&mut client, "SELECT pending_embed FROM cortex.namespaces"),
        8 + 2 * 2
    );
    let mut other = database.connect();
    let state = |client: &mut Client| -> (i32, Option<i32>) {
        let row = client
            .query_one("SELECT space, next_space FROM cortex.namespaces", &[])
            .unwrap();
        (row.get(0), row.get(1))
    };
    // Each commit on the way leaves the old space in use; the last switches.
    loop {
        let job = client
            .query_opt("SELECT job_id FROM cortex_job_take('w', '{embed}')", &[])
            .unwrap();
        let Some(job) = job.map(|row| row.get::<_, i64>(0)) else {
            break;
        };
        loop {
            let serving = nearest(&mut other, TEXTS[0].1, 8).len();
            assert!(
                serving >= 4,
                "{serving} found while the switch is under way"
            );
            assert_eq!(state(&mut client), (first, Some(second)));
            let told = commit_two(&mut client, job);
            if told["done"] == true {
                break;
            }
        }
        if state(&mut client).0 == second {
            break;
        }
    }
    assert_eq!(state(&mut client), (second, None));
    assert_eq!(nearest(&mut other, TEXTS[0].1, 4).len(), 5);
    let (code, text) = failure(
        &mut other,
        &format!("SELECT cortex_search('x', '{}')", vector_literal(&[0.5; 8])),
    );
    assert!(
        code == "22023" && text.contains('4') && text.contains('8'),
        "{code}: {text}"
    );
    // Nothing of the old space is left to do.
    assert_eq!(
        one::<i64>(
            &mut client,
            &format!(
                "SELECT count(*) FROM cortex.job WHERE kind = 'embed' AND payload ->> 'space' = '{first}'"
            )
        ),
        0
    );
    // Back again: nothing to embed but what came in between, and what is whole takes over at once.
    embed(&mut client);
    let told = json(
        &mut client,
        &format!("cortex_space_use('default', {first})"),
    );
    if told["queued"] == 0 {
        assert_eq!(told["switched"], true);
    }
    embed(&mut client);
    assert_eq!(state(&mut client), (first, None));
    assert_eq!(nearest(&mut other, TEXTS[0].1, 8).len(), 5);
}

/// Takes two texts of an embed job and stores their vectors; none left ends the job.
fn commit_two(client: &mut Client, job: i64) -> serde_json::Value {
    let dims: i32 = client
        .query_one(
            "SELECT s.dims FROM cortex.job j JOIN cortex.space s ON s.id = (j.payload ->> 'space')::int WHERE j.id = $1",
            &[&job],
        )
        .unwrap()
        .get(0);
    let texts = client
        .query(
            "SELECT item_id, body FROM cortex_embed_take($1, 'w', 2)",
            &[&job],
        )
        .unwrap();
    let ids: Vec<i64> = texts.iter().map(|row| row.get(0)).collect();
    let vectors: Vec<String> = texts
        .iter()
        .map(|row| vector_literal(&text_vector(row.get(1), dims as usize)))
        .collect();
    let told: String = client
        .query_one(
            "SELECT cortex_embed_commit($1, 'w', $2, $3::text[]::vector[])::text",
            &[&job, &ids, &vectors],
        )
        .unwrap()
        .get(0);
    serde_json::from_str(&told).unwrap()
}

#[test]
fn inv_05_a_switch_under_way_can_be_called_off_or_turned_elsewhere() {
    let (_database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let first = use_space(&mut client, "first", 8);
    embed(&mut client);
    let register = |client: &mut Client, name: &str| -> i32 {
        one(
            client,
            &format!("SELECT cortex_space_register('{name}', '1', 'd', 4)"),
        )
    };
    let (second, third) = (
        register(&mut client, "second"),
        register(&mut client, "third"),
    );
    let switch = |client: &mut Client, space: i32| {
        json(client, &format!("cortex_space_use('default', {space})"))
    };
    let queued = |client: &mut Client| -> Vec<i32> {
        client
            .query("SELECT DISTINCT (payload ->> 'space')::int FROM cortex.job WHERE kind = 'embed' ORDER BY 1", &[])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect()
    };
    assert_eq!(switch(&mut client, second)["queued"], 8);
    let again = switch(&mut client, second);
    assert_eq!(
        (&again["already"], &again["queued"]),
        (&true.into(), &0.into())
    );
    assert_eq!(queued(&mut client), [second]);
    assert_eq!(switch(&mut client, third)["queued"], 8);
    assert_eq!(queued(&mut client), [third], "the second is given up");
    let off = switch(&mut client, first);
    assert_eq!(
        (&off["already"], &off["switched"]),
        (&true.into(), &true.into())
    );
    assert!(queued(&mut client).is_empty());
    assert_eq!(nearest(&mut client, TEXTS[0].1, 8).len(), 4);
    // A deleted item keeps no switch waiting, and neither does one that nobody could embed once it is deleted.
    switch(&mut client, third);
    client
        .batch_execute("SELECT cortex_source_deleted(a) FROM unnest('{a,b,c}'::text[]) a")
        .unwrap();
    embed(&mut client);
    assert_eq!(nearest(&mut client, TEXTS[3].1, 4), ["d"]);
}

#[test]
fn inv_05_re_embedding_resumes_after_the_backend_was_killed() {
    let (database, mut client) = Database::with_cortex();
    for n in 0..300 {
        put(
            &mut client,
            &format!("t{n}"),
            &format!("The gauge number {n} shows the pressure."),
        );
    }
    cortex_work(&mut client);
    use_space(&mut client, "first", 8);
    let total: i64 = one(
        &mut client,
        "SELECT count(*) FROM (SELECT id FROM cortex.chunk UNION ALL SELECT id FROM cortex.claim) i",
    );
    let mut worker = database.connect();
    let pid: i32 = one(&mut worker, "SELECT pg_backend_pid()");
    let job: i64 = one(
        &mut worker,
        "SELECT job_id FROM cortex_job_take('doomed', '{embed}', '1 second')",
    );
    let commit = |worker: &mut Client, batch: i32| {
        let texts = worker
            .query(
                "SELECT item_id, body FROM cortex_embed_take($1, 'doomed', $2)",
                &[&job, &batch],
            )
            .unwrap();
        let ids: Vec<i64> = texts.iter().map(|row| row.get(0)).collect();
        let vectors: Vec<String> = texts
            .iter()
            .map(|row| vector_literal(&text_vector(row.get(1), 8)))
            .collect();
        worker
            .query_one(
                "SELECT cortex_embed_commit($1, 'doomed', $2, $3::text[]::vector[])",
                &[&job, &ids, &vectors],
            )
            .unwrap();
    };
    commit(&mut worker, 100);
    // The second batch is sent and not committed when the backend dies.
    worker.batch_execute("BEGIN").unwrap();
    commit(&mut worker, 100);
    assert!(one::<bool>(
        &mut client,
        &format!("SELECT pg_terminate_backend({pid}, 10000)")
    ));
    assert!(worker.batch_execute("COMMIT").is_err());
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.emb_1"),
        100,
        "what was committed and nothing else"
    );
    // The lease runs out: the next taker finds it, and after the backoff does the rest.
    client.batch_execute("UPDATE cortex.job SET lease_until = now() - interval '1 second' WHERE state = 'running'").unwrap();
    let taken = client
        .query("SELECT job_id FROM cortex_job_take('next', '{embed}')", &[])
        .unwrap();
    assert!(
        taken.is_empty(),
        "a failed job waits before it is tried again"
    );
    let error: String = one(
        &mut client,
        &format!("SELECT last_error FROM cortex.jobs WHERE job_id = {job}"),
    );
    assert!(error.contains("doomed"), "{error}");
    client
        .batch_execute("UPDATE cortex.job SET run_after = now()")
        .unwrap();
    assert_eq!(embed(&mut client), total - 100);
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.emb_1"),
        total
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.job"),
        0
    );
}

#[test]
fn inv_05_what_is_committed_beside_the_switch_is_embedded_too() {
    let (database, mut client) = Database::with_cortex();
    corpus(&mut client);
    let first = use_space(&mut client, "first", 8);
    embed(&mut client);
    let second: i32 = one(
        &mut client,
        "SELECT cortex_space_register('second', '1', 'd', 4)",
    );
    // One session stores a text and has not committed when another switches the space.
    let mut writer = database.connect();
    writer.batch_execute("BEGIN").unwrap();
    put(&mut writer, "late", "The late lever.");
    let switcher = thread::spawn({
        let mut session = database.connect();
        move || {
            session
                .query_one("SELECT cortex_space_use('default', $1)", &[&second])
                .map(|_| ())
        }
    });
    thread::sleep(Duration::from_millis(300));
    writer.batch_execute("COMMIT").unwrap();
    switcher.join().unwrap().unwrap();
    // And the other way round: the switch is under way when a text is stored.
    embed(&mut client);
    let missing = |client: &mut Client, space: i32| {
        one::<i64>(
            client,
            &format!(
                "SELECT count(*) FROM (SELECT id FROM cortex.chunk UNION ALL SELECT id FROM cortex.claim) i \
                  WHERE NOT EXISTS (SELECT FROM cortex.emb_{space} e WHERE e.item_id = i.id)"
            ),
        )
    };
    assert_eq!(
        missing(&mut client, second),
        0,
        "stored before the switch, committed after it"
    );
    let mut switcher = database.connect();
    switcher.batch_execute("BEGIN").unwrap();
    switcher
        .query_one("SELECT cortex_space_use('default', $1)", &[&first])
        .unwrap();
    let storing = thread::spawn(move || put(&mut writer, "later", "The later lever."));
    thread::sleep(Duration::from_millis(300));
    switcher.batch_execute("COMMIT").unwrap();
    storing.join().unwrap();
    embed(&mut client);
    assert_eq!(
        missing(&mut client, first),
        0,
        "stored while the switch was under way"
    );
}
