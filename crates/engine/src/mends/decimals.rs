//! Decimals of 38 digits, which are right or an error.
//!
//! DataFusion computes them in 128 bits, which hold a little more than 38 digits, and adds them up in sums that
//! wrap round. `99…9 + 1` was shown and stored as a tenth of it, and sums of four such were negative.
//!
//! # Invariants
//! - Only results of 38 digits are looked at; a result of fewer has room for all that its operands can make.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Accumulator, BinaryExpr, ColumnarValue, EmitTo, Expr, ExprSchemable, GroupsAccumulator,
    LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;

/// The rule, which comes when types are known.
#[derive(Debug)]
pub(super) struct Of38Digits;

impl AnalyzerRule for Of38Digits {
    fn name(&self) -> &'static str {
        "decimals_of_38_digits"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let computes = |expr: &Expr| Ok(is_operation(expr));
            let expressions = node.expressions();
            let found = expressions.iter().map(|expr| expr.exists(computes));
            if !found.collect::<Result<Vec<_>>>()?.contains(&true) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let checked = expr.transform_up(|part| Ok(checked(part, &schema)))?;
                Ok(checked.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }
}

fn is_operation(expr: &Expr) -> bool {
    use Operator::{Divide, Minus, Multiply, Plus};
    matches!(expr, Expr::BinaryExpr(BinaryExpr { op: Plus | Minus | Multiply | Divide, .. }))
}

fn checked(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    if is_operation(&expr) && expr.get_type(schema).is_ok_and(|found| is_full(&found)) {
        return Transformed::yes(FITS.call(vec![expr]));
    }
    Transformed::no(expr)
}

fn is_full(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(DECIMAL128_MAX_PRECISION, _))
}

fn does_not_fit() -> DataFusionError {
    let message = "a decimal of more than 38 digits";
    EngineError::execution(SqlState::NumericValueOutOfRange, message)
        .with_hint("cast to DOUBLE")
        .into()
}

pub(super) static FITS: LazyLock<ScalarUDF> =
    LazyLock::new(|| ScalarUDF::from(Fits { signature: Signature::any(1, Volatility::Immutable) }));

/// The decimal itself, or an error.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fits {
    signature: Signature,
}

impl ScalarUDFImpl for Fits {
    fn name(&self) -> &'static str {
        "within_38_digits"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types.first().cloned().unwrap_or(DataType::Null))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(found) = args.args.pop() else { return Err(does_not_fit()) };
        let values = found.to_array(1)?;
        let values = values.as_primitive::<Decimal128Type>();
        values.validate_decimal_precision(DECIMAL128_MAX_PRECISION).map_err(|_| does_not_fit())?;
        Ok(found)
    }
}

/// What carries a sum of 38 digits: `None` for another type.
pub(super) fn carrier(sum: &DataType) -> Option<DataType> {
    match sum {
        DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale) => {
            Some(DataType::Decimal256(DECIMAL256_MAX_PRECISION, *scale))
        }
        _ => None,
    }
}

/// The field of a sum, in what carries it.
pub(super) fn carried(name: &str, carrier: DataType) -> FieldRef {
    Arc::new(Field::new(name, carrier, true))
}

fn narrowed(values: &ArrayRef, wanted: &DataType) -> Result<ArrayRef> {
    let exactly = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(values, wanted, &exactly).map_err(|_| does_not_fit())
}

/// A sum of 38 digits, which `of` adds up in more.
#[derive(Debug)]
pub(super) struct Wide<A> {
    pub sum: DataType,
    pub carrier: DataType,
    pub of: A,
}

impl<A> Wide<A> {
    fn widened(&self, values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        Ok(values.iter().map(|values| cast(values, &self.carrier)).collect::<Result<_, _>>()?)
    }
}

impl Accumulator for Wide<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = self.widened(values)?;
        self.of.update_batch(&values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let total = self.of.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&narrowed(&total, &self.sum)?, 0)
    }

    fn size(&self) -> usize {
        self.of.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.of.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.of.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = self.widened(values)?;
        self.of.retract_batch(&values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.of.supports_retract_batch()
    }
}

impl GroupsAccumulator for Wide<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let values = self.widened(values)?;
        self.of.update_batch(&values, group_indices, filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        narrowed(&self.of.evaluate(emit_to)?, &self.sum)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.of.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.of.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = self.widened(values)?;
        self.of.convert_to_state(&values, filter)
    }

    fn size(&self) -> usize {
        self.of.size()
    }
}
