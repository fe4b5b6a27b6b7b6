//! Reading settings: where they come from, which keys exist, and which type each has.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::{Config, DEFAULTS};
use crate::error::{Failure, Outcome};

/// Name of the file that is looked for.
const FILE_NAME: &str = "cortex.toml";
/// Every environment variable that begins so must be one of ours.
const PREFIX: &str = "CORTEX_";
/// Names the file.
const FILE_VARIABLE: &str = "CORTEX_CONFIG";
/// Largest settings file: far above any real one.
const LARGEST_FILE: u64 = 1 << 20;
/// Keys that hold a path.
const PATHS: [(&str, &str); 2] = [("model", "dir"), ("state", "dir")];

/// Where the settings came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The file, if there was one.
    pub file: Option<PathBuf>,
    /// The environment variables that were used, in order of their names.
    pub variables: Vec<String>,
}

/// Loads the settings of this process: `file` if given, else as `CORTEX_CONFIG` or the walk up from the
/// working directory finds it.
///
/// # Errors
/// Unreadable, malformed, unknown or out-of-range settings.
pub fn load(file: Option<&Path>) -> Outcome<(Config, Origin)> {
    let here = std::env::current_dir().map_err(|error| {
        Failure::system(format!("the working directory cannot be read: {error}"))
    })?;
    load_from(file, &here, std::env::vars_os())
}

