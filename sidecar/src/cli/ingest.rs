//! `cortex ingest`: text files become sources.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::json;

use super::ask::parse;
use super::{Context, Output, Progress};
use crate::config;
use crate::db::Db;
use crate::db::reader::Source;
use crate::error::{Failure, Kind, Outcome};

/// Arguments of `cortex ingest`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each file becomes the source `file:<path relative to the root>`, titled by its first heading. The same file
again changes nothing. Hidden files, links, files over ingest.max_file_bytes and files that are not UTF-8
text are left out and listed. A source below the named paths whose file is gone, or is left out by now, is
removed: its claims would be stale. A running worker chunks and embeds what came in.

Examples:
  cortex ingest docs/ README.md
  cortex ingest /srv/wiki --root /srv/wiki --namespace wiki")]
pub struct Ingest {
    /// Files, and folders with all below them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Folder that the names are relative to [default: the folder of cortex.toml, or the working directory]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Namespace to put them into [default: read.namespace]
    #[arg(short, long)]
    namespace: Option<String>,
}

/// A file to read, and its source's name.
struct Found {
    path: PathBuf,
    artifact_id: String,
}

/// A path that was left out, and why.
struct Skipped {
    path: PathBuf,
    reason: String,
}

pub async fn run(ingest: Ingest, context: &Context, out: &mut Output) -> Outcome<()> {
    let root = root(&ingest, context)?;
    let namespace = context.namespace(ingest.namespace);
    let limits = &context.config.ingest;
    let mut walk = Walk {
        root: &root,
        limits,
        seen: HashSet::new(),
        named: Vec::new(),
        found: Vec::new(),
        skipped: Vec::new(),
    };
    for path in &ingest.paths {
        walk.named(path)?;
    }
    let Walk {
        named,
        found,
        mut skipped,
        ..
    } = walk;
    let db = Db::open(&context.config.database, "ingest")?;
    let (mut stored, mut unchanged) = (0u64, 0u64);
    let mut kept: HashSet<&str> = HashSet::new();
    let mut progress = Progress::new("reading files", !out.is_json());
    for (done, file) in found.iter().enumerate() {
        progress.show(done as u64, Some(found.len() as u64), &file.artifact_id);
        let source = match source(file, &namespace, limits) {
            Ok(source) => source,
            Err(reason) => {
                skipped.push(Skipped {
                    path: file.path.clone(),
                    reason,
                });
                continue;
            }
        };
        let answer = db
            .put_source(&source)
            .await
            .map_err(|failure| failure_at(failure, &file.path))?;
        kept.insert(&file.artifact_id);
        if parse(&answer)?
            .get("changed")
            .and_then(serde_json::Value::as_bool)
            .unwrap_or(true)
        {
            stored += 1;
        } else {
            unchanged += 1;
        }
    }
    drop(progress);
    let mut removed = 0u64;
    for below in &named {
        for artifact_id in db.sources_below(below, &namespace).await? {
            // `file:doc` names a file; `file:docs/a` is not below it.
            let inside = below.ends_with('/') || below == "file:" || artifact_id == *below;
            if inside && !kept.contains(artifact_id.as_str()) {
                db.delete_source(&artifact_id, &namespace).await?;
                removed += 1;
            }
        }
    }
    // Read back, since success means stored and readable.
    let names: Vec<String> = found.iter().map(|file| file.artifact_id.clone()).collect();
    let known = db.count_sources(&names, &namespace).await?;
    let expected = stored + unchanged;
    for path in &skipped {
        out.line(format!(
            "  left out: {}: {}",
            path.path.display(),
            path.reason
        ));
    }
    let skipped: Vec<_> = skipped
        .iter()
        .map(|path| json!({"path": path.path.display().to_string(), "reason": path.reason}))
        .collect();
    out.object(&json!({
        "namespace": namespace, "stored": stored, "unchanged": unchanged, "removed": removed, "readable": known, "skipped": skipped,
    }));
    out.line(if stored == 0 && removed == 0 && unchanged > 0 {
        format!("unchanged: all {unchanged} files were sources of namespace {namespace} already")
    } else {
        format!(
            "{stored} stored, {unchanged} unchanged, {removed} removed, {} left out; {known} readable in namespace {namespace}",
            skipped.len()
        )
    });
    if known < 0 || (known as u64) < expected {
        return Err(Failure::new(
            Kind::CheckFailed,
            "not_readable",
            format!("{expected} sources were put and {known} can be read back"),
        )
        .hint("another session may have deleted some; run it again"));
    }
    Ok(())
}

fn failure_at(failure: Failure, path: &Path) -> Failure {
    Failure {
        message: format!("{}: {}", path.display(), failure.message),
        ..failure
    }
}

fn root(ingest: &Ingest, context: &Context) -> Outcome<PathBuf> {
    let named = match (&ingest.root, &context.origin.file) {
        (Some(root), _) => root.clone(),
        (None, Some(file)) => file.parent().unwrap_or(Path::new(".")).to_path_buf(),
        (None, None) => PathBuf::from("."),
    };
    named.canonicalize().map_err(|error| {
        Failure::usage(format!(
            "the root {} cannot be used: {error}",
            named.display()
        ))
    })
}

struct Walk<'a> {
    root: &'a Path,
    limits: &'a config::Ingest,
    seen: HashSet<PathBuf>,
    /// The paths of the command line as sources are named: a folder with `/` at its end.
    named: Vec<String>,
    found: Vec<Found>,
    skipped: Vec<Skipped>,
}

