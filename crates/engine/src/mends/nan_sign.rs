//! A NaN has no sign, and 0.0 has none where rows are put in order.
//!
//! Processors set the sign of the NaN that they make of `0.0 / 0.0` or `inf - inf`, and DataFusion
//! compares bits: such a NaN is below every number and not equal to the others. Windows and ORDER BY
//! put -0.0 before 0.0. What is compared, sorted, joined, grouped or ranked by goes through [`one_number`]
//! here, if it may be such a number or holds some, as lists and structs do.
//!
//! # Invariants
//! - A column of files that Uplake wrote holds no NaN with a sign, and is compared and grouped as it is.
//! - The last key of a sort may have its zeros in any order.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array, make_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{
    Column, DFSchema, JoinConstraint, JoinType, Result, ScalarValue, internal_err,
};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::{AggregateFunction, Sort as SortExpr, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Distinct, DistinctOn, Expr, ExprSchemable, LogicalPlan, Operator,
    Projection, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use super::grouping_sets::keys_below;
use crate::scan::lake_table::LakeTable;

pub(super) static FUNCTION: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::from(OneNumber { signature: Signature::any(1, Volatility::Immutable) })
});

/// The float with one NaN and one 0, or the list or struct of such.
pub(super) fn one_number(float: Expr) -> Expr {
    FUNCTION.call(vec![float])
}

/// Is it the function of [`one_number`]?
pub(crate) fn is_one_number(function: &ScalarUDF) -> bool {
    function.inner().downcast_ref::<OneNumber>().is_some()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OneNumber {
    signature: Signature,
}

impl ScalarUDFImpl for OneNumber {
    fn name(&self) -> &'static str {
        "one_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
            _ => internal_err!("one_number has one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [of] => Ok(Arc::new(Field::new(self.name(), of.data_type().clone(), of.is_nullable()))),
            _ => internal_err!("one_number has one argument"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(floats)] => Ok(ColumnarValue::Array(one_of_each(floats)?)),
            [ColumnarValue::Scalar(float)] => {
                let float = one_of_each(&float.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&float, 0)?))
            }
            _ => internal_err!("one_number has one argument"),
        }
    }
}

/// The same array, if there is nothing to change.
fn one_of_each(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(match values.data_type() {
        DataType::Float64 => {
            let floats = values.as_primitive::<Float64Type>();
            // Without a branch, so that several are looked at at once.
            let other = |found: bool, x: &f64| found | (plain_f64(*x).to_bits() != x.to_bits());
            if !floats.values().iter().fold(false, other) {
                return Ok(Arc::clone(values));
            }
            let plain: Float64Array = floats.unary(plain_f64);
            Arc::new(plain)
        }
        DataType::Float32 => {
            let floats = values.as_primitive::<Float32Type>();
            let other = |found: bool, x: &f32| found | (plain_f32(*x).to_bits() != x.to_bits());
            if !floats.values().iter().fold(false, other) {
                return Ok(Arc::clone(values));
            }
            let plain: Float32Array = floats.unary(plain_f32);
            Arc::new(plain)
        }
        DataType::Float16 => {
            let plain = one_of_each(&cast(values, &DataType::Float32)?)?;
            cast(&plain, &DataType::Float16)?
        }
        nested if has_floats(nested) => within(values)?,
        _ => Arc::clone(values),
    })
}

/// The same of what lists and structs hold.
fn within(values: &ArrayRef) -> Result<ArrayRef> {
    let data = values.to_data();
    let mut changed = false;
    let mut held = Vec::new();
    for child in data.child_data() {
        let before = make_array(child.clone());
        let plain = one_of_each(&before)?;
        changed |= !Arc::ptr_eq(&before, &plain);
        held.push(plain.to_data());
    }
    if !changed {
        return Ok(Arc::clone(values));
    }
    Ok(make_array(data.into_builder().child_data(held).build()?))
}

/// Is it a type of floats, or of lists or structs of them?
pub(super) fn has_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => has_floats(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_floats(field.data_type())),
        other => other.is_floating(),
    }
}

fn plain_f64(x: f64) -> f64 {
    // -0.0 + 0.0 is 0.0.
    if x.is_nan() { f64::from_bits(0x7ff8_0000_0000_0000) } else { x + 0.0 }
}

fn plain_f32(x: f32) -> f32 {
    if x.is_nan() { f32::from_bits(0x7fc0_0000) } else { x + 0.0 }
}

