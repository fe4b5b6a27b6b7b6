//! Takes a source, has claims made of it, hands them in.
//!
//! The database is the judge: it drops claims that their chunks do not bear out, and all of them if the
//! source has changed meanwhile. A build that fails leaves the raw text as it was, and backs off there.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cortex_core::index_text;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::backoff::Backoff;
use super::{Worker, lane};
use crate::db::builds::BuildJob;
use crate::error::{Failure, Kind, Outcome};
use crate::synth::{self, Built, Claim, Fault, Settings, Usage};

/// Texts that are embedded in one go.
const BATCH: usize = 256;
/// How long the settings of namespaces are believed.
const SETTINGS: Duration = Duration::from_secs(5);
/// How much of a claim is embedded, in characters. Longer ones are no claims, and the database drops them.
const EMBEDDED: usize = 4_000;

pub(super) async fn run(worker: Worker) {
    let mut woken = worker.wake.subscribe();
    let mut backoff = Backoff::new();
    let mut modelless = Modelless::default();
    while !worker.stop.is_cancelled() {
        // Before the look, so that a wake-up during it counts.
        woken.borrow_and_update();
        let wait = match take(&worker, &mut modelless).await {
            Ok(Some(job)) => {
                if hold(&worker, &job).await && !wait_for_model(&worker).await {
                    return;
                }
                backoff.reset();
                continue;
            }
            Ok(None) => {
                backoff.reset();
                Duration::from_millis(worker.settings.poll_interval_ms)
            }
            Err(failure) => {
                worker.status.trouble(&failure);
                warn!(
                    code = failure.code,
                    sqlstate = failure.sqlstate,
                    "no build could be taken"
                );
                backoff.next()
            }
        };
        tokio::select! {
            () = worker.stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
            _ = woken.changed() => {}
        }
    }
}

/// Whether the model's server is away, which is no fault of the source.
fn is_absence(failure: &Failure) -> bool {
    matches!(failure.code, "model_unreachable" | "model_unavailable")
}

/// Waits until the server answers again, so that its absence uses up no attempts of the sources that wait.
/// False if it is time to stop.
async fn wait_for_model(worker: &Worker) -> bool {
    let mut backoff = Backoff::new();
    loop {
        if !worker.pause(backoff.next()).await {
            return false;
        }
        match &worker.model {
            Some(model) if model.list().await.is_err() => {}
            _ => return true,
        }
    }
}

/// Namespaces whose claims are made without a language model, as looked up last.
#[derive(Default)]
struct Modelless {
    namespaces: Vec<String>,
    known_at: Option<Instant>,
}

/// A build that this worker can do. Without a language model, only those that need none.
async fn take(worker: &Worker, modelless: &mut Modelless) -> Outcome<Option<BuildJob>> {
    let (name, lease) = (worker.status.name(), worker.settings.lease());
    if worker.model.is_some() {
        return worker.db.build_take(None, &name, lease).await;
    }
    if modelless.known_at.is_none_or(|at| at.elapsed() > SETTINGS) {
        modelless.namespaces = worker.db.namespaces_built_without_model().await?;
        modelless.known_at = Some(Instant::now());
    }
    for namespace in &modelless.namespaces {
        if let Some(job) = worker.db.build_take(Some(namespace), &name, lease).await? {
            return Ok(Some(job));
        }
    }
    Ok(None)
}

/// How a build left our hands.
enum End {
    Done,
    Lost,
    Failed(Box<Fault>),
    /// We stop.
    Released,
}

/// Brings a build to its end. Tells whether it failed because the model's server is away.
async fn hold(worker: &Worker, job: &BuildJob) -> bool {
    let lost = CancellationToken::new();
    let beat = tokio::spawn(lane::heartbeat(worker.clone(), job.id, lost.clone()));
    // Dropping the work ends the request to the model, which then stops writing.
    let end = tokio::select! {
        end = work(worker, job) => end,
        () = lost.cancelled() => End::Lost,
        () = worker.stop.cancelled() => End::Released,
    };
    beat.abort();
    match end {
        End::Done => {
            worker.status.build_done();
            worker.wake();
        }
        End::Lost => info!(job = job.id, "the build is no longer ours"),
        // A worker that stops is no reason for a build to die.
        End::Released => give_back(worker, job, "released: the worker stopped").await,
        End::Failed(fault) => {
            let Fault { failure, usage } = *fault;
            worker.status.build_failed(&failure);
            if is_absence(&failure) {
                give_back(worker, job, &lane::reason(&failure)).await;
                return true;
            }
            fail(worker, job, &failure, &usage).await;
        }
    }
    false
}

