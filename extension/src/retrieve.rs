//! Retrieval: which chunks or claims answer a query, in which order, at which state.
//!
//! One code path serves a read of now and the replay of a recorded state. Now, an item is visible iff its
//! version is not closed and its binding not held; at a state, the same is asked of the changes that the
//! state contains.

mod near;

use std::collections::HashMap;

use cortex_core::fusion::Fusion;
use cortex_core::hash::Target;
use cortex_core::phrase::Phrases;
use cortex_core::receipt::{self, Nominator, State, Stats};
use cortex_core::{fusion, lexical, posting};
use pgrx::datum::DatumWithOid;

use crate::db;
use crate::error::Fault;
use crate::held::{self, Held};
use crate::kept::{self, Access};
use crate::rights::Namespace;
use crate::rules::Rules;
use crate::sources;

/// Candidates an arm gives at first; more are fetched when too few of them may be shown. Where two arms are fused the
/// ranking depends on it.
pub const DEPTH: u32 = fusion::DEPTH;
/// The same for the vector arm alone, which pays for each.
pub const NEAR_DEPTH: u32 = 64;
/// Most candidates an arm gives at all.
pub const MAX_DEPTH: u32 = receipt::MAX_CONSIDERED;
/// Most unsealed changes that a recorded state may list.
pub const MAX_UNSEALED: usize = receipt::MAX_LIST;

/// When a retrieval looks.
#[derive(Clone, Copy)]
pub enum When<'a> {
    /// The snapshot of the calling query.
    Now,
    /// A recorded state.
    At(&'a State),
}

/// The vector arm's input.
pub struct QueryVector {
    /// Space of the stored vectors.
    pub space: i32,
    /// The query, quantised.
    pub components: Vec<i16>,
}

/// One retrieval to run.
pub struct Question<'a> {
    pub namespace: &'a Namespace,
    pub rules: Rules,
    pub target: Target,
    pub query: &'a str,
    pub lexical: bool,
    pub vector: Option<&'a QueryVector>,
    pub when: When<'a>,
    /// Bindings that are out of scope, because the caller may not SELECT from their tables.
    pub barred: &'a [i64],
    pub depth: u32,
    /// Items an approximate index once nominated: rescored instead of searched for.
    pub nominees: Option<&'a [i64]>,
}

/// One ranked item. Ranks start at 1 within the arm.
#[derive(Clone, Debug)]
pub struct Ranked {
    pub item: i64,
    pub score: i64,
    pub lexical_rank: Option<u32>,
    pub vector_rank: Option<u32>,
    pub lexical: i64,
    pub vector: i64,
}

/// What a retrieval found.
pub struct Found {
    pub ranked: Vec<Ranked>,
    pub stats: Stats,
    pub nominator: Nominator,
    pub nominees: Vec<i64>,
    /// Items that matched in the arm that matched more. By vector the whole scope matches, or the nominees
    /// where an index nominated. Of items whose text was not read for the query's phrases it is not known
    /// whether they match; they count.
    pub matched: u64,
    /// Whether an arm had more than `depth` items.
    pub cut: bool,
    /// How many items hold each term of the query, where the lexical arm ran.
    pub holding: HashMap<String, u64>,
}

/// The state of a namespace in the snapshot of the calling query.
pub struct Present {
    pub state: State,
    /// The calling transaction has changed the namespace: what it sees, nobody else can.
    pub uncommitted: bool,
    /// More unsealed changes than a state may list.
    pub unsealed_overflow: bool,
}

/// Reads the present state. Call it as the owner.
pub fn present(namespace: i32) -> Result<Present, Fault> {
    let found = kept::read_one(
        Access::Index,
        "SELECT coalesce((SELECT c.seq FROM cortex.change c WHERE c.namespace_id = $1 AND c.seq IS NOT NULL \
                           ORDER BY c.seq DESC LIMIT 1), 0), \
                ARRAY(SELECT c.id FROM cortex.change c WHERE c.namespace_id = $1 AND c.seq IS NULL ORDER BY c.id LIMIT $2), \
                EXISTS (SELECT FROM cortex.change c WHERE c.namespace_id = $1 AND c.seq IS NULL \
                           AND c.xact = pg_catalog.pg_current_xact_id_if_assigned() AND c.cluster = $3)",
        &[
            namespace.into(),
            (MAX_UNSEALED as i64 + 1).into(),
            sources::cluster().into(),
        ],
        |row| {
            Ok((
                row.must::<i64>(1)?,
                row.must::<Vec<i64>>(2)?,
                row.must::<bool>(3)?,
            ))
        },
    )?;
    let Some((seq, mut extra, uncommitted)) = found else {
        return Err(Fault::internal(
            "the state of a namespace has no row".into(),
        ));
    };
    let unsealed_overflow = extra.len() > MAX_UNSEALED;
    extra.truncate(MAX_UNSEALED);
    Ok(Present {
        state: State { seq, extra },
        uncommitted,
        unsealed_overflow,
    })
}

