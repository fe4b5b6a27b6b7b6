//! Invariant 6: state is recorded, not dated. What was asked at a state replays bit for bit after any number of
//! later edits, late commits and other orders of sealing. Needs a server in CORTEX_TEST_PG18_URL or
//! CORTEX_TEST_PG16_URL.

use cortex_extension_tests::serving::{
    Random, ask, cortex_work, embed, embed_with, json, must_verify, put, text_vector, use_space,
    vector_literal, verify,
};
use cortex_extension_tests::{Database, one};
use postgres::Client;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const DIMS: usize = 12;
const SESSIONS: usize = 3;
/// Keys that edits fight about.
const KEYS: i32 = 8;

/// One step of a history. Sessions are 0 to 2, each with at most one open transaction.
#[derive(Clone, Debug)]
enum Step {
    Begin {
        session: usize,
        isolation: usize,
    },
    Savepoint {
        session: usize,
    },
    RollBackToSavepoint {
        session: usize,
    },
    Commit {
        session: usize,
    },
    RollBack {
        session: usize,
    },
    Prepare {
        session: usize,
    },
    CommitPrepared {
        nth: usize,
    },
    RollBackPrepared {
        nth: usize,
    },
    Put {
        session: usize,
        key: i32,
        text: u64,
    },
    Delete {
        session: usize,
        key: i32,
    },
    Edit {
        session: usize,
        sql: usize,
        key: i32,
        text: u64,
    },
    Seal,
    Work,
    Embed,
    Hold,
    Release,
    Ask {
        words: u64,
        vector: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let session = 0..SESSIONS;
    let key = 1..=KEYS;
    prop_oneof![
        3 => (session.clone(), 0..3usize).prop_map(|(session, isolation)| Step::Begin { session, isolation }),
        2 => session.clone().prop_map(|session| Step::Savepoint { session }),
        2 => session.clone().prop_map(|session| Step::RollBackToSavepoint { session }),
        3 => session.clone().prop_map(|session| Step::Commit { session }),
        1 => session.clone().prop_map(|session| Step::RollBack { session }),
        1 => session.clone().prop_map(|session| Step::Prepare { session }),
        2 => (0..4usize).prop_map(|nth| Step::CommitPrepared { nth }),
        1 => (0..4usize).prop_map(|nth| Step::RollBackPrepared { nth }),
        6 => (session.clone(), key.clone(), any::<u64>()).prop_map(|(session, key, text)| Step::Put { session, key, text }),
        2 => (session.clone(), key.clone()).prop_map(|(session, key)| Step::Delete { session, key }),
        10 => (session, 0..EDITS.len(), key, any::<u64>()).prop_map(|(session, sql, key, text)| Step::Edit { session, sql, key, text }),
        4 => Just(Step::Seal),
        4 => Just(Step::Work),
        1 => Just(Step::Embed),
        1 => Just(Step::Hold),
        1 => Just(Step::Release),
        8 => (any::<u64>(), any::<bool>()).prop_map(|(words, vector)| Step::Ask { words, vector }),
    ]
}

/// Edits of the bound table. `$k` is a key, `$t` a text.
const EDITS: [&str; 7] = [
    "INSERT INTO note VALUES ($k, $t) ON CONFLICT (id) DO UPDATE SET body = excluded.body",
    "UPDATE note SET body = $t WHERE id = $k",
    "DELETE FROM note WHERE id = $k",
    "UPDATE note SET id = id + 100 WHERE id = $k AND NOT EXISTS (SELECT FROM note o WHERE o.id = $k + 100)",
    "UPDATE note SET body = $t WHERE id % 3 = $k % 3",
    "UPDATE note SET stars = stars + 1",
    "MERGE INTO note n USING (VALUES ($k, $t)) v (id, body) ON n.id = v.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.body)",
];

/// What was asked at some state, with all that must come out of it for ever.
struct Asked {
    id: i64,
    trace: String,
}

struct History {
    database: Database,
    admin: Client,
    sessions: Vec<Client>,
    open: Vec<bool>,
    savepoint: Vec<bool>,
    prepared: Vec<String>,
    made: usize,
    asked: Vec<Asked>,
}

impl History {
    fn new() -> Self {
        let (database, mut admin) = Database::with_cortex();
        admin
            .batch_execute(
                "CREATE TABLE note (id int PRIMARY KEY, body text, stars int DEFAULT 0); \
                 INSERT INTO note SELECT g, 'The valve ' || g || ' has a pump and a gauge.' FROM generate_series(1, 6) g; \
                 SELECT cortex_bind('note', text_columns => '{body}')",
            )
            .unwrap();
        cortex_work(&mut admin);
        use_space(&mut admin, "m", DIMS);
        embed(&mut admin);
        let sessions: Vec<Client> = (0..SESSIONS)
            .map(|_| {
                let mut session = database.connect();
                session
                    .batch_execute("SET lock_timeout = '50ms'; SET deadlock_timeout = '20ms'")
                    .unwrap();
                session
            })
            .collect();
        admin.batch_execute("SET lock_timeout = '200ms'").unwrap();
        History {
            database,
            admin,
            sessions,
            open: vec![false; SESSIONS],
            savepoint: vec![false; SESSIONS],
            prepared: Vec::new(),
            made: 0,
            asked: Vec::new(),
        }
    }

