//! The `cortex` binary, run as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// The binary with settings in the environment and nothing of ours from outside.
pub struct Cortex {
    folder: PathBuf,
    variables: Vec<(String, String)>,
}

/// What a run printed and how it ended.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    /// The JSON object that it printed.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Cortex {
    /// For a database, without a model, in a folder of its own.
    pub fn new(name: &str, url: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("cortex-cli-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Cortex {
            folder,
            variables: Vec::new(),
        }
        .with("CORTEX_DATABASE__URL", url)
        .with("CORTEX_DATABASE__CONNECT_TIMEOUT_S", "5")
        .with("CORTEX_MODEL__DIR", "")
        .with("CORTEX_SERVER__LISTEN", "127.0.0.1:0")
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Its working directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cortex"));
        command
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CORTEX_") {
                command.env_remove(name);
            }
        }
        command.envs(self.variables.iter().cloned());
        command
    }

    /// Runs to the end, which must come with the given exit code.
    pub fn run(&self, arguments: &[&str], code: i32) -> Run {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(arguments).output().expect("the binary runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
        let run = Run {
            code: status.code(),
            out: text(stdout),
            err: text(stderr),
        };
        assert_eq!(run.code, Some(code), "cortex {arguments:?}: {run:?}");
        run
    }

    /// Starts it and lets it run.
    pub fn start(&self, arguments: &[&str]) -> Child {
        let log = std::fs::File::create(self.folder.join("child.log")).unwrap();
        self.command(arguments)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the binary runs")
    }
}

impl Drop for Cortex {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
