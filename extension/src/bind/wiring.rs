//! Triggers on the bound table, its mid levels and its partitions.
//!
//! Statement triggers fire only for the table that a statement names, so each level has its own. Row triggers
//! serve the replica role; each partition has its own as well, since the server would clone one of the root with
//! the rights of whoever adds a partition. TRUNCATE triggers always fire.

use pgrx::pg_sys;

use crate::binding::{identifier, qualified};
use crate::db;
use crate::error::Fault;

/// A trigger that a level of the table must have.
struct Wire {
    /// What follows the binding's id in its name.
    suffix: &'static str,
    event: &'static str,
    /// `REFERENCING` and `FOR EACH`.
    scope: String,
    /// `pg_trigger.tgenabled`.
    enabled: &'static str,
    /// Only tables that hold rows themselves have it.
    leaf_only: bool,
}

impl Wire {
    fn belongs_to(&self, member: pg_sys::Oid) -> bool {
        // SAFETY: a system cache look-up.
        let kind = unsafe { pg_sys::get_rel_relkind(member) } as u8;
        !self.leaf_only || kind != pg_sys::RELKIND_PARTITIONED_TABLE
    }
}

fn wires() -> [Wire; 5] {
    let statement = |tables: &str| format!("REFERENCING {tables} FOR EACH STATEMENT");
    let (old, new) = ("OLD TABLE AS cortex_old", "NEW TABLE AS cortex_new");
    let wire = |suffix, event, scope, enabled| Wire {
        suffix,
        event,
        scope,
        enabled,
        leaf_only: enabled == "R",
    };
    [
        wire("insert", "INSERT", statement(new), "O"),
        wire("update", "UPDATE", statement(&format!("{old} {new}")), "O"),
        wire("delete", "DELETE", statement(old), "O"),
        wire("truncate", "TRUNCATE", "FOR EACH STATEMENT".into(), "A"),
        wire(
            "replica",
            "INSERT OR UPDATE OR DELETE",
            "FOR EACH ROW".into(),
            "R",
        ),
    ]
}

/// The table and every partition below it, by level.
pub fn tree(relation: pg_sys::Oid) -> Result<Vec<pg_sys::Oid>, Fault> {
    let below = db::write(
        "SELECT relid::pg_catalog.oid FROM pg_catalog.pg_partition_tree($1) WHERE relid <> $1 ORDER BY level, relid",
        &[relation.into()],
        |row| row.must::<pg_sys::Oid>(1),
    )?;
    Ok(std::iter::once(relation).chain(below).collect())
}

/// Makes the triggers that are missing on any level and puts their states right. Answers with the levels.
pub fn install(binding_id: i32, root: pg_sys::Oid) -> Result<Vec<pg_sys::Oid>, Fault> {
    let members = tree(root)?;
    install_on(binding_id, &members)?;
    Ok(members)
}

/// [`install`] on some levels.
pub fn install_on(binding_id: i32, members: &[pg_sys::Oid]) -> Result<(), Fault> {
    for &member in members {
        let table = qualified(member)?;
        let present = present(binding_id, member)?;
        for wire in wires().iter().filter(|wire| wire.belongs_to(member)) {
            let name = name(binding_id, wire.suffix);
            let state = present
                .iter()
                .find(|(present, _)| *present == name)
                .map(|(_, state)| state.as_str());
            if state.is_none() {
                db::execute(
                    &format!(
                        "CREATE TRIGGER {} AFTER {} ON {table} {} EXECUTE FUNCTION cortex._touch('{binding_id}')",
                        identifier(&name),
                        wire.event,
                        wire.scope
                    ),
                    &[],
                )?;
            }
            if state.unwrap_or("O") != wire.enabled {
                let enable = match wire.enabled {
                    "A" => "ENABLE ALWAYS",
                    "R" => "ENABLE REPLICA",
                    _ => "ENABLE",
                };
                db::execute(
                    &format!(
                        "ALTER TABLE ONLY {table} {enable} TRIGGER {}",
                        identifier(&name)
                    ),
                    &[],
                )?;
            }
        }
    }
    Ok(())
}

/// Drops every trigger of the binding from these tables, as far as they exist.
pub fn remove(binding_id: i32, members: &[pg_sys::Oid]) -> Result<(), Fault> {
    for &member in members {
        for (name, _) in present(binding_id, member)? {
            db::execute(
                &format!(
                    "DROP TRIGGER {} ON {}",
                    identifier(&name),
                    qualified(member)?
                ),
                &[],
            )?;
        }
    }
    Ok(())
}

/// Tables that carry triggers of the binding, whether or not they belong to it now.
pub fn wired(binding_id: i32) -> Result<Vec<pg_sys::Oid>, Fault> {
    db::write(
        "SELECT DISTINCT t.tgrelid FROM pg_catalog.pg_trigger t \
          WHERE t.tgfoid = 'cortex._touch()'::pg_catalog.regprocedure AND t.tgparentid = 0 \
            AND t.tgname::text = ANY ($1)",
        &[names(binding_id).into()],
        |row| row.must(1),
    )
}

/// The first trigger of the binding that is missing or has a wrong state on one of these levels.
pub fn flaw(binding_id: i32, members: &[pg_sys::Oid]) -> Result<Option<String>, Fault> {
    for &member in members {
        let present = present(binding_id, member)?;
        for wire in wires().iter().filter(|wire| wire.belongs_to(member)) {
            let name = name(binding_id, wire.suffix);
            let why = match present.iter().find(|(present, _)| *present == name) {
                None => "is missing",
                Some((_, state)) if state != wire.enabled => "was disabled or enabled otherwise",
                Some(_) => continue,
            };
            return Ok(Some(format!(
                "trigger \"{name}\" on {} {why}",
                qualified(member)?
            )));
        }
    }
    Ok(None)
}

/// What the triggers of one level fire for, for the preview.
pub fn described(member: pg_sys::Oid) -> Vec<String> {
    let wires = wires();
    let own = wires.iter().filter(|wire| wire.belongs_to(member));
    own.map(|wire| format!("AFTER {} {}", wire.event, wire.scope))
        .collect()
}

fn present(binding_id: i32, table: pg_sys::Oid) -> Result<Vec<(String, String)>, Fault> {
    db::write(
        "SELECT t.tgname::text, t.tgenabled::text FROM pg_catalog.pg_trigger t \
          WHERE t.tgrelid = $1 AND t.tgfoid = 'cortex._touch()'::pg_catalog.regprocedure AND t.tgparentid = 0 \
            AND t.tgname::text = ANY ($2)",
        &[table.into(), names(binding_id).into()],
        |row| Ok((row.must(1)?, row.must(2)?)),
    )
}

fn names(binding_id: i32) -> Vec<String> {
    wires()
        .iter()
        .map(|wire| name(binding_id, wire.suffix))
        .collect()
}

fn name(binding_id: i32, suffix: &str) -> String {
    format!("cortex_{binding_id}_{suffix}")
}
