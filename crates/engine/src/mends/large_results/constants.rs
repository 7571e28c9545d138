//! Long constants, which a SELECT list and CASE repeat for each row.
//!
//! `CASE WHEN a THEN 'x' ELSE repeat('b', 30000000) END` of a batch of 8192 rows makes 245 GB, and so does
//! `coalesce`, which becomes CASE; nothing of that is a function's. Here such a constant becomes a call, which is
//! told for how many rows it is.
//!
//! # Invariants
//! - Named as the constant.
//! - Volatile, so that it is not made a constant again. Only long ones are, which are rare.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::{
    Case, ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::limits::Limits;
use super::sizes::of_scalar;

/// 8192 rows of it are the 16 MiB that a call may make at least.
const LONG_BYTES: u128 = 2048;

pub(super) static FUNCTION: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::from(Constant { signature: Signature::any(1, Volatility::Volatile) })
});

/// The rule, the last: constants are as long as they get.
#[derive(Debug)]
pub(crate) struct LongConstants;

impl OptimizerRule for LongConstants {
    fn name(&self) -> &'static str {
        "long_constants"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|node| {
            if matches!(node, LogicalPlan::TableScan(_) | LogicalPlan::Values(_)) {
                return Ok(Transformed::no(node));
            }
            let is_list = matches!(node, LogicalPlan::Projection(_));
            node.map_expressions(|expr| {
                let expr = expr.transform_up(in_branches)?;
                if is_list { expr.transform_data(|expr| Ok(shown(expr))) } else { Ok(expr) }
            })
        })
    }
}

fn is_long(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if of_scalar(value) > LONG_BYTES)
}

/// What a SELECT list shows.
fn shown(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::Alias(Alias { expr, relation, name, metadata }) if is_long(&expr) => {
            let expr = Box::new(FUNCTION.call(vec![*expr]));
            Transformed::yes(Expr::Alias(Alias { expr, relation, name, metadata }))
        }
        literal if is_long(&literal) => Transformed::yes(FUNCTION.call(vec![literal])),
        other => Transformed::no(other),
    }
}

fn in_branches(part: Expr) -> Result<Transformed<Expr>> {
    let Expr::Case(mut case) = part else { return Ok(Transformed::no(part)) };
    let mut found = false;
    for branch in results(&mut case).filter(|branch| is_long(branch)) {
        found = true;
        *branch = FUNCTION.call(vec![std::mem::take(branch)]);
    }
    let case = Expr::Case(case);
    Ok(if found { Transformed::yes(case) } else { Transformed::no(case) })
}

fn results(case: &mut Case) -> impl Iterator<Item = &mut Expr> {
    let branches = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
    branches.chain(case.else_expr.iter_mut().map(|other| other.as_mut()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Constant {
    signature: Signature,
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.iter().map(|arg| arg.schema_name().to_string()).collect())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
            _ => internal_err!("constant has one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [of] => Ok(Arc::new(Field::new(self.name(), of.data_type().clone(), of.is_nullable()))),
            _ => internal_err!("constant has one argument"),
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(value) = args.args.pop() else {
            return internal_err!("constant has one argument");
        };
        if let ColumnarValue::Scalar(value) = &value {
            let limits = Limits::of(&args.config_options);
            let bytes = of_scalar(value) * args.number_rows as u128;
            if bytes > limits.most {
                limits.refuse("a constant", bytes, args.number_rows)?;
            }
            limits.expect_beside_others("a constant", bytes, args.number_rows)?;
        }
        Ok(value)
    }
}
