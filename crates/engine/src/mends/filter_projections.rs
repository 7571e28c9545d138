//! DataFusion's projection pushdown, where a filter hands out other columns than it reads.
//!
//! Whether a projection may go below a filter is asked of the filter's condition, whose columns are those that
//! the filter reads, and of the projection, whose columns are those that it hands out. If a column has the same
//! name and number in both, as the second `k` of a join may have, the condition moves to another column, and
//! the projection is given rows that it does not fit (`FilterExec::try_swapping_with_projection` of DataFusion
//! 55.2). Such a filter hands out all that it reads before the question is asked; the answer puts its columns
//! together again.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, update_expr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;

/// DataFusion's rule, under its name.
#[derive(Debug)]
pub(super) struct ProjectionPushdown(pub Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for ProjectionPushdown {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let whole = plan.transform_up(|node| match above_whole_filter(node.as_ref())? {
            Some(projection) => Ok(Transformed::yes(Arc::new(projection) as _)),
            None => Ok(Transformed::no(node)),
        });
        self.0.optimize(whole.data()?, config)
    }
}

/// The projection above its filter without a projection, if the rule would take columns for others.
fn above_whole_filter(node: &dyn ExecutionPlan) -> Result<Option<ProjectionExec>> {
    let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return Ok(None) };
    let Some(filter) = projection.input().downcast_ref::<FilterExec>() else { return Ok(None) };
    let Some(handed_out) = filter.projection() else { return Ok(None) };
    if update_expr(filter.predicate(), projection.expr(), false)?.is_none() {
        return Ok(None);
    }
    let schema = filter.input().schema();
    let read = |expr: &Arc<dyn PhysicalExpr>| {
        let read = Arc::clone(expr).transform_up(|part| match part.downcast_ref::<Column>() {
            Some(column) => {
                let at = handed_out[column.index()];
                Ok(Transformed::yes(Arc::new(Column::new(schema.field(at).name(), at)) as _))
            }
            None => Ok(Transformed::no(part)),
        });
        read.data()
    };
    let exprs = projection.expr().iter();
    let exprs = exprs.map(|shown| Ok(ProjectionExpr::new(read(&shown.expr)?, shown.alias.clone())));
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    let whole = FilterExecBuilder::from(filter).apply_projection(None)?.build()?;
    Ok(Some(ProjectionExec::try_new(exprs, Arc::new(whole))?))
}
