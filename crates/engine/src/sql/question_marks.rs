//! `?` as the next of `$1`, `$2` and so on, which is how JDBC and ODBC write parameters.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::base::error::{EngineError, Position, Result};
use crate::base::sql_state::SqlState;

/// The tokens of one statement with its question marks numbered.
///
/// # Errors
/// 42601 if it has parameters of both kinds.
pub(crate) fn number_parameters(mut tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let (mut marks, mut numbered) = (0_usize, false);
    for TokenWithSpan { token, span } in &mut tokens {
        let Token::Placeholder(name) = token else { continue };
        if name == "?" {
            marks += 1;
            *name = format!("${marks}");
        } else {
            numbered = true;
        }
        if numbered && marks > 0 {
            let position = Position { line: span.start.line, column: span.start.column };
            let message = "parameters are either ? or $1, $2 and so on, not both";
            return Err(EngineError::statement(SqlState::SyntaxError, message).at(Some(position)));
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use crate::sql::statement::parse;

    #[test]
    fn question_marks_are_numbered_in_each_statement() {
        for (written, expected) in [
            ("SELECT ?, '?', a FROM t WHERE b = ?", "SELECT $1, '?', a FROM t WHERE b = $2"),
            ("SELECT $2, $1", "SELECT $2, $1"),
        ] {
            let statements = parse(&format!("{written}; {written}")).unwrap();
            for statement in statements {
                assert_eq!(statement.parsed.to_string(), expected);
            }
        }
        let both = parse("SELECT ?, $1").unwrap_err();
        assert_eq!(both.position().map(|position| position.column), Some(11));
    }
}
