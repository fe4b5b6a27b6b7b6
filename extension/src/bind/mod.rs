//! Binding a table to a namespace, and the operator's switches of a binding.

mod preview;
pub mod table;
pub mod wiring;

use pgrx::datum::{AnyArray, JsonB};
use pgrx::pg_sys;
use pgrx::prelude::*;
use serde_json::{Value, json};

use crate::binding::Stored;
use crate::db;
use crate::ddl::quietly;
use crate::error::{Fault, Outcome};
use crate::hold;
use crate::lock::{self, Patience};
use crate::reconcile;
use crate::rights::{self, Owner, Rendering, current_user};
use crate::sources::random_key;
use table::{Choice, Table, Wanted};

/// Binds a table to a namespace: makes its triggers and orders its rows to be loaded. With `preview`, only says
/// what that would do and cost; the answer holds the preview in any case.
///
/// The caller owns the table (or is a superuser) and, if the namespace exists, may read it. The key is the primary
/// key or the named columns of another unique index; text columns default to all text columns that are not key,
/// title or date. The binding is named after the table (`schema.table` if that name is taken) and keeps the name,
/// which is part of every artifact id. A table that was unbound takes its old binding up again, and so does a
/// table under the name of one that was dropped: what has not changed since keeps its version.
///
/// # Errors
/// 25001 outside READ COMMITTED, 55P03 if the table is in use for longer than `lock_timeout` (5 s if unset),
/// 42710 if the table is bound already, 42501, 42703, 42704, 22023, 54000, 55000 and 0A000 with the reason.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex_bind(relation regclass, text_columns name[] DEFAULT NULL, title_column name DEFAULT NULL,
        date_column name DEFAULT NULL, origin text DEFAULT NULL, key_columns name[] DEFAULT NULL,
        namespace text DEFAULT 'default', name text DEFAULT NULL, preview boolean DEFAULT false) RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
#[allow(clippy::too_many_arguments)] // the arguments are the SQL function's
fn cortex_bind(
    relation: Option<pg_sys::Oid>,
    text_columns: Option<AnyArray>,
    title_column: Option<&std::ffi::CStr>,
    date_column: Option<&std::ffi::CStr>,
    origin: Option<String>,
    key_columns: Option<AnyArray>,
    namespace: Option<&str>,
    name: Option<String>,
    preview: Option<bool>,
) -> Outcome<JsonB> {
    let relation = relation
        .ok_or_else(|| Fault::argument("relation is NULL; name the table to bind".into()))?;
    let namespace = namespace.ok_or_else(|| Fault::argument("namespace is NULL".into()))?;
    let wanted = Wanted {
        key: names("key_columns", key_columns)?,
        text: names("text_columns", text_columns)?,
        title: title_column.map(|name| name.to_string_lossy().into_owned()),
        date: date_column.map(|name| name.to_string_lossy().into_owned()),
    };
    let user = current_user();
    let preview = preview.unwrap_or(false);
    if !preview {
        read_committed("cortex_bind")?;
    }
    let _owner = Owner::enter()?;
    let _rendering = Rendering::pin()?;
    let table = Table::inspect(relation, user)?;
    if preview {
        let choice = table.choose(wanted)?;
        return Ok(JsonB(answer(&table, &choice, namespace, None)?));
    }
    lock::table(&table.qualified, Patience::Caller)?;
    let table = Table::inspect(relation, user)?; // as it is now that nobody can change it
    let choice = table.choose(wanted)?;
    let mut told = answer(&table, &choice, namespace, None)?;
    let made = bind(&table, &choice, namespace, user, origin, name)?;
    if let (Value::Object(told), Value::Object(made)) = (&mut told, made) {
        told.extend(made);
    }
    Ok(JsonB(told))
}

