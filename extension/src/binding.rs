//! A binding as its triggers, loads and reconciliations see it.
//!
//! The row in `cortex.binding` names columns. How a column becomes text follows from its type, which is
//! looked up here, so that the statement of `touch` and every other reader of the table render alike.

use std::ffi::CString;

use pgrx::pg_sys;

use crate::db::{self, Row};
use crate::error::Fault;

/// Columns of `cortex.binding` in the order that [`Stored::from_row`] reads them.
pub const STORED: &str = "b.id, b.namespace_id, b.name, b.relation::pg_catalog.oid, \
    b.key_columns::pg_catalog.text[], b.text_columns::pg_catalog.text[], b.title_column::pg_catalog.text, \
    b.date_column::pg_catalog.text, b.generation, \
    EXISTS (SELECT FROM cortex.hold h WHERE h.binding_id = b.id AND h.released_by IS NULL \
            AND h.reason IN ('paused', 'unbound'))";

/// The row of `cortex.binding`. Two equal values make the same statements for a table of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Key in `cortex.binding`.
    pub id: i32,
    /// Namespace that the rows belong to.
    pub namespace_id: i32,
    /// Part of every artifact id.
    pub name: String,
    /// The bound table, or the root of the partitions.
    pub relation: pg_sys::Oid,
    /// Columns of the key, in the order of the artifact id.
    pub key_columns: Vec<String>,
    /// Columns whose text is the content, in order.
    pub text_columns: Vec<String>,
    /// Column of the header's title.
    pub title_column: Option<String>,
    /// Column of the header's date.
    pub date_column: Option<String>,
    /// Raised with every change of the row.
    pub generation: i32,
    /// Whether triggers are to do nothing: paused or unbound.
    pub silent: bool,
}

impl Stored {
    /// Reads a row of the columns [`STORED`].
    pub fn from_row(row: &Row) -> Result<Self, Fault> {
        Ok(Stored {
            id: row.must(1)?,
            namespace_id: row.must(2)?,
            name: row.must(3)?,
            relation: row.must(4)?,
            key_columns: row.must(5)?,
            text_columns: row.must(6)?,
            title_column: row.get(7),
            date_column: row.get(8),
            generation: row.must(9)?,
            silent: row.must(10)?,
        })
    }

    /// The binding with this id, seen with everything committed up to now.
    pub fn by_id(id: i32) -> Result<Option<Self>, Fault> {
        db::write_one(
            &format!("SELECT {STORED} FROM cortex.binding b WHERE b.id = $1"),
            &[id.into()],
            Self::from_row,
        )
    }

    /// Columns whose texts are the content, in the order in which they are hashed.
    pub fn value_columns(&self) -> impl Iterator<Item = &str> {
        let header = self.title_column.iter().chain(self.date_column.iter());
        self.text_columns.iter().chain(header).map(String::as_str)
    }
}

/// A column of the bound table with what its text rests on.
#[derive(Clone, Debug)]
pub struct Column {
    /// As in the catalog, unquoted.
    pub name: String,
    /// Its number in the table it was looked up in.
    pub number: i16,
    /// Its type, domains resolved.
    pub base: pg_sys::Oid,
}

impl Column {
    /// Looks a column of `relation` up.
    pub fn of(relation: pg_sys::Oid, name: &str) -> Result<Self, Fault> {
        let missing = || Fault::state(format!("the bound column \"{name}\" is gone"));
        let c_name = CString::new(name).map_err(|_| missing())?;
        // SAFETY: system cache look-ups with a string that outlives them.
        unsafe {
            let number = pg_sys::get_attnum(relation, c_name.as_ptr());
            if number <= 0 {
                return Err(missing());
            }
            let base = pg_sys::getBaseType(pg_sys::get_atttype(relation, number));
            Ok(Column {
                name: name.into(),
                number,
                base,
            })
        }
    }

