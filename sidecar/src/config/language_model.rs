//! Section `language_model`: which server writes claims, and its limits.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Secret, invalid, within};
use crate::error::Outcome;

/// How a model server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// There is none.
    None,
    /// Ollama's own `/api/chat`.
    Ollama,
    /// `/v1/chat/completions`.
    OpenAi,
}

/// Section `language_model`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LanguageModel {
    /// How the server is spoken to.
    pub provider: Provider,
    /// Where it listens.
    pub url: String,
    /// The model's name there.
    pub name: String,
    /// Bearer key, or empty.
    pub api_key: Secret,
    /// Seconds that one reply may take.
    pub timeout_s: u32,
    /// Tokens of prompt and reply together.
    pub context_tokens: u32,
    /// Tokens of the longest reply.
    pub reply_tokens: u32,
    /// Requests open at once.
    pub parallel: usize,
}

/// Shortest context in which instructions, a chunk and a reply have room.
const SMALLEST_CONTEXT: u32 = 1_024;

impl LanguageModel {
    /// How long one reply may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s.into())
    }

    /// Whether a model is to be asked at all.
    pub fn is_on(&self) -> bool {
        self.provider != Provider::None
    }

    /// Whether the server is beyond this machine, so that texts leave it.
    pub fn is_remote(&self) -> bool {
        self.is_on() && reqwest::Url::parse(&self.url).is_ok_and(|url| !is_loopback(url.host_str()))
    }

    /// Whether the key would go over a network that everybody on it can read.
    pub fn shows_its_key(&self) -> bool {
        self.is_remote() && !self.api_key.is_empty() && self.url.starts_with("http://")
    }

    pub(super) fn check(&self) -> Outcome<()> {
        within("language_model.timeout_s", self.timeout_s, 1, 3_600)?;
        within(
            "language_model.context_tokens",
            self.context_tokens,
            SMALLEST_CONTEXT,
            10_000_000,
        )?;
        within(
            "language_model.reply_tokens",
            self.reply_tokens,
            128,
            self.context_tokens / 2,
        )?;
        within("language_model.parallel", self.parallel, 1, 64)?;
        if !self
            .api_key
            .expose()
            .bytes()
            .all(|byte| byte.is_ascii_graphic())
        {
            return Err(invalid(
                "language_model.api_key has characters that no header can carry".to_owned(),
            )
            .hint("look for blanks and line breaks at its ends"));
        }
        if !self.is_on() {
            return Ok(());
        }
        self.check_url()?;
        if self.name.trim().is_empty() {
            return Err(invalid("language_model.name is empty".to_owned())
                .hint("name the model as the server lists it, as in \"qwen2.5:7b\""));
        }
        Ok(())
    }

    /// A key belongs into `api_key`, which is masked, and not into the URL, which is shown.
    fn check_url(&self) -> Outcome<()> {
        let hint = "write it as http://127.0.0.1:11434, without user, password and parameters";
        let Ok(url) = reqwest::Url::parse(&self.url) else {
            return Err(invalid("language_model.url is not a URL".to_owned()).hint(hint));
        };
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() || !is_plain {
            return Err(invalid(
                "language_model.url is not a plain http or https address".to_owned(),
            )
            .hint(hint));
        }
        Ok(())
    }
}

/// `localhost` names this machine by convention of every resolver.
fn is_loopback(host: Option<&str>) -> bool {
    let host = host.unwrap_or_default();
    host.eq_ignore_ascii_case("localhost")
        || host
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}
