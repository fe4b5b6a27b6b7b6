//! The `cortex` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    cortex_sidecar::cli::main()
}
