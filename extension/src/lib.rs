//! Cortex inside PostgreSQL: thin SQL functions and triggers around `cortex-core`.

mod db;
mod error;
mod rights;

use pgrx::prelude::*;

pgrx::pg_module_magic!(name, version);

pgrx::extension_sql_file!("../../sql/00_tables.sql", name = "tables", bootstrap);

/// The version of the loaded library.
#[pg_extern(immutable, parallel_safe)]
fn cortex_version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
