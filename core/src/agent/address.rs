//! Web addresses as written, and whether two are the same one. Rule `cortex-address/1`.
//!
//! Host (lower case), port, path and query must be equal as written; `:80`, `:443`, a fragment, a last slash and
//! punctuation at the end do not count. `www.` and other sub-domains count. An address written with `https` means
//! `https` only.

/// Name of the rule, as recorded where it decided.
pub const NAME: &str = "cortex-address/1";

/// The longest address that is looked at, in bytes.
pub const MAX_BYTES: usize = 2_048;

/// The most addresses taken from a text.
pub const MAX_ADDRESSES: usize = 64;

/// An address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `true` for https, `None` if no scheme was written.
    https: Option<bool>,
    authority: String,
    rest: String,
}

/// Why a text is no address that can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Another scheme than http or https.
    #[error("only http and https addresses can be opened")]
    Scheme,
    /// No host.
    #[error("it names no host")]
    Host,
    /// Blanks, backslashes or control characters, which programs read differently.
    #[error("it holds a blank, a backslash or a control character")]
    Character,
    /// Too long.
    #[error("it is longer than {MAX_BYTES} bytes")]
    TooLong,
}

impl Address {
    /// Reads one address, as a model gives it or a person writes it.
    pub fn parse(written: &str) -> Result<Self, Unfit> {
        let text = written
            .trim()
            .trim_start_matches(['<', '"', '\''])
            .trim_end_matches(TAIL);
        if text.len() > MAX_BYTES {
            return Err(Unfit::TooLong);
        }
        if text
            .chars()
            .any(|c| c.is_whitespace() || c.is_control() || c == '\\')
        {
            return Err(Unfit::Character);
        }
        let (https, text) = match text.split_once("://") {
            Some((scheme, text)) if scheme.eq_ignore_ascii_case("https") => (Some(true), text),
            Some((scheme, text)) if scheme.eq_ignore_ascii_case("http") => (Some(false), text),
            Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
                return Err(Unfit::Scheme);
            }
            _ => (None, text),
        };
        let end = text.find(['/', '?', '#']).unwrap_or(text.len());
        let authority = text[..end].to_lowercase();
        let authority = authority
            .strip_suffix(":80")
            .or_else(|| authority.strip_suffix(":443"))
            .unwrap_or(&authority)
            .to_owned();
        let host = authority.rsplit('@').next().unwrap_or("");
        if !host
            .chars()
            .next()
            .is_some_and(|c| c.is_alphanumeric() || c == '[')
        {
            return Err(Unfit::Host);
        }
        if https.is_none() && host.contains(':') && !host.rsplit(':').next().is_some_and(is_port) {
            return Err(Unfit::Scheme);
        }
        let rest = &text[end..];
        let rest = rest.split('#').next().unwrap_or("");
        // An empty path is `/`; of a longer one the last slash does not count.
        let rest = rest.strip_suffix('/').unwrap_or(rest).to_owned();
        Ok(Self {
            https,
            authority,
            rest,
        })
    }

    /// Whether `asked`, the address to open, is the one written here.
    pub fn covers(&self, asked: &Address) -> bool {
        self.authority == asked.authority
            && self.rest == asked.rest
            && (self.https != Some(true) || asked.https != Some(false))
    }

    /// Host with port.
    pub fn host(&self) -> &str {
        &self.authority
    }

    /// Whether following a redirect from here to `to` stays where it was: same host, and no way back from https.
    pub fn may_redirect_to(&self, to: &Address) -> bool {
        self.authority == to.authority && !(self.https != Some(false) && to.https == Some(false))
    }
}

const TAIL: [char; 11] = ['.', ',', ';', ':', '!', '?', ')', ']', '}', '\'', '"'];

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit())
}

