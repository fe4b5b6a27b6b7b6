//! From a ranked list to what this caller may be shown, with the receipt of how it came about.

use std::collections::{BTreeMap, HashMap};

use cortex_core::distinct::Distinct;
use cortex_core::fusion::{self, Fusion};
use cortex_core::hash::{Hash, Salt, Target, commit};
use cortex_core::receipt::{
    Arm, Candidate, Cut, MAX_CONSIDERED, MAX_LIST, Nominator, Params, Receipt, ReceiptVersion,
    Space, State,
};
use cortex_core::vector as quant;

use crate::chunk::key32;
use crate::error::Fault;
use crate::kept::{self, Access};
use crate::retrieve::{self, Found, Present, QueryVector, Question, Ranked, When};
use crate::rights::{self, Namespace, Owner};
use crate::rows::{self, Rows};
use crate::rules::Rules;
use crate::vector::VectorRef;

/// Candidates whose facts are fetched at first: mostly no more are needed.
const FIRST_DETAILS: usize = 96;
/// Longest query, in bytes.
pub const MAX_QUERY: usize = 64 << 10;

/// An item as it is served.
#[derive(Clone)]
pub struct Item {
    pub ranked: Ranked,
    pub artifact_id: String,
    pub version_id: i64,
    pub start_byte: i32,
    pub end_byte: i32,
    pub body: String,
    pub leaf: Hash,
    pub content: Hash,
    pub title: Option<String>,
    pub origin: Option<String>,
    pub dated: Option<String>,
    source: SourceOf,
}

/// What the read-time check of an item needs.
#[derive(Clone)]
struct SourceOf {
    binding_id: Option<i32>,
    key: Vec<String>,
    hash_key: [u8; 32],
}

/// Which items of a growing list say something that none before them says: near-duplicates fall out, by
/// `cortex-distinct/1`.
#[derive(Default)]
pub struct Unlike {
    distinct: Distinct,
    /// Of each item looked at, its id and whether it is kept.
    seen: Vec<(i64, bool)>,
}

impl Unlike {
    /// How many of `items` are kept. Items that were looked at before are not compared again.
    pub fn count(&mut self, items: &[Item]) -> usize {
        let same = |at: usize, id: i64| items.get(at).is_some_and(|item| item.ranked.item == id);
        // A deeper retrieval begins a new list, which may rank differently.
        if !self
            .seen
            .iter()
            .enumerate()
            .all(|(at, &(id, _))| same(at, id))
        {
            *self = Self::default();
        }
        for item in &items[self.seen.len()..] {
            let keep = self.distinct.add(&item.body).is_none();
            self.seen.push((item.ranked.item, keep));
        }
        self.seen.iter().filter(|(_, keep)| *keep).count()
    }

    /// The items that are kept.
    pub fn of(mut self, items: Vec<Item>) -> Vec<Item> {
        self.count(&items);
        items
            .into_iter()
            .zip(self.seen)
            .filter_map(|(item, (_, keep))| keep.then_some(item))
            .collect()
    }
}

/// A retrieval as the caller asked for it.
pub struct Request<'a> {
    pub query: &'a str,
    pub embedding: Option<&'a VectorRef>,
    pub namespace: &'a str,
    pub mode: &'a str,
    pub target: Target,
}

/// What a retrieval gave: the items shown, best first, and how it ran.
pub struct Served {
    pub namespace: Namespace,
    pub items: Vec<Item>,
    pub arms: Vec<Arm>,
    /// The question's vector, where the vector arm ran.
    pub vector: Option<QueryVector>,
    pub present: Present,
    /// Candidates that were looked at for `items`.
    pub considered: usize,
    /// How many items hold each term of the query, where the lexical arm ran.
    pub holding: HashMap<String, u64>,
    pub receipt: Receipt,
}

impl Served {
    /// The receipt as canonical text; `None` where it could not name its state, because more changes than a
    /// receipt may list wait for a number.
    pub fn receipt_text(&self) -> Result<Option<String>, Fault> {
        if self.present.unsealed_overflow {
            return Ok(None);
        }
        let text = self.receipt.to_text();
        Ok(Some(text.map_err(|error| {
            Fault::internal(format!("receipt: {error}"))
        })?))
    }
}

