//! `cortex demo`: the whole path over real rows, on a private cluster, every claim checked as it is shown.
//!
//! Each step does something that a user would do, prints what came of it, and checks by SQL that it is so.
//! A check that does not hold ends the demo with exit code 1.

mod answers;
mod change;
mod place;
mod prepare;
mod rights;
mod session;
mod show;
mod story;
mod tamper;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::cli::{Output, Progress};
use crate::config::{Config, Secret};
use crate::db::Db;
use crate::encoder::Encoder;
use crate::error::{Failure, Kind, Outcome};
use place::Place;
use session::Session;
use show::Show;
use story::Story;

/// Namespace that the demo's table is bound to.
const NAMESPACE: &str = "default";
/// The table that plays the user's own.
const TABLE: &str = "release_note";

/// What the demo works with after its database is made.
struct Demo<'a> {
    place: Place,
    story: Story,
    config: Config,
    encoder: Encoder,
    /// The user's own session, as superuser.
    user: Session,
    /// The sidecar's way to the same database.
    db: Db,
    show: Show<'a>,
    /// Traces of the story's questions, in their order.
    traces: Vec<answers::Asked>,
    /// The row that was changed, and the version that it had before.
    changed: Option<change::Changed>,
}

/// Runs the demo on the cluster of `folder`, with the rows of `notes`.
///
/// # Errors
/// Whatever keeps a step from running; a check that does not hold is of kind [`Kind::CheckFailed`].
pub async fn run(folder: &Path, notes: &Path, mut config: Config, out: &mut Output) -> Outcome<()> {
    let place = Place::read(folder)?;
    let story = Story::read(notes)?;
    config.database.url = Secret::new(place.url());
    config.database.direct_url = Secret::new("");
    config.read.namespace = NAMESPACE.to_owned();
    let mut show = Show::new(out);
    show.title(&format!(
        "Cortex on PostgreSQL {}, database {}",
        place.server_version,
        place::DATABASE
    ));
    let began = Instant::now();

    show.begin(&format!("Rows of a table become claims: {}", story.rows));
    let encoder = load_encoder(&config).await?;
    let made = async {
        prepare::database(&place).await?;
        let user = Session::open(&place.url()).await?;
        let db = Db::open(&config.database, "demo")?;
        Ok((user, db))
    };
    let (user, db) = match made.await {
        Ok(made) => made,
        Err(failure) => return Err(show.end("rows", Err(failure))),
    };
    let mut demo = Demo {
        place,
        story,
        config,
        encoder,
        user,
        db,
        show,
        traces: Vec::new(),
        changed: None,
    };
    let outcome = demo.rows().await;
    demo.finish("rows", outcome)?;

    demo.show
        .begin("Three questions, answered by quoted evidence within a token budget");
    let outcome = demo.answers().await;
    demo.finish("answers", outcome)?;

    demo.show
        .begin("The same question typed in psql: no sidecar, words alone");
    let outcome = demo.psql().await;
    demo.finish("psql", outcome)?;

    demo.show
        .begin("One row changes by plain SQL; its claims die in that commit");
    let outcome = demo.change().await;
    demo.finish("change", outcome)?;

    demo.show
        .begin("The trace from before the change still verifies");
    let outcome = demo.replay().await;
    demo.finish("replay", outcome)?;

    demo.show
        .begin("A changed byte is found: in the trace, and in the evidence");
    let outcome = demo.tamper().await;
    demo.finish("tamper", outcome)?;

    demo.show
        .begin("A role that may not select the table gets nothing of it");
    let outcome = demo.rights().await;
    demo.finish("rights", outcome)?;

    demo.db.close().await;
    demo.next(began);
    Ok(())
}

impl Demo<'_> {
    fn finish(&mut self, step: &'static str, outcome: Outcome<String>) -> Outcome<()> {
        match outcome {
            Ok(detail) => {
                self.show.done(step, &detail);
                Ok(())
            }
            Err(failure) => Err(self.show.end(step, Err(failure))),
        }
    }

    /// What to try next. The socket is open to this machine's root and the server's user; no secret is shown.
    fn next(&mut self, began: Instant) {
        let program = program();
        let url = self.place.url();
        let trace = self.traces.first().map_or(1, |asked| asked.trace_id);
        let question = &self.story.questions[0].text;
        self.show.begin("Three commands to try next");
        self.show
            .line(&format!("export CORTEX_DATABASE__URL='{url}'"));
        let commands = [
            format!("{program} find \"{question}\""),
            format!("{program} explain {trace}"),
            format!(
                "{} \"$CORTEX_DATABASE__URL\" -c 'SELECT * FROM cortex.stale'",
                shown(&self.place.bin_dir.join("psql"))
            ),
        ];
        for command in &commands {
            self.show.line(command);
        }
        let seconds = began.elapsed().as_secs_f64();
        self.show
            .done("next", &format!("everything held, in {seconds:.1} s"));
    }
}

/// This program as the user would call it from here.
fn program() -> String {
    shown(&std::env::current_exe().unwrap_or_else(|_| PathBuf::from("cortex")))
}

/// A path as seen from the working directory.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here)
        .unwrap_or(path)
        .display()
        .to_string()
}

async fn load_encoder(config: &Config) -> Outcome<Encoder> {
    let settings = config.model.clone();
    let encoder = tokio::task::spawn_blocking(move || Encoder::load(&settings))
        .await
        .map_err(|error| Failure::internal(format!("loading the model stopped: {error}")))?;
    match encoder.space() {
        Ok(_) => Ok(encoder),
        Err(reason) => Err(Failure::new(
            Kind::System,
            "no_model",
            format!("the demo needs the embedding model: {reason}"),
        )
        .hint("`make demo` brings it")),
    }
}

/// Fails the step unless `holds`.
fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Outcome<()> {
    if holds {
        return Ok(());
    }
    Err(Failure::new(Kind::CheckFailed, "check_failed", otherwise()))
}

/// A progress bar, if somebody watches.
fn bar(show: &Show<'_>, label: &str) -> Progress {
    Progress::new(format!("  {label}"), show.is_watched())
}
