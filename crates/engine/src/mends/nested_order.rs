//! Lists and structs in one order: as DuckDB and PostgreSQL have it, a NULL within one is above every value.
//!
//! DataFusion has several. `<` and the filter of a top k put a NULL within a list below every value, ORDER BY
//! where NULLS FIRST or LAST puts lists that are NULL, `min`, `max`, `greatest` and `least` neither here nor
//! there: `ORDER BY list LIMIT 2` lost rows, `max(list)` was the least. Here lists are sorted and compared by
//! [`order_key`], their bytes in arrow's row format.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, BinaryArray, new_null_array};
use datafusion::arrow::compute::{SortOptions, interleave};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{AggregateFunctionParams, Sort as SortExpr};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, BinaryExpr, ColumnarValue, Distinct, Expr, ExprSchemable,
    LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::base::error::EngineError;

pub(super) static ORDER_KEY: LazyLock<ScalarUDF> =
    LazyLock::new(|| ScalarUDF::from(OrderKey::default()));
pub(super) static GREATEST: LazyLock<ScalarUDF> =
    LazyLock::new(|| ScalarUDF::from(Best::new(End::Greatest)));
pub(super) static LEAST: LazyLock<ScalarUDF> =
    LazyLock::new(|| ScalarUDF::from(Best::new(End::Least)));

/// Bytes that are in the order of lists or structs, NULL where those are.
fn order_key(nested: Expr) -> Expr {
    ORDER_KEY.call(vec![nested])
}

/// Has the type values within values, which [`order_key`] knows?
pub(super) fn is_nested(data_type: &DataType) -> bool {
    let field = || SortField::new(data_type.clone());
    data_type.is_nested() && RowConverter::supports_fields(&[field()])
}

/// The rule, which comes when types are known.
#[derive(Debug)]
pub(super) struct OneOrder;

impl AnalyzerRule for OneOrder {
    fn name(&self) -> &'static str {
        "one_order_of_nested_values"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|mut node| {
            let of = Inputs(merge_schema(&node.inputs()));
            let names = NamePreserver::new(&node);
            let sorted = match &mut node {
                LogicalPlan::Sort(sort) => of.sort_by_bytes(&mut sort.expr)?,
                LogicalPlan::Distinct(Distinct::On(distinct)) => {
                    let order = distinct.sort_expr.iter_mut().flatten();
                    let sorted = of.sort_by_bytes(order)?;
                    // The order begins with the same expressions.
                    let order = distinct.sort_expr.iter().flatten();
                    for (on, key) in distinct.on_expr.iter_mut().zip(order) {
                        on.clone_from(&key.expr);
                    }
                    sorted
                }
                _ => false,
            };
            let mut rewritten = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let rewritten = expr.transform_up(|part| of.in_one_order(part))?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })?;
            rewritten.transformed |= sorted;
            Ok(rewritten)
        })
        .data()
    }
}

/// What the expressions of a plan are computed from.
struct Inputs(DFSchema);

impl Inputs {
    /// Is it a list or struct?
    ///
    /// # Errors
    /// If it holds intervals, whose bytes are not in the order of their lengths.
    fn is_nested(&self, expr: &Expr) -> Result<bool> {
        let Ok(found) = expr.get_type(&self.0) else { return Ok(false) };
        if is_nested(&found) && has_intervals(&found) {
            let what = "lists and structs of intervals have no order";
            return Err(EngineError::unsupported(what).with_hint("compare their values").into());
        }
        Ok(is_nested(&found))
    }

    fn sort_by_bytes<'a>(&self, keys: impl IntoIterator<Item = &'a mut SortExpr>) -> Result<bool> {
        let mut changed = false;
        for key in keys {
            if self.is_nested(&key.expr)? {
                key.expr = order_key(key.expr.clone());
                changed = true;
            }
        }
        Ok(changed)
    }

    fn in_one_order(&self, expr: Expr) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if compares(op) && self.is_nested(&left)? && self.is_nested(&right)? =>
            {
                if !has_order(op) {
                    let equal = BinaryExpr { left, op, right };
                    return Ok(Transformed::no(Expr::BinaryExpr(equal)));
                }
                let (left, right) = (Box::new(order_key(*left)), Box::new(order_key(*right)));
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
            }
            Expr::Between(mut between) if self.is_nested(&between.expr)? => {
                for operand in [&mut between.expr, &mut between.low, &mut between.high] {
                    **operand = order_key(operand.as_ref().clone());
                }
                Transformed::yes(Expr::Between(between))
            }
            Expr::ScalarFunction(mut call) => {
                let ours = match call.func.name() {
                    "greatest" => &GREATEST,
                    "least" => &LEAST,
                    _ => return Ok(Transformed::no(Expr::ScalarFunction(call))),
                };
                let nested = call.args.first().map(|arg| self.is_nested(arg)).transpose()?;
                if nested == Some(true) {
                    call.func = Arc::new(ScalarUDF::clone(ours));
                }
                Transformed::new_transformed(Expr::ScalarFunction(call), nested == Some(true))
            }
            Expr::AggregateFunction(mut function) => {
                let changed = self.aggregate(&function.func, &mut function.params)?;
                Transformed::new_transformed(Expr::AggregateFunction(function), changed)
            }
            Expr::WindowFunction(mut function) => {
                let changed = self.sort_by_bytes(&mut function.params.order_by)?;
                Transformed::new_transformed(Expr::WindowFunction(function), changed)
            }
            other => Transformed::no(other),
        })
    }

    fn aggregate(
        &self,
        function: &AggregateUDF,
        params: &mut AggregateFunctionParams,
    ) -> Result<bool> {
        // DISTINCT allows no other keys than its argument, and sorts them by itself.
        if params.distinct {
            for key in &params.order_by {
                if key.asc == key.nulls_first && self.is_nested(&key.expr)? {
                    let what = format!(
                        "{}(DISTINCT …) sorts lists and structs with NULL last, or DESC with NULL first",
                        function.name()
                    );
                    return Err(EngineError::unsupported(what)
                        .with_hint("select DISTINCT in a subquery for another order")
                        .into());
                }
            }
            return Ok(false);
        }
        let mut changed = self.sort_by_bytes(&mut params.order_by)?;
        match (function.name(), params.args.as_mut_slice()) {
            (name, [_, by, ..]) if chooses_by(name) && self.is_nested(by)? => {
                *by = order_key(by.clone());
                changed = true;
            }
            ("min" | "max", [of]) => {
                self.is_nested(of)?;
            }
            _ => {}
        }
        Ok(changed)
    }
}

