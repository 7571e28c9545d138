//! What Postgres' clients write that the engine's parser does not know, as text that it knows.
//!
//! | written | becomes |
//! |---|---|
//! | `a OPERATOR(pg_catalog.~) b` | `a ~ b` |
//! | `a COLLATE pg_catalog.default`, `COLLATE "C"` | `a` |
//! | `pg_catalog.version()`, `x::pg_catalog.text` | `version()`, `x::text` |
//! | `current_schema`, `current_role` | `current_schema()`, `current_role()` |
//! | `'t'::regclass` | `regclass_in('t')`: the number |
//! | `c.oid::regclass`, `c.oid::regclass::text` | `regclass_out(c.oid)`: the name |
//! | `x::oid`, `x::name`, `x::"char"` | `x::bigint`, `x::text` |
//! | `CAST(x AS regclass)` | as `x::regclass` |
//!
//! # Invariants
//! - A text without any of these is handed back as it is.
//! - What is left out leaves spaces, so that places in the text stay; only casts to names of objects move what
//!   follows them on their line.
//!
//! # Not here
//! Whole statements that have another form: `known`.

use std::borrow::Cow;
use std::ops::Range;

use super::tokens::{Kind, Token, tokens};

/// Casts of one statement that are written anew; further ones are left to the parser.
const CASTS: usize = 500;

/// Pieces of text without which nothing is to do, in lower case.
const SIGNS: [&str; 15] = [
    "pg_catalog",
    "operator",
    "collate",
    "current_schema",
    "current_role",
    "reg",
    "oid",
    "name",
    "\"char\"",
    "int2vector",
    "xid",
    "cid",
    "cstring",
    "information_schema.",
    "aclitem",
];

/// The text as the engine takes it.
pub(super) fn rewrite(text: &str) -> Cow<'_, str> {
    let lower = text.to_ascii_lowercase();
    if !SIGNS.iter().any(|sign| lower.contains(sign)) {
        return Cow::Borrowed(text);
    }
    let Some(found) = tokens(text) else { return Cow::Borrowed(text) };
    let edits = plain_edits(&found);
    let mut text = match edits.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(edited(text, &edits)),
    };
    for _ in 0..CASTS {
        let Some(next) = cast_step(&text) else { break };
        text = Cow::Owned(next);
    }
    text
}

type Edit = (Range<usize>, String);

/// The text with pieces in the places of others; they are in order.
fn edited(text: &str, edits: &[Edit]) -> String {
    let mut made = String::with_capacity(text.len() + 64);
    let mut from = 0;
    for (range, piece) in edits {
        made.push_str(&text[from..range.start]);
        made.push_str(piece);
        from = range.end;
    }
    made.push_str(&text[from..]);
    made
}

/// Operators, collations, schemas before functions and types, and functions without parentheses.
fn plain_edits(found: &[Token<'_>]) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    let blank = |range: Range<usize>| (range.clone(), " ".repeat(range.len()));
    let symbol = |at: usize, text: &str| found.get(at).is_some_and(|t| t.is_symbol(text));
    let mut at = 0;
    while let Some(token) = found.get(at) {
        let before = at.checked_sub(1).and_then(|at| found.get(at));
        if token.is_word("operator") && symbol(at + 1, "(") {
            let close = (at..found.len()).find(|at| symbol(*at, ")"));
            if let Some(close) = close
                && let Some(operator) = found.get(close - 1)
            {
                edits.push(blank(token.at..operator.at));
                edits.push(blank(found[close].range()));
                at = close + 1;
                continue;
            }
        } else if token.is_word("collate") {
            let mut end = at + 1;
            while symbol(end + 1, ".") {
                end += 2;
            }
            if let Some(last) = found.get(end) {
                edits.push(blank(token.at..last.range().end));
                at = end + 1;
                continue;
            }
        } else if token.is_word("pg_catalog") && symbol(at + 1, ".") {
            let is_call = symbol(at + 3, "(");
            let is_type = before.is_some_and(|t| t.is_symbol("::") || t.is_word("as"));
            if let Some(name) = found.get(at + 2).filter(|_| is_call || is_type) {
                edits.push(blank(token.at..name.at));
                at += 2;
                continue;
            }
        } else if (token.is_word("current_schema") || token.is_word("current_role"))
            && !symbol(at + 1, "(")
            && !symbol(at + 1, ".")
            && !before.is_some_and(|t| t.is_symbol(".") || t.is_word("as") || t.is_word("set"))
        {
            edits.push((token.range().end..token.range().end, "()".into()));
        }
        at += 1;
    }
    edits
}

/// A type that is written after `::` or AS.
struct Type<'a> {
    name: String,
    /// `[]` behind it.
    lists: bool,
    /// Of the text.
    range: Range<usize>,
    written: &'a str,
    /// The token behind it.
    next: usize,
}

