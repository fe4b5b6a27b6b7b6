//! Answers: JSON as PostgreSQL wrote it, and failures with the status that fits.

use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::error::{Failure, Kind};

/// JSON text, sent as it is.
pub struct RawJson(pub String);

impl IntoResponse for RawJson {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

/// The HTTP status of a failure: what a client should do differently.
pub fn status(failure: &Failure) -> StatusCode {
    match failure.code {
        "not_found" | "no_such_path" => StatusCode::NOT_FOUND,
        "no_such_method" => StatusCode::METHOD_NOT_ALLOWED,
        "no_key" => StatusCode::UNAUTHORIZED,
        "forbidden" | "wrong_host" => StatusCode::FORBIDDEN,
        "already_exists" | "conflict" | "wrong_state" => StatusCode::CONFLICT,
        "too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        "wrong_media_type" => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported" => StatusCode::NOT_IMPLEMENTED,
        "timed_out" => StatusCode::GATEWAY_TIMEOUT,
        "invalid_argument" | "cannot_embed" => StatusCode::BAD_REQUEST,
        "try_again" | "locked" | "out_of_resources" | "no_free_connection" | "too_many_clients" => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => match failure.kind {
            Kind::Usage => StatusCode::BAD_REQUEST,
            Kind::Unreachable | Kind::Version => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Refused
                if failure
                    .sqlstate
                    .as_deref()
                    .is_some_and(|state| state.starts_with("P0")) =>
            {
                StatusCode::BAD_REQUEST
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = status(&self);
        let shown = if status == StatusCode::INTERNAL_SERVER_ERROR {
            // Once, here, and with its code only: the text may quote a source.
            tracing::error!(
                code = self.code,
                sqlstate = self.sqlstate,
                "a request failed"
            );
            Failure {
                message: "a fault of the service, not of the request".to_owned(),
                detail: None,
                hint: Some(
                    "the service's log names it by code and SQLSTATE, PostgreSQL's log in full"
                        .to_owned(),
                ),
                ..self
            }
        } else {
            self
        };
        let body = serde_json::to_string(&shown).unwrap_or_else(|_| String::from("{}"));
        let mut response = (status, RawJson(body)).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(
                header::WWW_AUTHENTICATE,
                header::HeaderValue::from_static("Bearer"),
            );
        }
        response
    }
}

/// Answers a path that does not exist.
pub async fn no_such_path(uri: Uri) -> Failure {
    Failure {
        code: "no_such_path",
        ..Failure::usage(format!("there is nothing at {}", uri.path()))
    }
    .hint("GET /api/v1/docs lists what there is")
}

/// Answers a method that a path does not have.
pub async fn no_such_method(method: Method, uri: Uri) -> Failure {
    Failure {
        code: "no_such_method",
        ..Failure::usage(format!("{} takes no {method}", uri.path()))
    }
    .hint("GET /api/v1/docs lists what there is")
}
