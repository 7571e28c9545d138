//! A date plus or minus an interval that has a time of day, which is a timestamp.
//!
//! DataFusion's stays a date and loses the hours: `DATE '2026-01-01' + INTERVAL '5 hours'` was the same day.
//! Literals of whole days and months still give dates, as all such intervals do there, so that conditions on
//! columns of dates stay conditions on dates. Of `at + $1` the parameter is an interval.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::bare_numbers::in_seconds;

/// Plans `+` and `-` before DataFusion does, where types are known for the first time.
#[derive(Debug)]
pub(super) struct TimesOfDays;

impl ExprPlanner for TimesOfDays {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let op = match expr.op {
            BinaryOperator::Plus => Operator::Plus,
            BinaryOperator::Minus => Operator::Minus,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        if op == Operator::Plus {
            name_interval(&mut expr.right, &expr.left, schema);
            name_interval(&mut expr.left, &expr.right, schema);
        }
        // The right side first: the left one of a chain is as long as the chain.
        let date_is_left = match expr.right.get_type(schema) {
            Ok(DataType::Interval(_)) => true,
            Ok(DataType::Date32 | DataType::Date64) if op == Operator::Plus => false,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (date, interval) = if date_is_left {
            (&mut expr.left, &expr.right)
        } else {
            (&mut expr.right, &expr.left)
        };
        let is_date = matches!(date.get_type(schema), Ok(DataType::Date32 | DataType::Date64));
        let is_interval = matches!(interval.get_type(schema), Ok(DataType::Interval(_)));
        if !is_date || !is_interval || is_of_whole_days(interval) {
            return Ok(PlannerResult::Original(expr));
        }
        *date = cast(date.clone(), DataType::Timestamp(TimeUnit::Microsecond, None));
        let (left, right) = (Box::new(expr.left), Box::new(expr.right));
        Ok(PlannerResult::Planned(Expr::BinaryExpr(BinaryExpr::new(left, op, right))))
    }
}

/// A parameter that is added to a timestamp is an interval; DataFusion would take it for another timestamp.
fn name_interval(added: &mut Expr, to: &Expr, schema: &DFSchema) {
    if let Expr::Placeholder(parameter) = added
        && parameter.field.is_none()
        && let Ok(DataType::Timestamp(..)) = to.get_type(schema)
    {
        let interval = DataType::Interval(IntervalUnit::MonthDayNano);
        parameter.field = Some(Arc::new(Field::new("", interval, true)));
    }
}

/// Is the interval a literal, or made of literals, without a time of day?
fn is_of_whole_days(interval: &Expr) -> bool {
    match interval {
        Expr::Literal(value, _) => has_no_time(value),
        Expr::Negative(inner) => is_of_whole_days(inner),
        Expr::Alias(alias) => is_of_whole_days(&alias.expr),
        Expr::Cast(cast) => match cast.expr.as_ref() {
            Expr::Literal(value, _) => {
                let text = value.try_as_str().flatten().map(in_seconds);
                let value = text.map_or_else(|| value.clone(), ScalarValue::from);
                let interval = value.cast_to(cast.field.data_type());
                interval.is_ok_and(|interval| has_no_time(&interval))
            }
            _ => false,
        },
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus, right }) => {
            is_of_whole_days(left) && is_of_whole_days(right)
        }
        _ => false,
    }
}

fn has_no_time(interval: &ScalarValue) -> bool {
    match interval {
        ScalarValue::IntervalMonthDayNano(Some(interval)) => interval.nanoseconds == 0,
        ScalarValue::IntervalDayTime(Some(interval)) => interval.milliseconds == 0,
        other => other.is_null() || matches!(other, ScalarValue::IntervalYearMonth(_)),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn interval(days: i32, nanoseconds: i64) -> Expr {
        lit(ScalarValue::new_interval_mdn(1, days, nanoseconds))
    }

    /// Is `left` `op` `right` a timestamp?
    fn has_time(left: Expr, op: BinaryOperator, right: Expr) -> bool {
        let day = Field::new("day", DataType::Date32, true);
        let schema = DFSchema::from_unqualified_fields(vec![day].into(), Default::default());
        let schema = schema.unwrap();
        match TimesOfDays.plan_binary_op(RawBinaryExpr { op, left, right }, &schema).unwrap() {
            PlannerResult::Planned(expr) => {
                let data_type = expr.get_type(&schema).unwrap();
                assert_eq!(data_type, DataType::Timestamp(TimeUnit::Microsecond, None));
                true
            }
            PlannerResult::Original(_) => false,
        }
    }

    #[test]
    fn only_intervals_that_may_have_a_time_of_day_make_times() {
        use BinaryOperator::{Minus, Plus};
        let hours = || interval(0, 5 * 3_600_000_000_000);
        assert!(has_time(col("day"), Plus, hours()));
        assert!(has_time(col("day"), Minus, hours()));
        assert!(has_time(hours(), Plus, col("day")));
        assert!(has_time(col("day"), Plus, Expr::Negative(Box::new(hours()))));
        assert!(!has_time(col("day"), Plus, interval(3, 0)));
        assert!(!has_time(interval(3, 0), Plus, col("day")));
        assert!(!has_time(col("day"), Minus, interval(3, 0) + interval(4, 0)));
        assert!(has_time(col("day"), Minus, interval(3, 0) + hours()));
        assert!(!has_time(col("day"), Plus, lit(5_i32)));
        assert!(!has_time(hours(), Plus, hours()));
    }

    #[test]
    fn text_that_is_cast_is_a_literal() {
        let of_text = |text: &str| {
            let unit = datafusion::arrow::datatypes::IntervalUnit::MonthDayNano;
            cast(lit(text), DataType::Interval(unit))
        };
        assert!(!has_time(col("day"), BinaryOperator::Plus, of_text("2 days")));
        assert!(has_time(col("day"), BinaryOperator::Plus, of_text("2 days 1 hour")));
        assert!(has_time(col("day"), BinaryOperator::Plus, of_text("90")));
    }
}
