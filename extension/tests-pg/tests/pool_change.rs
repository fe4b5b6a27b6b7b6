//! What becomes of a model's claims when sources change, units are evicted and vectors come along. Needs a server in
//! CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use cortex_extension_tests::pool::{
    build_all, chunks, commit, events, long_text, modelled, reworded, served, take, told, want,
};
use cortex_extension_tests::serving::{
    Random, cortex_work, embed, embed_with, json, put, text_vector, use_space, vector_literal,
};
use cortex_extension_tests::{Database, failure, one};
use postgres::Client;
use serde_json::{Value, json};

const PARTS: [&str; 4] = [
    "Part 1 is red.",
    "Part 2 is blue.",
    "Part 3 is green.",
    "Part 4 is white.",
];

fn parts() -> (Database, Client) {
    let (database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({}));
    put(&mut client, "parts", &long_text(&PARTS));
    cortex_work(&mut client);
    assert_eq!(chunks(&mut client, "parts").len(), 4);
    (database, client)
}

/// Claims of models that are served, with the place of their chunk, and whether provenance and lexical index are
/// those of the current version.
fn model_claims(client: &mut Client) -> Vec<(String, i32)> {
    let wrong: i64 = one(
        client,
        "SELECT count(*) FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id AND u.purpose = 'model', \
                unnest(c.chunk_ids, c.version_ids, c.start_bytes, c.end_bytes) p (chunk, version, s, e) \
          LEFT JOIN cortex.chunk k ON k.id = p.chunk \
          WHERE k.id IS NULL OR k.version_id <> p.version OR k.start_byte <> p.s OR k.end_byte <> p.e OR u.version_id <> p.version",
    );
    assert_eq!(wrong, 0, "claims with another version's provenance");
    client
        .query(
            "SELECT c.body, k.ordinal FROM cortex.claims f JOIN cortex.claim c ON c.id = f.claim_id JOIN cortex.unit u ON u.id = c.unit_id \
               JOIN cortex.chunk k ON k.id = c.chunk_ids[1] WHERE f.fresh AND u.purpose = 'model' ORDER BY k.ordinal, c.body",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect()
}

#[test]
fn claims_of_unchanged_chunks_are_carried_over() {
    let (_database, mut client) = parts();
    use_space(&mut client, "m", 8);
    want(&mut client, "parts", &[]);
    assert_eq!(build_all(&mut client, reworded), 4);
    embed(&mut client);
    let before = model_claims(&mut client);
    assert_eq!(before.len(), 4);
    // The second paragraph changes, the last goes away and a new one stands first.
    let text = long_text(&["Part 0 is black.", PARTS[0], "Part 2 is pink.", PARTS[2]]);
    put(&mut client, "parts", &text);
    assert_eq!(served(&mut client), 0, "nothing stale is served meanwhile");
    want(&mut client, "parts", &[]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    assert_eq!(taken.class, "STALE-OWNED");
    let read: Vec<&str> = taken.chunks.iter().map(|(_, body)| &body[..9]).collect();
    assert_eq!(
        read,
        ["Part 0 is", "Part 2 is"],
        "the model reads what is new, and no more"
    );
    // What was carried over is served before the model has answered.
    assert_eq!(
        model_claims(&mut client),
        [
            ("It is known that: Part 1 is red".to_owned(), 2),
            ("It is known that: Part 3 is green".to_owned(), 4)
        ]
    );
    cortex_work(&mut client);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex_read('known green'), jsonb_array_elements(claims) c WHERE c ->> 'body' LIKE 'It is known%green'"
        ),
        1
    );
    // Vectors came along: none is left to be made of them.
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id JOIN cortex.source_version v ON v.id = u.version_id AND v.closed_by IS NULL \
              WHERE u.purpose = 'model' AND NOT EXISTS (SELECT FROM cortex.emb_1 e WHERE e.item_id = c.id AND e.version_id = v.id)"
        ),
        0
    );
    let claims: Vec<Value> = taken
        .chunks
        .iter()
        .map(|(id, body)| json!({"claim": reworded(body)[0], "chunks": [id]}))
        .collect();
    commit(&mut client, taken.job, "w", &json!(claims), "");
    assert_eq!(model_claims(&mut client).len(), 4);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.unit_chunk WHERE carried_from IS NOT NULL"
        ),
        2
    );
    // Back to the first text: carried from the version before, paragraph by paragraph, with no model at all.
    put(&mut client, "parts", &long_text(&[PARTS[2], PARTS[0]]));
    want(&mut client, "parts", &[]);
    assert!(take(&mut client, "w", "60 seconds").is_none());
    assert_eq!(model_claims(&mut client).len(), 2);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.job WHERE kind = 'build'"
        ),
        0
    );
    let last = events(&mut client).pop().unwrap();
    assert_eq!(
        (last.0.as_str(), &last.1["carried"]),
        ("unit_built", &json!(2))
    );
}

