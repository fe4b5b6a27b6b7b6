//! Cortex inside PostgreSQL: thin SQL functions and triggers around `cortex-core`.

mod ask;
mod bind;
mod binding;
mod build;
mod chunk;
mod db;
mod ddl;
mod error;
mod gate;
mod held;
mod hold;
mod kept;
mod keys;
mod load;
mod lock;
mod lookup;
mod pool;
mod put;
mod read;
mod reconcile;
mod retrieve;
mod rights;
mod rows;
mod rules;
mod search;
mod serve;
mod source_list;
mod sources;
mod subxact;
mod touch;
mod trigger;
mod vector;
mod verify;
mod versions;

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
        ddl::binding_flaws,
        ddl::ddl_begins,
        ddl::ddl_ended,
        ddl::ddl_rewrites,
        ddl::ddl_dropped
    ]
);

pgrx::extension_sql_file!(
    "../../sql/40_space.sql",
    name = "space",
    requires = [
        "tables",
        sources::make_key,
        sources::change_of,
        chunk::embedding_text,
        vector::vector_fits,
        vector::pack,
        vector::pack_items,
        vector::pack_capacity
    ]
);
pgrx::extension_sql_file!(
    "../../sql/50_work.sql",
    name = "work",
    requires = [
        "tables",
        chunk::chunk_batch,
        load::load_batch,
        reconcile::reconcile_batch
    ]
);
pgrx::extension_sql_file!(
    "../../sql/55_pool.sql",
    name = "pool",
    requires = ["tables", "space", build::nearest_word]
);
pgrx::extension_sql_file!(
    "../../sql/56_event.sql",
    name = "event",
    requires = ["tables", "pool"]
);
pgrx::extension_sql_file!(
    "../../sql/57_want.sql",
    name = "want",
    requires = ["work", "event", build::add_claims]
);
pgrx::extension_sql_file!(
    "../../sql/58_build.sql",
    name = "build",
    requires = [
        "want",
        build::sift_claims,
        build::build_backoff,
        vector::vector_fits
    ]
);
pgrx::extension_sql_file!(
    "../../sql/59_gate.sql",
    name = "gate",
    requires = ["build", gate::sample, gate::ceiling, gate::due]
);
pgrx::extension_sql_file!(
    "../../sql/70_ask.sql",
    name = "ask",
    requires = ["tables", "event", verify::all::verify_trace]
);
pgrx::extension_sql_file!(
    "../../sql/60_views.sql",
    name = "views",
    requires = ["bind", "space", "work", "gate", "ask"]
);
pgrx::extension_sql_file!("../../sql/90_rights.sql", name = "rights", finalize);

/// Runs once in each backend, when the library is loaded.
#[pg_guard]
extern "C-unwind" fn _PG_init() {
    // With RUST_BACKTRACE in the server's environment, pgrx would send stack traces to clients as DETAIL.
    // SAFETY: a backend has one thread, and no other code of ours has run yet.
    unsafe { std::env::set_var("RUST_LIB_BACKTRACE", "0") };
}

/// The version of the loaded library.
#[pg_extern(immutable, parallel_safe)]
fn cortex_version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