    /// SQL for the text of `value`, an expression of this column's type. Never a cast of a type whose owner
    /// could have defined it: the statement runs with our rights. The text of NULL is not defined.
    pub fn text(&self, value: &str) -> String {
        match self.base {
            pg_sys::INT2OID
            | pg_sys::INT4OID
            | pg_sys::INT8OID
            | pg_sys::TEXTOID
            | pg_sys::VARCHAROID => {
                format!("({value})::pg_catalog.text")
            }
            _ => format!("pg_catalog.format('%s', {value})"),
        }
    }

    /// SQL for the text of `value`, NULL for NULL.
    pub fn nullable_text(&self, value: &str) -> String {
        match self.base {
            pg_sys::TEXTOID | pg_sys::VARCHAROID => self.text(value),
            _ => format!(
                "CASE WHEN {value} IS NOT NULL THEN {} END",
                self.text(value)
            ),
        }
    }

    /// SQL for `value` as an element of a canonical JSON array: integers as far as every reader keeps them
    /// exact, all else as a string.
    pub fn json(&self, value: &str) -> String {
        let text = self.text(value);
        match self.base {
            pg_sys::INT2OID | pg_sys::INT4OID => text,
            pg_sys::INT8OID => format!(
                "CASE WHEN {value} OPERATOR(pg_catalog.>=) -9007199254740991 \
                      AND {value} OPERATOR(pg_catalog.<=) 9007199254740991 \
                 THEN {text} ELSE '\"' OPERATOR(pg_catalog.||) {text} OPERATOR(pg_catalog.||) '\"' END"
            ),
            _ => format!("pg_catalog.to_json({text})::pg_catalog.text"),
        }
    }

    /// Whether equal values always have the same text. Not so for numeric (1.0, 1.00), float (0, -0),
    /// interval and others: there, two rows that are equal in turn are two artifacts.
    pub fn exact(&self) -> bool {
        matches!(
            self.base,
            pg_sys::BOOLOID
                | pg_sys::BYTEAOID
                | pg_sys::CHAROID
                | pg_sys::NAMEOID
                | pg_sys::INT2OID
                | pg_sys::INT4OID
                | pg_sys::INT8OID
                | pg_sys::TEXTOID
                | pg_sys::VARCHAROID
                | pg_sys::OIDOID
                | pg_sys::UUIDOID
                | pg_sys::DATEOID
                | pg_sys::TIMEOID
                | pg_sys::TIMESTAMPOID
                | pg_sys::TIMESTAMPTZOID
        )
    }
}

/// A binding with its columns resolved: all that a statement over its table needs.
pub struct Binding {
    /// The row.
    pub stored: Stored,
    /// The key's columns.
    pub key: Vec<Column>,
    /// The content's columns.
    pub values: Vec<Column>,
    /// The table as a FROM item: qualified, and `ONLY` unless it is partitioned.
    pub from: String,
}

impl Binding {
    /// Resolves the columns and the table's present name.
    pub fn resolve(stored: Stored) -> Result<Self, Fault> {
        let column = |name: &str| Column::of(stored.relation, name);
        Ok(Binding {
            key: stored
                .key_columns
                .iter()
                .map(|name| column(name))
                .collect::<Result<_, _>>()?,
            values: stored
                .value_columns()
                .map(column)
                .collect::<Result<_, _>>()?,
            from: from_item(stored.relation)?,
            stored,
        })
    }

    /// SQL for the artifact id of a row whose key columns are `key` (expressions, in order).
    pub fn artifact(&self, key: &[String]) -> String {
        let elements: Vec<String> = self
            .key
            .iter()
            .zip(key)
            .map(|(column, value)| column.json(value))
            .collect();
        format!(
            "({} OPERATOR(pg_catalog.||) {} OPERATOR(pg_catalog.||) ']') COLLATE \"C\"",
            literal(&format!("row:{}:[", self.stored.name)),
            elements.join(" OPERATOR(pg_catalog.||) ',' OPERATOR(pg_catalog.||) "),
        )
    }

