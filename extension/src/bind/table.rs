//! The table to be bound, as the catalog shows it, and what of it can be bound.

use pgrx::pg_sys;

use crate::binding::qualified;
use crate::db::{self, Row};
use crate::error::Fault;

/// A column of the table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Name, unquoted.
    pub name: String,
    /// Position in the catalog, kept to follow a rename.
    pub number: i16,
    /// Type with modifiers as SQL writes it, kept to notice a change.
    pub type_name: String,
    base: pg_sys::Oid,
    not_null: bool,
    is_virtual: bool,
    deterministic: bool,
}

/// A type without its domains.
struct BaseType {
    name: String,
    kind: String,
    category: String,
    from_catalog: bool,
    elements_from_catalog: bool,
    equality_from_catalog: bool,
}

/// A table that may be bound.
pub struct Table {
    /// Its oid.
    pub relation: pg_sys::Oid,
    /// Qualified and quoted name.
    pub qualified: String,
    /// Schema, unquoted.
    pub schema: String,
    /// Name, unquoted.
    pub name: String,
    columns: Vec<Column>,
}

/// What a caller asks to be bound; `None` where the table decides.
pub struct Wanted {
    /// Columns of the key.
    pub key: Option<Vec<String>>,
    /// Columns of the content.
    pub text: Option<Vec<String>>,
    /// Column of the title.
    pub title: Option<String>,
    /// Column of the date.
    pub date: Option<String>,
}

/// The columns that a binding takes.
pub struct Choice {
    /// Columns of the key.
    pub key: Vec<Column>,
    /// Columns of the content, at least one.
    pub text: Vec<Column>,
    /// Column of the title.
    pub title: Option<Column>,
    /// Column of the date.
    pub date: Option<Column>,
}

impl Choice {
    /// All columns: key, text, title, date.
    pub fn columns(&self) -> impl Iterator<Item = &Column> {
        self.key
            .iter()
            .chain(&self.text)
            .chain(self.title.iter())
            .chain(self.date.iter())
    }
}

/// Most columns of a key.
const MAX_KEY: usize = 8;
/// Most columns of content.
const MAX_TEXT: usize = 64;

impl Table {
    /// Looks the table up and checks that `user` may bind it. Call it as the schema's owner.
    pub fn inspect(relation: pg_sys::Oid, user: pg_sys::Oid) -> Result<Self, Fault> {
        let unknown =
            || Fault::unknown(format!("there is no table with oid {}", relation.to_u32()));
        let (schema, name, kind, persistence, partition, owned, foreign) = db::write_one(
            "SELECT n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, c.relispartition, \
                    pg_catalog.pg_has_role($2, c.relowner, 'usage'), \
                    (SELECT p.relid::pg_catalog.regclass::text FROM pg_catalog.pg_partition_tree(c.oid) p \
                       JOIN pg_catalog.pg_class l ON l.oid = p.relid WHERE l.relkind = 'f' LIMIT 1) \
               FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
              WHERE c.oid = $1",
            &[relation.into(), user.into()],
            |row| {
                Ok((
                    row.must::<String>(1)?,
                    row.must::<String>(2)?,
                    row.must::<String>(3)?,
                    row.must::<String>(4)?,
                    row.must::<bool>(5)?,
                    row.must::<bool>(6)?,
                    row.get::<String>(7),
                ))
            },
        )?
        .ok_or_else(unknown)?;
        // SAFETY: a catalog look-up.
        if !owned && !unsafe { pg_sys::superuser_arg(user) } {
            return Err(Fault::privilege(format!(
                "you are not the owner of \"{schema}\".\"{name}\""
            ))
            .hint("The owner of a table, or a superuser, binds it."));
        }
        let refuse = |why: &str| {
            Err(Fault::unsupported(format!(
                "\"{schema}\".\"{name}\" cannot be bound: {why}"
            )))
        };
        match kind.as_str() {
            "r" | "p" => {}
            "v" | "m" => {
                return refuse(
                    "it is a view, and no trigger sees a view change; bind the tables it reads",
                );
            }
            "f" => {
                return refuse("it is a foreign table, and no trigger sees a foreign table change");
            }
            _ => return refuse("it is not a table"),
        }
        if persistence != "p" {
            return refuse("it is temporary or unlogged, so it can lose rows without any trigger");
        }
        if partition {
            return refuse("it is a partition; bind the partitioned table at the root");
        }
        if let Some(foreign) = foreign {
            return refuse(&format!(
                "its partition {foreign} is a foreign table, which no trigger can watch"
            ));
        }
        if ["pg_catalog", "information_schema", "cortex"].contains(&schema.as_str()) {
            return refuse("it belongs to the system");
        }
        // SAFETY: reads a backend variable.
        if unsafe { pg_sys::GetDatabaseEncoding() } != pg_sys::pg_enc::PG_UTF8 as i32 {
            return refuse("the encoding of this database is not UTF8");
        }
        Ok(Table {
            relation,
            qualified: qualified(relation)?,
            schema,
            name,
            columns: columns(relation)?,
        })
    }

