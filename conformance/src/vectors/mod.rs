//! The golden vector files: how they are generated, frozen and checked.
//!
//! What a file expects is written by hand in its generator where it follows from a rule, and computed
//! where it is a digest; the digests of traces are recomputed in Python by `python/verify_root.py`.

mod alone;
mod broken;
mod broken_answers;
mod canon;
mod hash;
mod offline;
mod plans;
mod rank;
mod roots;
mod store;
mod suite;
mod tamper;
mod text;

use cortex_core::trace::Trace;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::library::Library;

/// Digest (plain BLAKE3, as `b3sum` prints it) of every vector file. A released file never changes: a
/// new rule takes a new version and a new file.
pub const FROZEN: [(&str, &str); 15] = [
    (
        "canon/v1/accept.json",
        "6a77dcbd170490b1d4f84093030b9a3bc998ba6acfe9aeed36f6abaa355823ff",
    ),
    (
        "canon/v1/reject.json",
        "10250bad52eab4fdb56cd9857a4973ba3fd48c6312f04dd67bc84938efdc5436",
    ),
    (
        "hash/v1/digest.json",
        "dba7ed2c2df638d3bdb93085be034a07ab836306c1f18dc48f7b563c80f9c6bb",
    ),
    (
        "hash/v1/structure.json",
        "94a3e1439f84b2cb755379da2ac64e1071b7e038d679d85a67228f560f5953ae",
    ),
    (
        "trace/v1/roots.json",
        "823223d82cee2f689c7218ffe0dfcc37252e2f1f7971c0ee0d9ac5b907ffcbe2",
    ),
    (
        "trace/v1/alone.json",
        "1c060c34354a4dcd0c4ed12cd343bd788e8f6fb8b7e6976fbc041fd38b14c20d",
    ),
    (
        "trace/v1/tamper.json",
        "c30e76e7d4a4dc4bee6cf3703a9c3fca374a73514232aea3b6c55253e9015316",
    ),
    (
        "trace/v1/store.json",
        "da890afd2a0de4229752473cb51da84c31304debfcb85d46eaa1c6a0dd0b4380",
    ),
    (
        "trace/v1/offline.json",
        "3e0f46bc64e4f95b7a6ff13a8c7ca9bd6089d1f4d177affc7a56c0ceda8ecbcc",
    ),
    (
        "json/v1/suite.json",
        "a4b1bbd9520227305e229bc6426dc29b8fa72d03b780831e4b05be4cce48ec39",
    ),
    (
        "analyzer/v1/tokens.json",
        "3a8f7af333fdf6446c5196744df18095e505ad74f1cc3c2968b909ea34f87b7f",
    ),
    (
        "excerpt/v1/ranges.json",
        "8556e42e77327584dc761b6fda397a76432527d12e74074c7a9f862c9e435a62",
    ),
    (
        "quote/v1/ranges.json",
        "bb79ef7bf9c95a2f6261e00d0a28d4335b0430e7314c902136a90e07afefbc40",
    ),
    (
        "ground/v1/figures.json",
        "941257e3d0aa156cafdf009df871b99434d1205f2f6d5145145b089414e606f5",
    ),
    (
        "ranking/v1/scores.json",
        "b4c3160f1c15e1f5388861a3f3294cb113efcf8a93770e165487480ed55d8fb9",
    ),
];