/// What becomes of a cast to a type.
#[derive(PartialEq)]
enum Becomes {
    /// Numbers of objects that show as names.
    Object,
    /// Another type.
    Other(&'static str),
    Itself,
}

impl Type<'_> {
    fn becomes(&self) -> Becomes {
        let other = match self.name.as_str() {
            "regclass" | "regtype" | "regproc" | "regprocedure" | "regnamespace" | "regrole"
                if !self.lists =>
            {
                return Becomes::Object;
            }
            "oid" | "xid" | "cid" | "xid8" => ["bigint", "bigint[]"],
            "name" | "char" | "cstring" | "pg_node_tree" | "aclitem" | "sql_identifier"
            | "character_data" | "yes_or_no"
                if self.name != "char" || self.written.contains('"') =>
            {
                ["text", "text[]"]
            }
            "int2vector" => ["smallint[]", "smallint[]"],
            "oidvector" => ["bigint[]", "bigint[]"],
            "cardinal_number" => ["integer", "integer[]"],
            _ => return Becomes::Itself,
        };
        Becomes::Other(other[usize::from(self.lists)])
    }

    fn is_text(&self) -> bool {
        ["text", "name", "varchar", "cstring"].contains(&self.name.as_str()) && !self.lists
    }
}

/// The type that begins at a token.
fn type_at<'a>(text: &'a str, found: &[Token<'a>], mut at: usize) -> Option<Type<'a>> {
    let begin = found.get(at)?.at;
    while found.get(at + 1).is_some_and(|t| t.is_symbol(".")) {
        at += 2;
    }
    let name = found.get(at)?.name()?;
    let mut end = found[at].range().end;
    let lists = found.get(at + 1).is_some_and(|t| t.is_symbol("["))
        && found.get(at + 2).is_some_and(|t| t.is_symbol("]"));
    at += 1;
    if lists {
        end = found.get(at + 1)?.range().end;
        at += 2;
    }
    Some(Type { name, lists, range: begin..end, written: &text[begin..end], next: at })
}

/// The text with one more cast written anew; `None` if there is none.
fn cast_step(text: &str) -> Option<String> {
    let found = tokens(text)?;
    if let Some(made) = cast_call(text, &found) {
        return Some(made);
    }
    for (at, token) in found.iter().enumerate() {
        if !token.is_symbol("::") {
            continue;
        }
        let mut types = Vec::new();
        let mut next = at;
        while found.get(next).is_some_and(|t| t.is_symbol("::"))
            && let Some(cast) = type_at(text, &found, next + 1)
        {
            next = cast.next;
            types.push(cast);
        }
        if types.iter().all(|cast| cast.becomes() == Becomes::Itself) {
            continue;
        }
        let first = operand(&found, at)?;
        let begin = found.get(first)?.at;
        let value = &text[begin..token.at];
        let is_written =
            first + 1 == at && matches!(found[first].kind, Kind::Text | Kind::Parameter);
        let end = types.last()?.range.end;
        return Some(edited(text, &[(begin..end, chain(value.trim_end(), is_written, &types))]));
    }
    None
}

/// A value with its casts.
fn chain(value: &str, is_written: bool, types: &[Type<'_>]) -> String {
    let mut made = value.to_owned();
    // Is it a text that may name something, or a number of it?
    let mut names = is_written;
    let mut at = 0;
    while let Some(cast) = types.get(at) {
        let next = types.get(at + 1);
        match cast.becomes() {
            Becomes::Object => {
                let name = if cast.name == "regprocedure" { "regproc" } else { &cast.name };
                let shown = next.map_or(!names, Type::is_text);
                if names || !shown {
                    made = format!("{name}_in({made})");
                }
                if shown {
                    made = format!("{name}_out({made})");
                    at += usize::from(next.is_some());
                }
                names = shown;
            }
            Becomes::Other(other) => {
                made = format!("{made}::{other}");
                names = other == "text";
            }
            Becomes::Itself => {
                made = format!("{made}::{}", cast.written);
                names = cast.is_text();
            }
        }
        at += 1;
    }
    made
}

/// `CAST(x AS type)` as `x::type`, where the type or the casts in x have to be written anew.
fn cast_call(text: &str, found: &[Token<'_>]) -> Option<String> {
    let opens = (0..found.len()).rev().filter(|at| {
        found[*at].is_word("cast") && found.get(at + 1).is_some_and(|t| t.is_symbol("("))
    });
    for open in opens {
        let Some(close) = closing(found, open + 1) else { continue };
        let Some(cast) = (open..close).rev().find(|at| found[*at].is_word("as")) else { continue };
        let Some(written) = type_at(text, found, cast + 1).filter(|t| t.next == close) else {
            continue;
        };
        let value = open + 2..cast;
        let (Some(first), Some(last)) = (found.get(value.start), found.get(value.end - 1)) else {
            continue;
        };
        let has_cast = (value.start..value.end).any(|at| {
            found[at].is_symbol("::")
                && type_at(text, found, at + 1).is_some_and(|t| t.becomes() != Becomes::Itself)
        });
        if written.becomes() == Becomes::Itself && !has_cast {
            continue;
        }
        let inner = &text[first.at..last.range().end];
        // Does `inner` stay one value before `::`?
        let begins = operand(found, cast).is_some_and(|begin| begin == value.start);
        let ends = last.kind != Kind::Symbol || last.is_symbol(")") || last.is_symbol("]");
        let is_one = (begins && ends) || is_chain(text, found, &value);
        let made = match is_one {
            true => format!("{inner}::{}", written.written),
            false => format!("({inner})::{}", written.written),
        };
        return Some(edited(text, &[(found[open].at..found[close].range().end, made)]));
    }
    None
}

/// Is it one value with casts behind it?
fn is_chain(text: &str, found: &[Token<'_>], value: &Range<usize>) -> bool {
    let Some(first) = value.clone().find(|at| found[*at].is_symbol("::")) else { return false };
    let mut at = first;
    while at < value.end && found[at].is_symbol("::") {
        match type_at(text, found, at + 1) {
            Some(cast) => at = cast.next,
            None => return false,
        }
    }
    at == value.end && operand(found, first).is_some_and(|begin| begin == value.start)
}

/// The token that closes what is opened at `open`.
fn closing(found: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in found.iter().enumerate().skip(open) {
        if token.is_symbol("(") || token.is_symbol("[") {
            depth += 1;
        } else if token.is_symbol(")") || token.is_symbol("]") {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// The first token of the value that ends before the token `end`.
fn operand(found: &[Token<'_>], end: usize) -> Option<usize> {
    let mut at = end.checked_sub(1)?;
    loop {
        while found[at].is_symbol(")") || found[at].is_symbol("]") {
            let is_index = found[at].is_symbol("]");
            at = opening(found, at)?;
            let before = at.checked_sub(1).and_then(|at| found.get(at));
            let is_callee = before.is_some_and(|t| {
                t.kind == Kind::Quoted
                    || t.kind == Kind::Word && !KEYWORDS.iter().any(|word| t.is_word(word))
                    || is_index && (t.is_symbol(")") || t.is_symbol("]"))
            });
            if !is_callee {
                return Some(at);
            }
            at -= 1;
        }
        match at.checked_sub(1).and_then(|at| found.get(at)) {
            Some(dot) if dot.is_symbol(".") => at = at.checked_sub(2)?,
            _ => return Some(at),
        }
    }
}

/// The token that opens what is closed at `close`.
fn opening(found: &[Token<'_>], close: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for at in (0..=close).rev() {
        if found[at].is_symbol(")") || found[at].is_symbol("]") {
            depth += 1;
        } else if found[at].is_symbol("(") || found[at].is_symbol("[") {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// Words that are no function although a parenthesis follows them.
const KEYWORDS: [&str; 22] = [
    "select", "and", "or", "not", "in", "on", "where", "when", "then", "else", "case", "from",
    "by", "having", "between", "like", "as", "is", "union", "all", "distinct", "limit",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(&rewrite(text)), expected, "{text}");
    }

    #[test]
    fn operators_and_collations_are_plain() {
        check(
            "WHERE c.relname OPERATOR(pg_catalog.~) '^(t)$' COLLATE pg_catalog.default AND x",
            "WHERE c.relname ~ '^(t)$' AND x",
        );
        check("a COLLATE \"C\", b collate pg_catalog.\"default\" DESC", "a , b DESC");
        check(
            "SELECT pg_catalog.version(), pg_catalog.pg_class.oid",
            "SELECT version(), pg_catalog.pg_class.oid",
        );
        check(
            "SELECT current_schema, x.current_schema",
            "SELECT current_schema(), x.current_schema",
        );
        check("SELECT 1 AS current_schema", "SELECT 1 AS current_schema");
    }

    #[test]
    fn what_is_left_out_leaves_spaces() {
        let text = "SELECT pg_catalog.version(), a COLLATE \"C\" FROM nowhere";
        let made = rewrite(text);
        assert_eq!(made.len(), text.len());
        assert_eq!(made.find("nowhere"), text.find("nowhere"));
    }

    #[test]
    fn objects_are_numbers_when_written_and_names_when_shown() {
        check("d.classoid = 'pg_class'::regclass", "d.classoid = regclass_in('pg_class')");
        check("$1::regclass::oid", "regclass_in($1)::bigint");
        check("SELECT 1259::regclass", "SELECT regclass_out(1259)");
        check("SELECT c.oid::pg_catalog.regclass", "SELECT regclass_out(c.oid)");
        check(
            "CASE WHEN a THEN c.reloftype::pg_catalog.regtype::pg_catalog.text END",
            "CASE WHEN a THEN regtype_out(c.reloftype) END",
        );
        check("'int4'::regtype::text", "regtype_out(regtype_in('int4'))");
        check("'t'::text::regclass", "regclass_in('t'::text)");
        check("f(a, b)[1]::regclass::text", "regclass_out(f(a, b)[1])");
        check("x IN (a)::regtype", "x IN regtype_out((a))");
        check("stxnamespace::regnamespace::text AS n", "regnamespace_out(stxnamespace) AS n");
        check("'pg_catalog.array_in'::regproc as i", "regproc_in('pg_catalog.array_in') as i");
    }

    #[test]
    fn types_of_catalogs_are_plain_types() {
        check(
            "a.attname::name, b::\"char\", c::oid[], d::char(3)",
            "a.attname::text, b::text, c::bigint[], d::char(3)",
        );
        check("$1::oid", "$1::bigint");
        check("x::pg_catalog.int2[]", "x:: int2[]");
        check("x::information_schema.sql_identifier", "x::text");
    }

    #[test]
    fn casts_by_name_are_casts() {
        check(
            "o = CAST('pg_catalog.pg_class' AS REGCLASS)",
            "o = regclass_in('pg_catalog.pg_class')",
        );
        check("CAST(CAST(a.attrelid AS REGCLASS) AS TEXT)", "regclass_out(a.attrelid)");
        check("CAST(CAST(f(a, 'b') AS REGCLASS) AS OID)", "regclass_in(f(a, 'b'))::bigint");
        check("CAST('*' AS pg_catalog.text)", "CAST('*' AS text)");
        check("CAST(a || b AS name)", "(a || b)::text");
        check("CAST(a AS date)::regclass", "regclass_out(CAST(a AS date))");
        check("CAST(x AS OID)", "x::bigint");
    }

    #[test]
    fn other_texts_stay() {
        for text in [
            "SELECT '::regclass' FROM t",
            "SELECT x::date",
            "SELECT 'a",
            "-- ::oid",
            "x::regclass[",
        ] {
            let made = rewrite(text);
            assert!(
                matches!(made, Cow::Borrowed(_)) || text.ends_with('['),
                "{text} became {made}"
            );
        }
    }
}
