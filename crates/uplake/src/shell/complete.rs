//! What Tab completes: keywords, tables, columns, functions, files and commands.

use std::collections::BTreeMap;
use std::path::{MAIN_SEPARATOR, Path};
use std::sync::{Arc, Mutex, PoisonError};

use rustyline::completion::{Completer, Pair};
use rustyline::{Helper, Highlighter, Hinter, Validator};

use crate::shell::meta::COMMANDS;
use crate::shell::open::{Open, extent};

/// Candidates shown at once; a longer list helps nobody.
const CANDIDATES_MAX: usize = 200;

/// The names there are in a lake.
#[derive(Debug, Default)]
pub struct Names {
    /// Tables and their columns.
    pub tables: BTreeMap<String, Vec<String>>,
    pub functions: Vec<String>,
}

/// Completes what is typed, by names that may be read again meanwhile.
#[derive(Default, Helper, Highlighter, Hinter, Validator)]
pub struct NameCompleter {
    pub names: Arc<Mutex<Names>>,
    /// The lines of the statement before the one that is typed.
    pub before: String,
}

impl Completer for NameCompleter {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..position];
        if let Some((start, word)) = file_word(&self.before, typed) {
            return Ok((start, pairs(files(word))));
        }
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, words) = complete(&names, &self.before, typed, &line[position..]);
        Ok((start, pairs(words)))
    }
}

fn pairs(words: Vec<String>) -> Vec<Pair> {
    let pair = |word: String| Pair { display: word.clone(), replacement: word };
    words.into_iter().take(CANDIDATES_MAX).map(pair).collect()
}

/// What the last word of `typed` may become, and where it begins. Columns of tables that the statement names come
/// first, then tables, keywords and functions, then other columns.
pub fn complete(names: &Names, before: &str, typed: &str, after: &str) -> (usize, Vec<String>) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if before.trim().is_empty() && typed.trim_start().starts_with('\\') && !typed.contains(' ') {
        let start = typed.len() - typed.trim_start().len();
        let begins = |name: &&str| name.starts_with(&typed[start..]);
        let commands = COMMANDS.iter().map(|(name, ..)| *name).filter(begins);
        return (start, commands.map(str::to_owned).collect());
    }
    let start = typed.trim_end_matches(is_word).len();
    let word = typed[start..].to_lowercase();
    let whole = format!("{before}{typed}{after}");
    let used: Vec<String> =
        whole.split(|c| !is_word(c)).filter(|w| !w.is_empty()).map(str::to_lowercase).collect();
    let is_named = |table: &str| used.contains(&table.to_lowercase());
    let mut candidates = Vec::new();
    if let Some(qualifier) = typed[..start].strip_suffix('.') {
        // A table's name, or an alias that we do not look up.
        let qualifier = qualifier[qualifier.trim_end_matches(is_word).len()..].to_lowercase();
        let of_it = |table: &str| table.to_lowercase() == qualifier;
        candidates = columns(names, of_it);
        if candidates.is_empty() {
            candidates = columns(names, is_named);
        }
        return (start, beginning(candidates, &word));
    }
    if word.is_empty() && !wants_table(typed) {
        return (start, Vec::new());
    }
    let tables = || names.tables.keys().map(|name| quoted(name));
    if wants_table(&typed[..start]) {
        candidates.extend(tables());
        return (start, beginning(candidates, &word));
    }
    candidates.extend(columns(names, is_named));
    candidates.extend(tables());
    let lower = typed[start..].chars().all(char::is_lowercase);
    let in_case =
        |keyword: &&str| if lower { keyword.to_lowercase() } else { (*keyword).to_owned() };
    candidates.extend(KEYWORDS.iter().map(in_case));
    candidates.extend(names.functions.iter().map(|name| format!("{name}(")));
    let mut found = beginning(candidates, &word);
    if found.is_empty() {
        found = beginning(columns(names, |_| true), &word);
    }
    (start, found)
}

/// Columns of some tables.
fn columns(names: &Names, of: impl Fn(&str) -> bool) -> Vec<String> {
    let tables = names.tables.iter().filter(|(table, _)| of(table));
    tables.flat_map(|(_, columns)| columns.iter().map(|name| quoted(name))).collect()
}

/// Those that begin so, each once, in their order.
fn beginning(candidates: Vec<String>, word: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for candidate in candidates {
        let bare = candidate.trim_start_matches('"').to_lowercase();
        if bare.starts_with(word) && !found.contains(&candidate) {
            found.push(candidate);
        }
    }
    found
}

/// Is the next word a table's name?
fn wants_table(before: &str) -> bool {
    let words: Vec<&str> = before.split_whitespace().collect();
    let ends_word = before.ends_with(char::is_whitespace);
    let last = words.last().map(|word| word.to_uppercase()).unwrap_or_default();
    let wanted = ["FROM", "JOIN", "INTO", "TABLE", "DESCRIBE", "UPDATE", "\\D"];
    ends_word && wanted.contains(&last.as_str())
}

