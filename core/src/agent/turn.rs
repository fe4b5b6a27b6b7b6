//! What a turn may do, derived from the person's words and nothing else.
//!
//! | call | allowed if |
//! |---|---|
//! | write a file | the request text names that path as one to write to, or asks for a file without naming one: then for one new file |
//! | replace a file | the request text names that path and asks for it to be replaced |
//! | open an address | the person wrote this very address outside of any material, now or earlier in the conversation |
//! | learn | from the person's statements about themselves in this message ([`super::statements`]) |
//!
//! A tool that changes nothing is not decided here; [`Turn::asked_for`] says whether the words ask for it, which
//! plans are held against. Each decision carries a rule and a reason for people.

use super::address::{self, Address};
use super::message::{Message, Origin};
use super::paths::{self, Files};
use super::quoting::OwnWords;
use super::words::{has_any, has_phrase, words};
use super::{request, statements};

/// A decision with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether the call may be made.
    pub allowed: bool,
    /// The rule that decided, a stable name.
    pub rule: &'static str,
    /// What to tell the user and the model.
    pub reason: String,
}

impl Decision {
    fn allow(rule: &'static str, reason: impl Into<String>) -> Self {
        Self {
            allowed: true,
            rule,
            reason: reason.into(),
        }
    }

    fn refuse(rule: &'static str, reason: impl Into<String>) -> Self {
        Self {
            allowed: false,
            rule,
            reason: reason.into(),
        }
    }
}

/// A turn's words and what they permit.
#[derive(Debug, Clone)]
pub struct Turn {
    own: OwnWords,
    commands: String,
    request: OwnWords,
    files: Files,
    file_words: bool,
    addresses: Vec<Address>,
    /// Addresses that occur in material only, for the reason of a refusal.
    foreign: Vec<Address>,
    statements: Vec<String>,
}

impl Turn {
    /// Reads a conversation. Its last message of origin `user` is the request; earlier ones count for addresses.
    /// Messages of every other origin are not looked at.
    pub fn of(conversation: &[Message]) -> Self {
        let said: Vec<&str> = conversation
            .iter()
            .filter(|message| message.origin() == Origin::User)
            .map(Message::text)
            .collect();
        let (current, earlier) = said
            .split_last()
            .map_or(("", &[][..]), |(last, earlier)| (*last, earlier));
        let own = OwnWords::of(current);
        let (request, end) = request::request(&own);
        let files = paths::files(&request);
        let file_words = asks_for_files(&request.commands());
        let mut addresses = own_addresses(&own, end);
        for text in earlier {
            let own = OwnWords::of(text);
            let (_, end) = request::request(&own);
            addresses.extend(own_addresses(&own, end));
        }
        let foreign = said
            .iter()
            .flat_map(|text| address::addresses(text))
            .map(|(_, address)| address)
            .filter(|address| !addresses.contains(address))
            .collect();
        Self {
            commands: own.commands(),
            statements: statements::statements(&own),
            own,
            request,
            files,
            file_words,
            addresses,
            foreign,
        }
    }

    /// The instruction text.
    pub fn instruction(&self) -> &OwnWords {
        &self.own
    }

    /// The request text.
    pub fn request(&self) -> &OwnWords {
        &self.request
    }

    /// What the request says about files.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The addresses that may be opened.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// What memory may be taught from this turn.
    pub fn statements(&self) -> &[String] {
        &self.statements
    }

