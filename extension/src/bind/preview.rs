//! What binding a table will cost, before it is done.

use serde_json::{Value, json};

use crate::bind::table::{Choice, Table};
use crate::bind::wiring;
use crate::binding::{Binding, Stored, identifier};
use crate::db;
use crate::error::Fault;

/// Up to so many rows are counted; beyond, a sample tells.
const COUNTED: i64 = 20_000;
/// Pages of the sample.
const SAMPLED_PAGES: f64 = 400.0;
/// Bytes of text in a chunk of the default size: 160 tokens of about four bytes.
const CHUNK_BYTES: f64 = 640.0;
/// Disk for each chunk beside its text: rows and indexes of versions, chunks, claims, postings (about 1 KiB),
/// a vector of 384 floats (1.5 KiB) and its entry in an HNSW index (2 KiB).
const CHUNK_OVERHEAD_BYTES: f64 = 4_608.0;
/// The text is kept with its chunks, its claims and its postings.
const TEXT_COPIES: f64 = 3.0;
/// Rows a second that one worker reads and hashes.
const ROWS_PER_SECOND: f64 = 10_000.0;
/// Chunks a second that one worker embeds with the default model on two cores.
const CHUNKS_PER_SECOND: f64 = 60.0;

/// Size, cost, locks, triggers and privileges of a binding. Estimates say so in their names.
pub fn of(table: &Table, choice: &Choice) -> Result<Value, Fault> {
    let (rows, bytes) = size(table, choice)?;
    let chunks = (bytes / CHUNK_BYTES)
        .max(if bytes > 0.0 { rows } else { 0.0 })
        .ceil();
    let members = wiring::tree(table.relation)?;
    let triggers = members
        .iter()
        .map(|&member| {
            let level = crate::binding::qualified(member)?;
            Ok(json!({"table": level, "triggers": wiring::described(member)}))
        })
        .collect::<Result<Vec<_>, Fault>>()?;
    Ok(json!({
        "estimated_rows": whole(rows),
        "estimated_text_bytes": whole(bytes),
        "estimated_chunks": whole(chunks),
        "estimated_disk_bytes": whole(chunks * CHUNK_OVERHEAD_BYTES + bytes * TEXT_COPIES),
        "estimated_seconds": whole((rows / ROWS_PER_SECOND + chunks / CHUNKS_PER_SECOND).ceil()),
        "locks": [
            format!("SHARE ROW EXCLUSIVE on {} and its partitions while the triggers are made: writers wait, readers do not", table.qualified),
            "FOR SHARE on the rows of one batch at a time while the worker loads",
        ],
        "triggers": triggers,
        "privileges": [
            "the triggers and the worker read the table as the owner of the extension, row-level security aside",
            "what a search or read returns is checked against the rows that its caller may see",
        ],
    }))
}

fn whole(value: f64) -> i64 {
    value.round() as i64 // saturates
}

/// Rows, and bytes of text in the bound columns.
fn size(table: &Table, choice: &Choice) -> Result<(f64, f64), Fault> {
    let names = |columns: &[crate::bind::table::Column]| {
        columns.iter().map(|column| column.name.clone()).collect()
    };
    let binding = Binding::resolve(Stored {
        id: 0,
        namespace_id: 0,
        name: table.name.clone(),
        relation: table.relation,
        key_columns: names(&choice.key),
        text_columns: names(&choice.text),
        title_column: choice.title.as_ref().map(|column| column.name.clone()),
        date_column: choice.date.as_ref().map(|column| column.name.clone()),
        generation: 0,
        silent: true,
    })?;
    let from = &binding.from;
    let lengths = binding.values.iter().map(|column| {
        let text = column.nullable_text(&format!("u.{}", identifier(&column.name)));
        format!("COALESCE(pg_catalog.octet_length({text}), 0)::pg_catalog.int8")
    });
    let measure = format!(
        "SELECT pg_catalog.count(*), COALESCE(pg_catalog.sum({}), 0)::pg_catalog.float8",
        lengths.collect::<Vec<_>>().join(" + ")
    );
    let measured = |source: &str| {
        db::write_one(&format!("{measure} FROM {source}"), &[], |row| {
            Ok((row.must::<i64>(1)?, row.must::<f64>(2)?))
        })
        .map(|found| found.unwrap_or((0, 0.0)))
    };
    let few = db::write_one(
        &format!(
            "SELECT pg_catalog.count(*) FROM (SELECT FROM {from} LIMIT {}) u",
            COUNTED + 1
        ),
        &[],
        |row| row.must::<i64>(1),
    )?;
    if few.unwrap_or(0) <= COUNTED {
        let (rows, bytes) = measured(&format!("{from} u"))?;
        return Ok((rows as f64, bytes));
    }
    let pages = db::write_one(
        "SELECT pg_catalog.sum(pg_catalog.pg_relation_size(relid))::pg_catalog.float8 \
              / pg_catalog.current_setting('block_size')::pg_catalog.float8 \
           FROM pg_catalog.unnest($1) t (relid)",
        &[wiring::tree(table.relation)?.into()],
        |row| row.must::<f64>(1),
    )?;
    let percent = (100.0 * SAMPLED_PAGES / pages.unwrap_or(SAMPLED_PAGES).max(1.0)).min(100.0);
    let (rows, bytes) = measured(&format!("{from} u TABLESAMPLE SYSTEM ({percent})"))?;
    let scale = 100.0 / percent;
    Ok((rows as f64 * scale, bytes * scale))
}