/// Wires the table, which is locked, and orders its rows to be loaded.
fn bind(
    table: &Table,
    choice: &Choice,
    namespace: &str,
    user: pg_sys::Oid,
    origin: Option<String>,
    name: Option<String>,
) -> Result<Value, Fault> {
    let namespace_id = namespace_for(namespace, user)?;
    let (name, revived) = name_for(table, namespace, namespace_id, name)?;
    let id = match revived {
        Some(id) => id,
        None => db::write_one(
            "SELECT pg_catalog.nextval('cortex.binding_id_seq')::pg_catalog.int4",
            &[],
            |row| row.must(1),
        )?
        .ok_or_else(|| Fault::internal("no id for the binding".into()))?,
    };
    let wired = quietly(|| wiring::install(id, table.relation))?;
    let list = |columns: &[table::Column]| {
        columns
            .iter()
            .map(|column| column.name.clone())
            .collect::<Vec<_>>()
    };
    let one = |column: &Option<table::Column>| column.as_ref().map(|column| column.name.clone());
    let numbers: Vec<i16> = choice.columns().map(|column| column.number).collect();
    let types: Vec<String> = choice
        .columns()
        .map(|column| column.type_name.clone())
        .collect();
    db::execute(
        "INSERT INTO cortex.binding (id, namespace_id, name, relation, key_columns, text_columns, title_column, date_column, \
                                     origin, column_relation, column_numbers, column_types, wired) \
         VALUES ($1, $2, $3, $4::pg_catalog.regclass, $5::pg_catalog.name[], $6::pg_catalog.name[], $7::pg_catalog.name, \
                 $8::pg_catalog.name, $9, $4, $10, $11, $12) \
         ON CONFLICT ON CONSTRAINT binding_pkey DO UPDATE SET relation = EXCLUDED.relation, \
             key_columns = EXCLUDED.key_columns, text_columns = EXCLUDED.text_columns, \
             title_column = EXCLUDED.title_column, date_column = EXCLUDED.date_column, origin = EXCLUDED.origin, \
             column_relation = EXCLUDED.column_relation, column_numbers = EXCLUDED.column_numbers, \
             column_types = EXCLUDED.column_types, wired = EXCLUDED.wired, generation = binding.generation + 1",
        &[
            id.into(),
            namespace_id.into(),
            name.as_str().into(),
            table.relation.into(),
            list(&choice.key).into(),
            list(&choice.text).into(),
            one(&choice.title).into(),
            one(&choice.date).into(),
            origin.into(),
            numbers.into(),
            types.into(),
            wired.into(),
        ],
    )?;
    let kind = match revived {
        None => "load",
        Some(_) => {
            hold::release(
                namespace_id,
                id,
                &["unbound", "paused", "fault", "needs_reconcile"],
            )?;
            hold::open(
                namespace_id,
                id,
                "needs_reconcile",
                Some("bound again; the rows are being compared"),
            )?;
            "reconcile"
        }
    };
    let job = reconcile::order(namespace_id, id, kind)?;
    Ok(json!({"bound": true, "binding": name, "job": job}))
}

/// Drops a binding's triggers and takes all its versions out of service by one hold. Versions and claims stay for
/// traces, and the binding's row keeps its name for `cortex_bind` to take up again.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex_unbind(binding text, namespace text DEFAULT 'default') RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn cortex_unbind(binding: &str, namespace: &str) -> Outcome<JsonB> {
    read_committed("cortex_unbind")?;
    let user = current_user();
    let _owner = Owner::enter()?;
    let stored = find(binding, namespace, user)?;
    if hold::is_open(stored.id, "unbound")? {
        return Ok(JsonB(
            json!({"binding": stored.name, "unbound": true, "already": true}),
        ));
    }
    hold::open(stored.namespace_id, stored.id, "unbound", None)?;
    let members = wiring::wired(stored.id)?;
    lock::within(Patience::Caller, || {
        quietly(|| wiring::remove(stored.id, &members))
    })?;
    reconcile::cancel(stored.id)?;
    Ok(JsonB(
        json!({"binding": stored.name, "unbound": true, "already": false}),
    ))
}

