//! From a source version to chunks, claims and postings. All of it is arithmetic on the text, so it runs in
//! the backend; only vectors wait for the sidecar.

use std::collections::BTreeMap;

use cortex_core::chunker::{self, ChunkOptions};
use cortex_core::hash::{Hash, Leaf, Target, equality_digest};
use cortex_core::index_text::{self, Header, Words};
use cortex_core::posting::{self, Hit};
use cortex_core::{analyzer, extract};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::db;
use crate::error::Fault;
use crate::hold;
use crate::rows::{self, Document, Rows};
use crate::sources::change_id;
use crate::subxact;

/// Longest text that is chunked, in bytes. A longer row stays a source, and its document says why it has
/// no chunks; a longer text handed over is refused.
pub const MAX_TEXT: usize = 8 << 20;
/// Rows whose texts are in memory together; one at a time where they turn out to be long.
const ROWS_AT_ONCE: usize = 25;

/// A version to chunk, with what its leaves are bound to.
pub struct Version {
    /// Key in `cortex.source_version`.
    pub id: i64,
    /// Key in `cortex.source`.
    pub source_id: i64,
    /// Stable name of the source.
    pub artifact_id: String,
    /// Keys the digests of the source's content.
    pub hash_key: [u8; 32],
    /// Keyed hash of the version's content.
    pub content: Hash,
}

/// Ids of what a batch made: items are numbered from one sequence, so they are one range.
#[derive(Default)]
pub struct Made {
    first: Option<i64>,
    last: Option<i64>,
    count: i64,
}

impl Made {
    /// How many chunks and claims.
    pub fn count(&self) -> i64 {
        self.count
    }

    /// Adds what was made after it.
    fn add(&mut self, later: &Made) {
        self.first = self.first.or(later.first);
        self.last = later.last.or(self.last);
        self.count += later.count;
    }

    /// Queues the vectors of what was made, in the space of the namespace and in the one that is to follow it.
    pub fn queue_embedding(&self, namespace_id: i32) -> Result<(), Fault> {
        let (Some(first), Some(last)) = (self.first, self.last) else {
            return Ok(());
        };
        // Until the commit no other space can be put to use, or it would miss items that nobody sees yet.
        db::execute(
            "SELECT pg_catalog.pg_advisory_xact_lock_shared(1668248697, $1)",
            &[namespace_id.into()],
        )?;
        db::execute(
            "INSERT INTO cortex.job (namespace_id, kind, payload, total) \
             SELECT $1, 'embed', pg_catalog.jsonb_build_object('space', s.id, 'from', $2, 'to', $3), $4 \
               FROM cortex.namespace n JOIN cortex.space s ON s.id IN (n.space_id, n.next_space_id) WHERE n.id = $1",
            &[
                namespace_id.into(),
                first.into(),
                last.into(),
                self.count.into(),
            ],
        )?;
        Ok(())
    }
}

/// Chunks up to `batch` versions that `change` opened, with ids from `low` to `high`. Skips versions closed
/// meanwhile and rows that already changed again: their next version has a job of its own.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._chunk_batch(namespace_id integer, change bigint, low bigint, high bigint, batch integer)
    RETURNS TABLE ("rows" bigint, done boolean, last_version bigint)
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn chunk_batch(
    namespace_id: i32,
    change: i64,
    low: i64,
    high: i64,
    batch: i32,
) -> Result<
    TableIterator<
        'static,
        (
            name!(rows, i64),
            name!(done, bool),
            name!(last_version, Option<i64>),
        ),
    >,
    ErrorReport,