#[test]
fn claims_that_rest_on_what_changed_are_not_carried_over() {
    let (_database, mut client) = parts();
    want(&mut client, "parts", &[]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    let ids: Vec<i64> = taken.chunks.iter().map(|(id, _)| *id).collect();
    let claims = json!([
        {"claim": "Parts are red or blue.", "chunks": [ids[0], ids[1]]},
        {"claim": "The first part is red.", "chunks": [ids[0]]},
        {"claim": "The third part is green.", "chunks": [ids[2]]},
    ]);
    assert_eq!(
        commit(&mut client, taken.job, "w", &claims, "")["admitted"],
        3
    );
    put(
        &mut client,
        "parts",
        &long_text(&[PARTS[0], "Part 2 is pink.", PARTS[2], PARTS[3]]),
    );
    want(&mut client, "parts", &[]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    // The first chunk lost a claim: it is read again. The fourth had none, and is known to have none.
    let read: Vec<&str> = taken.chunks.iter().map(|(_, body)| &body[..6]).collect();
    assert_eq!(read, ["Part 1", "Part 2"]);
    let again = json!([{"claim": "the first part is RED.", "chunks": [taken.chunks[0].0]}]);
    let answer = commit(&mut client, taken.job, "w", &again, "");
    assert_eq!(answer["dropped"]["repeated"], 1, "{answer}");
    assert_eq!(served(&mut client), 2);
    // Another title is another context: all is read again.
    let text = long_text(&[PARTS[0], "Part 2 is pink.", PARTS[2], PARTS[3]]);
    client
        .execute("SELECT cortex_source_put('parts', $1, 'A title')", &[&text])
        .unwrap();
    want(&mut client, "parts", &[]);
    assert_eq!(
        take(&mut client, "w", "60 seconds").unwrap().chunks.len(),
        4
    );
    assert_eq!(served(&mut client), 0);
}

#[test]
fn unchanged_text_is_recognised_for_sources_of_many_chunks() {
    let (_database, mut client) = parts();
    want(&mut client, "parts", &[]);
    build_all(&mut client, reworded);
    let text = long_text(&PARTS);
    let again = put(&mut client, "parts", &text);
    assert_eq!(again["changed"], false, "{again}");
    let told: String = client
        .query_one("SELECT cortex_source_changed('parts', $1)::text", &[&text])
        .unwrap()
        .get(0);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["unchanged"], &told["closed"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(served(&mut client), 4);
    let told: String = client
        .query_one(
            "SELECT cortex_source_changed('parts', $1)::text",
            &[&format!("{text}.")],
        )
        .unwrap()
        .get(0);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["unchanged"], &told["closed"]),
        (&json!(false), &json!(1))
    );
    assert_eq!(served(&mut client), 0);
}

#[test]
fn evicted_units_are_served_no_more_and_can_be_built_again() {
    let (_database, mut client) = parts();
    want(&mut client, "parts", &[]);
    build_all(&mut client, reworded);
    cortex_work(&mut client);
    let unit: i64 = one(
        &mut client,
        "SELECT unit_id FROM cortex.units WHERE purpose = 'model'",
    );
    let all = chunks(&mut client, "parts");
    assert_eq!(want(&mut client, "parts", &all), told("already"));
    assert_eq!(
        json(&mut client, &format!("cortex_unit_evict({unit})")),
        json!({"unit_id": unit, "claims": 4, "already": false})
    );
    assert_eq!(
        json(&mut client, &format!("cortex_unit_evict({unit})"))["already"],
        true
    );
    assert_eq!(served(&mut client), 0);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.stale WHERE reason = 'evicted'"
        ),
        4
    );
    assert_eq!(
        one::<String>(
            &mut client,
            &format!("SELECT state FROM cortex.units WHERE unit_id = {unit}")
        ),
        "evicted"
    );
    assert_eq!(
        one::<i64>(
            &mut client,
            &format!("SELECT count(*) FROM cortex_drill({unit})")
        ),
        0
    );
    assert_eq!(want(&mut client, "parts", &all), told("queued"));
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    assert_eq!((taken.class.as_str(), taken.chunks.len()), ("NOVEL", 4));
    commit(&mut client, taken.job, "w", &json!(["Part 1 is red."]), "");
    assert_eq!(served(&mut client), 1);
    // A purge takes all that models built, and what is under way.
    put(&mut client, "more", "Part 5 is grey.");
    want(&mut client, "more", &[]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    let purged = json(&mut client, "cortex_pool_purge('default')");
    assert_eq!(
        purged,
        json!({"units": 1, "claims": 1, "jobs": 1, "questions": 0})
    );
    assert_eq!(
        json(&mut client, "cortex_pool_purge('default')")["units"],
        0
    );
    assert_eq!(
        failure(
            &mut client,
            &format!(
                "SELECT cortex_build_commit({}, '[]', worker => 'w')",
                taken.job
            )
        )
        .0,
        "55000"
    );
    assert_eq!(served(&mut client), 0);
    assert!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.claims WHERE fresh"
        ) > 0,
        "extracted sentences stay"
    );
    let evictions: Vec<Value> = events(&mut client)
        .into_iter()
        .filter(|(kind, _)| kind == "unit_evicted")
        .map(|(_, detail)| detail)
        .collect();
    assert_eq!(evictions.len(), 2);
    assert_eq!(evictions[1]["units"], 1);
}

