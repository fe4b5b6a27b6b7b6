//! Request bodies and parameters, refused with the same shape of error as everything else.

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Json, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::error::Failure;

/// A JSON body.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(value)) => Ok(JsonBody(value)),
            Err(JsonRejection::MissingJsonContentType(_)) => Err(Failure {
                code: "wrong_media_type",
                ..Failure::usage("the request's Content-Type is not application/json")
            }),
            Err(rejection) => Err(unreadable(rejection.status(), rejection.body_text())),
        }
    }
}

/// A body of plain text.
pub struct TextBody(pub String);

impl<S: Send + Sync> FromRequest<S> for TextBody {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        match String::from_request(request, state).await {
            Ok(text) => Ok(TextBody(text)),
            Err(rejection) => Err(unreadable(rejection.status(), rejection.body_text())),
        }
    }
}

fn unreadable(status: StatusCode, why: String) -> Failure {
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        return Failure {
            code: "too_large",
            ..Failure::usage("the request's body is over server.body_limit_bytes")
        }
        .hint("send less, or raise the limit");
    }
    Failure::usage(why)
}

/// A part of the path.
pub struct Segment<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segment<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Segment(value)),
            Err(rejection) => Err(Failure::usage(rejection.body_text())),
        }
    }
}

/// The parameters after `?`.
pub struct Parameters<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Parameters(value)),
            Err(rejection) => Err(Failure::usage(rejection.body_text())),
        }
    }
}