/// How a round of an ask differs from a read of now: it looks at the state and with the space of the ask.
pub struct Pinned<'a> {
    /// State of the ask.
    pub state: &'a State,
    /// Space of the ask.
    pub space: Option<i32>,
    /// The query, quantised for that space.
    pub components: Option<&'a [i16]>,
    /// Whether the vector arm only puts what the lexical arm found into another order.
    pub rerank: bool,
}

/// Retrieves until `enough` of the shown items says so, or nothing more matches. Items the caller may not
/// see are left out and counted; so are rows that are no longer what their version says.
pub fn serve(request: &Request, enough: impl Fn(&[Item]) -> bool) -> Result<Served, Fault> {
    serve_pinned(request, None, enough)
}

/// As [`serve`], at a state that was recorded before: a row that has changed since is withheld. While the state is
/// still the present one, the retrieval runs as one of now, and an index may nominate.
pub fn serve_pinned(
    request: &Request,
    pinned: Option<&Pinned>,
    enough: impl Fn(&[Item]) -> bool,
) -> Result<Served, Fault> {
    if request.query.len() > MAX_QUERY {
        return Err(Fault::limit(format!(
            "the query has {} bytes, the limit is {MAX_QUERY}",
            request.query.len()
        ))
        .hint("Ask with the question itself, not with a document."));
    }
    let owner = Owner::enter()?;
    let namespace = rights::readable(request.namespace, owner.caller())?;
    let present = retrieve::present(namespace.id)?;
    let plan = Plan::choose(request, &namespace, pinned)?;
    let when = match pinned {
        Some(pinned) if present.uncommitted || *pinned.state != present.state => {
            When::At(pinned.state)
        }
        _ => When::Now,
    };
    let state = pinned.map_or(&present.state, |pinned| pinned.state);
    let barred = barred(&namespace, owner.caller())?;

    let rules = match pinned {
        Some(pinned) if pinned.rerank && plan.vector.is_some() => Rules {
            fusion: Fusion::Rerank,
            ..Rules::CURRENT
        },
        _ => Rules::CURRENT,
    };

    let mut gate = Gate::new(&owner);
    let mut depth = if plan.arms == [Arm::Vector] {
        retrieve::NEAR_DEPTH
    } else {
        retrieve::DEPTH
    };
    loop {
        let question = Question {
            namespace: &namespace,
            rules,
            target: request.target,
            query: request.query,
            lexical: plan.arms.contains(&Arm::Lexical),
            vector: plan.vector.as_ref(),
            when,
            barred: &barred,
            depth,
            nominees: None,
        };
        let found = retrieve::search(&question)?;
        let (items, considered) = gate.walk(&found, request.target, &enough)?;
        let exhausted = considered == found.ranked.len();
        if exhausted && found.cut && depth < retrieve::MAX_DEPTH && !enough(&items) {
            depth = (depth * fusion::DEEPER).min(retrieve::MAX_DEPTH);
            continue;
        }
        let receipt = receipt(
            request, &namespace, &plan, state, &question, &found, &items, considered,
        )?;
        return Ok(Served {
            namespace,
            items,
            arms: plan.arms,
            vector: plan.vector,
            present,
            considered,
            holding: found.holding,
            receipt,
        });
    }
}

/// The bindings of a namespace whose tables `user` may not SELECT from at all. They are left out before anything is
/// ranked: what fills the list must not be rows that the caller could never see. Columns are checked for each row.
pub fn barred(namespace: &Namespace, user: pgrx::pg_sys::Oid) -> Result<Vec<i64>, Fault> {
    kept::read(
        Access::Index,
        "SELECT b.id FROM cortex.binding b WHERE b.namespace_id = $1 AND NOT coalesce(( \
             SELECT pg_catalog.has_schema_privilege($2, t.relnamespace, 'USAGE') \
                    AND (pg_catalog.has_table_privilege($2, t.oid, 'SELECT') \
                         OR pg_catalog.has_any_column_privilege($2, t.oid, 'SELECT')) \
               FROM pg_catalog.pg_class t WHERE t.oid = b.relation), false) ORDER BY b.id",
        &[namespace.id.into(), user.into()],
        |row| Ok(i64::from(row.must::<i32>(1)?)),
    )
}

