//! Pieces of clients' statements that the planner refuses, and what stands in their places.
//!
//! A pattern is tokens, compared without regard to case and to `pg_catalog.`; `$1` in it is whatever stands there
//! up to the token behind it, with its brackets closed, and stands for the same in what takes its place.
//!
//! # Invariants
//! - What takes a piece's place means the same about a lake, in which some of Postgres' catalogs are always empty.
//! - Each entry says who sends it. It goes when the planner takes what is written.

use std::borrow::Cow;
use std::ops::Range;

use super::tokens::{Kind, Token, tokens};

/// Tokens of a statement that is looked at; psql's and drivers' have some hundred, JDBC's types 3,000.
const TOKENS: usize = 10_000;
/// Replacements in one statement.
const REPLACEMENTS: usize = 100;

/// Words without which a text is of no client, in lower case.
const SIGNS: [&str; 3] = ["pg_", "current_schemas", "search_path"];

/// The client, the version it was seen in and what for; the pattern; what takes its place.
type Known = (&'static str, &'static str, &'static str);

const KNOWN: [Known; 30] = [
    (
        "psql 15: \\d name, publications: a series of each row's elements",
        "select pubname , null , null from pg_publication p $1",
        "SELECT pubname, CAST(NULL AS text) AS qual, CAST(NULL AS text) AS attrs \
                  FROM pg_catalog.pg_publication WHERE false",
    ),
    (
        "psql 10 to 14: \\d name, publications",
        "select pubname from pg_publication p $1",
        "SELECT pubname FROM pg_catalog.pg_publication WHERE false",
    ),
    (
        "psql: \\d name, policies: roles of a policy as a list",
        "array ( select rolname from pg_roles where oid = any ( pol . polroles ) order by 1 )",
        "roles_of_policy(pol.oid)",
    ),
    ("psql: \\d name, policies: a text as a list", "pol . polroles = '{0}'", "pol.polroles[1] = 0"),
    (
        "psql: \\dp, policies",
        "array ( select polname $1 from pg_policy pol where polrelid = c . oid )",
        "policies_of(c.oid)",
    ),
    (
        "psql: \\dp, columns",
        "array ( select attname $1 from pg_attribute a where attrelid = c . oid and not attisdropped \
                  and attacl is not null )",
        "column_rights_of(c.oid)",
    ),
    (
        "psql 10 to 15: \\du",
        "array ( select b . rolname from pg_auth_members m join pg_roles b on ( m . roleid = b . oid ) \
                  where m . member = r . oid )",
        "roles_of(r.oid)",
    ),
    (
        "psql: \\dD, checks of domains: there are none",
        "array ( select pg_get_constraintdef ( r . oid , true ) from pg_constraint r where t . oid = r . contypid )",
        "no_texts()",
    ),
    (
        "psql: \\dy, what event triggers are for: there are none",
        "array ( select x from unnest ( evttags ) as t ( x ) )",
        "no_texts()",
    ),
    (
        "psql: \\dX, extended statistics: there are none",
        "format ( '%s FROM %s' , $1 , $2 )",
        "CAST(NULL AS text)",
    ),
    (
        "SQLAlchemy 2: collations of columns",
        "( select pg_type . typcollation from pg_type \
                  where pg_type . oid = pg_attribute . atttypid )",
        "pg_catalog.pg_attribute.attcollation",
    ),
    (
        "psql: \\d+ name, options",
        "c . reloptions || array ( select $1 from unnest ( tc . reloptions ) x )",
        "c.reloptions",
    ),
    (
        "psql: \\dT, pgJDBC: getTypeInfo; types of tables: there are none",
        "( select c . relkind = 'c' from pg_class c where c . oid = t . typrelid )",
        "false",
    ),
    (
        "psql: \\dT, types that are elements of others",
        "not exists ( select 1 from pg_type el where el . oid = t . typelem and el . typarray = t . oid )",
        "t.typcategory <> 'A'",
    ),
    (
        "pgJDBC 42.7: getUDTs; types of domains: there are none",
        "( select case $1 from pg_type base_type $2 )",
        "CAST(NULL AS integer)",
    ),
    (
        "pgJDBC: getUDTs, an older form",
        "( select case $1 end from pg_type where oid = t . typbasetype )",
        "CAST(NULL AS integer)",
    ),
    (
        "SQLAlchemy 2: get_schema_names; LIKE has one escape character",
        "not like 'pg/_' || '%' escape '/'",
        "NOT LIKE 'pg\\_%'",
    ),
    (
        "SQLAlchemy 2 by psycopg 3: the same, bound",
        "not like $1 || '%' escape '/'",
        "NOT LIKE (replace($1, '/', '\\') || '%')",
    ),
    (
        "SQLAlchemy 2: constraints and indexes",
        "generate_subscripts ( $1 , $2 )",
        "unnest(range(0, CAST(cardinality($1) AS BIGINT)))",
    ),
    (
        "SQLAlchemy 2: sequences of columns: there are none",
        "( select json_build_object ( $1 ) as json_build_object_1 from pg_sequence $2 )",
        "CAST(NULL AS text)",
    ),
    (
        "pgJDBC: getPrimaryKeys, getIndexInfo: rows of a list with their numbers",
        "( information_schema . _pg_expandarray ( $1 ) ) . n",
        "unnest(range(1, CAST(cardinality($1) AS BIGINT) + 1))",
    ),
    (
        "pgJDBC: the same, both in one column",
        "information_schema . _pg_expandarray ( $1 )",
        "unnest($1)",
    ),
    ("pgJDBC: the element", "( result . keys ) . x", "result.KEYS"),
    ("pgJDBC: the element", "( i . keys ) . x", "i.keys"),
    (
        "pgJDBC: types by the search path: a series as long as a list",
        "( select ns . oid as nspoid , ns . nspname , r . r from pg_namespace as ns join $1 using ( nspname ) )",
        "(SELECT oid AS nspoid, nspname, CASE nspname WHEN 'pg_catalog' THEN 1 ELSE 2 END AS r \
                  FROM pg_catalog.pg_namespace WHERE nspname IN ('pg_catalog', 'public'))",
    ),
    (
        "asyncpg 0.32: introspection; types that domains are of: there are none",
        "( case when t . typtype = 'd' then ( $1 ) else null end )",
        "CAST(NULL AS BIGINT)",
    ),
    (
        "asyncpg 0.32: introspection; types of columns of row types: there are none",
        "( case when t . typtype = 'c' then ( select array_agg ( ia . atttypid order by ia . attnum ) $1 ) else null end )",
        "no_oids()",
    ),
    (
        "Grafana 9 to 11: tables and columns: the schemas of the search path, one by one",
        "( select case when trim ( s [ i ] ) $1 )",
        "('public')",
    ),
    ("psycopg 3: CompositeInfo: a text as a list", "coalesce ( a . fnames , '{}' )", "a.fnames"),
    ("psycopg 3: CompositeInfo", "coalesce ( a . ftypes , '{}' )", "a.ftypes"),
];

/// Tables that have no row in any lake, or none that a subquery could find: a subquery about one is NULL.
const EMPTY: [&str; 7] = [
    "pg_attrdef",
    "pg_auth_members",
    "pg_collation",
    "pg_enum",
    "pg_policy",
    "pg_sequence",
    "pg_foreign_table",
];

/// Functions that have a row about no rows.
const AGGREGATES: [&str; 8] =
    ["count", "min", "max", "array_agg", "string_agg", "bool_and", "bool_or", "sum"];

/// The text with other pieces in the places of those that are known.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    let lower = text.to_ascii_lowercase();
    if !SIGNS.iter().any(|sign| lower.contains(sign)) {
        return Cow::Borrowed(text);
    }
    let patterns: Vec<_> = KNOWN
        .iter()
        .filter_map(|(_, pattern, becomes)| Some((tokens(pattern)?, *becomes)))
        .collect();
    let mut text = Cow::Borrowed(text);
    for _ in 0..REPLACEMENTS {
        let Some(next) = step(&text, &patterns) else { break };
        text = Cow::Owned(next);
    }
    text
}

