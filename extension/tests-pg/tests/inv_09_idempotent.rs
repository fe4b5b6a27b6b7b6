//! Invariant 9: the same input twice changes nothing and says so. Needs a server in CORTEX_TEST_PG18_URL or
//! CORTEX_TEST_PG16_URL.

use std::thread;

use cortex_extension_tests::serving::{Random, ask, cortex_work, embed, json, put, use_space};
use cortex_extension_tests::{Database, one};
use postgres::Client;

/// Rows of every table of schema cortex, and where its sequences stand.
fn everything(client: &mut Client) -> Vec<(String, String)> {
    let relations: Vec<String> = client
        .query("SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'cortex'::regnamespace AND c.relkind = 'r' ORDER BY 1", &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    relations
        .into_iter()
        .map(|name| {
            let rows: String = one(client, &format!("SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, '|' ORDER BY t::text)), '') FROM {name} t"));
            (name, rows)
        })
        .collect()
}

#[test]
fn inv_09_everything_said_twice_counts_once() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE note (id int PRIMARY KEY, title text, body text, stars int DEFAULT 0); \
             INSERT INTO note SELECT g, 'T' || g, 'The valve of row ' || g || ' is closed.' FROM generate_series(1, 20) g; SELECT cortex_bind('note', title_column => 'title')",
        )
        .unwrap();
    put(&mut client, "a", "The valve in the manual.");
    client.batch_execute("SELECT cortex_source_put('b', '', 'title', 'origin', 'date'); SELECT cortex_source_put('c', E' padded \\r\\n\\r\\n text. \\t', NULL, '')").unwrap();
    cortex_work(&mut client);
    use_space(&mut client, "m", 4);
    embed(&mut client);
    client.batch_execute("SELECT cortex_seal()").unwrap();
    let asked = ask(&mut client, "valve", "");
    let receipt: String = one(&mut client, "SELECT receipt FROM cortex_read('valve')");
    client
        .query_one("SELECT cortex_read_log($1)", &[&receipt])
        .unwrap();
    let before = everything(&mut client);
    for twice in [
        "SELECT cortex_source_put('a', 'The valve in the manual.')",
        "SELECT cortex_source_put('b', '', 'title', 'origin', 'date')",
        "SELECT cortex_source_put('c', E' padded \\r\\n\\r\\n text. \\t', NULL, '')",
        "SELECT cortex_source_changed('a', 'The valve in the manual.')",
        "SELECT cortex_source_changed('b', '')",
        "SELECT cortex_source_changed('c', E' padded \\r\\n\\r\\n text. \\t')",
        "SELECT * FROM cortex_ask('valve')",
        "SELECT cortex_space_register('m', '1', 'm-digest', 4)",
        "SELECT cortex_space_use('default', 1)",
        "SELECT cortex_create_namespace('default')",
        "SELECT cortex_seal()",
        "SELECT cortex_work()",
        "UPDATE note SET body = body, title = title",
        "UPDATE note SET stars = stars + 1",
        "SELECT cortex_reconcile('note')",
        "INSERT INTO note (id, title, body) SELECT id, title, body FROM note ON CONFLICT (id) DO UPDATE SET body = excluded.body",
        "SELECT cortex_work()",
    ] {
        client
            .batch_execute(twice)
            .unwrap_or_else(|error| panic!("{twice}: {error:?}"));
        assert_eq!(everything(&mut client), before, "{twice}");
    }
    assert_eq!(
        json(
            &mut client,
            "cortex_source_put('a', 'The valve in the manual.')"
        )["changed"],
        false
    );
    assert_eq!(
        json(
            &mut client,
            "cortex_source_changed('a', 'The valve in the manual.')"
        )["unchanged"],
        true
    );
    let again = ask(&mut client, "valve", "");
    assert_eq!((again.id, again.already), (asked.id, true));
    client
        .query_one("SELECT cortex_read_log($1)", &[&receipt])
        .unwrap();
    client
        .query_one("SELECT cortex_read_log($1)", &[&receipt])
        .unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.read_log"),
        1
    );
}

#[test]
fn inv_09_deleting_twice_and_putting_back() {
    let (_database, mut client) = Database::with_cortex();
    put(&mut client, "a", "The valve in the manual.");
    assert_eq!(json(&mut client, "cortex_source_deleted('a')")["closed"], 1);
    let before = everything(&mut client);
    assert_eq!(json(&mut client, "cortex_source_deleted('a')")["closed"], 0);
    assert_eq!(json(&mut client, "cortex_source_changed('a')")["closed"], 0);
    assert_eq!(everything(&mut client), before);
    assert!(!one::<bool>(&mut client, "SELECT cortex_has_source('a')"));
    // Back again is a new version, not the old one revived: the state in between stays true.
    assert_eq!(
        put(&mut client, "a", "The valve in the manual.")["changed"],
        true
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.source_version"),
        2
    );
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_search('valve')"),
        1
    );
}

#[test]
fn inv_09_many_sessions_put_the_same_at_once() {
    let (database, mut client) = Database::with_cortex();
    client
        .batch_execute("SELECT cortex_create_namespace('default')")
        .unwrap();
    let threads: Vec<_> = (0..6)
        .map(|n| {
            let mut session = database.connect();
            thread::spawn(move || {
                let mut random = Random::new(n);
                for round in 0..30 {
                    // Everybody's first words about a source are the same, so all but one must find them there.
                    put(
                        &mut session,
                        &format!("s{}", round / 3),
                        &format!("The valve of round {}.", round / 3),
                    );
                    if random.below(3) == 0 {
                        session.batch_execute("SELECT cortex_work()").unwrap();
                    }
                    ask(&mut session, "valve", "");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    cortex_work(&mut client);
    for (what, count) in [
        ("cortex.source", 10),
        ("cortex.source_version", 10),
        ("cortex.document", 10),
        ("cortex.chunk", 10),
        ("cortex.claim", 10),
        ("cortex.unit", 10),
        ("cortex.namespace", 1),
        ("cortex.installation", 1),
    ] {
        assert_eq!(
            one::<i64>(&mut client, &format!("SELECT count(*) FROM {what}")),
            count,
            "{what}"
        );
    }
    let twins: i64 = one(
        &mut client,
        "SELECT count(*) - count(DISTINCT root) FROM cortex.trace",
    );
    assert_eq!(twins, 0);
    for trace in client.query("SELECT id FROM cortex.trace", &[]).unwrap() {
        cortex_extension_tests::serving::must_verify(&mut client, trace.get(0), "L4");
    }
}
