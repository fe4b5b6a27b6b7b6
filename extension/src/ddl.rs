//! What DDL does to bindings. No trigger of a table fires for it, so event triggers (`sql/30_ddl.sql`) come here.
//!
//! Everything is judged by the state that the DDL left, not by parsing it: renames are followed, new partitions
//! get their triggers, and where rows may have moved or the triggers cannot be trusted, a hold closes the binding
//! and a job to reconcile it is ordered.

use std::cell::Cell;

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::bind::table::{Choice, Table, Wanted};
use crate::bind::wiring;
use crate::binding::{STORED, Stored, qualified};
use crate::db;
use crate::error::{Fault, Outcome};
use crate::hold;
use crate::reconcile;
use crate::rights::Owner;

/// A binding and what it remembers of its table.
pub struct Wired {
    /// The row.
    pub stored: Stored,
    /// The table that the numbers, types and levels belong to; another one after a restore.
    column_relation: pg_sys::Oid,
    column_numbers: Vec<i16>,
    column_types: Vec<String>,
    wired: Vec<pg_sys::Oid>,
}

/// A binding compared with its table.
pub struct Compared {
    /// The bound columns as they are now.
    pub choice: Choice,
    /// Whether the type of a bound column has changed.
    pub retyped: bool,
}

impl Wired {
    /// Bindings that triggers serve, of those where `which` (a condition on `b`) holds.
    pub fn where_(which: &str, args: &[pgrx::datum::DatumWithOid]) -> Result<Vec<Self>, Fault> {
        db::write(
            &format!(
                "SELECT {STORED}, b.column_relation, b.column_numbers, b.column_types, b.wired \
                   FROM cortex.binding b \
                  WHERE ({which}) AND b.relation <> 0::pg_catalog.oid \
                    AND NOT EXISTS (SELECT FROM cortex.hold h WHERE h.binding_id = b.id AND h.reason = 'unbound' \
                                                                AND h.released_by IS NULL) \
                  ORDER BY b.id"
            ),
            args,
            |row| {
                Ok(Wired {
                    stored: Stored::from_row(row)?,
                    column_relation: row.must(11)?,
                    column_numbers: row.must(12)?,
                    column_types: row.must(13)?,
                    wired: row.must(14)?,
                })
            },
        )
    }

    /// Whether a dump brought the binding here and nobody has looked at its table since. Its column names are
    /// right and all that it remembers beside them is not; its triggers come last in the restore.
    pub fn restored(&self) -> bool {
        self.column_relation != self.stored.relation
    }

    /// Takes over new names of the bound columns.
    pub fn follow_renames(&mut self) -> Result<(), Fault> {
        if self.restored() {
            return Ok(());
        }
        let names = db::write(
            "SELECT a.attname::text FROM pg_catalog.unnest($2) WITH ORDINALITY n (attnum, place) \
               LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = $1 AND a.attnum = n.attnum AND NOT a.attisdropped \
              ORDER BY n.place",
            &[
                self.stored.relation.into(),
                self.column_numbers.clone().into(),
            ],
            |row| Ok(row.get::<String>(1)),
        )?;
        let stored = &mut self.stored;
        let header = stored
            .title_column
            .iter_mut()
            .chain(stored.date_column.iter_mut());
        let columns = stored
            .key_columns
            .iter_mut()
            .chain(&mut stored.text_columns)
            .chain(header);
        for (column, name) in columns.zip(names) {
            if let Some(name) = name {
                *column = name;
            }
        }
        Ok(())
    }

    /// Compares with the table as it is; an error says why the binding cannot go on.
    pub fn compare(&self) -> Result<Compared, Fault> {
        let stored = &self.stored;
        let table = Table::inspect(stored.relation, crate::rights::current_user())?;
        let choice = table.choose(Wanted {
            key: Some(stored.key_columns.clone()),
            text: Some(stored.text_columns.clone()),
            title: stored.title_column.clone(),
            date: stored.date_column.clone(),
        })?;
        let types = choice.columns().map(|column| &column.type_name);
        let retyped = self
            .column_types
            .iter()
            .zip(types)
            .any(|(then, now)| then != now);
        Ok(Compared { retyped, choice })
    }