/// As [`load`], for a given working directory and environment.
///
/// # Errors
/// As [`load`].
pub fn load_from(
    file: Option<&Path>,
    here: &Path,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Outcome<(Config, Origin)> {
    let mut variables = our_variables(environment)?;
    let named = variables.remove(FILE_VARIABLE);
    let file = match (file, named) {
        (Some(path), _) => Some(here.join(path)),
        (None, Some(path)) if path.is_empty() => {
            return Err(invalid(format!("{FILE_VARIABLE} is empty"))
                .hint(format!("name a file, or unset it to look for {FILE_NAME}")));
        }
        (None, Some(path)) => Some(here.join(path)),
        (None, None) => find_upwards(here),
    };
    let mut settings = defaults()?;
    let base = match &file {
        None => here.to_path_buf(),
        Some(path) => {
            overlay(&mut settings, read_file(path)?, path)?;
            path.parent().unwrap_or(here).to_path_buf()
        }
    };
    for (name, text) in &variables {
        let (section, key, default) = variable_target(&settings, name)?;
        let value = parse_like(&default, text).ok_or_else(|| {
            wrong_type(
                name,
                &default,
                &format!("{text:?}"),
                is_secret(&section, &key),
            )
        })?;
        set(&mut settings, &section, &key, value);
    }
    anchor_paths(&mut settings, &base);
    let config: Config = Value::Table(settings)
        .try_into()
        .map_err(|error: toml::de::Error| invalid(error.message().to_owned()))?;
    config.check()?;
    let variables = variables.into_keys().collect();
    Ok((config, Origin { file, variables }))
}

fn invalid(message: String) -> Failure {
    Failure {
        code: "invalid_config",
        ..Failure::usage(message)
    }
}

fn defaults() -> Outcome<Table> {
    DEFAULTS
        .parse()
        .map_err(|error| Failure::internal(format!("the compiled defaults are not TOML: {error}")))
}

/// Ours among the variables. A value that is not Unicode is refused rather than passed over.
fn our_variables(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Outcome<BTreeMap<String, String>> {
    let mut ours = BTreeMap::new();
    for (name, value) in environment {
        let Ok(name) = name.into_string() else {
            continue;
        };
        if !name.starts_with(PREFIX) {
            continue;
        }
        let value = value
            .into_string()
            .map_err(|_| invalid(format!("the value of {name} is not valid UTF-8")))?;
        ours.insert(name, value);
    }
    Ok(ours)
}

fn find_upwards(here: &Path) -> Option<PathBuf> {
    here.ancestors()
        .map(|folder| folder.join(FILE_NAME))
        .find(|path| path.is_file())
}

fn read_file(path: &Path) -> Outcome<Table> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| invalid(format!("{shown} cannot be read: {error}"));
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > LARGEST_FILE {
        return Err(invalid(format!(
            "{shown} has {size} bytes, the limit is {LARGEST_FILE}"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    // The parser's own display quotes the line, which may hold a password.
    text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map(|span| {
            let before = text.get(..span.start).unwrap_or_default();
            format!(", line {}", 1 + before.matches('\n').count())
        });
        invalid(format!(
            "{shown}{}: {}",
            line.unwrap_or_default(),
            error.message()
        ))
    })
}

/// Puts the file's keys over the defaults, refusing what the defaults do not have.
fn overlay(settings: &mut Table, file: Table, path: &Path) -> Outcome<()> {
    let shown = path.display();
    for (section, entries) in file {
        let Some(Value::Table(known)) = settings.get_mut(&section) else {
            let names: Vec<&str> = settings.keys().map(String::as_str).collect();
            return Err(invalid(format!("{shown}: there is no section [{section}]"))
                .hint(nearest_hint(&section, &names)));
        };
        let Value::Table(entries) = entries else {
            return Err(invalid(format!(
                "{shown}: `{section}` is a section; write [{section}] and its keys below"
            )));
        };
        for (key, value) in entries {
            let full = format!("{section}.{key}");
            let Some(default) = known.get(&key) else {
                let names: Vec<String> = known
                    .keys()
                    .map(|name| format!("{section}.{name}"))
                    .collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                return Err(invalid(format!("{shown}: there is no key {full}"))
                    .hint(nearest_hint(&full, &names)));
            };
            if !default.same_type(&value) {
                let place = format!("{shown}: {full}");
                return Err(wrong_type(
                    &place,
                    default,
                    &value.to_string(),
                    is_secret(&section, &key),
                ));
            }
            known.insert(key, value);
        }
    }
    Ok(())
}

/// Section, key and default value that a variable stands for.
fn variable_target(settings: &Table, name: &str) -> Outcome<(String, String, Value)> {
    let known: Vec<(String, &String, &String, &Value)> = settings
        .iter()
        .filter_map(|(section, entries)| Some((section, entries.as_table()?)))
        .flat_map(|(section, entries)| {
            entries
                .iter()
                .map(move |(key, value)| (variable_name(section, key), section, key, value))
        })
        .collect();
    if let Some((_, section, key, value)) = known.iter().find(|(variable, ..)| variable == name) {
        return Ok(((*section).clone(), (*key).clone(), (*value).clone()));
    }
    let mut names: Vec<&str> = known
        .iter()
        .map(|(variable, ..)| variable.as_str())
        .collect();
    names.push(FILE_VARIABLE);
    Err(invalid(format!(
        "the environment variable {name} is not a setting of Cortex"
    ))
    .hint(nearest_hint(name, &names)))
}

fn variable_name(section: &str, key: &str) -> String {
    format!("{PREFIX}{}__{}", section.to_uppercase(), key.to_uppercase())
}

fn nearest_hint(name: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(name, a).total_cmp(&strsim::jaro_winkler(name, b)));
    match nearest {
        Some(nearest) => format!("did you mean {nearest}? `cortex doctor` lists every setting"),
        None => "`cortex doctor` lists every setting".to_owned(),
    }
}

/// Reads the text of a variable as the type of the default.
fn parse_like(default: &Value, text: &str) -> Option<Value> {
    match default {
        Value::Integer(_) => text.trim().parse().ok().map(Value::Integer),
        Value::Boolean(_) => text.trim().parse().ok().map(Value::Boolean),
        Value::String(_) => Some(Value::String(text.to_owned())),
        _ => None,
    }
}

fn wrong_type(place: &str, default: &Value, found: &str, secret: bool) -> Failure {
    let wanted = match default {
        Value::Integer(_) => "a whole number",
        Value::Boolean(_) => "true or false",
        _ => "a string in quotes",
    };
    let found = if secret {
        "something else".to_owned()
    } else {
        found.to_owned()
    };
    invalid(format!("{place} must be {wanted} and is {found}"))
}

fn is_secret(section: &str, key: &str) -> bool {
    matches!(
        (section, key),
        ("database", "url" | "direct_url") | ("server", "key") | ("language_model", "api_key")
    )
}

fn set(settings: &mut Table, section: &str, key: &str, value: Value) {
    if let Some(Value::Table(entries)) = settings.get_mut(section) {
        entries.insert(key.to_owned(), value);
    }
}

fn anchor_paths(settings: &mut Table, base: &Path) {
    for (section, key) in PATHS {
        let Some(Value::String(path)) = settings
            .get_mut(section)
            .and_then(|entries| entries.get_mut(key))
        else {
            continue;
        };
        if !path.is_empty() {
            *path = base.join(&*path).to_string_lossy().into_owned();
        }
    }
}
