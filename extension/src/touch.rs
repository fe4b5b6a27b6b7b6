//! Change detection: one set-based query for triggers, loads, reconciliations and TRUNCATE.
//!
//! It takes keys only, reads the rows anew by key and compares keyed hashes with the current versions. For what
//! differs, `versions` closes one version and opens another; if nothing differs, nothing is written, not even a
//! change row. A touch is idempotent and rests on the table alone, so touching too much is harmless.

use crate::binding::{Binding, identifier};

/// Where the touched keys come from.
pub enum Origin<'a> {
    /// A FROM item with columns `k1`, `k2` ... of the key's types.
    Keys(&'a str),
    /// Every row of the table and every source of the binding.
    Everything,
    /// Only sources whose row is gone.
    Gone,
}

/// The query for one origin: a row for each source whose content is not that of its current version. Its columns are
/// those that `versions` reads, in that order: [`crate::versions::Found`].
///
/// `OFFSET 0` keeps the planner from hashing a row twice.
pub fn query(binding: &Binding, origin: Origin) -> String {
    let aliases: Vec<String> = (1..=binding.key.len()).map(|n| format!("k{n}")).collect();
    let of_unknown = |value: &str| format!("CASE WHEN source_id IS NULL THEN {value} END");
    let key_texts: Vec<String> = binding
        .key
        .iter()
        .zip(&aliases)
        .map(|(column, alias)| of_unknown(&column.text(alias)))
        .collect();
    format!(
        "SELECT version_place, {source_id}, new_hash, {hash_key}, {artifact}, {key_texts} \
           FROM (SELECT state.*, CASE WHEN present THEN {hash} END AS new_hash FROM ({state}) state OFFSET 0) s \
          WHERE new_hash IS DISTINCT FROM old_hash",
        source_id = "CASE WHEN source_id IS NULL THEN pg_catalog.nextval('cortex.source_id_seq') ELSE source_id END",
        hash_key = of_unknown("hash_key"),
        artifact = of_unknown("artifact"),
        key_texts = key_texts.join(", "),
        state = state(binding, origin, &aliases),
        hash = hash(binding),
    )
}

/// A query for one key, whose columns are the arguments: its artifact id, whether the row is there, and the row's
/// values. For keys whose equal values have one text.
pub fn row(binding: &Binding) -> String {
    let aliases: Vec<String> = (1..=binding.key.len()).map(|n| format!("k{n}")).collect();
    let given: Vec<String> = (1..=binding.key.len()).map(|n| format!("${n}")).collect();
    let same: Vec<String> = aliases
        .iter()
        .zip(&given)
        .map(|(alias, given)| format!("r.{alias} OPERATOR(pg_catalog.=) {given}"))
        .collect();
    let values: Vec<String> = (1..=binding.values.len())
        .map(|n| format!("r.v{n}"))
        .collect();
    format!(
        "SELECT {artifact}, r.present, {values} FROM (SELECT) one LEFT JOIN ({live}) r ON {same}",
        artifact = binding.artifact(&given),
        values = values.join(", "),
        live = live(binding, &aliases),
        same = same.join(" AND ")
    )
}

/// A query for the artifact ids of the rows that are there, of those whose keys the FROM item `keys` lists.
pub fn rows(binding: &Binding, keys: &str) -> String {
    let aliases: Vec<String> = (1..=binding.key.len()).map(|n| format!("k{n}")).collect();
    let references = binding.key_of("u");
    let same: Vec<String> = references
        .iter()
        .zip(&aliases)
        .map(|(key, alias)| format!("{key} OPERATOR(pg_catalog.=) k.{alias}"))
        .collect();
    format!(
        "SELECT {} FROM {keys} k ({}) JOIN {} u ON {}",
        binding.artifact(&references),
        aliases.join(", "),
        binding.from,
        same.join(" AND ")
    )
}

/// SQL for the hash of the content in columns `v1`, `v2` ... under `hash_key`.
fn hash(binding: &Binding) -> String {
    let values: Vec<String> = (1..=binding.values.len())
        .map(|n| format!("v{n}"))
        .collect();
    format!(
        "cortex._content_hash(hash_key, VARIADIC ARRAY[{}])",
        values.join(", ")
    )
}