    /// Runs SQL in a session. Conflicts between sessions are part of the game; all else is an error of the test.
    fn run(&mut self, session: usize, sql: &str) -> bool {
        match self.sessions[session].batch_execute(sql) {
            Ok(()) => true,
            Err(error) => {
                let code = error
                    .code()
                    .unwrap_or_else(|| panic!("{sql}: {error:?}"))
                    .code()
                    .to_owned();
                assert!(
                    ["55P03", "40001", "40P01", "25P02", "23505", "55000"].contains(&code.as_str()),
                    "{sql}: {error:?}"
                );
                false
            }
        }
    }

    fn end(&mut self, session: usize, sql: &str) {
        self.run(session, sql);
        self.open[session] = false;
        self.savepoint[session] = false;
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Begin { session, isolation } => {
                if !self.open[session] {
                    let level = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][isolation];
                    self.open[session] =
                        self.run(session, &format!("BEGIN ISOLATION LEVEL {level}; SELECT 1"));
                }
            }
            Step::Savepoint { session } => {
                if self.open[session] && self.run(session, "SAVEPOINT s") {
                    self.savepoint[session] = true;
                }
            }
            Step::RollBackToSavepoint { session } => {
                if self.savepoint[session] {
                    self.run(session, "ROLLBACK TO s");
                }
            }
            Step::Commit { session } => self.end(session, "COMMIT"),
            Step::RollBack { session } => self.end(session, "ROLLBACK"),
            Step::Prepare { session } => {
                if self.open[session] {
                    let gid = format!("{}_{}", self.database.name, self.made);
                    self.made += 1;
                    if self.run(session, &format!("PREPARE TRANSACTION '{gid}'")) {
                        // PREPARE of an aborted transaction rolls back and says so without an error.
                        if one::<bool>(
                            &mut self.admin,
                            &format!(
                                "SELECT EXISTS (SELECT FROM pg_prepared_xacts WHERE gid = '{gid}')"
                            ),
                        ) {
                            self.prepared.push(gid);
                        }
                    }
                    self.end(session, "ROLLBACK");
                }
            }
            Step::CommitPrepared { nth } => self.finish(nth, "COMMIT"),
            Step::RollBackPrepared { nth } => self.finish(nth, "ROLLBACK"),
            Step::Put { session, key, text } => {
                let text = self.text(text);
                self.run(
                    session,
                    &format!("SELECT cortex_source_put('text{key}', '{text}')"),
                );
            }
            Step::Delete { session, key } => {
                let known = format!(
                    "SELECT CASE WHEN cortex_has_source('text{key}') THEN cortex_source_deleted('text{key}') END"
                );
                self.run(session, &known);
            }
            Step::Edit {
                session,
                sql,
                key,
                text,
            } => {
                let sql = EDITS[sql]
                    .replace("$k", &key.to_string())
                    .replace("$t", &format!("'{}'", self.text(text)));
                self.run(session, &sql);
            }
            Step::Seal => self.admin("SELECT cortex_seal()"),
            Step::Work => self.admin("SELECT cortex_work()"),
            Step::Embed => {
                if self.admin.batch_execute("SELECT 1").is_ok() {
                    embed(&mut self.admin);
                }
            }
            Step::Hold => self.admin("SELECT cortex_pause('note')"),
            Step::Release => self.admin("SELECT cortex_resume('note')"),
            Step::Ask { words, vector } => self.ask(words, vector),
        }
    }

    fn admin(&mut self, sql: &str) {
        if let Err(error) = self.admin.batch_execute(sql) {
            let code = error
                .code()
                .unwrap_or_else(|| panic!("{sql}: {error:?}"))
                .code()
                .to_owned();
            assert!(
                ["55P03", "40001", "40P01", "55000"].contains(&code.as_str()),
                "{sql}: {error:?}"
            );
        }
    }

    fn finish(&mut self, nth: usize, how: &str) {
        if nth < self.prepared.len() {
            let gid = self.prepared.remove(nth);
            self.admin
                .batch_execute(&format!("{how} PREPARED '{gid}'"))
                .unwrap();
        }
    }

    fn text(&self, seed: u64) -> String {
        let mut random = Random::new(seed);
        let count = 1 + random.below(3);
        let sentences: Vec<String> = (0..count)
            .map(|_| format!("The valve has {}", random.sentence(6)))
            .collect();
        sentences.join(" ")
    }

    /// Asks twice: with nothing in between, the second is the first.
    fn ask(&mut self, words: u64, vector: bool) {
        let mut random = Random::new(words);
        let question = if random.below(4) == 0 {
            "valve".to_owned()
        } else {
            random.sentence(3)
        };
        let arguments = if vector {
            format!("'{}'", vector_literal(&text_vector(&question, DIMS)))
        } else {
            String::new()
        };
        let asked = ask(&mut self.admin, &question, &arguments);
        let again = ask(&mut self.admin, &question, &arguments);
        assert_eq!(
            (again.id, again.already, &again.evidence),
            (asked.id, true, &asked.evidence)
        );
        must_verify(&mut self.admin, asked.id, "L4");
        let trace = one(
            &mut self.admin,
            &format!("SELECT cortex_trace({})", asked.id),
        );
        self.asked.push(Asked {
            id: asked.id,
            trace,
        });
    }

    /// Every trace verifies and is what it was; no prepared transaction is left behind.
    fn check(mut self) {
        for gid in std::mem::take(&mut self.prepared) {
            self.admin
                .batch_execute(&format!("COMMIT PREPARED '{gid}'"))
                .unwrap();
        }
        for session in 0..SESSIONS {
            self.end(session, "COMMIT");
        }
        self.admin
            .batch_execute("SELECT cortex_resume('note'); SELECT cortex_work()")
            .unwrap();
        embed(&mut self.admin);
        self.admin.batch_execute("SELECT cortex_seal()").unwrap();
        for asked in &self.asked {
            let stored: String = one(
                &mut self.admin,
                &format!("SELECT cortex_trace({})", asked.id),
            );
            assert_eq!(stored, asked.trace);
            must_verify(&mut self.admin, asked.id, "L4");
        }
        let unsealed: i64 = one(
            &mut self.admin,
            "SELECT count(*) FROM cortex.change WHERE seq IS NULL",
        );
        assert_eq!(unsealed, 0);
        statistics_are_true(&mut self.admin);
    }
}

