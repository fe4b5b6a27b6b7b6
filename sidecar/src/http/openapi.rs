//! The description of the interface: an OpenAPI document kept by hand beside the routes, and a page made
//! from it. A test compares document and routes.

use std::fmt::Write;

use axum::response::{Html, IntoResponse};
use serde_json::Value;

use super::reply::RawJson;
use crate::error::{Failure, Outcome};

const DOCUMENT: &str = include_str!("openapi.json");
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:46em;margin:2em auto;padding:0 1em}\
code,pre{font-family:ui-monospace,monospace;font-size:.9em}pre{background:#f4f4f4;padding:.7em;overflow:auto}\
h2{margin-top:2em;border-top:1px solid #ddd;padding-top:1em}table{border-collapse:collapse}td{padding:.1em 1em .1em 0;vertical-align:top}";

/// The OpenAPI document.
pub fn document() -> &'static str {
    DOCUMENT
}

pub(super) async fn json() -> impl IntoResponse {
    RawJson(DOCUMENT.to_owned())
}

pub(super) async fn page() -> Outcome<Html<String>> {
    let document: Value = serde_json::from_str(DOCUMENT)
        .map_err(|error| Failure::internal(format!("the OpenAPI document is not JSON: {error}")))?;
    Ok(Html(render(&document)))
}

/// The page. It loads nothing: no script, no font, no style from elsewhere.
fn render(document: &Value) -> String {
    let mut page = String::new();
    let title = escape(at(document, "/info/title"));
    let _ = write!(
        page,
        "<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>\
         <h1>{title} {}</h1><p>{}</p><p>The same as <a href=openapi.json>OpenAPI</a>.</p>",
        escape(at(document, "/info/version")),
        escape(at(document, "/info/description")),
    );
    for (path, methods) in members(document.get("paths")) {
        for (method, operation) in members(Some(methods)) {
            let _ = write!(
                page,
                "<h2><code>{} {}</code></h2><p><b>{}.</b> {}</p>",
                escape(&method.to_uppercase()),
                escape(path),
                escape(at(operation, "/summary")),
                escape(at(operation, "/description")),
            );
            parameters(&mut page, operation);
            body(&mut page, operation);
        }
    }
    page
}

fn parameters(page: &mut String, operation: &Value) {
    let Some(list) = operation.get("parameters").and_then(Value::as_array) else {
        return;
    };
    page.push_str("<table>");
    for parameter in list {
        row(
            page,
            at(parameter, "/name"),
            at(parameter, "/in"),
            at(parameter, "/description"),
        );
    }
    page.push_str("</table>");
}

fn body(page: &mut String, operation: &Value) {
    for (media_type, content) in members(operation.pointer("/requestBody/content")) {
        let _ = write!(
            page,
            "<p>Body, <code>{}</code>:</p><table>",
            escape(media_type)
        );
        let required: Vec<&str> = content
            .pointer("/schema/required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        for (name, schema) in members(content.pointer("/schema/properties")) {
            let needed = if required.contains(&name.as_str()) {
                "required"
            } else {
                ""
            };
            row(page, name, needed, at(schema, "/description"));
        }
        page.push_str("</table>");
    }
}

fn row(page: &mut String, name: &str, note: &str, text: &str) {
    let _ = write!(
        page,
        "<tr><td><code>{}</code><td><i>{}</i><td>{}",
        escape(name),
        escape(note),
        escape(text)
    );
}

fn members(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}

fn at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