    /// Writes down the table as it is now. `types` too is for who has compared or will compare all rows.
    pub fn record(&mut self, now: &Compared, types: bool) -> Result<(), Fault> {
        self.wired = wiring::wired(self.stored.id)?;
        self.column_numbers = now.choice.columns().map(|column| column.number).collect();
        if types {
            self.column_types = now
                .choice
                .columns()
                .map(|column| column.type_name.clone())
                .collect();
        }
        let stored = &self.stored;
        db::execute(
            "UPDATE cortex.binding SET key_columns = $2::pg_catalog.name[], text_columns = $3::pg_catalog.name[], \
                    title_column = $4::pg_catalog.name, date_column = $5::pg_catalog.name, column_relation = $6, \
                    column_numbers = $7, column_types = $8, wired = $9, generation = generation + 1 \
              WHERE id = $1",
            &[
                stored.id.into(),
                stored.key_columns.clone().into(),
                stored.text_columns.clone().into(),
                stored.title_column.clone().into(),
                stored.date_column.clone().into(),
                stored.relation.into(),
                self.column_numbers.clone().into(),
                self.column_types.clone().into(),
                self.wired.clone().into(),
            ],
        )?;
        self.column_relation = stored.relation;
        Ok(())
    }

    /// Closes the binding for a reason that is not there yet, and has it reconciled.
    fn hold(&self, detail: &str) -> Result<(), Fault> {
        let known = db::write_one(
            "SELECT EXISTS (SELECT FROM cortex.hold WHERE binding_id = $1 AND reason = 'needs_reconcile' \
                                                      AND detail = $2 AND released_by IS NULL)",
            &[self.stored.id.into(), detail.into()],
            |row| row.must(1),
        )?;
        if known != Some(true) {
            hold::open(
                self.stored.namespace_id,
                self.stored.id,
                "needs_reconcile",
                Some(detail),
            )?;
            pgrx::notice!(
                "cortex holds the claims of \"{}\" back until its rows are compared: {detail}",
                self.stored.name
            );
        }
        reconcile::order(self.stored.namespace_id, self.stored.id, "reconcile")?;
        Ok(())
    }

    /// After DDL that may concern the table.
    fn settle(mut self) -> Result<(), Fault> {
        if self.restored() {
            return self.adopt();
        }
        self.follow_renames()?;
        let now = match self.compare() {
            Ok(now) => now,
            Err(fault) => return self.hold(&fault.sentence()),
        };
        if now.retyped {
            self.hold("the type of a bound column has changed")?;
        }
        let members = wiring::tree(self.stored.relation)?;
        let detached: Vec<pg_sys::Oid> = self
            .wired
            .iter()
            .copied()
            .filter(|member| !members.contains(member))
            .collect();
        if let Some(flaw) = wiring::flaw(self.stored.id, &known(&members, &self.wired))? {
            self.hold(&flaw)?;
        }
        for &member in members.iter().filter(|member| !self.wired.contains(member)) {
            if has_rows(member)? {
                self.hold(&format!(
                    "partition {} was attached with rows",
                    qualified(member)?
                ))?;
            }
        }
        wiring::install_on(self.stored.id, &unknown(&members, &self.wired))?;
        for member in detached {
            if qualified(member).is_ok() {
                wiring::remove(self.stored.id, &[member])?;
                if has_rows(member)? {
                    self.hold(&format!("partition {} was detached", qualified(member)?))?;
                }
            }
        }
        self.record(&now, false)?;
        // What stood in the way of a reconciliation may just have been put right.
        let held = ["fault", "needs_reconcile"].map(|reason| hold::is_open(self.stored.id, reason));
        for open in held {
            if open? {
                reconcile::order(self.stored.namespace_id, self.stored.id, "reconcile")?;
            }
        }
        Ok(())
    }

