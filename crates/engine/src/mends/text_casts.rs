//! A number made of a text that was made of a number: `CAST(CAST(n AS TEXT) AS BIGINT) > 7`.
//!
//! DataFusion estimates how many rows such a condition keeps from the least and the greatest n, of which it
//! makes texts: '9' and '11', an interval that ends before it begins, and refuses the statement. What goes
//! through a function it does not estimate.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

pub(super) static FUNCTION: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::from(AsItIs { signature: Signature::any(1, Volatility::Immutable) })
});

/// The value, of which no rule knows how it is computed.
pub(super) fn as_it_is(value: Expr) -> Expr {
    FUNCTION.call(vec![value])
}

/// The rule, which comes when types are known. It heeds SELECT lists, too: a condition on such a column is moved
/// down to what the column is computed from.
#[derive(Debug)]
pub(super) struct NumbersOfTexts;

impl AnalyzerRule for NumbersOfTexts {
    fn name(&self) -> &'static str {
        "numbers_of_texts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                Ok(expr.transform_up(apart)?.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }
}

fn apart(part: Expr) -> Result<Transformed<Expr>> {
    let Expr::Cast(mut outer) = part else { return Ok(Transformed::no(part)) };
    let is_of_text = matches!(
        outer.expr.as_ref(),
        Expr::Cast(inner) if inner.field.data_type().is_string() && !is_literal(&inner.expr)
    );
    if is_of_text && outer.field.data_type().is_numeric() {
        *outer.expr = as_it_is(*outer.expr);
        return Ok(Transformed::yes(Expr::Cast(outer)));
    }
    Ok(Transformed::no(Expr::Cast(outer)))
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AsItIs {
    signature: Signature,
}

impl ScalarUDFImpl for AsItIs {
    fn name(&self) -> &'static str {
        "as_it_is"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
            _ => internal_err!("as_it_is has one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [of] => Ok(Arc::new(Field::new(self.name(), of.data_type().clone(), of.is_nullable()))),
            _ => internal_err!("as_it_is has one argument"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.pop() {
            Some(value) => Ok(value),
            None => internal_err!("as_it_is has one argument"),
        }
    }
}
