//! How operators bind: as in PostgreSQL, where the parser's generic dialect has it otherwise.
//!
//! | text | read as | generic |
//! |---|---|---|
//! | `a LIKE b = c` | `(a LIKE b) = c` | `a LIKE (b = c)` |
//! | `a = b IN (c)`, `a < b BETWEEN c AND d` | `a = (b IN (c))` | `(a = b) IN (c)` |
//! | `a = b ~ c` | `a = (b ~ c)` | `(a = b) ~ c` |
//! | `a \|\| b * c`, `a \|\| b + c` | `a \|\| (b * c)` | `(a \|\| b) * c` |
//! | `a \| b & c`, `a \| b << c` | `(a \| b) & c` | `a \| (b & c)` |
//! | `a -> b = c` | `(a -> b) = c` | `a -> (b = c)` |
//!
//! # Not here
//! What the parser does not know at all: `rewrite`. And `^`, which is no power but the exclusive or of bits, and
//! stays between `+` and all other operators.

use std::any::TypeId;

use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// The generic dialect with PostgreSQL's precedence of LIKE, IN, BETWEEN, and of operators that it has no own for.
#[derive(Debug)]
pub(crate) struct UplakeDialect;

/// Below all but IS, NOT, AND and OR.
const COMPARISON: u8 = 19;
/// LIKE, IN and BETWEEN.
const MEMBERSHIP: u8 = 20;
/// Operators that have no other place, from left to right: of text, bits, lists, JSON, regular expressions.
const OTHER: u8 = 21;

macro_rules! as_generic {
    ($($name:ident),* $(,)?) => {
        impl Dialect for UplakeDialect {
            /// Where the parser asks for a dialect by its type, it is the generic one.
            fn dialect(&self) -> TypeId {
                TypeId::of::<GenericDialect>()
            }

            fn is_identifier_start(&self, ch: char) -> bool {
                GenericDialect.is_identifier_start(ch)
            }

            fn is_identifier_part(&self, ch: char) -> bool {
                GenericDialect.is_identifier_part(ch)
            }

            fn is_delimited_identifier_start(&self, ch: char) -> bool {
                GenericDialect.is_delimited_identifier_start(ch)
            }

            fn prec_value(&self, precedence: Precedence) -> u8 {
                match precedence {
                    Precedence::Eq => COMPARISON,
                    // What comes before a colon, in `x[a || b : c]`, is read up to what binds no stronger.
                    Precedence::Like | Precedence::Between | Precedence::Colon => MEMBERSHIP,
                    Precedence::Ampersand | Precedence::Pipe => OTHER,
                    other => GenericDialect.prec_value(other),
                }
            }

            fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
                let is_other = matches!(
                    parser.peek_token_ref().token,
                    Token::Tilde
                        | Token::TildeAsterisk
                        | Token::ExclamationMarkTilde
                        | Token::ExclamationMarkTildeAsterisk
                        | Token::StringConcat
                        | Token::ShiftLeft
                        | Token::ShiftRight
                        | Token::CaretAt
                        | Token::Arrow
                        | Token::LongArrow
                        | Token::HashArrow
                        | Token::HashLongArrow
                        | Token::AtArrow
                        | Token::ArrowAt
                );
                is_other.then_some(Ok(OTHER))
            }

            fn supports_order_by_all(&self) -> bool {
                true
            }

            $(fn $name(&self) -> bool {
                GenericDialect.$name()
            })*
        }
    };
}

