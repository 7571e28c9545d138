//! `x LIKE 'a!%b' ESCAPE '!'` with the backslash, which is the only escape character that DataFusion's LIKE has.

use datafusion::sql::sqlparser::ast::{self, Expr, Value};

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;

/// Writes the pattern with backslashes, and takes the escape character away.
///
/// # Errors
/// 0A000 if the pattern is computed, 22023 for more than one character and for a pattern that ends with it.
pub(crate) fn with_backslashes(
    pattern: &mut Expr,
    escape: &mut Option<ast::ValueWithSpan>,
) -> Result<()> {
    let Some(named) = escape.as_ref() else { return Ok(()) };
    let escaped = match &named.value {
        Value::SingleQuotedString(one) if one.chars().count() < 2 => one.chars().next(),
        _ => {
            let message = "ESCAPE is one character, or none";
            return Err(EngineError::statement(SqlState::InvalidParameterValue, message));
        }
    };
    if escaped == Some('\\') {
        return Ok(());
    }
    let Expr::Value(ast::ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = pattern
    else {
        let error = EngineError::unsupported("LIKE … ESCAPE of a pattern that is computed");
        return Err(error.with_hint("write the pattern as text, or use the backslash"));
    };
    *text = spelled(text, escaped)?;
    *escape = None;
    Ok(())
}

fn spelled(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut spelled = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(one) = chars.next() {
        let is_escape = Some(one) == escape;
        let Some(meant) = (if is_escape { chars.next() } else { Some(one) }) else {
            let message = "a LIKE pattern must not end with its escape character";
            return Err(EngineError::statement(SqlState::InvalidParameterValue, message));
        };
        if meant == '\\' || (is_escape && matches!(meant, '%' | '_')) {
            spelled.push('\\');
        }
        spelled.push(meant);
    }
    Ok(spelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_meant() {
        for (pattern, escape, expected) in [
            ("a!%b%", Some('!'), r"a\%b%"),
            ("!_!!!a", Some('!'), r"\_!a"),
            (r"a\b", Some('!'), r"a\\b"),
            (r"a!\b", Some('!'), r"a\\b"),
            (r"50\%", None, r"50\\%"),
            ("a%%b", Some('%'), r"a\%b"),
        ] {
            assert_eq!(spelled(pattern, escape).unwrap(), expected, "{pattern}");
        }
        assert!(spelled("a!", Some('!')).is_err());
    }
}