    /// Why the binding cannot be relied on as it stands, if there is a reason.
    fn flaw(&self) -> Result<Option<String>, Fault> {
        match self.compare() {
            Ok(now) if now.retyped && !self.restored() => {
                Ok(Some("the type of a bound column has changed".into()))
            }
            Ok(_) => wiring::flaw(self.stored.id, &wiring::tree(self.stored.relation)?),
            Err(fault) => Ok(Some(fault.sentence())),
        }
    }

    /// The first look at a restored binding whose triggers are all back.
    fn adopt(mut self) -> Result<(), Fault> {
        let members = wiring::tree(self.stored.relation)?;
        if wiring::flaw(self.stored.id, &members)?.is_some() {
            return Ok(());
        }
        match self.compare() {
            Ok(now) => self.record(&now, true),
            Err(fault) => self.hold(&fault.sentence()),
        }
    }
}

fn known(members: &[pg_sys::Oid], wired: &[pg_sys::Oid]) -> Vec<pg_sys::Oid> {
    members
        .iter()
        .copied()
        .filter(|member| wired.contains(member))
        .collect()
}

fn unknown(members: &[pg_sys::Oid], wired: &[pg_sys::Oid]) -> Vec<pg_sys::Oid> {
    members
        .iter()
        .copied()
        .filter(|member| !wired.contains(member))
        .collect()
}

fn has_rows(table: pg_sys::Oid) -> Result<bool, Fault> {
    let found = db::write_one(
        &format!("SELECT EXISTS (SELECT FROM {})", qualified(table)?),
        &[],
        |row| row.must(1),
    )?;
    Ok(found.unwrap_or(false))
}

thread_local! {
    /// Set while DDL of our own runs, which fires our event triggers.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, whose DDL the event triggers are to leave alone.
pub fn quietly<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    /// Dropped also by a panic, which an ERROR becomes.
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            OURS.set(self.0);
        }
    }
    let _reset = Reset(OURS.replace(true));
    work()
}

/// Runs the work of an event trigger, unless DDL of our own fired it.
fn unless_ours(work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
    if OURS.get() {
        return Ok(());
    }
    let _owner = Owner::enter()?;
    quietly(work)
}

#[pg_extern(sql = r#"
CREATE FUNCTION cortex._binding_flaws() RETURNS TABLE (binding_id integer, flaw text)
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn binding_flaws() -> Result<
    TableIterator<'static, (name!(binding_id, i32), name!(flaw, String))>,
    pg_sys::panic::ErrorReport,
> {
    let _owner = Owner::enter()?;
    let mut flaws = Vec::new();
    for binding in Wired::where_("true", &[])? {
        if let Some(flaw) = binding.flaw()? {
            flaws.push((binding.stored.id, flaw));
        }
    }
    Ok(TableIterator::new(flaws))
}

#[pg_extern(sql = r#"
CREATE FUNCTION cortex._ddl_begins(detaching boolean) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn ddl_begins(detaching: bool) -> Outcome<()> {
    const PARTITIONED: &str =
        "EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = b.relation AND c.relkind = 'p')";
    Ok(unless_ours(|| {
        if detaching {
            for binding in Wired::where_(PARTITIONED, &[])? {
                binding.hold("a partition is being detached")?;
            }
        }
        for binding in Wired::where_("b.column_relation <> b.relation::pg_catalog.oid", &[])? {
            binding.adopt()?;
        }
        Ok(())
    })?)
}

#[pg_extern(sql = r#"
CREATE FUNCTION cortex._ddl_ended(relations oid[], types oid[]) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn ddl_ended(relations: Vec<pg_sys::Oid>, types: Vec<pg_sys::Oid>) -> Outcome<()> {
    const CONCERNED: &str = "b.relation::pg_catalog.oid = ANY ($1) OR b.wired && $1 \
        OR EXISTS (SELECT FROM pg_catalog.pg_partition_tree(b.relation) t WHERE t.relid::pg_catalog.oid = ANY ($1)) \
        OR EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = b.relation AND c.relispartition)";
    const TYPED: &str = "EXISTS (SELECT FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
        WHERE a.attrelid = b.relation AND a.attnum = ANY (b.column_numbers) \
          AND (t.oid = ANY ($1) OR t.typbasetype = ANY ($1)))";
    Ok(unless_ours(|| {
        if !relations.is_empty() {
            for binding in Wired::where_(CONCERNED, &[relations.into()])? {
                binding.settle()?;
            }
        }
        if !types.is_empty() {
            for binding in Wired::where_(TYPED, &[types.into()])? {
                binding.hold("the type of a bound column was altered")?;
            }
        }
        Ok(())
    })?)
}

