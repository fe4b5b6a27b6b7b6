//! The REST interface under `/api/v1`.
//!
//! Every answer that an SQL function gives goes out as PostgreSQL wrote it. The routes are listed once, in
//! `ROUTES`, from which the router is built and against which the OpenAPI document is tested.

mod asks;
mod body;
mod events;
mod guard;
mod handlers;
mod health;
mod openapi;
mod pool;
mod reply;
mod traces;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post, put};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Config;
use crate::db::Db;
use crate::encoder::Encoder;
use crate::error::{Failure, Outcome};
use crate::worker::Status;
use events::Feed;
pub use openapi::document;

/// What every request works with. Cheap to clone.
#[derive(Clone)]
pub struct App {
    db: Db,
    encoder: Encoder,
    config: Arc<Config>,
    worker: Option<Arc<Status>>,
    feed: Feed,
}

impl App {
    /// An application. `worker` is the status of the worker in the same process, if there is one.
    pub fn new(db: Db, encoder: Encoder, config: Config, worker: Option<Arc<Status>>) -> Self {
        App {
            db,
            encoder,
            config: Arc::new(config),
            worker,
            feed: Feed::new(CancellationToken::new()),
        }
    }

    fn namespace(&self, named: Option<String>) -> String {
        named.unwrap_or_else(|| self.config.read.namespace.clone())
    }
}

type Route = (&'static str, &'static str, fn() -> MethodRouter<App>);

/// Method and path of each route.
const ROUTES: &[Route] = &[
    ("get", "/api/v1/health", || get(health::health)),
    ("post", "/api/v1/sources", || post(handlers::post_source)),
    ("put", "/api/v1/sources/{id}", || put(handlers::put_source)),
    ("get", "/api/v1/sources/{id}", || get(handlers::get_source)),
    ("delete", "/api/v1/sources/{id}", || {
        delete(handlers::delete_source)
    }),
    ("post", "/api/v1/read", || post(handlers::read)),
    ("post", "/api/v1/search", || post(handlers::search)),
    ("post", "/api/v1/traces", || post(handlers::ask)),
    ("get", "/api/v1/traces/{id}", || get(traces::get)),
    ("get", "/api/v1/traces/{id}/verify", || {
        get(traces::verify_stored)
    }),
    ("get", "/api/v1/traces/{id}/drift", || get(traces::drift)),
    ("get", "/api/v1/traces/{id}/explain", || {
        get(traces::explain)
    }),
    ("get", "/api/v1/traces/{id}/dossier", || {
        get(traces::dossier)
    }),
    ("get", "/api/v1/traces/{id}/evidence", || {
        get(traces::evidence)
    }),
    ("post", "/api/v1/asks", || post(asks::open)),
    ("delete", "/api/v1/asks/{id}", || delete(asks::abandon)),
    ("post", "/api/v1/asks/{id}/round", || post(asks::round)),
    ("post", "/api/v1/asks/{id}/select", || post(asks::select)),
    ("post", "/api/v1/asks/{id}/refine", || post(asks::refine)),
    ("post", "/api/v1/asks/{id}/answer", || post(asks::answer)),
    ("post", "/api/v1/asks/{id}/close", || post(asks::close)),
    ("get", "/api/v1/pool/units", || get(pool::units)),
    ("get", "/api/v1/pool/units/{id}", || get(pool::unit)),
    ("delete", "/api/v1/pool/units/{id}", || delete(pool::evict)),
    ("get", "/api/v1/pool/stats", || get(pool::stats)),
    ("get", "/api/v1/events", || get(events::events)),
    ("post", "/api/v1/verify", || post(traces::verify_text)),
    ("get", "/api/v1/verify", || get(traces::verify_all)),
    ("get", "/api/v1/openapi.json", || get(openapi::json)),
    ("get", "/api/v1/docs", || get(openapi::page)),
];

/// Method and path of each route, for the test that compares them with the OpenAPI document.
pub fn routes() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROUTES.iter().map(|(method, path, _)| (*method, *path))
}

fn router(app: App) -> Router {
    let mut router = Router::new();
    for (_, path, route) in ROUTES {
        router = router.route(path, route());
    }
    router
        .fallback(reply::no_such_path)
        .method_not_allowed_fallback(reply::no_such_method)
        .layer(DefaultBodyLimit::max(app.config.server.body_limit_bytes))
        .layer(from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

/// Binds the address of the settings.
///
/// # Errors
/// An address that is taken or not ours.
pub async fn bind(config: &Config) -> Outcome<TcpListener> {
    let address = config.server.listen;
    TcpListener::bind(address).await.map_err(|error| {
        let failure = Failure::system(format!("{address} cannot be listened on: {error}"));
        match error.kind() {
            std::io::ErrorKind::AddrInUse => failure.hint(
                "another program, or another cortex, has this port: stop it (`cortex down`), or set server.listen",
            ),
            _ => failure.hint("correct server.listen (CORTEX_SERVER__LISTEN)"),
        }
    })
}

/// Answers requests until `stop` is cancelled, then lets running ones end, for as long as the settings say.
///
/// # Errors
/// A listener that fails.
pub async fn serve(listener: TcpListener, mut app: App, stop: CancellationToken) -> Outcome<()> {
    let grace = Duration::from_secs(app.config.server.shutdown_timeout_s.into());
    let draining = stop.clone();
    // Feeds have no end of their own that a graceful stop could wait for.
    app.feed = Feed::new(stop.child_token());
    let address = app.config.database.listen_address();
    tokio::spawn(app.feed.clone().listen(address));
    let server =
        axum::serve(listener, router(app)).with_graceful_shutdown(stop.clone().cancelled_owned());
    let too_long = async {
        draining.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        ended = server => ended.map_err(|error| Failure::system(format!("the HTTP server stopped: {error}")))?,
        () = too_long => warn!(?grace, "requests that had not ended were cut off"),
    }
    info!("HTTP server stopped");
    Ok(())
}
