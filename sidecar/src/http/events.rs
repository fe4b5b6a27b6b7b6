//! `GET /api/v1/events`: what happens in a namespace, as server-sent events.
//!
//! Rows of `cortex_events` are the feed. A notification only says that there may be new ones, so that a client
//! which was away, or a service that cannot listen, misses none that the database still has.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::App;
use super::body::Parameters;
use crate::config::ListenAddress;
use crate::db::pool::Event;
use crate::db::{failure, listen};
use crate::error::{Failure, Kind, Outcome};

/// The channel on which the database tells of events.
const CHANNEL: &str = "cortex_event";
/// Clients at once. Each costs a query for every notification.
const MOST_CLIENTS: usize = 32;
/// Events that are fetched at once.
const BATCH: i32 = 100;
/// Between two looks when no notification came.
const POLL: Duration = Duration::from_secs(2);
/// Between two attempts to listen.
const RETRY: Duration = Duration::from_secs(5);
/// Between two signs of life to a client.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What all clients of the feed share.
#[derive(Clone)]
pub(super) struct Feed {
    places: Arc<Semaphore>,
    news: Arc<watch::Sender<()>>,
    stop: CancellationToken,
}

impl Feed {
    /// A feed that ends when `stop` is cancelled.
    pub fn new(stop: CancellationToken) -> Self {
        Feed {
            places: Arc::new(Semaphore::new(MOST_CLIENTS)),
            news: Arc::new(watch::Sender::new(())),
            stop,
        }
    }

    /// Passes notifications on to the clients until told to stop.
    pub async fn listen(self, address: ListenAddress) {
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                outcome = self.pass_on(&address) => {
                    if let Err(failure) = outcome {
                        debug!(code = failure.code, "not listening for events; polling");
                    }
                }
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    async fn pass_on(&self, address: &ListenAddress) -> Outcome<()> {
        let mut listener = listen(address, CHANNEL).await?;
        while listener.try_recv().await.map_err(failure)?.is_some() {
            self.news.send_replace(());
        }
        Ok(())
    }
}

/// Where to begin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct From {
    namespace: Option<String>,
    after: Option<i64>,
}

pub(super) async fn events(
    State(app): State<App>,
    Parameters(from): Parameters<From>,
    headers: HeaderMap,
) -> Outcome<Response> {
    let place = app.feed.places.clone().try_acquire_owned().map_err(|_| {
        Failure::new(
            Kind::Refused,
            "too_many_clients",
            format!("{MOST_CLIENTS} clients follow the events already"),
        )
        .hint("close one, or ask cortex_events in SQL")
    })?;
    let namespace = app.namespace(from.namespace);
    // A client that comes again says what it saw last, whatever its address says.
    let seen = match headers.get(LAST_EVENT_ID) {
        Some(value) => Some(parse(value.to_str().unwrap_or_default())?),
        None => from.after,
    };
    let after = match seen {
        Some(after) => after,
        None => app.db.last_event(&namespace).await?,
    };
    // What is wrong with the request shows now, while it can still be said with a status.
    let first = app.db.events(&namespace, after, BATCH).await?;
    let (sender, receiver) = mpsc::channel(16);
    let client = Client {
        app,
        namespace,
        after,
        sender,
        _place: place,
    };
    tokio::spawn(client.follow(first));
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let feed = Sse::new(ReceiverStream::new(receiver)).keep_alive(keep_alive);
    Ok(feed.into_response())
}

fn parse(id: &str) -> Outcome<i64> {
    id.trim().parse().map_err(|_| {
        Failure::usage(format!(
            "Last-Event-ID is {id:?}, which is no number of an event"
        ))
    })
}

/// One that follows the feed. Its place is free again when it leaves.
struct Client {
    app: App,
    namespace: String,
    after: i64,
    sender: mpsc::Sender<Result<sse::Event, Infallible>>,
    _place: OwnedSemaphorePermit,
}

impl Client {
    async fn follow(mut self, first: Vec<Event>) {
        let mut news = self.app.feed.news.subscribe();
        let mut batch = first;
        loop {
            let full = batch.len() >= BATCH as usize;
            for event in batch {
                self.after = event.id;
                let message = sse::Event::default()
                    .id(event.id.to_string())
                    .event(event.kind)
                    .data(event.json);
                tokio::select! {
                    () = self.app.feed.stop.cancelled() => return,
                    sent = self.sender.send(Ok(message)) => if sent.is_err() { return },
                }
            }
            if !full {
                tokio::select! {
                    () = self.app.feed.stop.cancelled() => return,
                    () = self.sender.closed() => return,
                    changed = news.changed() => if changed.is_err() { return },
                    () = tokio::time::sleep(POLL) => {}
                }
            }
            let next = self.app.db.events(&self.namespace, self.after, BATCH);
            batch = match next.await {
                Ok(batch) => batch,
                Err(failure) if failure.is_transient() => Vec::new(),
                // The right was taken away, or the namespace is gone: the client learns why when it comes again.
                Err(failure) => {
                    debug!(code = failure.code, "the feed of a client ends");
                    return;
                }
            };
        }
    }
}