    /// Whether a new file may be written at `path`. `written` are the paths that this turn has written already.
    pub fn write(&self, path: &str, written: &[String]) -> Decision {
        let path = paths::normalised(path);
        let said = shown(&path);
        if path.is_empty()
            || path.chars().any(char::is_control)
            || path.len() > paths::PATH_MAX_BYTES
        {
            return Decision::refuse("path-unfit", format!("{said:?} is no path of a file"));
        }
        if !self.file_words && self.files.targets.is_empty() {
            return Decision::refuse(
                "write-not-asked",
                format!(
                    "nobody asked for a file, so {said} is not written; the answer belongs in the chat"
                ),
            );
        }
        if let Some(target) = self
            .files
            .targets
            .iter()
            .find(|target| covers(target, &path))
        {
            return Decision::allow(
                "path-named",
                format!("you asked for {}", shown(&target.path)),
            );
        }
        if !self.files.targets.is_empty() {
            let named: Vec<String> = self
                .files
                .targets
                .iter()
                .take(5)
                .map(|target| shown(&target.path))
                .collect();
            return Decision::refuse(
                "path-not-named",
                format!(
                    "you asked for {} and not for {said}; name the path to allow it",
                    named.join(", ")
                ),
            );
        }
        if !self.files.writes {
            return Decision::refuse(
                "write-not-asked",
                format!(
                    "files are spoken of, but nobody asked to write one, so {said} is not written"
                ),
            );
        }
        if self.files.sources.contains(&path) {
            return Decision::refuse(
                "path-is-source",
                format!("you named {said} to read from, not to write to"),
            );
        }
        if path.ends_with('/') || path.split('/').any(|part| part.starts_with('.')) {
            return Decision::refuse(
                "path-unfit",
                format!(
                    "{said} is hidden, a folder or outside of the workspace, and nobody named it"
                ),
            );
        }
        match written
            .iter()
            .find(|other| paths::normalised(other) != path)
        {
            Some(other) => Decision::refuse(
                "one-unnamed-file",
                format!(
                    "you asked for one file without naming it, and that is {}; name {said} to allow it as well",
                    shown(other)
                ),
            ),
            None => Decision::allow(
                "file-not-named",
                "you asked for a file without naming it, which allows one new file",
            ),
        }
    }

    /// Whether the file at `path` may be replaced. Implies [`Turn::write`].
    pub fn overwrite(&self, path: &str, written: &[String]) -> Decision {
        let write = self.write(path, written);
        if !write.allowed {
            return write;
        }
        let path = paths::normalised(path);
        let said = shown(&path);
        // What the turn itself has just made is its own to correct.
        if written.iter().any(|own| paths::normalised(own) == path) {
            return Decision::allow("own-file", format!("this turn wrote {said}"));
        }
        if self
            .files
            .targets
            .iter()
            .any(|target| target.overwrite && !target.folder && target.path == path)
        {
            return Decision::allow(
                "overwrite-asked",
                format!("you asked to replace or change {said}"),
            );
        }
        Decision::refuse(
            "overwrite-not-asked",
            format!(
                "you did not ask to replace {said}; write \u{201c}overwrite {said}\u{201d} to allow it, or choose another name"
            ),
        )
    }

    /// Whether the address may be opened.
    pub fn fetch(&self, url: &str) -> Decision {
        let asked = match Address::parse(url) {
            Ok(asked) => asked,
            Err(unfit) => {
                return Decision::refuse(
                    "address-unfit",
                    format!("this address is not opened: {unfit}"),
                );
            }
        };
        if self.addresses.iter().any(|written| written.covers(&asked)) {
            return Decision::allow("address-written", "you wrote this address");
        }
        let host = shown(asked.host());
        if self.foreign.iter().any(|found| found.covers(&asked)) {
            return Decision::refuse(
                "address-in-material",
                format!(
                    "the address at {host} stands in quoted or pasted text; write it yourself to allow it"
                ),
            );
        }
        if self
            .addresses
            .iter()
            .any(|written| written.host() == asked.host())
        {
            return Decision::refuse(
                "address-differs",
                format!("you wrote another address at {host}; only the exact address is opened"),
            );
        }
        Decision::refuse(
            "address-not-written",
            format!(
                "only addresses that you wrote are opened, and none of them is at {host}; paste the link to allow it"
            ),
        )
    }

    /// Whether a redirect from one address to another may be followed: the same host, or an address that the person
    /// wrote.
    pub fn redirect(&self, from: &str, to: &str) -> Decision {
        let direct = self.fetch(to);
        if direct.allowed {
            return direct;
        }
        match (Address::parse(from), Address::parse(to)) {
            (Ok(from), Ok(to)) if from.may_redirect_to(&to) => {
                Decision::allow("redirect-same-host", "the address moved within its host")
            }
            (_, Ok(to)) => Decision::refuse(
                "redirect-elsewhere",
                format!(
                    "the page sends on to {}, which you did not write; paste that link to allow it",
                    shown(to.host())
                ),
            ),
            _ => direct,
        }
    }

