//! How a trace is named on the command line.

use std::convert::Infallible;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Failure, Outcome};

/// Largest text of a trace that is read. The largest that verification takes is below it.
const LARGEST: u64 = 64 << 20;

/// A stored trace, or the text of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceArgument {
    /// Its id.
    Stored(i64),
    /// Where its text is: a file, or `-` for standard input.
    Text(PathBuf),
}

impl FromStr for TraceArgument {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.parse() {
            Ok(id) => TraceArgument::Stored(id),
            Err(_) => TraceArgument::Text(PathBuf::from(text)),
        })
    }
}

impl TraceArgument {
    /// Reads the text. Line breaks at its end, which editors and shells add, are taken off.
    pub fn read(&self) -> Outcome<String> {
        let path = match self {
            TraceArgument::Stored(id) => {
                return Err(Failure::internal(format!("trace {id} is not a file")));
            }
            TraceArgument::Text(path) => path,
        };
        let bytes = read_limited(path).map_err(|error| {
            Failure::system(format!("{} cannot be read: {error}", path.display()))
                .hint("name the id of a stored trace, or a file with the text of one")
        })?;
        if bytes.len() as u64 > LARGEST {
            return Err(Failure::usage(format!(
                "{} has more than {LARGEST} bytes, which no trace has",
                path.display()
            )));
        }
        let text = String::from_utf8(bytes)
            .map_err(|error| Failure::usage(format!("{} is not UTF-8: {error}", path.display())))?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }
}

fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin()
            .lock()
            .take(LARGEST + 1)
            .read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(path)?
            .take(LARGEST + 1)
            .read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