    /// Settles which columns are bound.
    pub fn choose(&self, wanted: Wanted) -> Result<Choice, Fault> {
        let key = self.key(wanted.key)?;
        let title = wanted
            .title
            .map(|name| self.content_column(&name, "title_column"))
            .transpose()?;
        let date = wanted
            .date
            .map(|name| self.content_column(&name, "date_column"))
            .transpose()?;
        let text = match wanted.text {
            Some(names) => {
                check_names("text_columns", &names, MAX_TEXT)?;
                names
                    .iter()
                    .map(|name| self.content_column(name, "text_columns"))
                    .collect::<Result<Vec<_>, _>>()?
            }
            None => {
                let taken = |column: &Column| {
                    let header = title.iter().chain(date.iter());
                    key.iter()
                        .chain(header)
                        .any(|other| other.number == column.number)
                };
                let mut text = Vec::new();
                for column in self.columns.iter().filter(|column| !taken(column)) {
                    if column.is_text()?
                        && self.content_column(&column.name, "text_columns").is_ok()
                    {
                        text.push(column.clone());
                    }
                }
                if text.len() > MAX_TEXT {
                    return Err(Fault::limit(format!(
                        "{} has {} text columns; a binding takes up to {MAX_TEXT}",
                        self.qualified,
                        text.len()
                    ))
                    .hint(
                        "Name the columns that hold the content: text_columns => ARRAY['...'].",
                    ));
                }
                text
            }
        };
        if text.is_empty() {
            return Err(Fault::argument(format!(
                "{} has no text column left to bind",
                self.qualified
            ))
            .detail(self.available())
            .hint("Name the columns that hold the content: text_columns => ARRAY['...']."));
        }
        Ok(Choice {
            key,
            text,
            title,
            date,
        })
    }

    fn key(&self, wanted: Option<Vec<String>>) -> Result<Vec<Column>, Fault> {
        let indexes = unique_indexes(self.relation)?;
        let candidates = || {
            let lists: Vec<String> = indexes
                .iter()
                .filter(|i| i.usable)
                .map(|i| format!("({})", i.columns.join(", ")))
                .collect();
            if lists.is_empty() {
                "none".into()
            } else {
                lists.join(", ")
            }
        };
        let names = match wanted {
            Some(names) => {
                check_names("key_columns", &names, MAX_KEY)?;
                for name in &names {
                    self.column(name, "key_columns")?;
                }
                let same = |index: &&UniqueIndex| {
                    index.columns.len() == names.len()
                        && index.columns.iter().all(|column| names.contains(column))
                };
                if !indexes.iter().filter(same).any(|index| index.usable) {
                    return Err(Fault::state(format!("({}) is not a usable key of {}", names.join(", "), self.qualified))
                        .detail(format!(
                            "A key is a valid unique index on exactly these columns, not partial, not deferrable, without \
                             expressions, with the types' default operators. Such indexes: {}.",
                            candidates()
                        ))
                        .hint("Create a unique index on the columns, or name the columns of another one."));
                }
                names
            }
            None => match indexes.iter().find(|index| index.primary) {
                Some(index) if index.usable && index.columns.len() > MAX_KEY => {
                    return Err(Fault::limit(format!(
                        "the primary key of {} has {} columns; a key takes up to {MAX_KEY}",
                        self.qualified,
                        index.columns.len()
                    ))
                    .hint("Name a shorter unique index: key_columns => ARRAY['...']."));
                }
                Some(index) if index.usable => index.columns.clone(),
                _ => {
                    return Err(Fault::state(format!("{} has no usable primary key", self.qualified))
                        .detail(format!("Unique indexes that could serve instead: {}.", candidates()))
                        .hint("Add a primary key that is not deferrable, or name a unique index: key_columns => ARRAY['...']."));
                }
            },
        };
        names.iter().map(|name| self.key_column(name)).collect()
    }

