//! `cortex demo`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Context, Output};
use crate::error::Outcome;

/// Arguments of `cortex demo`.
#[derive(Args, Debug)]
#[command(after_help = "\
Makes the database cortex_demo in a cluster of tools/cluster.py, dropping the one it made before, and
touches nothing else there. `make demo` brings all it needs and runs it.

Examples:
  cortex demo --cluster .cortex/demo
  cortex demo --cluster .cortex/demo --json    one object a line: step, ok, ms, detail")]
pub struct Demo {
    /// Folder of the cluster, as made by tools/cluster.py
    #[arg(long, value_name = "DIR")]
    cluster: PathBuf,
    /// Rows to load [default: ../release-notes/release_note.jsonl, seen from the cluster's folder]
    #[arg(long, value_name = "FILE")]
    notes: Option<PathBuf>,
}

pub async fn run(demo: Demo, context: &Context, out: &mut Output) -> Outcome<()> {
    let notes = demo.notes.unwrap_or_else(|| {
        let beside = demo.cluster.parent().unwrap_or(Path::new("."));
        beside.join("release-notes/release_note.jsonl")
    });
    crate::demo::run(&demo.cluster, &notes, context.config.clone(), out).await
}