async fn work(worker: &Worker, job: &BuildJob) -> End {
    let settings = match Settings::read(&job.settings) {
        Ok(settings) => settings,
        Err(failure) => return failed(failure, Usage::default()),
    };
    let built = match synth::build(&job.source, &settings, worker.model.as_deref()).await {
        Ok(built) => built,
        Err(fault) => return End::Failed(Box::new(fault)),
    };
    let vectors = match vectors(worker, job, &built.claims).await {
        Ok(vectors) => vectors,
        Err(failure) => return failed(failure, built.usage),
    };
    commit(worker, job, built, vectors).await
}

fn failed(failure: Failure, usage: Usage) -> End {
    End::Failed(Box::new(Fault { failure, usage }))
}

async fn commit(
    worker: &Worker,
    job: &BuildJob,
    built: Built,
    vectors: Option<(i32, Vec<Vec<f32>>)>,
) -> End {
    let Built { claims, usage } = built;
    let (claims, counts) = match (
        serde_json::to_string(&claims),
        serde_json::to_string(&usage),
    ) {
        (Ok(claims), Ok(counts)) => (claims, counts),
        (Err(error), _) | (_, Err(error)) => {
            return failed(Failure::internal(format!("claims as JSON: {error}")), usage);
        }
    };
    let name = worker.status.name();
    let mut backoff = Backoff::new();
    loop {
        let attempt = worker
            .db
            .build_commit(
                job.id,
                &name,
                claims.clone(),
                vectors.clone(),
                counts.clone(),
            )
            .await;
        match attempt {
            Ok(outcome) => {
                worker.status.reached();
                debug!(
                    job = job.id,
                    namespace = job.namespace,
                    class = job.class,
                    %outcome,
                    calls = usage.calls,
                    rejected = usage.rejected,
                    salvaged = usage.salvaged,
                    "build handed in"
                );
                return End::Done;
            }
            Err(failure)
                if failure.code == "wrong_state" && !lane::still_ours(worker, job.id).await =>
            {
                return End::Lost;
            }
            // What the model wrote is dear; the lease tells afterwards whether it is still wanted.
            Err(failure) if failure.is_transient() => {
                worker.status.trouble(&failure);
                tokio::time::sleep(backoff.next()).await;
            }
            Err(failure) => return failed(failure, usage),
        }
    }
}

/// One vector for each claim and their space, where this worker's is the namespace's. Otherwise none: the embed jobs
/// of another worker bring them.
async fn vectors(
    worker: &Worker,
    job: &BuildJob,
    claims: &[Claim],
) -> Outcome<Option<(i32, Vec<Vec<f32>>)>> {
    let Ok(space) = worker.encoder.space() else {
        return Ok(None);
    };
    if claims.is_empty() {
        return Ok(None);
    }
    let ours = worker.db.register_space(space).await?;
    if worker.db.space_of(&job.namespace).await? != Some(ours) {
        return Ok(None);
    }
    let (title, dated) = (job.source.title.as_deref(), job.source.dated.as_deref());
    let texts: Vec<String> = claims
        .iter()
        .map(|claim| {
            let body: String = claim.claim.chars().take(EMBEDDED).collect();
            index_text::embedding_text(title, dated, &body)
        })
        .collect();
    Ok(embed(worker, &texts).await?.map(|vectors| (ours, vectors)))
}

/// Each text is embedded once, however often a model repeated it. None if one cannot be.
async fn embed(worker: &Worker, texts: &[String]) -> Outcome<Option<Vec<Vec<f32>>>> {
    let mut distinct: Vec<String> = texts.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let mut known = HashMap::new();
    for batch in distinct.chunks(BATCH) {
        match worker.encoder.embed(batch.to_vec()).await {
            Ok(vectors) => known.extend(batch.iter().zip(vectors)),
            // The claims stay findable by words, and the embed jobs say which text it is.
            Err(failure) if failure.kind == Kind::Usage => return Ok(None),
            Err(failure) => return Err(failure),
        }
    }
    Ok(texts.iter().map(|text| known.get(text).cloned()).collect())
}

async fn fail(worker: &Worker, job: &BuildJob, failure: &Failure, usage: &Usage) {
    let counts = serde_json::to_string(usage).unwrap_or_else(|_| "{}".to_owned());
    let reason = lane::reason(failure);
    let outcome = worker
        .db
        .build_fail(job.id, &worker.status.name(), &reason, counts)
        .await;
    tell(job, outcome, failure.code);
}

async fn give_back(worker: &Worker, job: &BuildJob, reason: &str) {
    let outcome = worker
        .db
        .fail_job(job.id, &worker.status.name(), reason, i32::MAX)
        .await;
    tell(job, outcome, "released");
}

fn tell(job: &BuildJob, outcome: Outcome<String>, code: &str) {
    match outcome {
        Ok(state) => warn!(
            job = job.id,
            namespace = job.namespace,
            code,
            state,
            "build given back"
        ),
        Err(failure) => warn!(
            job = job.id,
            code = failure.code,
            "build not given back; its lease will run out"
        ),
    }
}
