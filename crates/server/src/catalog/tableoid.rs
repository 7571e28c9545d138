//! `x.tableoid`, the number of the catalog table that `x` is, as psql's `\dd` and `\dL` ask for it.
//!
//! Postgres has the column in every table and shows it in no `*`; here the number is written in its place.

use std::borrow::Cow;

use super::tokens::{Kind, Token, tokens};

const COLUMN: &str = "tableoid";

/// The text with numbers in place of `tableoid`s; what is no catalog's is left to the planner.
pub(super) fn resolve(text: &str) -> Cow<'_, str> {
    if !text.to_ascii_lowercase().contains(COLUMN) {
        return Cow::Borrowed(text);
    }
    let found = tokens(text).unwrap_or_default();
    let (mut made, mut from) = (String::new(), 0);
    for at in 0..found.len().saturating_sub(2) {
        let is_column = found[at + 1].is_symbol(".") && found[at + 2].is_word(COLUMN);
        let Some(table) =
            found[at].name().filter(|_| is_column).and_then(|x| named(&found, at, &x))
        else {
            continue;
        };
        made.push_str(&text[from..found[at].at]);
        made.push_str(&format!("regclass_in('{table}')"));
        from = found[at + 2].range().end;
    }
    match from {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(made + &text[from..]),
    }
}

/// The table that is called `alias` next to a token: names stand in SELECT before the tables that they are of.
fn named(found: &[Token<'_>], at: usize, alias: &str) -> Option<String> {
    let table = |place: usize| {
        let table = found[place].name().filter(|name| name.starts_with("pg_"))?;
        let next = match found.get(place + 1) {
            Some(word) if word.is_word("as") => found.get(place + 2),
            next => next,
        };
        let is_called = next.is_some_and(|next| next.name().as_deref() == Some(alias));
        let is_itself = table == alias && place != at;
        (found[place].kind == Kind::Word && (is_called || is_itself)).then_some(table)
    };
    (at..found.len()).find_map(table).or_else(|| (0..at).rev().find_map(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_catalog_is_written_for_it() {
        for (text, expected) in [
            (
                "SELECT c.tableoid FROM pg_catalog.pg_constraint c UNION SELECT c.TableOid FROM pg_class AS c",
                "SELECT regclass_in('pg_constraint') FROM pg_catalog.pg_constraint c \
                 UNION SELECT regclass_in('pg_class') FROM pg_class AS c",
            ),
            (
                "SELECT 1 FROM pg_language l JOIN pg_description d ON d.classoid = l.tableoid",
                "SELECT 1 FROM pg_language l JOIN pg_description d ON d.classoid = regclass_in('pg_language')",
            ),
            ("SELECT t.tableoid FROM users t", "SELECT t.tableoid FROM users t"),
            ("SELECT 'a.tableoid' FROM pg_class a", "SELECT 'a.tableoid' FROM pg_class a"),
        ] {
            assert_eq!(resolve(text), expected);
        }
    }
}