/// Names with anything but small letters, digits and `_` need quotes.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_plain = name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit());
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The part of a file's name that is typed, and where its last part begins: after `FROM '`, `JOIN '`, `TO '`, or
/// after `\i` and `\o`.
fn file_word<'a>(before: &str, typed: &'a str) -> Option<(usize, &'a str)> {
    for command in ["\\i ", "\\o "] {
        if let Some(word) = typed.trim_start().strip_prefix(command) {
            return Some((typed.len() - last_part(word).len(), word.trim_start_matches('\'')));
        }
    }
    if extent(&format!("{before}{typed}")).open != Some(Open::Text) {
        return None;
    }
    let quote = typed.rfind('\'')?;
    let last = typed[..quote].split_whitespace().next_back().unwrap_or_default();
    let is_file = ["FROM", "JOIN", "TO"].iter().any(|word| last.eq_ignore_ascii_case(word));
    let word = &typed[quote + 1..];
    is_file.then(|| (typed.len() - last_part(word).len(), word))
}

fn last_part(path: &str) -> &str {
    path.rsplit(['/', '\'']).next().unwrap_or_default()
}

/// Files and folders whose path begins so; their last parts, folders with a separator.
fn files(path: &str) -> Vec<String> {
    let last = last_part(path);
    let folder = &path[..path.len() - last.len()];
    let folder = if folder.is_empty() { Path::new(".") } else { Path::new(folder) };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_hidden = name.starts_with('.') && !last.starts_with('.');
            let is_folder = entry.path().is_dir();
            let shown = if is_folder { format!("{name}{MAIN_SEPARATOR}") } else { name };
            (shown.starts_with(last) && !is_hidden).then_some(shown)
        })
        .collect();
    found.sort();
    found
}

const KEYWORDS: &[&str] = &[
    "ALL",
    "ANALYZE",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "CLUSTERED BY",
    "COPY",
    "CREATE TABLE",
    "CROSS JOIN",
    "DATE",
    "DELETE FROM",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DOUBLE",
    "DROP TABLE",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    "FALSE",
    "FILTER",
    "FIRST",
    "FROM",
    "FULL JOIN",
    "GROUP BY",
    "HAVING",
    "ID DOMAINS",
    "ID SET",
    "IN",
    "INDEXED BY",
    "INNER JOIN",
    "INSERT INTO",
    "INTERSECT",
    "INTERVAL",
    "IS",
    "JOIN",
    "LAST",
    "LEFT JOIN",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER BY",
    "OVER",
    "PARTITION BY",
    "PARTITIONED BY",
    "PRIMARY KEY",
    "RIGHT JOIN",
    "SELECT",
    "SET",
    "SHOW TABLES",
    "THEN",
    "TIMESTAMP",
    "TIMESTAMP AS OF",
    "TO",
    "TRUE",
    "UNION",
    "UNION ALL",
    "USING",
    "VALUES",
    "VERSION AS OF",
    "WARM UP TABLE",
    "WHEN",
    "WHERE",
    "WITH",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let tables = BTreeMap::from([
            ("events".to_owned(), columns(&["user_id", "event", "amount"])),
            ("exposures".to_owned(), columns(&["user_id", "variant", "Exposed At"])),
        ]);
        Names { tables, functions: vec!["avg".into(), "uplift".into()] }
    }

    fn found(before: &str, typed: &str, after: &str) -> Vec<String> {
        complete(&names(), before, typed, after).1
    }

    #[test]
    fn a_word_becomes_what_the_lake_has() {
        let cases: [(&str, &str, &str, &[&str]); 12] = [
            ("", "SEL", "", &["SELECT"]),
            ("", "sel", "", &["select"]),
            ("", "SELECT * FROM e", "", &["events", "exposures"]),
            ("", "SELECT * FROM ", "", &["events", "exposures"]),
            ("", "SELECT am", " FROM events", &["amount"]),
            ("SELECT * FROM events\n", "WHERE us", "", &["user_id", "using"]),
            ("", "SELECT vari", "", &["variant"]),
            ("", "SELECT avg(events.a", "", &["amount"]),
            ("", "SELECT x.exp", " FROM exposures x", &["\"Exposed At\""]),
            ("", "SELECT av", "", &["avg("]),
            ("", "\\t", "", &["\\timing"]),
            ("", "\\d ex", "", &["exposures"]),
        ];
        for (before, typed, after, expected) in cases {
            assert_eq!(found(before, typed, after), expected, "{typed}");
        }
        assert_eq!(complete(&names(), "", "SELECT * FROM ev", "").0, 14);
    }

    #[test]
    fn files_are_completed_where_one_may_stand() {
        assert_eq!(file_word("", "SELECT * FROM 'data/ev"), Some((20, "data/ev")));
        assert_eq!(file_word("SELECT * FROM\n", "JOIN 'a"), Some((6, "a")));
        assert_eq!(file_word("", "\\i q"), Some((3, "q")));
        for typed in ["SELECT 'ab", "SELECT * FROM ev", "SELECT * FROM 'a' WHERE x = 'b"] {
            assert_eq!(file_word("", typed), None, "{typed}");
        }
        let folder = tempfile::tempdir().expect("there is room for a folder");
        std::fs::create_dir(folder.path().join("days")).expect("it is empty");
        std::fs::write(folder.path().join("data.csv"), "a\n1\n").expect("it is ours");
        let path = format!("{}/da", folder.path().display());
        assert_eq!(files(&path), ["data.csv", "days/"]);
    }
}