#[test]
fn vectors_come_with_the_claims_or_are_made_later() {
    let (_database, mut client) = parts();
    use_space(&mut client, "m", 4);
    embed(&mut client);
    want(&mut client, "parts", &[]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    let claims = json!(["Part 1 is red.", "Part 9 is red.", "", "Part 2 is blue."]);
    let given = |vectors: &[&str]| {
        format!(
            ", vectors => ARRAY['{}']::vector[], of_space => 1",
            vectors.join("','")
        )
    };
    for (vectors, says) in [
        (given(&["[1,0,0,0]"; 3]), "4 claims and 3 vectors"),
        (
            given(&["[1,0,0,0]", "[1,0,0]", "[1,0,0,0]", "[1,0,0,0]"]),
            "3",
        ),
        (
            given(&["[1,0,0,0]", "[0,0,0,0]", "[1,0,0,0]", "[1,0,0,0]"]),
            "embedding of item 2",
        ),
    ] {
        let sql = format!(
            "SELECT cortex_build_commit({}, '{claims}', worker => 'w'{vectors})",
            taken.job
        );
        let (code, text) = failure(&mut client, &sql);
        assert_eq!(code, "22023", "{text}");
        assert!(text.contains(says), "{text}");
    }
    assert_eq!(served(&mut client), 0);
    // The second claim is dropped: its vector goes with it. The last has none: a job makes it.
    let literals: Vec<String> = (0..3)
        .map(|n| vector_literal(&text_vector(&format!("v{n}"), 4)))
        .collect();
    let vectors = format!(
        ", vectors => ARRAY['{}','{}','{}',NULL]::vector[], of_space => 1",
        literals[0], literals[1], literals[2]
    );
    let answer = commit(&mut client, taken.job, "w", &claims, &vectors);
    assert_eq!(answer["admitted"], 2, "{answer}");
    let stored: String = one(
        &mut client,
        "SELECT e.embedding::text FROM cortex.emb_1 e JOIN cortex.claim c ON c.id = e.item_id JOIN cortex.unit u ON u.id = c.unit_id WHERE u.purpose = 'model'",
    );
    let expected: String = one(
        &mut client,
        &format!("SELECT ('{}'::vector)::text", literals[0]),
    );
    assert_eq!(stored, expected);
    assert_eq!(embed(&mut client), 1);
    assert_eq!(embed(&mut client), 0);
}

/// While a space is to follow the present one, built and carried claims get their vectors in both.
#[test]
fn claims_get_vectors_in_the_next_space_too() {
    let (_database, mut client) = parts();
    use_space(&mut client, "m", 4);
    embed(&mut client);
    let next = use_space(&mut client, "n", 3);
    want(&mut client, "parts", &[]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    let vectors = ", vectors => ARRAY['[1,0,0,0]']::vector[], of_space => 1";
    commit(
        &mut client,
        taken.job,
        "w",
        &json!([{"claim": "Part 1 is red.", "chunks": [taken.chunks[0].0]}]),
        vectors,
    );
    put(
        &mut client,
        "parts",
        &long_text(&[PARTS[0], "Part 2 is pink."]),
    );
    want(&mut client, "parts", &[]);
    assert_eq!(
        take(&mut client, "w", "60 seconds").unwrap().chunks.len(),
        1
    );
    embed(&mut client);
    assert_eq!(
        one::<i32>(&mut client, "SELECT space FROM cortex.namespaces"),
        next,
        "nothing is missing in the next space"
    );
    let lacking = "SELECT count(*) FROM cortex.claim c JOIN cortex.source_version v ON v.id = c.version_ids[1] AND v.closed_by IS NULL \
                    WHERE NOT EXISTS (SELECT FROM cortex.emb_2 e WHERE e.item_id = c.id)";
    assert_eq!(one::<i64>(&mut client, lacking), 0);
    assert_eq!(served(&mut client), 1);
}

#[test]
fn a_question_is_known_as_built_while_its_sources_stand() {
    let (_database, mut client) = parts();
    use_space(&mut client, "m", 4);
    put(&mut client, "other", "Part 5 is grey.");
    cortex_work(&mut client);
    // A question is kept where it is near what it is built from.
    embed_with(&mut client, |_, dims| vec![1.0; dims]);
    let ask = |client: &mut Client, vector: &str| {
        let two = chunks(client, "parts")[..2].to_vec();
        let mut both = cortex_extension_tests::pool::wanted(client, "parts", &two);
        let more = cortex_extension_tests::pool::wanted(client, "other", &[]);
        both.as_array_mut().unwrap().push(more[0].clone());
        json(
            client,
            &format!("cortex_build_want('{both}', 'default', '{vector}')"),
        )
    };
    assert_eq!(ask(&mut client, "[1,2,3,4]")["queued"], 2);
    assert_eq!(ask(&mut client, "[1,2,3,4]")["already"], 2);
    let questions =
        |client: &mut Client| one::<i64>(client, "SELECT count(*) FROM cortex.question");
    assert_eq!(
        questions(&mut client),
        1,
        "the same want twice is one question"
    );
    ask(&mut client, "[4,3,2,1]");
    assert_eq!(questions(&mut client), 2);
    let built = |client: &mut Client| {
        one::<i64>(
            client,
            "SELECT count(*) FROM cortex.question q WHERE cortex._question_built(q.id)",
        )
    };
    assert_eq!(built(&mut client), 0);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    commit(&mut client, taken.job, "w", &json!([]), "");
    assert_eq!(built(&mut client), 0, "one of its two sources is not built");
    build_all(&mut client, reworded);
    assert_eq!(built(&mut client), 2);
    // A sibling changes: the question is not known any more, from that commit on.
    put(&mut client, "other", "Part 5 is gone.");
    assert_eq!(built(&mut client), 0);
    for (vector, code) in [("[1,2]", "22023"), ("[0,0,0,0]", "22023")] {
        let (told, text) = failure(
            &mut client,
            &format!("SELECT cortex_build_want('[]', 'default', '{vector}')"),
        );
        assert_eq!(told, code, "{text}");
        assert!(text.contains("query_embedding"), "{text}");
    }
}

/// The statistics of ranking are those of a recount, after any order of builds, changes, evictions and seals.
#[test]
fn the_seal_counts_what_is_there() {
    for seed in 0..6 {
        let (database, mut client) = Database::with_cortex();
        modelled(&mut client, json!({}));
        let mut random = Random::new(seed);
        let mut other = database.connect();
        for step in 0..60 {
            let artifact = format!("s{}", random.below(4));
            let current: i64 = one(
                &mut client,
                &format!(
                    "SELECT count(*) FROM cortex.source s JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL WHERE s.artifact_id = '{artifact}'"
                ),
            );
            match random.below(8) {
                0 | 1 => {
                    let about: Vec<String> = (0..1 + random.below(3))
                        .map(|_| format!("Part {} is red.", random.below(5)))
                        .collect();
                    let about: Vec<&str> = about.iter().map(String::as_str).collect();
                    put(&mut client, &artifact, &long_text(&about));
                }
                2 if current > 0 => {
                    want(&mut client, &artifact, &[]);
                }
                3 | 4 => {
                    // In one transaction with a change, or alone.
                    let joined = random.below(2) == 0;
                    if joined {
                        other.batch_execute("BEGIN").unwrap();
                        put(&mut other, "joined", &format!("Step {step} is there."));
                    }
                    build_all(&mut other, reworded);
                    if joined {
                        other
                            .batch_execute(if random.below(4) == 0 {
                                "ROLLBACK"
                            } else {
                                "COMMIT"
                            })
                            .unwrap();
                    }
                }
                5 if current > 0 && random.below(2) == 0 => {
                    client
                        .batch_execute(&format!("SELECT cortex_source_deleted('{artifact}')"))
                        .unwrap();
                }
                6 => {
                    client.batch_execute("SELECT cortex_unit_evict(unit_id) FROM cortex.units WHERE state <> 'evicted' ORDER BY md5(unit_id::text || now()) LIMIT 1").unwrap();
                }
                _ => client.batch_execute("SELECT cortex_seal()").unwrap(),
            }
        }
        client.batch_execute("SELECT cortex_seal()").unwrap();
        let sealed = json(
            &mut client,
            "(SELECT jsonb_build_array(chunk_count, claim_count, claim_terms) FROM cortex.seal ORDER BY seq DESC LIMIT 1)",
        );
        let counted = json(
            &mut client,
            "(SELECT jsonb_build_array( \
                (SELECT count(*) FROM cortex.chunk k JOIN cortex.source_version v ON v.id = k.version_id AND v.closed_by IS NULL), \
                (SELECT count(*) FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id AND u.evicted_by IS NULL \
                   JOIN cortex.source_version v ON v.id = u.version_id AND v.closed_by IS NULL), \
                (SELECT coalesce(sum(t), 0) FROM ( \
                    SELECT d.claim_terms AS t FROM cortex.document d JOIN cortex.source_version v ON v.id = d.version_id AND v.closed_by IS NULL \
                     WHERE NOT EXISTS (SELECT FROM cortex.unit u WHERE u.version_id = d.version_id AND u.purpose = 'extract' AND u.evicted_by IS NOT NULL) \
                    UNION ALL \
                    SELECT a.claim_terms FROM cortex.unit_addition a JOIN cortex.unit u ON u.id = a.unit_id AND u.evicted_by IS NULL \
                      JOIN cortex.source_version v ON v.id = a.version_id AND v.closed_by IS NULL) x)))",
        );
        assert_eq!(sealed, counted, "seed {seed}");
        let additions: i64 = one(
            &mut client,
            "SELECT count(*) FROM cortex.unit u WHERE u.purpose = 'model' AND (SELECT count(*) FROM cortex.claim c WHERE c.unit_id = u.id) \
              <> (SELECT coalesce(sum(a.claim_count), 0) FROM cortex.unit_addition a WHERE a.unit_id = u.id)",
        );
        assert_eq!(additions, 0, "seed {seed}");
    }
}

#[test]
fn vectors_of_a_space_that_is_no_longer_used_are_left_out() {
    let (_database, mut client) = parts();
    use_space(&mut client, "m", 4);
    embed(&mut client);
    let other: i32 = one(
        &mut client,
        "SELECT cortex_space_register('other', '1', 'd', 4)",
    );
    let stored = "SELECT count(*) FROM cortex.emb_1 e JOIN cortex.claim c ON c.id = e.item_id \
                    JOIN cortex.unit u ON u.id = c.unit_id WHERE u.purpose = 'model'";
    want(&mut client, "parts", &[]);
    let taken = take(&mut client, "w", "60 seconds").unwrap();
    for (of_space, says) in [("NULL", "NULL"), ("99", "99")] {
        let sql = format!(
            "SELECT cortex_build_commit({}, '[\"Part 1 is red.\"]', worker => 'w', vectors => ARRAY['[1,0,0,0]']::vector[], of_space => {of_space})",
            taken.job
        );
        let (code, text) = failure(&mut client, &sql);
        assert_eq!(code, "22023", "{text}");
        assert!(
            text.contains(&format!("of space {says}, which there is not")),
            "{text}"
        );
    }
    let mut have = 0;
    for (claim, space, vectors_kept) in [("Part 1 is red.", other, 0), ("Part 2 is blue.", 1, 1)] {
        client
            .batch_execute("SELECT cortex_pool_purge('default')")
            .unwrap();
        want(&mut client, "parts", &[]);
        let taken = take(&mut client, "w", "60 seconds").unwrap();
        let more = format!(", vectors => ARRAY['[1,0,0,0]']::vector[], of_space => {space}");
        let answer = commit(&mut client, taken.job, "w", &json!([claim]), &more);
        assert_eq!(
            (&answer["admitted"], &answer["vectors"]),
            (&json!(1), &json!(vectors_kept)),
            "{answer}"
        );
        have += vectors_kept;
        assert_eq!(one::<i64>(&mut client, stored), have, "of space {space}");
        let jobs: i64 = one(
            &mut client,
            "SELECT count(*) FROM cortex.job WHERE kind = 'embed'",
        );
        assert_eq!(jobs, 1 - vectors_kept, "of space {space}");
        embed(&mut client);
        have += 1 - vectors_kept;
    }
}
