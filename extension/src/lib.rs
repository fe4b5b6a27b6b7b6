//! Cortex inside PostgreSQL: thin SQL functions and triggers around `cortex-core`.

mod bind;
mod binding;
mod db;
mod ddl;
mod error;
mod hold;
mod load;
mod reconcile;
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
    requires = [
        trigger::touched,
        sources::content_hash,
        sources::make_key,
        sources::change_of,
        load::load_batch,
        reconcile::reconcile_batch,
        bind::cortex_bind,
        bind::cortex_unbind,
        bind::cortex_pause,
        bind::cortex_resume,
        bind::cortex_reconcile,
    ]
);
pgrx::extension_sql_file!(
    "../../sql/30_ddl.sql",
    name = "ddl",
    requires = [
        "bind",
        ddl::ddl_begins,
        ddl::ddl_ended,
        ddl::ddl_rewrites,
        ddl::ddl_dropped
    ]
);

/// The version of the loaded library.
#[pg_extern(immutable, parallel_safe)]
fn cortex_version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
