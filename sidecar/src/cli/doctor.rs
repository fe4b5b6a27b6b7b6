//! `cortex doctor`.

use clap::Args;
use serde_json::json;

use super::{Context, Output};
use crate::doctor::{self, Verdict};
use crate::error::Outcome;

/// Arguments of `cortex doctor`.
#[derive(Args, Debug)]
#[command(after_help = "\
Reads only, except for one notification that it sends to itself. Exit code 1 if a check fails; warnings
alone leave it 0.

Examples:
  cortex doctor
  cortex doctor --json | jq '.checks[] | select(.verdict != \"ok\")'
  cortex doctor --defaults > cortex.toml      every setting with its meaning and default")]
pub struct Doctor {
    /// Print the commented default settings and stop
    #[arg(long)]
    pub defaults: bool,
}

pub async fn run(context: &Context, out: &mut Output) -> Outcome<()> {
    let checks = doctor::examine(&context.config, &context.origin).await;
    let ok = checks.iter().all(|check| check.verdict != Verdict::Fail);
    out.object(&json!({"ok": ok, "checks": checks, "settings": context.config}));
    for check in &checks {
        let mark = match check.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
            Verdict::Skip => "skip",
        };
        out.line(format!("{mark:<5} {:<10} {}", check.name, check.found));
        if let Some(hint) = &check.hint {
            out.line(format!("                 -> {hint}"));
        }
    }
    if ok { Ok(()) } else { out.not_passed() }
}
