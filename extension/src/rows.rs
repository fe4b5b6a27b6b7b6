//! The rows behind a binding, read by key.

use cortex_core::hash::{Hash, content_hash};
use pgrx::pg_sys;

use crate::binding::{Binding, STORED, Stored, identifier};
use crate::db;
use crate::error::Fault;
use crate::rights::Rendering;

/// The bound columns of one row, as text. NULL, empty and absent are kept apart.
pub type Values = Vec<Option<String>>;

/// A row's text as it is chunked, with what goes into a header.
pub struct Document {
    /// The text columns that are not NULL, joined by a blank line. Spans count in its bytes.
    pub text: String,
    /// The title column.
    pub title: Option<String>,
    /// The date column.
    pub dated: Option<String>,
}

/// A bound table to read rows from.
pub struct Rows {
    binding: Binding,
    /// Label of the sources in headers.
    pub origin: String,
}

impl Rows {
    /// Opens the table of a binding, in the snapshot of the calling query. Call it as the owner of schema
    /// `cortex`.
    pub fn open(binding_id: i32) -> Result<Self, Fault> {
        let sql = format!(
            "SELECT {STORED}, coalesce(b.origin, b.name) FROM cortex.binding b WHERE b.id = $1"
        );
        let found = db::read_one(&sql, &[binding_id.into()], |row| {
            Ok((Stored::from_row(row)?, row.must::<String>(11)?))
        })?;
        let (stored, origin) =
            found.ok_or_else(|| Fault::state(format!("binding {binding_id} no longer exists")))?;
        Ok(Rows {
            binding: Binding::resolve(stored)?,
            origin,
        })
    }

    /// The rows of these keys (each the texts of its key columns) that the current user can see in the calling
    /// query's snapshot; `None` where there is none. Output is in the order of `keys`.
    pub fn live(&self, keys: &[Vec<String>]) -> Result<Vec<Option<Values>>, Fault> {
        let _rendering = Rendering::pin()?;
        let aliases: Vec<String> = (1..=self.binding.key.len())
            .map(|n| format!("k{n}"))
            .collect();
        let given: Vec<String> = aliases.iter().map(|alias| format!("k.{alias}")).collect();
        let stored = self.binding.key_of("u");
        let mut same: Vec<String> = stored
            .iter()
            .zip(&given)
            .map(|(u, k)| format!("{u} OPERATOR(pg_catalog.=) {k}"))
            .collect();
        if !self.binding.exact_key() {
            let (u, k) = (
                self.binding.artifact(&stored),
                self.binding.artifact(&given),
            );
            same.push(format!("{u} OPERATOR(pg_catalog.=) {k}"));
        }
        let values: Vec<String> = self
            .binding
            .values
            .iter()
            .map(|column| column.nullable_text(&format!("u.{}", identifier(&column.name))))
            .collect();
        let sql = format!(
            "SELECT k.n, {} FROM {} WITH ORDINALITY AS k({}, n) JOIN {} u ON {}",
            values.join(", "),
            self.binding.keys(keys)?,
            aliases.join(", "),
            self.binding.from,
            same.join(" AND ")
        );
        let mut rows: Vec<Option<Values>> = vec![None; keys.len()];
        db::read(&sql, &[], |row| {
            let n = row.must::<i64>(1)? as usize;
            if let Some(slot) = n.checked_sub(1).and_then(|n| rows.get_mut(n)) {
                *slot = Some(
                    (0..values.len())
                        .map(|c| row.get::<String>(c as i32 + 2))
                        .collect(),
                );
            }
            Ok(())
        })?;
        Ok(rows)
    }

    /// Whether `user` may SELECT every column that a row is read by, and name the table at all.
    pub fn selectable_by(&self, user: pg_sys::Oid) -> Result<bool, Fault> {
        let columns: Vec<String> = self
            .binding
            .key
            .iter()
            .chain(&self.binding.values)
            .map(|column| column.name.clone())
            .collect();
        let allowed = db::read_one(
            "SELECT pg_catalog.has_schema_privilege($1, t.relnamespace, 'USAGE') AND ( \
                    pg_catalog.has_table_privilege($1, t.oid, 'SELECT') OR NOT EXISTS ( \
                    SELECT FROM pg_catalog.unnest($3::text[]) c \
                     WHERE NOT pg_catalog.has_column_privilege($1, t.oid, c, 'SELECT'))) \
               FROM pg_catalog.pg_class t WHERE t.oid = $2",
            &[
                user.into(),
                self.binding.stored.relation.into(),
                columns.into(),
            ],
            |row| row.must::<bool>(1),
        )?;
        Ok(allowed.unwrap_or(false))
    }

    /// Splits a row's values into its text and its header fields.
    pub fn document(&self, values: Values) -> Document {
        let stored = &self.binding.stored;
        let mut rest = values.into_iter();
        let parts: Vec<String> = rest
            .by_ref()
            .take(stored.text_columns.len())
            .flatten()
            .collect();
        let mut header =
            |named: &Option<String>| named.as_ref().and_then(|_| rest.next().flatten());
        let title = header(&stored.title_column);
        let dated = header(&stored.date_column);
        Document {
            text: parts.join("\n\n"),
            title,
            dated,
        }
    }
}

/// The keyed hash of a row's values, as its version row carries it.
pub fn hash(hash_key: &[u8; 32], values: &Values) -> Hash {
    let values: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
    content_hash(hash_key, &values)
}
