//! How large a statement may be, told from its tokens before anything is made of them.
//!
//! Planning takes time with the square of how deep expressions nest, and kilobytes for each operator; the parser
//! tries what nests too deep again at each level. Chains of AND and OR, which generated statements have by the
//! thousand, do not nest: they become trees.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::base::error::{EngineError, Position, Result};
use crate::base::sql_state::SqlState;
use crate::sql::words::{is_space, keyword};

/// Brackets, CASE and prefixes within each other: below what the parser follows.
const MOST_NESTED: usize = 250;
/// `a + b + c …` nests as many operators; 1,000 take a second.
const MOST_CHAINED: usize = 1_000;
/// The squares of such chains added up. DataFusion names the columns of one list in a step that nobody can stop: of four
/// chains of 900 it takes 0.3 s.
const MOST_SQUARED: usize = 4_000_000;
/// In one statement. They take 9 KB each.
const MOST_OPERATORS: usize = 20_000;
/// Chains of AND or OR that are shorter stay as they are.
const SHORT_CHAIN: usize = 64;

/// A bracket that is open, or the statement.
#[derive(Default)]
struct Level {
    /// Operators since the last comma or word that ends an expression.
    chained: usize,
    /// CASE without its END.
    cases: usize,
}

/// # Errors
/// [`EngineError::Statement`] with the place from where on it is too large.
pub(crate) fn check(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut levels = vec![Level::default()];
    let (mut nested, mut prefixes, mut operators, mut squared) = (0_usize, 0_usize, 0_usize, 0);
    for token in tokens.iter().filter(|token| !is_space(token)) {
        let Some(level) = levels.last_mut() else { break };
        let word = keyword(token);
        let is_operator = match (&token.token, word) {
            (_, Some(Keyword::AND | Keyword::OR)) => {
                level.chained = 0;
                true
            }
            (_, Some(Keyword::NOT)) => true,
            (_, Some(Keyword::CASE)) => {
                level.cases += 1;
                nested += 1;
                false
            }
            (_, Some(Keyword::END)) if level.cases > 0 => {
                level.cases -= 1;
                nested -= 1;
                false
            }
            (_, Some(word)) if ends_expression(word) => {
                level.chained = 0;
                false
            }
            (Token::Comma, _) => {
                level.chained = 0;
                false
            }
            (token, _) => {
                let is_operator = is_operator(token);
                if is_operator {
                    level.chained += 1;
                    squared += 2 * level.chained - 1;
                }
                is_operator
            }
        };
        let chained = level.chained;
        match token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                levels.push(Level::default());
                nested += 1;
            }
            Token::RParen | Token::RBracket | Token::RBrace if levels.len() > 1 => {
                let cases = levels.pop().map_or(0, |level| level.cases);
                nested -= 1 + cases;
            }
            _ => {}
        }
        operators += usize::from(is_operator);
        prefixes = if is_operator { prefixes + 1 } else { 0 };
        let refused = |message| EngineError::statement(SqlState::StatementTooComplex, message);
        let error = if nested > MOST_NESTED || prefixes > MOST_NESTED {
            refused(format!("this nests more than {MOST_NESTED} deep"))
        } else if chained > MOST_CHAINED {
            refused(format!("an expression of more than {MOST_CHAINED} operators"))
                .with_hint("compute it in steps, or add up rows with sum()")
        } else if squared > MOST_SQUARED {
            refused("too many expressions of hundreds of operators".to_owned())
                .with_hint("compute them in several statements, or add up rows with sum()")
        } else if operators > MOST_OPERATORS {
            refused(format!("a statement of more than {MOST_OPERATORS} operators"))
                .with_hint("write IN (…) of many values, or join a table of them")
        } else {
            continue;
        };
        let at = token.span.start;
        let position = Some(Position { line: at.line, column: at.column });
        return Err(error.at(position));
    }
    Ok(())
}

/// Words that no operand before them reaches beyond.
fn ends_expression(word: Keyword) -> bool {
    use Keyword::{BY, ELSE, FROM, HAVING, ON, SELECT, THEN, UNION, WHEN, WHERE};
    matches!(word, BY | ELSE | FROM | HAVING | ON | SELECT | THEN | UNION | WHEN | WHERE)
}

fn is_operator(token: &Token) -> bool {
    matches!(
        token,
        Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::StringConcat
            | Token::Eq
            | Token::DoubleEq
            | Token::Neq
            | Token::Lt
            | Token::LtEq
            | Token::Gt
            | Token::GtEq
            | Token::Ampersand
            | Token::Pipe
            | Token::Caret
            | Token::DoubleColon
            | Token::ShiftLeft
            | Token::ShiftRight
            | Token::CustomBinaryOperator(_)
    )
}