/// The rule, which comes when types are known.
#[derive(Debug)]
pub(super) struct OneNan;

impl AnalyzerRule for OneNan {
    fn name(&self) -> &'static str {
        "one_nan"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|mut node| {
            let below: Vec<LogicalPlan> = node.inputs().into_iter().cloned().collect();
            let inputs: Vec<&LogicalPlan> = below.iter().collect();
            let (schema, peers) = (merge_schema(&inputs), has_peers(&node));
            let of = Inputs { schema, plans: &inputs, peers };
            let names = NamePreserver::new(&node);
            let changed = match &mut node {
                LogicalPlan::Sort(sort) => of.make_keys_one(&mut sort.expr),
                LogicalPlan::Aggregate(aggregate) => {
                    let groups = aggregate.group_expr.iter_mut();
                    groups.fold(false, |changed, group| of.make_group_one(group, &names) | changed)
                }
                LogicalPlan::Distinct(Distinct::All(input)) => make_rows_one(input)?,
                LogicalPlan::Distinct(Distinct::On(distinct)) => of.make_distinct_one(distinct),
                LogicalPlan::Join(join) => of.make_join_keys_one(&mut join.on),
                _ => false,
            };
            let mut rewritten = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let rewritten = expr.transform_up(|part| Ok(of.with_one_of_each(part)))?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })?;
            rewritten.transformed |= changed;
            let rewritten = rewritten.update_data(without_using);
            match &rewritten.data {
                LogicalPlan::Aggregate(aggregate) => {
                    match keys_below(aggregate, |key| of.may_differ(key), one_number)? {
                        Some(grouped) => Ok(Transformed::yes(grouped)),
                        None => Ok(rewritten),
                    }
                }
                _ => Ok(rewritten),
            }
        })
        .data()
    }
}

/// A join by expressions is no USING any more: whoever asks for its columns would end with an error.
fn without_using(node: LogicalPlan) -> LogicalPlan {
    match node {
        LogicalPlan::Join(mut join) if join.join_constraint == JoinConstraint::Using => {
            let is_column = |key: &Expr| key.get_as_join_column().is_some();
            if !join.on.iter().all(|(left, right)| is_column(left) && is_column(right)) {
                join.join_constraint = JoinConstraint::On;
            }
            LogicalPlan::Join(join)
        }
        other => other,
    }
}

/// Windows that count rows heed no zeros. All windows of a node have the same keys.
fn has_peers(node: &LogicalPlan) -> bool {
    let counts_rows = |expr: &Expr| match expr.clone().unalias() {
        Expr::WindowFunction(function) => function.fun.name() == "row_number",
        _ => false,
    };
    matches!(node, LogicalPlan::Window(window) if !window.window_expr.iter().all(counts_rows))
}

/// Rows of which DISTINCT keeps one of each.
fn make_rows_one(input: &mut Arc<LogicalPlan>) -> Result<bool> {
    let rows = Arc::clone(input);
    let schema = rows.schema();
    let is_wanted = |at: usize| match schema.field(at).data_type() {
        float if float.is_floating() => column_may_have_sign(&rows, at),
        other => has_floats(other),
    };
    if !(0..schema.fields().len()).any(is_wanted) {
        return Ok(false);
    }
    let columns = schema.columns().into_iter().enumerate().map(|(at, column)| {
        if !is_wanted(at) {
            return Expr::Column(column);
        }
        named_as(one_number(Expr::Column(column.clone())), column)
    });
    let projection = Projection::try_new(columns.collect(), Arc::clone(&rows))?;
    *input = Arc::new(LogicalPlan::Projection(projection));
    Ok(true)
}

/// What the expressions of a plan are computed from.
struct Inputs<'a> {
    schema: DFSchema,
    plans: &'a [&'a LogicalPlan],
    /// Are rows with equal keys treated alike?
    peers: bool,
}

