//! The worker against a real database: alone, beside others, killed, cut off and restarted.

mod support;

use std::time::Duration;

use cortex_sidecar::config::Secret;
use cortex_sidecar::error::Kind;
use sqlx::postgres::PgConnection;
use support::cluster::Cluster;
use support::command::Cortex;
use support::worker::{Running, no_model};
use support::{
    DRAINED, Database, Letters, UNEMBEDDABLE, bind_rows, put_sources, run, until, value,
};

/// Everything is there once: each source with its chunk, claims, and one vector for each of them.
async fn assert_complete(session: &mut PgConnection, sources: i64) {
    let counts: String = value(
        session,
        "SELECT format('%s sources, %s items without a vector, %s dead', (SELECT count(DISTINCT artifact_id) FROM cortex.claims WHERE fresh),
           (SELECT count(*) FROM (SELECT id FROM cortex.chunk UNION ALL SELECT id FROM cortex.claim) i
             WHERE NOT EXISTS (SELECT FROM cortex.emb_1 e WHERE e.item_id = i.id)),
           (SELECT count(*) FROM cortex.jobs WHERE state = 'dead'))",
    )
    .await;
    assert_eq!(
        counts,
        format!("{sources} sources, 0 items without a vector, 0 dead")
    );
    let documents: i64 = value(session, "SELECT count(*) FROM cortex.document").await;
    assert_eq!(documents, sources, "a source was chunked twice");
}

#[tokio::test]
async fn a_worker_brings_sources_to_vectors_and_reads_find_them() {
    let database = Database::new().await;
    let mut session = database.session().await;
    put_sources(&mut session, 30).await;
    let worker = Running::start(&database.config(), Letters::encoder());
    until(&mut session, "the worker drains the queue", DRAINED).await;
    until(
        &mut session,
        "the space is used",
        "SELECT EXISTS (SELECT FROM cortex.namespaces WHERE space IS NOT NULL)",
    )
    .await;
    until(&mut session, "the vectors are there", DRAINED).await;
    assert_complete(&mut session, 30).await;
    // What comes later is found as well.
    run(
        &mut session,
        "SELECT cortex_source_put('file:late', 'A heron stood there.')",
    )
    .await;
    until(
        &mut session,
        "the late source is chunked",
        "SELECT EXISTS (SELECT FROM cortex.claims WHERE artifact_id = 'file:late')",
    )
    .await;
    until(&mut session, "the worker drains the queue", DRAINED).await;
    let found: bool = value(
        &mut session,
        "SELECT bool_or(artifact_id = 'file:late') FROM cortex_search('heron')",
    )
    .await;
    assert!(found);
    let view = worker.status.view();
    assert!(
        view.sealed > 0 && view.jobs_done > 0 && view.last_error.is_none(),
        "{view:?}"
    );
    worker.stop().await;
}

#[tokio::test]
async fn inv_03_several_workers_share_and_never_do_the_same_twice() {
    let database = Database::new().await;
    let mut session = database.session().await;
    // Many transactions make many jobs.
    for number in 0..60 {
        run(&mut session, &format!("SELECT cortex_source_put('file:{number}', 'Kestrel {number} hovered. It was windy.')")).await;
    }
    let config = database.config();
    let workers: Vec<Running> = (0..4)
        .map(|_| Running::start(&config, Letters::encoder()))
        .collect();
    until(
        &mut session,
        "the space is used",
        "SELECT EXISTS (SELECT FROM cortex.namespaces WHERE space IS NOT NULL)",
    )
    .await;
    until(&mut session, "the queue is drained", DRAINED).await;
    assert_complete(&mut session, 60).await;
    let failed: u64 = workers
        .iter()
        .map(|worker| worker.status.view().jobs_failed)
        .sum();
    assert_eq!(failed, 0);
    for worker in workers {
        worker.stop().await;
    }
}

/// A job of the kinds looked for that has begun and, as far as its total is known, not ended.
const MIDWAY: &str = "
SELECT EXISTS (SELECT FROM cortex.jobs WHERE state = 'running' AND kind = ANY (current_setting('test.kinds')::text[])
                  AND progress >= 1 AND progress < coalesce(total, 9999999))";

