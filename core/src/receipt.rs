//! The receipt of one retrieval: what was asked, with which parameters, at which state, and the
//! candidates in order. From a receipt the retrieval can be run again and compared bit for bit.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::canon::{self, CanonError, MAX_INTEGER};
use crate::fusion;
use crate::hash::{Context, Hash, Target, structure_hash};

/// Most entries of any list in a receipt: candidates, nominees, unsealed change ids.
pub const MAX_LIST: usize = 10_000;
/// Most items that one retrieval may consider to find those that its caller may see.
pub const MAX_CONSIDERED: u32 = 1_000_000;
/// Longest algorithm or space name, in bytes.
pub const MAX_NAME: usize = 128;
/// Longest namespace, in bytes.
pub const MAX_NAMESPACE: usize = 512;
/// Longest name of a source, in bytes; the widest key that PostgreSQL can index, written with
/// escapes, stays below it.
pub const MAX_ARTIFACT: usize = 32 << 10;
/// Most dimensions of a query vector, the limit of pgvector's `vector` type.
pub const MAX_DIMENSIONS: u32 = 16_000;

/// Layout of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiptVersion {
    /// The layout of this module.
    #[serde(rename = "receipt/1")]
    V1,
}

/// One way of finding candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// By words.
    Lexical,
    /// By embedding.
    Vector,
}

/// Who proposed the candidates of the vector arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nominator {
    /// There was no vector arm.
    None,
    /// A scan of the whole scope; replay repeats it.
    Exact,
    /// The lexical arm: the vector arm only scored what it had found, to put it into another order. Replay
    /// repeats it.
    Lexical,
    /// An approximate index; replay takes its nominees as given and recomputes the rest.
    Approximate,
}

/// Whether more items matched than the receipt lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// Everything that matched was considered.
    None,
    /// The list was cut at `k`.
    Cap,
}

/// The embedding space of the vector arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// Id of the space in its database.
    pub id: i64,
    /// Digest of model, revision, dimensions, normalisation and prefix.
    pub digest: String,
    /// Dimensions of its vectors.
    pub dims: u32,
    /// Name of the rule that made integers of the vectors, as in `cortex-quant/1`.
    pub quantiser: String,
}

/// Parameters of the retrieval; all of them enter the scores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// Best candidates to consider; those withheld from the caller count.
    pub k: u32,
    /// Candidates taken from each arm before they are fused.
    pub depth: u32,
    /// BM25's k1, in thousandths.
    pub k1_milli: u32,
    /// BM25's b, in thousandths.
    pub b_milli: u32,
    /// Constant of reciprocal rank fusion.
    pub rrf_k: u32,
}

/// A state of a database: the changes that were visible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// All changes numbered up to this position of the ledger.
    pub seq: i64,
    /// Ids of further visible changes without a number yet, ascending.
    pub extra: Vec<i64>,
}

/// Corpus statistics that the scores used, as of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stats {
    /// Items in scope.
    pub items: u64,
    /// Terms in them, repeats counted.
    pub term_total: u64,
}

/// One retrieved item. Ranks start at 1 and count within the arm before anything was withheld.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Id of the chunk or claim.
    pub item: i64,
    /// Stable name of its source.
    pub artifact: String,
    /// Id of its source version.
    pub version: i64,
    /// Leaf hash of the item (see [`crate::hash::Leaf`]).
    pub leaf: Hash,
    /// The score that orders the list; higher is better, equal scores go by ascending item.
    pub score: i64,
    /// Rank in the lexical arm, if it was found there.
    pub lexical_rank: Option<u32>,
    /// Rank in the vector arm, if it was found there.
    pub vector_rank: Option<u32>,
    /// Score in the lexical arm; 0 without a rank.
    pub lexical: i64,
    /// Score in the vector arm; 0 without a rank.
    pub vector: i64,
}

