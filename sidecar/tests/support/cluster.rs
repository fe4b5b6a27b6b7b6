//! A PostgreSQL of a test's own, for what would disturb others: stopping it, and databases with fixed names.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A cluster made by `tools/cluster.py` with the programs of the server under test. Removed with this value.
pub struct Cluster {
    pub folder: PathBuf,
    pub url: String,
}

impl Cluster {
    pub fn new(name: &str) -> Self {
        let programs = ["CORTEX_TEST_PG18_BIN", "CORTEX_TEST_PG16_BIN"]
            .iter()
            .find_map(|name| std::env::var(name).ok());
        let programs = programs.expect(
            "this test makes a PostgreSQL of its own: run `make test`, or set CORTEX_TEST_PG18_BIN to the folder with pg_config",
        );
        let folder =
            std::env::temp_dir().join(format!("cortex-test-{}-{name}", std::process::id()));
        let config = Path::new(&programs).join("pg_config");
        let facts = tool(
            &[
                "create",
                "--json",
                "--no-fsync",
                "--pg-config",
                config.to_str().unwrap(),
            ],
            &folder,
        );
        let url = facts["superuser_url"].as_str().unwrap().to_owned();
        Cluster { folder, url }
    }

    /// Stops the server at once, as a crash would.
    pub fn stop(&self) {
        tool(&["stop", "--immediate", "--json"], &self.folder);
    }

    pub fn start(&self) {
        tool(&["start", "--json"], &self.folder);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        tool(&["destroy", "--json"], &self.folder);
    }
}

fn tool(arguments: &[&str], folder: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/cluster.py");
    let output = Command::new("python3")
        .arg(script)
        .args(arguments)
        .arg("--dir")
        .arg(folder)
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "cluster.py {arguments:?}: {said} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_str(&said)
        .unwrap_or_else(|error| panic!("cluster.py {arguments:?}: {error}: {said}"))
}
