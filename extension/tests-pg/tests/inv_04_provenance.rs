//! Invariant 4: no claim without provenance, no orphan after any sequence of operations, and nothing rests on
//! foreign-key cascades. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use cortex_extension_tests::serving::{
    Random, ask, cortex_work, embed, must_verify, put, use_space,
};
use cortex_extension_tests::{Database, failure, one};
use postgres::Client;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

#[test]
fn inv_04_a_claim_without_provenance_cannot_be_stored() {
    let (_database, mut client) = Database::with_cortex();
    put(&mut client, "a", "The valve is red.");
    let claim = |version_ids: &str, chunk_ids: &str, starts: &str, ends: &str, body: &str| {
        format!(
            "INSERT INTO cortex.claim (namespace_id, unit_id, ordinal, body, leaf, version_ids, chunk_ids, start_bytes, end_bytes, added_by) \
             VALUES (1, 1, 99, {body}, '\\x00', {version_ids}, {chunk_ids}, {starts}, {ends}, 1)"
        )
    };
    client
        .batch_execute(&format!(
            "BEGIN; {}; ROLLBACK",
            claim("'{1}'", "'{1}'", "'{0}'", "'{5}'", "'x'")
        ))
        .expect("an ordinary claim can be stored");
    // Also in replica role, where neither foreign keys nor triggers fire.
    for role in ["origin", "replica"] {
        client
            .batch_execute(&format!("SET session_replication_role = {role}"))
            .unwrap();
        for (insert, code) in [
            (claim("'{}'", "'{}'", "'{}'", "'{}'", "'x'"), "23514"),
            (claim("NULL", "'{1}'", "'{0}'", "'{5}'", "'x'"), "23502"),
            (claim("'{1}'", "NULL", "'{0}'", "'{5}'", "'x'"), "23502"),
            (claim("'{1}'", "'{1}'", "NULL", "'{5}'", "'x'"), "23502"),
            (claim("'{1}'", "'{1}'", "'{0}'", "NULL", "'x'"), "23502"),
            (claim("'{NULL}'", "'{1}'", "'{0}'", "'{5}'", "'x'"), "23514"),
            (claim("'{1}'", "'{NULL}'", "'{0}'", "'{5}'", "'x'"), "23514"),
            (
                claim("'{1,NULL}'", "'{1,1}'", "'{0,0}'", "'{5,5}'", "'x'"),
                "23514",
            ),
            (claim("'{1,1}'", "'{1}'", "'{0}'", "'{5}'", "'x'"), "23514"),
            (claim("'{1}'", "'{1,1}'", "'{0}'", "'{5}'", "'x'"), "23514"),
            (claim("'{1}'", "'{1}'", "'{0,1}'", "'{5}'", "'x'"), "23514"),
            (claim("'{1}'", "'{1}'", "'{0}'", "'{5,6}'", "'x'"), "23514"),
            (claim("'{1}'", "'{1}'", "'{NULL}'", "'{5}'", "'x'"), "23514"),
            (claim("'{1}'", "'{1}'", "'{0}'", "'{NULL}'", "'x'"), "23514"),
            (
                claim(
                    "array_fill(1::bigint, ARRAY[65])",
                    "array_fill(1::bigint, ARRAY[65])",
                    "array_fill(0, ARRAY[65])",
                    "array_fill(5, ARRAY[65])",
                    "'x'",
                ),
                "23514",
            ),
            (claim("'{1}'", "'{1}'", "'{0}'", "'{5}'", "''"), "23514"),
            (claim("'{1}'", "'{1}'", "'{0}'", "'{5}'", "NULL"), "23502"),
        ] {
            let (told, text) = failure(&mut client, &insert);
            assert_eq!(told, code, "{insert}: {text}");
        }
    }
}

