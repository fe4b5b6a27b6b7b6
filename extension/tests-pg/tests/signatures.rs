//! The catalog of a fresh database against the ledger of promised signatures, and the rules that hold for all
//! of its objects. Needs a server in CORTEX_TEST_PG18_URL or CORTEX_TEST_PG16_URL.

use std::collections::{BTreeMap, BTreeSet};

use cortex_extension_tests::{Database, one};
use postgres::Client;

/// A promised function: its line of the ledger in one normal form, and its volatility where the ledger says it.
struct Promised {
    signature: String,
    volatility: Option<&'static str>,
}

fn ledger() -> &'static str {
    include_str!("../../../sql/signatures.txt")
}

fn promised_functions() -> Vec<Promised> {
    let mut section_volatility = None;
    let mut functions = Vec::new();
    for line in ledger().lines() {
        if line.starts_with("## ") {
            section_volatility = volatility(line);
        } else if line.starts_with("cortex_") {
            let (code, comment) = line.split_once(" -- ").unwrap_or((line, ""));
            functions.push(Promised {
                signature: code.trim().to_owned(),
                volatility: volatility(comment).or(section_volatility),
            });
        }
    }
    functions
}

fn volatility(text: &str) -> Option<&'static str> {
    ["IMMUTABLE", "STABLE", "VOLATILE"]
        .into_iter()
        .find(|word| text.contains(word))
}

/// `name(argument type = default, ...) -> result` of every function of the extension outside schema cortex.
fn functions(client: &mut Client) -> BTreeMap<String, String> {
    let sql = "
        SELECT p.proname || '(' || p.arguments || ') -> ' || p.result, p.volatility
          FROM (SELECT p.proname, p.oid,
                       CASE p.provolatile WHEN 'i' THEN 'IMMUTABLE' WHEN 's' THEN 'STABLE' ELSE 'VOLATILE' END AS volatility,
                       pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
                  FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
                  JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'cortex'
                 WHERE p.pronamespace <> 'cortex'::regnamespace) p";
    client
        .query(sql, &[])
        .unwrap()
        .iter()
        .map(|row| (normal(row.get(0)), row.get(1)))
        .collect()
}

/// The server's way of writing a signature in the ledger's: `name type DEFAULT 'x'::t` as `name type = 'x'`.
fn normal(signature: &str) -> String {
    let mut text = signature.replace(" DEFAULT ", " = ");
    for cast in [
        "text",
        "vector",
        "vector[]",
        "jsonb",
        "name[]",
        "name",
        "text[]",
        "interval",
        "integer",
        "bigint",
        "bigint[]",
        "timestamp with time zone",
    ] {
        for value in ["NULL", "'"] {
            text = text.replace(&format!("{value}::{cast},"), &format!("{value},"));
            text = text.replace(&format!("{value}::{cast})"), &format!("{value})"));
        }
    }
    text
}

#[test]
fn the_ledger_and_the_catalog_say_the_same() {
    let (_database, mut client) = Database::with_cortex();
    let made = functions(&mut client);
    // An interval is shown as the server prints it.
    let promised: BTreeMap<String, Option<&str>> = promised_functions()
        .into_iter()
        .map(|promised| {
            (
                promised.signature.replace("'60 seconds'", "'00:01:00'"),
                promised.volatility,
            )
        })
        .collect();
    let missing: Vec<&String> = promised
        .keys()
        .filter(|signature| !made.contains_key(*signature))
        .collect();
    let extra: Vec<&String> = made
        .keys()
        .filter(|signature| !promised.contains_key(*signature))
        .collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "promised and not there: {missing:#?}\nthere and not promised: {extra:#?}"
    );
    for (signature, volatility) in &promised {
        if let Some(volatility) = volatility {
            assert_eq!(&made[signature], volatility, "{signature}");
        }
    }
}

#[test]
fn views_have_the_promised_columns() {
    let (_database, mut client) = Database::with_cortex();
    let mut promised: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in ledger().lines().filter(|line| line.starts_with("cortex.")) {
        let (view, columns) = line
            .split_once("--")
            .unwrap_or_else(|| panic!("{line}: no columns"));
        // Remarks in brackets are for people.
        let mut depth = 0;
        let columns: String = columns
            .chars()
            .filter(|c| {
                depth += i32::from(*c == '(') - i32::from(*c == ')');
                depth == 0 && *c != ')'
            })
            .collect();
        promised.insert(
            view.trim().to_owned(),
            columns
                .split(',')
                .map(|column| column.trim().to_owned())
                .collect(),
        );
    }
    let rows = client
        .query(
            "SELECT 'cortex.' || c.relname, array_agg(a.attname::text ORDER BY a.attnum) \
               FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
              WHERE c.relnamespace = 'cortex'::regnamespace AND c.relkind IN ('v', 'm') AND c.relname NOT LIKE '\\_%' GROUP BY 1",
            &[],
        )
        .unwrap();
    let made: BTreeMap<String, Vec<String>> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(made, promised);
}

