//! The private cluster that `tools/cluster.py` made.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Failure, Outcome};

/// The database that the demo makes and drops.
pub(super) const DATABASE: &str = "cortex_demo";
/// Layout of `cluster.json` that is understood.
const FORMAT: u64 = 1;
/// Largest `cluster.json` that is read.
const LARGEST: u64 = 1 << 16;

/// What the demo needs to know of a cluster.
#[derive(Deserialize)]
pub(super) struct Place {
    format: u64,
    /// Version of the server.
    pub server_version: String,
    /// Folder of the server's programs.
    pub bin_dir: PathBuf,
    /// Connection URL of the superuser over the socket, to database `postgres`.
    superuser_url: String,
}

impl Place {
    /// Reads `cluster.json` in a folder.
    pub fn read(folder: &Path) -> Outcome<Self> {
        let path = folder.join("cluster.json");
        let hint = "make the cluster with: python3 tools/cluster.py create --dir <folder>";
        let size = std::fs::metadata(&path)
            .map_err(|error| {
                Failure::usage(format!("{} cannot be read: {error}", path.display())).hint(hint)
            })?
            .len();
        if size > LARGEST {
            return Err(Failure::usage(format!(
                "{} has {size} bytes, which no description of a cluster has",
                path.display()
            )));
        }
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Failure::usage(format!("{} cannot be read: {error}", path.display())).hint(hint)
        })?;
        let place: Place = serde_json::from_str(&text).map_err(|error| {
            Failure::usage(format!(
                "{} does not describe a cluster: {error}",
                path.display()
            ))
            .hint(hint)
        })?;
        if place.format != FORMAT || !place.superuser_url.starts_with("postgresql:///postgres?") {
            return Err(Failure::usage(format!(
                "{} is of a layout that this program does not know",
                path.display()
            ))
            .hint(hint));
        }
        Ok(place)
    }

    /// Connection URL of the maintenance database.
    pub fn maintenance_url(&self) -> String {
        self.superuser_url.clone()
    }

    /// Connection URL of the demo's database.
    pub fn url(&self) -> String {
        self.superuser_url.replacen(
            "postgresql:///postgres?",
            &format!("postgresql:///{DATABASE}?"),
            1,
        )
    }
}
