//! What every request passes: host, key, time limit, request id, log line.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::info;

use super::App;
use crate::error::{Failure, Kind};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// What may be read without the key: the description of the interface, which a browser fetches without one.
const OPEN: [&str; 2] = ["/api/v1/docs", "/api/v1/openapi.json"];

pub(super) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let id = request_id();
    let started = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let limit = Duration::from_secs(app.config.server.request_timeout_s.into());
    let mut response = match admit(&app, request.headers(), &path) {
        Err(failure) => failure.into_response(),
        Ok(()) => match tokio::time::timeout(limit, next.run(request)).await {
            Ok(response) => response,
            Err(_) => Failure::new(
                Kind::Refused,
                "timed_out",
                format!(
                    "the request took longer than {} s (server.request_timeout_s)",
                    limit.as_secs()
                ),
            )
            .into_response(),
        },
    };
    info!(
        id,
        %method,
        route = route(&path),
        status = response.status().as_u16(),
        ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        "request"
    );
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

fn admit(app: &App, headers: &HeaderMap, path: &str) -> Result<(), Failure> {
    let key = app.config.server.key.expose();
    if key.is_empty() {
        return check_host(headers);
    }
    if OPEN.contains(&path) {
        return Ok(());
    }
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    if same(given.as_bytes(), key.as_bytes()) {
        return Ok(());
    }
    Err(Failure {
        code: "no_key",
        ..Failure::usage("the request does not carry the key of this service")
    }
    .hint("send Authorization: Bearer <server.key>"))
}

/// Without a key only this machine may ask. A page that a browser loaded from elsewhere can make its own
/// host name point here; then the name in `Host` is not one of this machine's.
fn check_host(headers: &HeaderMap) -> Result<(), Failure> {
    let host = headers
        .get(header::HOST)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_loopback = name
        .trim_matches(['[', ']'])
        .parse::<IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    if is_loopback || name.eq_ignore_ascii_case("localhost") {
        return Ok(());
    }
    Err(Failure {
        code: "wrong_host",
        ..Failure::usage(format!(
            "the request is for host {name:?}, not for this machine"
        ))
    }
    .hint("without server.key the service answers to localhost, 127.0.0.1 and [::1] only"))
}

/// Compares keyed digests, so that the time taken tells nothing about where two keys differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    blake3::hash(a) == blake3::hash(b)
}

/// The route of a path, for the log: paths themselves may hold names of sources, which say what they hold.
fn route(path: &str) -> &'static str {
    let fits = |route: &str| {
        let (mut parts, mut wanted) = (path.split('/'), route.split('/'));
        loop {
            match (parts.next(), wanted.next()) {
                (None, None) => return true,
                (Some(part), Some(name)) if part == name || name.starts_with('{') => {}
                _ => return false,
            }
        }
    };
    super::routes()
        .map(|(_, route)| route)
        .find(|route| fits(route))
        .unwrap_or("(none)")
}

fn request_id() -> String {
    static RUN: LazyLock<u64> =
        LazyLock::new(|| RandomState::new().hash_one("request ids of this run"));
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!(
        "{:08x}-{}",
        *RUN & 0xffff_ffff,
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

#[cfg(test)]
mod tests {
    use super::route;

    #[test]
    fn logs_name_routes_and_not_paths() {
        assert_eq!(route("/api/v1/read"), "/api/v1/read");
        assert_eq!(
            route("/api/v1/sources/file%3Asecret.md"),
            "/api/v1/sources/{id}"
        );
        assert_eq!(
            route("/api/v1/traces/7/verify"),
            "/api/v1/traces/{id}/verify"
        );
        assert_eq!(route("/api/v1/traces/7/secret"), "(none)");
        assert_eq!(route("/api/v1/sources/secret/more"), "(none)");
    }
}
