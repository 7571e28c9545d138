//! A sort where an operator needs an order that its input does not have.
//!
//! DataFusion's rules leave such plans behind where keys are constant or are there twice, as in `OVER (ORDER BY
//! a, b, a) … WHERE b = '2026-11-03'`: one concludes that rows are in order, another takes what it concluded
//! that from away. Its last rule finds that out and refuses the plan; this one comes before it.
//!
//! # Invariants
//! - A plan that would not be refused stays as it is.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::base::one_input::EachNode;

/// The rule.
pub(super) const MISSING_SORTS: EachNode = EachNode { name: "missing_sorts", other: sorted };

fn sorted(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut found = false;
    let mut inputs: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
    for (input, needed) in node.children().into_iter().zip(node.required_input_ordering()) {
        let input = Arc::clone(input);
        let Some(needed) = needed.map(|needed| needed.into_single()) else {
            inputs.push(input);
            continue;
        };
        if input.equivalence_properties().ordering_satisfy_requirement(needed.clone())? {
            inputs.push(input);
            continue;
        }
        found = true;
        let several = input.output_partitioning().partition_count() > 1;
        let sort = SortExec::new(LexOrdering::from(needed), input);
        inputs.push(Arc::new(sort.with_preserve_partitioning(several)));
    }
    if !found {
        return Ok(None);
    }
    let changed = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(node).replace_children(inputs, changed).map(Some)
}
