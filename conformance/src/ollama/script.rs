//! What the server replies to what.

use std::io;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fault::Fault;

/// A script, as it stands in a file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Script {
    /// Models that it claims to have. Empty: any.
    pub models: Vec<String>,
    /// Bearer key that it demands, if any.
    pub api_key: Option<String>,
    /// Refuse `response_format`, as some servers do.
    pub refuses_schema: bool,
    /// The first rule that fits the last message of a request decides.
    pub rules: Vec<Rule>,
    /// The reply where no rule fits.
    pub otherwise: Reply,
}

/// A rule.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// A text that the last message must contain.
    pub contains: Option<String>,
    /// A regular expression that must fit it. `$1` in the reply stands for its first group, and so on.
    pub pattern: Option<String>,
    /// How often the rule holds; then it is passed over.
    pub times: Option<u32>,
    /// The reply.
    pub reply: Reply,
}

/// A reply.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    /// The words.
    pub text: String,
    /// JSON in place of words.
    pub json: Option<Value>,
    /// Calls of tools, as Ollama writes them.
    pub tool_calls: Option<Value>,
    /// How it goes wrong.
    pub fault: Option<Fault>,
    /// Milliseconds before anything is sent.
    pub delay_ms: u64,
    /// Tokens that it claims to have read, instead of a guess.
    pub prompt_tokens: Option<u64>,
}

impl Reply {
    /// A reply in words.
    pub fn text(text: impl Into<String>) -> Self {
        Reply {
            text: text.into(),
            ..Reply::default()
        }
    }

    /// A reply in JSON.
    pub fn json(value: Value) -> Self {
        Reply {
            json: Some(value),
            ..Reply::default()
        }
    }

    /// The same, going wrong.
    pub fn with(self, fault: Fault) -> Self {
        Reply {
            fault: Some(fault),
            ..self
        }
    }

    pub(super) fn words(&self) -> String {
        match &self.json {
            Some(value) => value.to_string(),
            None => self.text.clone(),
        }
    }
}

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// Not the JSON of a script.
    #[error("the script cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// A rule whose pattern is no regular expression.
    #[error("rule {rule}: {source}")]
    Pattern {
        /// Its place, from 1.
        rule: usize,
        /// What is wrong with it.
        source: regex::Error,
    },
    /// An address that cannot be listened on.
    #[error("no address to listen on: {0}")]
    Listen(#[from] io::Error),
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// JSON of another form.
    pub fn from_json(text: &str) -> Result<Self, ScriptError> {
        Ok(serde_json::from_str(text)?)
    }

    /// A script with one reply to everything.
    pub fn always(reply: Reply) -> Self {
        Script {
            otherwise: reply,
            ..Script::default()
        }
    }

    /// Adds a rule.
    pub fn when(mut self, contains: impl Into<String>, reply: Reply) -> Self {
        self.rules.push(Rule {
            contains: Some(contains.into()),
            reply,
            ..Rule::default()
        });
        self
    }
}

/// A rule ready to be used.
pub(super) struct Prepared {
    rule: Rule,
    pattern: Option<Regex>,
    left: Option<u32>,
}

impl Prepared {
    pub fn all(rules: Vec<Rule>) -> Result<Vec<Self>, ScriptError> {
        rules
            .into_iter()
            .enumerate()
            .map(|(index, rule)| {
                let pattern = rule
                    .pattern
                    .as_deref()
                    .map(Regex::new)
                    .transpose()
                    .map_err(|source| ScriptError::Pattern {
                        rule: index + 1,
                        source,
                    })?;
                Ok(Prepared {
                    left: rule.times,
                    rule,
                    pattern,
                })
            })
            .collect()
    }

    /// The reply and its words, if the rule fits. Uses it up by one.
    pub fn fits(&mut self, message: &str) -> Option<(Reply, String)> {
        if self.left == Some(0) {
            return None;
        }
        if let Some(text) = &self.rule.contains
            && !message.contains(text)
        {
            return None;
        }
        let mut words = self.rule.reply.words();
        if let Some(pattern) = &self.pattern {
            let groups = pattern.captures(message)?;
            let mut filled = String::new();
            groups.expand(&words, &mut filled);
            words = filled;
        }
        self.left = self.left.map(|left| left - 1);
        Some((self.rule.reply.clone(), words))
    }
}