/// `a OR b OR c …` as a tree of few levels, its terms in the same order.
pub(crate) fn balance(expr: &mut Expr) {
    let Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } = &*expr else {
        return;
    };
    let op = op.clone();
    let mut length = 0;
    let mut at = &*expr;
    while let Expr::BinaryOp { left, op: own, .. } = at
        && *own == op
    {
        length += 1;
        at = left;
    }
    if length <= SHORT_CHAIN {
        return;
    }
    let mut terms = Vec::with_capacity(length + 1);
    let mut rest = std::mem::replace(expr, nothing());
    loop {
        match rest {
            Expr::BinaryOp { left, op: own, right } if own == op => {
                terms.push(*right);
                rest = *left;
            }
            first => {
                terms.push(first);
                break;
            }
        }
    }
    terms.reverse();
    // Pairs of neighbours, and pairs of those.
    while terms.len() > 1 {
        let mut pairs = Vec::with_capacity(terms.len().div_ceil(2));
        let mut each = terms.into_iter();
        while let Some(left) = each.next() {
            pairs.push(match each.next() {
                Some(right) => {
                    let (left, right) = (Box::new(left), Box::new(right));
                    Expr::BinaryOp { left, op: op.clone(), right }
                }
                None => left,
            });
        }
        terms = pairs;
    }
    *expr = terms.pop().unwrap_or_else(nothing);
}

fn nothing() -> Expr {
    Expr::value(datafusion::sql::sqlparser::ast::Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statement::parse;

    fn refused(text: &str) -> String {
        match parse(text) {
            Err(error) if error.position().is_some() => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_too_large_is_told_before_it_is_parsed() {
        let cast = |n: usize| format!("SELECT {}x{}", "CAST(".repeat(n), " AS INT)".repeat(n));
        assert!(refused(&cast(1_000)).contains("more than 250 deep"));
        assert!(parse(&cast(200)).is_ok());
        let case = format!("SELECT {}1{}", "CASE WHEN a THEN ".repeat(300), " END".repeat(300));
        assert!(refused(&case).contains("more than 250 deep"));
        assert!(refused(&format!("SELECT {}true", "NOT ".repeat(300))).contains("250 deep"));
        let sum = |n: usize| format!("SELECT {}", vec!["x"; n].join(" + "));
        assert!(refused(&sum(1_002)).contains("more than 1000 operators"));
        assert!(parse(&sum(1_001)).is_ok());
        let sums_of = |n: usize, each: usize| {
            format!("SELECT {}", vec![vec!["x"; each + 1].join(" + "); n].join(", "))
        };
        assert!(parse(&sums_of(4, 1_000)).is_ok() && parse(&sums_of(200, 99)).is_ok());
        assert!(refused(&sums_of(5, 999)).contains("hundreds of operators"));
        let sums = format!("SELECT {}", vec!["x + 1"; 2_000].join(", "));
        assert!(parse(&sums).is_ok());
        let many = format!("SELECT 1 WHERE {}", vec!["x = 1"; 11_000].join(" OR "));
        assert!(refused(&many).contains("more than 20000 operators"));
        let cases = format!("SELECT {}", vec!["CASE WHEN a THEN 1 END"; 300].join(", "));
        assert!(parse(&cases).is_ok());
    }

    #[test]
    fn chains_of_conditions_become_trees() {
        let terms: Vec<String> = (0..1_000).map(|n| format!("x = {n}")).collect();
        let depth = |op: &str| {
            let statement = parse(&format!("SELECT 1 WHERE {}", terms.join(op))).unwrap();
            let text = statement[0].parsed.to_string();
            // Neighbours stay neighbours.
            assert_eq!(text.replace(['(', ')'], ""), format!("SELECT 1 WHERE {}", terms.join(op)));
        };
        depth(" OR ");
        depth(" AND ");
        let mut left = Expr::Identifier("x0".into());
        for n in 1..1_000 {
            let (op, right) =
                (BinaryOperator::And, Box::new(Expr::Identifier(format!("x{n}").as_str().into())));
            left = Expr::BinaryOp { left: Box::new(left), op, right };
        }
        balance(&mut left);
        let mut levels = 0;
        let mut at = &left;
        while let Expr::BinaryOp { left, .. } = at {
            levels += 1;
            at = left;
        }
        assert_eq!(levels, 10);
    }
}
