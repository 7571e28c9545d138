//! Literals that a cast takes as they are written, and not as what the planner makes of them first.
//!
//! - `12345678901234567890.12::decimal(38, 2)` keeps its digits: a number with a point is a double otherwise.
//! - `'{a,"b c",NULL}'::text[]` is a list of three, as in Postgres: otherwise it is one of a text with braces.
//! - `'\x00ff'::bytea` is two bytes, and `'a\\b\001'::bytea` four, as in Postgres: otherwise they are the text's own bytes.

use datafusion::sql::sqlparser::ast::{self, DataType, Expr, UnaryOperator, Value};

use crate::base::error::{EngineError, Result, refuse};
use crate::sql::array_text::{ArrayElement, array_elements};

/// The cast with its literal in a form that loses nothing.
///
/// # Errors
/// 22P02 if a text is no bytes or no array.
pub(crate) fn keep_exact(cast: &mut Expr) -> Result<()> {
    let Expr::Cast { expr, data_type, .. } = cast else { return Ok(()) };
    match data_type {
        DataType::Decimal(_) | DataType::Numeric(_) | DataType::Dec(_) => {
            if let Some(digits) = digits(expr) {
                **expr = Expr::value(Value::SingleQuotedString(digits));
            }
        }
        DataType::Bytea => {
            let Expr::Value(ast::ValueWithSpan { value, .. }) = expr.as_mut() else {
                return Ok(());
            };
            let (Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) = &*value
            else {
                return Ok(());
            };
            *value = Value::HexStringLiteral(hex(text)?);
        }
        DataType::Array(of) => {
            if let Expr::Value(ast::ValueWithSpan { value, .. }) = expr.as_ref()
                && let Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) = value
            {
                **expr = array(text, of)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The list that a text is, its elements as texts.
fn array(text: &str, of: &ast::ArrayElemTypeDef) -> Result<Expr> {
    use ast::ArrayElemTypeDef::{AngleBracket, Parenthesis, SquareBracket};
    let Some(elements) = array_elements(text) else {
        return refuse!(InvalidTextRepresentation, "malformed array literal: \"{text}\"");
    };
    let inner = match of {
        AngleBracket(of) | Parenthesis(of) | SquareBracket(of, _) => match of.as_ref() {
            DataType::Array(inner) => Some(inner),
            _ => None,
        },
        ast::ArrayElemTypeDef::None => None,
    };
    let one = |element| match (element, inner) {
        (ArrayElement::Null, _) => Ok(Expr::value(Value::Null)),
        (ArrayElement::Value(text), None) => Ok(Expr::value(Value::SingleQuotedString(text))),
        (ArrayElement::Array(text), Some(inner)) => array(text, inner),
        (ArrayElement::Value(_), Some(_)) => {
            refuse!(InvalidTextRepresentation, "malformed array literal: \"{text}\"")
        }
        (ArrayElement::Array(_), None) => {
            Err(EngineError::unsupported(format!("\"{text}\" is an array of arrays"))
                .with_hint("name the type of such a one with as many brackets: int[][]"))
        }
    };
    let elem = elements.into_iter().map(one).collect::<Result<_>>()?;
    Ok(Expr::Array(ast::Array { elem, named: true }))
}

/// A number with a point, or with more digits than an integer has, with its sign.
fn digits(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(ast::ValueWithSpan { value: Value::Number(text, _), .. }) => {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let is_integer = text.len() < 19 && !text.contains('.');
            (is_plain && !is_integer).then(|| text.clone())
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => Some(format!("-{}", digits(expr)?)),
        Expr::Nested(inner) => digits(inner),
        _ => None,
    }
}

/// The bytes of a text of Postgres' type, as hexadecimal digits.
fn hex(text: &str) -> Result<String> {
    if let Some(written) = text.strip_prefix("\\x") {
        let hex: String = written.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        if hex.len() % 2 == 1 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return refuse!(
                InvalidTextRepresentation,
                "bytea is written as \\x and pairs of hexadecimal digits"
            );
        }
        return Ok(hex);
    }
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [byte, after @ ..] = rest {
        (rest, bytes) = match (byte, after) {
            (b'\\', [b'\\', after @ ..]) => (after, pushed(bytes, b'\\')),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                (after, pushed(bytes, (a - b'0') << 6 | (b - b'0') << 3 | (c - b'0')))
            }
            (b'\\', _) => {
                return refuse!(
                    InvalidTextRepresentation,
                    "in bytea a backslash is written twice, or begins three octal digits"
                );
            }
            (byte, after) => (after, pushed(bytes, *byte)),
        };
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn pushed(mut bytes: Vec<u8>, byte: u8) -> Vec<u8> {
    bytes.push(byte);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statement::parse_expression;

    fn check(written: &str, expected: &str) {
        let mut cast = parse_expression(written).unwrap();
        keep_exact(&mut cast).unwrap();
        assert_eq!(cast.to_string(), expected, "{written}");
    }

    #[test]
    fn digits_stay_as_they_are_written() {
        check("1234567890123456789.5::decimal(38,1)", "'1234567890123456789.5'::DECIMAL(38,1)");
        check("CAST(-0.1 AS NUMERIC(9,2))", "CAST('-0.1' AS NUMERIC(9,2))");
        check("7::decimal(9,2)", "7::DECIMAL(9,2)");
        check("1e5::decimal(9,2)", "1e5::DECIMAL(9,2)");
        check("0.5::double", "0.5::DOUBLE");
        check("x::decimal(9,2)", "x::DECIMAL(9,2)");
    }

    #[test]
    fn arrays_are_read_as_postgres_reads_them() {
        check(r#"'{a,"b, c",NULL}'::text[]"#, "ARRAY['a', 'b, c', NULL]::TEXT[]");
        check("CAST(' { 1 , 2 } ' AS INT[])", "CAST(ARRAY['1', '2'] AS INT[])");
        check("'{{1},{2,3}}'::int[][]", "ARRAY[ARRAY['1'], ARRAY['2', '3']]::INT[][]");
        check("'{}'::int[]", "ARRAY[]::INT[]");
        check("name::text[]", "name::TEXT[]");
        for wrong in ["'a'::text[]", "'{a'::text[]", "'{{1}}'::int[]", "'{1}'::int[][]"] {
            let mut cast = parse_expression(wrong).unwrap();
            assert!(keep_exact(&mut cast).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_are_read_as_postgres_reads_them() {
        check(r"'\x00fF'::bytea", "X'00fF'::BYTEA");
        check(r"'a\\b\001'::bytea", "X'615c6201'::BYTEA");
        check("''::bytea", "X''::BYTEA");
        check("name::bytea", "name::BYTEA");
        for wrong in [r"'\x0'::bytea", r"'\xzz'::bytea", r"'a\b'::bytea"] {
            let mut cast = parse_expression(wrong).unwrap();
            assert!(keep_exact(&mut cast).is_err(), "{wrong}");
        }
    }
}