> {
    let waiting = db::write(
        "SELECT v.id, v.source_id, s.artifact_id, s.hash_key, v.content_hash, s.binding_id, s.key \
           FROM cortex.source_version v JOIN cortex.source s ON s.id = v.source_id \
          WHERE v.opened_by = $1 AND v.id BETWEEN $2 AND $3 AND v.closed_by IS NULL AND s.binding_id IS NOT NULL \
            AND NOT EXISTS (SELECT FROM cortex.document d WHERE d.version_id = v.id) \
            AND NOT EXISTS (SELECT FROM cortex.hold h WHERE h.binding_id = s.binding_id AND h.released_by IS NULL) \
          ORDER BY v.id LIMIT $4",
        &[
            change.into(),
            low.into(),
            high.into(),
            i64::from(batch).into(),
        ],
        |row| {
            let version = Version {
                id: row.must(1)?,
                source_id: row.must(2)?,
                artifact_id: row.must(3)?,
                hash_key: key32(row.must::<Vec<u8>>(4)?)?,
                content: Hash(key32(row.must::<Vec<u8>>(5)?)?),
            };
            Ok((version, row.must::<i32>(6)?, row.must::<Vec<String>>(7)?))
        },
    )?;
    let rows = waiting.len() as i64;
    let last_version = waiting.last().map(|(version, ..)| version.id);

    let mut by_binding: BTreeMap<i32, Vec<(Version, Vec<String>)>> = BTreeMap::new();
    for (version, binding, key) in waiting {
        by_binding.entry(binding).or_default().push((version, key));
    }
    let mut made = Made::default();
    for (id, versions) in by_binding {
        // A table that cannot be read must not keep others, changed in the same transaction, from being found.
        match subxact::guarded(|| chunk_rows(namespace_id, id, &versions)) {
            Ok(ours) => made.add(&ours),
            Err(fault) if fault.concerns_the_caller() || fault.lacks_resources() => {
                return Err(fault.into());
            }
            Err(fault) => {
                let reason = format!("its rows could not be chunked: {}", fault.sentence());
                hold::open_fault(id, &reason)?;
            }
        }
    }
    made.queue_embedding(namespace_id)?;
    Ok(TableIterator::once((
        rows,
        rows < i64::from(batch),
        last_version,
    )))
}

/// Chunks these versions (each with its row's key) of one binding.
fn chunk_rows(
    namespace_id: i32,
    binding_id: i32,
    versions: &[(Version, Vec<String>)],
) -> Result<Made, Fault> {
    let mut made = Made::default();
    let table = Rows::open(binding_id)?;
    let mut rest = versions;
    let mut rows_at_once = ROWS_AT_ONCE;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rows_at_once.min(rest.len()));
        rest = later;
        let keys: Vec<Vec<String>> = now.iter().map(|(_, key)| key.clone()).collect();
        let live = table.live(&keys)?;
        let texts = live.iter().flatten().flatten().flatten();
        let bytes: usize = texts.map(String::len).sum();
        rows_at_once = if bytes > MAX_TEXT { 1 } else { ROWS_AT_ONCE };
        for ((version, _), values) in now.iter().zip(live) {
            let Some(values) = values else { continue };
            if rows::hash(&version.hash_key, &values) == version.content {
                let document = table.document(values);
                store(
                    namespace_id,
                    version,
                    document,
                    Some(&table.origin),
                    &mut made,
                )?;
            }
        }
    }
    Ok(made)
}

/// Stores the document, chunks, claims and postings of one version; nothing if another worker has.
pub fn store(
    namespace_id: i32,
    version: &Version,
    document: Document,
    origin: Option<&str>,
    made: &mut Made,
) -> Result<(), Fault> {
    pgrx::check_for_interrupts!();
    let note = (document.text.len() > MAX_TEXT).then(|| {
        format!(
            "text of {} bytes is over the limit of {MAX_TEXT}: not chunked",
            document.text.len()
        )
    });
    let built = match note {
        Some(_) => Built::default(),
        None => build(&document),
    };
    let change = change_id(namespace_id)?;
    let count = |items: &[Item]| {
        items
            .iter()
            .map(|item| i64::from(item.words.length))
            .sum::<i64>()
    };
    let secret = db::write_one(
        "SELECT secret FROM cortex.namespace WHERE id = $1",
        &[namespace_id.into()],
        |row| key32(row.must::<Vec<u8>>(1)?),
    )?
    .ok_or_else(|| Fault::internal(format!("namespace {namespace_id} has no row")))?;
    let equality = equality_digest(&secret, &[Some(&document.text)]);
    let ours = db::write_one(
        "INSERT INTO cortex.document (version_id, namespace_id, title, origin, dated, chunk_count, chunk_terms, \
                                      claim_count, claim_terms, chunker, analyzer, note, added_by, equality) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) \
         ON CONFLICT ON CONSTRAINT document_pkey DO NOTHING RETURNING version_id",
        &[
            version.id.into(),
            namespace_id.into(),
            document.title.clone().into(),
            origin.into(),
            document.dated.clone().into(),
            (built.chunks.len() as i32).into(),
            count(&built.chunks).into(),
            (built.claims.len() as i32).into(),
            count(&built.claims).into(),
            chunker::NAME.into(),
            analyzer::NAME.into(),
            note.into(),
            change.into(),
            equality.0.to_vec().into(),
        ],
        |row| row.must::<i64>(1),
    )?;
    if ours.is_none() || built.chunks.is_empty() {
        return Ok(());
    }
    insert(namespace_id, change, version, &document.text, built, made)
}