/// Runs one retrieval. Call it as the owner.
pub fn search(question: &Question) -> Result<Found, Fault> {
    let scope = Scope::load(question)?;
    let stats = scope.stats()?;
    let phrases = question.rules.phrases(question.query)?;
    // By vector too, only what holds the phrases counts, and the words find it.
    let by_words = !phrases.terms().is_empty();
    let mut holding = HashMap::new();
    let mut lexical = if question.lexical || by_words {
        scope.lexical(question.query, &phrases, &stats, &mut holding)?
    } else {
        Held::default()
    };
    let depth = question.depth as usize;
    let arm = match question.vector {
        Some(query) if question.rules.fusion == Fusion::Rerank => {
            let found = lexical.ranked.iter().take(depth).map(|(item, _)| *item);
            VectorArm {
                ranked: scope.rescore(query, &found.collect::<Vec<i64>>())?,
                nominator: Nominator::Lexical,
                nominees: Vec::new(),
                matched: 0,
            }
        }
        Some(query) if by_words => scope.vector_of(query, &lexical)?,
        Some(query) => {
            let arm = scope.vector(query, &stats)?;
            arm.holding(&phrases, question.target)?
        }
        None => VectorArm {
            ranked: Vec::new(),
            nominator: Nominator::None,
            nominees: Vec::new(),
            matched: 0,
        },
    };
    if !question.lexical {
        lexical = Held::default();
    }
    let unchecked = lexical.unchecked;
    let lexical = lexical.ranked;
    // An index that nominated all it was asked for has more.
    let nominated_all = arm.nominator == Nominator::Approximate && arm.nominees.len() >= depth;
    let cut = lexical.len() > depth || arm.matched > depth as u64 || nominated_all;
    let matched = (lexical.len() as u64 + unchecked).max(arm.matched);
    let lexical = &lexical[..lexical.len().min(depth)];
    let ranked = join(
        lexical,
        &arm.ranked,
        (question.lexical && question.vector.is_some()).then_some(question.rules.fusion),
    );
    Ok(Found {
        ranked,
        stats,
        nominator: arm.nominator,
        nominees: arm.nominees,
        matched,
        cut,
        holding,
    })
}

/// Puts the arms' lists together: one arm keeps its own scores, two are fused by rank.
fn join(lexical: &[(i64, i64)], vector: &[(i64, i64)], fusion: Option<Fusion>) -> Vec<Ranked> {
    let place = |list: &[(i64, i64)]| -> HashMap<i64, (u32, i64)> {
        list.iter()
            .zip(1u32..)
            .map(|((item, score), rank)| (*item, (rank, *score)))
            .collect()
    };
    let (by_word, by_vector) = (place(lexical), place(vector));
    let order: Vec<(i64, i64)> = match fusion {
        Some(fusion) => {
            let items =
                |list: &[(i64, i64)]| list.iter().map(|(item, _)| *item).collect::<Vec<_>>();
            fusion.fuse(&[&items(lexical), &items(vector)])
        }
        None => [lexical, vector].concat(),
    };
    order
        .into_iter()
        .map(|(item, score)| {
            let (word, near) = (by_word.get(&item), by_vector.get(&item));
            Ranked {
                item,
                score,
                lexical_rank: word.map(|(rank, _)| *rank),
                vector_rank: near.map(|(rank, _)| *rank),
                lexical: word.map_or(0, |(_, score)| *score),
                vector: near.map_or(0, |(_, score)| *score),
            }
        })
        .collect()
}

