//! Strings that must not be shown.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

const MASK: &str = "***";

/// A key, or a URL that may hold a password. Shown and serialised with the secret part masked.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Secret(value.into())
    }

    /// The value itself, for the one place that uses it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What may be shown: of a URL everything but the password and the query, of anything else nothing.
    pub fn masked(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let Some((scheme, rest)) = self.0.split_once("://") else {
            return MASK.to_owned();
        };
        // Parameters may repeat the password (`?password=...`); of them only the socket folder helps.
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let place = match place.rsplit_once('@') {
            None => place.to_owned(),
            Some((user, host)) => match user.split_once(':') {
                None => format!("{user}@{host}"),
                Some((name, _)) => format!("{name}:{MASK}@{host}"),
            },
        };
        let shown: Vec<&str> = query
            .split('&')
            .filter(|pair| {
                let name = pair.split('=').next().unwrap_or_default();
                matches!(name, "host" | "port" | "user" | "dbname" | "sslmode")
            })
            .collect();
        let query = if shown.is_empty() {
            String::new()
        } else {
            format!("?{}", shown.join("&"))
        };
        format!("{scheme}://{place}{query}")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.masked())
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.masked())
    }
}
