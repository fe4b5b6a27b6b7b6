//! HTTP to one model server, within the limits of the settings.

use std::time::Duration;

use reqwest::redirect;
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;

use super::unusable;
use crate::config::{LanguageModel, Secret};
use crate::error::{Failure, Kind, Outcome};

/// Largest reply that is read. The longest sensible one has a hundredth of it.
const LARGEST_REPLY: usize = 4 << 20;
/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may take to list its models.
const LIST: Duration = Duration::from_secs(5);
/// How much of an error of the server is passed on, in characters.
const SHOWN_ERROR: usize = 300;

/// A server and the model on it.
pub(super) struct Client {
    http: reqwest::Client,
    base: String,
    key: Secret,
    timeout: Duration,
    /// The model's name there.
    pub model: String,
    /// Tokens of prompt and reply together.
    pub context_tokens: u32,
    /// Tokens of the longest reply.
    pub reply_tokens: u32,
}

/// What the server answered.
pub(super) struct Answer {
    pub status: StatusCode,
    pub body: Value,
}

impl Client {
    pub fn new(settings: &LanguageModel) -> Outcome<Self> {
        let http = reqwest::Client::builder()
            // The texts of sources go to the server that the settings name, and nowhere that it or the
            // environment points to.
            .redirect(redirect::Policy::none())
            .no_proxy()
            // A machine without certificates can still talk to a server on itself.
            .tls_built_in_root_certs(settings.url.starts_with("https://"))
            .connect_timeout(CONNECT)
            .build()
            .map_err(|error| Failure::system(format!("no HTTP client can be made: {error}")))?;
        Ok(Client {
            http,
            base: settings.url.trim_end_matches('/').to_owned(),
            key: settings.api_key.clone(),
            timeout: settings.timeout(),
            model: settings.name.clone(),
            context_tokens: settings.context_tokens,
            reply_tokens: settings.reply_tokens,
        })
    }

    /// The address below which the interface lies, without a version at its end.
    pub fn set_base(&mut self, suffix: &str) {
        if let Some(base) = self.base.strip_suffix(suffix) {
            self.base = base.to_owned();
        }
    }

    pub async fn post(&self, path: &str, body: &Value) -> Outcome<Answer> {
        self.send(Method::POST, path, Some(body), self.timeout)
            .await
    }

    pub async fn get(&self, path: &str) -> Outcome<Answer> {
        self.send(Method::GET, path, None, LIST.min(self.timeout))
            .await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Outcome<Answer> {
        let exchange = async {
            let mut request = self.http.request(method, format!("{}{path}", self.base));
            if !self.key.is_empty() {
                request = request.bearer_auth(self.key.expose());
            }
            if let Some(body) = body {
                request = request
                    .header("Content-Type", "application/json")
                    .body(body.to_string());
            }
            let response = request.send().await.map_err(|error| self.broken(&error))?;
            self.read(response).await
        };
        tokio::time::timeout(limit, exchange)
            .await
            .map_err(|_| self.late(limit))?
    }

    async fn read(&self, mut response: Response) -> Outcome<Answer> {
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(piece) = response
            .chunk()
            .await
            .map_err(|error| self.broken(&error))?
        {
            if bytes.len() + piece.len() > LARGEST_REPLY {
                return Err(unusable(format!(
                    "the model server at {} sent more than {LARGEST_REPLY} bytes",
                    self.base
                )));
            }
            bytes.extend_from_slice(&piece);
        }
        let body = match serde_json::from_slice(&bytes) {
            Ok(body) => body,
            // Errors may come as text, from a proxy before the server.
            Err(_) if !status.is_success() => {
                Value::String(String::from_utf8_lossy(&bytes).into_owned())
            }
            Err(error) => {
                return Err(unusable(format!(
                    "the model server at {} answered something else than JSON: {error}",
                    self.base
                ))
                .hint("check language_model.provider and language_model.url"));
            }
        };
        Ok(Answer { status, body })
    }

    /// Nobody there is told from a connection that broke off: that may be the prompt's doing.
    fn broken(&self, error: &reqwest::Error) -> Failure {
        let (code, what) = if error.is_connect() {
            ("model_unreachable", "cannot be reached")
        } else {
            ("model_broke_off", "broke off its answer")
        };
        let mut message = format!("the model server at {} {what}", self.base);
        // The cause says it; reqwest's own words repeat the address.
        let mut cause = std::error::Error::source(error);
        while let Some(deeper) = cause.and_then(std::error::Error::source) {
            cause = Some(deeper);
        }
        if let Some(cause) = cause {
            message = format!("{message}: {cause}");
        }
        Failure::new(Kind::System, code, message)
            .hint("start it and look at its log, or correct language_model.url (CORTEX_LANGUAGE_MODEL__URL)")
    }

    fn late(&self, limit: Duration) -> Failure {
        let message = format!(
            "the model server at {} did not answer within {} s",
            self.base,
            limit.as_secs()
        );
        Failure::new(Kind::System, "model_timed_out", message)
            .hint("a large model may still be loading; raise language_model.timeout_s, or use a smaller one")
    }

    /// What the server said instead of an answer.
    pub fn refused(&self, answer: &Answer) -> Failure {
        let said = ["/error/message", "/error", "/message"]
            .iter()
            .find_map(|place| answer.body.pointer(place).and_then(Value::as_str))
            .or(answer.body.as_str())
            .unwrap_or_default();
        // Whatever is asked, it will not be answered before somebody acts, or a while has passed.
        let code = match answer.status.as_u16() {
            401 | 403 | 404 | 429 | 503 => "model_unavailable",
            _ => "model_refused",
        };
        let said: String = said.chars().take(SHOWN_ERROR).collect();
        let failure = Failure::new(
            Kind::System,
            code,
            format!(
                "the model server at {} answered {}: {said}",
                self.base,
                answer.status.as_u16()
            ),
        );
        match answer.status {
            StatusCode::NOT_FOUND => failure.hint(format!(
                "load the model {:?} there, or correct language_model.name and language_model.url",
                self.model
            )),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                failure.hint("correct language_model.api_key (CORTEX_LANGUAGE_MODEL__API_KEY)")
            }
            status if status.is_redirection() => failure
                .hint("redirects are not followed; name the final address in language_model.url"),
            _ => failure,
        }
    }
}