struct VectorArm {
    ranked: Vec<(i64, i64)>,
    nominator: Nominator,
    nominees: Vec<i64>,
    matched: u64,
}

impl VectorArm {
    /// Keeps what holds phrases that the lexical index does not know, as they are of stop words only.
    fn holding(mut self, phrases: &Phrases, target: Target) -> Result<Self, Fault> {
        if phrases.is_empty() {
            return Ok(self);
        }
        let before = self.ranked.len() as u64;
        let held = held::holding(phrases, target, self.ranked)?;
        let refused = before - held.unchecked - held.ranked.len() as u64;
        self.matched = self.matched.saturating_sub(refused);
        self.ranked = held.ranked;
        Ok(self)
    }
}

/// Which items a retrieval may find: namespace, kind, state, and the bindings that are out of it, being held at
/// that state or barred to the caller.
struct Scope<'a> {
    question: &'a Question<'a>,
    without: Vec<i32>,
}

impl<'a> Scope<'a> {
    fn load(question: &'a Question<'a>) -> Result<Self, Fault> {
        let sql = match question.when {
            When::Now => {
                "SELECT DISTINCT h.binding_id FROM cortex.hold h JOIN cortex.binding b ON b.id = h.binding_id \
                  WHERE b.namespace_id = $1 AND h.released_by IS NULL AND $2::int8 IS NULL AND $3::int8[] IS NULL"
            }
            When::At(_) => {
                "SELECT DISTINCT h.binding_id FROM cortex.hold h JOIN cortex.binding b ON b.id = h.binding_id \
                   JOIN cortex.change o ON o.id = h.opened_by LEFT JOIN cortex.change r ON r.id = h.released_by \
                  WHERE b.namespace_id = $1 AND (o.seq <= $2 OR o.id = ANY ($3)) \
                    AND NOT coalesce(r.seq <= $2 OR r.id = ANY ($3), false)"
            }
        };
        let mut args: Vec<DatumWithOid> = vec![question.namespace.id.into()];
        args.extend(state_args(question.when));
        let mut without = kept::read(Access::Index, sql, &args, |row| row.must::<i32>(1))?;
        // An id that is no binding's bars nothing.
        without.extend(
            question
                .barred
                .iter()
                .filter_map(|id| i32::try_from(*id).ok()),
        );
        Ok(Scope { question, without })
    }