/// A span of the text with its terms.
struct Item {
    start: usize,
    end: usize,
    tokens: u32,
    /// Of a claim: which chunk it was drawn from.
    chunk: usize,
    words: Words,
}

#[derive(Default)]
struct Built {
    chunks: Vec<Item>,
    claims: Vec<Item>,
}

fn build(document: &Document) -> Built {
    let text = document.text.as_str();
    let header = Header::new(document.title.as_deref(), document.dated.as_deref());
    let item = |start: usize, end: usize, tokens: u32, chunk: usize| Item {
        start,
        end,
        tokens,
        chunk,
        words: header.words(&text[start..end]),
    };
    let mut built = Built::default();
    for (n, chunk) in chunker::chunk(text, &ChunkOptions::default())
        .into_iter()
        .enumerate()
    {
        for claim in extract::extract(&text[chunk.start..chunk.end]) {
            built.claims.push(item(
                chunk.start + claim.start,
                chunk.start + claim.end,
                0,
                n,
            ));
        }
        built
            .chunks
            .push(item(chunk.start, chunk.end, chunk.tokens, n));
    }
    built
}

fn insert(
    namespace_id: i32,
    change: i64,
    version: &Version,
    text: &str,
    built: Built,
    made: &mut Made,
) -> Result<(), Fault> {
    let total = built.chunks.len() + built.claims.len();
    let ids = new_ids(total)?;
    let (chunk_ids, claim_ids) = ids.split_at(built.chunks.len());
    made.first = made.first.or(ids.first().copied());
    made.last = ids.last().copied().or(made.last);
    made.count += total as i64;

    let leaves = |target: Target, ids: &[i64], items: &[Item]| -> Result<Vec<Vec<u8>>, Fault> {
        ids.iter()
            .zip(items)
            .map(|(id, item)| {
                let span = (item.start as u64, item.end as u64);
                leaf(target, *id, version, span, &text[item.start..item.end])
            })
            .collect()
    };
    let bodies = |items: &[Item]| {
        items
            .iter()
            .map(|i| text[i.start..i.end].to_owned())
            .collect::<Vec<_>>()
    };
    let starts = |items: &[Item]| items.iter().map(|i| i.start as i32).collect::<Vec<_>>();
    let ends = |items: &[Item]| items.iter().map(|i| i.end as i32).collect::<Vec<_>>();

    db::execute(
        "INSERT INTO cortex.chunk (id, namespace_id, version_id, ordinal, start_byte, end_byte, tokens, body, leaf, added_by) \
         SELECT u.id, $1, $2, u.n::int4, u.s, u.e, u.tokens, u.body, u.leaf, $3 \
           FROM ROWS FROM (unnest($4::int8[]), unnest($5::int4[]), unnest($6::int4[]), unnest($7::int4[]), unnest($8::text[]), unnest($9::bytea[])) \
                WITH ORDINALITY AS u(id, s, e, tokens, body, leaf, n)",
        &[
            namespace_id.into(),
            version.id.into(),
            change.into(),
            chunk_ids.to_vec().into(),
            starts(&built.chunks).into(),
            ends(&built.chunks).into(),
            built
                .chunks
                .iter()
                .map(|i| i.tokens as i32)
                .collect::<Vec<_>>()
                .into(),
            bodies(&built.chunks).into(),
            leaves(Target::Chunk, chunk_ids, &built.chunks)?.into(),
        ],
    )?;
    if !built.claims.is_empty() {
        let unit = db::write_one(
            "INSERT INTO cortex.unit (namespace_id, source_id, version_id, purpose, builder, added_by) \
             VALUES ($1, $2, $3, 'extract', $4, $5) RETURNING id",
            &[
                namespace_id.into(),
                version.source_id.into(),
                version.id.into(),
                extract::NAME.into(),
                change.into(),
            ],
            |row| row.must::<i64>(1),
        )?;
        let from: Vec<i64> = built
            .claims
            .iter()
            .map(|claim| chunk_ids[claim.chunk])
            .collect();
        db::execute(
            "INSERT INTO cortex.claim (id, namespace_id, unit_id, ordinal, body, leaf, version_ids, chunk_ids, \
                                       start_bytes, end_bytes, added_by) \
             SELECT u.id, $1, $2, u.n::int4, u.body, u.leaf, ARRAY[$3], ARRAY[u.chunk], ARRAY[u.s], ARRAY[u.e], $4 \
               FROM ROWS FROM (unnest($5::int8[]), unnest($6::int8[]), unnest($7::int4[]), unnest($8::int4[]), unnest($9::text[]), unnest($10::bytea[])) \
                    WITH ORDINALITY AS u(id, chunk, s, e, body, leaf, n)",
            &[
                namespace_id.into(),
                unit.into(),
                version.id.into(),
                change.into(),
                claim_ids.to_vec().into(),
                from.into(),
                starts(&built.claims).into(),
                ends(&built.claims).into(),
                bodies(&built.claims).into(),
                leaves(Target::Claim, claim_ids, &built.claims)?.into(),
            ],
        )?;
    }
    let words = |items: Vec<Item>| items.into_iter().map(|item| item.words).collect::<Vec<_>>();
    insert_postings(
        namespace_id,
        change,
        version.id,
        (chunk_ids, &words(built.chunks)),
        (claim_ids, &words(built.claims)),
    )
}

