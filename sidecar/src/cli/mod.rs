//! The command line: what can be asked, and how the answer is shown.

mod ask;
mod demo;
mod doctor;
mod explain;
mod ingest;
mod output;
mod pool;
mod progress;
mod service;
mod trace_text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{self, Config, Origin};
use crate::error::{Failure, Outcome};
pub use ask::report_summary;
pub use output::Output;
pub use progress::Progress;

const AFTER_HELP: &str = "\
Examples:
  cortex up                               start the service: REST on 127.0.0.1:7411, and a worker
  cortex ingest docs/                     make the text files below docs/ sources
  cortex read 'how is WAL archived?'      the best fresh claims, packed into a token budget
  cortex find 'how is WAL archived?'      quotes with row, version and bytes, and a trace
  cortex verify 42                        recompute and replay trace 42
  cortex doctor                           check everything, and say what to do

Rows of your own tables come in by SQL: SELECT cortex_bind('your_table').

Settings come from cortex.toml (looked for here and in each folder above, or named by CORTEX_CONFIG),
then from the environment: CORTEX_<SECTION>__<KEY>. `cortex doctor --defaults` prints every setting.

Exit codes:
  0  done
  1  a check or a verification did not pass
  2  wrong arguments or settings
  3  PostgreSQL or the service cannot be reached
  4  PostgreSQL refused (the SQLSTATE is shown), or has no extension that this binary works with
  5  a file, a port or a process of this machine, or a fault of ours

\"Verified\" means recorded, bound and replayable. It never means true.";

/// Memory and evidence for agents, in PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "cortex", version, after_help = AFTER_HELP, max_term_width = 104)]
struct CommandLine {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Args, Clone, Debug)]
struct Common {
    /// Print JSON: one object, or one a line where work goes on
    #[arg(long, global = true)]
    json: bool,
    /// Settings file, instead of the one that is found
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the service in the background and wait until it is healthy
    Up,
    /// Stop the service of `cortex up`, letting running work end
    Down,
    /// Run REST and worker in the foreground
    Serve(service::Serve),
    /// Run a worker alone; any number may run at once
    Worker(service::Work),
    /// Make files sources: text files, folders with all below them
    Ingest(ingest::Ingest),
    /// Print one context for a question: fresh claims within a token budget
    Read(ask::Read),
    /// Find evidence for a question and record a trace
    Find(ask::Find),
    /// Ask in any mode, without a model, and record a trace
    Ask(ask::Ask),
    /// Verify a trace: recompute every root and replay the retrieval at its state
    Verify(ask::Verify),
    /// Tell from a trace alone what was asked, found and selected
    Explain(explain::Explain),
    /// Tell how today differs from the state of a trace
    Drift(explain::Drift),
    /// Print a trace with its words as a document
    Dossier(explain::Dossier),
    /// Look at the claim pool, evict from it, change its settings
    #[command(subcommand)]
    Pool(pool::Pool),
    /// Check database, extension, worker, queue, model and settings
    Doctor(doctor::Doctor),
    /// Show the whole path on a private cluster, each claim checked
    Demo(demo::Demo),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => {
            // Help and version go to stdout with code 0, usage errors to stderr with code 2.
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let mut out = Output::new(line.common.json);
    match run(line, &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            out.failure(&failure);
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

/// What a command works with.
struct Context {
    config: Config,
    origin: Origin,
    common: Common,
}

impl Context {
    fn load(common: Common) -> Outcome<Self> {
        let (config, origin) = config::load(common.config.as_deref())?;
        Ok(Context {
            config,
            origin,
            common,
        })
    }

    fn namespace(&self, named: Option<String>) -> String {
        named.unwrap_or_else(|| self.config.read.namespace.clone())
    }
}

fn run(line: CommandLine, out: &mut Output) -> Outcome<()> {
    if let Command::Doctor(doctor) = &line.command
        && doctor.defaults
    {
        out.text(config::DEFAULTS);
        return Ok(());
    }
    let context = Context::load(line.common)?;
    if let Command::Serve(_) | Command::Worker(_) = line.command {
        crate::logging::start(&context.config.log)?;
    }
    match line.command {
        Command::Up => service::up(&context, out),
        Command::Down => service::down(&context, out),
        Command::Serve(serve) => block_on(service::serve(serve, &context))?,
        Command::Worker(work) => block_on(service::work(work, &context))?,
        Command::Ingest(ingest) => block_on(ingest::run(ingest, &context, out))?,
        Command::Read(read) => block_on(ask::read(read, &context, out))?,
        Command::Find(find) => block_on(ask::find(find, &context, out))?,
        Command::Ask(ask) => block_on(ask::ask(ask, &context, out))?,
        Command::Verify(verify) => block_on(ask::verify(verify, &context, out))?,
        Command::Explain(explain) => block_on(explain::run(explain, &context, out))?,
        Command::Drift(drift) => block_on(explain::drift(drift, &context, out))?,
        Command::Dossier(dossier) => block_on(explain::dossier(dossier, &context, out))?,
        Command::Pool(pool) => block_on(pool::run(pool, &context, out))?,
        Command::Demo(demo) => block_on(demo::run(demo, &context, out))?,
        Command::Doctor(_) => block_on(doctor::run(&context, out))?,
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> Outcome<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::system(format!("no threads could be started: {error}")))?;
    Ok(runtime.block_on(work))
}
