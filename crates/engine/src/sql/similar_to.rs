//! `x SIMILAR TO 'pattern'` as a regular expression over the whole text.
//!
//! | pattern | regular expression |
//! |---|---|
//! | `%`, `_` | `.*`, `.`, of line ends as well |
//! | `\|`, `*`, `+`, `?`, `{2,3}`, `(…)`, `[a-z]`, `[^[:digit:]]` | the same |
//! | `\%`, or `!%` with `ESCAPE '!'` | the character itself |
//! | all else, also `.`, `^` and `$` | itself |
//!
//! This is SQL's and PostgreSQL's; in DuckDB the pattern is a regular expression, without `%` and `_`.

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, Value};

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;

/// The test in other words; an error if the pattern is no text that stands in the statement.
pub(crate) fn as_regular_expression(
    negated: bool,
    expr: &Expr,
    pattern: &Expr,
    escape: Option<&ast::ValueWithSpan>,
) -> Result<Expr> {
    let Some(text) = text_of(pattern) else {
        let error =
            EngineError::unsupported("SIMILAR TO of a pattern that is computed is not supported");
        return Err(error.with_hint("write the pattern as text, or use LIKE or ~"));
    };
    let escape = match escape.map(|escape| &escape.value) {
        None => Some('\\'),
        Some(Value::SingleQuotedString(one)) if one.chars().count() < 2 => one.chars().next(),
        Some(_) => {
            return Err(refused("ESCAPE is one character, or none"));
        }
    };
    let regular_expression = Value::SingleQuotedString(regular_expression(text, escape)?);
    let op = if negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
    let right = Box::new(Expr::value(regular_expression));
    let left = Box::new(expr.clone());
    Ok(Expr::Nested(Box::new(Expr::BinaryOp { left, op, right })))
}

fn refused(message: impl Into<String>) -> EngineError {
    EngineError::statement(SqlState::InvalidParameterValue, message)
}

fn text_of(pattern: &Expr) -> Option<&str> {
    match pattern {
        Expr::Nested(inner) => text_of(inner),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn regular_expression(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut found = String::from("^(?s:");
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            c if Some(c) == escape => {
                let Some(c) = rest.next() else {
                    return Err(refused(format!(
                        "the pattern '{pattern}' ends with its escape character"
                    )));
                };
                literal(c, &mut found);
            }
            '%' => found.push_str(".*"),
            '_' => found.push('.'),
            '(' => found.push_str("(?:"),
            '|' | '*' | '+' | '?' | '{' | '}' | ')' => found.push(c),
            '[' => {
                let inside = characters(&mut rest, escape, &mut found);
                inside
                    .ok_or_else(|| refused(format!("a [ of the pattern '{pattern}' has no ]")))?;
            }
            c => literal(c, &mut found),
        }
    }
    found.push_str(")$");
    Ok(found)
}

/// A character that stands for itself.
fn literal(c: char, found: &mut String) {
    // Not all punctuation: `\<` would be where a word begins.
    if "\\.+*?()|[]{}^$#&-~".contains(c) {
        found.push('\\');
    }
    found.push(c);
}

/// `abc]`, `^a-z]` or `[:digit:]_]`: what follows a [, up to its end; `None` if that does not come.
fn characters(
    rest: &mut std::str::Chars<'_>,
    escape: Option<char>,
    found: &mut String,
) -> Option<()> {
    found.push('[');
    if rest.as_str().starts_with('^') {
        found.extend(rest.next());
    }
    let mut is_first = true;
    loop {
        let c = rest.next()?;
        match c {
            c if Some(c) == escape => literal(rest.next()?, found),
            ']' if !is_first => break,
            '[' if rest.as_str().starts_with(':') => {
                found.push('[');
                let end = rest.as_str().find(":]")? + ":]".len();
                found.push_str(&rest.as_str()[..end]);
                *rest = rest.as_str()[end..].chars();
            }
            '-' => found.push('-'),
            c => literal(c, found),
        }
        is_first = false;
    }
    found.push(']');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_becomes_a_regular_expression() {
        for (pattern, expected) in [
            ("abc", "abc"),
            ("a%b_", "a.*b."),
            ("(a|b)+c{2,3}?", "(?:a|b)+c{2,3}?"),
            ("a.b^c$", "a\\.b\\^c\\$"),
            ("50\\%\\\\", "50%\\\\"),
            ("[a-c%_]x", "[a-c%_]x"),
            ("<a>, b", "<a>, b"),
            ("[^]a[:digit:]&&]", "[^\\]a[:digit:]\\&\\&]"),
            ("(?i)a", "(?:?i)a"),
            ("日本%", "日本.*"),
        ] {
            let found = regular_expression(pattern, Some('\\')).unwrap();
            assert_eq!(found, format!("^(?s:{expected})$"), "{pattern}");
        }
        assert_eq!(regular_expression("a\\!%!!", Some('!')).unwrap(), "^(?s:a\\\\%!)$");
        assert_eq!(regular_expression("\\%", None).unwrap(), "^(?s:\\\\.*)$");
    }

    #[test]
    fn a_pattern_that_does_not_end_is_refused() {
        for pattern in ["a\\", "[abc", "[", "[^", "[[:digit:]", "[[:digit"] {
            assert!(regular_expression(pattern, Some('\\')).is_err(), "{pattern}");
        }
    }
}
