//! Triggers on the bound table, its mid levels and its partitions.
//!
//! Statement triggers fire only for the table that a statement names, so each level has its own. Row triggers
//! serve the replica role and are cloned to partitions by the server. TRUNCATE triggers always fire.

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
    /// Only the root has it.
    root_only: bool,
}

fn wires() -> [Wire; 5] {
    let statement = |tables: &str| format!("REFERENCING {tables} FOR EACH STATEMENT");
    let (old, new) = ("OLD TABLE AS cortex_old", "NEW TABLE AS cortex_new");
    let wire = |suffix, event, scope, enabled| Wire {
        suffix,
        event,
        scope,
        enabled,
        root_only: enabled == "R",
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
    install_on(binding_id, root, &members)?;
    Ok(members)
}

/// [`install`] on some levels.
pub fn install_on(
    binding_id: i32,
    root: pg_sys::Oid,
    members: &[pg_sys::Oid],
) -> Result<(), Fault> {
    for &member in members {
        let table = qualified(member)?;
        let present = present(binding_id, member)?;
        for wire in wires()
            .iter()
            .filter(|wire| member == root || !wire.root_only)
        {
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
                // Without ONLY, the state reaches the clones on partitions.
                let (only, enable) = match wire.enabled {
                    "A" => ("ONLY ", "ENABLE ALWAYS"),
                    "R" => ("", "ENABLE REPLICA"),
                    _ => ("ONLY ", "ENABLE"),
                };
                db::execute(
                    &format!(
                        "ALTER TABLE {only}{table} {enable} TRIGGER {}",
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
pub fn flaw(
    binding_id: i32,
    members: &[pg_sys::Oid],
    root: pg_sys::Oid,
) -> Result<Option<String>, Fault> {
    for &member in members {
        let present = present(binding_id, member)?;
        for wire in wires()
            .iter()
            .filter(|wire| member == root || !wire.root_only)
        {
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

/// Names of the triggers on one level, for the preview: event and scope.
pub fn described(root: bool) -> Vec<String> {
    wires()
        .iter()
        .filter(|wire| root || !wire.root_only)
        .map(|wire| format!("AFTER {} {}", wire.event, wire.scope))
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