/// Which arms run.
struct Plan {
    arms: Vec<Arm>,
    vector: Option<QueryVector>,
    space: Option<Space>,
}

impl Plan {
    fn choose(
        request: &Request,
        namespace: &Namespace,
        pinned: Option<&Pinned>,
    ) -> Result<Self, Fault> {
        let ready = pinned.and_then(|pinned| pinned.components);
        let space = pinned.map_or(namespace.space, |pinned| pinned.space);
        let (word, near) = match (request.mode, request.embedding.is_some() || ready.is_some()) {
            ("auto", given) => (true, given && space.is_some()),
            ("lexical", _) => (true, false),
            ("vector", true) => (false, true),
            ("hybrid", true) => (true, true),
            ("vector" | "hybrid", false) => {
                return Err(Fault::argument(format!(
                    "mode '{}' needs a query_embedding",
                    request.mode
                ))
                .hint("Pass one made by the namespace's model, or use mode 'lexical'."));
            }
            (other, _) => {
                return Err(Fault::argument(format!("unknown mode '{other}'"))
                    .hint("Modes are auto, lexical, vector and hybrid."));
            }
        };
        let mut plan = Plan {
            arms: Vec::new(),
            vector: None,
            space: None,
        };
        if word {
            plan.arms.push(Arm::Lexical);
        }
        if !near {
            return Ok(plan);
        }
        let Some(space) = space else {
            return Err(no_space(namespace));
        };
        let known = kept::read_one(
            Access::Index,
            "SELECT digest, dims FROM cortex.space WHERE id = $1",
            &[space.into()],
            |row| Ok((row.must::<String>(1)?, row.must::<i32>(2)?)),
        )?;
        let Some((digest, dims)) = known else {
            return Err(Fault::internal(format!(
                "embedding space {space} has no row"
            )));
        };
        let components = match (ready, request.embedding) {
            (Some(ready), _) => ready.to_vec(),
            (None, Some(embedding)) => crate::vector::quantise(embedding, dims)?,
            (None, None) => return Err(Fault::internal("a vector arm without a vector".into())),
        };
        plan.arms.push(Arm::Vector);
        plan.vector = Some(QueryVector { space, components });
        plan.space = Some(Space {
            id: i64::from(space),
            digest,
            dims: dims as u32,
            quantiser: quant::NAME.into(),
        });
        Ok(plan)
    }
}

/// A caller's vector, quantised for a space.
pub fn quantised(space: i32, embedding: &VectorRef) -> Result<Vec<i16>, Fault> {
    let dims = kept::read_one(
        Access::Index,
        "SELECT dims FROM cortex.space WHERE id = $1",
        &[space.into()],
        |row| row.must::<i32>(1),
    )?;
    let dims =
        dims.ok_or_else(|| Fault::internal(format!("embedding space {space} has no row")))?;
    crate::vector::quantise(embedding, dims)
}

/// The error of a namespace without vectors, where a vector is needed.
pub fn no_space(namespace: &Namespace) -> Fault {
    Fault::state(format!(
        "namespace \"{}\" has no embedding space",
        namespace.name
    ))
    .hint("Start the sidecar's worker, or call cortex_space_use.")
}

/// The read-time check: each candidate's row is looked up by its key under the caller's own rights and must
/// still have the content that its version recorded. What does not pass is left out.
struct Gate<'a> {
    owner: &'a Owner,
    tables: HashMap<i32, Option<Rows>>,
    verdicts: HashMap<i64, bool>,
}

impl<'a> Gate<'a> {
    fn new(owner: &'a Owner) -> Self {
        Gate {
            owner,
            tables: HashMap::new(),
            verdicts: HashMap::new(),
        }
    }

