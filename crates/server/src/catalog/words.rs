//! Names and texts as SQL writes them.

use super::listing::{ListedIndex, ListedTable};

/// A name that needs no quotes stays as it is.
pub(super) fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if begins && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL writes it.
pub(super) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    match quoted.contains('\\') {
        true => format!(" E'{}'", quoted.replace('\\', "\\\\")),
        false => format!("'{quoted}'"),
    }
}

/// The parts of a name with dots, each without its quotes, in lower case if it had none.
pub(super) fn parts(written: &str) -> Vec<String> {
    let (mut parts, mut part, mut in_quotes) = (Vec::new(), String::new(), false);
    let mut chars = written.trim().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if in_quotes && chars.peek() == Some(&'"') => {
                part.push('"');
                chars.next();
            }
            '"' => in_quotes = !in_quotes,
            '.' if !in_quotes => parts.push(std::mem::take(&mut part)),
            c if in_quotes => part.push(c),
            c => part.extend(c.to_lowercase()),
        }
    }
    parts.push(part);
    parts
}

/// The statement that would make an index in Postgres.
pub(super) fn index_definition(table: &ListedTable, index: &ListedIndex) -> String {
    let unique = if index.is_key { "UNIQUE " } else { "" };
    let columns: Vec<String> = index.columns.iter().map(|name| quoted(name)).collect();
    let (name, table) = (quoted(&index.name), quoted(&table.name));
    format!("CREATE {unique}INDEX {name} ON public.{table} USING btree ({})", columns.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_and_read_as_sql_has_them() {
        assert_eq!(quoted("user_id1"), "user_id1");
        assert_eq!(quoted("Mixed"), "\"Mixed\"");
        assert_eq!(quoted("1a"), "\"1a\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\b"), " E'a\\\\b'");
        assert_eq!(parts("Public.\"A.\"\"B\".c"), ["public", "A.\"B", "c"]);
    }
}
