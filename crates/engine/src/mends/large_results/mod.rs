//! Functions whose result may be larger than what they are given, within bounds.
//!
//! `repeat`, `replace` and `range` of a few words make gigabytes that nobody counts, for one batch or, of
//! constants, while a statement is planned; and building a text of more than 2 GiB panics in Arrow. Here what a
//! call would make is reckoned before it is made, and what it may make is a share of the session's memory, or an
//! eighth more than its largest column of arguments: what only passes long texts on is never refused.
//!
//! | file | what |
//! |---|---|
//! | `constants` | what a SELECT list and CASE repeat for each row |
//! | `growth` | how many bytes a call makes at most, by its name |
//! | `sizes` | how many bytes values have |
//! | `joined` | the operator `||` of texts as a call |
//!
//! # Invariants
//! - A call that is let through gives what DataFusion's gives: only `invoke_with_args` looks, and the optimizer
//!   is told what the function itself tells it.
//! - Every call of a name in `growth` is bounded, whoever planned it: `[a, b]`, `OVERLAY(… PLACING …)` and what
//!   `simplify` makes of `concat_ws` are not taken from the registry.
//!
//! # Not here
//! Casts, LIKE, aggregates, windows and joins.

mod constants;
mod growth;
mod joined;
mod limits;
mod sizes;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl,
};
use datafusion::optimizer::AnalyzerRule;

use super::as_before::scalar_as_before;

pub(super) use constants::LongConstants;
pub(super) use growth::grows;
use limits::expect_to_fit;

/// A pattern that takes 4 MiB once it is compiled.
const LONG_PATTERN_BYTES: u128 = 32 << 10;

/// Those that no statement names.
pub(super) fn private_functions() -> [ScalarUDF; 2] {
    [constants::FUNCTION.clone(), joined::FUNCTION.clone()]
}

/// The function, which refuses what would be too large.
pub(super) fn bounded(function: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Bounded { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    function: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Bounded {
    scalar_as_before!(
        return_field_from_args,
        coerce_types,
        is_strict,
        output_ordering,
        schema_name,
        short_circuits,
        conditional_arguments,
        evaluate_bounds,
        propagate_constraints,
        preserves_lex_ordering,
        strictly_order_preserving,
        preimage,
        placement,
    );

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        self.function.inner().with_updated_config(config).map(|other| bounded(Arc::new(other)))
    }

    /// What becomes of it is bounded, too.
    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // It becomes an operator, which looks at nothing.
        let is_long = |arg: &Expr| matches!(arg, Expr::Literal(text, _) if sizes::of_scalar(text) > LONG_PATTERN_BYTES);
        if self.name() == "regexp_like" && args.get(1).is_some_and(is_long) {
            return Ok(ExprSimplifyResult::Original(args));
        }
        match self.function.simplify(args, context)? {
            ExprSimplifyResult::Simplified(expr) => {
                Ok(ExprSimplifyResult::Simplified(expr.transform_up(bounded_call).data()?))
            }
            original => Ok(original),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        expect_to_fit(self.name(), &args)?;
        self.function.invoke_with_args(args)
    }
}

/// Bounds the calls that no registry gave, and makes calls of `||`. It comes when types are known.
#[derive(Debug)]
pub(super) struct BoundedCalls;

impl AnalyzerRule for BoundedCalls {
    fn name(&self) -> &'static str {
        "bounded_calls"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            // What a scan filters by is the table's own affair.
            if matches!(node, LogicalPlan::TableScan(_)) {
                return Ok(Transformed::no(node));
            }
            let expressions = node.expressions();
            let found = expressions.iter().map(|expr| expr.exists(|part| Ok(concerns(part))));
            if !found.collect::<Result<Vec<_>>>()?.contains(&true) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            // Names stay: the calls have those of what they are in place of.
            node.map_expressions(|expr| {
                expr.transform_up(|part| {
                    bounded_call(part)?.transform_data(|part| as_one_call(part, &schema))
                })
            })
        })
        .data()
    }
}

fn concerns(part: &Expr) -> bool {
    match part {
        Expr::ScalarFunction(call) => is_unbounded(call),
        Expr::BinaryExpr(BinaryExpr { op, .. }) => *op == Operator::StringConcat,
        _ => false,
    }
}

fn is_unbounded(call: &ScalarFunction) -> bool {
    let inner = call.func.inner();
    grows(call.func.name()) && !inner.is::<Bounded>() && !inner.is::<joined::Joined>()
}

fn bounded_call(part: Expr) -> Result<Transformed<Expr>> {
    match part {
        Expr::ScalarFunction(call) if is_unbounded(&call) => {
            let ScalarFunction { func, args } = call;
            let func = Arc::new(bounded(func));
            Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// `a || b` of texts as a call, of which `a || b || c` is one.
fn as_one_call(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) = part else {
        return Ok(Transformed::no(part));
    };
    let types = (left.get_type(schema), right.get_type(schema));
    if !matches!(types, (Ok(left), Ok(right)) if left == right && left.is_string()) {
        let operator = BinaryExpr { left, op: Operator::StringConcat, right };
        return Ok(Transformed::no(Expr::BinaryExpr(operator)));
    }
    let mut args = match *left {
        Expr::ScalarFunction(call) if call.func.inner().is::<joined::Joined>() => call.args,
        other => vec![other],
    };
    args.push(*right);
    Ok(Transformed::yes(joined::call(args)))
}
