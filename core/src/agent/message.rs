//! Messages and where their text is from.
//!
//! The origin is set by the constructor and never changes. What a turn may do is derived from [`Origin::User`]
//! alone ([`super::turn`]); the role that a model server wants to hear is a matter of the wire ([`Origin::role`])
//! and decides nothing. So a recovery note that is sent as role `user`, and that quotes a tool's error, is still
//! not the user's word.

/// The longest message of a user, in characters.
pub const USER_MAX_CHARS: usize = 8_192;

/// Where a message's text comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Our own rules, the system prompt.
    Rules,
    /// The person typed or pasted it.
    User,
    /// The model wrote it.
    Model,
    /// A tool returned it.
    Tool,
    /// Recall brought it: claims, documents, facts of earlier sessions.
    Retrieved,
    /// The loop wrote it to bring the model back on track. It may quote a tool's error.
    Recovery,
}

impl Origin {
    /// The name stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::User => "user",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Retrieved => "retrieved",
            Self::Recovery => "recovery",
        }
    }

    /// The origin of a stored name.
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::Rules,
            Self::User,
            Self::Model,
            Self::Tool,
            Self::Retrieved,
            Self::Recovery,
        ]
        .into_iter()
        .find(|origin| origin.name() == name)
    }

    /// The role on the wire. Several origins share a role; no role is ever read back as an origin.
    pub fn role(self) -> &'static str {
        match self {
            Self::Rules | Self::Retrieved => "system",
            Self::User | Self::Recovery => "user",
            Self::Model => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// A user's message that is refused before anything reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No character that is not blank.
    #[error("the message is empty; write a question or a task")]
    Blank,
    /// Beyond [`USER_MAX_CHARS`].
    #[error(
        "the message has {0} characters, the limit is {USER_MAX_CHARS}; send a part of it or save it as a file"
    )]
    TooLong(usize),
}

/// A message with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    origin: Origin,
    text: String,
    tool: Option<String>,
}

impl Message {
    /// What the person wrote.
    pub fn user(text: impl Into<String>) -> Result<Self, Refusal> {
        let text = text.into();
        if text.trim().is_empty() {
            return Err(Refusal::Blank);
        }
        if text.len() > USER_MAX_CHARS {
            let chars = text.chars().count();
            if chars > USER_MAX_CHARS {
                return Err(Refusal::TooLong(chars));
            }
        }
        Ok(Self::new(Origin::User, text, None))
    }

    /// Our own rules.
    pub fn rules(text: impl Into<String>) -> Self {
        Self::new(Origin::Rules, text.into(), None)
    }

    /// What the model said.
    pub fn model(text: impl Into<String>) -> Self {
        Self::new(Origin::Model, text.into(), None)
    }

    /// What `tool` returned, an error as well.
    pub fn tool(tool: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(Origin::Tool, text.into(), Some(tool.into()))
    }

    /// What recall brought.
    pub fn retrieved(text: impl Into<String>) -> Self {
        Self::new(Origin::Retrieved, text.into(), None)
    }

    /// A note of the loop to the model.
    pub fn recovery(text: impl Into<String>) -> Self {
        Self::new(Origin::Recovery, text.into(), None)
    }

    /// A message from our own store, which recorded its origin. A role of the wire is no origin.
    pub fn stored(origin: Origin, text: impl Into<String>, tool: Option<String>) -> Self {
        Self::new(origin, text.into(), tool)
    }

    fn new(origin: Origin, text: String, tool: Option<String>) -> Self {
        Self { origin, text, tool }
    }

    /// Where the text is from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tool that returned it; `None` unless the origin is [`Origin::Tool`].
    pub fn tool_name(&self) -> Option<&str> {
        self.tool.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_at_most_8192_characters_and_not_blank() {
        let longest = "\u{e9}".repeat(USER_MAX_CHARS);
        assert!(Message::user(longest.as_str()).is_ok());
        assert_eq!(
            Message::user(format!("{longest}x")),
            Err(Refusal::TooLong(USER_MAX_CHARS + 1))
        );
        assert_eq!(Message::user(" \n\u{a0}"), Err(Refusal::Blank));
    }

    #[test]
    fn a_shared_role_does_not_share_the_origin() {
        let note = Message::recovery("save it to x.txt");
        assert_eq!(note.origin().role(), "user");
        assert_eq!(note.origin(), Origin::Recovery);
        for origin in [
            Origin::Rules,
            Origin::User,
            Origin::Model,
            Origin::Tool,
            Origin::Retrieved,
            Origin::Recovery,
        ] {
            assert_eq!(Origin::from_name(origin.name()), Some(origin));
        }
        assert_eq!(Origin::from_name("assistant"), None);
    }
}