/// Lets a table change unwatched: its triggers do nothing and none of its versions is current until
/// `cortex_resume`. For bulk loads and migrations.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex_pause(binding text, namespace text DEFAULT 'default') RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn cortex_pause(binding: &str, namespace: &str) -> Outcome<JsonB> {
    let user = current_user();
    let _owner = Owner::enter()?;
    let stored = find(binding, namespace, user)?;
    refuse_unbound(&stored)?;
    let already = hold::is_open(stored.id, "paused")?;
    if !already {
        hold::open(stored.namespace_id, stored.id, "paused", None)?;
    }
    Ok(JsonB(
        json!({"binding": stored.name, "paused": true, "already": already}),
    ))
}

/// Ends a pause: compares all rows in this transaction, writers locked out meanwhile, and serves the binding again.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex_resume(binding text, namespace text DEFAULT 'default') RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn cortex_resume(binding: &str, namespace: &str) -> Outcome<JsonB> {
    read_committed("cortex_resume")?;
    let user = current_user();
    let _owner = Owner::enter()?;
    let stored = find(binding, namespace, user)?;
    refuse_unbound(&stored)?;
    if !hold::is_open(stored.id, "paused")? {
        return Ok(JsonB(
            json!({"binding": stored.name, "paused": false, "already": true}),
        ));
    }
    let mut told = reconcile::now(stored.id)?;
    told["paused"] = json!(false);
    told["already"] = json!(false);
    Ok(JsonB(told))
}

/// Compares all rows of a binding in this transaction, writers locked out meanwhile, and releases its holds. It also
/// finds what no trigger saw, as after `ALTER TABLE ... DISABLE TRIGGER`, and makes missing triggers anew.
#[pg_extern(sql = r#"
CREATE FUNCTION cortex_reconcile(binding text, namespace text DEFAULT 'default') RETURNS jsonb
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn cortex_reconcile(binding: &str, namespace: &str) -> Outcome<JsonB> {
    read_committed("cortex_reconcile")?;
    let user = current_user();
    let _owner = Owner::enter()?;
    let stored = find(binding, namespace, user)?;
    refuse_unbound(&stored)?;
    if hold::is_open(stored.id, "paused")? {
        Err(
            Fault::state(format!("binding \"{}\" is paused", stored.name))
                .hint("cortex_resume(binding) reconciles it and lets it go on."),
        )?;
    }
    Ok(JsonB(reconcile::now(stored.id)?))
}

fn refuse_unbound(stored: &Stored) -> Result<(), Fault> {
    if hold::is_open(stored.id, "unbound")? {
        return Err(
            Fault::state(format!("binding \"{}\" is unbound", stored.name))
                .hint("Bind its table again with cortex_bind."),
        );
    }
    Ok(())
}

/// The binding, if `user` owns its table. One of somebody else's answers like one that does not exist.
fn find(name: &str, namespace: &str, user: pg_sys::Oid) -> Result<Stored, Fault> {
    let found = db::write_one(
        &format!(
            "SELECT {}, COALESCE((SELECT pg_catalog.pg_has_role($3, c.relowner, 'usage') \
                                    FROM pg_catalog.pg_class c WHERE c.oid = b.relation), false) \
               FROM cortex.binding b JOIN cortex.namespace n ON n.id = b.namespace_id \
              WHERE b.name = $1 AND n.name = $2",
            crate::binding::STORED
        ),
        &[name.into(), namespace.into(), user.into()],
        |row| Ok((Stored::from_row(row)?, row.must::<bool>(11)?)),
    )?;
    // SAFETY: a catalog look-up.
    let all = unsafe { pg_sys::superuser_arg(user) };
    match found {
        Some((stored, owned)) if owned || all => Ok(stored),
        _ => Err(Fault::unknown(format!(
            "namespace \"{namespace}\" has no binding \"{name}\" of a table of yours"
        ))
        .hint("View cortex.bindings lists bindings by name.")),
    }
}