/// The files as they were when this program was built.
pub const EMBEDDED: [(&str, &str); 15] = [
    (
        "canon/v1/accept.json",
        include_str!("../../canon/v1/accept.json"),
    ),
    (
        "canon/v1/reject.json",
        include_str!("../../canon/v1/reject.json"),
    ),
    (
        "hash/v1/digest.json",
        include_str!("../../hash/v1/digest.json"),
    ),
    (
        "hash/v1/structure.json",
        include_str!("../../hash/v1/structure.json"),
    ),
    (
        "trace/v1/roots.json",
        include_str!("../../trace/v1/roots.json"),
    ),
    (
        "trace/v1/alone.json",
        include_str!("../../trace/v1/alone.json"),
    ),
    (
        "trace/v1/tamper.json",
        include_str!("../../trace/v1/tamper.json"),
    ),
    (
        "trace/v1/store.json",
        include_str!("../../trace/v1/store.json"),
    ),
    (
        "trace/v1/offline.json",
        include_str!("../../trace/v1/offline.json"),
    ),
    (
        "json/v1/suite.json",
        include_str!("../../json/v1/suite.json"),
    ),
    (
        "analyzer/v1/tokens.json",
        include_str!("../../analyzer/v1/tokens.json"),
    ),
    (
        "excerpt/v1/ranges.json",
        include_str!("../../excerpt/v1/ranges.json"),
    ),
    (
        "quote/v1/ranges.json",
        include_str!("../../quote/v1/ranges.json"),
    ),
    (
        "ground/v1/figures.json",
        include_str!("../../ground/v1/figures.json"),
    ),
    (
        "ranking/v1/scores.json",
        include_str!("../../ranking/v1/scores.json"),
    ),
];

/// The file whose inputs are not ours.
const SUITE: &str = "json/v1/suite.json";

/// The bytes of each input of a case of canonical JSON, for other readers of the same files.
///
/// # Panics
/// On a case of another layout.
pub fn canon_input(case: &serde_json::Value) -> Vec<Vec<u8>> {
    let inputs = case.get("input").into_iter();
    let inputs = inputs.map(|input| serde_json::from_value(input.clone()).expect("pieces"));
    inputs
        .map(|pieces: Vec<canon::Piece>| canon::bytes(&pieces).expect("an input that can be made"))
        .collect()
}

/// A vector file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<C> {
    /// What the file is about, and the rules by which its inputs are made.
    comment: String,
    /// Version of the file's layout and of the rules under test.
    version: u32,
    /// Cases, each with an id of its own.
    cases: Vec<C>,
}

/// A case of a file.
trait Case: Serialize + DeserializeOwned {
    /// Name of the case within its file.
    fn id(&self) -> &str;

    /// Runs the case.
    ///
    /// # Errors
    /// What differs from what the case expects.
    fn check(&self) -> Result<(), String>;
}

/// What running a file gave.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Cases that gave what they expect.
    pub passed: usize,
    /// Cases that did not, as `file: case: reason`; a file that cannot be read counts once.
    pub failed: Vec<String>,
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
    }

    /// A file that could not be run at all.
    pub fn broken(path: &str, reason: impl std::fmt::Display) -> Self {
        Self {
            passed: 0,
            failed: vec![format!("{path}: {reason}")],
        }
    }
}

/// The text of every vector file, by path.
pub fn generate() -> Vec<(&'static str, String)> {
    vec![
        ("canon/v1/accept.json", written(&canon::accepted())),
        ("canon/v1/reject.json", written(&canon::rejected())),
        ("hash/v1/digest.json", written(&hash::digests())),
        ("hash/v1/structure.json", written(&hash::structures())),
        ("trace/v1/roots.json", written(&roots::traces())),
        ("trace/v1/alone.json", written(&alone::traces())),
        ("trace/v1/tamper.json", written(&tamper::traces())),
        ("trace/v1/store.json", written(&store::traces())),
        ("trace/v1/offline.json", written(&offline::traces())),
        ("json/v1/suite.json", written(&suite::cases())),
        ("analyzer/v1/tokens.json", written(&text::analyzed())),
        ("excerpt/v1/ranges.json", written(&text::excerpts())),
        ("quote/v1/ranges.json", written(&text::quotes())),
        ("ground/v1/figures.json", written(&text::figures())),
        ("ranking/v1/scores.json", written(&rank::rankings())),
    ]
}