    fn letter(&self) -> &'static str {
        match self.question.target {
            Target::Chunk => "k",
            Target::Claim => "c",
        }
    }

    /// FROM-items and conditions that keep the items of `alias` (with `version_id` and `added_by`) that are
    /// visible. Parameters: $1 namespace, $2 seq, $3 extra changes, $4 bindings out of scope.
    fn visible(&self, alias: &str) -> (String, String) {
        let within = "($4::int4[] = '{}' OR NOT EXISTS (SELECT FROM cortex.source s \
                     WHERE s.id = v.source_id AND s.binding_id = ANY ($4)))";
        match self.question.when {
            When::Now => (
                format!("JOIN cortex.source_version v ON v.id = {alias}.version_id"),
                format!(
                    "v.closed_by IS NULL AND $2::int8 IS NULL AND $3::int8[] IS NULL AND {within}"
                ),
            ),
            When::At(_) => (
                format!(
                    "JOIN cortex.source_version v ON v.id = {alias}.version_id \
                     JOIN cortex.change added ON added.id = {alias}.added_by \
                     LEFT JOIN cortex.change closing ON closing.id = v.closed_by"
                ),
                format!(
                    "(added.seq <= $2 OR added.id = ANY ($3)) \
                     AND NOT coalesce(closing.seq <= $2 OR closing.id = ANY ($3), false) AND {within}"
                ),
            ),
        }
    }

    fn args(&self) -> Vec<DatumWithOid<'a>> {
        let mut args: Vec<DatumWithOid> = vec![self.question.namespace.id.into()];
        args.extend(state_args(self.question.when));
        args.push(self.without.clone().into());
        args
    }

    /// Corpus statistics as of the last seal that the state contains.
    fn stats(&self) -> Result<Stats, Fault> {
        let seq = match self.question.when {
            When::Now => None,
            When::At(state) => Some(state.seq),
        };
        let (items, terms) = match self.question.target {
            Target::Chunk => ("chunk_count", "chunk_terms"),
            Target::Claim => ("claim_count", "claim_terms"),
        };
        let sql = format!(
            "SELECT s.{items}, s.{terms} FROM cortex.seal s \
              WHERE s.namespace_id = $1 AND s.seq <= coalesce($2, 9223372036854775807) ORDER BY s.seq DESC LIMIT 1"
        );
        let found = kept::read_one(
            Access::Index,
            &sql,
            &[self.question.namespace.id.into(), seq.into()],
            |row| Ok((row.must::<i64>(1)?, row.must::<i64>(2)?)),
        )?;
        let (items, term_total) = found.unwrap_or((0, 0));
        Ok(Stats {
            items: items.max(0) as u64,
            term_total: term_total.max(0) as u64,
        })
    }

    /// What holds a word of the query, and its phrases; in `holding`, how many items hold each word.
    fn lexical(
        &self,
        query: &str,
        phrases: &Phrases,
        stats: &Stats,
        holding: &mut HashMap<String, u64>,
    ) -> Result<Held, Fault> {
        let rules = self.question.rules;
        let mut terms = rules.analyzer.query_terms(query);
        for term in phrases.terms() {
            // A query may have more terms than are ranked.
            if !terms.contains(term) {
                terms.push(term.clone());
            }
        }
        if terms.is_empty() {
            return Ok(Held::default());
        }
        let (join, visible) = self.visible("p");
        let hits = match self.question.target {
            Target::Chunk => "chunk_hits",
            Target::Claim => "claim_hits",
        };
        let sql = format!(
            "SELECT p.term, p.base_item, p.{hits} FROM cortex.posting p {join} \
              WHERE p.namespace_id = $1 AND p.term = ANY ($5) AND p.{hits} IS NOT NULL AND {visible}"
        );
        let mut args = self.args();
        args.push(terms.clone().into());
        let mut lists: HashMap<String, Vec<lexical::Posting>> = HashMap::new();
        db::read(&sql, &args, |row| {
            let list = lists.entry(row.must::<String>(1)?).or_default();
            posting::unpack(row.must(2)?, row.must::<&[u8]>(3)?, |hit| {
                list.push(lexical::Posting {
                    item: hit.item,
                    tf: hit.tf,
                    len: hit.length,
                });
            })
            .map_err(|error| Fault::internal(format!("the lexical index is damaged: {error}")))
        })?;
        let mut lists: Vec<(&str, Vec<lexical::Posting>)> = terms
            .iter()
            .filter_map(|term| Some((term.as_str(), lists.remove(term)?)))
            .collect();
        for (_, postings) in &mut lists {
            postings.sort_unstable_by_key(|posting| posting.item);
        }
        holding.extend(
            lists
                .iter()
                .map(|(term, postings)| ((*term).to_owned(), postings.len() as u64)),
        );
        // Statistics are those of the last seal; what was added since can make a list longer than they say.
        let longest = lists
            .iter()
            .map(|(_, postings)| postings.len() as u64)
            .max()
            .unwrap_or(0);
        let stats = lexical::Stats {
            items: stats.items.max(longest),
            term_total: stats.term_total.max(1),
        };
        let ranked = lexical::rank(&lists, stats, rules.ranker.params())
            .map_err(|error| Fault::internal(format!("lexical ranking: {error}")))?;
        let ranked = held::with_all_words(phrases, &lists, ranked);
        held::holding(phrases, self.question.target, ranked)
    }

    /// The vector arm over the items that hold the query's phrases: few, so all of them are scored.
    fn vector_of(&self, query: &QueryVector, held: &Held) -> Result<VectorArm, Fault> {
        let mut ranked = self.rescore(query, &held.items())?;
        let matched = ranked.len() as u64 + held.unchecked;
        ranked.truncate(self.question.depth as usize);
        Ok(VectorArm {
            ranked,
            nominator: Nominator::Exact,
            nominees: Vec::new(),
            matched,
        })
    }
}

fn state_args<'a>(when: When<'_>) -> [DatumWithOid<'a>; 2] {
    match when {
        When::Now => [None::<i64>.into(), None::<Vec<i64>>.into()],
        When::At(state) => [state.seq.into(), state.extra.clone().into()],
    }
}