impl Inputs<'_> {
    fn has_floats(&self, expr: &Expr) -> bool {
        expr.get_type(&self.schema).is_ok_and(|found| has_floats(&found))
    }

    /// May an expression have values that are alike and not of the same bits?
    fn may_differ(&self, expr: &Expr) -> bool {
        let Ok(found) = expr.get_type(&self.schema) else { return false };
        if found.is_floating() {
            may_have_sign(expr, self.plans)
        } else {
            // Nothing below takes 0.0 and -0.0 in a list for one number, either.
            has_floats(&found) && !calls_one_number(expr)
        }
    }

    fn make_one(&self, expr: &mut Expr) -> bool {
        let wanted = self.may_differ(expr);
        if wanted {
            *expr = one_number(expr.clone());
        }
        wanted
    }

    fn make_all_one<'b>(&self, exprs: impl IntoIterator<Item = &'b mut Expr>) -> bool {
        exprs.into_iter().fold(false, |changed, expr| self.make_one(expr) | changed)
    }

    /// Under the name that it had.
    fn make_group_one(&self, group: &mut Expr, names: &NamePreserver) -> bool {
        if matches!(group, Expr::GroupingSet(_)) {
            return false;
        }
        let name = names.save(group);
        let mut value = group.clone().unalias();
        let changed = self.make_one(&mut value);
        if changed {
            *group = name.restore(value);
        }
        changed
    }

    /// USING, NATURAL, INTERSECT and EXCEPT; other joins have conditions.
    fn make_join_keys_one(&self, keys: &mut [(Expr, Expr)]) -> bool {
        let mut changed = false;
        for (left, right) in keys {
            let is_plain = !calls_one_number(left) || !calls_one_number(right);
            // Both, and always: what one side has is looked up in the other by its bits.
            if is_plain && self.has_floats(left) && self.has_floats(right) {
                *left = one_number(left.clone());
                *right = one_number(right.clone());
                changed = true;
            }
        }
        changed
    }

    fn make_distinct_one(&self, distinct: &mut DistinctOn) -> bool {
        let Some(order) = &mut distinct.sort_expr else {
            return self.make_all_one(&mut distinct.on_expr);
        };
        let changed = self.make_keys_one(order);
        // It begins with the same expressions.
        for (on, key) in distinct.on_expr.iter_mut().zip(order) {
            on.clone_from(&key.expr);
        }
        changed
    }

    fn make_keys_one(&self, keys: &mut [SortExpr]) -> bool {
        let last = keys.len().saturating_sub(1);
        let mut changed = false;
        for (at, key) in keys.iter_mut().enumerate() {
            let zeros = self.peers || at < last;
            if zeros && self.has_floats(&key.expr) && !calls_one_number(&key.expr) {
                key.expr = one_number(key.expr.clone());
                changed = true;
            } else {
                changed |= self.make_one(&mut key.expr);
            }
        }
        changed
    }

    fn make_partitions_one(&self, keys: &mut [Expr]) -> bool {
        let mut changed = false;
        for key in keys {
            if self.has_floats(key) && !calls_one_number(key) {
                *key = one_number(key.clone());
                changed = true;
            }
        }
        changed
    }

    /// An expression that compares, with operands that are alike if they are equal.
    fn with_one_of_each(&self, expr: Expr) -> Transformed<Expr> {
        let (expr, changed) = match expr {
            Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) if compares(op) => {
                let changed = self.make_all_one([left.as_mut(), right.as_mut()]);
                (Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
            }
            Expr::Between(mut between) => {
                let operands = [between.expr.as_mut(), between.low.as_mut(), between.high.as_mut()];
                let changed = self.make_all_one(operands);
                (Expr::Between(between), changed)
            }
            Expr::InList(mut list) => {
                let changed = self.make_all_one(&mut list.list) | self.make_one(&mut list.expr);
                (Expr::InList(list), changed)
            }
            Expr::ScalarFunction(mut call) if matches!(call.func.name(), "greatest" | "least") => {
                let changed = self.make_all_one(&mut call.args);
                (Expr::ScalarFunction(call), changed)
            }
            Expr::ScalarFunction(mut call) if compares_items(call.func.name()) => {
                let changed = self.make_all_one(&mut call.args);
                (Expr::ScalarFunction(call), changed)
            }
            Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
                let mut changed = self.make_keys_one(&mut params.order_by);
                if looks_for_order(func.name()) {
                    changed |= self.make_all_one(&mut params.args);
                }
                (Expr::AggregateFunction(AggregateFunction { func, params }), changed)
            }
            Expr::WindowFunction(function) => {
                let WindowFunction { fun, mut params } = *function;
                let mut changed = self.make_keys_one(&mut params.order_by);
                changed |= self.make_partitions_one(&mut params.partition_by);
                if looks_for_order(fun.name()) {
                    changed |= self.make_all_one(&mut params.args);
                }
                (Expr::from(WindowFunction { fun, params }), changed)
            }
            other => (other, false),
        };
        Transformed::new_transformed(expr, changed)
    }
}

