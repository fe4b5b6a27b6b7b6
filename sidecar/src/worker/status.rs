//! What a worker is doing, as health shows it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;

use crate::error::Failure;

/// Shared between the worker's tasks and who asks.
pub struct Status {
    inner: Mutex<Inner>,
}

struct Inner {
    view: View,
    last_seal: Option<Instant>,
}

/// A copy of the status at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// Name in leases.
    pub name: String,
    /// `starting`, `working`, `waiting` (for PostgreSQL) or `stopped`.
    pub state: &'static str,
    /// Whether it embeds; if not, why.
    pub embedding: String,
    /// Who writes claims for it: the name of the language model, or why there is none.
    pub building: String,
    /// Whether it is woken by notifications. Otherwise it polls.
    pub listening: bool,
    /// Changes that it numbered.
    pub sealed: i64,
    /// Jobs that it finished.
    pub jobs_done: u64,
    /// Jobs that it gave back after an error.
    pub jobs_failed: u64,
    /// Texts that were longer than the model reads: their vectors stand for the beginning alone. Words further
    /// on are still found by the lexical arm.
    pub texts_cut: u64,
    /// Sources that it made claims of.
    pub builds_done: u64,
    /// Builds that it gave back after an error.
    pub builds_failed: u64,
    /// Why the last build failed, until one succeeds: no model server, for instance.
    pub last_build_error: Option<String>,
    /// Milliseconds since it last looked for changes to number.
    pub last_seal_ms_ago: Option<u64>,
    /// The last error, until the next success.
    pub last_error: Option<String>,
}

impl Status {
    pub(super) fn new(name: String, no_model: Option<&str>, building: String) -> Self {
        let view = View {
            name,
            state: "starting",
            embedding: no_model.unwrap_or("ready").to_owned(),
            building,
            listening: false,
            sealed: 0,
            jobs_done: 0,
            jobs_failed: 0,
            texts_cut: 0,
            builds_done: 0,
            builds_failed: 0,
            last_build_error: None,
            last_seal_ms_ago: None,
            last_error: None,
        };
        Status {
            inner: Mutex::new(Inner {
                view,
                last_seal: None,
            }),
        }
    }

    /// The status now.
    pub fn view(&self) -> View {
        let inner = self.lock();
        let last_seal_ms_ago = inner
            .last_seal
            .map(|at| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX));
        View {
            last_seal_ms_ago,
            ..inner.view.clone()
        }
    }

    pub(super) fn name(&self) -> String {
        self.lock().view.name.clone()
    }

    /// A statement went through.
    pub(super) fn reached(&self) {
        let mut inner = self.lock();
        inner.view.state = "working";
        inner.view.last_error = None;
    }

    /// A statement failed.
    pub(super) fn trouble(&self, failure: &Failure) {
        let mut inner = self.lock();
        if failure.is_transient() {
            inner.view.state = "waiting";
        }
        // What the server says of a statement may quote the text of a source; its code does not.
        inner.view.last_error = Some(match &failure.sqlstate {
            Some(state) => format!("{} (SQLSTATE {state})", failure.code),
            None => failure.message.clone(),
        });
    }

    pub(super) fn sealed(&self, changes: i64) {
        let mut inner = self.lock();
        inner.view.sealed += changes;
        inner.last_seal = Some(Instant::now());
    }

    pub(super) fn listening(&self, yes: bool) {
        self.lock().view.listening = yes;
    }

    pub(super) fn job_done(&self) {
        self.lock().view.jobs_done += 1;
    }

    pub(super) fn job_failed(&self) {
        self.lock().view.jobs_failed += 1;
    }

    pub(super) fn texts_cut(&self, texts: u64) {
        self.lock().view.texts_cut += texts;
    }

    pub(super) fn build_done(&self) {
        let mut inner = self.lock();
        inner.view.builds_done += 1;
        inner.view.last_build_error = None;
    }

    pub(super) fn build_failed(&self, failure: &Failure) {
        let mut inner = self.lock();
        inner.view.builds_failed += 1;
        // Not the message: it may quote a source.
        inner.view.last_build_error = Some(failure.code.to_owned());
    }

    pub(super) fn stopped(&self) {
        self.lock().view.state = "stopped";
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The counters stay right whatever a panicking holder was about to add.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
