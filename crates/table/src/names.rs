//! Names of tables, and the paths of what they are made of.

use object_store::path::Path;

use crate::error::{Result, TableError};

const TABLE_NAME_MAX_BYTES: usize = 128;

/// A table name is a plain identifier that does not start with an underscore.
///
/// # Errors
/// [`TableError::Invalid`] says which character is in the way.
pub fn check_table_name(name: &str) -> Result<()> {
    check_name("table", name)
}

/// Which of the tables that there are a statement means by a name: the one of exactly that name, or else the only one
/// that differs from it in case alone.
pub fn table_called<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let mut others = Vec::new();
    for known in known {
        if known == name {
            return Some(known);
        }
        if known.to_lowercase() == lower {
            others.push(known);
        }
    }
    <[&str; 1]>::try_from(others).ok().map(|[only]| only)
}

/// The same for other things with names.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let allowed = |c: char| c.is_alphanumeric() || c == '_';
    let problem = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > TABLE_NAME_MAX_BYTES {
        format!("is longer than {TABLE_NAME_MAX_BYTES} bytes")
    } else if name.starts_with('_') {
        "starts with `_`, which is kept for uplake's own folders".to_owned()
    } else if name.starts_with(|c: char| c.is_ascii_digit()) {
        "starts with a digit".to_owned()
    } else if let Some(c) = name.chars().find(|c| !allowed(*c)) {
        format!("holds `{}`; use letters, digits and `_`", c.escape_default())
    } else {
        return Ok(());
    };
    Err(TableError::Invalid(format!("{what} name `{name}` {problem}")))
}

/// Of a commit, from the lake's root.
pub(crate) fn commit_path(table: &str, version: u64) -> String {
    format!("{table}/_delta_log/{version:020}.json")
}

pub(crate) fn is_commit_name(name: &str) -> bool {
    let digits = name.split('.').next().unwrap_or_default();
    digits.len() == 20
        && digits.bytes().all(|b| b.is_ascii_digit())
        && (name.ends_with(".json") || name.ends_with(".parquet"))
}

/// Joins a decoded path of the log to the table's folder.
pub(crate) fn store_path(table: &str, prefix: &Path, path: &str) -> Result<Path> {
    if path.contains("://") || path.starts_with('/') {
        return Err(TableError::UnsupportedFeature {
            table: table.to_owned(),
            feature: "absolute file paths (a shallow clone)".to_owned(),
        });
    }
    Path::parse(format!("{prefix}/{path}"))
        .map_err(|e| TableError::Invalid(format!("table `{table}`, data file `{path}`: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_called_by_its_name_or_by_the_only_other_spelling() {
        let check = |known: &[&str], name: &str, expected: Option<&str>| {
            let called = table_called(name, known.iter().copied());
            assert_eq!(called, expected, "{name} of {known:?}");
        };
        check(&["events", "Users"], "events", Some("events"));
        check(&["events", "Users"], "EVENTS", Some("events"));
        check(&["events", "Users"], "users", Some("Users"));
        check(&["Events", "events"], "events", Some("events"));
        check(&["Events", "events"], "EVENTS", None);
        check(&["Événements"], "événements", Some("Événements"));
        check(&["events"], "event", None);
    }

    #[test]
    fn table_names_are_identifiers() {
        for good in ["events", "Events2", "événements", "a_b"] {
            assert!(check_table_name(good).is_ok(), "{good}");
        }
        for bad in ["", "_x", "1a", "a/b", "..", "a b", "a.b"] {
            assert!(check_table_name(bad).is_err(), "{bad}");
        }
    }
}