/// Kills a worker in the middle of a job of the given kinds.
async fn kill_midway(session: &mut PgConnection, worker: &Cortex, kinds: &str) {
    run(session, &format!("SET test.kinds = '{kinds}'")).await;
    let mut process = worker.start(&["worker"]);
    until(session, "the worker is in the middle of a job", MIDWAY).await;
    process.kill().unwrap();
    process.wait().unwrap();
    let gone = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'cortex worker' AND datname = current_database())";
    until(session, "its sessions are gone", gone).await;
    assert!(
        value::<bool>(session, MIDWAY).await,
        "the killed worker's job is not on record any more"
    );
}

#[tokio::test]
async fn inv_12_killed_while_it_loads_or_chunks_a_worker_loses_nothing() {
    let database = Database::new().await;
    let mut session = database.session().await;
    bind_rows(&mut session, 100).await;
    let worker = Cortex::new("killed", &database.url)
        .with("CORTEX_WORKER__LEASE_S", "3")
        .with("CORTEX_WORKER__BATCH_ROWS", "1");
    kill_midway(&mut session, &worker, "{load}").await;
    // The rest of the load is chunked row by row; rows of one transaction make one job.
    run(
        &mut session,
        "INSERT INTO note SELECT i, 'A heron stood at ' || i || '.' FROM generate_series(101, 400) i",
    )
    .await;
    kill_midway(&mut session, &worker, "{chunk}").await;
    let mut config = database.config();
    config.worker.lease_s = 3;
    let worker = Running::start(&config, Letters::encoder());
    until(
        &mut session,
        "the space is used",
        "SELECT EXISTS (SELECT FROM cortex.namespaces WHERE space IS NOT NULL)",
    )
    .await;
    until(&mut session, "another worker takes over", DRAINED).await;
    assert_complete(&mut session, 400).await;
    worker.stop().await;
}

#[tokio::test]
async fn inv_12_killed_while_it_embeds_a_worker_loses_nothing() {
    let database = Database::new().await;
    let mut session = database.session().await;
    bind_rows(&mut session, 30).await;
    let worker = Cortex::new("killed-embedding", &database.url)
        .with("CORTEX_MODEL__DIR", &support::model_dir())
        .with("CORTEX_WORKER__LEASE_S", "3")
        .with("CORTEX_WORKER__BATCH_TEXTS", "2");
    kill_midway(&mut session, &worker, "{embed}").await;
    let mut process = worker.start(&["worker"]);
    until(&mut session, "the next worker takes over", DRAINED).await;
    assert_complete(&mut session, 30).await;
    process.kill().unwrap();
    process.wait().unwrap();
}

#[tokio::test]
async fn told_to_stop_a_worker_gives_its_job_back_and_exits_0() {
    let database = Database::new().await;
    let mut session = database.session().await;
    bind_rows(&mut session, 1_000).await;
    run(&mut session, "SET test.kinds = '{load,chunk}'").await;
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let worker = Cortex::new("stopped", &database.url).with("CORTEX_WORKER__BATCH_ROWS", "1");
        let mut process = worker.start(&["worker"]);
        until(&mut session, "the worker is in the middle of a job", MIDWAY).await;
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, signal).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(0), "{signal:?}");
        let left: String = value(
            &mut session,
            "SELECT format('%s running, %s dead', count(*) FILTER (WHERE state = 'running'), count(*) FILTER (WHERE state = 'dead')) FROM cortex.jobs",
        )
        .await;
        assert_eq!(left, "0 running, 0 dead", "{signal:?}");
        // So that the next worker takes it at once instead of after its backoff.
        run(&mut session, "UPDATE cortex.job SET run_after = now()").await;
    }
}