/// What one retrieval did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// Layout.
    pub v: ReceiptVersion,
    /// Namespace that was searched.
    pub namespace: String,
    /// Kind of the items.
    pub target: Target,
    /// Commitment to the query text.
    pub query: Hash,
    /// Name of the analyzer, as in `cortex-text/1`.
    pub analyzer: String,
    /// Name of the ranker.
    pub ranker: String,
    /// Name of the fusion rule.
    pub fusion: String,
    /// Arms that ran: lexical, vector, or both in this order.
    pub arms: Vec<Arm>,
    /// Embedding space; null without a vector arm.
    pub space: Option<Space>,
    /// Quantised query vector: its 16-bit integers, least byte first, as lower-case hexadecimal;
    /// null without a vector arm.
    pub query_vector: Option<String>,
    /// Parameters.
    pub params: Params,
    /// State at which the retrieval ran.
    pub state: State,
    /// Corpus statistics at that state.
    pub stats: Stats,
    /// Who proposed the candidates of the vector arm.
    pub nominator: Nominator,
    /// Item ids in the order an approximate index gave them; empty otherwise.
    pub nominees: Vec<i64>,
    /// Bindings whose table the caller may not SELECT from, ascending: their items were out of scope.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub barred: Vec<i64>,
    /// Items of the scope that matched at all.
    pub total_matched: u64,
    /// Whether more matched than were considered.
    pub cut: Cut,
    /// Candidates that this caller may not see and that were left out of the list.
    pub masked: u32,
    /// The candidates, best first.
    pub candidates: Vec<Candidate>,
}

/// A rule of a structure that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: expected {expected}, found {found}")]
pub struct Violation {
    /// Path of the field, as in `rounds[0].receipt.params.k`.
    pub at: String,
    /// What the rule asks for.
    pub expected: String,
    /// What stands there.
    pub found: String,
}

/// Fails with a [`Violation`] unless `holds`.
pub(crate) fn require(
    holds: bool,
    at: impl Into<String>,
    expected: impl ToString,
    found: impl ToString,
) -> Result<(), Violation> {
    if holds {
        return Ok(());
    }
    Err(Violation {
        at: at.into(),
        expected: expected.to_string(),
        found: found.to_string(),
    })
}

impl Violation {
    /// The same violation seen from the structure that holds this one at `prefix`.
    pub(crate) fn within(mut self, prefix: &str) -> Self {
        self.at = format!("{prefix}.{}", self.at);
        self
    }
}

impl Receipt {
    /// The canonical text.
    ///
    /// # Errors
    /// Where a number is outside ±(2^53 - 1).
    pub fn to_text(&self) -> Result<String, CanonError> {
        canon::to_text(self)
    }

    /// Reads a receipt from its canonical text and checks its rules.
    ///
    /// # Errors
    /// A text that is not canonical or not a receipt, or a rule that does not hold.
    pub fn from_text(text: &str) -> Result<Self, ReceiptError> {
        let receipt: Self = canon::from_text(text)?;
        receipt.check()?;
        Ok(receipt)
    }

    /// The root of the receipt.
    ///
    /// # Errors
    /// As [`Receipt::to_text`].
    pub fn root(&self) -> Result<Hash, CanonError> {
        structure_hash(Context::Receipt, self)
    }

    /// How many of the best candidates were considered: those listed and those withheld.
    pub fn considered(&self) -> usize {
        self.candidates.len() + self.masked as usize
    }

