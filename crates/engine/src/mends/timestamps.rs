//! Times in microseconds, as tables have them, and functions that make the times they promise.
//!
//! DataFusion takes TIMESTAMP for nanoseconds, which end in 2262, and compares a column of microseconds with
//! them as nanoseconds. Its `to_timestamp` of a column of text gives times without the zone that it says
//! they have, which fails, and of a double that is no time it makes the last one in 2262. Its `now()` has
//! nanoseconds, which no table can keep.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, make_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type, IntervalUnit, TimeUnit};
use datafusion::catalog::{TableFunction, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, Cast, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};
use datafusion::optimizer::AnalyzerRule;

use super::as_before::scalar_as_before;
use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;
use crate::sql::interval_text::in_units;

/// A date beside a time is compared with it in microseconds, not in the nanoseconds that DataFusion casts
/// both to.
#[derive(Debug)]
pub(super) struct DatesBesideTimes;

impl AnalyzerRule for DatesBesideTimes {
    fn name(&self) -> &'static str {
        "dates_beside_times"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let is_fine = |expr: &Expr| Ok(compared(expr).into_iter().any(is_cast_to_nanoseconds));
            let expressions = node.expressions();
            let found = expressions.iter().map(|expr| expr.exists(is_fine));
            if !found.collect::<Result<Vec<_>>>()?.contains(&true) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let mended = expr.transform_up(|part| Ok(beside_times(part, &schema)))?;
                Ok(mended.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }
}

/// What a comparison compares.
fn compared(expr: &Expr) -> Vec<&Expr> {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom,
            right,
        }) => vec![left.as_ref(), right.as_ref()],
        Expr::Between(between) => {
            vec![between.expr.as_ref(), between.low.as_ref(), between.high.as_ref()]
        }
        Expr::InList(list) => std::iter::once(list.expr.as_ref()).chain(&list.list).collect(),
        _ => Vec::new(),
    }
}

fn is_cast_to_nanoseconds(expr: &Expr) -> bool {
    let is_fine =
        |data_type: &DataType| matches!(data_type, DataType::Timestamp(TimeUnit::Nanosecond, _));
    matches!(expr, Expr::Cast(cast) if is_fine(cast.field.data_type()))
}

fn beside_times(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Some(coarser) = all_coarser(&expr, schema) else { return Transformed::no(expr) };
    let mut coarser = coarser.into_iter().map(Box::new);
    let mut next = |old: Box<Expr>| coarser.next().unwrap_or(old);
    Transformed::yes(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            Expr::BinaryExpr(BinaryExpr { left: next(left), op, right: next(right) })
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let (expr, low, high) = (next(expr), next(low), next(high));
            Expr::Between(Between { expr, negated, low, high })
        }
        Expr::InList(InList { expr, list, negated }) => {
            let expr = next(expr);
            let list = list.into_iter().map(|value| *next(Box::new(value))).collect();
            Expr::InList(InList { expr, list, negated })
        }
        other => other,
    })
}

/// What a comparison compares, in microseconds if it has no more and is cast to nanoseconds.
fn all_coarser(expr: &Expr, schema: &DFSchema) -> Option<Vec<Expr>> {
    let values = compared(expr);
    if !values.iter().any(|value| is_cast_to_nanoseconds(value)) {
        return None;
    }
    values.into_iter().map(|value| coarser(value, schema)).collect()
}

/// The value in microseconds, if that is all it had before it was cast to nanoseconds.
fn coarser(value: &Expr, schema: &DFSchema) -> Option<Expr> {
    use DataType::{Date32, Date64, Null, Timestamp};
    use TimeUnit::{Microsecond, Nanosecond};
    match value {
        Expr::Cast(cast) => {
            let Timestamp(Nanosecond, zone) = cast.field.data_type() else { return None };
            let from = cast.expr.get_type(schema).ok()?;
            match &from {
                Timestamp(Microsecond, of) if of == zone => Some(cast.expr.as_ref().clone()),
                Timestamp(Nanosecond, _) => None,
                Timestamp(..) | Date32 | Date64 | Null => {
                    let wanted = Timestamp(Microsecond, zone.clone());
                    Some(Expr::Cast(Cast::new(cast.expr.clone(), wanted)))
                }
                _ => None,
            }
        }
        Expr::Literal(ScalarValue::TimestampNanosecond(None, zone), metadata) => {
            let null = ScalarValue::TimestampMicrosecond(None, zone.clone());
            Some(Expr::Literal(null, metadata.clone()))
        }
        _ => None,
    }
}

