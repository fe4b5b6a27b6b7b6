//! Cortex inside PostgreSQL: thin SQL functions and triggers around `cortex-core`.

mod binding;
mod db;
mod error;
mod hold;
mod rights;
mod sources;
mod subxact;
mod touch;
mod trigger;

use pgrx::prelude::*;

pgrx::pg_module_magic!(name, version);

pgrx::extension_sql_file!("../../sql/00_tables.sql", name = "tables", bootstrap);
pgrx::extension_sql_file!(
    "../../sql/20_bind.sql",
    name = "bind",
    requires = [trigger::touched, sources::content_hash, sources::make_key, sources::change_of]
);

/// The version of the loaded library.
#[pg_extern(immutable, parallel_safe)]
fn cortex_version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
