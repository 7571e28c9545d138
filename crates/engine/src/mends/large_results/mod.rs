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
mod sizes;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl,
};
use datafusion::optimizer::AnalyzerRule;

use super::as_before::scalar_as_before;
use crate::held::held_bytes;
use crate::settings::Settings;

pub(super) use constants::LongConstants;
pub(super) use growth::grows;

/// What one call may make at most: half of what Arrow's 32-bit offsets reach.
const MOST_BYTES: usize = (i32::MAX / 2) as usize;
/// Of the session's memory: several calls are under way at once, and each result is copied once or twice.
const MEMORY_SHARE: usize = 8;
/// Of what one call may make, a constant: a plan holds ten to twenty copies of it while it is made, 300 MB of one
/// of 30 MB.
const CONSTANT_SHARE: u128 = 4;
/// However little memory there is: a batch of ordinary texts.
const LEAST_BYTES: usize = 16 << 20;
/// Of the largest column among its arguments, what a call may make beyond it: 40 MiB of documents with a word
/// before each are as good as 40 MiB of documents.
const COLUMN_SHARE: u128 = 8;
/// Calls that make less than this part of what one may make do not ask what the process holds, which takes some
/// 20 µs: at 256 MiB of memory 4 MiB, which take 1 ms to make.
const UNASKED_SHARE: u128 = 8;
/// Of the memory, what the process may hold beyond it while a call makes its result.
const OVERDRAFT_SHARE: usize = 8;

/// A pattern that takes 4 MiB once it is compiled.
const LONG_PATTERN_BYTES: u128 = 32 << 10;

const MIB: u128 = 1 << 20;

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

/// Refuses a call that would make too much.
fn expect_to_fit(name: &str, args: &ScalarFunctionArgs) -> Result<()> {
    // Of constants one value is made, for however many rows.
    let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let mut limits = Limits::of(&args.config_options);
    if is_constant {
        limits.most /= CONSTANT_SHARE;
    }
    let bytes = growth::bytes(name, &args.args, rows, limits.most)?;
    let column = || args.args.iter().map(sizes::of_column).max().unwrap_or_default();
    if bytes > limits.most && bytes > column() / COLUMN_SHARE * (COLUMN_SHARE + 1) {
        return limits.refuse(name, bytes, rows);
    }
    limits.expect_beside_others(name, bytes, rows)
}

/// What calls may make with the session's memory.
struct Limits {
    /// 0 if nobody said.
    memory: usize,
    /// One call.
    most: u128,
}

impl Limits {
    fn of(config: &ConfigOptions) -> Self {
        let memory = config.extensions.get::<Settings>().map_or(0, |s| s.memory_bytes);
        let most = match memory {
            0 => MOST_BYTES,
            memory => (memory / MEMORY_SHARE).clamp(LEAST_BYTES, MOST_BYTES),
        };
        Self { memory, most: most as u128 }
    }

    fn refuse(&self, name: &str, bytes: u128, rows: usize) -> Result<()> {
        Err(DataFusionError::ResourcesExhausted(format!(
            "{name} would make {} MiB for {rows} rows, and one call may make {} MiB with this much \
             memory",
            bytes / MIB,
            self.most / MIB
        )))
    }

    /// A call that is large enough to matter must fit beside all that the process holds.
    fn expect_beside_others(&self, name: &str, bytes: u128, rows: usize) -> Result<()> {
        if self.memory == 0 || bytes <= self.most / UNASKED_SHARE {
            return Ok(());
        }
        let may = (self.memory + self.memory / OVERDRAFT_SHARE) as u128;
        let held = held_bytes() as u128;
        if held + bytes <= may {
            return Ok(());
        }
        Err(DataFusionError::ResourcesExhausted(format!(
            "{name} would make {} MiB for {rows} rows beside {} MiB that are held, and together \
             they may be {} MiB",
            bytes / MIB,
            held / MIB,
            may / MIB
        )))
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
