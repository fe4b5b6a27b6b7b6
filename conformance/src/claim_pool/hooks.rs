//! Callables, which the recordings describe in words, and notes that change what retrieval answers.

use serde_json::{Map, Value};

use super::case::{Chunk, Retriever};

/// A header function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderHook {
    /// Text before and after the unit's id.
    AroundId(String, String),
    /// Always the same text.
    Fixed(String),
    /// Fails.
    Raises,
}

/// A reranker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RerankHook {
    /// Turns the order round. The recordings call it minus the position and count from the end.
    Reversed,
    /// All equal, but not a number for texts that begin with or equal this.
    NanFor(String),
    /// All equal.
    Equal,
    /// Values that are no numbers.
    NoNumbers,
    /// One score too few.
    TooFew,
    /// Fails, or is not known here: a reranker that cannot be run counts as failed.
    Raises,
}

/// The settings of a case.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Absolute gate.
    pub gate: Option<f64>,
    /// Token budget.
    pub budget: u64,
    /// Coverage under which a read needs retrieval.
    pub floor: f64,
    /// Similarity of two questions that are the same.
    pub reuse_threshold: f64,
    /// Whether raw text may be added.
    pub escalation: bool,
    /// What the coverage scorer answers.
    pub scorer: Option<f64>,
    /// Coverage from which the scorer is not asked.
    pub ceiling: f64,
    /// Header function.
    pub header: Option<HeaderHook>,
    /// Reranker.
    pub reranker: Option<RerankHook>,
    /// Most chunks of a widened build.
    pub widen: Option<usize>,
    /// Texts of the whole source, as the fetcher gives them.
    pub fetched: Vec<String>,
    /// Strategy of reads that name none.
    pub strategy: String,
}

impl Settings {
    /// Reads the configuration. An argument that this host does not know is an error: a case that needs it
    /// cannot be judged.
    pub fn read(config: &Map<String, Value>) -> Result<Self, String> {
        let mut settings = Self {
            gate: None,
            budget: 1_000,
            floor: 0.4,
            reuse_threshold: 0.9,
            escalation: true,
            scorer: None,
            ceiling: 1.0,
            header: None,
            reranker: None,
            widen: None,
            fetched: Vec::new(),
            strategy: "context_first".into(),
        };
        for (name, value) in config {
            let number = || {
                let number = value.as_f64();
                number.ok_or_else(|| format!("{name} {value} is not a number"))
            };
            let text = || value.as_str().unwrap_or_default();
            let unknown = || format!("{name} {value} is not known");
            match name.as_str() {
                _ if value.is_null() => {}
                "serve_gate" => settings.gate = Some(number()?),
                "serve_budget" => settings.budget = value.as_u64().ok_or_else(unknown)?,
                "coverage_floor" => settings.floor = number()?,
                "coverage_ceiling" => settings.ceiling = number()?,
                "reuse_threshold" => settings.reuse_threshold = number()?,
                "enable_coverage_escalation" => {
                    settings.escalation = value.as_bool().ok_or_else(unknown)?;
                }
                "coverage_scorer" => {
                    settings.scorer = Some(last_number(text()).ok_or_else(unknown)?)
                }
                "pool_header" => settings.header = Some(header_hook(text()).ok_or_else(unknown)?),
                "reranker" => {
                    settings.reranker = Some(rerank_hook(text()).unwrap_or(RerankHook::Raises))
                }
                "widen_chunks" => {
                    settings.widen = Some(value.as_u64().ok_or_else(unknown)? as usize)
                }
                "source_fetcher" => settings.fetched = fetched(text()).ok_or_else(unknown)?,
                "strategy" => settings.strategy = text().to_owned(),
                // Which arithmetic is used: both ways of the peer are tried in any case.
                "fast" => {}
                "read_path" if text() == "pool" => {}
                _ if *value == Value::Bool(false) => {}
                _ => return Err(format!("not built yet: argument {name}")),
            }
        }
        Ok(settings)
    }
}

fn last_number(text: &str) -> Option<f64> {
    let parts = text.split(|ch: char| !(ch.is_ascii_digit() || ch == '.' || ch == '-'));
    parts.filter_map(|part| part.parse().ok()).next_back()
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('\'').skip(1).step_by(2).collect()
}

fn header_hook(text: &str) -> Option<HeaderHook> {
    if text.contains("raises") {
        return Some(HeaderHook::Raises);
    }
    let parts = quoted(text);
    match parts[..] {
        [before, after] if text.contains("unit.id") => {
            Some(HeaderHook::AroundId(before.into(), after.into()))
        }
        [before] if text.contains("+ unit.id") => {
            Some(HeaderHook::AroundId(before.into(), String::new()))
        }
        [fixed] => Some(HeaderHook::Fixed(fixed.into())),
        _ => None,
    }
}