/// The namespace to bind into, made if it is missing. Into one that exists, who may read it may bind.
fn namespace_for(name: &str, user: pg_sys::Oid) -> Result<i32, Fault> {
    db::execute(
        "INSERT INTO cortex.installation DEFAULT VALUES ON CONFLICT ON CONSTRAINT installation_pkey DO NOTHING",
        &[],
    )?;
    if name.is_empty() || name.len() > 200 {
        return Err(Fault::argument(format!(
            "a namespace is named in 1 to 200 bytes, \"{name}\" has {}",
            name.len()
        )));
    }
    let made = db::write_one(
        "INSERT INTO cortex.namespace (name, secret) VALUES ($1, $2) \
         ON CONFLICT ON CONSTRAINT namespace_name_key DO NOTHING RETURNING id",
        &[name.into(), random_key()?.to_vec().into()],
        |row| row.must::<i32>(1),
    )?;
    // SAFETY: a catalog look-up.
    let superuser = unsafe { pg_sys::superuser_arg(user) };
    if let Some(id) = made {
        if !superuser {
            db::execute(
                "INSERT INTO cortex.namespace_grant (namespace_id, role) VALUES ($1, $2::pg_catalog.regrole)",
                &[id.into(), user.into()],
            )?;
        }
        return Ok(id);
    }
    // As it is now: an earlier call in the same statement may have made it.
    let known = db::write_one(
        "SELECT n.id, EXISTS (SELECT FROM cortex.namespace_grant g \
                               WHERE g.namespace_id = n.id AND pg_catalog.pg_has_role($2, g.role, 'usage')) \
           FROM cortex.namespace n WHERE n.name = $1",
        &[name.into(), user.into()],
        |row| Ok((row.must::<i32>(1)?, row.must::<bool>(2)?)),
    )?;
    let Some((id, _)) = known.filter(|(_, granted)| *granted || superuser) else {
        return Err(rights::unreadable(name));
    };
    // Bindings of one namespace are made one after another: their names are settled by looking.
    db::execute(
        "SELECT FROM cortex.namespace WHERE id = $1 FOR NO KEY UPDATE",
        &[id.into()],
    )?;
    Ok(id)
}

/// The name of the binding, and the unbound binding that it brings back, if any: the one of this table, or
/// one of the same name whose table is gone (or that the caller names).
fn name_for(
    table: &Table,
    namespace: &str,
    namespace_id: i32,
    asked: Option<String>,
) -> Result<(String, Option<i32>), Fault> {
    let here = known(
        namespace_id,
        "b.relation = $2::pg_catalog.oid",
        table.relation.into(),
    )?;
    if let Some(Known {
        id, name, unbound, ..
    }) = here
    {
        if !unbound {
            return Err(Fault::duplicate(format!(
                "{} is bound already, as \"{name}\" in namespace \"{namespace}\"",
                table.qualified
            ))
            .hint("cortex_unbind first to bind other columns, or bind it in another namespace."));
        }
        if asked.as_ref().is_some_and(|asked| *asked != name) {
            return Err(Fault::duplicate(format!(
                "{} was bound as \"{name}\", and a binding keeps its name",
                table.qualified
            ))
            .hint("Leave out the name."));
        }
        return Ok((name, Some(id)));
    }
    let named = asked.is_some();
    let candidates = match asked {
        Some(asked) if asked.is_empty() || asked.len() > 200 => {
            return Err(Fault::argument(format!(
                "a binding is named in 1 to 200 bytes, \"{asked}\" has {}",
                asked.len()
            )));
        }
        Some(asked) => vec![asked],
        None => vec![
            table.name.clone(),
            format!("{}.{}", table.schema, table.name),
        ],
    };
    for name in &candidates {
        match known(namespace_id, "b.name = $2", name.as_str().into())? {
            None => return Ok((name.clone(), None)),
            Some(Known {
                id,
                unbound: true,
                gone,
                ..
            }) if gone || named => return Ok((name.clone(), Some(id))),
            Some(_) => {}
        }
    }
    Err(Fault::duplicate(format!(
        "namespace \"{namespace}\" has another binding named \"{}\"",
        candidates.join("\" and \"")
    ))
    .hint("Choose a name for the binding: cortex_bind(..., name => '...')."))
}