    /// Walks the list from the top in small batches until `enough`; returns the items shown and how many
    /// candidates were considered for them.
    fn walk(
        &mut self,
        found: &Found,
        target: Target,
        enough: &impl Fn(&[Item]) -> bool,
    ) -> Result<(Vec<Item>, usize), Fault> {
        let mut shown = Vec::new();
        let mut considered = 0;
        let mut batch = 16;
        // Two arms together can rank more than a receipt may say were considered.
        let ranked = &found.ranked[..found.ranked.len().min(MAX_CONSIDERED as usize)];
        let enough = |shown: &[Item]| shown.len() >= MAX_LIST || enough(shown);
        let (first, rest) = ranked.split_at(ranked.len().min(FIRST_DETAILS));
        for part in first.chunks(FIRST_DETAILS).chain(rest.chunks(512)) {
            let items = details(part, target)?;
            let mut at = 0;
            while at < items.len() {
                if enough(&shown) {
                    return Ok((shown, considered));
                }
                let end = (at + batch).min(items.len());
                self.judge(&items[at..end])?;
                for item in &items[at..end] {
                    if enough(&shown) {
                        return Ok((shown, considered));
                    }
                    considered += 1;
                    if let Some(item) = item
                        && self.verdicts.get(&item.version_id).copied().unwrap_or(true)
                    {
                        shown.push(item.clone());
                    }
                }
                at = end;
                batch = (batch * 2).min(256);
            }
        }
        Ok((shown, considered))
    }

    fn judge(&mut self, items: &[Option<Item>]) -> Result<(), Fault> {
        let mut by_binding: BTreeMap<i32, Vec<&Item>> = BTreeMap::new();
        for item in items.iter().flatten() {
            if let Some(binding) = item.source.binding_id
                && !self.verdicts.contains_key(&item.version_id)
            {
                by_binding.entry(binding).or_default().push(item);
            }
        }
        for (id, items) in by_binding {
            if !self.tables.contains_key(&id) {
                let table = Rows::open(id)?;
                let selectable = table.selectable_by(self.owner.caller())?;
                self.tables.insert(id, selectable.then_some(table));
            }
            let Some(Some(table)) = self.tables.get(&id) else {
                self.verdicts
                    .extend(items.iter().map(|item| (item.version_id, false)));
                continue;
            };
            let keys: Vec<Vec<String>> = items.iter().map(|item| item.source.key.clone()).collect();
            let live = self.owner.as_caller(|| table.live(&keys))?;
            for (item, values) in items.iter().zip(live) {
                let same =
                    values.is_some_and(|v| rows::hash(&item.source.hash_key, &v) == item.content);
                self.verdicts.insert(item.version_id, same);
            }
        }
        Ok(())
    }
}

/// The stored facts of ranked items, in their order; `None` for a claim one of whose further source versions
/// is no longer current.
fn details(ranked: &[Ranked], target: Target) -> Result<Vec<Option<Item>>, Fault> {
    let ids: Vec<i64> = ranked.iter().map(|item| item.item).collect();
    let select = match target {
        Target::Chunk => {
            "SELECT i.id, s.artifact_id, v.id, i.start_byte, i.end_byte, i.body, i.leaf, v.content_hash, \
                    d.title, d.origin, d.dated, s.binding_id, s.key, s.hash_key \
               FROM cortex.chunk i JOIN cortex.source_version v ON v.id = i.version_id"
        }
        Target::Claim => {
            "SELECT i.id, s.artifact_id, v.id, i.start_bytes[1], i.end_bytes[1], i.body, i.leaf, v.content_hash, \
                    d.title, d.origin, d.dated, s.binding_id, s.key, s.hash_key \
               FROM cortex.claim i JOIN cortex.source_version v ON v.id = i.version_ids[1] \
                AND NOT EXISTS (SELECT FROM cortex.source_version o \
                                 WHERE o.id = ANY (i.version_ids) AND o.closed_by IS NOT NULL) \
               JOIN cortex.unit u ON u.id = i.unit_id AND u.evicted_by IS NULL"
        }
    };
    let sql = format!(
        "{select} JOIN cortex.source s ON s.id = v.source_id JOIN cortex.document d ON d.version_id = v.id \
          WHERE i.id = ANY ($1)"
    );
    let by_id: HashMap<i64, &Ranked> = ranked.iter().map(|item| (item.item, item)).collect();
    let mut items: HashMap<i64, Item> = HashMap::new();
    kept::read(Access::Index, &sql, &[ids.clone().into()], |row| {
        let id = row.must::<i64>(1)?;
        let Some(ranked) = by_id.get(&id) else {
            return Ok(());
        };
        let item = Item {
            ranked: (*ranked).clone(),
            artifact_id: row.must(2)?,
            version_id: row.must(3)?,
            start_byte: row.must(4)?,
            end_byte: row.must(5)?,
            body: row.must(6)?,
            leaf: Hash(key32(row.must::<Vec<u8>>(7)?)?),
            content: Hash(key32(row.must::<Vec<u8>>(8)?)?),
            title: row.get(9),
            origin: row.get(10),
            dated: row.get(11),
            source: SourceOf {
                binding_id: row.get(12),
                key: row.get::<Vec<String>>(13).unwrap_or_default(),
                hash_key: key32(row.must::<Vec<u8>>(14)?)?,
            },
        };
        items.insert(id, item);
        Ok(())
    })?;
    Ok(ids.iter().map(|id| items.remove(id)).collect())
}