/// One row for each touched artifact: its key, whether its row is `present`, the row's values, and the
/// source and current version as far as they exist.
fn state(binding: &Binding, origin: Origin, aliases: &[String]) -> String {
    let (id, namespace) = (binding.stored.id, binding.stored.namespace_id);
    let live = live(binding, aliases);
    let versions =
        "LEFT JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL";
    let columns = |keys: &str, artifact: &str| {
        let values: Vec<String> = (1..=binding.values.len())
            .map(|n| format!("r.v{n}"))
            .collect();
        format!(
            "{keys}, {artifact} AS artifact, r.present, {values}, s.id AS source_id, v.ctid AS version_place, \
             v.content_hash AS old_hash, \
             CASE WHEN s.id IS NULL AND r.present THEN cortex._random_key() ELSE s.hash_key END AS hash_key",
            values = values.join(", "),
        )
    };
    let of = |table: &str| {
        aliases
            .iter()
            .map(|alias| format!("{table}.{alias}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let touched = match origin {
        Origin::Everything => {
            return format!(
                "SELECT {columns} FROM ({live}) r \
                 FULL JOIN (SELECT * FROM cortex.source WHERE namespace_id = {namespace} AND binding_id = {id}) s \
                        ON s.artifact_id = r.artifact {versions}",
                columns = columns(&of("r"), "COALESCE(r.artifact, s.artifact_id)"),
            );
        }
        Origin::Gone => {
            return format!(
                "SELECT {columns} FROM cortex.source s \
                 JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL \
                 LEFT JOIN ({live}) r ON r.artifact = s.artifact_id \
                 WHERE s.namespace_id = {namespace} AND s.binding_id = {id} AND r.present IS NULL",
                columns = columns(&of("r"), "s.artifact_id"),
            );
        }
        Origin::Keys(from) => distinct(binding, from, aliases),
    };
    format!(
        "SELECT {columns} FROM ({touched}) t LEFT JOIN ({live}) r ON {same_row} \
         LEFT JOIN cortex.source s ON s.namespace_id = {namespace} AND s.artifact_id = t.artifact {versions}",
        columns = columns(&of("t"), "t.artifact"),
        same_row = same_row(binding, aliases),
    )
}

/// The touched keys of `from`, each artifact once, with their artifact ids.
fn distinct(binding: &Binding, from: &str, aliases: &[String]) -> String {
    let keys = aliases.join(", ");
    let artifact = binding.artifact(aliases);
    if binding.exact_key() {
        format!(
            "SELECT {keys}, {artifact} AS artifact FROM (SELECT DISTINCT {keys} FROM {from} k ({keys})) k"
        )
    } else {
        format!("SELECT DISTINCT {keys}, {artifact} AS artifact FROM {from} k ({keys})")
    }
}

/// The rows of the bound table: key, artifact id, values.
fn live(binding: &Binding, aliases: &[String]) -> String {
    let references = binding.key_of("u");
    let keys: Vec<String> = references
        .iter()
        .zip(aliases)
        .map(|(key, alias)| format!("{key} AS {alias}"))
        .collect();
    let values = binding.values.iter().enumerate().map(|(n, column)| {
        format!(
            "{} AS v{}",
            column.nullable_text(&format!("u.{}", identifier(&column.name))),
            n + 1
        )
    });
    format!(
        "SELECT {keys}, {artifact} AS artifact, true AS present, {values} FROM {from} u",
        keys = keys.join(", "),
        artifact = binding.artifact(&references),
        values = values.collect::<Vec<_>>().join(", "),
        from = binding.from,
    )
}

/// The join of a touched key `t` with its row `r`.
fn same_row(binding: &Binding, aliases: &[String]) -> String {
    let mut terms: Vec<String> = aliases
        .iter()
        .map(|alias| format!("r.{alias} OPERATOR(pg_catalog.=) t.{alias}"))
        .collect();
    if !binding.exact_key() {
        terms.push("r.artifact OPERATOR(pg_catalog.=) t.artifact".into());
    }
    terms.join(" AND ")
}
