//! Readers, writers, builders, an evictor and a sealer at once. Needs a server in CORTEX_TEST_PG18_URL or
//! CORTEX_TEST_PG16_URL. CORTEX_TEST_OPERATIONS says how much they do (default 1,200); 100,000 take some minutes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use cortex_extension_tests::pool::{build_all, long_text, modelled, reworded};
use cortex_extension_tests::serving::{
    Random, cortex_work, embed_with, json, put, use_space, vector_literal,
};
use cortex_extension_tests::{Database, one};
use postgres::Client;
use serde_json::{Value, json};

const SOURCES: usize = 6;
const SESSIONS: usize = 10;
const ROWS: usize = 40;
const DIMS: usize = 8;

/// What each session does, so that all of them together do what the environment asks for.
fn rounds() -> usize {
    let operations = std::env::var("CORTEX_TEST_OPERATIONS").map_or(1_200, |text| {
        text.parse().expect("CORTEX_TEST_OPERATIONS is a number")
    });
    usize::max(operations / SESSIONS, 1)
}

/// A text whose every paragraph names the round that wrote it.
fn text(random: &mut Random, round: usize) -> String {
    let about: Vec<String> = (0..1 + random.below(3))
        .map(|part| {
            // Some paragraphs stay as they were, so that there is something to carry over.
            let of = if part == 0 { 0 } else { round };
            format!("Part {part} is of round {of}.")
        })
        .collect();
    long_text(&about.iter().map(String::as_str).collect::<Vec<_>>())
}

fn write(client: &mut Client, random: &mut Random, round: usize) {
    let artifact = format!("s{}", random.below(SOURCES));
    if random.below(6) == 0 {
        client
            .batch_execute(&format!(
                "SELECT cortex_source_deleted('{artifact}') WHERE cortex_has_source('{artifact}')"
            ))
            .unwrap();
    } else {
        let text = text(random, round);
        put(client, &artifact, &text);
    }
}

fn ask(client: &mut Client, random: &mut Random) {
    let artifact = format!("s{}", random.below(SOURCES));
    let wanted: Option<String> = one(
        client,
        &format!(
            "SELECT (SELECT jsonb_build_array(jsonb_build_object('source_id', s.id, 'version_id', v.id, 'chunk_ids', \
                     (SELECT jsonb_agg(c.id) FROM cortex.chunk c WHERE c.version_id = v.id)))::text \
               FROM cortex.source s JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL WHERE s.artifact_id = '{artifact}')"
        ),
    );
    if let Some(wanted) = wanted {
        let told = json(client, &format!("cortex_build_want('{wanted}')"));
        let sum: i64 = ["queued", "already", "backing_off", "gone"]
            .iter()
            .map(|key| told[key].as_i64().unwrap())
            .sum();
        assert_eq!(sum, 1, "{told}");
    }
}

/// Changes rows of a bound table, alone and several at once, there and back.
fn change_rows(client: &mut Client, random: &mut Random, round: usize) {
    let (low, many) = (random.below(ROWS), random.below(4));
    let change = match random.below(5) {
        0 => format!("DELETE FROM note WHERE id BETWEEN {low} AND {}", low + many),
        1 => format!(
            "INSERT INTO note SELECT g, 'Note ' || g || ' was written in round {round}.' FROM generate_series(0, {}) g \
             ON CONFLICT (id) DO NOTHING",
            ROWS - 1
        ),
        _ => format!(
            "UPDATE note SET body = 'Note ' || id || ' was changed in round {round}.' WHERE id BETWEEN {low} AND {}",
            low + many
        ),
    };
    let end = if random.below(5) == 0 {
        "ROLLBACK"
    } else {
        "COMMIT"
    };
    client
        .batch_execute(&format!("BEGIN; {change}; {end}"))
        .unwrap();
}

/// Reads, and compares what was served with what is so in the same snapshot.
fn read(client: &mut Client, random: &mut Random) {
    let question = match random.below(3) {
        0 => format!("which note was changed in round {}", random.below(90)),
        1 => format!("what does note {} say", random.below(ROWS)),
        _ => format!("which part is of round {}", random.below(90)),
    };
    let vector = match random.below(2) {
        0 => "NULL".to_owned(),
        _ => format!("'{}'", vector_literal(&random.unit_vector(DIMS))),
    };
    let sql = format!(
        "SELECT jsonb_array_length(r.claims), \
                ARRAY(SELECT c.value::text FROM jsonb_array_elements(r.claims) c \
                       WHERE NOT EXISTS (SELECT FROM cortex.source_version v \
                                          WHERE v.id = (c ->> 'version_id')::bigint AND v.closed_by IS NULL) \
                          OR (c ->> 'artifact_id' LIKE 'row:note:%' \
                              AND NOT EXISTS (SELECT FROM note n WHERE 'row:note:[' || n.id || ']' = c ->> 'artifact_id' \
                                                 AND n.body = c ->> 'body')) \
                          OR NOT EXISTS (SELECT FROM cortex.claim k WHERE k.id = (c ->> 'claim_id')::bigint) \
                          OR EXISTS (SELECT FROM cortex.claim k JOIN cortex.unit u ON u.id = k.unit_id \
                                      WHERE k.id = (c ->> 'claim_id')::bigint AND u.evicted_by IS NOT NULL)) \
           FROM cortex_read('{question}', {vector}, budget_tokens => {}) r",
        60 + random.below(2_000)
    );
    let row = client.query_one(&sql, &[]).unwrap();
    SERVED.fetch_add(row.get::<_, i32>(0) as usize, Ordering::Relaxed);
    assert_eq!(
        row.get::<_, Vec<String>>(1),
        Vec::<String>::new(),
        "{question}"
    );
}