    fn key_column(&self, name: &str) -> Result<Column, Fault> {
        let column = self.column(name, "key_columns")?;
        let refuse = |why: String| {
            Err(Fault::unsupported(format!(
                "column \"{name}\" cannot be part of a key: {why}"
            )))
        };
        let base = BaseType::of(column.base)?;
        if !column.not_null {
            return Err(Fault::state(format!(
                "column \"{name}\" cannot be part of a key: it may be NULL"
            ))
            .hint(format!(
                "ALTER TABLE {} ALTER COLUMN \"{name}\" SET NOT NULL",
                self.qualified
            )));
        }
        if !column.deterministic {
            return refuse(
                "its collation is not deterministic, so different texts can be equal".into(),
            );
        }
        if !base.equality_from_catalog {
            return refuse(format!(
                "equality of type {} is defined outside the server",
                base.name
            ));
        }
        column.refuse_unsteady(&base)?;
        Ok(column)
    }

    fn content_column(&self, name: &str, argument: &str) -> Result<Column, Fault> {
        let column = self.column(name, argument)?;
        column.refuse_unsteady(&BaseType::of(column.base)?)?;
        Ok(column)
    }

    fn column(&self, name: &str, argument: &str) -> Result<Column, Fault> {
        self.columns
            .iter()
            .find(|column| column.name == name)
            .cloned()
            .ok_or_else(|| {
                Fault::undefined_column(format!(
                    "{argument}: {} has no column \"{name}\"",
                    self.qualified
                ))
                .detail(self.available())
            })
    }

    fn available(&self) -> String {
        const SHOWN: usize = 40;
        let names: Vec<String> = self
            .columns
            .iter()
            .take(SHOWN)
            .map(|column| format!("\"{}\"", column.name))
            .collect();
        let more = if self.columns.len() > SHOWN {
            ", ..."
        } else {
            ""
        };
        format!("Columns of the table: {}{more}.", names.join(", "))
    }
}

impl Column {
    fn is_text(&self) -> Result<bool, Fault> {
        Ok(self.base != pg_sys::NAMEOID && BaseType::of(self.base)?.category == "S")
    }

    /// Refuses columns whose text can change while no row does, or whose text would run code of a type's owner
    /// with our rights.
    fn refuse_unsteady(&self, base: &BaseType) -> Result<(), Fault> {
        let refuse = |why: &str| {
            Err(Fault::unsupported(format!(
                "column \"{}\" of type {} cannot be bound: {why}",
                self.name, base.name
            )))
        };
        if self.is_virtual {
            return refuse(
                "it is a virtual generated column, which changes with its expression and no row is written",
            );
        }
        if base.name.starts_with("reg") && base.from_catalog {
            return refuse("its text is the name of an object, which can be renamed");
        }
        if base.name == "money" && base.from_catalog {
            return refuse("its text depends on the server's locale");
        }
        match base.kind.as_str() {
            "b" if base.elements_from_catalog => Ok(()),
            "e" => Ok(()),
            "r" | "m" if base.from_catalog => Ok(()),
            _ => refuse(
                "only base types, enums, built-in ranges and domains over them are supported",
            ),
        }
    }
}

