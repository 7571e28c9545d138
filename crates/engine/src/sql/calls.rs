//! Calls of functions as they are meant, where DataFusion has another name for them or none.

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr};

use crate::base::error::{EngineError, Result, refuse};
use crate::sql::words::spelled;

/// The expression that a call stands for, if it is not the call itself, which has its name here then.
///
/// # Errors
/// [`EngineError::Statement`] for what cannot be answered.
pub(crate) fn meant(call: &mut ast::Function) -> Result<Option<Expr>> {
    use_name_here(call);
    match remainder(call).or_else(|| truncated_in_zone(call)) {
        Some(plain) => Ok(Some(plain)),
        None => percentile_of_rows(call),
    }
}

/// PostgreSQL's names of functions that have another one here.
const NAMES_HERE: [(&str, &str); 8] = [
    ("array_remove", "array_remove_all"),
    ("array_replace", "array_replace_all"),
    ("ceiling", "ceil"),
    ("every", "bool_and"),
    ("sign", "signum"),
    ("statement_timestamp", "now"),
    ("transaction_timestamp", "now"),
    ("variance", "var"),
];

/// Not as second names of the functions: DataFusion's with a second name has nothing of what the first one has for
/// sliding windows.
fn use_name_here(call: &mut ast::Function) {
    let [ast::ObjectNamePart::Identifier(name)] = call.name.0.as_mut_slice() else { return };
    let called = spelled(name);
    if let Some((_, here)) = NAMES_HERE.iter().find(|(other, _)| *other == called) {
        name.value = (*here).to_owned();
    }
}

/// `mod(a, b)` as `(a % b)`.
fn remainder(call: &ast::Function) -> Option<Expr> {
    if !is_called(call, "mod") {
        return None;
    }
    let [left, right] = operands(call)?.try_into().ok()?;
    let nested = |operand| Box::new(Expr::Nested(Box::new(operand)));
    let (left, right) = (nested(left), nested(right));
    let op = BinaryOperator::Modulo;
    Some(Expr::Nested(Box::new(Expr::BinaryOp { left, op, right })))
}

/// `at AT TIME ZONE zone` is `timezone(zone, at)`, as in PostgreSQL; DataFusion takes it for a cast, after which the time
/// still has the zone.
pub(crate) fn in_time_zone(zone: Expr, at: Expr) -> Expr {
    call_of("timezone", [zone, at])
}

/// `date_trunc('day', at, zone)` as `timezone(zone, date_trunc('day', timezone(zone, at)))`, as PostgreSQL has it.
fn truncated_in_zone(call: &ast::Function) -> Option<Expr> {
    if !is_called(call, "date_trunc") {
        return None;
    }
    let [unit, at, zone] = operands(call)?.try_into().ok()?;
    // It is written twice.
    if !matches!(zone, Expr::Value(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
        return None;
    }
    let local = in_time_zone(
        zone.clone(),
        Expr::Cast {
            kind: ast::CastKind::Cast,
            expr: Box::new(at),
            data_type: ast::DataType::Timestamp(None, ast::TimezoneInfo::Tz),
            array: false,
            format: None,
        },
    );
    Some(in_time_zone(zone, call_of("date_trunc", [unit, local])))
}

/// `percentile_disc(p) WITHIN GROUP (ORDER BY x)`, the first value at or after the share p of all, as
/// `array_element(array_agg(x ORDER BY x), greatest(ceil(p * count(x)), 1))`.
fn percentile_of_rows(call: &ast::Function) -> Result<Option<Expr>> {
    if !is_called(call, "percentile_disc") {
        return Ok(None);
    }
    let share = operands(call).and_then(|operands| <[Expr; 1]>::try_from(operands).ok());
    let (Some([share]), [order], None) = (share, call.within_group.as_slice(), &call.over) else {
        return refuse!(SyntaxError, "write percentile_disc(0.5) WITHIN GROUP (ORDER BY value)");
    };
    let number = match &share {
        Expr::Value(ast::ValueWithSpan { value: ast::Value::Number(digits, _), .. }) => {
            digits.parse::<f64>().ok()
        }
        _ => None,
    };
    match number {
        None => {
            return Err(EngineError::unsupported("percentile_disc of a share that is computed")
                .with_hint("write a number from 0 to 1"));
        }
        Some(number) if !(0.0..=1.0).contains(&number) => {
            return refuse!(
                NumericValueOutOfRange,
                "percentile value {number} is not between 0 and 1"
            );
        }
        Some(_) => {}
    }
    let with_filter = |of: Expr, filter: Option<Box<Expr>>| match of {
        Expr::Function(call) => Expr::Function(ast::Function { filter, ..call }),
        other => other,
    };
    let mut values = call_of("array_agg", [order.expr.clone()]);
    if let Expr::Function(ast::Function { args: ast::FunctionArguments::List(list), .. }) =
        &mut values
    {
        list.clauses.push(ast::FunctionArgumentClause::OrderBy(vec![order.clone()]));
    }
    let nested = |expr: &Expr| Box::new(Expr::Nested(Box::new(expr.clone())));
    let has_value = Expr::IsNotNull(nested(&order.expr));
    let with_value = match &call.filter {
        None => has_value,
        Some(filter) => Expr::BinaryOp {
            left: nested(filter),
            op: BinaryOperator::And,
            right: Box::new(has_value),
        },
    };
    let count = with_filter(call_of("count", [order.expr.clone()]), call.filter.clone());
    let place = Expr::BinaryOp {
        left: Box::new(share),
        op: BinaryOperator::Multiply,
        right: Box::new(count),
    };
    let one = Expr::value(ast::Value::Number("1".into(), false));
    let place = Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(call_of("greatest", [call_of("ceil", [place]), one])),
        data_type: ast::DataType::BigInt(None),
        array: false,
        format: None,
    };
    let values = with_filter(values, Some(Box::new(with_value)));
    Ok(Some(call_of("array_element", [values, place])))
}

fn is_called(call: &ast::Function, name: &str) -> bool {
    let [part] = call.name.0.as_slice() else { return false };
    part.as_ident().is_some_and(|found| spelled(found) == name)
}

/// What a function is called with, if it is nothing but values in their places.
fn operands(call: &ast::Function) -> Option<Vec<Expr>> {
    let ast::FunctionArguments::List(list) = &call.args else { return None };
    let operand = |arg: &ast::FunctionArg| match arg {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(operand)) => Some(operand.clone()),
        _ => None,
    };
    list.args.iter().map(operand).collect()
}

fn call_of<const N: usize>(name: &str, operands: [Expr; N]) -> Expr {
    let arg = |expr| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr));
    let list = ast::FunctionArgumentList {
        duplicate_treatment: None,
        args: operands.into_iter().map(arg).collect(),
        clauses: Vec::new(),
    };
    Expr::Function(ast::Function {
        name: ast::ObjectName::from(vec![ast::Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: ast::FunctionArguments::None,
        args: ast::FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