static SERVED: AtomicUsize = AtomicUsize::new(0);

/// Takes what there is and commits it, gives it back, or lets it lie.
fn build(client: &mut Client, random: &mut Random, worker: &str) {
    let Some(taken) = cortex_extension_tests::pool::take(client, worker, "1 second") else {
        return;
    };
    match random.below(6) {
        0 => {}
        1 => {
            let sql = format!(
                "SELECT cortex_build_fail({}, 'prose', worker => '{worker}')",
                taken.job
            );
            lost_or_done(client.batch_execute(&sql));
        }
        _ => {
            let claims: Vec<Value> = taken
                .chunks
                .iter()
                .map(|(id, body)| json!({"claim": reworded(body)[0], "chunks": [id]}))
                .collect();
            let claims = json!(claims).to_string();
            let sql = format!(
                "SELECT cortex_build_commit({}, '{claims}', worker => '{worker}')",
                taken.job
            );
            lost_or_done(client.batch_execute(&sql));
        }
    }
}

/// On a slow machine a lease of a second can run out; no other error is right, a deadlock least of all.
fn lost_or_done(result: Result<(), postgres::Error>) {
    if let Err(error) = result {
        let error = error.as_db_error().expect("an error of the server");
        assert_eq!(error.code().code(), "55000", "{error:?}");
    }
}

/// Orders a session's faults: each is a sentence. Looked at in one snapshot, so that what it shows once was true.
fn faults(client: &mut Client) -> Vec<String> {
    let checks = [
        (
            "a fresh claim of a closed version",
            "SELECT count(*) FROM cortex.claims f JOIN cortex.claim c ON c.id = f.claim_id, unnest(c.version_ids) i \
           JOIN cortex.source_version v ON v.id = i WHERE f.fresh AND v.closed_by IS NOT NULL",
        ),
        (
            "two model units of one version",
            "SELECT count(*) FROM (SELECT FROM cortex.unit WHERE purpose = 'model' AND evicted_by IS NULL GROUP BY version_id HAVING count(*) > 1) x",
        ),
        (
            "two builds of one source",
            "SELECT count(*) FROM (SELECT FROM cortex.job WHERE kind = 'build' GROUP BY payload ->> 'source' HAVING count(*) > 1) x",
        ),
        (
            "a claim that its chunks do not say",
            "SELECT count(*) FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id AND u.purpose = 'model' \
           JOIN cortex.chunk k ON k.id = c.chunk_ids[1] WHERE position(substr(c.body, 19) IN k.body) = 0",
        ),
        (
            "a claim said twice in a unit",
            "SELECT count(*) FROM (SELECT FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id AND u.purpose = 'model' GROUP BY c.unit_id, c.body HAVING count(*) > 1) x",
        ),
        (
            "a vector, a copy or a posting without its item",
            "SELECT (SELECT count(*) FROM cortex.emb_1 e WHERE NOT EXISTS (SELECT FROM cortex.claim c WHERE c.id = e.item_id) \
                                                           AND NOT EXISTS (SELECT FROM cortex.chunk c WHERE c.id = e.item_id)) \
                  + (SELECT count(*) FROM cortex.unit_chunk k WHERE NOT EXISTS (SELECT FROM cortex.chunk c WHERE c.id = k.chunk_id)) \
                  + (SELECT count(*) FROM cortex.claim c WHERE NOT EXISTS (SELECT FROM cortex.unit u WHERE u.id = c.unit_id)) \
                  + abs((SELECT count(*) FROM cortex.emb_1) - (SELECT coalesce(sum(cardinality(cortex._pack_items(p.block))), 0) \
                          FROM (SELECT block FROM cortex.pack_1 UNION ALL SELECT block FROM cortex.pack_1_old) p))::bigint",
        ),
        (
            "a claim of an uncovered chunk",
            "SELECT count(*) FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id AND u.purpose = 'model', unnest(c.chunk_ids) i \
           WHERE NOT EXISTS (SELECT FROM cortex.unit_chunk k WHERE k.unit_id = u.id AND k.chunk_id = i)",
        ),
    ];
    checks
        .iter()
        .filter_map(|(what, sql)| {
            let found: i64 = one(client, sql);
            (found > 0).then(|| format!("{found} times {what}"))
        })
        .collect()
}