    /// The key's columns as references to the alias `table`.
    pub fn key_of(&self, table: &str) -> Vec<String> {
        self.key
            .iter()
            .map(|column| format!("{table}.{}", identifier(&column.name)))
            .collect()
    }

    /// A FROM item with these keys, given as texts, in one column for each column of the key. Literals take
    /// the types' input functions; casts could be a type owner's.
    pub fn keys(&self, keys: &[Vec<String>]) -> Result<String, Fault> {
        let arrays = self.key.iter().enumerate().map(|(n, column)| {
            let elements: Vec<String> = keys
                .iter()
                .filter_map(|key| key.get(n))
                .map(|text| element(text))
                .collect();
            Ok(format!(
                "pg_catalog.unnest({}::{})",
                literal(&format!("{{{}}}", elements.join(","))),
                array_type(column.base)?
            ))
        });
        Ok(format!(
            "ROWS FROM ({})",
            arrays.collect::<Result<Vec<_>, Fault>>()?.join(", ")
        ))
    }

    /// The columns of one key, given as texts, as literals of their types.
    pub fn key_literals(&self, key: &[String]) -> Result<Vec<String>, Fault> {
        if key.len() != self.key.len() {
            return Err(Fault::argument(format!(
                "a key of {} columns for one of {}",
                key.len(),
                self.key.len()
            )));
        }
        let literals = self.key.iter().zip(key);
        Ok(literals
            .map(|(column, text)| format!("{}::{}", literal(text), type_name(column.base)))
            .collect())
    }

    /// Whether equal keys always have the same artifact id.
    pub fn exact_key(&self) -> bool {
        self.key.iter().all(Column::exact)
    }
}

/// The table's name for a FROM clause. Children by inheritance are tables of their own (their keys are not
/// covered by the parent's index), partitions are not.
pub fn from_item(relation: pg_sys::Oid) -> Result<String, Fault> {
    // SAFETY: system cache look-ups.
    let partitioned =
        unsafe { pg_sys::get_rel_relkind(relation) } as u8 == pg_sys::RELKIND_PARTITIONED_TABLE;
    let name = qualified(relation)?;
    Ok(if partitioned {
        name
    } else {
        format!("ONLY {name}")
    })
}

/// The table's present qualified and quoted name.
pub fn qualified(relation: pg_sys::Oid) -> Result<String, Fault> {
    // SAFETY: system cache look-ups; the answers are palloc'ed copies or null.
    unsafe {
        let name = pg_sys::get_rel_name(relation);
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation));
        if name.is_null() || schema.is_null() {
            return Err(Fault::state("the bound table is gone".into()));
        }
        let text = |name| {
            std::ffi::CStr::from_ptr(name)
                .to_string_lossy()
                .into_owned()
        };
        Ok(format!(
            "{}.{}",
            identifier(&text(schema)),
            identifier(&text(name))
        ))
    }
}

/// A quoted identifier.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A string literal, read alike whatever `standard_conforming_strings` says.
pub fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// An element of an array literal.
fn element(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The qualified name of the type of arrays of a base type.
fn array_type(base: pg_sys::Oid) -> Result<String, Fault> {
    // SAFETY: a catalog look-up.
    let array = unsafe { pg_sys::get_array_type(base) };
    if array == pg_sys::InvalidOid {
        return Err(Fault::unsupported(format!(
            "type {} has no array type",
            type_name(base)
        )));
    }
    Ok(type_name(array))
}

/// The qualified name of a type, any length of value fitting into it.
fn type_name(oid: pg_sys::Oid) -> String {
    let flags = pg_sys::FORMAT_TYPE_TYPEMOD_GIVEN | pg_sys::FORMAT_TYPE_FORCE_QUALIFY;
    // SAFETY: a catalog look-up; the name is a palloc'ed string.
    unsafe {
        let name = pg_sys::format_type_extended(oid, -1, flags as pg_sys::bits16);
        std::ffi::CStr::from_ptr(name)
            .to_string_lossy()
            .into_owned()
    }
}
