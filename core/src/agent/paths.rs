//! Paths that a request names, and whether it asks to write to them. Rule `cortex-paths/1`.
//!
//! A path is a target if the nearest verb before it in its sentence asks for a file to be written and no word in
//! between makes it a source (`from`, `of`, `with` …). It may be overwritten if that verb is one of overwriting,
//! or if one of them points back at it (`… and overwrite it`). A verb that is negated asks for nothing.

use super::quoting::OwnWords;
use super::words::{is_word, words};

/// Name of the rule, as recorded where it decided.
pub const NAME: &str = "cortex-paths/1";

/// The longest path, in bytes.
pub const PATH_MAX_BYTES: usize = 1_024;

/// A path that may be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The path, normalised ([`normalised`]).
    pub path: String,
    /// It names a folder: new files in it are meant.
    pub folder: bool,
    /// What is there may be replaced.
    pub overwrite: bool,
}

/// What a request says about files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// Paths to write to, in the order of the text, each once.
    pub targets: Vec<Target>,
    /// Paths that are named, but not to write to.
    pub sources: Vec<String>,
    /// A verb of writing occurs that is not negated.
    pub writes: bool,
    /// A verb of overwriting occurs that is not negated.
    pub overwrites: bool,
}

/// One spelling of a path: `/` between parts, no `./` or `/` in front, no double slash. `..` stays, since whoever
/// opens files must refuse it.
pub fn normalised(path: &str) -> String {
    let path = path.trim().replace('\\', "/");
    let folder = path.ends_with('/');
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    let mut normal = parts.join("/");
    if folder && !normal.is_empty() {
        normal.push('/');
    }
    normal
}

/// Extensions that name a file and not a host.
pub(crate) fn is_file_extension(extension: &str) -> bool {
    const KNOWN: &[&str] = &[
        "txt", "md", "json", "csv", "py", "yaml", "yml", "log", "html", "htm", "xml", "js", "ts",
        "tsx", "jsx", "css", "sh", "bat", "ps1", "exe", "dll", "so", "bin", "rs", "go", "java",
        "c", "h", "cpp", "hpp", "rb", "php", "sql", "toml", "ini", "cfg", "conf", "env", "pdf",
        "doc", "docx", "xls", "xlsx", "ppt", "pptx", "odt", "rtf", "png", "jpg", "jpeg", "gif",
        "svg", "webp", "mp3", "mp4", "wav", "zip", "tar", "gz", "7z", "rar", "db", "sqlite",
        "parquet", "tsv", "jsonl", "ipynb", "tex", "bak", "tmp", "lock", "key", "pem",
    ];
    KNOWN.contains(&extension)
}

/// Whether a word is a path: a known extension, or a slash inside and an extension, or a folder's last slash.
fn is_path(word: &str) -> bool {
    if word.contains("://") || word.chars().nth(1_024).is_some() {
        return false;
    }
    let slashed = word.contains(['/', '\\']);
    let last = word.rsplit(['/', '\\']).next().unwrap_or("");
    if last.is_empty() {
        return slashed && word.chars().any(is_word);
    }
    let Some((stem, extension)) = last.rsplit_once('.') else {
        return false;
    };
    let short = (1..=5).contains(&extension.chars().count())
        && extension.chars().all(char::is_alphanumeric)
        && extension.chars().any(char::is_alphabetic);
    let known = is_file_extension(&extension.to_lowercase());
    // `.env` alone is not seen as a path: hidden files are refused by whoever opens files.
    short
        && if stem.is_empty() {
            slashed && known
        } else {
            slashed || known
        }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Write,
    Overwrite,
    /// Writes to what follows `to`, `into`, `as` or `in`, and reads the rest.
    Turn,
    Read,
}