fn named_as(expr: Expr, column: Column) -> Expr {
    expr.alias_qualified(column.relation, column.name)
}

fn compares(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

fn looks_for_order(aggregate: &str) -> bool {
    matches!(aggregate, "min" | "max" | "median")
}

/// Functions of lists that look for values, or put them in order.
fn compares_items(function: &str) -> bool {
    function.starts_with("array_has")
        || function.starts_with("array_position")
        || function.starts_with("array_remove")
        || function.starts_with("array_replace")
        || matches!(
            function,
            "array_distinct"
                | "array_except"
                | "array_intersect"
                | "array_max"
                | "array_min"
                | "array_sort"
                | "array_union"
        )
}

fn calls_one_number(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if is_one_number(&call.func))
}

/// May a float, computed from the rows of `inputs`, be a NaN with a sign?
fn may_have_sign(expr: &Expr, inputs: &[&LogicalPlan]) -> bool {
    let any = |exprs: &[Expr]| exprs.iter().any(|expr| may_have_sign(expr, inputs));
    match expr {
        Expr::Literal(value, _) => is_signed_nan(value),
        Expr::Alias(alias) => may_have_sign(&alias.expr, inputs),
        Expr::Column(column) => {
            let found = inputs.iter().find_map(|input| {
                let at = input.schema().maybe_index_of_column(column)?;
                Some((*input, at))
            });
            found.is_none_or(|(input, at)| column_may_have_sign(input, at))
        }
        Expr::Cast(cast) => cast_may_have_sign(&cast.expr, inputs),
        Expr::TryCast(cast) => cast_may_have_sign(&cast.expr, inputs),
        Expr::Negative(inner) => number(inner).is_none_or(f64::is_nan),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (with_left, with_right) = (number(left), number(right));
            let plain = |x: Option<f64>| x.is_some_and(|x| x.is_finite() && x != 0.0);
            let keeps_nan = matches!(
                op,
                Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide
            );
            // Beside a number that is neither infinite nor 0 nothing becomes NaN, and NaN stays as it is.
            match (plain(with_left), plain(with_right)) {
                (true, _) if keeps_nan => may_have_sign(right, inputs),
                (_, true) if keeps_nan => may_have_sign(left, inputs),
                _ => true,
            }
        }
        Expr::Case(case) => {
            let then = case.when_then_expr.iter().map(|(_, then)| then);
            then.chain(&case.else_expr).any(|value| may_have_sign(value, inputs))
        }
        Expr::ScalarFunction(call) => match call.func.name() {
            "abs" | "random" => false,
            "coalesce" | "nvl" | "nullif" | "round" | "floor" | "ceil" | "trunc" => any(&call.args),
            _ => !is_one_number(&call.func),
        },
        Expr::AggregateFunction(function) => {
            !keeps_values(function.func.name()) || any(&function.params.args)
        }
        Expr::WindowFunction(function) => {
            !keeps_values(function.fun.name()) || any(&function.params.args)
        }
        _ => true,
    }
}

/// Aggregates and windows whose value is one of those that they see.
fn keeps_values(function: &str) -> bool {
    matches!(
        function,
        "min"
            | "max"
            | "first_value"
            | "last_value"
            | "nth_value"
            | "any_value"
            | "lag"
            | "lead"
            | "percent_rank"
            | "cume_dist"
    )
}

fn cast_may_have_sign(inner: &Expr, inputs: &[&LogicalPlan]) -> bool {
    let Ok(from) = inner.get_type(&merge_schema(inputs)) else { return true };
    match inner {
        _ if from.is_floating() => may_have_sign(inner, inputs),
        // Texts say `-NaN`.
        Expr::Literal(value, _) => {
            value.cast_to(&DataType::Float64).is_ok_and(|value| is_signed_nan(&value))
        }
        _ => !from.is_numeric(),
    }
}

/// A literal's number.
fn number(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(value, _) => match value.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(number)) => number,
            _ => None,
        },
        Expr::Cast(cast) => number(&cast.expr),
        _ => None,
    }
}