    /// Checks the rules that a receipt alone must satisfy.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_names()?;
        self.check_arms()?;
        self.check_params()?;
        check_state(&self.state, "state")?;
        self.check_counts()?;
        self.check_candidates()
    }

    fn check_names(&self) -> Result<(), Violation> {
        check_namespace(&self.namespace, "namespace")?;
        check_name(&self.analyzer, "analyzer")?;
        check_name(&self.ranker, "ranker")?;
        check_name(&self.fusion, "fusion")
    }

    fn check_arms(&self) -> Result<(), Violation> {
        let known = matches!(
            self.arms[..],
            [Arm::Lexical] | [Arm::Vector] | [Arm::Lexical, Arm::Vector]
        );
        let expected = "lexical, vector, or lexical and vector";
        require(known, "arms", expected, format!("{:?}", self.arms))?;

        let vector = self.arms.contains(&Arm::Vector);
        let when = if vector {
            "a value, as the vector arm ran"
        } else {
            "null, as no vector arm ran"
        };
        require(
            self.space.is_some() == vector,
            "space",
            when,
            presence(&self.space),
        )?;
        let given = presence(&self.query_vector);
        require(
            self.query_vector.is_some() == vector,
            "query_vector",
            when,
            given,
        )?;
        if let (Some(space), Some(digits)) = (&self.space, &self.query_vector) {
            let in_range = (1..=MAX_DIMENSIONS).contains(&space.dims);
            let expected = format!("1 to {MAX_DIMENSIONS}");
            require(in_range, "space.dims", expected, space.dims)?;
            let short = !space.digest.is_empty() && space.digest.len() <= MAX_NAME;
            let expected = format!("1 to {MAX_NAME} bytes");
            require(short, "space.digest", expected, space.digest.len())?;
            check_name(&space.quantiser, "space.quantiser")?;
            let hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            let fits = digits.len() as u64 == 4 * u64::from(space.dims);
            let expected = format!(
                "{} lower-case hexadecimal digits",
                4 * u64::from(space.dims)
            );
            let found = format!("{} bytes", digits.len());
            require(
                fits && digits.bytes().all(hex),
                "query_vector",
                expected,
                found,
            )?;
        }

        let some = self.nominator != Nominator::None;
        let found = format!("{:?}", self.nominator);
        require(
            some == vector,
            "nominator",
            "one exactly where the vector arm ran",
            found,
        )?;
        let reranked = self.nominator == Nominator::Lexical;
        let both = self.arms == [Arm::Lexical, Arm::Vector];
        let expected = "lexical and vector, as one reordered the other";
        let found = format!("{:?}", self.arms);
        require(!reranked || both, "arms", expected, found)?;
        let same = reranked == (self.fusion == fusion::RERANK);
        let expected = if reranked {
            fusion::RERANK
        } else {
            "a fusion of independent arms"
        };
        require(same, "fusion", expected, &self.fusion)?;
        let may_list = self.nominator == Nominator::Approximate || self.nominees.is_empty();
        let found = self.nominees.len();
        require(
            may_list,
            "nominees",
            "none without an approximate nominator",
            found,
        )?;
        check_length(self.barred.len(), "barred")?;
        check_distinct(&self.barred, "barred")?;
        check_length(self.nominees.len(), "nominees")?;
        check_distinct(&self.nominees, "nominees")
    }

    fn check_params(&self) -> Result<(), Violation> {
        for (name, value, low, high) in [
            ("k", self.params.k, 1, MAX_CONSIDERED),
            ("depth", self.params.depth, 1, MAX_CONSIDERED),
            ("k1_milli", self.params.k1_milli, 0, 10_000),
            ("b_milli", self.params.b_milli, 0, 1_000),
            ("rrf_k", self.params.rrf_k, 1, 1_000_000),
        ] {
            let expected = format!("{low} to {high}");
            let at = format!("params.{name}");
            require((low..=high).contains(&value), at, expected, value)?;
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), Violation> {
        let considered = self.considered() as u64;
        check_length(self.candidates.len(), "candidates")?;
        let k = u64::from(self.params.k);
        require(
            considered <= k,
            "candidates",
            format!("at most k = {k}"),
            considered,
        )?;
        let matched = self.total_matched;
        let expected = format!("at least the {considered} considered");
        require(matched >= considered, "total_matched", expected, matched)?;
        let cut = if matched > considered {
            Cut::Cap
        } else {
            Cut::None
        };
        require(
            self.cut == cut,
            "cut",
            format!("{cut:?}"),
            format!("{:?}", self.cut),
        )
    }

    fn check_candidates(&self) -> Result<(), Violation> {
        let items: Vec<i64> = self
            .candidates
            .iter()
            .map(|candidate| candidate.item)
            .collect();
        check_distinct(&items, "candidates")?;
        let nominees: HashSet<i64> = self.nominees.iter().copied().collect();
        for (i, candidate) in self.candidates.iter().enumerate() {
            let result = self.check_candidate(candidate, &nominees);
            result.map_err(|violation| violation.within(&format!("candidates[{i}]")))?;
        }
        for (i, pair) in self.candidates.windows(2).enumerate() {
            let [a, b] = pair else { continue };
            let ordered = (b.score, a.item) < (a.score, b.item);
            let at = format!("candidates[{}].score", i + 1);
            let expected = format!(
                "below {} (or equal, with an item above {})",
                a.score, a.item
            );
            require(
                ordered,
                at,
                expected,
                format!("{} (item {})", b.score, b.item),
            )?;
        }
        Ok(())
    }

    fn check_candidate(
        &self,
        candidate: &Candidate,
        nominees: &HashSet<i64>,
    ) -> Result<(), Violation> {
        let artifact = &candidate.artifact;
        let fits = !artifact.is_empty() && artifact.len() <= MAX_ARTIFACT;
        let expected = format!("1 to {MAX_ARTIFACT} bytes");
        require(fits, "artifact", expected, artifact.len())?;
        for (name, arm, rank, score) in [
            (
                "lexical",
                Arm::Lexical,
                candidate.lexical_rank,
                candidate.lexical,
            ),
            (
                "vector",
                Arm::Vector,
                candidate.vector_rank,
                candidate.vector,
            ),
        ] {
            let at = format!("{name}_rank");
            let depth = self.params.depth;
            match rank {
                Some(rank) => {
                    let ran = self.arms.contains(&arm);
                    require(ran, at.clone(), "null, as this arm did not run", rank)?;
                    let in_range = (1..=depth).contains(&rank);
                    require(in_range, at, format!("1 to depth = {depth}"), rank)?;
                }
                None => require(score == 0, name, "0, as the arm gave no rank", score)?,
            }
        }
        let ranked = candidate.lexical_rank.is_some() || candidate.vector_rank.is_some();
        require(ranked, "lexical_rank", "a rank in at least one arm", "none")?;
        let found = self.nominator != Nominator::Lexical || candidate.lexical_rank.is_some();
        let expected = "a rank, as the lexical arm proposed every candidate";
        require(found, "lexical_rank", expected, "null")?;
        let nominated = self.nominator != Nominator::Approximate
            || candidate.vector_rank.is_none()
            || nominees.contains(&candidate.item);
        require(nominated, "item", "one of the nominees", candidate.item)
    }
}

