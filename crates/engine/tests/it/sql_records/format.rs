//! The text of a .slt file as records.

use regex::Regex;

/// One statement or query of a file, and what is expected of it.
pub struct Record {
    /// Where it begins, from 1.
    pub line: usize,
    pub sql: String,
    pub is_query: bool,
    pub expected: Expected,
}

pub enum Expected {
    Done,
    /// So many rows were written or removed.
    Count(u64),
    Error(Regex),
    /// One letter of `types` per column; values of a row have TABs between them.
    Rows {
        types: String,
        rows: Vec<String>,
        any_order: bool,
    },
    /// No statement: is `$TMP` replaced from here on?
    Substitution(bool),
}

impl Expected {
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

/// The records of a file in its order.
pub fn records(text: &str) -> Result<Vec<Record>, String> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, head)) = lines.next() {
        let head = head.trim();
        if head.is_empty() || head.starts_with('#') {
            continue;
        }
        let mut sql: Vec<&str> = Vec::new();
        let mut rows: Option<Vec<String>> = None;
        if !head.starts_with("control ") {
            for (_, line) in lines.by_ref().take_while(|(_, line)| !line.trim().is_empty()) {
                match &mut rows {
                    Some(rows) => rows.push(line.split_whitespace().collect::<Vec<_>>().join("\t")),
                    None if line.trim() == "----" => rows = Some(Vec::new()),
                    None => sql.push(line),
                }
            }
        }
        let line = at + 1;
        let expected = expected(head, rows).map_err(|problem| format!("line {line}: {problem}"))?;
        let is_query = head.starts_with("query");
        found.push(Record { line, sql: sql.join("\n"), is_query, expected });
    }
    Ok(found)
}

fn expected(head: &str, rows: Option<Vec<String>>) -> Result<Expected, String> {
    let mut words = head.splitn(3, char::is_whitespace).map(str::trim);
    let (kind, mode, rest) = (words.next(), words.next(), words.next().unwrap_or_default());
    Ok(match (kind, mode) {
        (Some("control"), Some("substitution")) => Expected::Substitution(rest == "on"),
        (Some("statement" | "query"), Some("error")) => {
            Expected::Error(Regex::new(rest).map_err(|error| error.to_string())?)
        }
        (Some("statement"), Some("ok")) => Expected::Done,
        (Some("statement"), Some("count")) => {
            Expected::Count(rest.parse().map_err(|_| format!("`{rest}` is no number of rows"))?)
        }
        (Some("query"), Some(types)) => Expected::Rows {
            types: types.to_owned(),
            rows: rows.unwrap_or_default(),
            any_order: rest == "rowsort",
        },
        _ => return Err(format!("`{head}` begins no record")),
    })
}