#[expect(clippy::too_many_arguments, reason = "a receipt records all of them")]
fn receipt(
    request: &Request,
    namespace: &Namespace,
    plan: &Plan,
    state: &State,
    question: &Question,
    found: &Found,
    items: &[Item],
    considered: usize,
) -> Result<Receipt, Fault> {
    let total_matched = found.matched.max(considered as u64);
    let receipt = Receipt {
        v: ReceiptVersion::V1,
        namespace: namespace.name.clone(),
        target: request.target,
        query: commitment(namespace, request.query)?,
        analyzer: question.rules.analyzer.name().into(),
        ranker: question.rules.ranker.name().into(),
        fusion: question.rules.fusion.name().into(),
        arms: plan.arms.clone(),
        space: plan.space.clone(),
        query_vector: plan
            .vector
            .as_ref()
            .map(|vector| hex(&quant::to_le_bytes(&vector.components))),
        params: Params {
            k: considered.max(1) as u32,
            depth: question.depth,
            k1_milli: question.rules.ranker.params().k1_milli,
            b_milli: question.rules.ranker.params().b_milli,
            rrf_k: question.rules.fusion.rank_offset(),
        },
        state: state.clone(),
        stats: found.stats.clone(),
        nominator: found.nominator,
        nominees: if found.nominator == Nominator::Approximate {
            found.nominees.clone()
        } else {
            Vec::new()
        },
        barred: question.barred.to_vec(),
        total_matched,
        cut: if total_matched > considered as u64 {
            Cut::Cap
        } else {
            Cut::None
        },
        masked: (considered - items.len()) as u32,
        candidates: items.iter().map(candidate).collect(),
    };
    receipt.check().map_err(|violation| {
        Fault::internal(format!("a receipt that breaks its own rule: {violation}"))
    })?;
    Ok(receipt)
}

fn candidate(item: &Item) -> Candidate {
    Candidate {
        item: item.ranked.item,
        artifact: item.artifact_id.clone(),
        version: item.version_id,
        leaf: item.leaf,
        score: item.ranked.score,
        lexical_rank: item.ranked.lexical_rank,
        vector_rank: item.ranked.vector_rank,
        lexical: item.ranked.lexical,
        vector: item.ranked.vector,
    }
}

/// The salt of a text in a namespace. Derived, because a read writes nothing and gives the same bytes for
/// the same question.
pub fn salt(namespace: &Namespace, text: &str) -> Result<Salt, Fault> {
    Ok(Salt::derived(&key32(namespace.secret.clone())?, text))
}

/// The salted commitment that stands for a text.
pub fn commitment(namespace: &Namespace, text: &str) -> Result<Hash, Fault> {
    Ok(commit(&salt(namespace, text)?, text))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `lexical`, `vector` or `lexical+vector`.
pub fn arms_text(arms: &[Arm]) -> String {
    let name = |arm: &Arm| match arm {
        Arm::Lexical => "lexical",
        Arm::Vector => "vector",
    };
    arms.iter().map(name).collect::<Vec<_>>().join("+")
}