fn rerank_hook(text: &str) -> Option<RerankHook> {
    if text.contains("raises") {
        Some(RerankHook::Raises)
    } else if ["bool", "string", "None"]
        .iter()
        .any(|kind| text.contains(kind))
    {
        Some(RerankHook::NoNumbers)
    } else if text.contains("-position") || text.contains("reverse") {
        Some(RerankHook::Reversed)
    } else if ["length", "few", "short", "empty"]
        .iter()
        .any(|kind| text.contains(kind))
    {
        Some(RerankHook::TooFew)
    } else if let Some((_, named)) = text.split_once("NaN for ") {
        Some(RerankHook::NanFor(
            named.trim_end_matches('>').trim().to_owned(),
        ))
    } else {
        text.contains("equal").then_some(RerankHook::Equal)
    }
}

/// Texts such as `5 chunks 'w0'..'w4'`.
fn fetched(text: &str) -> Option<Vec<String>> {
    let names = quoted(text);
    let [first, last] = names[..] else {
        return Some(names.into_iter().map(str::to_owned).collect());
    };
    if !text.contains("..") {
        return Some(vec![first.to_owned(), last.to_owned()]);
    }
    let stem = first.trim_end_matches(|ch: char| ch.is_ascii_digit());
    let from: usize = first[stem.len()..].parse().ok()?;
    let to: usize = last.strip_prefix(stem)?.parse().ok()?;
    Some((from..=to).map(|n| format!("{stem}{n}")).collect())
}

/// Applies a note such as `retriever now returns nothing` or `retriever default now returns doc:a / 'text'`.
/// Other notes change nothing.
pub fn apply_note(note: &str, retriever: &mut Retriever) {
    let Some((subject, answer)) = note.split_once(" now returns ") else {
        return;
    };
    if !subject.starts_with("retriever") {
        return;
    }
    let chunks = match answer.trim() {
        "nothing" | "[]" => Vec::new(),
        listed => {
            let pieces: Vec<&str> = listed.split('\'').collect();
            pieces
                .chunks_exact(2)
                .map(|piece| Chunk {
                    artifact_id: piece[0]
                        .trim_matches(|ch: char| {
                            ch.is_whitespace() || matches!(ch, '/' | ',' | ';')
                        })
                        .trim_start_matches("and ")
                        .trim()
                        .to_owned(),
                    text: piece[1].to_owned(),
                    ..Chunk::default()
                })
                .collect()
        }
    };
    if !subject.contains("default") {
        retriever.by_query.clear();
    }
    retriever.default = chunks;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read() {
        assert_eq!(
            header_hook("<callable: returns '[H ' + unit.id + ']'>"),
            Some(HeaderHook::AroundId("[H ".into(), "]".into()))
        );
        assert_eq!(
            header_hook("<callable: returns ''>"),
            Some(HeaderHook::Fixed(String::new()))
        );
        assert_eq!(header_hook("<callable: raises>"), Some(HeaderHook::Raises));
        assert_eq!(
            rerank_hook("<all equal, NaN for claim 00>"),
            Some(RerankHook::NanFor("claim 00".into()))
        );
        assert_eq!(
            rerank_hook("<score = -position>"),
            Some(RerankHook::Reversed)
        );
        assert_eq!(rerank_hook("<score = sum of bytes>"), None);
        assert_eq!(last_number("<coverage_scorer -> 0.05>"), Some(0.05));
        let texts = fetched("<callable(artifact_id) -> 5 chunks 'w0'..'w2' of that artifact>");
        assert_eq!(texts, Some(vec!["w0".into(), "w1".into(), "w2".into()]));
    }

    #[test]
    fn notes_change_retrieval() {
        let mut retriever = Retriever {
            by_query: Default::default(),
            default: Vec::new(),
        };
        let mut texts = |note| {
            apply_note(note, &mut retriever);
            let texts = retriever.default.iter();
            let texts: Vec<String> = texts
                .map(|c| format!("{} {}", c.artifact_id, c.text))
                .collect();
            texts
        };
        let fresh = "retriever default now returns doc:a / 'fresh body'";
        assert_eq!(texts(fresh), ["doc:a fresh body"]);
        assert_eq!(
            texts("synthesizer now returns 'prose'"),
            ["doc:a fresh body"]
        );
        assert_eq!(texts("a remark"), ["doc:a fresh body"]);
        let two = "retriever now returns doc:a / 'one', doc:b / 'two'";
        assert_eq!(texts(two), ["doc:a one", "doc:b two"]);
        assert!(texts("retriever now returns nothing").is_empty());
    }
}
