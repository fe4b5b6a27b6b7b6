//! A model server whose replies are written down beforehand, for tests of what talks to models.
//!
//! It speaks Ollama's `/api/chat`, `/api/tags`, `/api/show` and `/api/version`, and OpenAI's
//! `/v1/chat/completions` and `/v1/models`, streaming and not. A [`Script`] says what it replies to what, and in
//! which ways it misbehaves ([`Fault`]).

mod fault;
mod http;
mod script;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use fault::Fault;
pub use script::{Reply, Rule, Script, ScriptError};

/// A running server. It ends with this value.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<http::State>,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts a server on a free port of this machine.
    ///
    /// # Errors
    /// A script with a pattern that is no regular expression, or an address that cannot be listened on.
    pub async fn start(script: Script) -> Result<Self, ScriptError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        Self::on(listener, script)
    }

    /// Starts a server on an address that is listened on already.
    ///
    /// # Errors
    /// A script with a pattern that is no regular expression.
    pub fn on(listener: TcpListener, script: Script) -> Result<Self, ScriptError> {
        let address = listener.local_addr()?;
        let state = Arc::new(http::State::new(script)?);
        let router = http::router(state.clone());
        let task = tokio::spawn(async move {
            // It ends only with the task.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Server {
            address,
            state,
            task,
        })
    }

    /// Its address as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The bodies of all chat requests so far, in their order.
    pub fn requests(&self) -> Vec<Value> {
        self.state.requests()
    }

    /// Runs until the server ends, which it does only by a fault.
    pub async fn ended(mut self) {
        let _ = (&mut self.task).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
