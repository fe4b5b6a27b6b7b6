//! Jobs that cannot be done: they hold up nobody, say why, and can be tried again. Needs a server in
//! CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use cortex_extension_tests::serving::{Role, cortex_work, json, put};
use cortex_extension_tests::{Database, failure, one, state};
use postgres::Client;

/// Two bound tables, changed by one transaction, of which one then cannot be read any more.
fn doomed_and_fine(client: &mut Client) {
    client
        .batch_execute(
            "CREATE TABLE doomed (id int PRIMARY KEY, body text); CREATE TABLE fine (id int PRIMARY KEY, body text);
             SELECT cortex_bind('doomed', text_columns => '{body}'), cortex_bind('fine', text_columns => '{body}')",
        )
        .unwrap();
    cortex_work(client);
    client
        .batch_execute(
            "BEGIN; INSERT INTO doomed VALUES (1, 'A doomed valve.'); INSERT INTO fine VALUES (1, 'A fine valve.'); COMMIT;
             SELECT cortex_seal()",
        )
        .unwrap();
}

fn found(client: &mut Client) -> Vec<String> {
    client
        .query(
            "SELECT artifact_id FROM cortex_search('valve') ORDER BY 1",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

#[test]
fn a_table_that_cannot_be_read_keeps_no_other_from_being_found() {
    let (_database, mut client) = Database::with_cortex();
    doomed_and_fine(&mut client);
    client
        .batch_execute("ALTER TABLE doomed DROP COLUMN body")
        .unwrap();
    cortex_work(&mut client);
    assert_eq!(found(&mut client), ["row:fine:[1]"]);
    assert_eq!(state(&mut client, "doomed").0, "held");
    assert_eq!(state(&mut client, "fine").0, "active");
    // What is left of it to do is shown.
    let waiting: i64 = one(
        &mut client,
        "SELECT versions_pending FROM cortex.bindings WHERE name = 'doomed'",
    );
    assert_eq!(waiting, 1);
}

#[test]
fn what_a_hold_left_unchunked_is_chunked_after_it() {
    let (_database, mut client) = Database::with_cortex();
    doomed_and_fine(&mut client);
    // Sealed and queued, not chunked, when the binding is paused: the job passes its row over.
    client
        .batch_execute("SELECT cortex_pause('doomed')")
        .unwrap();
    cortex_work(&mut client);
    assert_eq!(found(&mut client), ["row:fine:[1]"]);
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.job"),
        0
    );
    client
        .batch_execute("SELECT cortex_resume('doomed')")
        .unwrap();
    cortex_work(&mut client);
    assert_eq!(found(&mut client), ["row:doomed:[1]", "row:fine:[1]"]);
    assert_eq!(
        one::<i64>(
            &mut client,
            "SELECT sum(versions_pending)::int8 FROM cortex.bindings"
        ),
        0
    );
}

#[test]
fn a_job_that_fails_in_cortex_work_waits_and_the_others_go_on() {
    let (_database, mut client) = Database::with_cortex();
    client
        .batch_execute(
            "CREATE TABLE fine (id int PRIMARY KEY, body text); SELECT cortex_bind('fine', text_columns => '{body}');
             SELECT cortex_work();
             INSERT INTO cortex.job (namespace_id, kind, payload, run_after) SELECT id, 'load', '{\"binding\": \"none\"}', now() - interval '1 day' FROM cortex.namespace;
             INSERT INTO fine VALUES (1, 'A fine valve.')",
        )
        .unwrap();
    let told = json(&mut client, "cortex_work()");
    assert_eq!(told["failed"], 1, "{told}");
    assert_eq!(found(&mut client), ["row:fine:[1]"]);
    let (state, attempts, error): (String, i32, String) = {
        let row = client
            .query_one("SELECT state, attempts, last_error FROM cortex.jobs", &[])
            .unwrap();
        (row.get(0), row.get(1), row.get(2))
    };
    assert_eq!((state.as_str(), attempts), ("ready", 1));
    assert!(error.contains("SQLSTATE"), "{error}");
    for _ in 0..7 {
        client
            .batch_execute("UPDATE cortex.job SET run_after = now(); SELECT cortex_work()")
            .unwrap();
    }
    assert_eq!(
        one::<String>(&mut client, "SELECT state FROM cortex.jobs"),
        "dead"
    );
    assert_eq!(
        json(&mut client, "cortex_work()")["failed"],
        0,
        "the dead rest"
    );
    let job: i64 = one(&mut client, "SELECT job_id FROM cortex.jobs");
    assert_eq!(
        failure(&mut client, "SELECT cortex_job_retry(4711)").0,
        "42704"
    );
    // The cause is removed: it is tried again from the start.
    client
        .batch_execute("UPDATE cortex.job SET payload = '{\"binding\": 1}'")
        .unwrap();
    assert_eq!(
        one::<i64>(&mut client, &format!("SELECT cortex_job_retry({job})")),
        1
    );
    assert_eq!(json(&mut client, "cortex_work()")["failed"], 0);
    assert_eq!(
        one::<i64>(&mut client, "SELECT count(*) FROM cortex.job"),
        0
    );
    assert_eq!(one::<i64>(&mut client, "SELECT cortex_job_retry()"), 0);
}

#[test]
fn a_role_keeps_what_it_has_as_a_worker_and_loses_what_it_had_as_a_reader() {
    let (database, mut client) = Database::with_cortex();
    put(&mut client, "a", "A valve.");
    let role = Role::new(&database, "both", "");
    client
        .batch_execute(&format!(
            "SELECT cortex_grant_worker('{0}'); SELECT cortex_grant('default', '{0}'); SELECT cortex_revoke('default', '{0}')",
            role.name
        ))
        .unwrap();
    let mut session = role.login(&database);
    session
        .batch_execute("SELECT cortex_version(); SELECT cortex_work(); SELECT cortex_source_put('b', 'A pump.')")
        .unwrap();
    assert_eq!(
        failure(&mut session, "SELECT cortex_search('valve')").0,
        "42501"
    );
    client
        .batch_execute(&format!(
            "SELECT cortex_grant('default', '{0}'); SELECT cortex_revoke_worker('{0}')",
            role.name
        ))
        .unwrap();
    assert_eq!(failure(&mut session, "SELECT cortex_work()").0, "42501");
    assert_eq!(
        one::<i64>(&mut session, "SELECT count(*) FROM cortex_search('valve')"),
        1
    );
    client
        .batch_execute(&format!("SELECT cortex_revoke('default', '{}')", role.name))
        .unwrap();
    assert_eq!(failure(&mut session, "SELECT cortex_version()").0, "42501");
    let left: i64 = one(
        &mut client,
        &format!(
            "SELECT count(*) FROM pg_shdepend WHERE refobjid = '{}'::regrole AND dbid <> 0",
            role.name
        ),
    );
    assert_eq!(left, 0, "nothing of ours keeps the role from being dropped");
    for call in [
        "cortex_grant('default', NULL)",
        "cortex_grant_worker(NULL)",
        "cortex_revoke_worker(NULL)",
        "cortex_space_register(NULL, 'r', 'd', 3)",
    ] {
        assert_eq!(
            failure(&mut client, &format!("SELECT {call}")).0,
            "22004",
            "{call}"
        );
    }
}

#[test]
fn a_row_that_the_caller_cannot_see_is_not_said_to_be_there() {
    let (database, mut client) = Database::with_cortex();
    doomed_and_fine(&mut client);
    cortex_work(&mut client);
    let role = Role::new(&database, "reader", "");
    client
        .batch_execute(&format!(
            "SELECT cortex_grant('default', '{0}'); GRANT SELECT ON fine TO {0}; ALTER TABLE fine ENABLE ROW LEVEL SECURITY",
            role.name
        ))
        .unwrap();
    let mut reader = role.login(&database);
    for row in ["row:fine:[1]", "row:doomed:[1]"] {
        let known = format!("SELECT cortex_has_source('{row}')");
        assert!(!one::<bool>(&mut reader, &known), "{row}");
        assert!(one::<bool>(&mut client, &known), "{row}");
    }
    client
        .batch_execute("ALTER TABLE fine DISABLE ROW LEVEL SECURITY")
        .unwrap();
    assert!(one::<bool>(
        &mut reader,
        "SELECT cortex_has_source('row:fine:[1]')"
    ));
}
