//! Types of parameters that clients cast to types of the catalog, which are kept as others here.
//!
//! `$1::oid[]` is planned as a list of `bigint`, but asyncpg must hear of `oid[]`: it knows how to write that one, and of any
//! other list asks the catalog first, by a statement with `$1::oid[]`.

use super::tokens::{Kind, Token, tokens};
use super::types;

/// Types whose parameters are told of by their own numbers.
const OWN: [&str; 2] = ["oid", "name"];

/// The places of such parameters (0 is `$1`) and the numbers of their types.
pub(crate) fn catalog_parameters(text: &str) -> Vec<(usize, u32)> {
    let lower = text.to_ascii_lowercase();
    if !lower.contains('$') || !OWN.iter().any(|name| lower.contains(name)) {
        return Vec::new();
    }
    let found = tokens(text).unwrap_or_default();
    let parameters = (0..found.len()).filter(|at| found[*at].kind == Kind::Parameter);
    parameters.filter_map(|at| Some((number(&found[at])?, cast_to(&found, at)?))).collect()
}

fn number(token: &Token<'_>) -> Option<usize> {
    token.text.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

/// The type behind `$1::` or `CAST($1 AS`, if it is one of these.
fn cast_to(found: &[Token<'_>], at: usize) -> Option<u32> {
    let cast = found.get(at + 1)?;
    if !cast.is_symbol("::") && !cast.is_word("as") {
        return None;
    }
    let mut at = at + 2;
    if found.get(at)?.is_word("pg_catalog") && found.get(at + 1)?.is_symbol(".") {
        at += 2;
    }
    let name = found.get(at)?.name()?;
    let of = types::by_name(&name).filter(|_| OWN.contains(&name.as_str()))?;
    let is_list = found.get(at + 1).is_some_and(|token| token.is_symbol("["));
    u32::try_from(if is_list { of.list } else { of.oid }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_to_types_of_the_catalog_are_seen() {
        for (text, expected) in [
            ("SELECT 1 WHERE oid = any($1::oid[])", vec![(0, 1028)]),
            ("SELECT $2::pg_catalog.oid, CAST($1 AS name)", vec![(1, 26), (0, 19)]),
            ("SELECT $1::bigint, '$2::oid', name", vec![]),
            ("SELECT 'x'::oid", vec![]),
        ] {
            assert_eq!(catalog_parameters(text), expected, "{text}");
        }
    }
}