/// References between our tables that lead nowhere, with the number of each.
fn orphans(client: &mut Client) -> Vec<String> {
    let spaces: Vec<i32> = client
        .query("SELECT id FROM cortex.space", &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let mut checks: Vec<(String, String)> = [
        ("claims of a missing version", "cortex.claim c, unnest(c.version_ids) v WHERE NOT EXISTS (SELECT FROM cortex.source_version x WHERE x.id = v)"),
        ("claims of a missing chunk", "cortex.claim c, unnest(c.chunk_ids) k WHERE NOT EXISTS (SELECT FROM cortex.chunk x WHERE x.id = k)"),
        ("claims of a missing unit", "cortex.claim c WHERE NOT EXISTS (SELECT FROM cortex.unit x WHERE x.id = c.unit_id)"),
        ("claims outside their chunk", "cortex.claim c JOIN cortex.chunk k ON k.id = c.chunk_ids[1] WHERE c.start_bytes[1] < k.start_byte OR c.end_bytes[1] > k.end_byte"),
        ("claims that are not their span", "cortex.claim c JOIN cortex.chunk k ON k.id = c.chunk_ids[1] WHERE convert_to(c.body, 'UTF8') <> substring(convert_to(k.body, 'UTF8') FROM c.start_bytes[1] - k.start_byte + 1 FOR c.end_bytes[1] - c.start_bytes[1])"),
        ("chunks of a missing version", "cortex.chunk c WHERE NOT EXISTS (SELECT FROM cortex.source_version x WHERE x.id = c.version_id)"),
        ("chunks that are not as long as their span", "cortex.chunk c WHERE octet_length(c.body) <> c.end_byte - c.start_byte"),
        ("versions of a missing source", "cortex.source_version v WHERE NOT EXISTS (SELECT FROM cortex.source x WHERE x.id = v.source_id)"),
        ("versions of a missing change", "cortex.source_version v WHERE NOT EXISTS (SELECT FROM cortex.change x WHERE x.id = v.opened_by)"),
        ("versions closed by a missing change", "cortex.source_version v WHERE v.closed_by IS NOT NULL AND NOT EXISTS (SELECT FROM cortex.change x WHERE x.id = v.closed_by)"),
        ("sources of a missing binding", "cortex.source s WHERE s.binding_id IS NOT NULL AND NOT EXISTS (SELECT FROM cortex.binding x WHERE x.id = s.binding_id)"),
        ("units of a missing version", "cortex.unit u WHERE NOT EXISTS (SELECT FROM cortex.source_version x WHERE x.id = u.version_id AND x.source_id = u.source_id)"),
        ("coverage of a missing chunk", "cortex.unit_chunk k WHERE NOT EXISTS (SELECT FROM cortex.chunk x WHERE x.id = k.chunk_id AND x.version_id = k.version_id)"),
        ("coverage by another version's unit", "cortex.unit_chunk k JOIN cortex.unit u ON u.id = k.unit_id WHERE u.version_id <> k.version_id"),
        ("claims of another version's unit", "cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id WHERE u.version_id <> ALL (c.version_ids)"),
        ("units of a missing source", "cortex.unit u WHERE NOT EXISTS (SELECT FROM cortex.source x WHERE x.id = u.source_id)"),
        ("postings of a missing version", "cortex.posting p WHERE NOT EXISTS (SELECT FROM cortex.source_version x WHERE x.id = p.version_id)"),
        ("documents of a missing version", "cortex.document d WHERE NOT EXISTS (SELECT FROM cortex.source_version x WHERE x.id = d.version_id)"),
        ("holds of a missing binding", "cortex.hold h WHERE NOT EXISTS (SELECT FROM cortex.binding x WHERE x.id = h.binding_id)"),
        ("seals of a missing seq", "cortex.seal s WHERE NOT EXISTS (SELECT FROM cortex.change x WHERE x.namespace_id = s.namespace_id AND x.seq = s.seq)"),
    ]
    .map(|(what, from)| (what.to_owned(), from.to_owned()))
    .into();
    for space in spaces {
        checks.push((
            format!("vectors of space {space} of no item"),
            format!("cortex.emb_{space} e WHERE NOT EXISTS (SELECT FROM cortex.chunk x WHERE x.id = e.item_id) AND NOT EXISTS (SELECT FROM cortex.claim x WHERE x.id = e.item_id)"),
        ));
    }
    checks
        .iter()
        .filter_map(|(what, from)| {
            let found: i64 = one(client, &format!("SELECT count(*) FROM {from}"));
            (found > 0).then(|| format!("{found} {what}"))
        })
        .collect()
}

/// What is served must lead to a live source and to the row it came from.
fn served_is_true(client: &mut Client, table_is_bound: bool) {
    let rows = client
        .query(
            "SELECT artifact_id, body FROM cortex_search('valve', k => 1000)",
            &[],
        )
        .unwrap();
    for row in rows {
        let (artifact, body): (String, String) = (row.get(0), row.get(1));
        if let Some(id) = artifact.strip_prefix("row:note:[") {
            assert!(
                table_is_bound,
                "{artifact} is served and its table is not bound"
            );
            let id: i32 = id.trim_end_matches(']').parse().unwrap();
            let live: Option<String> = client
                .query_opt("SELECT body FROM note WHERE id = $1", &[&id])
                .unwrap()
                .map(|row| row.get(0));
            assert_eq!(live.as_deref(), Some(body.as_str()), "{artifact}");
        } else {
            assert!(
                one::<bool>(client, &format!("SELECT cortex_has_source('{artifact}')")),
                "{artifact}"
            );
        }
    }
}

const OPERATIONS: [&str; 20] = [
    "INSERT INTO note VALUES ($k, 'The valve of $t. It is blue.') ON CONFLICT (id) DO UPDATE SET body = excluded.body",
    "UPDATE note SET body = 'The valve says $t.' WHERE id = $k",
    "DELETE FROM note WHERE id = $k",
    "DELETE FROM note",
    "TRUNCATE note",
    "SET session_replication_role = replica; UPDATE note SET body = 'Unseen valve $t.' WHERE id = $k; RESET session_replication_role",
    "SET session_replication_role = replica; DELETE FROM note WHERE id = $k; RESET session_replication_role",
    "SET session_replication_role = replica; SELECT cortex_source_put('text$k', 'Replica valve $t.'); RESET session_replication_role",
    "SET session_replication_role = replica; SELECT cortex_source_put('text$k', ''); SELECT cortex_source_deleted('text$k'); RESET session_replication_role",
    "SELECT cortex_source_put('text$k', 'The valve in text $t. It is old.')",
    "SELECT cortex_source_put('text$k', '')",
    "SELECT CASE WHEN cortex_has_source('text$k') THEN cortex_source_deleted('text$k') END",
    "SELECT CASE WHEN cortex_has_source('text$k') THEN cortex_source_changed('text$k', 'The valve in text $t. It is old.') END",
    "ALTER TABLE note DISABLE TRIGGER USER; UPDATE note SET body = 'Silent valve $t.' WHERE id = $k; ALTER TABLE note ENABLE TRIGGER USER",
    "ALTER TABLE note RENAME COLUMN body TO other; UPDATE note SET other = 'Renamed valve $t.' WHERE id = $k; ALTER TABLE note RENAME COLUMN other TO body",
    "BEGIN; UPDATE note SET body = 'Rolled back valve.'; SELECT cortex_work(); ROLLBACK",
    "SELECT cortex_seal()",
    "SELECT cortex_work()",
    "SELECT cortex_work(1)",
    "SELECT cortex_reconcile('note')",
];

#[test]
fn inv_04_no_orphans_after_random_operations() {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(8);
    let mut runner = TestRunner::new(Config {
        cases,
        max_shrink_iters: 40,
        failure_persistence: None,
        ..Config::default()
    });
    let operation = (0..OPERATIONS.len() + 3, 1..6i32, any::<u16>());
    let result = runner.run(&prop::collection::vec(operation, 20..60), |operations| {
        let (_database, mut client) = Database::with_cortex();
        client.batch_execute("CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note VALUES (1, 'The first valve.'); SELECT cortex_bind('note', text_columns => '{body}')").unwrap();
        use_space(&mut client, "m", 4);
        let mut bound = true;
        for (n, key, text) in operations {
            match OPERATIONS.get(n) {
                Some(sql) => {
                    let needs_binding = sql.contains("cortex_reconcile");
                    if needs_binding && !bound {
                        continue;
                    }
                    for part in sql.split("; ") {
                        let part = part.replace("$k", &key.to_string()).replace("$t", &text.to_string());
                        client.batch_execute(&part).unwrap_or_else(|error| panic!("{part}: {error:?}"));
                    }
                }
                None if n == OPERATIONS.len() => {
                    embed(&mut client);
                }
                None if n == OPERATIONS.len() + 1 && bound => {
                    client.batch_execute("SELECT cortex_unbind('note')").unwrap();
                    bound = false;
                }
                None if n == OPERATIONS.len() + 2 && !bound => {
                    client.batch_execute("SELECT cortex_bind('note', text_columns => '{body}')").unwrap();
                    bound = true;
                }
                None => {}
            }
            prop_assert_eq!(orphans(&mut client), Vec::<String>::new());
            served_is_true(&mut client, bound);
        }
        // What no trigger saw is found by comparing; then all that is there is served, and nothing else.
        if bound {
            client.batch_execute("SELECT cortex_reconcile('note')").unwrap();
        }
        cortex_work(&mut client);
        embed(&mut client);
        prop_assert_eq!(orphans(&mut client), Vec::<String>::new());
        served_is_true(&mut client, bound);
        if bound {
            let shown: i64 = one(&mut client, "SELECT count(DISTINCT artifact_id) FROM cortex_search('valve', k => 1000) WHERE artifact_id LIKE 'row:%'");
            let live: i64 = one(&mut client, "SELECT count(*) FROM note WHERE body ILIKE '%valve%'");
            prop_assert_eq!(shown, live);
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn inv_04_a_table_dropped_or_unbound_takes_its_claims_along_and_no_trace() {
    let (_database, mut client) = Database::with_cortex();
    client.batch_execute("CREATE TABLE note (id int PRIMARY KEY, body text); INSERT INTO note SELECT g, 'The valve ' || g || ' is red.' FROM generate_series(1, 5) g; SELECT cortex_bind('note')").unwrap();
    put(&mut client, "a", "The valve in the manual.");
    cortex_work(&mut client);
    let asked = ask(&mut client, "valve", "");
    assert_eq!(asked.evidence.as_array().unwrap().len(), 6);
    client
        .batch_execute("SELECT cortex_unbind('note')")
        .unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_search('valve')"),
        1
    );
    must_verify(&mut client, asked.id, "L4");
    client
        .batch_execute("SELECT cortex_bind('note'); SELECT cortex_work()")
        .unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_search('valve')"),
        6
    );
    client.batch_execute("DROP TABLE note").unwrap();
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_search('valve')"),
        1,
        "a dropped table takes no other source along"
    );
    must_verify(&mut client, asked.id, "L4");
    assert_eq!(orphans(&mut client), Vec::<String>::new());
    // A random number of further sources keeps being found.
    let mut random = Random::new(1);
    for n in 0..5 {
        put(
            &mut client,
            &format!("b{n}"),
            &format!("The valve {}", random.sentence(4)),
        );
    }
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex_search('valve')"),
        6
    );
}