/// The text with one more piece replaced; `None` if there is none.
fn step(text: &str, patterns: &[(Vec<Token<'_>>, &str)]) -> Option<String> {
    let found = without_schema(tokens(text)?);
    if found.len() > TOKENS {
        return None;
    }
    for (pattern, becomes) in patterns {
        for at in 0..found.len() {
            let Some((end, pieces)) = matched(&found, at, pattern) else { continue };
            let mut made = (*becomes).to_owned();
            for (name, piece) in pieces {
                made = made
                    .replace(name, &text[found[piece.start].at..found[piece.end - 1].range().end]);
            }
            return Some(replaced(text, found[at].at..found[end - 1].range().end, &made));
        }
    }
    let (range, made) = empty_subquery(&found)?;
    Some(replaced(text, found[range.start].at..found[range.end - 1].range().end, made))
}

fn replaced(text: &str, range: Range<usize>, by: &str) -> String {
    format!("{}{by}{}", &text[..range.start], &text[range.end..])
}

fn without_schema(mut found: Vec<Token<'_>>) -> Vec<Token<'_>> {
    let is_dot = |token: Option<&Token<'_>>| token.is_some_and(|token| token.is_symbol("."));
    let leave: Vec<bool> = (0..found.len())
        .map(|at| {
            let schema = found[at].is_word("pg_catalog") && is_dot(found.get(at + 1));
            let its_dot = at > 0 && is_dot(found.get(at)) && found[at - 1].is_word("pg_catalog");
            !schema && !its_dot
        })
        .collect();
    let mut leave = leave.into_iter();
    found.retain(|_| leave.next().unwrap_or(true));
    found
}

type Pieces<'a> = Vec<(&'a str, Range<usize>)>;

/// Where a pattern that begins at a token ends, and what stands for its `$n`.
fn matched<'a>(
    found: &[Token<'_>],
    at: usize,
    pattern: &[Token<'a>],
) -> Option<(usize, Pieces<'a>)> {
    let (mut at, mut pieces) = (at, Vec::new());
    for (number, part) in pattern.iter().enumerate() {
        if part.kind != Kind::Parameter {
            is_same(found.get(at)?, part).then_some(())?;
            at += 1;
            continue;
        }
        let from = at;
        let mut depth = 0_usize;
        loop {
            let next = pattern.get(number + 1);
            let Some(token) = found.get(at) else {
                if next.is_some() {
                    return None;
                }
                break;
            };
            let is_end = match next {
                Some(next) => is_same(token, next),
                None => token.is_symbol(";"),
            };
            if depth == 0 && at > from && is_end {
                break;
            }
            if token.is_symbol("(") || token.is_symbol("[") {
                depth += 1;
            } else if token.is_symbol(")") || token.is_symbol("]") {
                depth = depth.checked_sub(1)?;
            }
            at += 1;
        }
        (at > from).then_some(())?;
        pieces.push((part.text, from..at));
    }
    Some((at, pieces))
}

fn is_same(token: &Token<'_>, part: &Token<'_>) -> bool {
    match part.kind {
        Kind::Word => token.kind == Kind::Word && token.text.eq_ignore_ascii_case(part.text),
        _ => token.text == part.text,
    }
}

/// A subquery about a table that is empty, and what it is.
fn empty_subquery(found: &[Token<'_>]) -> Option<(Range<usize>, &'static str)> {
    for at in 0..found.len().saturating_sub(1) {
        if !(found[at].is_symbol("(") && found[at + 1].is_word("select")) {
            continue;
        }
        let before = at.checked_sub(1).and_then(|at| found.get(at));
        let is = |word: &str| before.is_some_and(|token| token.is_word(word));
        let makes_rows = ["in", "exists", "any", "all", "some", "from", "join", "lateral", "as"];
        if makes_rows.iter().any(|word| is(word)) || is_table(found, at) {
            continue;
        }
        let Some(end) = closing(found, at) else { continue };
        let body = &found[at + 1..end];
        let has_aggregate = body.windows(2).any(|pair| {
            pair[1].is_symbol("(") && AGGREGATES.iter().any(|name| pair[0].is_word(name))
        });
        let Some(from) = body.iter().position(|token| token.is_word("from")) else { continue };
        let is_empty = body[from..].windows(2).any(|pair| {
            let begins =
                pair[0].is_word("from") || pair[0].is_word("join") || pair[0].is_symbol(",");
            begins && EMPTY.iter().any(|name| pair[1].is_word(name))
        });
        let has_union = body.iter().any(|token| token.is_word("union") || token.is_word("left"));
        if !is_empty || has_aggregate || has_union {
            continue;
        }
        return Some(match is("array") {
            true => (at - 1..end + 1, "no_texts()"),
            false => (at..end + 1, "CAST(NULL AS text)"),
        });
    }
    None
}

/// Is what opens at `at` an item of FROM behind a comma? Then a name is behind it.
fn is_table(found: &[Token<'_>], at: usize) -> bool {
    let comma = at.checked_sub(1).is_some_and(|before| found[before].is_symbol(","));
    comma
        && found[..at]
            .iter()
            .rev()
            .find(|t| t.is_word("select") || t.is_word("from"))
            .is_some_and(|t| t.is_word("from"))
}

/// The token that closes what is opened at `open`.
fn closing(found: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in found.iter().enumerate().skip(open) {
        if token.is_symbol("(") {
            depth += 1;
        } else if token.is_symbol(")") {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(&plain(text)), squeezed(expected), "{text}");
    }

    #[test]
    fn every_entry_can_be_met_and_ends() {
        for (of, pattern, _) in &KNOWN {
            let text = format!("SELECT pg_x, {}", pattern);
            let made = plain(&text);
            assert_ne!(made, text, "{}: {}", of, pattern);
            assert_eq!(plain(&made), made, "{}: replaced again", of);
        }
    }

    #[test]
    fn pieces_are_found_with_and_without_the_schema() {
        check(
            "SELECT unnest(pg_catalog.pg_index.indkey), generate_subscripts(pg_catalog.pg_index.indkey, 1) AS ord",
            "SELECT unnest(pg_catalog.pg_index.indkey), unnest(range(0, CAST(cardinality(pg_index.indkey) AS BIGINT))) AS ord",
        );
        check(
            "SELECT (information_schema._pg_expandarray(f(i.indkey, 1))).n AS k FROM pg_index i",
            "SELECT unnest(range(1, CAST(cardinality(f(i.indkey, 1)) AS BIGINT) + 1)) AS k FROM pg_index i",
        );
    }

    #[test]
    fn a_subquery_about_an_empty_table_is_null() {
        check(
            "SELECT a, (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d WHERE d.adnum = a.attnum) FROM pg_attribute a",
            "SELECT a, CAST(NULL AS text) FROM pg_attribute a",
        );
        check(
            "SELECT ARRAY(SELECT a.rolname FROM pg_auth_members m JOIN pg_roles a ON (m.roleid = a.oid)) as memberof",
            "SELECT no_texts() as memberof",
        );
        let others = [
            "SELECT (SELECT count(*) FROM pg_attrdef)",
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM pg_attrdef)",
            "SELECT * FROM (SELECT * FROM pg_attrdef) d",
            "SELECT * FROM pg_class c, (SELECT * FROM pg_attrdef) d",
            "SELECT (SELECT 1 FROM pg_class)",
            "SELECT x FROM attrdef WHERE y = 'pg_'",
        ];
        for text in others {
            check(text, text);
        }
    }
}