    /// What this turn may do and what of the message was not read as the person's words, a line each, for people.
    pub fn explain(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .files
            .targets
            .iter()
            .map(|target| {
                let what = match (target.folder, target.overwrite) {
                    (true, _) => "write new files in",
                    (false, true) => "write or replace",
                    (false, false) => "write, if it is not there yet,",
                };
                format!("may {what} {}: you asked for it", shown(&target.path))
            })
            .collect();
        if self.files.targets.is_empty() && self.file_words && self.files.writes {
            lines.push("may write one new file: you asked for one without naming it".to_owned());
        }
        if lines.is_empty() {
            lines.push("may write no file: you did not ask for one".to_owned());
        }
        for address in &self.addresses {
            lines.push(format!(
                "may open the address that you wrote at {}",
                shown(address.host())
            ));
        }
        for (form, range) in self.own.material() {
            lines.push(format!(
                "read as material, not as a request: {} ({} bytes)",
                form.name(),
                range.len()
            ));
        }
        if self.request.text().len() < self.own.text().len() {
            lines.push("read as material, not as a request: what follows the hand-over".to_owned());
        }
        lines.truncate(LINES_MAX);
        lines
    }

    /// Whether the person's words ask for a tool. `None` for a tool that has no words of its own.
    pub fn asked_for(&self, tool: &str) -> Option<bool> {
        let own = self.commands.as_str();
        Some(match tool {
            "filesystem" => {
                has_any(
                    own,
                    &[
                        "file",
                        "files",
                        "folder",
                        "directory",
                        "save",
                        "write",
                        "read",
                        "create",
                        "readme",
                    ],
                ) || has_phrase(own, "according to")
                    || has_extension(
                        own,
                        &["txt", "md", "json", "csv", "py", "yaml", "yml", "log"],
                    )
                    || !self.files.targets.is_empty()
            }
            "python_exec" => {
                has_any(own, &["python", "run", "execute", "code", "script"])
                    || ["test it", "test this", "test that"]
                        .iter()
                        .any(|phrase| has_phrase(own, phrase))
            }
            "calculator" => has_any(own, &["calculate", "calculator", "compute"]),
            "doc_search" => {
                has_any(
                    own,
                    &[
                        "index",
                        "indexed",
                        "document",
                        "documents",
                        "search",
                        "readme",
                        "docs",
                    ],
                ) || has_phrase(own, "according to")
            }
            "web_fetch" => {
                has_any(
                    own,
                    &[
                        "www", "fetch", "url", "website", "webpage", "online", "internet",
                        "browse", "http", "https",
                    ],
                ) || has_phrase(own, "web page")
                    || !self.addresses.is_empty()
            }
            _ => return None,
        })
    }
}

/// The most lines of [`Turn::explain`].
pub const LINES_MAX: usize = 50;

/// A path or host as it is put into a reason: short, one line, without control characters.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(120).collect();
    if text.chars().nth(120).is_some() {
        shown.push('\u{2026}');
    }
    shown
}

fn covers(target: &paths::Target, path: &str) -> bool {
    if !target.folder {
        return target.path == path;
    }
    let inside = path.strip_prefix(target.path.as_str());
    inside.is_some_and(|rest| !rest.is_empty() && !rest.contains('/') && rest != "..")
}

/// Words that ask for a file rather than for text.
fn asks_for_files(request: &str) -> bool {
    has_any(
        request,
        &[
            "file",
            "files",
            "save",
            "saved",
            "folder",
            "directory",
            "disk",
            "csv",
            "datei",
            "speichere",
            "fichier",
            "enregistre",
            "archivo",
            "guarda",
            "salva",
        ],
    ) || has_phrase(request, "store it")
        || has_extension(
            request,
            &["txt", "md", "json", "csv", "py", "yaml", "yml", "log"],
        )
}

/// Whether a word ends in a dot and one of `extensions`.
fn has_extension(text: &str, extensions: &[&str]) -> bool {
    words(text).any(|(place, word)| {
        text[..place.start].ends_with('.') && extensions.contains(&word.as_str())
    })
}

/// The addresses among a person's own words: all in front of a hand-over that ends at `end`, and those with which the
/// material behind it begins.
fn own_addresses(own: &OwnWords, end: usize) -> Vec<Address> {
    let mut reached = end;
    address::addresses(own.text())
        .into_iter()
        .take_while(|(place, _)| {
            let gap = &own.text()[reached.min(place.start)..place.start];
            let leads = place.end <= end
                || gap
                    .chars()
                    .all(|c| c.is_whitespace() || matches!(c, '<' | '>' | '(' | '['));
            reached = reached.max(place.end);
            leads
        })
        .map(|(_, address)| address)
        .collect()
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