fn is_signed_nan(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float64(Some(x)) => x.is_nan() && plain_f64(*x).to_bits() != x.to_bits(),
        ScalarValue::Float32(Some(x)) => x.is_nan() && plain_f32(*x).to_bits() != x.to_bits(),
        ScalarValue::Float16(Some(x)) => x.is_nan(),
        _ => false,
    }
}

/// The same of a column of a plan's rows.
fn column_may_have_sign(plan: &LogicalPlan, at: usize) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(_) => false,
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source).ok();
            let table = provider.as_ref().and_then(|found| found.downcast_ref::<LakeTable>());
            // Ours have a checksum.
            !table.is_some_and(|table| table.files().iter().all(|file| file.crc32.is_some()))
        }
        LogicalPlan::Values(values) => {
            let mut found = values.values.iter().map(|row| row.get(at));
            found.any(|value| value.is_none_or(|value| may_have_sign(value, &[])))
        }
        LogicalPlan::Projection(projection) => {
            let expr = projection.expr.get(at);
            expr.is_none_or(|expr| may_have_sign(expr, &[projection.input.as_ref()]))
        }
        LogicalPlan::SubqueryAlias(alias) => column_may_have_sign(&alias.input, at),
        LogicalPlan::Filter(filter) => column_may_have_sign(&filter.input, at),
        LogicalPlan::Sort(sort) => column_may_have_sign(&sort.input, at),
        LogicalPlan::Limit(limit) => column_may_have_sign(&limit.input, at),
        LogicalPlan::Distinct(Distinct::All(input)) => column_may_have_sign(input, at),
        LogicalPlan::Union(union) => {
            union.inputs.iter().any(|input| column_may_have_sign(input, at))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let mut exprs = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
            let sets = aggregate.group_expr.iter().any(|e| matches!(e, Expr::GroupingSet(_)));
            let expr = exprs.nth(at).filter(|_| !sets);
            expr.is_none_or(|expr| may_have_sign(expr, &[aggregate.input.as_ref()]))
        }
        LogicalPlan::Window(window) => {
            let before = window.input.schema().fields().len();
            match at.checked_sub(before) {
                None => column_may_have_sign(&window.input, at),
                Some(own) => {
                    let expr = window.window_expr.get(own);
                    expr.is_none_or(|expr| may_have_sign(expr, &[window.input.as_ref()]))
                }
            }
        }
        LogicalPlan::Join(join) => {
            let of_left = join.left.schema().fields().len();
            match join.join_type {
                JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                    match at.checked_sub(of_left) {
                        None => column_may_have_sign(&join.left, at),
                        Some(at) => column_may_have_sign(&join.right, at),
                    }
                }
                JoinType::LeftSemi | JoinType::LeftAnti => column_may_have_sign(&join.left, at),
                JoinType::RightSemi | JoinType::RightAnti => column_may_have_sign(&join.right, at),
                JoinType::LeftMark | JoinType::RightMark => true,
            }
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::lit;

    use super::*;

    #[test]
    fn there_is_one_nan_and_one_zero() {
        let values = vec![Some(-f64::NAN), Some(f64::NAN.abs()), None, Some(-0.0), Some(-1.5)];
        let floats: ArrayRef = Arc::new(Float64Array::from(values));
        let plain = one_of_each(&floats).unwrap();
        let bits = |at: usize| plain.as_primitive::<Float64Type>().value(at).to_bits();
        assert_eq!(bits(0), bits(1));
        assert!(plain.is_null(2));
        assert_eq!((bits(3), bits(4)), (0.0f64.to_bits(), (-1.5f64).to_bits()));
    }

    #[test]
    fn what_needs_no_change_is_not_copied() {
        let floats: ArrayRef = Arc::new(Float32Array::from(vec![1.0, f32::INFINITY, 0.0]));
        assert!(Arc::ptr_eq(&floats, &one_of_each(&floats).unwrap()));
    }

    #[test]
    fn a_nan_has_a_sign_where_two_numbers_may_make_one() {
        let x = || Expr::Negative(Box::new(lit(1.5)));
        let cases = [
            (lit(f64::NAN.abs()), false),
            (lit(-f64::NAN.abs()), true),
            (x(), false),
            (x() * lit(2.0), false),
            (lit(2.0) - x(), false),
            (x() * lit(0.0), true),
            (x() / x(), true),
            (x() % lit(2.0), true),
        ];
        for (expr, want) in cases {
            assert_eq!(may_have_sign(&expr, &[]), want, "{expr}");
        }
    }
}