/// Writes the lexical index of chunks and claims (ids and terms of each) that one change made of one version.
pub fn insert_postings(
    namespace_id: i32,
    change: i64,
    version_id: i64,
    chunks: (&[i64], &[Words]),
    claims: (&[i64], &[Words]),
) -> Result<(), Fault> {
    // Chunks are numbered before claims, so the first chunk is the base of both.
    let Some(base) = chunks.0.first().or(claims.0.first()).copied() else {
        return Ok(());
    };
    let mut hits: BTreeMap<&str, [Vec<Hit>; 2]> = BTreeMap::new();
    for (side, (ids, items)) in [chunks, claims].into_iter().enumerate() {
        for (id, words) in ids.iter().zip(items) {
            for (term, tf) in &words.terms {
                hits.entry(term).or_default()[side].push(Hit {
                    item: *id,
                    tf: *tf,
                    length: words.length,
                });
            }
        }
    }
    let packed =
        |hits: &Vec<Hit>| (!hits.is_empty()).then(|| posting::pack(base, hits.iter().copied()));
    let terms: Vec<String> = hits.keys().map(|term| (*term).to_owned()).collect();
    let of_chunks: Vec<Option<Vec<u8>>> = hits.values().map(|[chunks, _]| packed(chunks)).collect();
    let of_claims: Vec<Option<Vec<u8>>> = hits.values().map(|[_, claims]| packed(claims)).collect();
    db::execute(
        "INSERT INTO cortex.posting (version_id, added_by, base_item, namespace_id, term, chunk_hits, claim_hits) \
         SELECT $1, $2, $3, $4, u.term, u.chunks, u.claims \
           FROM ROWS FROM (unnest($5::text[]), unnest($6::bytea[]), unnest($7::bytea[])) AS u(term, chunks, claims)",
        &[
            version_id.into(),
            change.into(),
            base.into(),
            namespace_id.into(),
            terms.into(),
            of_chunks.into(),
            of_claims.into(),
        ],
    )?;
    Ok(())
}

/// The leaf hash of an item with this span and text.
pub fn leaf(
    target: Target,
    id: i64,
    version: &Version,
    (start, end): (u64, u64),
    text: &str,
) -> Result<Vec<u8>, Fault> {
    let leaf = Leaf {
        kind: target,
        item: id,
        artifact: &version.artifact_id,
        version: version.id,
        content: version.content,
        start,
        end,
    };
    match leaf.hash(&version.hash_key, text) {
        Ok(hash) => Ok(hash.0.to_vec()),
        Err(error) => Err(Fault::internal(format!("leaf of item {id}: {error}"))),
    }
}

/// `n` new ids of chunks and claims, ascending.
pub fn new_ids(n: usize) -> Result<Vec<i64>, Fault> {
    db::write(
        "SELECT pg_catalog.nextval('cortex.item_id_seq') FROM pg_catalog.generate_series(1, $1)",
        &[(n as i32).into()],
        |row| row.must::<i64>(1),
    )
}

/// 32 bytes of a key or a digest column.
pub fn key32(bytes: Vec<u8>) -> Result<[u8; 32], Fault> {
    let found = bytes.len();
    bytes
        .try_into()
        .map_err(|_| Fault::internal(format!("a digest or key of {found} bytes, expected 32")))
}

/// The text that is embedded for an item: date and title give it context.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex._embedding_text(title text, dated text, body text) RETURNS text
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn embedding_text(title: Option<&str>, dated: Option<&str>, body: Option<&str>) -> Option<String> {
    Some(index_text::embedding_text(title, dated, body?))
}