fn verb(word: &str) -> Option<Verb> {
    const WRITE: &[&str] = &[
        "save",
        "saved",
        "saving",
        "store",
        "stored",
        "storing",
        "put",
        "write",
        "writing",
        "create",
        "creating",
        "make",
        "making",
        "generate",
        "generating",
        "export",
        "dump",
        "output",
        "add",
        "copy",
        "log",
        "record",
        "place",
        "call",
        "name",
        "speichere",
        "speicher",
        "speichern",
        "schreibe",
        "schreib",
        "erstelle",
        "lege",
        "enregistre",
        "enregistrez",
        "sauvegarde",
        "sauvegardez",
        "\u{e9}cris",
        "\u{e9}crivez",
        "cr\u{e9}e",
        "cr\u{e9}ez",
        "guarda",
        "guarde",
        "guardar",
        "escribe",
        "escriba",
        "crea",
        "cree",
        "salva",
        "salvalo",
        "scrivi",
    ];
    const OVERWRITE: &[&str] = &[
        "overwrite",
        "overwriting",
        "replace",
        "replacing",
        "update",
        "updating",
        "change",
        "changing",
        "edit",
        "editing",
        "modify",
        "modifying",
        "rewrite",
        "rewriting",
        "append",
        "appending",
        "\u{fc}berschreibe",
        "ersetze",
        "aktualisiere",
        "\u{e4}ndere",
        "remplace",
        "remplacez",
        "modifie",
        "modifiez",
        "reemplaza",
        "actualiza",
        "modifica",
        "sostituisci",
        "aggiorna",
    ];
    const TURN: &[&str] = &[
        "translate",
        "convert",
        "summarize",
        "summarise",
        "turn",
        "transform",
        "format",
        "extract",
    ];
    const READ: &[&str] = &[
        "read", "open", "show", "list", "look", "find", "compare", "count", "delete", "remove",
        "search", "check", "explain", "describe", "load", "import", "run", "execute", "use",
        "review", "analyze", "analyse", "print", "rename", "move", "index", "tell", "see", "parse",
        "fetch", "does", "is", "lies", "lis", "lee", "leggi",
    ];
    [
        (WRITE, Verb::Write),
        (OVERWRITE, Verb::Overwrite),
        (TURN, Verb::Turn),
        (READ, Verb::Read),
    ]
    .into_iter()
    .find(|(list, _)| list.contains(&word))
    .map(|(_, verb)| verb)
}

/// Makes what follows a source. `of` does not after a verb of overwriting.
const SOURCE: &[&str] = &[
    "from",
    "with",
    "by",
    "using",
    "about",
    "than",
    "like",
    "according",
    "of",
    "von",
    "aus",
    "mit",
    "depuis",
    "avec",
    "desde",
    "con",
];
/// Ends that again.
const TOWARDS: &[&str] = &[
    "to", "into", "as", "in", "nach", "als", "dans", "sous", "en", "como", "come", "onto",
];
const NEGATIONS: &[&str] = &[
    "not", "never", "without", "t", "dont", "nicht", "kein", "pas", "jamais", "nunca",
];
const BACKWARD: &[&str] = &[
    "it", "them", "this", "that", "existing", "any", "if", "old", "whatever", "file",
];

enum Item {
    Word(String),
    Path(String),
    /// The end of a sentence.
    End,
}

fn items(request: &OwnWords) -> Vec<Item> {
    let text = request.text();
    let mut items = Vec::new();
    let mut names = request.names().iter().peekable();
    let mut at = 0;
    for token in text.split(char::is_whitespace) {
        let range = at..at + token.len();
        at = range.end + text[range.end..].chars().next().map_or(0, char::len_utf8);
        while names.next_if(|name| name.end <= range.start).is_some() {}
        let quoted = names.peek().is_some_and(|name| name.start < range.end);
        let edge = |c: char| {
            matches!(
                c,
                ',' | ';'
                    | ':'
                    | '!'
                    | '?'
                    | '('
                    | ')'
                    | '['
                    | ']'
                    | '{'
                    | '}'
                    | '"'
                    | '\''
                    | '<'
                    | '>'
                    | '*'
            )
        };
        let bare = token
            .trim_matches(edge)
            .trim_end_matches('.')
            .trim_end_matches(edge);
        if is_path(bare) {
            items.push(Item::Path(normalised(bare)));
        } else if !quoted {
            items.extend(words(token).map(|(_, word)| Item::Word(word)));
        }
        if token
            .trim_end_matches([')', '"', '\''])
            .ends_with(['.', '!', '?'])
        {
            items.push(Item::End);
        }
    }
    items.push(Item::End);
    items
}

