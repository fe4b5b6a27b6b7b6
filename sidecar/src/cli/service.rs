//! `cortex up`, `down`, `serve` and `worker`.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::{Context, Output};
use crate::background::{self, Running};
use crate::db::Db;
use crate::encoder::Encoder;
use crate::error::{Failure, Kind, Outcome};
use crate::http::{self, App};
use crate::worker::Worker;

/// How long `cortex up` waits for health; loading the model and PostgreSQL's own start are within it.
const START: Duration = Duration::from_secs(60);

/// Arguments of `cortex serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// Serve REST alone; workers run elsewhere
    #[arg(long)]
    no_worker: bool,
}

/// Arguments of `cortex worker`.
#[derive(Args, Debug)]
pub struct Work {}

pub fn up(context: &Context, out: &mut Output) -> Outcome<()> {
    let folder = &context.config.state.dir;
    if let Some(running) = background::running(folder)? {
        out.object(&json!({"started": false, "pid": running.pid, "address": running.address}));
        out.line(format!(
            "cortex runs already: process {}, http://{}",
            running.pid, running.address
        ));
        return Ok(());
    }
    let log = background::spawn(folder, context.common.config.as_deref())?;
    let started = Instant::now();
    let running = loop {
        std::thread::sleep(Duration::from_millis(50));
        match background::running(folder)? {
            Some(running)
                if background::is_healthy(&running, context.config.server.key.expose()) =>
            {
                break running;
            }
            // It may have ended before this look; its log says why.
            None if log.has_ended() => return Err(log.failure("the service did not start")),
            _ if started.elapsed() > START => {
                return Err(log
                    .failure(&format!("the service was not healthy within {} s", START.as_secs()))
                    .hint("it still runs and may be waiting for PostgreSQL: `cortex doctor` says more, `cortex down` stops it"));
            }
            _ => {}
        }
    };
    out.object(
        &json!({"started": true, "pid": running.pid, "address": running.address, "log": log.path}),
    );
    out.line(format!(
        "cortex is up: http://{}/api/v1/docs, process {}, log {}",
        running.address,
        running.pid,
        log.path.display()
    ));
    Ok(())
}

pub fn down(context: &Context, out: &mut Output) -> Outcome<()> {
    let folder = &context.config.state.dir;
    let Some(running) = background::running(folder)? else {
        out.object(&json!({"stopped": false}));
        out.line("cortex does not run");
        return Ok(());
    };
    let Running { pid, .. } = running;
    background::terminate(&running)?;
    // The service cuts off what has not ended by then; a little more for it to leave.
    let longest = Duration::from_secs(u64::from(context.config.server.shutdown_timeout_s) + 10);
    let started = Instant::now();
    while background::running(folder)?.is_some_and(|running| running.pid == pid) {
        if started.elapsed() > longest {
            return Err(Failure::new(
                Kind::System,
                "still_running",
                format!("process {pid} did not stop within {} s", longest.as_secs()),
            )
            .hint(format!("look at its log, or end it with: kill -9 {pid}")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    out.object(&json!({"stopped": true, "pid": pid}));
    out.line(format!("cortex is down: process {pid} ended"));
    Ok(())
}

pub async fn serve(serve: Serve, context: &Context) -> Outcome<()> {
    let listener = http::bind(&context.config).await?;
    let address = listener.local_addr().map_err(|error| {
        Failure::system(format!("the address that was bound is unknown: {error}"))
    })?;
    // Held until this process ends, however it ends.
    let claim = background::claim(&context.config.state.dir, address)?;
    let stop = stop_on_signal()?;
    let encoder = load_encoder(context).await?;
    let db = Db::open(&context.config.database, "service")?;
    let worker = (!serve.no_worker)
        .then(|| {
            Worker::new(
                db.clone(),
                encoder.clone(),
                &context.config,
                stop.child_token(),
            )
        })
        .transpose()?;
    let status = worker.as_ref().map(Worker::status);
    info!(%address, worker = worker.is_some(), "serving");
    let work = worker.map(|worker| tokio::spawn(worker.run()));
    let app = App::new(db.clone(), encoder, context.config.clone(), status);
    let served = tokio::spawn(http::serve(listener, app, stop.clone()));
    let outcome = async {
        if let Some(work) = work {
            // A worker that cannot go on ends the service, which would otherwise look well and do nothing.
            let worked = joined(work.await);
            stop.cancel();
            joined(served.await)?;
            worked
        } else {
            joined(served.await)
        }
    };
    let outcome = within(context, &stop, outcome).await;
    db.close().await;
    drop(claim);
    outcome
}

pub async fn work(_: Work, context: &Context) -> Outcome<()> {
    let stop = stop_on_signal()?;
    let encoder = load_encoder(context).await?;
    let db = Db::open(&context.config.database, "worker")?;
    let worker = Worker::new(db.clone(), encoder, &context.config, stop.clone())?;
    let outcome = within(context, &stop, worker.run()).await;
    db.close().await;
    outcome
}

/// Waits for work to end; once told to stop, only as long as the settings say.
async fn within(
    context: &Context,
    stop: &CancellationToken,
    work: impl Future<Output = Outcome<()>>,
) -> Outcome<()> {
    let grace = Duration::from_secs(context.config.server.shutdown_timeout_s.into());
    let too_long = async {
        stop.cancelled().await;
        // The HTTP server cuts its requests off after the same time, so it is let end first.
        tokio::time::sleep(grace + Duration::from_secs(1)).await;
    };
    tokio::select! {
        outcome = work => outcome,
        () = too_long => {
            error!(?grace, "work that had not ended was cut off; its leases will run out");
            Ok(())
        }
    }
}

fn joined(outcome: Result<Outcome<()>, tokio::task::JoinError>) -> Outcome<()> {
    outcome.map_err(|error| Failure::internal(format!("a task stopped: {error}")))?
}

async fn load_encoder(context: &Context) -> Outcome<Encoder> {
    let settings = context.config.model.clone();
    tokio::task::spawn_blocking(move || Encoder::load(&settings))
        .await
        .map_err(|error| Failure::internal(format!("loading the model stopped: {error}")))
}

/// A token that SIGTERM or SIGINT cancels.
fn stop_on_signal() -> Outcome<CancellationToken> {
    let listen = |kind| {
        signal(kind)
            .map_err(|error| Failure::system(format!("signals cannot be received: {error}")))
    };
    let (mut terminate, mut interrupt) = (
        listen(SignalKind::terminate())?,
        listen(SignalKind::interrupt())?,
    );
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("told to stop");
        told.cancel();
    });
    Ok(stop)
}