impl Walk<'_> {
    /// A path of the command line: it must exist and lie below the root, and may be hidden.
    fn named(&mut self, path: &Path) -> Outcome<()> {
        let real = path.canonicalize().map_err(|error| {
            Failure::usage(format!("{} cannot be read: {error}", path.display()))
        })?;
        if !real.starts_with(self.root) {
            return Err(Failure::usage(format!(
                "{} is not below {}",
                path.display(),
                self.root.display()
            ))
            .hint("name the folder that the sources' names shall be relative to with --root"));
        }
        let Some(mut name) = artifact_id(self.root, &real) else {
            return Err(Failure::usage(format!(
                "{} is not named in valid UTF-8",
                path.display()
            )));
        };
        if real.is_dir() && real != self.root {
            name.push('/');
        }
        self.named.push(name);
        self.visit(real)
    }

    fn visit(&mut self, start: PathBuf) -> Outcome<()> {
        let mut open = vec![start];
        while let Some(path) = open.pop() {
            let kind = match fs::symlink_metadata(&path) {
                Ok(about) => about.file_type(),
                Err(error) => {
                    self.skip(path, error.to_string());
                    continue;
                }
            };
            if kind.is_dir() {
                match children(&path) {
                    Ok(children) => open.extend(children),
                    Err(error) => self.skip(path, error.to_string()),
                }
            } else if kind.is_file() {
                self.file(path)?;
            } else {
                self.skip(path, "a link or a special file".to_owned());
            }
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf) -> Outcome<()> {
        let Some(artifact_id) = artifact_id(self.root, &path) else {
            self.skip(path, "its name is not valid UTF-8".to_owned());
            return Ok(());
        };
        if !self.seen.insert(path.clone()) {
            return Ok(());
        }
        if self.found.len() >= self.limits.max_files {
            return Err(Failure::usage(format!(
                "there are more than {} files",
                self.limits.max_files
            ))
            .hint("name fewer, or raise ingest.max_files"));
        }
        self.found.push(Found { path, artifact_id });
        Ok(())
    }

    fn skip(&mut self, path: PathBuf, reason: String) {
        self.skipped.push(Skipped { path, reason });
    }
}

/// What lies in a folder and is not hidden, last name first, so that a stack gives the first one first.
fn children(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut children = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            children.push(entry.path());
        }
    }
    children.sort_unstable_by(|a, b| b.cmp(a));
    Ok(children)
}

/// `file:` and the path below the root, with `/` between the parts on every system.
fn artifact_id(root: &Path, path: &Path) -> Option<String> {
    let relative = path.strip_prefix(root).ok()?;
    let parts: Option<Vec<&str>> = relative
        .components()
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    Some(format!("file:{}", parts?.join("/")))
}

/// Reads a file, or says why it is left out.
fn source(file: &Found, namespace: &str, limits: &config::Ingest) -> Result<Source, String> {
    let handle = fs::File::open(&file.path).map_err(|error| error.to_string())?;
    let changed = handle.metadata().and_then(|about| about.modified()).ok();
    let mut bytes = Vec::new();
    handle
        .take(limits.max_file_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > limits.max_file_bytes {
        return Err(format!(
            "more than {} bytes (ingest.max_file_bytes)",
            limits.max_file_bytes
        ));
    }
    let body = String::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned())?;
    if body.contains('\0') {
        return Err("not text: it holds a NUL byte".to_owned());
    }
    if body.trim().is_empty() {
        return Err("no text in it".to_owned());
    }
    let path = file.artifact_id.trim_start_matches("file:");
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    Ok(Source {
        artifact_id: file.artifact_id.clone(),
        title: Some(heading(&body).unwrap_or(name).to_owned()),
        origin: (!folder.is_empty()).then(|| folder.to_owned()),
        dated: changed.and_then(date),
        body,
        namespace: namespace.to_owned(),
    })
}

/// Longest heading that is taken for a title, in bytes.
const LONGEST_HEADING: usize = 200;

/// The first heading of a Markdown text.
fn heading(body: &str) -> Option<&str> {
    body.lines()
        .find_map(|line| line.strip_prefix("# "))
        .map(str::trim)
        .filter(|title| !title.is_empty() && title.len() <= LONGEST_HEADING)
}

/// The day of a time in UTC, as `2026-03-01`. None before 1970.
fn date(time: SystemTime) -> Option<String> {
    let days = time.duration_since(UNIX_EPOCH).ok()?.as_secs() / 86_400;
    // Gregorian rules over eras of 400 years (146,097 days), with years that begin in March.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    Some(format!("{year:04}-{month:02}-{day:02}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_follow_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (86_399, "1970-01-01"),
            (86_400, "1970-01-02"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_709_164_800, "2024-02-29"),
            (1_735_689_599, "2024-12-31"),
            (4_107_542_400, "2100-03-01"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(date(time).unwrap(), expected, "{seconds}");
        }
    }

    #[test]
    fn titles_are_first_headings() {
        assert_eq!(heading("text\n# One\n# Two"), Some("One"));
        assert_eq!(heading("#no space\n## second level"), None);
        assert_eq!(heading("# \n"), None);
        assert_eq!(
            heading(&format!("# {}", "x".repeat(LONGEST_HEADING))).map(str::len),
            Some(LONGEST_HEADING)
        );
        assert_eq!(
            heading(&format!("# {}", "x".repeat(LONGEST_HEADING + 1))),
            None
        );
    }

    #[test]
    fn names_are_relative_and_portable() {
        let root = Path::new("/srv/wiki");
        assert_eq!(
            artifact_id(root, Path::new("/srv/wiki/a/b.md")).unwrap(),
            "file:a/b.md"
        );
        assert_eq!(artifact_id(root, Path::new("/srv/other/b.md")), None);
    }
}