#[tokio::test]
async fn without_a_model_texts_are_chunked_and_found_by_words() {
    let database = Database::new().await;
    let mut session = database.session().await;
    put_sources(&mut session, 5).await;
    let worker = Running::start(&database.config(), no_model());
    until(&mut session, "the queue is drained", DRAINED).await;
    assert_eq!(worker.status.view().embedding, "no model in this test");
    let found: i64 = value(
        &mut session,
        "SELECT count(*) FROM cortex_search('kestrel')",
    )
    .await;
    assert!(found > 0);
    // Embed jobs of another worker's space are left for that worker.
    let space = "cortex_space_register('test/other', '1', 'b3:other', 8)";
    run(
        &mut session,
        &format!("SELECT cortex_space_use('default', {space})"),
    )
    .await;
    run(
        &mut session,
        "SELECT cortex_source_put('file:late', 'A heron stood there.')",
    )
    .await;
    until(
        &mut session,
        "the late source is chunked",
        "SELECT EXISTS (SELECT FROM cortex.claims WHERE artifact_id = 'file:late')",
    )
    .await;
    let waiting: i64 = value(&mut session, "SELECT count(*) FROM cortex.jobs WHERE kind = 'embed' AND attempts = 0 AND state = 'ready'").await;
    assert!(waiting > 0);
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_cannot_be_done_dies_with_its_reason_and_holds_up_nothing() {
    let database = Database::new().await;
    let mut session = database.session().await;
    put_sources(&mut session, 1).await;
    run(
        &mut session,
        "INSERT INTO cortex.job (namespace_id, kind, payload) SELECT id, 'load', '{\"binding\": 424242}' FROM cortex.namespace",
    )
    .await;
    let mut config = database.config();
    config.worker.max_attempts = 1;
    let worker = Running::start(&config, no_model());
    until(
        &mut session,
        "the job is dead",
        "SELECT EXISTS (SELECT FROM cortex.jobs WHERE state = 'dead' AND last_error <> '')",
    )
    .await;
    until(&mut session, "the rest is done", DRAINED).await;
    let found: i64 = value(
        &mut session,
        "SELECT count(*) FROM cortex_search('kestrel')",
    )
    .await;
    assert!(found > 0);
    assert_eq!(worker.status.view().jobs_failed, 1);
    worker.stop().await;
}

#[tokio::test]
async fn one_text_that_cannot_be_embedded_keeps_no_other_from_it() {
    let database = Database::new().await;
    let mut session = database.session().await;
    run(
        &mut session,
        &format!("SELECT cortex_source_put('file:a', 'A kestrel hovered.'), cortex_source_put('file:b', 'This is {UNEMBEDDABLE}.'), \
                  cortex_source_put('file:c', 'A heron stood.')"),
    )
    .await;
    let mut config = database.config();
    config.worker.max_attempts = 1;
    let worker = Running::start(&config, Letters::encoder());
    until(
        &mut session,
        "its job is dead",
        "SELECT EXISTS (SELECT FROM cortex.jobs WHERE kind = 'embed' AND state = 'dead')",
    )
    .await;
    until(&mut session, "the rest is done", DRAINED).await;
    let reason: String = value(
        &mut session,
        "SELECT last_error FROM cortex.jobs WHERE state = 'dead'",
    )
    .await;
    assert!(reason.contains("cannot be embedded"), "{reason}");
    let missing: Vec<String> = value(
        &mut session,
        "SELECT array_agg(DISTINCT c.artifact_id) FROM cortex.claims c WHERE NOT EXISTS (SELECT FROM cortex.emb_1 e WHERE e.item_id = c.claim_id)",
    )
    .await;
    assert_eq!(missing, ["file:b"]);
    worker.stop().await;
}

#[tokio::test]
async fn a_notification_wakes_a_worker_that_hardly_polls() {
    let database = Database::new().await;
    let mut session = database.session().await;
    put_sources(&mut session, 1).await;
    let mut config = database.config();
    config.worker.poll_interval_ms = 600_000;
    config.worker.seal_idle_interval_ms = 60_000;
    config.worker.seal_interval_ms = 60_000;
    let worker = Running::start(&config, no_model());
    worker.until("it listens", |view| view.listening).await;
    until(&mut session, "what was there is done", DRAINED).await;
    // Numbered by hand, as another worker's sealer would, long before this one looks again.
    run(
        &mut session,
        "SELECT cortex_source_put('file:late', 'A heron stood there.')",
    )
    .await;
    run(&mut session, "SELECT cortex_seal()").await;
    run(&mut session, "SELECT pg_notify('cortex', '1')").await;
    until(
        &mut session,
        "the late source is chunked",
        "SELECT EXISTS (SELECT FROM cortex.claims WHERE artifact_id = 'file:late')",
    )
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn behind_a_pooler_a_worker_polls_or_listens_directly() {
    let database = Database::new().await;
    let mut session = database.session().await;
    put_sources(&mut session, 20).await;
    let mut config = database.config();
    config.database.url = Secret::new(support::pooler::before(&database.url).await);
    config.database.direct_url = Secret::new(&database.url);
    let worker = Running::start(&config, Letters::encoder());
    worker
        .until("it listens on the direct address", |view| view.listening)
        .await;
    until(
        &mut session,
        "the space is used",
        "SELECT EXISTS (SELECT FROM cortex.namespaces WHERE space IS NOT NULL)",
    )
    .await;
    until(&mut session, "the queue is drained", DRAINED).await;
    assert_complete(&mut session, 20).await;
    worker.stop().await;

    // Without a direct address nothing is heard, and polling does it.
    config.database.direct_url = Secret::new("");
    let worker = Running::start(&config, Letters::encoder());
    run(
        &mut session,
        "SELECT cortex_source_put('file:late', 'A heron stood there.')",
    )
    .await;
    until(
        &mut session,
        "the late source is chunked",
        "SELECT EXISTS (SELECT FROM cortex.claims WHERE artifact_id = 'file:late')",
    )
    .await;
    assert!(
        !worker.status.view().listening,
        "LISTEN through a pooler would break into the statements of others"
    );
    worker.stop().await;
}

#[tokio::test]
async fn an_extension_that_is_missing_ends_the_worker_with_the_reason() {
    let database = Database::new().await;
    let mut session = database.session().await;
    run(&mut session, "DROP EXTENSION cortex CASCADE").await;
    let worker = Running::start(&database.config(), no_model());
    let failure = worker.ended.await.unwrap().unwrap_err();
    assert_eq!(
        (failure.kind, failure.code),
        (Kind::Version, "extension_missing")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv_12_postgres_stops_in_mid_work_and_comes_back() {
    let cluster = Cluster::new("restart");
    let database = Database::on(&cluster.url).await;
    let mut session = database.session().await;
    put_sources(&mut session, 400).await;
    let mut config = database.config();
    config.worker.batch_rows = 5;
    config.worker.batch_texts = 20;
    config.worker.lease_s = 3;
    config.database.connect_timeout_s = 1;
    let worker = Running::start(&config, Letters::slow(Duration::from_millis(20)));
    let mut sources = 400;
    for round in 0..2 {
        until(
            &mut session,
            "a job is running",
            "SELECT EXISTS (SELECT FROM cortex.jobs WHERE state = 'running')",
        )
        .await;
        tokio::task::block_in_place(|| cluster.stop());
        worker
            .until("it notices", |view| view.state == "waiting")
            .await;
        assert!(!worker.ended.is_finished(), "the worker gave up");
        tokio::task::block_in_place(|| cluster.start());
        session = database.session().await;
        run(&mut session, &format!("SELECT cortex_source_put('file:late-{round}-' || i, 'A heron stood at ' || i) FROM generate_series(1, 100) i")).await;
        sources += 100;
    }
    until(
        &mut session,
        "the space is used",
        "SELECT EXISTS (SELECT FROM cortex.namespaces WHERE space IS NOT NULL)",
    )
    .await;
    until(&mut session, "the queue is drained", DRAINED).await;
    assert_complete(&mut session, sources).await;
    worker
        .until("it works again", |view| {
            view.state == "working" && view.listening
        })
        .await;
    worker.stop().await;
    drop(database);
}

#[tokio::test]
async fn started_before_postgres_a_worker_waits_for_it() {
    let mut config = support::defaults();
    config.database.url = Secret::new("postgresql://postgres@127.0.0.1:1/nothing");
    config.database.connect_timeout_s = 1;
    let worker = Running::start(&config, no_model());
    worker
        .until("it says that it waits", |view| {
            view.state == "waiting" && view.last_error.is_some()
        })
        .await;
    assert!(!worker.ended.is_finished());
    worker.stop().await;
}