impl BaseType {
    fn of(oid: pg_sys::Oid) -> Result<Self, Fault> {
        db::write_one(
            "SELECT t.typname::text, t.typtype::text, t.typcategory::text, \
                    t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace, \
                    t.typelem = 0 OR e.typnamespace = 'pg_catalog'::pg_catalog.regnamespace \
               FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem WHERE t.oid = $1",
            &[oid.into()],
            |row| {
                Ok(BaseType {
                    name: row.must(1)?,
                    kind: row.must(2)?,
                    category: row.must(3)?,
                    from_catalog: row.must(4)?,
                    elements_from_catalog: row.must(5)?,
                    equality_from_catalog: equality_from_catalog(oid)?,
                })
            },
        )?
        .ok_or_else(|| Fault::internal(format!("type {} is gone", oid.to_u32())))
    }
}

/// Whether the equality of the type's default btree (or hash) operators comes with the server.
fn equality_from_catalog(oid: pg_sys::Oid) -> Result<bool, Fault> {
    // SAFETY: a type cache look-up; the entry lives as long as the backend.
    let operator =
        unsafe { (*pg_sys::lookup_type_cache(oid, pg_sys::TYPECACHE_EQ_OPR as i32)).eq_opr };
    let found = db::write_one(
        "SELECT oprnamespace = 'pg_catalog'::pg_catalog.regnamespace AND oprname = '=' \
           FROM pg_catalog.pg_operator WHERE oid = $1",
        &[operator.into()],
        |row| row.must(1),
    )?;
    Ok(found.unwrap_or(false))
}

struct UniqueIndex {
    primary: bool,
    usable: bool,
    columns: Vec<String>,
}

/// Unique indexes of plain columns.
fn unique_indexes(relation: pg_sys::Oid) -> Result<Vec<UniqueIndex>, Fault> {
    db::write(
        "SELECT i.indisprimary, \
                i.indisvalid AND i.indimmediate AND i.indpred IS NULL \
                AND NOT EXISTS (SELECT FROM pg_catalog.unnest(i.indclass) oc (id) \
                                  JOIN pg_catalog.pg_opclass o ON o.oid = oc.id WHERE NOT o.opcdefault) \
                AND NOT EXISTS (SELECT FROM pg_catalog.unnest(i.indcollation) ic (id) \
                                  JOIN pg_catalog.pg_collation l ON l.oid = ic.id WHERE NOT l.collisdeterministic), \
                ARRAY(SELECT a.attname::text \
                        FROM pg_catalog.generate_series(0, i.indnkeyatts - 1) k (n) \
                        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n] \
                       ORDER BY k.n) \
           FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
          WHERE i.indrelid = $1 AND i.indisunique AND i.indexprs IS NULL ORDER BY c.relname",
        &[relation.into()],
        |row| {
            Ok(UniqueIndex {
                primary: row.must(1)?,
                usable: row.must(2)?,
                columns: row.must(3)?,
            })
        },
    )
}

fn columns(relation: pg_sys::Oid) -> Result<Vec<Column>, Fault> {
    db::write(
        "SELECT a.attname::text, a.attnum, pg_catalog.format_type(a.atttypid, a.atttypmod), a.atttypid, \
                a.attnotnull, a.attgenerated = 'v', COALESCE(c.collisdeterministic, true) \
           FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation \
          WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        &[relation.into()],
        |row: &Row| {
            Ok(Column {
                name: row.must(1)?,
                number: row.must(2)?,
                type_name: row.must(3)?,
                // SAFETY: a system cache look-up.
                base: unsafe { pg_sys::getBaseType(row.must(4)?) },
                not_null: row.must(5)?,
                is_virtual: row.must(6)?,
                deterministic: row.must(7)?,
            })
        },
    )
}

fn check_names(argument: &str, names: &[String], most: usize) -> Result<(), Fault> {
    if names.is_empty() || names.len() > most {
        return Err(Fault::argument(format!(
            "{argument} has {} names; it takes 1 to {most}",
            names.len()
        )));
    }
    for (i, name) in names.iter().enumerate() {
        if names[..i].contains(name) {
            return Err(Fault::argument(format!(
                "{argument} names \"{name}\" twice"
            )));
        }
    }
    Ok(())
}
