//! Loading the rows of a bound table, a page at a time.

use pgrx::iter::TableIterator;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::binding::{Binding, Stored};
use crate::db;
use crate::error::Fault;
use crate::kept::Access;
use crate::lock::{self, Patience};
use crate::rights::{Owner, Rendering};
use crate::touch::Origin;
use crate::versions;

/// Most rows that one batch locks.
pub const MOST_ROWS: i32 = 1_000;

/// What one batch did.
pub struct Batch {
    /// Rows that the page held; fewer than asked for means that it was the last.
    pub rows: i32,
    /// Key of the page's last row, as text, where the next page begins. `None` if the page was empty.
    pub last: Option<Vec<String>>,
}

#[pg_extern(sql = r#"
CREATE FUNCTION cortex._load_batch(binding_id integer, "after" text[], batch integer)
    RETURNS TABLE ("rows" integer, "last" text[])
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
#[allow(clippy::type_complexity)] // pgrx reads the columns out of the type as it stands
fn load_batch(
    binding_id: i32,
    after: Option<Vec<String>>,
    batch_rows: i32,
) -> Result<TableIterator<'static, (name!(rows, i32), name!(last, Option<Vec<String>>))>, ErrorReport>
{
    let _owner = Owner::enter()?;
    let _rendering = Rendering::pin()?;
    let done = batch(binding_id, after.as_deref(), batch_rows)?;
    Ok(TableIterator::once((done.rows, done.last)))
}

/// Opens versions for up to `limit` rows (1 to [`MOST_ROWS`]) whose keys come after `after`.
///
/// The rows are locked FOR SHARE before they are read: a writer that came first has then committed and its
/// versions are seen, one that comes later waits and sees ours. So the batch neither makes a version of a row
/// that is gone nor collides with a user's trigger, and doing it twice changes nothing.
///
/// Call it as [`Owner`] with [`Rendering`] pinned, in READ COMMITTED.
///
/// # Errors
/// 55P03 if a row is locked for longer than a worker waits: the batch has done nothing and can be tried again.
pub fn batch(binding_id: i32, after: Option<&[String]>, limit: i32) -> Result<Batch, Fault> {
    if !(1..=MOST_ROWS).contains(&limit) {
        return Err(Fault::argument(format!(
            "a batch of {limit} rows is outside 1 to {MOST_ROWS}"
        )));
    }
    let stored = Stored::by_id(binding_id)?
        .ok_or_else(|| Fault::unknown(format!("there is no binding {binding_id}")))?;
    if stored.silent {
        return Ok(Batch {
            rows: 0,
            last: None,
        });
    }
    // SAFETY: reads a backend variable.
    if unsafe { pg_sys::XactIsoLevel } >= pg_sys::XACT_REPEATABLE_READ as i32 {
        return Err(Fault::transaction(
            "rows are loaded in READ COMMITTED only".into(),
        ));
    }
    let binding = Binding::resolve(stored)?;
    let page = page(&binding, after, limit)?;
    let locked = lock::within(Patience::Worker, || lock(&binding, &page))?;
    if !locked.is_empty() {
        let keys = binding.keys(&locked)?;
        versions::touch(&binding, Origin::Keys(&keys), Access::Index, None)?;
    }
    Ok(Batch {
        rows: page.len() as i32,
        last: page.into_iter().next_back(),
    })
}

/// Keys of the next rows, as texts, in the key's order.
fn page(
    binding: &Binding,
    after: Option<&[String]>,
    limit: i32,
) -> Result<Vec<Vec<String>>, Fault> {
    let references = binding.key_of("u");
    let later = match after {
        None => String::new(),
        Some(after) => format!(
            "WHERE ROW({}) OPERATOR(pg_catalog.>) ROW({})",
            references.join(", "),
            binding.key_literals(after)?.join(", ")
        ),
    };
    db::write(
        &format!(
            "SELECT {} FROM {} u {later} ORDER BY {} LIMIT {limit}",
            texts(binding),
            binding.from,
            references.join(", ")
        ),
        &[],
        |row| row.must(1),
    )
}

/// Locks the rows of these keys and answers with those that were there.
fn lock(binding: &Binding, keys: &[Vec<String>]) -> Result<Vec<Vec<String>>, Fault> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let same: Vec<String> = binding
        .key_of("u")
        .iter()
        .enumerate()
        .map(|(n, key)| format!("{key} OPERATOR(pg_catalog.=) k.k{}", n + 1))
        .collect();
    db::write(
        &format!(
            "SELECT {} FROM {} k ({}) JOIN {} u ON {} FOR SHARE OF u",
            texts(binding),
            binding.keys(keys)?,
            aliases(binding),
            binding.from,
            same.join(" AND ")
        ),
        &[],
        |row| row.must(1),
    )
}

/// The key of a row `u` as an array of texts.
fn texts(binding: &Binding) -> String {
    let texts: Vec<String> = binding
        .key
        .iter()
        .zip(binding.key_of("u"))
        .map(|(column, key)| column.text(&key))
        .collect();
    format!("ARRAY[{}]", texts.join(", "))
}

fn aliases(binding: &Binding) -> String {
    (1..=binding.key.len())
        .map(|n| format!("k{n}"))
        .collect::<Vec<_>>()
        .join(", ")
}