/// The last seal holds what a count of the current documents gives.
fn statistics_are_true(client: &mut Client) {
    let row = client
        .query_one(
            "SELECT s.chunk_count, s.chunk_terms, s.claim_count, s.claim_terms, d.* FROM cortex.seal s, \
                    (SELECT coalesce(sum(d.chunk_count), 0)::bigint, coalesce(sum(d.chunk_terms), 0)::bigint, \
                            coalesce(sum(d.claim_count), 0)::bigint, coalesce(sum(d.claim_terms), 0)::bigint \
                       FROM cortex.document d JOIN cortex.source_version v ON v.id = d.version_id AND v.closed_by IS NULL) d \
              WHERE s.namespace_id = 1 ORDER BY s.seq DESC LIMIT 1",
            &[],
        )
        .unwrap();
    let (sealed, counted): (Vec<i64>, Vec<i64>) = (
        (0..4).map(|n| row.get(n)).collect(),
        (4..8).map(|n| row.get(n)).collect(),
    );
    assert_eq!(
        sealed, counted,
        "statistics of the last seal against a count"
    );
}

#[test]
fn inv_06_every_history_replays() {
    // Each case takes seconds; the number can be raised by PROPTEST_CASES.
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(12);
    let mut runner = TestRunner::new(Config {
        cases,
        max_shrink_iters: 60,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&prop::collection::vec(step(), 40..120), |steps| {
        let mut history = History::new();
        for step in &steps {
            history.take(step);
        }
        history.check();
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn inv_06_a_thousand_edits_later_every_trace_still_replays() {
    let mut history = History::new();
    let mut random = Random::new(7);
    let mut traces = Vec::new();
    for _ in 0..25 {
        history.ask(random.bits(), true);
        history.ask(random.bits(), false);
        for _ in 0..4 {
            let (sql, key, text) = (
                random.below(EDITS.len()),
                1 + random.below(8) as i32,
                random.bits(),
            );
            history.take(&Step::Edit {
                session: 0,
                sql,
                key,
                text,
            });
        }
        if random.below(2) == 0 {
            history.take(&Step::Work);
        }
    }
    traces.extend(history.asked.iter().map(|asked| asked.id));
    for n in 0..1000 {
        let (sql, key, text) = (
            random.below(EDITS.len()),
            1 + random.below(8) as i32,
            random.bits(),
        );
        history.take(&Step::Edit {
            session: n % SESSIONS,
            sql,
            key,
            text,
        });
        if n % 50 == 0 {
            history.take(&Step::Work);
        }
    }
    assert!(traces.len() >= 50);
    history.check();
}

#[test]
fn inv_06_unsealed_changes_replay_after_they_were_sealed_in_another_order() {
    let (database, mut client) = Database::with_cortex();
    put(&mut client, "base", "The valve of the base.");
    cortex_work(&mut client);
    // Four transactions begin in order and commit in another; each commit is asked about before it is sealed.
    let mut sessions: Vec<Client> = (0..4).map(|_| database.connect()).collect();
    for (n, session) in sessions.iter_mut().enumerate() {
        session.batch_execute("BEGIN").unwrap();
        put(
            session,
            &format!("s{n}"),
            &format!("The valve of session {n} is open."),
        );
    }
    let mut traces = Vec::new();
    for n in [2, 0] {
        sessions[n].batch_execute("COMMIT").unwrap();
        let asked = ask(&mut client, "valve session", "");
        traces.push((asked.id, asked.evidence.as_array().unwrap().len()));
    }
    assert_eq!(traces.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [2, 3]);
    let extra: i64 = one(
        &mut client,
        &format!(
            "SELECT jsonb_array_length(body #> '{{rounds,0,receipt,state,extra}}')::bigint FROM cortex.traces WHERE trace_id = {}",
            traces[1].0
        ),
    );
    assert_eq!(extra, 2, "both changes are named, as none has a number");
    // Sealed as 0, then 1, and 3 between.
    client.batch_execute("SELECT cortex_seal()").unwrap();
    let sealed = ask(&mut client, "valve session", "");
    sessions[3].batch_execute("COMMIT").unwrap();
    let before_late = ask(&mut client, "valve session", "");
    client.batch_execute("SELECT cortex_seal()").unwrap();
    // The late one: begun first of all but one, committed after states were closed.
    sessions[1].batch_execute("COMMIT").unwrap();
    client.batch_execute("SELECT cortex_seal()").unwrap();
    let seqs: Vec<i64> = client
        .query("SELECT c.seq FROM cortex.change c JOIN cortex.source_version v ON v.opened_by = c.id ORDER BY v.id", &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(
        seqs.iter().max(),
        seqs.get(2),
        "what committed last has the highest number: {seqs:?}"
    );
    for (trace, _) in &traces {
        must_verify(&mut client, *trace, "L4");
    }
    must_verify(&mut client, sealed.id, "L4");
    must_verify(&mut client, before_late.id, "L4");
    let trace: String = one(&mut client, &format!("SELECT cortex_trace({})", sealed.id));
    assert!(!trace.contains("\"s1\"") && !trace.contains("\"s3\""));
}

#[test]
fn inv_06_a_receipt_of_a_read_is_a_state_too() {
    let (_database, mut client) = Database::with_cortex();
    put(&mut client, "a", "The valve is red. The valve is new.");
    cortex_work(&mut client);
    let receipt =
        |client: &mut Client| one::<String>(client, "SELECT receipt FROM cortex_read('valve')");
    let first = receipt(&mut client);
    assert_eq!(
        receipt(&mut client),
        first,
        "the same state, the same bytes"
    );
    let log: i64 = client
        .query_one("SELECT cortex_read_log($1)", &[&first])
        .unwrap()
        .get(0);
    assert_eq!(
        client
            .query_one("SELECT cortex_read_log($1)", &[&first])
            .unwrap()
            .get::<_, i64>(0),
        log
    );
    put(&mut client, "b", "The valve is blue.");
    assert_ne!(receipt(&mut client), first);
    cortex_work(&mut client);
    // A change of another namespace is no change of this one's state.
    let now = receipt(&mut client);
    client
        .batch_execute(
            "SELECT cortex_source_put('x', 'A valve.', namespace => 'other'); SELECT cortex_seal()",
        )
        .unwrap();
    let state =
        |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["candidates"].clone();
    assert_eq!(state(&receipt(&mut client)), state(&now));
}

#[test]
fn inv_06_what_a_transaction_changed_itself_is_no_state_to_record() {
    let (_database, mut client) = Database::with_cortex();
    put(&mut client, "a", "The valve is red.");
    client.batch_execute("BEGIN").unwrap();
    put(&mut client, "b", "The valve is blue.");
    let found: i64 = one(&mut client, "SELECT count(*) FROM cortex_search('valve')");
    assert_eq!(found, 2, "a read sees the transaction's own change");
    let error = client
        .query("SELECT * FROM cortex_ask('valve')", &[])
        .unwrap_err();
    assert_eq!(error.code().unwrap().code(), "55000", "{error:?}");
    client
        .batch_execute("ROLLBACK; BEGIN; SAVEPOINT s")
        .unwrap();
    put(&mut client, "b", "The valve is blue.");
    client.batch_execute("ROLLBACK TO s").unwrap();
    // Rolled back to before the change: an ordinary state again.
    let asked = ask(&mut client, "valve", "");
    client.batch_execute("COMMIT").unwrap();
    must_verify(&mut client, asked.id, "L4");
    // A change that its own transaction has numbered goes with the trace or stays with it.
    client.batch_execute("BEGIN").unwrap();
    put(&mut client, "c", "The valve is green.");
    client.batch_execute("SELECT cortex_seal()").unwrap();
    let asked = ask(&mut client, "valve green", "");
    put(&mut client, "d", "The green valve is late.");
    client.batch_execute("COMMIT").unwrap();
    must_verify(&mut client, asked.id, "L4");
}

#[test]
fn inv_06_an_approximate_nominator_replays_from_its_nominees() {
    let (_database, mut client) = Database::with_cortex();
    // Enough chunks that an index is asked as soon as it is said to find the nearest. Each is too short to hold a claim, so that they are cheap.
    client
        .batch_execute(
            "CREATE TABLE item (id int PRIMARY KEY, body text); \
             INSERT INTO item SELECT g, 'Item ' || g FROM generate_series(1, 21000) g; \
             SELECT cortex_bind('item', text_columns => '{body}')",
        )
        .unwrap();
    cortex_work(&mut client);
    let space: i32 = one(
        &mut client,
        &format!("SELECT cortex_space_register('m', '1', 'd', {DIMS})"),
    );
    client
        .query_one("SELECT cortex_space_use('default', $1)", &[&space])
        .unwrap();
    let mut random = Random::new(3);
    embed_with(&mut client, |_, dims| random.unit_vector(dims));
    client
        .batch_execute(&format!(
            "ANALYZE cortex.emb_{space}; SELECT cortex_seal(); \
             SELECT cortex_pool_set('default', jsonb_build_object('exact_items', 1000)); \
             UPDATE cortex.space SET index_recall = 1, index_ef = 400"
        ))
        .unwrap();
    let mut traces = Vec::new();
    for _ in 0..5 {
        let vector = vector_literal(&random.unit_vector(DIMS));
        for question in ["item", "item 77"] {
            let asked = ask(&mut client, question, &format!("'{vector}'"));
            let nominator: String = one(
                &mut client,
                &format!(
                    "SELECT body #>> '{{rounds,0,receipt,nominator}}' FROM cortex.traces WHERE trace_id = {}",
                    asked.id
                ),
            );
            assert_eq!(nominator, "approximate");
            must_verify(&mut client, asked.id, "L4-nominated");
            let report = json(
                &mut client,
                &format!("cortex_verify({}, exhaustive => true)", asked.id),
            );
            assert_eq!(
                (&report["ok"], &report["level"]),
                (&true.into(), &"L4-nominated".into()),
                "{report:#}"
            );
            let step = report["steps"]
                .as_array()
                .unwrap()
                .iter()
                .find(|step| step["name"] == "exhaustive")
                .unwrap();
            let missed: usize = report["missed"]
                .as_array()
                .unwrap()
                .iter()
                .map(|round| round["items"].as_array().unwrap().len())
                .sum();
            assert_eq!(
                step["found"],
                format!("{missed} of them missed by the index")
            );
            traces.push(asked.id);
        }
    }
    // Half of what was nominated is gone, the index has grown: the nominees as recorded still give the same.
    client.batch_execute("DELETE FROM item WHERE id % 2 = 0; UPDATE item SET body = 'Again ' || id WHERE id % 10 = 1; SELECT cortex_work()").unwrap();
    embed_with(&mut client, |_, dims| random.unit_vector(dims));
    client.batch_execute("SELECT cortex_seal()").unwrap();
    for trace in traces {
        must_verify(&mut client, trace, "L4-nominated");
        // A nominee's vector changed is seen.
        let nominee = format!(
            "(SELECT (body #>> '{{rounds,0,receipt,nominees,0}}')::bigint FROM cortex.traces WHERE trace_id = {trace})"
        );
        client.batch_execute("BEGIN").unwrap();
        client.batch_execute(&format!("UPDATE cortex.emb_{space} SET embedding = (SELECT e.embedding FROM cortex.emb_{space} e WHERE e.item_id <> {nominee} LIMIT 1) WHERE item_id = {nominee}")).unwrap();
        let report = verify(&mut client, trace);
        assert_eq!(
            (&report["failed_step"], &report["code"]),
            (&"replay".into(), &"T_REPLAY".into()),
            "{report:#}"
        );
        client.batch_execute("ROLLBACK").unwrap();
    }
}