/// Runs all cases of the vector file at `path` (one of [`FROZEN`]), given its text.
pub fn check(path: &str, text: &str) -> Tally {
    match path {
        "canon/v1/accept.json" => run::<canon::Accept>(path, text),
        "canon/v1/reject.json" => run::<canon::Reject>(path, text),
        "hash/v1/digest.json" => run::<hash::Digest>(path, text),
        "hash/v1/structure.json" => run::<hash::Structure>(path, text),
        "trace/v1/roots.json" => run::<roots::Rooted>(path, text),
        "trace/v1/alone.json" => run::<alone::Alone>(path, text),
        "trace/v1/tamper.json" => run::<tamper::Tampered>(path, text),
        "trace/v1/store.json" => run::<store::Stored>(path, text),
        "trace/v1/offline.json" => run::<offline::Offline>(path, text),
        "json/v1/suite.json" => run::<suite::Suite>(path, text),
        "analyzer/v1/tokens.json" => run::<text::Text>(path, text),
        "excerpt/v1/ranges.json" => run::<text::Text>(path, text),
        "quote/v1/ranges.json" => run::<text::Text>(path, text),
        "ground/v1/figures.json" => run::<text::Text>(path, text),
        "ranking/v1/scores.json" => run::<rank::Ranked>(path, text),
        _ => Tally::broken(path, "not a vector file of this version"),
    }
}

/// Every sound trace of `roots.json` with its name and the corpus that can replay it.
pub fn sound() -> impl Iterator<Item = (&'static str, Library, Trace)> {
    let all = roots::SOUND.iter();
    all.map(|sound| (sound.id, sound.library.clone(), sound.trace.clone()))
}

fn run<C: Case>(path: &str, text: &str) -> Tally {
    let file: File<C> = match serde_json::from_str(text) {
        Ok(file) => file,
        Err(error) => return Tally::broken(path, error),
    };
    if file.cases.is_empty() {
        return Tally::broken(path, "no cases");
    }
    let mut tally = Tally::default();
    for case in &file.cases {
        match case.check() {
            Ok(()) => tally.passed += 1,
            Err(reason) => tally
                .failed
                .push(format!("{path}: {}: {reason}", case.id())),
        }
    }
    tally
}

/// A case by its id, with what differs from what it expects.
pub type Judged = (String, Result<(), String>);

/// Runs a file of vectors of any layout of this version, whatever it is called. Gives each case with what differs.
///
/// # Errors
/// A file that has none of the layouts.
pub fn check_any(text: &str) -> Result<Vec<Judged>, String> {
    type Reader = fn(&str) -> Option<Vec<Judged>>;
    let readers: [Reader; 12] = [
        cases_of::<canon::Accept>,
        cases_of::<canon::Reject>,
        cases_of::<hash::Digest>,
        cases_of::<hash::Structure>,
        cases_of::<roots::Rooted>,
        cases_of::<alone::Alone>,
        cases_of::<tamper::Tampered>,
        cases_of::<store::Stored>,
        cases_of::<offline::Offline>,
        cases_of::<suite::Suite>,
        cases_of::<text::Text>,
        cases_of::<rank::Ranked>,
    ];
    let found = readers.into_iter().find_map(|reader| reader(text));
    found.ok_or_else(|| "no layout of this version fits its cases".into())
}

fn cases_of<C: Case>(text: &str) -> Option<Vec<Judged>> {
    let file: File<C> = serde_json::from_str(text).ok()?;
    let cases = file.cases.iter();
    let cases: Vec<_> = cases
        .map(|case| (case.id().to_owned(), case.check()))
        .collect();
    (!cases.is_empty()).then_some(cases)
}

/// The file's text: one case a line, so that a difference shows the case.
fn written<C: Serialize>(file: &File<C>) -> String {
    let cases: Vec<String> = file.cases.iter().map(json).collect();
    format!(
        "{{\"comment\":{},\n\"version\":{},\n\"cases\":[\n{}\n]}}\n",
        json(&file.comment),
        file.version,
        cases.join(",\n")
    )
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain structures have a JSON text")
}

/// `Ok` if equal, else what was expected and what was found.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:?}, found {found:?}"))
}

/// Plain BLAKE3 of a file's text in hexadecimal, as `b3sum` prints it.
pub fn file_digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