as_generic! {
    supports_unicode_string_literal, supports_partition_by_after_order_by,
    supports_array_join_syntax, supports_group_by_expr, supports_group_by_with_modifier,
    supports_left_associative_joins_without_parens, supports_connect_by,
    supports_match_recognize, supports_pipe_operator, supports_start_transaction_modifier,
    supports_window_function_null_treatment_arg, supports_dictionary_syntax,
    supports_window_clause_named_window_reference, supports_parenthesized_set_variables,
    supports_select_wildcard_except, support_map_literal_syntax, allow_extract_custom,
    allow_extract_single_quotes, supports_extract_comma_syntax,
    supports_create_view_comment_syntax, supports_parens_around_table_factor,
    supports_values_as_table_factor, supports_create_index_with_clause,
    supports_explain_with_utility_options, supports_limit_comma, supports_update_order_by,
    supports_from_first_select, supports_projection_trailing_commas,
    supports_asc_desc_in_column_definition, supports_try_convert,
    supports_bitwise_shift_operators, supports_comment_on, supports_load_extension,
    supports_named_fn_args_with_assignment_operator, supports_struct_literal,
    supports_empty_projections, supports_nested_comments, supports_multiline_comment_hints,
    supports_user_host_grantee, supports_string_escape_constant,
    supports_array_typedef_with_brackets, supports_match_against, supports_set_names,
    supports_comma_separated_set_assignments, supports_filter_during_aggregation,
    supports_select_wildcard_exclude, supports_data_type_signed_suffix,
    supports_interval_options, supports_quote_delimited_string,
    supports_select_wildcard_replace, supports_select_wildcard_ilike,
    supports_select_wildcard_rename, supports_optimize_table, supports_install, supports_detach,
    supports_prewhere, supports_with_fill, supports_limit_by, supports_interpolate,
    supports_settings, supports_select_format, supports_comment_optimizer_hint,
    supports_constraint_keyword_without_name, supports_key_column_option,
    supports_comma_separated_trim, supports_cte_without_as,
    supports_select_item_multi_column_alias, supports_xml_expressions,
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Expr;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    fn parsed(dialect: &dyn Dialect, text: &str) -> Expr {
        Parser::new(dialect).try_with_sql(text).unwrap().parse_expr().unwrap()
    }

    /// An expression with all of its brackets.
    fn shape(expr: &Expr) -> String {
        match expr {
            Expr::Nested(inner) => shape(inner),
            Expr::BinaryOp { left, op, right } => {
                format!("({} {op} {})", shape(left), shape(right))
            }
            Expr::UnaryOp { op, expr } => format!("({op} {})", shape(expr)),
            Expr::Cast { expr, data_type, .. } => format!("({} :: {data_type})", shape(expr)),
            Expr::AtTimeZone { timestamp, time_zone } => {
                format!("({} AT {})", shape(timestamp), shape(time_zone))
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                access_chain.iter().fold(shape(root), |of, access| format!("({of} {access})"))
            }
            Expr::IsNull(inner) => format!("({} IS NULL)", shape(inner)),
            Expr::IsTrue(inner) => format!("({} IS TRUE)", shape(inner)),
            Expr::Like { expr, pattern, negated, .. } => {
                format!("({} {negated} LIKE {})", shape(expr), shape(pattern))
            }
            Expr::ILike { expr, pattern, negated, .. } => {
                format!("({} {negated} ILIKE {})", shape(expr), shape(pattern))
            }
            Expr::Between { expr, negated, low, high } => {
                format!("({} {negated} BETWEEN {} {})", shape(expr), shape(low), shape(high))
            }
            Expr::InList { expr, list, negated } => {
                let list: Vec<String> = list.iter().map(shape).collect();
                format!("({} {negated} IN {list:?})", shape(expr))
            }
            other => other.to_string(),
        }
    }

    #[test]
    fn operators_bind_as_they_do_in_postgresql() {
        for text in [
            "a LIKE b = c",
            "a = b LIKE c",
            "a NOT LIKE b <> c AND d",
            "a ILIKE b || c = d",
            "a = b IN (c, d) AND e",
            "a IN (b) = c IN (d)",
            "a NOT IN (b) = c IS NULL",
            "a BETWEEN b AND c = d AND e",
            "a < b NOT BETWEEN c + 1 AND d * 2 OR e",
            "a BETWEEN b AND c BETWEEN d AND e",
            "NOT a LIKE b = c IS TRUE",
            "a - 1 > b LIKE c",
            "- a IN (b + 1) = c",
            "a || b * c",
            "a * b || c / d",
            "a || b + c - d",
            "a - b || c % d || e",
            "a || - b",
            "- a || b",
            "a || b = c || d",
            "a <> b || c AND d",
            "a || b < c IS TRUE",
            "a || b LIKE c || d",
            "a || b IN (c || d, e)",
            "a NOT IN (b) = c || d",
            "a || b BETWEEN c || d AND e || f",
            "a BETWEEN b + 1 AND c || d = e",
            "a || b IS NULL",
            "NOT a || b = c",
            "a || b :: INT + c",
            "- a :: INT || b :: TEXT",
            "a || b AT TIME ZONE c || d",
            "a + b AT TIME ZONE c - d",
            "a[1] || b[2] + c[3]",
            "a[1] :: INT || - b[2]",
            "a | b & c",
            "a & b | c << d",
            "a << b + c",
            "a * b & c - d",
            "a & b = c | d",
            "a | b IN (c & d)",
            "a -> b = c ->> d",
            "a ->> b LIKE c",
            "a -> b ->> c || d",
            "a @> b AND c <@ d IS NULL",
            "a || b @> c || d",
        ] {
            let expected = shape(&parsed(&PostgreSqlDialect {}, text));
            assert_eq!(shape(&parsed(&UplakeDialect, text)), expected, "{text}");
        }
        // The parser's own dialect of PostgreSQL has regular expressions among the comparisons.
        let expected = "((a = (b ~ c)) AND (d !~* e))";
        assert_eq!(shape(&parsed(&UplakeDialect, "a = b ~ c AND d !~* e")), expected);
        // It cannot read these at all, or reads a power.
        for (text, expected) in [
            ("a || b ~ c || d", "(((a || b) ~ c) || d)"),
            ("a ~ b || c = d", "(((a ~ b) || c) = d)"),
            ("a ^@ b || c = d", "(((a ^@ b) || c) = d)"),
            ("a || b ^ c + d", "(a || (b ^ (c + d)))"),
            ("m['a' || b] + x[c | 1 : d & 2]", "((m ['a' || b]) + (x [c | 1:d & 2]))"),
        ] {
            assert_eq!(shape(&parsed(&UplakeDialect, text)), expected, "{text}");
        }
    }

    #[test]
    fn all_else_is_the_generic_dialect() {
        assert!((&UplakeDialect as &dyn Dialect).is::<GenericDialect>());
        for text in ["a + b * c", "a ^ b ^ c", "a = b", "x[1] = y.z", "NOT a = b"] {
            let expected = parsed(&GenericDialect, text);
            assert_eq!(parsed(&UplakeDialect, text), expected, "{text}");
        }
    }
}