struct Known {
    id: i32,
    name: String,
    unbound: bool,
    gone: bool,
}

fn known(
    namespace_id: i32,
    which: &str,
    value: pgrx::datum::DatumWithOid,
) -> Result<Option<Known>, Fault> {
    db::write_one(
        &format!(
            "SELECT b.id, b.name, \
                    EXISTS (SELECT FROM cortex.hold h WHERE h.binding_id = b.id AND h.reason = 'unbound' \
                                                        AND h.released_by IS NULL), \
                    NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = b.relation) \
               FROM cortex.binding b WHERE b.namespace_id = $1 AND {which}"
        ),
        &[namespace_id.into(), value],
        |row| {
            Ok(Known {
                id: row.must(1)?,
                name: row.must(2)?,
                unbound: row.must(3)?,
                gone: row.must(4)?,
            })
        },
    )
}

fn answer(
    table: &Table,
    choice: &Choice,
    namespace: &str,
    binding: Option<&str>,
) -> Result<Value, Fault> {
    let list = |columns: &[table::Column]| {
        columns
            .iter()
            .map(|column| column.name.clone())
            .collect::<Vec<_>>()
    };
    let one = |column: &Option<table::Column>| column.as_ref().map(|column| column.name.clone());
    Ok(json!({
        "bound": false,
        "binding": binding,
        "namespace": namespace,
        "table": table.qualified,
        "key_columns": list(&choice.key),
        "text_columns": list(&choice.text),
        "title_column": one(&choice.title),
        "date_column": one(&choice.date),
        "preview": preview::of(table, choice)?,
    }))
}

fn read_committed(function: &str) -> Result<(), Fault> {
    // SAFETY: reads a backend variable.
    if unsafe { pg_sys::XactIsoLevel } >= pg_sys::XACT_REPEATABLE_READ as i32 {
        return Err(Fault::transaction(format!("{function} works in READ COMMITTED only"))
            .detail("An older snapshot would miss rows that were committed before the triggers existed.")
            .hint("BEGIN ISOLATION LEVEL READ COMMITTED, or call it outside a transaction block."));
    }
    Ok(())
}

/// The elements of a `name[]`.
fn names(argument: &str, array: Option<AnyArray>) -> Result<Option<Vec<String>>, Fault> {
    let Some(array) = array else {
        return Ok(None);
    };
    let (mut elements, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
    // SAFETY: the declared type of the argument is name[]; the server allocates what it answers with, and a
    // name is a NUL-terminated string of at most 64 bytes.
    unsafe {
        pg_sys::deconstruct_array(
            pg_sys::pg_detoast_datum(array.datum().cast_mut_ptr()).cast(),
            pg_sys::NAMEOID,
            pg_sys::NAMEDATALEN as i32,
            false,
            pg_sys::TYPALIGN_CHAR as std::ffi::c_char,
            &mut elements,
            &mut nulls,
            &mut count,
        );
        (0..count as usize)
            .map(|i| {
                if *nulls.add(i) {
                    return Err(Fault::argument(format!("{argument} holds NULL")));
                }
                let name =
                    std::ffi::CStr::from_ptr((*elements.add(i)).cast_mut_ptr::<std::ffi::c_char>());
                Ok(name.to_string_lossy().into_owned())
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Some)
    }
}