/// The function, whose times have the zone that it promises.
pub(super) fn zoned(function: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Zoned { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Zoned {
    function: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Zoned {
    scalar_as_before!(return_field_from_args, coerce_types);

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        Some(zoned(Arc::new(self.function.inner().with_updated_config(config)?)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let promised = args.return_field.data_type().clone();
        if let [seconds] = args.args.as_slice() {
            check_seconds(seconds)?;
        }
        match self.function.invoke_with_args(args)? {
            ColumnarValue::Array(times) => Ok(ColumnarValue::Array(in_zone(times, promised)?)),
            ColumnarValue::Scalar(time) => Ok(ColumnarValue::Scalar(time.cast_to(&promised)?)),
        }
    }
}

/// Nanoseconds since 1970 end here.
const MOST_SECONDS: f64 = (i64::MAX / 1_000_000_000) as f64;

/// Milliseconds in place of seconds, say, are after 2262, and DataFusion would make them its last nanosecond.
fn check_seconds(seconds: &ColumnarValue) -> Result<()> {
    let seconds = match seconds.data_type() {
        DataType::Float64 | DataType::Float32 | DataType::Float16 => {
            cast(&seconds.to_array(1)?, &DataType::Float64)?
        }
        _ => return Ok(()),
    };
    let is_time = |seconds: f64| seconds.abs() <= MOST_SECONDS;
    match seconds.as_primitive::<Float64Type>().iter().flatten().find(|one| !is_time(*one)) {
        None => Ok(()),
        Some(wrong) => {
            let what = format!("{wrong} seconds from 1970 are no time between 1677 and 2262");
            Err(EngineError::statement(SqlState::DatetimeFieldOverflow, what)
                .with_hint("divide milliseconds by 1000.0")
                .into())
        }
    }
}

/// The same moments: only what is said of their zone changes.
fn in_zone(times: ArrayRef, promised: DataType) -> Result<ArrayRef> {
    match (times.data_type(), &promised) {
        (DataType::Timestamp(unit, _), DataType::Timestamp(wanted, _)) if unit == wanted => {
            Ok(make_array(times.to_data().into_builder().data_type(promised).build()?))
        }
        _ => Ok(times),
    }
}

/// `now()` in microseconds, and `current_time()` to a microsecond.
pub(super) fn clock(function: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Clock { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Clock {
    function: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Clock {
    scalar_as_before!();

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let field = self.function.return_field_from_args(args)?;
        let data_type = in_microseconds(field.data_type());
        Ok(Arc::new(field.as_ref().clone().with_data_type(data_type)))
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        Some(clock(Arc::new(self.function.inner().with_updated_config(config)?)))
    }

    /// The clock is read when a statement is planned, once.
    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.function.simplify(args, context)? {
            ExprSimplifyResult::Simplified(Expr::Literal(time, metadata)) => {
                let time = match time.data_type() {
                    // TIME is of nanoseconds, and is compared with no other.
                    fine @ DataType::Time64(TimeUnit::Nanosecond) => {
                        time.cast_to(&DataType::Time64(TimeUnit::Microsecond))?.cast_to(&fine)?
                    }
                    other => time.cast_to(&in_microseconds(&other))?,
                };
                ExprSimplifyResult::Simplified(Expr::Literal(time, metadata))
            }
            other => other,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.function.invoke_with_args(args)
    }
}

fn in_microseconds(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        other => other.clone(),
    }
}

/// `generate_series` or `range`, which takes times of microseconds for the nanoseconds that it knows, and the text of a
/// step between times for an interval.
pub(super) fn series(function: &TableFunction) -> TableFunction {
    let of_nanoseconds = Series(Arc::clone(function.function()));
    TableFunction::new(function.name().to_owned(), Arc::new(of_nanoseconds))
}

#[derive(Debug)]
struct Series(Arc<dyn TableFunctionImpl>);

impl TableFunctionImpl for Series {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let nanoseconds = |expr: &Expr| match expr {
            Expr::Literal(time, metadata) => match time.data_type() {
                DataType::Timestamp(_, zone) => {
                    let time = time.cast_to(&DataType::Timestamp(TimeUnit::Nanosecond, zone))?;
                    Ok(Expr::Literal(time, metadata.clone()))
                }
                _ => Ok(expr.clone()),
            },
            other => Ok(other.clone()),
        };
        let mut exprs = args.exprs().iter().map(nanoseconds).collect::<Result<Vec<_>>>()?;
        if let [_, _, Expr::Literal(step, _)] = exprs.as_mut_slice()
            && let Some(Some(text)) = step.try_as_str()
        {
            let text = ScalarValue::from(in_units(text).unwrap_or_else(|| text.to_owned()));
            *step = text.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano))?;
        }
        self.0.call_with_args(TableFunctionArgs::new(&exprs, args.session()))
    }
}