#[test]
fn readers_writers_and_builders_together() {
    let (database, mut client) = Database::with_cortex();
    modelled(&mut client, json!({"event_cap": 100000}));
    client
        .batch_execute(&format!(
            "CREATE TABLE note (id int PRIMARY KEY, body text); \
             INSERT INTO note SELECT g, 'Note ' || g || ' is as it was.' FROM generate_series(0, {}) g; \
             SELECT cortex_bind('note', text_columns => '{{body}}'); SELECT cortex_work()",
            ROWS - 1
        ))
        .unwrap();
    use_space(&mut client, "m", DIMS);
    let rounds = rounds();
    let start = Arc::new(Barrier::new(SESSIONS + 1));
    let stop = Arc::new(AtomicBool::new(false));
    let sealer = {
        let (mut session, start, stop) = (database.connect(), start.clone(), stop.clone());
        thread::spawn(move || {
            start.wait();
            let (mut random, mut turns) = (Random::new(99), 0);
            while !stop.load(Ordering::Relaxed) {
                // Seals, chunks and embeds what changed, and puts copies in order, as a worker does.
                session.batch_execute("SELECT cortex_work(50)").unwrap();
                embed_with(&mut session, |_, dims| random.unit_vector(dims));
                turns += 1;
                if turns % 50 == 0 {
                    session
                        .batch_execute("SELECT cortex._repack(1, 1)")
                        .unwrap();
                }
            }
        })
    };
    let sessions: Vec<_> = (0..SESSIONS as u64)
        .map(|n| {
            let (mut session, start) = (database.connect(), start.clone());
            thread::spawn(move || {
                let mut random = Random::new(n);
                let worker = format!("w{n}");
                start.wait();
                for round in 0..rounds {
                    match n {
                        0 | 1 => write(&mut session, &mut random, round),
                        2 | 3 => ask(&mut session, &mut random),
                        4 | 5 => build(&mut session, &mut random, &worker),
                        6 if round % 20 == 0 => assert_eq!(faults(&mut session), Vec::<String>::new()),
                        6 | 8 => read(&mut session, &mut random),
                        9 => change_rows(&mut session, &mut random, round),
                        // Several kinds of work in one transaction, some of it taken back.
                        _ => {
                            session.batch_execute("BEGIN").unwrap();
                            ask(&mut session, &mut random);
                            if random.below(3) == 0 {
                                session
                                    .batch_execute("SELECT cortex_unit_evict(unit_id) FROM cortex.units WHERE state = 'fresh' AND purpose = 'model' LIMIT 1")
                                    .unwrap();
                            } else {
                                build(&mut session, &mut random, &worker);
                            }
                            session
                                .batch_execute(if random.below(3) == 0 { "ROLLBACK" } else { "COMMIT" })
                                .unwrap();
                        }
                    }
                }
            })
        })
        .collect();
    for session in sessions {
        session.join().unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    sealer.join().unwrap();
    assert_eq!(faults(&mut client), Vec::<String>::new());
    let served = SERVED.load(Ordering::Relaxed);
    assert!(served > rounds, "{served} claims were served");
    println!("{} operations, {served} claims served", rounds * SESSIONS);
    // What is left can be done, and then every wanted chunk is covered and every count right.
    client
        .batch_execute("UPDATE cortex.job SET state = 'ready', worker = NULL, lease_until = NULL, attempts = 0, run_after = clock_timestamp() WHERE kind = 'build'")
        .unwrap();
    build_all(&mut client, reworded);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT count(*) FROM cortex.job WHERE kind = 'build'"
        ),
        0
    );
    cortex_work(&mut client);
    assert_eq!(faults(&mut client), Vec::<String>::new());
    let recount: i64 = one(
        &mut client,
        "SELECT count(*) FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id AND u.evicted_by IS NULL JOIN cortex.source_version v ON v.id = u.version_id AND v.closed_by IS NULL",
    );
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT claim_count FROM cortex.seal ORDER BY seq DESC LIMIT 1"
        ),
        recount
    );
    let counters = json(&mut client, "cortex_stats()")["counters"].clone();
    let made: i64 = one(
        &mut client,
        "SELECT count(*) FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id AND u.purpose = 'model'",
    );
    let count = |name: &str| counters[name].as_i64().unwrap_or(0);
    assert_eq!(count("claims_admitted") + count("claims_carried"), made);
    assert!(count("claims_carried") > 0, "nothing was carried over");
    let built: i64 = one(
        &mut client,
        "SELECT count(*) FROM cortex.unit_addition WHERE model IS NOT NULL",
    );
    assert_eq!(counters["builds"], built);
    println!("{counters}");
}