/// What the request says about files.
pub(crate) fn files(request: &OwnWords) -> Files {
    let items = items(request);
    let mut reader = Reader::default();
    for n in 0..items.len() {
        match &items[n] {
            Item::Word(word) => {
                let before = n.checked_sub(1).and_then(|n| items.get(n));
                let negated =
                    matches!(before, Some(Item::Word(word)) if NEGATIONS.contains(&word.as_str()));
                reader.word(word, negated, &items[n + 1..]);
            }
            Item::Path(path) => reader.path(path),
            Item::End => reader.end(),
        }
    }
    reader.files
}

#[derive(Default)]
struct Reader {
    files: Files,
    verb: Option<Verb>,
    source: bool,
    towards: bool,
    /// Paths in front of the sentence's first verb, after `in` or `to`.
    waiting: Vec<String>,
    last: Option<String>,
}

impl Reader {
    fn word(&mut self, word: &str, negated: bool, rest: &[Item]) {
        if let Some(verb) = verb(word) {
            let verb = if negated { Verb::Read } else { verb };
            self.files.writes |= matches!(verb, Verb::Write | Verb::Overwrite);
            self.files.overwrites |= verb == Verb::Overwrite;
            if matches!(verb, Verb::Write | Verb::Overwrite) {
                for path in std::mem::take(&mut self.waiting) {
                    self.target(&path, verb == Verb::Overwrite);
                }
            }
            self.waiting.clear();
            self.verb = Some(verb);
            self.source = false;
            self.towards = false;
            if verb == Verb::Overwrite
                && points_back(rest)
                && let Some(path) = self.last.clone()
            {
                self.target(&path, true);
            }
        } else if SOURCE.contains(&word)
            && !(word == "of" && self.verb == Some(Verb::Overwrite) && !self.source)
        {
            self.source = true;
            self.towards = false;
        } else if TOWARDS.contains(&word) {
            self.source = false;
            self.towards = true;
        } else if self.verb == Some(Verb::Turn)
            && self.towards
            && matches!(word, "file" | "csv" | "disk")
        {
            // `Convert the table to a csv file` asks for one without a verb of writing.
            self.files.writes = true;
        }
    }

    fn path(&mut self, path: &str) {
        let target = match self.verb {
            None => {
                if self.towards {
                    self.waiting.push(path.to_owned());
                }
                false
            }
            Some(Verb::Read) => false,
            Some(Verb::Turn) => self.towards,
            Some(Verb::Write | Verb::Overwrite) => !self.source,
        };
        if target {
            self.target(path, self.verb == Some(Verb::Overwrite));
        } else if !self.files.sources.iter().any(|source| source == path)
            && self.files.sources.len() < MAX_PATHS
        {
            self.files.sources.push(path.to_owned());
        }
    }

    fn target(&mut self, path: &str, overwrite: bool) {
        self.last = Some(path.to_owned());
        if let Some(target) = self
            .files
            .targets
            .iter_mut()
            .find(|target| target.path == path)
        {
            target.overwrite |= overwrite;
        } else if self.files.targets.len() < MAX_PATHS {
            self.files.targets.push(Target {
                path: path.to_owned(),
                folder: path.ends_with('/'),
                overwrite,
            });
        }
    }