/// A text that is not a valid receipt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// The text is not canonical or not a receipt.
    #[error(transparent)]
    Canon(#[from] CanonError),
    /// A rule of receipts does not hold.
    #[error(transparent)]
    Rule(#[from] Violation),
}

fn presence<T>(value: &Option<T>) -> &'static str {
    match value {
        Some(_) => "a value",
        None => "null",
    }
}

fn check_length(length: usize, at: &str) -> Result<(), Violation> {
    require(
        length <= MAX_LIST,
        at,
        format!("at most {MAX_LIST} entries"),
        length,
    )
}

/// Item ids that may appear once each.
pub(crate) fn check_distinct(items: &[i64], at: &str) -> Result<(), Violation> {
    let mut sorted = items.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => require(
            false,
            at,
            "each item once",
            format!("item {} twice", pair[0]),
        ),
        None => Ok(()),
    }
}

/// A name with a version, as in `cortex-text/1`: lower-case letters, digits, dots and hyphens on
/// both sides of one slash.
pub(crate) fn check_name(name: &str, at: &str) -> Result<(), Violation> {
    let part = |part: &str| {
        let allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
        !part.is_empty() && part.bytes().all(allowed)
    };
    let parts = name.split_once('/');
    let valid = name.len() <= MAX_NAME && parts.is_some_and(|(a, b)| part(a) && part(b));
    require(
        valid,
        at,
        "a name and a version, as in cortex-text/1",
        format!("{name:?}"),
    )
}

pub(crate) fn check_namespace(namespace: &str, at: &str) -> Result<(), Violation> {
    let fits = !namespace.is_empty() && namespace.len() <= MAX_NAMESPACE;
    let expected = format!("1 to {MAX_NAMESPACE} bytes");
    require(fits, at, expected, namespace.len())
}

pub(crate) fn check_state(state: &State, at: &str) -> Result<(), Violation> {
    let in_range = (0..=MAX_INTEGER).contains(&state.seq);
    require(in_range, format!("{at}.seq"), "0 or more", state.seq)?;
    let at = format!("{at}.extra");
    check_length(state.extra.len(), &at)?;
    match state.extra.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => require(
            false,
            at,
            "ascending ids",
            format!("{} before {}", pair[0], pair[1]),
        ),
        None => Ok(()),
    }
}