#[test]
fn nothing_is_public() {
    let (_database, mut client) = Database::with_cortex();
    let open = client
        .query(
            "WITH ours AS (SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid \
                            WHERE d.deptype = 'e' AND e.extname = 'cortex') \
             SELECT p.oid::regprocedure::text FROM pg_proc p JOIN ours ON ours.objid = p.oid AND ours.classid = 'pg_proc'::regclass, \
                    aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee = 0 \
             UNION ALL \
             SELECT c.oid::regclass::text FROM pg_class c JOIN ours ON ours.objid = c.oid AND ours.classid = 'pg_class'::regclass, \
                    aclexplode(c.relacl) a WHERE a.grantee = 0 \
             UNION ALL \
             SELECT n.nspname FROM pg_namespace n JOIN ours ON ours.objid = n.oid AND ours.classid = 'pg_namespace'::regclass, \
                    aclexplode(n.nspacl) a WHERE a.grantee = 0",
            &[],
        )
        .unwrap();
    let open: Vec<String> = open.iter().map(|row| row.get(0)).collect();
    assert!(open.is_empty(), "PUBLIC has rights on {open:#?}");
    let functions: i64 = one(
        &mut client,
        "SELECT count(*) FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid \
          WHERE d.deptype = 'e' AND e.extname = 'cortex' AND d.classid = 'pg_proc'::regclass",
    );
    assert!(
        functions > 40,
        "the query above looked at {functions} functions only"
    );
}

#[test]
fn every_table_and_sequence_is_dumped_with_all_its_rows() {
    let (_database, mut client) = Database::with_cortex();
    let rows = client
        .query(
            "SELECT c.relname::text, e.extcondition[array_position(e.extconfig, c.oid)] \
               FROM pg_class c, pg_extension e \
              WHERE e.extname = 'cortex' AND c.relnamespace = 'cortex'::regnamespace AND c.relkind IN ('r', 'p', 'S')",
            &[],
        )
        .unwrap();
    assert!(rows.len() > 20);
    for row in rows {
        let (name, condition): (String, Option<String>) = (row.get(0), row.get(1));
        assert_eq!(
            condition.as_deref(),
            Some(""),
            "cortex.{name} is not registered for dump, or only in part"
        );
    }
    let foreign: i64 = one(
        &mut client,
        "SELECT count(*) FROM pg_extension e, unnest(e.extconfig) t JOIN pg_class c ON c.oid = t \
          WHERE e.extname = 'cortex' AND c.relnamespace <> 'cortex'::regnamespace",
    );
    assert_eq!(foreign, 0);
}

#[test]
fn the_search_path_of_every_definer_and_language_function_is_pinned() {
    let (_database, mut client) = Database::with_cortex();
    // SECURITY DEFINER of any language; SQL and plpgsql bodies always, since each would resolve names anew.
    let rows = client
        .query(
            "SELECT p.oid::regprocedure::text, p.prosecdef, p.proconfig FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang \
               JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' \
               JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'cortex' \
              WHERE p.prosecdef OR l.lanname IN ('sql', 'plpgsql')",
            &[],
        )
        .unwrap();
    assert!(rows.len() > 20);
    for row in rows {
        let (name, settings): (String, Option<Vec<String>>) = (row.get(0), row.get(2));
        let settings = settings.unwrap_or_default();
        let paths: Vec<&String> = settings
            .iter()
            .filter(|setting| setting.starts_with("search_path="))
            .collect();
        assert_eq!(paths, ["search_path=pg_catalog, pg_temp"], "{name}");
    }
}

#[test]
fn every_constraint_and_index_has_a_name_of_ours() {
    let (_database, mut client) = Database::with_cortex();
    // Names as the scheme gives them, table first; NOT NULL constraints are in the catalog from 18 on and are
    // named by the server after table and column.
    let names = client
        .query(
            "SELECT r.relname::text, c.conname::text FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid \
              WHERE r.relnamespace = 'cortex'::regnamespace AND c.contype <> 'n' \
             UNION SELECT t.relname::text, i.relname::text FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid \
               JOIN pg_class t ON t.oid = x.indrelid WHERE t.relnamespace = 'cortex'::regnamespace",
            &[],
        )
        .unwrap();
    assert!(names.len() > 50);
    let source = [
        include_str!("../../../sql/00_tables.sql"),
        include_str!("../../../sql/55_pool.sql"),
        include_str!("../../../sql/56_event.sql"),
        include_str!("../../../sql/59_gate.sql"),
        include_str!("../../../sql/70_ask.sql"),
    ]
    .concat();
    let mut seen = BTreeSet::new();
    for row in names {
        let (table, name): (String, String) = (row.get(0), row.get(1));
        assert!(name.starts_with(&format!("{table}_")), "{name} on {table}");
        assert!(
            source.contains(&name),
            "{name} on {table} was named by the server"
        );
        assert!(seen.insert(name.clone()), "{name} twice");
    }
    // A space's table is made at run time, under the same rule.
    let space: i32 = one(
        &mut client,
        "SELECT cortex_space_register('m', '1', 'd', 3)",
    );
    let made: Vec<String> = client
        .query(
            "SELECT i.relname::text FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid WHERE x.indrelid = $1::text::regclass ORDER BY 1",
            &[&format!("cortex.emb_{space}")],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let expected =
        ["chunk_hnsw", "claim_hnsw", "pkey", "scope_idx"].map(|part| format!("emb_{space}_{part}"));
    assert_eq!(made, expected);
    let member: i64 = one(
        &mut client,
        "SELECT count(*) FROM pg_depend WHERE objid = 'cortex.emb_1'::regclass AND deptype = 'e'",
    );
    assert_eq!(
        member, 0,
        "the table of a space is no member of the extension, or its indexes would be lost in a dump"
    );
}
