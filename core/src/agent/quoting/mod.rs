//! Instruction text: what of a message is the person's own words. Rule `cortex-own-words/1`.
//!
//! A message is read once from left to right. Where a quoting form begins, all of it is material, whatever it
//! holds: inside a block quote a fence is text, inside a fence a quotation mark is. So text within a form can end
//! that form only by the form's own closing mark, and can neither begin nor shift another. Each form leaves one
//! blank. A form that never ends goes to the end of the message where the person cannot have meant the mark as
//! anything else.
//!
//! The forms: fences and inline code, elements of HTML and XML, comments, bulletin-board tags, block quotes,
//! indented code, YAML block scalars, JSON, quotation marks of many languages, triple quotes, forwarded mail and
//! transcripts, documents between marker lines ([`Form`]).
//!
//! A quotation that is one plain token (1 to 64 letters, digits and `. / @ + - _`) or one web address is kept
//! without its marks, because people quote file names. It is kept as a *name*: it can say which file or address
//! is meant and never what to do with it ([`OwnWords::commands`]).
//!
//! Time is linear in the length of the message, up to a binary search for some marks.
//!
//! What this cannot see: a paste without any mark and without a request in front reads as the person's own words.

use std::ops::Range;

mod index;
mod lines;
mod marks;
mod markup;

use index::Index;

/// Name of the rule, as recorded where it decided.
pub const NAME: &str = "cortex-own-words/1";

/// The most characters of a quoted plain token.
pub const TOKEN_MAX_CHARS: usize = 64;

/// The most characters of a quoted address.
pub const ADDRESS_MAX_CHARS: usize = 2_048;

/// A way to mark text as not one's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Three or more backticks, tildes or quotation marks up to the same again.
    Fence,
    /// One or two backticks.
    InlineCode,
    /// An element of HTML or XML, a comment, a bulletin-board tag.
    Element,
    /// A line that begins with `>`.
    BlockQuote,
    /// Lines that begin with four blanks or a tab, after a blank line.
    IndentedCode,
    /// The indented lines under `key: |`.
    BlockScalar,
    /// Brackets or braces that hold quotation marks.
    Json,
    /// Quotation marks.
    Quote,
    /// A forwarded or answered mail, or a pasted conversation, to the end.
    Mail,
    /// Lines between a begin and an end marker.
    Document,
}

impl Form {
    /// What the form is called towards the user.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fence => "fenced text",
            Self::InlineCode => "inline code",
            Self::Element => "a tagged element",
            Self::BlockQuote => "a block quote",
            Self::IndentedCode => "indented code",
            Self::BlockScalar => "a YAML block",
            Self::Json => "JSON",
            Self::Quote => "quotation marks",
            Self::Mail => "a forwarded mail or transcript",
            Self::Document => "a pasted document",
        }
    }
}

/// A message without its material.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnWords {
    text: String,
    names: Vec<Range<usize>>,
    material: Vec<(Form, Range<usize>)>,
}

impl OwnWords {
    /// Reads a message.
    pub fn of(message: &str) -> Self {
        let index = Index::of(message);
        let mut own = Self::default();
        let mut at = 0;
        while let Some(c) = message[at..].chars().next() {
            let Some(skip) = skip(message, &index, at, c) else {
                own.text.push(c);
                at += c.len_utf8();
                continue;
            };
            debug_assert!(skip.end > at, "a form is never empty");
            match skip.name {
                Some(name) => {
                    let start = own.text.len();
                    own.text.push_str(&message[name]);
                    own.names.push(start..own.text.len());
                }
                None => {
                    own.text.push(' ');
                    own.material.push((skip.form, at..skip.end));
                }
            }
            at = skip.end;
        }
        own
    }

    /// The instruction text, with quoted names.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where in [`OwnWords::text`] a quoted name stands.
    pub fn names(&self) -> &[Range<usize>] {
        &self.names
    }

    /// What was left out of the message, as byte ranges of it, in order.
    pub fn material(&self) -> &[(Form, Range<usize>)] {
        &self.material
    }

    /// The instruction text with every quoted name blotted out by as many bytes: offsets are the same as in
    /// [`OwnWords::text`], and what remains says what to do.
    pub fn commands(&self) -> String {
        let mut commands = String::with_capacity(self.text.len());
        let mut from = 0;
        for name in &self.names {
            commands.push_str(&self.text[from..name.start]);
            commands.extend(std::iter::repeat_n(BLOT, name.len()));
            from = name.end;
        }
        commands.push_str(&self.text[from..]);
        commands
    }

    /// The words up to the byte `end`, which is a character boundary outside of any name or is moved before it.
    pub(crate) fn up_to(&self, end: usize) -> Self {
        let end = self
            .names
            .iter()
            .find(|name| name.start < end && end < name.end)
            .map_or(end, |name| name.start);
        Self {
            text: self.text[..end].to_owned(),
            names: self
                .names
                .iter()
                .filter(|name| name.end <= end)
                .cloned()
                .collect(),
            material: self.material.clone(),
        }
    }
}

/// Stands for a byte of a quoted name; no word holds it.
const BLOT: char = '\u{1}';

/// A form that begins here.
pub(super) struct Skip {
    form: Form,
    end: usize,
    /// The part to keep as a name.
    name: Option<Range<usize>>,
}

impl Skip {
    fn to(form: Form, end: usize) -> Option<Self> {
        Some(Self {
            form,
            end,
            name: None,
        })
    }

    /// A quotation of `inside`, kept if it is a name.
    fn quoted(text: &str, form: Form, inside: Range<usize>, end: usize) -> Option<Self> {
        let name = is_name(&text[inside.clone()]).then_some(inside);
        Some(Self { form, end, name })
    }
}

fn skip(text: &str, index: &Index, at: usize, c: char) -> Option<Skip> {
    let line_start = at == 0 || text.as_bytes()[at - 1] == b'\n';
    if line_start && let Some(skip) = lines::at_line_start(text, at) {
        return Some(skip);
    }
    match c {
        '`' | '~' => marks::fence(text, index, at, c),
        '|' | '>' => lines::block_scalar(text, at),
        '<' => markup::element(text, index, at),
        '{' | '[' => markup::brackets(text, index, at),
        _ => marks::quotation(text, index, at, c),
    }
}

/// Whether a quotation only names something.
fn is_name(inside: &str) -> bool {
    let short = |limit: usize| inside.chars().nth(limit).is_none();
    let token = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '/' | '@' | '+' | '-');
    if inside.is_empty() {
        return false;
    }
    if inside.chars().take(TOKEN_MAX_CHARS + 1).all(token) {
        return short(TOKEN_MAX_CHARS);
    }
    (inside.starts_with("http://") || inside.starts_with("https://"))
        && short(ADDRESS_MAX_CHARS)
        && !inside.chars().any(|c| {
            c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | '"' | '\'' | '`')
        })
}

#[cfg(test)]
pub(super) mod tests;