/// The addresses that a text holds, with their places.
pub(crate) fn addresses(text: &str) -> Vec<(std::ops::Range<usize>, Address)> {
    let mut found = Vec::new();
    let stop = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '\'' | '`' | '\u{1}');
    let mut at = 0;
    for piece in text.split(stop) {
        let start = at;
        at += piece.len();
        at += text[at..].chars().next().map_or(0, char::len_utf8);
        if found.len() >= MAX_ADDRESSES {
            break;
        }
        // An address can follow a bracket or a word and a colon: `[text](https://...)`.
        let lower = piece.to_ascii_lowercase();
        let scheme = ["https://", "http://"]
            .iter()
            .filter_map(|scheme| lower.find(scheme))
            .min();
        let from = match scheme {
            Some(from) => from,
            None => piece.len() - piece.trim_start_matches(['(', '[', '{']).len(),
        };
        let written = &piece[from..];
        if scheme.is_none() && !is_bare_host(written) {
            continue;
        }
        if let Ok(address) = Address::parse(written) {
            found.push((start + from..start + piece.len(), address));
        }
    }
    found
}

/// One to eight labels and a top-level domain of letters, not the name of a file.
fn is_bare_host(written: &str) -> bool {
    let written = written.trim_end_matches(TAIL);
    if written.len() > MAX_BYTES {
        return false;
    }
    let end = written.find(['/', '?', '#']).unwrap_or(written.len());
    let host = &written[..end];
    let (host, port) = host.split_once(':').unwrap_or((host, "80"));
    let labels: Vec<&str> = host.split('.').take(11).collect();
    let Some((top, labels)) = labels.split_last() else {
        return false;
    };
    let label = |label: &&str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_alphanumeric() || c == '-')
            && !label.starts_with('-')
    };
    let file = end == written.len() && super::paths::is_file_extension(&top.to_lowercase());
    is_port(port)
        && (1..=8).contains(&labels.len())
        && labels.iter().all(label)
        && (2..=63).contains(&top.len())
        && top.chars().all(char::is_alphabetic)
        && !file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(written: &str, asked: &str) -> bool {
        let (written, asked) = (
            Address::parse(written).expect(written),
            Address::parse(asked).expect(asked),
        );
        written.covers(&asked)
    }

    #[test]
    fn an_address_is_the_one_written_or_another_one() {
        for (written, asked) in [
            ("https://Example.com/a", "https://example.com/a/"),
            ("https://example.com:443", "https://example.com/"),
            ("http://example.com", "https://example.com"),
            ("example.com/a?b=c", "https://example.com/a?b=c"),
            ("https://example.com/a#top", "https://example.com/a"),
            ("https://example.com/a).", "https://example.com/a"),
        ] {
            assert!(same(written, asked), "{written} {asked}");
        }
        for (written, asked) in [
            ("https://example.com/a", "https://example.com/A"),
            ("https://example.com/a", "https://example.com/a?q=1"),
            ("https://example.com", "http://example.com"),
            ("https://example.com", "https://www.example.com"),
            ("https://example.com", "https://example.com@evil.example"),
            ("https://example.com", "https://example.com.evil.example"),
            ("https://example.com", "https://example.com:8080"),
        ] {
            assert!(!same(written, asked), "{written} {asked}");
        }
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        for (written, unfit) in [
            ("file:///etc/passwd", Unfit::Scheme),
            ("javascript:alert(1)", Unfit::Scheme),
            ("ftp://example.com", Unfit::Scheme),
            ("https:///x", Unfit::Host),
            ("https://example.com\\@evil.example", Unfit::Character),
            ("https://example.com/a b", Unfit::Character),
        ] {
            assert_eq!(Address::parse(written), Err(unfit), "{written}");
        }
        let longest = format!("https://e.example/{}", "a".repeat(MAX_BYTES - 18));
        assert!(Address::parse(&longest).is_ok());
        assert_eq!(Address::parse(&format!("{longest}a")), Err(Unfit::TooLong));
    }

    #[test]
    fn addresses_in_a_text() {
        let hosts = |text: &str| -> Vec<String> {
            addresses(text)
                .into_iter()
                .map(|(_, address)| address.host().to_owned())
                .collect()
        };
        assert_eq!(
            hosts("see [a](https://a.example/x) and (b.example), <http://c.example>."),
            ["a.example", "b.example", "c.example"]
        );
        assert_eq!(
            hosts("read notes.txt, notes.md, 3.14 and e.g. v1.2"),
            Vec::<String>::new()
        );
        assert_eq!(hosts("notes.md/x is a host"), ["notes.md"]);
    }
}
