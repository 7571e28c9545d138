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

use crate::base::error::{EngineError, Position, Result};
use crate::base::sql_state::SqlState;

/// The test in other words; an error if the pattern is no text that stands in the statement.
pub(crate) fn as_regular_expression(
    negated: bool,
    expr: &Expr,
    pattern: &Expr,
    escape: Option<&ast::ValueWithSpan>,
) -> Result<Expr> {
    let Some((text, place)) = text_of(pattern) else {
        let error =
            EngineError::unsupported("SIMILAR TO of a pattern that is computed is not supported");
        return Err(error.with_hint("write the pattern as text, or use LIKE or ~"));
    };
    let escape = match escape.map(|escape| &escape.value) {
        None => Some('\\'),
        Some(Value::SingleQuotedString(one)) if one.chars().count() < 2 => one.chars().next(),
        Some(_) => {
            let message = "ESCAPE is one character, or none";
            return Err(EngineError::statement(SqlState::InvalidParameterValue, message));
        }
    };
    let found = regular_expression(text, escape).and_then(|found| checked(text, found));
    let found = found.map_err(|error| error.at(place))?;
    let regular_expression = Value::SingleQuotedString(found);
    let op = if negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
    let right = Box::new(Expr::value(regular_expression));
    let left = Box::new(expr.clone());
    Ok(Expr::Nested(Box::new(Expr::BinaryOp { left, op, right })))
}

fn refused(message: impl Into<String>) -> EngineError {
    EngineError::statement(SqlState::InvalidRegularExpression, message)
}

/// With the place where it stands.
fn text_of(pattern: &Expr) -> Option<(&str, Option<Position>)> {
    match pattern {
        Expr::Nested(inner) => text_of(inner),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => {
                let at = value.span.start;
                let place = Position { line: at.line, column: at.column };
                Some((text, Some(place).filter(|place| place.line > 0)))
            }
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

/// The regular expression, if it is one.
fn checked(pattern: &str, found: String) -> Result<String> {
    match regex::Regex::new(&found) {
        Ok(_) => Ok(found),
        Err(error) => Err(refused(format!("'{pattern}' is no pattern: {}", reason(&error)))
            .with_hint(
                "a character before which \\ stands is itself: \\{ or \\(, if ESCAPE says no other",
            )),
    }
}

/// What is wrong, without the regular expression that nobody wrote.
fn reason(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "it says too much".to_owned(),
        error => {
            let text = error.to_string();
            text.rsplit_once("error: ").map_or(text.as_str(), |(_, reason)| reason).to_owned()
        }
    }
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

    #[test]
    fn a_pattern_that_is_none_is_told_in_its_own_words() {
        for (pattern, expected) in [
            ("a{x}", "'a{x}' is no pattern: repetition quantifier expects a valid decimal"),
            ("a(", "'a(' is no pattern: unclosed group"),
            (
                "a{9,1}",
                "'a{9,1}' is no pattern: invalid repetition count range, the start must be <= the end",
            ),
            ("*a", "'*a' is no pattern: repetition operator missing expression"),
            ("a{99999}{99999}", "'a{99999}{99999}' is no pattern: it says too much"),
        ] {
            let found = regular_expression(pattern, Some('\\'));
            let error = found.and_then(|found| checked(pattern, found)).unwrap_err();
            assert_eq!((error.message().as_str(), error.code().as_str()), (expected, "2201B"));
            assert!(error.hint().is_some());
        }
    }
}