    fn end(&mut self) {
        self.verb = None;
        self.source = false;
        self.towards = false;
        self.waiting.clear();
    }
}

/// Paths beyond this many are not granted.
pub const MAX_PATHS: usize = 64;

/// Whether a verb of overwriting speaks of what was named before it: nothing follows in its sentence, or a word
/// that points back does.
fn points_back(rest: &[Item]) -> bool {
    let is = |item: Option<&Item>, words: &[&str]| matches!(item, Some(Item::Word(word)) if words.contains(&word.as_str()));
    match rest.first() {
        None | Some(Item::End) => true,
        Some(Item::Path(_)) => false,
        first => {
            is(first, BACKWARD)
                || (is(first, &["the"])
                    && is(rest.get(1), &["file", "old", "existing"])
                    && !matches!(rest.get(2), Some(Item::Path(_))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(message: &str) -> Vec<(String, bool)> {
        files(&OwnWords::of(message))
            .targets
            .into_iter()
            .map(|target| (target.path, target.overwrite))
            .collect()
    }

    #[test]
    fn the_verb_before_a_path_says_what_may_happen_to_it() {
        let cases: &[(&str, &[(&str, bool)])] = &[
            ("Save the summary to notes.txt.", &[("notes.txt", false)]),
            ("Read notes.md and save it to fr.txt", &[("fr.txt", false)]),
            (
                "Write a summary of a.md and b.md to c.md",
                &[("c.md", false)],
            ),
            ("Convert a.csv to b.json", &[("b.json", false)]),
            ("Compare a.txt to b.txt", &[]),
            (
                "Create a file called \"todo.md\" with three tasks",
                &[("todo.md", false)],
            ),
            (
                "Replace notes.txt with the text of other.txt",
                &[("notes.txt", true)],
            ),
            ("Update the title of notes.md", &[("notes.md", true)]),
            (
                "Update a.md and save a copy to b.md",
                &[("a.md", true), ("b.md", false)],
            ),
            (
                "Save it to a.txt and overwrite it if it exists",
                &[("a.txt", true)],
            ),
            ("Save it to a.txt. Overwrite the file.", &[("a.txt", true)]),
            (
                "Save it to a.txt but do not overwrite it",
                &[("a.txt", false)],
            ),
            (
                "Save it to a.txt, then change the weather",
                &[("a.txt", false)],
            ),
            ("Don't save it to a.txt", &[]),
            ("Don't forget to save it to a.txt", &[("a.txt", false)]),
            ("In a.txt, write a poem", &[("a.txt", false)]),
            ("What is in a.txt?", &[]),
            (
                "Write to ./docs//x.md and ..\\up.txt",
                &[("docs/x.md", false), ("../up.txt", false)],
            ),
            ("Save them into reports/", &[("reports/", false)]),
            ("Speichere es in notes.txt", &[("notes.txt", false)]),
            ("Write about e.g. 3.14 and U.S. law", &[]),
        ];
        for (message, expected) in cases {
            let expected: Vec<(String, bool)> = expected
                .iter()
                .map(|(path, over)| ((*path).to_owned(), *over))
                .collect();
            assert_eq!(targets(message), expected, "{message}");
        }
    }

    #[test]
    fn a_file_can_be_asked_for_without_a_name() {
        for (message, asked) in [
            ("Save it", true),
            ("Convert the table to a csv file", true),
            ("Convert the csv file to prose", false),
            ("Don't save it", false),
            ("Which files are there?", false),
        ] {
            assert_eq!(files(&OwnWords::of(message)).writes, asked, "{message}");
        }
    }

    #[test]
    fn spellings_of_a_path_are_one() {
        for spelling in ["a/b.txt", "./a/b.txt", "/a/b.txt", "a\\b.txt", " a//b.txt "] {
            assert_eq!(normalised(spelling), "a/b.txt");
        }
        assert_eq!(normalised("../a"), "../a");
        assert_eq!(normalised("/"), "");
    }
}