/// Aggregates of the first argument where the second is the least or the greatest.
fn chooses_by(aggregate: &str) -> bool {
    matches!(
        aggregate,
        "first_value_by" | "last_value_by" | "min_by" | "max_by" | "arg_min" | "arg_max"
    )
}

fn has_intervals(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => has_intervals(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_intervals(field.data_type())),
        other => matches!(other, DataType::Interval(_)),
    }
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, IsDistinctFrom, IsNotDistinctFrom, NotEq};
    has_order(op) || matches!(op, Eq | NotEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn has_order(op: Operator) -> bool {
    matches!(op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

/// The values' bytes, in their order; of a NULL, those that come last.
fn rows_of(values: &ArrayRef) -> Result<Rows> {
    let options = SortOptions { descending: false, nulls_first: false };
    let field = SortField::new_with_options(values.data_type().clone(), options);
    Ok(RowConverter::new(vec![field])?.convert_columns(&[Arc::clone(values)])?)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OrderKey {
    signature: Signature,
}

impl Default for OrderKey {
    fn default() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for OrderKey {
    fn name(&self) -> &'static str {
        "order_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let is_nullable = args.arg_fields.iter().any(|of| of.is_nullable());
        Ok(Arc::new(Field::new(self.name(), DataType::Binary, is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(Arc::new(bytes_of(values)?))),
            [ColumnarValue::Scalar(value)] => {
                let bytes = bytes_of(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&bytes, 0)?))
            }
            _ => internal_err!("order_key has one argument"),
        }
    }
}

fn bytes_of(values: &ArrayRef) -> Result<BinaryArray> {
    let bytes = rows_of(values)?.try_into_binary()?;
    let (offsets, bytes, _) = bytes.into_parts();
    Ok(BinaryArray::new(offsets, bytes, values.logical_nulls()))
}

/// Which end of the order is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum End {
    Least,
    Greatest,
}

impl End {
    fn is_better<T: Ord>(self, one: &T, than: &T) -> bool {
        match self {
            Self::Least => one < than,
            Self::Greatest => one > than,
        }
    }
}

/// `greatest` and `least`: the first of the arguments that are it; NULL if all are.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Best {
    end: End,
    signature: Signature,
}

impl Best {
    fn new(end: End) -> Self {
        Self { end, signature: Signature::variadic_any(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Best {
    fn name(&self) -> &'static str {
        match self.end {
            End::Least => "least",
            End::Greatest => "greatest",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first() {
            Some(first) => Ok(first.clone()),
            None => internal_err!("{} has arguments", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let values = ColumnarValue::values_to_arrays(&args.args)?;
        let rows = values.iter().map(rows_of).collect::<Result<Vec<_>>>()?;
        let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
        let count = values.first().map_or(0, |first| first.len());
        let mut chosen = Vec::with_capacity(count);
        for row in 0..count {
            let mut best = 0;
            for arg in (1..values.len()).filter(|arg| values[*arg].is_valid(row)) {
                let is_better = || self.end.is_better(&rows[arg].row(row), &rows[best].row(row));
                if values[best].is_null(row) || is_better() {
                    best = arg;
                }
            }
            chosen.push((best, row));
        }
        Ok(ColumnarValue::Array(interleave(&values, &chosen)?))
    }
}

/// `min` or `max` of all rows.
#[derive(Debug)]
pub(super) struct BestOfAll {
    end: End,
    data_type: DataType,
    best: Option<(OwnedRow, ScalarValue)>,
}

impl BestOfAll {
    pub fn new(end: End, data_type: DataType) -> Self {
        Self { end, data_type, best: None }
    }
}

impl Accumulator for BestOfAll {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("min and max have one argument") };
        let rows = rows_of(values)?;
        let valid = (0..values.len()).filter(|row| values.is_valid(*row));
        let best = valid.reduce(|best, row| {
            if self.end.is_better(&rows.row(row), &rows.row(best)) { row } else { best }
        });
        let Some(at) = best else { return Ok(()) };
        let row = rows.row(at).owned();
        if self.best.as_ref().is_none_or(|(best, _)| self.end.is_better(&row, best)) {
            self.best = Some((row, compacted(values, at)?));
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        value_or_null(self.best.as_ref().map(|(_, value)| value), &self.data_type)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        let held = self.best.iter();
        size_of_val(self)
            + held.map(|(row, value)| row.as_ref().len() + value.size()).sum::<usize>()
    }
}

/// `min` or `max` of frames that slide: first what is the best now, then what will be when that has left.
#[derive(Debug)]
pub(super) struct BestOfFrame {
    end: End,
    data_type: DataType,
    /// Each with the number of its row.
    next: VecDeque<(u64, OwnedRow, ScalarValue)>,
    entered: u64,
    left: u64,
}

impl BestOfFrame {
    pub fn new(end: End, data_type: DataType) -> Self {
        Self { end, data_type, next: VecDeque::new(), entered: 0, left: 0 }
    }
}

impl Accumulator for BestOfFrame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("min and max have one argument") };
        let rows = rows_of(values)?;
        for at in 0..values.len() {
            if values.is_valid(at) {
                let row = rows.row(at).owned();
                while self.next.back().is_some_and(|(_, last, _)| !self.end.is_better(last, &row)) {
                    self.next.pop_back();
                }
                self.next.push_back((self.entered, row, compacted(values, at)?));
            }
            self.entered += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.left += values.first().map_or(0, |left| left.len() as u64);
        while self.next.front().is_some_and(|(number, ..)| *number < self.left) {
            self.next.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        value_or_null(self.next.front().map(|(.., value)| value), &self.data_type)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        let held = self.next.iter();
        size_of_val(self)
            + held.map(|(_, row, value)| row.as_ref().len() + value.size()).sum::<usize>()
    }
}

/// One value, which does not hold on to the others.
fn compacted(values: &ArrayRef, at: usize) -> Result<ScalarValue> {
    Ok(ScalarValue::try_from_array(values, at)?.compacted())
}

fn value_or_null(value: Option<&ScalarValue>, data_type: &DataType) -> Result<ScalarValue> {
    match value {
        Some(value) => Ok(value.clone()),
        None => ScalarValue::try_from_array(&new_null_array(data_type, 1), 0),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::ListArray;
    use datafusion::arrow::datatypes::Int32Type;

    use super::*;

    /// Lists in their order, and one that is NULL.
    fn lists() -> ArrayRef {
        let lists = [
            Some(vec![]),
            Some(vec![Some(-1)]),
            Some(vec![Some(2)]),
            Some(vec![Some(2), Some(3)]),
            Some(vec![Some(2), None]),
            Some(vec![None]),
            None,
        ];
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))
    }

    fn at(row: usize) -> ScalarValue {
        ScalarValue::try_from_array(&lists(), row).unwrap()
    }

    #[test]
    fn a_null_within_a_list_is_above_every_value() {
        let keys = bytes_of(&lists()).unwrap();
        assert!(keys.is_null(6));
        assert!((1..6).all(|row| keys.value(row - 1) < keys.value(row)));
    }

    #[test]
    fn min_and_max_pass_over_nulls() {
        for (end, batches) in [(End::Least, [6, 3, 1]), (End::Greatest, [6, 3, 5])] {
            let mut best = BestOfAll::new(end, lists().data_type().clone());
            assert!(best.evaluate().unwrap().is_null());
            for row in batches {
                best.update_batch(&[lists().slice(row, 1)]).unwrap();
            }
            best.update_batch(&[lists().slice(2, 3)]).unwrap();
            let state = best.state().unwrap().remove(0).to_array().unwrap();
            best.merge_batch(&[state]).unwrap();
            assert_eq!(best.evaluate().unwrap(), at(batches[2]));
        }
    }

    #[test]
    fn what_leaves_a_frame_is_forgotten() {
        let mut least = BestOfFrame::new(End::Least, lists().data_type().clone());
        least.update_batch(&[lists().slice(1, 6)]).unwrap();
        for row in 1..6 {
            assert_eq!(least.evaluate().unwrap(), at(row));
            least.retract_batch(&[lists().slice(row, 1)]).unwrap();
        }
        assert!(least.evaluate().unwrap().is_null());
        let mut greatest = BestOfFrame::new(End::Greatest, lists().data_type().clone());
        greatest.update_batch(&[lists()]).unwrap();
        assert_eq!(greatest.evaluate().unwrap(), at(5));
        greatest.retract_batch(&[lists().slice(0, 6)]).unwrap();
        assert!(greatest.evaluate().unwrap().is_null());
    }
}
