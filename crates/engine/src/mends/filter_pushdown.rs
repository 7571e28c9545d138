//! DataFusion's filter pushdown, where two columns of a plan have one name.
//!
//! It tells columns by their names: above `p JOIN e`, whose rows have `p.value` and `e.value`, a condition
//! on the one reached the scan of the other, and rows were lost (`FilterRemapper` and
//! `ProjectionExec::collect_reverse_alias` of DataFusion 55.2). While filters are pushed down, a
//! [`UniqueNamesExec`] stands above every operator whose columns share a name, and lets pass only what
//! asks for columns that have theirs alone.
//!
//! A join tells scans the least and the largest of its keys, and fails where these are lists of lists or of
//! structs, which have no order. Joins by nested keys tell nothing.
//!
//! # Invariants
//! - A plan that this rule hands out holds no [`UniqueNamesExec`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, HashJoinExecBuilder};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;

use crate::base::one_input::{OneInput, OneInputExec};

/// One of DataFusion's two rules of filter pushdown, under its name.
#[derive(Debug)]
pub(super) struct FilterPushdown(pub Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for FilterPushdown {
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
        let guarded = plan.transform_up(|node| match UniqueNames::above(&node) {
            Some(guarded) => Ok(Transformed::yes(Arc::new(guarded) as _)),
            None => Ok(Transformed::no(node)),
        })?;
        let pushed = self.0.optimize(guarded.data, config)?;
        pushed
            .transform_up(|node| match node.downcast_ref::<UniqueNamesExec>() {
                Some(guarded) => Ok(Transformed::yes(Arc::clone(&guarded.input))),
                None => without_bounds(node),
            })
            .data()
    }
}

/// A join by nested keys, which tells scans nothing.
fn without_bounds(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return Ok(Transformed::no(node)) };
    let schema = join.left().schema();
    let is_nested = |(key, _): &(Arc<dyn PhysicalExpr>, _)| {
        key.data_type(&schema).is_ok_and(|found| found.is_nested())
    };
    if !join.on().iter().any(is_nested) {
        return Ok(Transformed::no(node));
    }
    // Its state, of which there is none yet, is the filter.
    Ok(Transformed::yes(HashJoinExecBuilder::from(join).reset_state().build_exec()?))
}

/// Hands filters on to its input if their columns have names of their own.
type UniqueNamesExec = OneInputExec<UniqueNames>;

#[derive(Clone, Debug)]
struct UniqueNames {
    /// Those columns.
    unique: HashSet<usize>,
}

impl UniqueNames {
    /// `None` if all columns have names of their own.
    fn above(input: &Arc<dyn ExecutionPlan>) -> Option<UniqueNamesExec> {
        let schema = input.schema();
        let fields = schema.fields();
        let mut count: HashMap<&str, usize> = HashMap::new();
        fields.iter().for_each(|field| *count.entry(field.name()).or_default() += 1);
        let unique = (0..fields.len()).filter(|at| count[fields[*at].name().as_str()] == 1);
        let unique: HashSet<usize> = unique.collect();
        (unique.len() < fields.len())
            .then(|| OneInputExec::over(Self { unique }, Arc::clone(input)))
    }
}

impl OneInput for UniqueNames {
    const NAME: &'static str = "UniqueNamesExec";

    fn asked_below(&self) -> Option<HashSet<usize>> {
        Some(self.unique.clone())
    }

    fn again(&self) -> Self {
        self.clone()
    }

    fn rows(
        &self,
        _: &Arc<dyn ExecutionPlan>,
        _: &ExecutionPlanMetricsSet,
        _: usize,
        _: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        internal_err!("a UniqueNamesExec is only there while filters are pushed down")
    }
}