#[pg_extern(sql = r#"
CREATE FUNCTION cortex._ddl_rewrites(relation oid, reason integer) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn ddl_rewrites(relation: pg_sys::Oid, reason: i32) -> Outcome<()> {
    // Bits of pg_event_trigger_table_rewrite_reason(): new values of a default or generated column; the type of
    // a column or the expression that fills it.
    const VALUES: i32 = 2;
    const COLUMN: i32 = 4;
    const CONCERNED: &str = "b.relation::pg_catalog.oid = $1 OR $1 = ANY (b.wired)";
    const GENERATED: &str = "EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = b.relation \
        AND a.attnum = ANY (b.column_numbers) AND a.attgenerated <> '')";
    Ok(unless_ours(|| {
        let which = match reason {
            reason if reason & COLUMN != 0 => format!("({CONCERNED})"),
            reason if reason & VALUES != 0 => format!("({CONCERNED}) AND {GENERATED}"),
            _ => return Ok(()),
        };
        for binding in Wired::where_(&which, &[relation.into()])? {
            binding.hold("the table was rewritten with other values")?;
        }
        Ok(())
    })?)
}

#[pg_extern(sql = r#"
CREATE FUNCTION cortex._ddl_dropped(tables oid[], column_tables oid[], column_numbers smallint[], others boolean)
    RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn ddl_dropped(
    tables: Vec<pg_sys::Oid>,
    column_tables: Vec<pg_sys::Oid>,
    column_numbers: Vec<i16>,
    others: bool,
) -> Outcome<()> {
    const COLUMN: &str = "EXISTS (SELECT FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) d (relation, number) \
        WHERE d.relation = b.column_relation AND d.number = ANY (b.column_numbers))";
    Ok(unless_ours(|| {
        if !tables.is_empty() {
            for binding in Wired::where_(
                "b.relation::pg_catalog.oid = ANY ($1)",
                &[tables.clone().into()],
            )? {
                let stored = &binding.stored;
                hold::open(
                    stored.namespace_id,
                    stored.id,
                    "unbound",
                    Some("its table was dropped"),
                )?;
                db::execute(
                    "UPDATE cortex.binding SET relation = 0::pg_catalog.oid, wired = '{}', generation = generation + 1 WHERE id = $1",
                    &[stored.id.into()],
                )?;
                reconcile::cancel(stored.id)?;
            }
            for binding in Wired::where_("b.wired && $1", &[tables.into()])? {
                binding.hold("a partition was dropped")?;
                db::execute(
                    "UPDATE cortex.binding SET wired = $2, generation = generation + 1 WHERE id = $1",
                    &[
                        binding.stored.id.into(),
                        wiring::wired(binding.stored.id)?.into(),
                    ],
                )?;
            }
        }
        if !column_tables.is_empty() {
            for binding in Wired::where_(COLUMN, &[column_tables.into(), column_numbers.into()])? {
                binding.hold(
                    "a bound column was dropped; cortex_unbind and cortex_bind with other columns",
                )?;
            }
        }
        if others {
            for binding in Wired::where_("b.column_relation = b.relation::pg_catalog.oid", &[])? {
                let members = known(&wiring::tree(binding.stored.relation)?, &binding.wired);
                if let Some(flaw) = wiring::flaw(binding.stored.id, &members)? {
                    binding.hold(&flaw)?;
                } else if let Err(fault) = binding.compare() {
                    binding.hold(&fault.sentence())?;
                }
            }
        }
        Ok(())
    })?)
}
