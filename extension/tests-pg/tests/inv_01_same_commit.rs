//! Invariant 1: in every committed state, the current versions are those of the live rows. Sessions at once at all
//! isolation levels, and random interleavings of every kind of write. Needs a server in CORTEX_TEST_PG18_URL
//! or CORTEX_TEST_PG16_URL, with max_prepared_transactions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cortex_extension_tests::{Database, bind, differences, failure, look, one, state, try_work};
use postgres::error::SqlState;
use postgres::{Client, Error};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

/// A partitioned table with a key of two columns, two text columns of which one is generated, a column that is not
/// bound, and a user's trigger that edits the row it fires for.
const ITEM: &str = "
    CREATE TABLE item (id int, kind text, body text, loud text GENERATED ALWAYS AS (upper(body)) STORED, stars int,
                       PRIMARY KEY (id, kind)) PARTITION BY RANGE (id);
    CREATE TABLE item_low PARTITION OF item FOR VALUES FROM (MINVALUE) TO (10) PARTITION BY LIST (kind);
    CREATE TABLE item_low_a PARTITION OF item_low FOR VALUES IN ('a');
    CREATE TABLE item_low_rest PARTITION OF item_low DEFAULT;
    CREATE TABLE item_high PARTITION OF item FOR VALUES FROM (10) TO (MAXVALUE);
    CREATE FUNCTION tidy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.body LIKE '%untidy%' THEN
            UPDATE item SET body = replace(NEW.body, 'untidy', 'tidy') WHERE id = NEW.id AND kind = NEW.kind;
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER tidy AFTER INSERT OR UPDATE ON item FOR EACH ROW EXECUTE FUNCTION tidy();
    CREATE FUNCTION also(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
        UPDATE item SET body = 'also ' || body WHERE id = i; RETURN i;
    END $$;
    INSERT INTO item (id, kind, body) SELECT g, chr(97 + g % 3), 'body ' || g FROM generate_series(0, 19) g";

const ITEM_ROWS: &str =
    "SELECT 'row:item:[' || id || ',' || to_json(kind) || ']', body, loud FROM item";

/// A write that a user may make, with the choices that a random test makes for it.
#[derive(Clone, Debug)]
enum Write {
    Insert { id: i32, kind: char, text: String },
    InsertLeaf { id: i32, text: String },
    Update { low: i32, high: i32, text: String },
    UpdateLeaf { text: String },
    UpdateOther,
    MoveKey { by: i32 },
    Swap { a: i32, b: i32 },
    Delete { low: i32, high: i32 },
    DeleteAndInsert { id: i32, text: String },
    Upsert { id: i32, kind: char, text: String },
    Merge { id: i32, text: String },
    Copy { id: i32, text: String },
    CopyLeaf { id: i32, text: String },
    Truncate,
    TruncateLeaf,
    Returning { id: i32 },
    ReplicaUpdate { low: i32, high: i32, text: String },
    ReplicaDelete { id: i32 },
    ReplicaInsert { id: i32, text: String },
    ReplicaMove { by: i32 },
    Twice { id: i32 },
}

impl Write {
    /// The statements, for one round trip. They may fail on a key that exists; then they have no effect.
    fn sql(&self) -> String {
        let replica = |sql: String| {
            format!(
                "SET LOCAL session_replication_role = replica; {sql}; SET LOCAL session_replication_role = origin"
            )
        };
        match self {
            Write::Insert { id, kind, text } => {
                format!("INSERT INTO item (id, kind, body) VALUES ({id}, '{kind}', '{text}')")
            }
            Write::InsertLeaf { id, text } => format!(
                "INSERT INTO item_high (id, kind, body) VALUES ({}, 'z', '{text}')",
                10 + id
            ),
            Write::Update { low, high, text } => {
                format!("UPDATE item SET body = '{text}' || id WHERE id BETWEEN {low} AND {high}")
            }
            Write::UpdateLeaf { text } => format!(
                "UPDATE item_low SET body = '{text}'; UPDATE item_low_a SET body = body || '{text}'"
            ),
            Write::UpdateOther => "UPDATE item SET stars = coalesce(stars, 0) + 1".into(),
            Write::MoveKey { by } => format!("UPDATE item SET id = id + {by} WHERE kind = 'a'"),
            Write::Swap { a, b } => format!(
                "DELETE FROM item WHERE id IN ({a}, {b}); INSERT INTO item (id, kind, body) VALUES ({a}, 's', 'swap {b}'), ({b}, 's', 'swap {a}')"
            ),
            Write::Delete { low, high } => {
                format!("DELETE FROM item WHERE id BETWEEN {low} AND {high}")
            }
            Write::DeleteAndInsert { id, text } => format!(
                "WITH gone AS (DELETE FROM item WHERE id = {id} AND kind = 'b'), more AS (UPDATE item SET body = '{text}' WHERE id = {} RETURNING 1) \
                 INSERT INTO item (id, kind, body) SELECT {id} + 100, 'b', count(*)::text || '{text}' FROM more ON CONFLICT DO NOTHING",
                id + 1
            ),
            Write::Upsert { id, kind, text } => format!(
                "INSERT INTO item (id, kind, body) VALUES ({id}, '{kind}', '{text}'), ({}, '{kind}', NULL) \
                 ON CONFLICT (id, kind) DO UPDATE SET body = EXCLUDED.body || 'again'",
                id + 1
            ),
            Write::Merge { id, text } => format!(
                "MERGE INTO item USING (SELECT g AS id, chr(97 + g % 3) AS kind FROM generate_series({id}, {id} + 4) g) s \
                    ON item.id = s.id AND item.kind = s.kind \
                  WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET body = '{text}' \
                  WHEN NOT MATCHED THEN INSERT (id, kind, body) VALUES (s.id, s.kind, 'merged')"
            ),
            Write::Copy { id, text } => {
                format!("COPY item (id, kind, body) FROM PROGRAM 'printf \"{id}\\tc\\t{text}\\n\"'")
            }
            Write::CopyLeaf { id, text } => format!(
                "COPY item_high (id, kind, body) FROM PROGRAM 'printf \"{}\\td\\t{text}\\n\"'",
                10 + id
            ),
            Write::Truncate => "TRUNCATE item".into(),
            Write::TruncateLeaf => "TRUNCATE item_low_rest".into(),
            Write::Returning { id } => {
                format!("UPDATE item SET body = 'outer' WHERE id = {id} RETURNING also(id)")
            }
            Write::ReplicaUpdate { low, high, text } => replica(format!(
                "UPDATE item SET body = '{text}' WHERE id BETWEEN {low} AND {high}"
            )),
            Write::ReplicaDelete { id } => replica(format!("DELETE FROM item WHERE id = {id}")),
            Write::ReplicaInsert { id, text } => replica(format!(
                "INSERT INTO item (id, kind, body) VALUES ({id}, 'r', '{text}') ON CONFLICT DO NOTHING"
            )),
            Write::ReplicaMove { by } => {
                replica(format!("UPDATE item SET id = id + {by} WHERE kind = 'b'"))
            }
            Write::Twice { id } => format!(
                "UPDATE item SET body = 'one' WHERE id = {id}; UPDATE item SET body = 'body {id}' WHERE id = {id}"
            ),
        }
    }
}

fn write() -> impl Strategy<Value = Write> {
    let id = || 0..20i32;
    let kind = || prop::sample::select(vec!['a', 'b', 'c']);
    let text = || {
        prop::sample::select(vec!["x", "y", "untidy", "", "long text of some words"])
            .prop_map(String::from)
    };
    prop_oneof![
        (id(), kind(), text()).prop_map(|(id, kind, text)| Write::Insert { id, kind, text }),
        (id(), text()).prop_map(|(id, text)| Write::InsertLeaf { id, text }),
        (id(), id(), text()).prop_map(|(low, high, text)| Write::Update { low, high, text }),
        text().prop_map(|text| Write::UpdateLeaf { text }),
        Just(Write::UpdateOther),
        (-12..12i32).prop_map(|by| Write::MoveKey { by }),
        (id(), id()).prop_map(|(a, b)| Write::Swap {
            a,
            b: if a == b { b + 1 } else { b }
        }),
        (id(), id()).prop_map(|(low, high)| Write::Delete {
            low,
            high: high.min(low + 4)
        }),
        (id(), text()).prop_map(|(id, text)| Write::DeleteAndInsert { id, text }),
        (id(), kind(), text()).prop_map(|(id, kind, text)| Write::Upsert { id, kind, text }),
        (id(), text()).prop_map(|(id, text)| Write::Merge { id, text }),
        (20..40i32, text()).prop_map(|(id, text)| Write::Copy { id, text }),
        (id(), text()).prop_map(|(id, text)| Write::CopyLeaf { id, text }),
        Just(Write::Truncate),
        Just(Write::TruncateLeaf),
        id().prop_map(|id| Write::Returning { id }),
        (id(), id(), text()).prop_map(|(low, high, text)| Write::ReplicaUpdate { low, high, text }),
        id().prop_map(|id| Write::ReplicaDelete { id }),
        (id(), text()).prop_map(|(id, text)| Write::ReplicaInsert { id, text }),
        (-12..12i32).prop_map(|by| Write::ReplicaMove { by }),
        id().prop_map(|id| Write::Twice { id }),
    ]
}

/// How a transaction goes, around its writes.
#[derive(Clone, Debug)]
enum End {
    Commit,
    Rollback,
    /// Prepared, looked at, then committed or not.
    Prepare {
        commit: bool,
    },
}

#[derive(Clone, Debug)]
struct Step {
    write: Write,
    /// Wrapped in a savepoint that is rolled back, or released.
    savepoint: Option<bool>,
}

#[derive(Clone, Debug)]
struct Transaction {
    isolation: &'static str,
    steps: Vec<Step>,
    end: End,
}

fn transaction() -> impl Strategy<Value = Transaction> {
    let step = (write(), prop::option::of(any::<bool>()))
        .prop_map(|(write, savepoint)| Step { write, savepoint });
    let end = prop_oneof![
        4 => Just(End::Commit),
        1 => Just(End::Rollback),
        2 => any::<bool>().prop_map(|commit| End::Prepare { commit }),
    ];
    let isolation = prop::sample::select(vec!["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]);
    (isolation, prop::collection::vec(step, 1..5), end).prop_map(|(isolation, steps, end)| {
        Transaction {
            isolation,
            steps,
            end,
        }
    })
}

/// Runs one transaction; statements that fail are undone by their savepoint, as a user's program would.
/// `at` is called where an outside observer could look.
fn run(
    client: &mut Client,
    transaction: &Transaction,
    gid: &str,
    mut at: impl FnMut(&str),
) -> Result<(), Error> {
    client.batch_execute(&format!("BEGIN ISOLATION LEVEL {}", transaction.isolation))?;
    for step in &transaction.steps {
        client.batch_execute("SAVEPOINT step")?;
        let done = client.batch_execute(&step.write.sql());
        if step.write.is_refused_in(transaction.isolation) {
            // A deadlock may come first.
            let code = done
                .as_ref()
                .err()
                .and_then(Error::code)
                .map(SqlState::code);
            assert!(
                code.is_some_and(|code| code.starts_with("40")),
                "{:?} in {}: {done:?}",
                step.write,
                transaction.isolation
            );
        }
        match (done, step.savepoint) {
            (Ok(()), Some(false) | None) => client.batch_execute("RELEASE step")?,
            (Ok(()), Some(true)) => client.batch_execute("ROLLBACK TO step; RELEASE step")?,
            (Err(error), _)
                if expected(&error) || step.write.is_refused_in(transaction.isolation) =>
            {
                client.batch_execute("ROLLBACK TO step; RELEASE step")?
            }
            (Err(error), _) => return Err(error),
        }
        at("inside a transaction");
    }
    match transaction.end {
        End::Commit => client.batch_execute("COMMIT")?,
        End::Rollback => client.batch_execute("ROLLBACK")?,
        End::Prepare { commit } => {
            client.batch_execute(&format!("PREPARE TRANSACTION '{gid}'"))?;
            at("prepared");
            client.batch_execute(&format!(
                "{} PREPARED '{gid}'",
                if commit { "COMMIT" } else { "ROLLBACK" }
            ))?;
        }
    }
    at("ended");
    Ok(())
}

impl Write {
    /// TRUNCATE is for READ COMMITTED alone.
    fn is_refused_in(&self, isolation: &str) -> bool {
        matches!(self, Write::Truncate | Write::TruncateLeaf) && isolation != "READ COMMITTED"
    }
}

/// Errors of the user's own making: a key that exists, a row that moved under a trigger.
fn expected(error: &Error) -> bool {
    error
        .code()
        .is_some_and(|code| ["23505", "27000", "21000"].contains(&code.code()))
}

#[test]
fn inv_01_random_transactions_of_every_kind() {
    let (database, mut client) = Database::with_cortex();
    client.batch_execute(ITEM).unwrap();
    bind(&mut client, "item", "text_columns => '{body,loud}'");
    let mut observer = database.connect();
    observer.batch_execute("SET lock_timeout = '20ms'").unwrap();
    let seen = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config {
        cases: 150,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    });
    let client = std::cell::RefCell::new(client);
    let observer = std::cell::RefCell::new(&mut observer);
    let outcome = runner.run(&transaction(), |transaction| {
        let mut wrong = Vec::new();
        let gid = format!("{}_one", database.name);
        let ran = run(&mut client.borrow_mut(), &transaction, &gid, |place| {
            match look(&mut observer.borrow_mut(), ITEM_ROWS) {
                Ok(differing) if differing.is_empty() => seen.set(seen.get() + 1),
                Ok(differing) => wrong.push(format!("{place}: {differing:?}")),
                // TRUNCATE locks readers out until its transaction ends.
                Err(error) if error.code().is_some_and(|code| code.code() == "55P03") => {}
                Err(error) => wrong.push(format!("{place}: {error:?}")),
            }
        });
        if ran.is_err() {
            let _ = client.borrow_mut().batch_execute("ROLLBACK");
        }
        prop_assert!(ran.is_ok(), "{:?}", ran);
        prop_assert!(wrong.is_empty(), "{:?}", wrong);
        // Its own writes are as they are to itself as well, and no fault was recorded.
        let own = differences(&mut client.borrow_mut(), ITEM_ROWS);
        prop_assert!(own.is_empty(), "{:?}", own);
        let (held, _, detail) = state(&mut client.borrow_mut(), "item");
        prop_assert_eq!(held, "active", "{:?}", detail);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    assert!(
        seen.get() > 300,
        "only {} states could be looked at",
        seen.get()
    );
}

#[test]
fn inv_01_inside_its_own_transaction_a_writer_sees_its_versions() {
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute(ITEM).unwrap();
    bind(&mut client, "item", "text_columns => '{body,loud}'");
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        client.batch_execute(&format!("BEGIN ISOLATION LEVEL {isolation}; UPDATE item SET body = 'mine' || id; DELETE FROM item WHERE id = 3")).unwrap();
        let unequal: i64 = one(
            &mut client,
            "SELECT count(*) FROM (SELECT 'row:item:[' || id || ',' || to_json(kind) || ']' AS artifact, body, loud FROM item) r \
               FULL JOIN (SELECT s.artifact_id, s.hash_key, v.content_hash FROM cortex.source s \
                            JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL) v ON v.artifact_id = r.artifact \
              WHERE v.content_hash IS DISTINCT FROM cortex._content_hash(v.hash_key, VARIADIC ARRAY[r.body, r.loud])",
        );
        assert_eq!(unequal, 0, "{isolation}");
        client.batch_execute("ROLLBACK").unwrap();
    }
}

#[test]
fn inv_01_sessions_at_once_at_every_isolation_level() {
    const SESSIONS: u64 = 5;
    const TIME: Duration = Duration::from_secs(12);
    let (database, mut client) = Database::with_cortex();
    client.batch_execute(ITEM).unwrap();
    client
        .batch_execute("SELECT cortex_bind('item', text_columns => '{body,loud}')")
        .unwrap();
    let stop = AtomicBool::new(false);
    let (committed, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures = std::sync::Mutex::new(Vec::new());
    let mut looked = 0;
    std::thread::scope(|scope| {
        for session in 0..SESSIONS {
            let (database, stop, committed, refused, failures) =
                (&database, &stop, &committed, &refused, &failures);
            scope.spawn(move || {
                let mut client = database.connect();
                client
                    .batch_execute("SET deadlock_timeout = '20ms'; SET statement_timeout = '20s'")
                    .unwrap();
                let mut runner = TestRunner::new(Config {
                    failure_persistence: None,
                    ..Config::default()
                });
                while !stop.load(Ordering::Relaxed) {
                    let transaction = transaction().new_tree(&mut runner).unwrap().current();
                    match run(
                        &mut client,
                        &transaction,
                        &format!("{}_{session}", database.name),
                        |_| (),
                    ) {
                        Ok(()) => drop(committed.fetch_add(1, Ordering::Relaxed)),
                        // Serialization failures and deadlocks are what a user must expect of such a mix.
                        Err(error)
                            if error
                                .code()
                                .is_some_and(|code| code.code().starts_with("40")) =>
                        {
                            refused.fetch_add(1, Ordering::Relaxed);
                            client.batch_execute("ROLLBACK").unwrap();
                        }
                        Err(error) => {
                            failures
                                .lock()
                                .unwrap()
                                .push(format!("{transaction:?}: {error:?}"));
                            client.batch_execute("ROLLBACK").unwrap();
                        }
                    }
                }
            });
        }
        // Meanwhile the table is loaded for the first time, then reconciled again and again, a page at a time.
        let (database, stop) = (&database, &stop);
        scope.spawn(move || {
            let mut client = database.connect();
            client.batch_execute("SET deadlock_timeout = '20ms'").unwrap();
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                // It gives way to users in deadlocks and does not wait for them long, so it often fails.
                if try_work(&mut client).is_ok() {
                    rounds += 1;
                    client
                        .batch_execute(
                            "INSERT INTO cortex.job (namespace_id, kind, payload) VALUES (1, 'reconcile', '{\"binding\": 1}')",
                        )
                        .unwrap();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(rounds > 0, "no load or reconcile job came to its end");
        });
        let mut observer = database.connect();
        let start = Instant::now();
        let mut loaded = false;
        while start.elapsed() < TIME {
            let differing = differences(&mut observer, ITEM_ROWS);
            // Rows that are not loaded yet have no version; no version may ever be of other content or of no row.
            let (missing, wrong): (Vec<_>, Vec<_>) = differing
                .into_iter()
                .partition(|text| text.ends_with("no current version"));
            loaded |= missing.is_empty();
            if !wrong.is_empty() || loaded && !missing.is_empty() {
                failures
                    .lock()
                    .unwrap()
                    .push(format!("{wrong:?} {missing:?}"));
                break;
            }
            looked += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    let failures = failures.into_inner().unwrap();
    assert_eq!(failures, Vec::<String>::new());
    let (committed, refused) = (committed.into_inner(), refused.into_inner());
    println!("{committed} transactions committed, {refused} refused, {looked} states looked at");
    assert!(committed > 50 && looked > 50);
    let faults: i64 = one(
        &mut client,
        "SELECT count(*) FROM cortex.hold WHERE reason = 'fault'",
    );
    assert_eq!(faults, 0);
    assert_eq!(differences(&mut client, ITEM_ROWS), Vec::<String>::new());
}

#[test]
fn inv_01_an_old_snapshot_sees_bindings_and_versions_that_are_younger() {
    let (database, mut client) = Database::with_cortex();
    for (table, isolation) in [("first", "REPEATABLE READ"), ("second", "SERIALIZABLE")] {
        client
            .batch_execute(&format!(
                "CREATE TABLE {table} (id int PRIMARY KEY, body text); \
                 INSERT INTO {table} SELECT g, 'b' FROM generate_series(1, 9) g"
            ))
            .unwrap();
        let rows = format!("SELECT 'row:{table}:[' || id || ']', body FROM {table}");
        let differing = |client: &mut Client| {
            differences(client, &rows)
                .into_iter()
                .filter(|text| text.contains(table))
                .collect::<Vec<_>>()
        };
        let mut old = database.connect();
        old.batch_execute(&format!(
            "BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM pg_class"
        ))
        .unwrap();
        bind(&mut client, table, "");
        old.batch_execute(&format!(
            "UPDATE {table} SET body = 'old ' || id WHERE id < 4; DELETE FROM {table} WHERE id = 5; INSERT INTO {table} VALUES (100, 'n')"
        ))
        .unwrap();
        old.batch_execute("COMMIT").unwrap();
        assert_eq!(differing(&mut client), Vec::<String>::new(), "{isolation}");
        assert_eq!(state(&mut client, table).0, "active");
    }
}

#[test]
fn inv_01_a_writer_that_waits_for_another_sees_its_version() {
    let (database, mut client) = Database::with_cortex();
    client.batch_execute("CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note VALUES (1, 'a'), (2, 'b')").unwrap();
    bind(&mut client, "note", "");
    let rows = "SELECT format('row:note:[%s]', id), body FROM note";
    for (first, second) in [
        (
            "UPDATE note SET body = 'first' WHERE id = 1",
            "UPDATE note SET body = body || ' second' WHERE id = 1",
        ),
        (
            "DELETE FROM note WHERE id = 1",
            "INSERT INTO note VALUES (1, 'again')",
        ),
        (
            "DELETE FROM note WHERE id = 1",
            "INSERT INTO note VALUES (1, 'again') ON CONFLICT (id) DO UPDATE SET body = 'upserted'",
        ),
        (
            "UPDATE note SET id = 3 WHERE id = 2",
            "INSERT INTO note VALUES (2, 'new two')",
        ),
        (
            "DELETE FROM note WHERE id = 3",
            "UPDATE note SET body = 'gone?' WHERE id = 3",
        ),
        (
            "TRUNCATE note",
            "INSERT INTO note VALUES (1, 'after'), (2, 'after')",
        ),
    ] {
        let mut one_ = database.connect();
        let mut two = database.connect();
        one_.batch_execute(&format!("BEGIN; {first}")).unwrap();
        let waiting = std::thread::spawn(move || two.batch_execute(second));
        std::thread::sleep(Duration::from_millis(100));
        one_.batch_execute("COMMIT").unwrap();
        waiting.join().unwrap().unwrap();
        assert_eq!(
            differences(&mut client, rows),
            Vec::<String>::new(),
            "{first}; {second}"
        );
    }
    assert_eq!(state(&mut client, "note").0, "active");
}

#[test]
fn inv_01_cancelled_and_timed_out_writes_leave_nothing() {
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute("CREATE TABLE big (id int PRIMARY KEY, body text); INSERT INTO big SELECT g, repeat('x', 200) FROM generate_series(1, 20000) g").unwrap();
    client
        .batch_execute("SELECT cortex_bind('big'); SELECT cortex_reconcile('big')")
        .unwrap();
    let mut cancelled = 0;
    for milliseconds in [20, 60, 120, 200, 300] {
        client
            .batch_execute(&format!("SET statement_timeout = '{milliseconds}ms'"))
            .unwrap();
        if let Err(error) = client.batch_execute("UPDATE big SET body = body || 'y'") {
            assert_eq!(error.code().unwrap().code(), "57014", "{error:?}");
            cancelled += 1;
        }
        client.batch_execute("SET statement_timeout = 0").unwrap();
        assert_eq!(
            differences(
                &mut client,
                "SELECT format('row:big:[%s]', id), body FROM big"
            ),
            Vec::<String>::new()
        );
    }
    assert!(cancelled > 0);
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.hold"),
        0
    );
    failure(&mut client, "UPDATE big SET id = 1");
}
