//! One pass over expressions, for all mends of casts and of functions of times that look at one part and its types.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use super::{bare_numbers, late_times, rounded_casts, text_casts, texts_of_times, time_spans};

/// What is put in a part's place, if anything, by the types of the node's inputs.
type Mend = fn(Expr, &DFSchema) -> Transformed<Expr>;

const MENDS: [Mend; 6] = [
    bare_numbers::spelled_out,
    time_spans::of_days,
    texts_of_times::of_postgres,
    rounded_casts::to_whole,
    text_casts::apart,
    late_times::as_computed,
];

/// The rule, which comes when types are known.
#[derive(Debug)]
pub(super) struct CastsAndTimes;

impl AnalyzerRule for CastsAndTimes {
    fn name(&self) -> &'static str {
        "casts_and_times"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let mut found = false;
            node.apply_expressions(|expr| {
                found |= expr.exists(|part| Ok(concerns(part)))?;
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })?;
            if !found {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let mended = expr.transform_up(|part| Ok(mended(part, &schema)))?;
                Ok(mended.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }
}

fn concerns(part: &Expr) -> bool {
    matches!(part, Expr::Cast(_) | Expr::TryCast(_) | Expr::ScalarFunction(_))
}

fn mended(part: Expr, schema: &DFSchema) -> Transformed<Expr> {
    if !concerns(&part) {
        return Transformed::no(part);
    }
    MENDS.iter().fold(Transformed::no(part), |so_far, mend| {
        let next = mend(so_far.data, schema);
        Transformed::new_transformed(next.data, so_far.transformed || next.transformed)
    })
}
