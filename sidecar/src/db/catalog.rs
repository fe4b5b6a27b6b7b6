//! Which Cortex and which pgvector a database has, and whether this binary works with them.

use std::fmt;

use sqlx::postgres::PgRow;

use super::column;
use crate::error::{Failure, Kind, Outcome};

/// One row, also where nothing is installed. Names come back quoted.
pub(super) const LOOK_UP: &str = "
SELECT pg_catalog.current_setting('server_version'),
       (SELECT e.extversion FROM pg_catalog.pg_extension e WHERE e.extname = 'cortex'),
       (SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension e
          JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'cortex'),
       (SELECT e.extversion FROM pg_catalog.pg_extension e WHERE e.extname = 'vector'),
       (SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension e
          JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector')";

/// pgvector releases before this one have known faults in parallel HNSW builds and in vacuum.
pub const SOUND_PGVECTOR: Version = Version {
    major: 0,
    minor: 8,
    patch: 4,
};

/// A release: the leading numbers of a version text; what follows them is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

impl Version {
    /// Reads `1.2.3`, `1.2` or `1.2.3-dev`. None if it does not begin with a number.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(|part| {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u32>().ok()
        });
        Some(Version {
            major: numbers.next()??,
            minor: numbers.next().flatten().unwrap_or(0),
            patch: numbers.next().flatten().unwrap_or(0),
        })
    }

    /// Of this binary.
    pub fn ours() -> Self {
        Self::parse(env!("CARGO_PKG_VERSION")).unwrap_or(Version {
            major: 0,
            minor: 0,
            patch: 0,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// How the extension's release stands to this binary's. A binary of release N works with schema N and N-1,
/// where a release is the first two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The same release or the one before.
    Works,
    /// Older than the one before.
    TooOld,
    /// Newer than this binary.
    TooNew,
}

/// Compares the extension's release with a binary's.
pub fn standing(extension: Version, binary: Version) -> Standing {
    let release = |version: Version| (version.major, version.minor);
    if release(extension) > release(binary) {
        return Standing::TooNew;
    }
    let before = extension.major == binary.major && extension.minor + 1 == binary.minor;
    if before || release(extension) == release(binary) {
        Standing::Works
    } else {
        Standing::TooOld
    }
}

/// What a database has.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// Version of the server, as it says it.
    pub server: String,
    /// Version of the extension's schema.
    pub cortex: String,
    /// Version of pgvector.
    pub vector: String,
    /// Schema of the functions `cortex_*`, quoted.
    cortex_schema: String,
    /// Schema of the type `vector`, quoted.
    vector_schema: String,
}

impl Catalog {
    pub(super) fn from_row(row: &PgRow) -> Outcome<Self> {
        let missing = |what: &str| {
            Failure::new(
                Kind::Version,
                "extension_missing",
                format!("this database has no extension {what}"),
            )
            .hint("as a superuser in this database: CREATE EXTENSION cortex CASCADE")
        };
        let cortex: Option<String> = column(row, 1)?;
        let cortex_schema: Option<String> = column(row, 2)?;
        let vector: Option<String> = column(row, 3)?;
        let vector_schema: Option<String> = column(row, 4)?;
        Ok(Catalog {
            server: column(row, 0)?,
            cortex: cortex.ok_or_else(|| missing("cortex"))?,
            vector: vector.ok_or_else(|| missing("vector"))?,
            cortex_schema: cortex_schema.ok_or_else(|| missing("cortex"))?,
            vector_schema: vector_schema.ok_or_else(|| missing("vector"))?,
        })
    }

    /// Fills the schemas into a statement.
    pub(super) fn render(&self, template: &str) -> String {
        template
            .replace("{cortex}", &self.cortex_schema)
            .replace("{vector}", &self.vector_schema)
    }

    /// What an operator should know of these versions.
    pub fn warning(&self) -> Option<String> {
        let vector = Version::parse(&self.vector)?;
        (vector < SOUND_PGVECTOR).then(|| {
            format!(
                "pgvector is {}; before {SOUND_PGVECTOR} parallel index builds and vacuum have known faults: update it",
                self.vector
            )
        })
    }

    /// Refuses an extension that this binary does not work with.
    ///
    /// # Errors
    /// Older than the release before ours, or newer than ours.
    pub fn check_version(&self) -> Outcome<()> {
        let ours = Version::ours();
        let theirs = Version::parse(&self.cortex).ok_or_else(|| {
            Failure::new(
                Kind::Version,
                "extension_version",
                format!("the extension's version {:?} is not a number", self.cortex),
            )
        })?;
        let refuse = |how: &str, hint: &str| {
            let message =
                format!("the extension is {theirs}, {how} for this binary, which is {ours}");
            Err(Failure::new(Kind::Version, "extension_version", message).hint(hint))
        };
        match standing(theirs, ours) {
            Standing::Works => Ok(()),
            Standing::TooOld => refuse(
                "too old",
                "run ALTER EXTENSION cortex UPDATE in this database",
            ),
            Standing::TooNew => refuse("too new", "install the binary of the extension's release"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn versions_read_their_leading_numbers() {
        assert_eq!(version("0.8.5").to_string(), "0.8.5");
        assert_eq!(version("1.2").to_string(), "1.2.0");
        assert_eq!(version("0.9.0-dev").to_string(), "0.9.0");
        assert_eq!(Version::parse("dev"), None);
        assert_eq!(Version::parse(""), None);
        assert!(version("0.8.3") < SOUND_PGVECTOR);
        assert!(version("0.10.0") > SOUND_PGVECTOR);
    }

    #[test]
    fn a_binary_works_with_its_own_release_and_the_one_before() {
        let binary = version("0.5.2");
        for (extension, expected) in [
            ("0.5.0", Standing::Works),
            ("0.5.9", Standing::Works),
            ("0.4.7", Standing::Works),
            ("0.3.9", Standing::TooOld),
            ("0.6.0", Standing::TooNew),
            ("1.4.0", Standing::TooNew),
        ] {
            assert_eq!(
                standing(version(extension), binary),
                expected,
                "{extension}"
            );
        }
        assert_eq!(
            standing(version("0.9.0"), version("1.0.0")),
            Standing::TooOld
        );
    }
}
